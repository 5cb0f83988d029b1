//! What servers say to each other.
//!
//! A message may be lost, repeated or late: whoever needs an answer says it again, and whoever has
//! acted on one already answers again. Numbers in `#[n(…)]` are the wire format: servers of
//! different versions understand each other's as long as the rules of `event` are kept.

use std::sync::Arc;

use legwork_model::event::{Entry, FetchedValue, Parcel, RecordedAt};
use legwork_model::id::{Activity, ElementId, InstanceId};
use minicbor::{Decode, Encode};

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat, context_bound = "AsRef<RecordedAt>")]
pub enum Message {
    /// A parcel, with the entries that the receiver lacks or, without any, with the question which
    /// ones those are.
    #[n(0)]
    Offer(#[n(0)] Box<Offer>),
    /// The answer: all up to these activities is known here.
    #[n(1)]
    Known {
        #[n(0)]
        parcel: ParcelId,
        #[n(1)]
        last: Vec<Activity>,
    },
    /// The parcel is stored here.
    #[n(2)]
    Taken {
        #[n(0)]
        parcel: ParcelId,
    },
    /// Please send values that were written, or read, there.
    #[n(3)]
    Want {
        #[n(0)]
        instance: Instance,
        #[n(1)]
        values: Vec<Wanted>,
    },
    /// The values, as far as they are here.
    #[n(4)]
    Have {
        #[n(0)]
        instance: Instance,
        #[n(1)]
        values: Vec<FetchedValue>,
    },
}

/// An instance on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub struct Instance(#[cbor(n(0), with = "legwork_model::id::instance_bytes")] pub InstanceId);

/// A parcel of an instance from one server to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct ParcelId {
    #[n(0)]
    pub instance: Instance,
    #[n(1)]
    pub number: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(context_bound = "AsRef<RecordedAt>")]
pub struct Offer {
    #[n(0)]
    pub id: ParcelId,
    #[cbor(n(1), with = "legwork_model::id::shared_text")]
    pub process: Arc<str>,
    #[n(2)]
    pub version: u32,
    #[n(3)]
    pub parcel: Parcel,
    /// `None` asks which ones are lacking.
    #[n(4)]
    pub entries: Option<Vec<Entry>>,
    /// These are not all: when they are stored, the receiver says how far it knows the history
    /// then, and gets more.
    #[cbor(n(5), skip_if = "is_whole")]
    pub is_part: bool,
}

fn is_whole(is_part: &bool) -> bool {
    !is_part
}

/// A version of a data element: its writer tells which.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Wanted {
    #[n(0)]
    pub element: ElementId,
    #[n(1)]
    pub writer: Activity,
}
