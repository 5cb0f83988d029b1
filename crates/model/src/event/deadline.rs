//! What was planned for the deadline of an instance.

use minicbor::{Decode, Encode};

use super::Performer;
use crate::id::{NodeId, ServerId};
use crate::time::Timestamp;

/// By when an instance is to be done, and what was planned for that.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Deadline {
    #[n(0)]
    pub at: Timestamp,
    /// Every step with work of its own; none if the deadline was accepted without a promise.
    #[cbor(n(1), skip_if = "Vec::is_empty")]
    pub legs: Vec<Leg>,
    /// It was accepted although nobody could promise it.
    #[n(2)]
    pub is_unpromised: bool,
}

/// A step on the way to the deadline.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Leg {
    #[n(0)]
    pub node: NodeId,
    /// In which round of the loops around it: the number of its iteration.
    #[n(1)]
    pub round: u64,
    /// When it can begin: everything before it is done then.
    #[n(2)]
    pub release: Timestamp,
    /// By when it has to be done.
    #[n(3)]
    pub due: Timestamp,
    /// In milliseconds of working time.
    #[n(4)]
    pub takes_ms: u64,
    /// Who is to do it when; `None` if nobody has promised it, or not any more.
    #[n(5)]
    pub planned: Option<Planned>,
}

/// Somebody's promise to do a step.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Planned {
    #[n(0)]
    pub by: Performer,
    /// At the latest.
    #[n(1)]
    pub start: Timestamp,
    #[n(2)]
    pub end: Timestamp,
    /// The server that keeps the plan.
    #[n(3)]
    pub planner: ServerId,
}

/// The plan of an instance has changed.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Replanned {
    /// The steps that are planned otherwise from now on.
    #[n(0)]
    pub legs: Vec<Leg>,
    #[n(1)]
    pub reason: String,
}

impl Deadline {
    /// How important a case is among those with a deadline, if nobody says so, and at most.
    pub const PRIORITY_DEFAULT: u8 = 5;
    pub const PRIORITY_MAX: u8 = 9;

    /// Whether it was promised and still is. Where nobody has anything to do, that is promised at once.
    pub fn is_promised(&self) -> bool {
        !self.is_unpromised && self.legs.iter().all(|leg| leg.planned.is_some())
    }

    /// Takes another plan for some steps.
    pub fn replan(&mut self, legs: &[Leg]) {
        for new in legs {
            let same = |leg: &&mut Leg| (leg.node, leg.round) == (new.node, new.round);
            match self.legs.iter_mut().find(same) {
                Some(leg) => leg.clone_from(new),
                None => self.legs.push(new.clone()),
            }
        }
    }
}
