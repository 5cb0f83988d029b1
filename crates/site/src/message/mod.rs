//! Messages between servers: one enum for each protocol, and their bytes.
//!
//! A message may be lost, repeated or late. The sender resends it until it is acknowledged; the receiver acknowledges
//! again what it has acted on before. Numbers in `#[n(…)]` are the wire format, counted through all protocols: servers
//! of different versions understand each other as long as the rules of `event` are kept.

mod catalog;
mod deadline;
mod key;
mod migration;
mod registrar;
mod wire;
mod worklist;

pub use catalog::Catalog;
pub use deadline::{Deadline, Stage};
pub use key::{Key, KeyQuestion};
pub use migration::{Migration, Offer, Wanted};
pub use registrar::{Registrar, Report};
pub use wire::Shares;
pub(crate) use wire::length;
pub use worklist::{Follow, Item, Items, Mark, Worklist};

use std::sync::Arc;

use legwork_model::event::RecordedAt;
use legwork_model::id::{ActivityId, InstanceId, Iteration};
use minicbor::decode::Error;
use minicbor::encode::{self, Write};
use minicbor::{Decode, Decoder, Encode, Encoder};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Migration(Migration),
    Catalog(Catalog),
    Worklist(Worklist),
    Registrar(Registrar),
    Key(Key),
    Deadline(Deadline),
}

impl Message {
    /// The case that has to be in memory before the message is handled.
    pub(crate) fn instance(&self) -> Option<InstanceId> {
        match self {
            Self::Migration(message) => Some(message.instance()),
            Self::Deadline(message) => message.instance(),
            Self::Catalog(_) | Self::Worklist(_) | Self::Registrar(_) | Self::Key(_) => None,
        }
    }
}

impl<C: AsRef<RecordedAt>> Encode<C> for Message {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        match self {
            Self::Migration(message) => message.encode(encoder, context),
            Self::Catalog(message) => message.encode(encoder, context),
            Self::Worklist(message) => message.encode(encoder, context),
            Self::Registrar(message) => message.encode(encoder, context),
            Self::Key(message) => message.encode(encoder, context),
            Self::Deadline(message) => message.encode(encoder, context),
        }
    }
}

impl<'b, C: AsRef<RecordedAt>> Decode<'b, C> for Message {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, Error> {
        let mut ahead = decoder.probe();
        ahead.array()?;
        match ahead.u32()? {
            0..=4 => decoder.decode_with(context).map(Self::Migration),
            5 | 6 => decoder.decode_with(context).map(Self::Catalog),
            7 | 8 => decoder.decode_with(context).map(Self::Worklist),
            9 | 10 | 13 | 14 => decoder.decode_with(context).map(Self::Registrar),
            11 | 12 => decoder.decode_with(context).map(Self::Key),
            16 | 20..=23 => decoder.decode_with(context).map(Self::Deadline),
            number => Err(Error::unknown_variant(number.into()).at(decoder.position())),
        }
    }
}

/// An instance on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub struct Instance(#[cbor(n(0), with = "legwork_model::id::instance_bytes")] pub InstanceId);

/// A transfer of an instance from one server to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct ParcelId {
    #[n(0)]
    pub instance: Instance,
    #[n(1)]
    pub number: u32,
}

/// An activity by its public name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Named {
    #[n(0)]
    pub instance: Instance,
    #[cbor(n(1), with = "legwork_model::id::shared_text")]
    pub step: Arc<str>,
    #[cbor(n(2), skip_if = "is_outside_of_loops")]
    pub iteration: Iteration,
}

fn is_outside_of_loops(iteration: &Iteration) -> bool {
    iteration.0.is_empty()
}

impl From<ActivityId> for Named {
    fn from(ActivityId { instance, step, iteration }: ActivityId) -> Self {
        Self { instance: Instance(instance), step, iteration }
    }
}

impl From<Named> for ActivityId {
    fn from(Named { instance: Instance(instance), step, iteration }: Named) -> Self {
        Self { instance, step, iteration }
    }
}

pub(crate) fn is_no(answer: &bool) -> bool {
    !answer
}
