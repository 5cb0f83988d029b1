//! The number of the snapshot format, in front of every snapshot.
//!
//! Invariant: it changes whenever the same bytes would be read as a different state.

use minicbor::{Decode, Decoder, Encode, Encoder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format;

const FORMAT: u32 = 6;

impl<C> Encode<C> for Format {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.u32(FORMAT)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Format {
    fn decode(d: &mut Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        match d.u32()? {
            FORMAT => Ok(Self),
            _ => Err(minicbor::decode::Error::message("a snapshot of another format")),
        }
    }
}
