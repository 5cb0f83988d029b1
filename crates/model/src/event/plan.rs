//! The promises of a planner: the events of its plan stream.

use std::sync::Arc;

use minicbor::{Decode, Encode};

use super::Performer;
use crate::id::{InstanceId, NodeId, ServerId, instance_bytes, shared_text};
use crate::time::Timestamp;

/// Changes of the plans that a server keeps.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum PlanEvent {
    /// Time of a performer is reserved for a task.
    #[n(0)]
    Reserved(#[n(0)] Box<Reserved>),
    /// Its performer has begun it.
    #[n(1)]
    Begun(#[n(0)] TaskKey),
    /// It is done, or no longer wanted.
    #[n(2)]
    Ended(#[n(0)] TaskKey),
    /// The service time of a promised step, in milliseconds of working time.
    #[n(3)]
    Took {
        #[cbor(n(0), with = "shared_text")]
        process: Arc<str>,
        #[cbor(n(1), with = "shared_text")]
        step: Arc<str>,
        #[n(2)]
        ms: u64,
    },
    /// A promise was revoked, and the asker must be told.
    #[n(4)]
    TakenBack {
        #[n(0)]
        task: TaskKey,
        #[n(1)]
        asker: ServerId,
        /// A fault; otherwise a more important task displaced it.
        #[n(2)]
        is_lost: bool,
        /// The asker's attempt in which it was promised.
        #[n(3)]
        attempt: u64,
        /// Its performer goes on nevertheless, and will be late.
        #[cbor(n(4), skip_if = "is_no")]
        goes_on: bool,
    },
    /// The asker has acknowledged the revocation.
    #[n(5)]
    Told(#[n(0)] TaskKey),
    /// Its performer has given it back.
    #[n(6)]
    Left(#[n(0)] TaskKey),
}

/// A step of an instance in one iteration of its loops, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct TaskKey {
    #[cbor(n(0), with = "instance_bytes")]
    pub instance: InstanceId,
    #[n(1)]
    pub node: NodeId,
    /// The number of its iteration.
    #[n(2)]
    pub round: u64,
    /// 0 is the step as a whole.
    #[n(3)]
    pub part: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Reserved {
    #[n(0)]
    pub task: TaskKey,
    /// The performer, and the slot.
    #[n(1)]
    pub by: Performer,
    #[n(2)]
    pub lane: u32,
    #[n(3)]
    pub release: Timestamp,
    #[n(4)]
    pub due: Timestamp,
    /// In milliseconds of working time.
    #[n(5)]
    pub takes_ms: u64,
    #[n(6)]
    pub priority: u8,
    /// Whether a more important task may displace it.
    #[n(7)]
    pub may_abort: bool,
    /// The server that asked for it.
    #[n(8)]
    pub asker: ServerId,
    /// The other candidates.
    #[n(9)]
    pub who: Vec<Performer>,
    #[n(10)]
    pub deputies: Vec<Performer>,
    /// Candidates only while they are substitutes.
    #[cbor(n(11), skip_if = "Vec::is_empty")]
    pub only: Vec<StandsIn>,
    /// Its planned start: on recovery, non-preemptible tasks are restored in this order.
    #[n(12)]
    pub start: Timestamp,
    /// The asker's attempt: messages about an earlier attempt do not count.
    #[n(13)]
    pub attempt: u64,
    /// The name of the step, as its definition may be known only at another server. Empty if
    /// unknown.
    #[cbor(n(14), with = "shared_text", skip_if = "is_unnamed")]
    pub step: Arc<str>,
}

fn is_unnamed(step: &Arc<str>) -> bool {
    step.is_empty()
}

fn is_no(answer: &bool) -> bool {
    !answer
}

/// A candidate for a limited time.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StandsIn {
    #[n(0)]
    pub who: Performer,
    #[n(1)]
    pub from: Timestamp,
    #[n(2)]
    pub to: Timestamp,
}
