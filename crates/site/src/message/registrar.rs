//! How a change of the topology comes to its end, and what the registrar has to know besides.

use legwork_model::event::RecordedAt;
use legwork_model::id::{InstanceId, ServerId};
use minicbor::{Decode, Encode};

use super::Instance;

/// From a server to the registrar.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat, context_bound = "AsRef<RecordedAt>")]
pub enum Registrar {
    /// What the registrar has to know to end a change, of a server that is locked by it.
    #[n(9)]
    Report(#[n(0)] Report),
    /// A server has moved: its store is at its new host, as a whole.
    #[n(10)]
    Moved {
        #[n(0)]
        change: u32,
        #[n(1)]
        server: ServerId,
    },
    /// Instances that are exceptions of the sender's domain and have ended.
    #[n(13)]
    Over {
        #[cbor(n(0), with = "legwork_model::id::instance_list")]
        ids: Vec<InstanceId>,
    },
    /// How many records of instances the sender has written since it last told.
    #[n(14)]
    Load {
        #[n(0)]
        written: u64,
    },
}

/// It comes in parts, each of which tells of all that there are between two ids: so parts that were
/// said before and after a restart fit together. It is said again until the change is over.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Report {
    #[n(0)]
    pub change: u32,
    /// The latest moment of creation among its clock and all instances it has.
    #[n(1)]
    pub latest_ms: u64,
    /// Of the instances it has and whose server would change, those after this one.
    #[n(2)]
    pub after: Option<Instance>,
    #[cbor(n(3), with = "legwork_model::id::instance_list")]
    pub ids: Vec<InstanceId>,
    /// There are more after these.
    #[n(4)]
    pub more: bool,
    /// How many instances it has.
    #[n(5)]
    pub open: u64,
}
