//! Hand-over of control of a case, and fetching of values that the receiver lacks.

use std::sync::Arc;

use legwork_model::event::{Entry, FetchedValue, Parcel, RecordedAt};
use legwork_model::id::{Activity, ElementId, InstanceId};
use minicbor::{Decode, Encode};

use super::{Instance, ParcelId};

/// About one case. A transfer is offered, stored, and acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat, context_bound = "AsRef<RecordedAt>")]
pub enum Migration {
    /// Offers a transfer, with the entries that the receiver lacks or, without any, with the question which ones those
    /// are.
    #[n(0)]
    Offer(#[n(0)] Box<Offer>),
    /// The reply to an offer: everything up to these activities is known here.
    #[n(1)]
    Known {
        #[n(0)]
        parcel: ParcelId,
        #[n(1)]
        last: Vec<Activity>,
    },
    /// The transfer is stored here.
    #[n(2)]
    Ack {
        #[n(0)]
        parcel: ParcelId,
    },
    /// Requests values that were written, or read, at the receiver.
    #[n(3)]
    Want {
        #[n(0)]
        instance: Instance,
        #[n(1)]
        values: Vec<Wanted>,
    },
    /// The requested values, as far as they are here.
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
    /// `None` asks which entries are lacking.
    #[n(4)]
    pub entries: Option<Vec<Entry>>,
    /// These are not all entries: when they are stored, the receiver replies what it knows by then, and is sent more.
    #[cbor(n(5), skip_if = "is_whole")]
    pub is_part: bool,
    /// The epoch of the topology that the sender knows, if it is not the first: the receiver must know it, too.
    #[n(6)]
    pub epoch: Option<u32>,
}

fn is_whole(is_part: &bool) -> bool {
    !is_part
}

/// A version of a data element, identified by its writer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Wanted {
    #[n(0)]
    pub element: ElementId,
    #[n(1)]
    pub writer: Activity,
}
