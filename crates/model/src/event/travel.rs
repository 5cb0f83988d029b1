//! Transfers between servers that control an instance together.
//!
//! Invariant: between two servers the transfers of an instance are numbered, arrive in order and
//! take effect once. A transfer is recorded by its sender and by its receiver; control is where it
//! was recorded last.

use minicbor::{Decode, Encode};

use super::record::{RecordedAt, compact_activity, relative};
use super::{Event, Performer};
use crate::id::{Activity, ElementId, ServerId};
use crate::time::Timestamp;
use crate::value::Value;

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Parcel {
    /// Control migrates to the receiver.
    #[n(0)]
    Control {
        #[n(0)]
        passages: Vec<Passage>,
        /// The order in force, if any.
        #[n(1)]
        order: Option<Order>,
    },
    /// An order for the instance as a whole.
    #[n(1)]
    Order(#[n(0)] Order),
    /// The instance has reached its end.
    #[n(2)]
    Finished {
        /// The servers that were told as well.
        #[n(0)]
        told: Vec<ServerId>,
        /// When, by the clock of the server that controlled the end. Older records lack it.
        #[n(1)]
        at: Option<Timestamp>,
    },
}

impl Parcel {
    /// The edges over which control migrates.
    pub fn passages(&self) -> &[Passage] {
        match self {
            Self::Control { passages, .. } => passages,
            Self::Order(_) | Self::Finished { .. } => &[],
        }
    }

    /// Whether it only brings entries: the transfer that they belong to comes later.
    pub fn is_part(&self) -> bool {
        matches!(self, Self::Control { passages, .. } if passages.is_empty())
    }

    /// A part of this transfer: entries sent ahead.
    pub fn part(&self) -> Self {
        Self::Control { passages: Vec::new(), order: self.order().cloned() }
    }

    /// The order that comes with it.
    pub fn order(&self) -> Option<&Order> {
        match self {
            Self::Control { order, .. } => order.as_ref(),
            Self::Order(order) => Some(order),
            Self::Finished { .. } => None,
        }
    }
}

/// An edge of the graph over which control migrates: from a settled activity to the next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Passage {
    #[cbor(n(0), with = "compact_activity")]
    pub source: Activity,
    #[cbor(n(1), with = "compact_activity")]
    pub target: Activity,
}

/// Orders are given by the server where the instance was started, in sequence.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Order {
    #[n(0)]
    pub number: u32,
    #[n(1)]
    pub what: Orders,
    #[n(2)]
    pub by: Performer,
    #[n(3)]
    pub reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Orders {
    #[n(0)]
    Suspend,
    #[n(1)]
    Resume,
    #[n(2)]
    Abort,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(context_bound = "AsRef<RecordedAt>")]
pub struct Received {
    #[n(0)]
    pub from: ServerId,
    /// A part has the number of the transfer before.
    #[n(1)]
    pub number: u32,
    #[n(2)]
    pub parcel: Parcel,
    /// In a possible order of occurrence.
    #[cbor(n(3), skip_if = "Vec::is_empty")]
    pub entries: Vec<Entry>,
}

/// An entry of the execution history recorded at another server.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(context_bound = "AsRef<RecordedAt>")]
pub struct Entry {
    /// `Created`, `Completed` or `Decided`; without the values that stay elsewhere.
    #[n(0)]
    pub event: Event,
    #[cbor(n(1), with = "relative")]
    pub at: Timestamp,
    /// The server that controlled it.
    #[n(2)]
    pub server: ServerId,
    /// Elements it wrote whose values were not transferred: they are fetched when they are needed.
    #[cbor(n(3), skip_if = "Vec::is_empty")]
    pub elsewhere: Vec<ElementId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FetchedValue {
    #[n(0)]
    pub element: ElementId,
    #[cbor(n(1), with = "compact_activity")]
    pub writer: Activity,
    #[n(2)]
    pub value: Value,
}
