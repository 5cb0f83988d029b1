//! What is to be promised: a step of a case, and who can do it.

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

/// Who can do something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(flat)]
pub enum ResourceId {
    #[n(0)]
    Person(#[n(0)] AgentId),
    #[n(1)]
    Executor(#[cbor(n(0), with = "shared_text")] Arc<str>),
    /// The workers that ask for jobs of a type.
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

/// One of those who can do a task.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Candidate {
    #[n(0)]
    pub who: ResourceId,
    /// Only in one of these times, in their order: a substitute, while others are absent. At any time if there are none.
    #[n(1)]
    pub within: Vec<Window>,
}

impl Candidate {
    pub fn at_any_time(who: ResourceId) -> Self {
        Self { who, within: Vec::new() }
    }
}

/// What is asked of a planner.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Task {
    #[n(0)]
    pub id: TaskId,
    /// What the step is called.
    #[cbor(n(1), with = "shared_text")]
    pub step: Arc<str>,
    /// The higher, the more important.
    #[n(2)]
    pub priority: u8,
    #[n(3)]
    pub release: Timestamp,
    /// By when; `None`: as soon as possible.
    #[n(4)]
    pub due: Option<Timestamp>,
    #[n(5)]
    pub cost: Work,
    #[n(6)]
    pub who: Vec<Candidate>,
    #[n(7)]
    pub how: How,
    /// It was promised by somebody who failed: the reserve of others may be used.
    #[n(8)]
    pub after_fault: bool,
    /// Nobody is taken to work before: an offer holds although nothing is begun meanwhile.
    #[n(10)]
    pub idle_until: Option<Timestamp>,
    /// Which offer this is part of, or may have come from.
    #[n(9)]
    pub offer: Option<Offer>,
    /// Only what was offered for the same case as this: of two offers neither would be whole.
    #[n(11)]
    pub of: Option<TaskId>,
}

/// In which way something is reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum How {
    #[n(0)]
    #[default]
    Plain,
    /// Less important tasks that are not begun are displaced if need be.
    #[n(1)]
    Displacing,
    /// Only what was offered before for the same case, as it was offered.
    #[n(2)]
    Accepting,
    /// It is offered, and held until somebody accepts it.
    #[n(3)]
    Offering,
    /// What was offered before for the same case stays offered, for as long as before.
    #[n(4)]
    Keeping,
    /// Only what was offered before to the same caller, for whichever case of the process.
    #[n(5)]
    AcceptingAny,
}

/// What is offered: to whom, for which process and for which of its cases, as numbers that nothing else has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Offer {
    #[n(0)]
    pub caller: u64,
    #[n(1)]
    pub process: u64,
    /// What it is started with. Another case may take the offer as well.
    #[n(2)]
    pub case: u64,
}

/// A reservation: who does a task, and when.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Grant {
    #[n(0)]
    pub task: TaskId,
    #[n(1)]
    pub by: ResourceId,
    /// It is done between these.
    #[n(2)]
    pub window: Window,
    /// When it is planned just now.
    #[n(3)]
    pub start: Timestamp,
    #[n(4)]
    pub end: Timestamp,
    /// As what it was offered before, if it was.
    #[n(5)]
    pub offered: Option<TaskId>,
}
