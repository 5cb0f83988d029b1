//! Reports to the registrar: for ending a change of the topology, and others.

use legwork_model::event::RecordedAt;
use legwork_model::id::{InstanceId, ServerId};
use minicbor::{Decode, Encode};

use super::Instance;

/// From a server to the registrar.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat, context_bound = "AsRef<RecordedAt>")]
pub enum Registrar {
    /// The report of a locked server, which the registrar needs to end a change.
    #[n(9)]
    Report(#[n(0)] Report),
    /// A server has moved: its store has arrived completely at its new host.
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
    /// How many records of instances the sender has written since its last report.
    #[n(14)]
    Load {
        #[n(0)]
        written: u64,
    },
}

/// A report comes in parts, each of which covers all instances between two ids, so that parts from before and after a
/// restart fit together. It is resent until the change is over.
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
    /// More parts follow.
    #[n(4)]
    pub more: bool,
    /// How many instances it has.
    #[n(5)]
    pub open: u64,
}
