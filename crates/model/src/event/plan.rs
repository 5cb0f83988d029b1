//! What a planner has promised: the events of the stream of its plans.

use std::sync::Arc;

use minicbor::{Decode, Encode};

use super::Performer;
use crate::id::{InstanceId, NodeId, ServerId, instance_bytes, shared_text};
use crate::time::Timestamp;

/// What happened to the plans that a server keeps.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum PlanEvent {
    /// Somebody's time is reserved for a task.
    #[n(0)]
    Reserved(#[n(0)] Box<Reserved>),
    /// Somebody works on it.
    #[n(1)]
    Begun(#[n(0)] TaskKey),
    /// It is done, or not wanted any more.
    #[n(2)]
    Ended(#[n(0)] TaskKey),
    /// A promised step has taken so long, in milliseconds of working time.
    #[n(3)]
    Took {
        #[cbor(n(0), with = "shared_text")]
        process: Arc<str>,
        #[cbor(n(1), with = "shared_text")]
        step: Arc<str>,
        #[n(2)]
        ms: u64,
    },
    /// A promise was taken back, and whoever it was for has to know.
    #[n(4)]
    TakenBack {
        #[n(0)]
        task: TaskKey,
        #[n(1)]
        asker: ServerId,
        /// Otherwise it was displaced by something more important.
        #[n(2)]
        is_lost: bool,
        /// In which attempt of whoever asked it was promised.
        #[n(3)]
        attempt: u64,
        /// Whoever works on it goes on all the same, and will be late.
        #[cbor(n(4), skip_if = "is_no")]
        goes_on: bool,
    },
    /// They know.
    #[n(5)]
    Told(#[n(0)] TaskKey),
    /// Whoever had begun it does not work on it any more.
    #[n(6)]
    Left(#[n(0)] TaskKey),
}

/// A step of an instance in one round of its loops, or a part of one.
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
    /// Whose time it is, and in which of their plans.
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
    /// Whether something more important may displace it.
    #[n(7)]
    pub may_abort: bool,
    /// The server that asked for it.
    #[n(8)]
    pub asker: ServerId,
    /// Who else could do it.
    #[n(9)]
    pub who: Vec<Performer>,
    #[n(10)]
    pub deputies: Vec<Performer>,
    /// Who of them can do it only while they stand in for somebody.
    #[cbor(n(11), skip_if = "Vec::is_empty")]
    pub only: Vec<StandsIn>,
    /// When it was planned to begin: what cannot be put aside is taken in again in this order.
    #[n(12)]
    pub start: Timestamp,
    /// In which attempt of whoever asked: what they say of an earlier one does not count.
    #[n(13)]
    pub attempt: u64,
    /// What the step is called: its definition may be known elsewhere only. Empty if nobody said so.
    #[cbor(n(14), with = "shared_text", skip_if = "is_unnamed")]
    pub step: Arc<str>,
}

fn is_unnamed(step: &Arc<str>) -> bool {
    step.is_empty()
}

fn is_no(answer: &bool) -> bool {
    !answer
}

/// Somebody who can do something for a while.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct StandsIn {
    #[n(0)]
    pub who: Performer,
    #[n(1)]
    pub from: Timestamp,
    #[n(2)]
    pub to: Timestamp,
}
