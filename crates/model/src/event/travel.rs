//! What servers tell each other about an instance that they control together.
//!
//! Invariant: between two servers the parcels of an instance are numbered, arrive in order and take
//! effect once. A parcel is recorded where it goes out and where it comes in; control is where it
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
    /// Control goes on at the receiver.
    #[n(0)]
    Control {
        #[n(0)]
        passages: Vec<Passage>,
        /// The order in force, if one was given.
        #[n(1)]
        order: Option<Order>,
    },
    /// What somebody ordered for the instance as a whole.
    #[n(1)]
    Order(#[n(0)] Order),
    /// The instance has reached its end.
    #[n(2)]
    Finished {
        /// Those who were told as well.
        #[n(0)]
        told: Vec<ServerId>,
        /// When, by the clock of the server where it did. Those of before do not say so.
        #[n(1)]
        at: Option<Timestamp>,
    },
}

impl Parcel {
    /// The passages that control takes with it.
    pub fn passages(&self) -> &[Passage] {
        match self {
            Self::Control { passages, .. } => passages,
            Self::Order(_) | Self::Finished { .. } => &[],
        }
    }

    /// Whether it only brings entries: the parcel that they belong to comes later.
    pub fn is_part(&self) -> bool {
        matches!(self, Self::Control { passages, .. } if passages.is_empty())
    }

    /// What comes with entries that go before the parcel itself.
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

/// An edge of the graph over which control goes on: from a settled activity to the next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Passage {
    #[cbor(n(0), with = "compact_activity")]
    pub source: Activity,
    #[cbor(n(1), with = "compact_activity")]
    pub target: Activity,
}

/// Orders are given by the server where the instance was started, one after the other.
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
    /// A part has the number of the parcel before.
    #[n(1)]
    pub number: u32,
    #[n(2)]
    pub parcel: Parcel,
    /// In an order in which they could have happened.
    #[cbor(n(3), skip_if = "Vec::is_empty")]
    pub entries: Vec<Entry>,
}

/// An entry of the execution history as it happened at another server.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(context_bound = "AsRef<RecordedAt>")]
pub struct Entry {
    /// `Created`, `Completed` or `Decided`; without the values that stay elsewhere.
    #[n(0)]
    pub event: Event,
    #[cbor(n(1), with = "relative")]
    pub at: Timestamp,
    /// Who controlled it.
    #[n(2)]
    pub server: ServerId,
    /// Elements it wrote whose values did not come along: they are fetched when somebody needs
    /// them.
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
