//! How control of a case is handed over, and how values follow that the receiver lacks.

use std::sync::Arc;

use legwork_model::event::{Entry, FetchedValue, Parcel, RecordedAt};
use legwork_model::id::{Activity, ElementId, InstanceId};
use minicbor::{Decode, Encode};

use super::{Instance, ParcelId};

/// About one case. A parcel is offered, stored, and acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat, context_bound = "AsRef<RecordedAt>")]
pub enum Migration {
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
    Ack {
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

impl Migration {
    pub(crate) fn instance(&self) -> InstanceId {
        let Instance(id) = match self {
            Self::Offer(offer) => offer.id.instance,
            Self::Known { parcel, .. } | Self::Ack { parcel } => parcel.instance,
            Self::Want { instance, .. } | Self::Have { instance, .. } => *instance,
        };
        id
    }
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
    /// Of the topology that the sender knows, if it is not the first: whoever takes the parcel must
    /// know that one too.
    #[n(6)]
    pub epoch: Option<u32>,
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
