//! Encoding of messages between servers, and what their bytes are spent on.
//!
//! Invariant: what was encoded decodes to the same message; anything else is refused with a reason and never panics. A
//! message is preceded by a base time, relative to which its other times take one or two bytes instead of nine.

use std::convert::Infallible;

use legwork_model::event::{Entry, Event, RecordedAt, Unreadable};
use legwork_model::time::Timestamp;
use legwork_model::value::Value;
use minicbor::encode::Write;
use minicbor::{Decoder, Encode, Encoder};

use super::{Message, Migration, Worklist};

/// What the bytes on a link are spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Entries of histories, without values.
    pub history: u64,
    /// Values of data elements that are sent with their entries.
    pub small: u64,
    /// Values and files that are fetched by their readers.
    pub large: u64,
    pub worklist: u64,
    /// Everything else: coordination.
    pub control: u64,
}

impl Message {
    pub fn to_bytes(&self) -> Vec<u8> {
        let base = self.base();
        let mut encoder = Encoder::new(Vec::with_capacity(64));
        // Writing to memory cannot fail.
        let _: Result<_, minicbor::encode::Error<Infallible>> = encoder.i64(base.0.0).map(|_| ());
        let _: Result<_, minicbor::encode::Error<Infallible>> =
            self.encode(&mut encoder, &mut base.clone());
        encoder.into_writer()
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Unreadable> {
        let unreadable = |error: minicbor::decode::Error| Unreadable { reason: error.to_string() };
        let mut decoder = Decoder::new(bytes);
        let mut base = RecordedAt(Timestamp(decoder.i64().map_err(unreadable)?));
        let message = decoder.decode_with(&mut base).map_err(unreadable)?;
        if decoder.position() != bytes.len() {
            return Err(Unreadable { reason: "it is followed by foreign bytes".to_owned() });
        }
        Ok(message)
    }

    /// The encoded length in bytes, without encoding.
    pub fn bytes(&self) -> u64 {
        let mut base = self.base();
        length(&base.0.0, &mut ()) + length(self, &mut base)
    }

    /// What the bytes of this message are spent on; `bytes` in all, including its envelope.
    pub fn shares(&self, bytes: u64) -> Shares {
        let none = Shares::default();
        match self {
            Self::Migration(Migration::Offer(offer)) => {
                let entries = offer.entries.as_deref().unwrap_or_default();
                let mut base = self.base();
                let all: u64 = entries.iter().map(|entry| length(entry, &mut base)).sum();
                let small: u64 =
                    entries.iter().flat_map(written).map(|(_, value)| length(value, &mut ())).sum();
                let history = all.saturating_sub(small);
                Shares { history, small, control: bytes.saturating_sub(all), ..none }
            }
            Self::Migration(Migration::Want { .. } | Migration::Have { .. }) => {
                Shares { large: bytes, ..none }
            }
            Self::Worklist(_) => Shares { worklist: bytes, ..none },
            Self::Migration(Migration::Known { .. } | Migration::Ack { .. })
            | Self::Catalog(_)
            | Self::Registrar(_)
            | Self::Key(_)
            | Self::Deadline(_) => Shares { control: bytes, ..none },
        }
    }

    /// The base time of the message.
    fn base(&self) -> RecordedAt {
        let first = if let Self::Migration(Migration::Offer(offer)) = self {
            let entries = offer.entries.as_ref();
            entries.and_then(|entries| entries.first()).map(|entry| entry.at)
        } else if let Self::Worklist(Worklist::Items(items)) = self {
            items.items.first().map(|item| item.offered_at)
        } else {
            None
        };
        RecordedAt(first.unwrap_or_default())
    }
}

/// The values that are sent with an entry.
fn written(entry: &Entry) -> &[(legwork_model::id::ElementId, Value)] {
    if let Event::Created(created) = &entry.event {
        &created.inputs
    } else if let Event::Completed(completed) = &entry.event {
        &completed.writes
    } else {
        &[]
    }
}

/// The encoded length in bytes.
pub(crate) fn length<C>(what: &impl Encode<C>, context: &mut C) -> u64 {
    let mut encoder = Encoder::new(Count(0));
    // Counting cannot fail.
    let _ = what.encode(&mut encoder, context);
    encoder.into_writer().0
}

struct Count(u64);

impl Write for Count {
    type Error = Infallible;

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.0 += bytes.len() as u64;
        Ok(())
    }
}

impl Shares {
    pub fn total(&self) -> u64 {
        self.history + self.small + self.large + self.worklist + self.control
    }

    pub fn add(&mut self, other: &Self) {
        self.history += other.history;
        self.small += other.small;
        self.large += other.large;
        self.worklist += other.worklist;
        self.control += other.control;
    }

    /// With their names, in a fixed order.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("history", self.history),
            ("small", self.small),
            ("large", self.large),
            ("worklist", self.worklist),
            ("control", self.control),
        ]
    }
}
