//! The bytes of a record: one atomic append to a stream.

use minicbor::{Decode, Decoder, Encode, Encoder};

use crate::id::Activity;
use crate::time::Timestamp;

/// The events of one command on one instance, at one moment. Stored as an array of the moment and
/// the array of the events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<E> {
    pub at: Timestamp,
    pub events: Vec<E>,
}

/// The moment of the record around an event. Other moments are stored as their distance from it:
/// one or two bytes instead of nine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedAt(pub Timestamp);

/// Bytes that are not a record of the expected kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored record cannot be read: {reason}")]
pub struct Unreadable {
    pub reason: String,
}

impl<E: Encode<RecordedAt>> Record<E> {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut encoder = Encoder::new(Vec::with_capacity(64));
        match self.encode(&mut encoder) {
            Ok(()) => encoder.into_writer(),
            // Writing to memory cannot fail; the type is Infallible.
            Err(_) => unreachable!("encoding into memory cannot fail"),
        }
    }

    fn encode(
        &self,
        e: &mut Encoder<Vec<u8>>,
    ) -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
        e.array(2)?.i64(self.at.0)?;
        self.events.encode(e, &mut RecordedAt(self.at))
    }
}

impl<'b, E: Decode<'b, RecordedAt>> Record<E> {
    pub fn from_bytes(bytes: &'b [u8]) -> Result<Self, Unreadable> {
        let mut decoder = Decoder::new(bytes);
        let record =
            Self::decode(&mut decoder).map_err(|e| Unreadable { reason: e.to_string() })?;
        if decoder.position() != bytes.len() {
            return Err(Unreadable { reason: "it is followed by foreign bytes".to_owned() });
        }
        Ok(record)
    }

    fn decode(d: &mut Decoder<'b>) -> Result<Self, minicbor::decode::Error> {
        let Some(fields @ 2..) = d.array()? else {
            return Err(minicbor::decode::Error::message("not a record"));
        };
        let at = Timestamp(d.i64()?);
        let events = d.decode_with(&mut RecordedAt(at))?;
        // Fields of a later version.
        for _ in 2..fields {
            d.skip()?;
        }
        Ok(Self { at, events })
    }
}

impl AsRef<Self> for RecordedAt {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// A moment as its distance to the record in milliseconds, for `#[cbor(with = "…")]`.
pub mod relative {
    use super::{Decoder, Encoder, RecordedAt, Timestamp};

    pub fn encode<C: AsRef<RecordedAt>, W: minicbor::encode::Write>(
        moment: &Timestamp,
        e: &mut Encoder<W>,
        around: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        // Wrapping loses nothing: reading wraps back.
        e.i64(around.as_ref().0.0.wrapping_sub(moment.0))?.ok()
    }

    pub fn decode<C: AsRef<RecordedAt>>(
        d: &mut Decoder<'_>,
        around: &mut C,
    ) -> Result<Timestamp, minicbor::decode::Error> {
        Ok(Timestamp(around.as_ref().0.0.wrapping_sub(d.i64()?)))
    }
}

pub(super) mod relative_if_any {
    use super::{Decoder, Encoder, RecordedAt, Timestamp, relative};

    pub(in crate::event) fn encode<C: AsRef<RecordedAt>, W: minicbor::encode::Write>(
        moment: &Option<Timestamp>,
        e: &mut Encoder<W>,
        around: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        match moment {
            Some(moment) => relative::encode(moment, e, around),
            None => e.null()?.ok(),
        }
    }

    pub(in crate::event) fn decode<C: AsRef<RecordedAt>>(
        d: &mut Decoder<'_>,
        around: &mut C,
    ) -> Result<Option<Timestamp>, minicbor::decode::Error> {
        if d.datatype()? == minicbor::data::Type::Null {
            return d.null().map(|()| None);
        }
        relative::decode(d, around).map(Some)
    }

    pub(in crate::event) fn nil() -> Option<Option<Timestamp>> {
        Some(None)
    }

    pub(in crate::event) fn is_nil(moment: &Option<Timestamp>) -> bool {
        moment.is_none()
    }
}

/// An activity outside of loops as the number of its node alone, inside as an array of the number
/// and the counters.
pub(super) mod compact_activity {
    use super::{Activity, Decoder, Encoder};
    use crate::id::{Iteration, NodeId};

    pub(in crate::event) fn encode<C, W: minicbor::encode::Write>(
        activity: &Activity,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        let Activity { node: NodeId(node), iteration: Iteration(counts) } = activity;
        if counts.is_empty() {
            return e.u32(*node)?.ok();
        }
        e.array(1 + counts.len() as u64)?.u32(*node)?;
        counts.iter().try_for_each(|count| e.u32(*count)?.ok())
    }

    pub(in crate::event) fn decode<C>(
        d: &mut Decoder<'_>,
        _: &mut C,
    ) -> Result<Activity, minicbor::decode::Error> {
        if d.datatype()? != minicbor::data::Type::Array {
            return Ok(Activity::once(NodeId(d.u32()?)));
        }
        let mut numbers = d.array_iter::<u32>()?;
        let node = numbers
            .next()
            .ok_or_else(|| minicbor::decode::Error::message("an activity without a node"))??;
        let counts = numbers.collect::<Result<_, _>>()?;
        Ok(Activity { node: NodeId(node), iteration: Iteration(counts) })
    }
}
