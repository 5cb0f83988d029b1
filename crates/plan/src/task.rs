//! Tasks: a step of a case with its candidates.

use std::fmt;
use std::sync::Arc;

use legwork_model::id::{AgentId, InstanceId, instance_bytes, shared_text};
use legwork_model::time::Timestamp;
use minicbor::{Decode, Encode};

use crate::plan::Window;
use crate::supply::Work;

/// A step of an instance, in one round of its loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub struct TaskId {
    #[cbor(n(0), with = "instance_bytes")]
    pub instance: InstanceId,
    #[n(1)]
    pub step: u32,
    /// The number of its iteration.
    #[n(2)]
    pub round: u64,
}

/// A resource: a person, an executor, or the workers of a type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(flat)]
pub enum ResourceId {
    #[n(0)]
    Person(#[n(0)] AgentId),
    #[n(1)]
    Executor(#[cbor(n(0), with = "shared_text")] Arc<str>),
    /// The workers that poll jobs of a type.
    #[n(2)]
    Workers(#[cbor(n(0), with = "shared_text")] Arc<str>),
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person(agent) => write!(f, "{agent}"),
            Self::Executor(name) => write!(f, "executor {name}"),
            Self::Workers(job) => write!(f, "workers for {job}"),
        }
    }
}

/// A possible performer of a task.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Candidate {
    #[n(0)]
    pub who: ResourceId,
    /// Only within these windows, in order: a substitute, while the regular performers are absent. Without windows
    /// at any time.
    #[n(1)]
    pub within: Vec<Window>,
}

impl Candidate {
    pub fn at_any_time(who: ResourceId) -> Self {
        Self { who, within: Vec::new() }
    }
}

/// A request to a planner.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Task {
    #[n(0)]
    pub id: TaskId,
    /// The name of the step.
    #[cbor(n(1), with = "shared_text")]
    pub step: Arc<str>,
    /// Higher is more important.
    #[n(2)]
    pub priority: u8,
    #[n(3)]
    pub release: Timestamp,
    /// The due date; `None`: as soon as possible.
    #[n(4)]
    pub due: Option<Timestamp>,
    #[n(5)]
    pub cost: Work,
    #[n(6)]
    pub who: Vec<Candidate>,
    #[n(7)]
    pub how: How,
    /// A promise of a failed performer: the reserve of other performers may be used.
    #[n(8)]
    pub after_fault: bool,
    /// No work before this moment: an offer holds although nothing is begun meanwhile.
    #[n(10)]
    pub idle_until: Option<Timestamp>,
    /// The offer that this belongs to, or may have come from.
    #[n(9)]
    pub offer: Option<Offer>,
    /// Accept only offers for the same case as this task: a mix of two offers would complete neither.
    #[n(11)]
    pub of: Option<TaskId>,
}

/// The kind of a reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum How {
    #[n(0)]
    #[default]
    Plain,
    /// Displaces less important tasks that are not begun, if needed.
    #[n(1)]
    Displacing,
    /// Accepts only an earlier offer for the same case, as offered.
    #[n(2)]
    Accepting,
    /// An offer, held until it is accepted.
    #[n(3)]
    Offering,
    /// An earlier offer for the same case stays, with its expiry.
    #[n(4)]
    Keeping,
    /// Accepts only an earlier offer to the same caller, for any case of the process.
    #[n(5)]
    AcceptingAny,
}

/// An offer: caller, process and case, as unique numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Offer {
    #[n(0)]
    pub caller: u64,
    #[n(1)]
    pub process: u64,
    /// A hash of the start data. Another case may take the offer as well.
    #[n(2)]
    pub case: u64,
}

/// A reservation: the performer and the window of a task.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Grant {
    #[n(0)]
    pub task: TaskId,
    #[n(1)]
    pub by: ResourceId,
    /// The task is done within.
    #[n(2)]
    pub window: Window,
    /// The currently planned start.
    #[n(3)]
    pub start: Timestamp,
    #[n(4)]
    pub end: Timestamp,
    /// The task under which it was offered before, if it was.
    #[n(5)]
    pub offered: Option<TaskId>,
}
