//! Messages between a server that starts cases and the planners of their performers.
//!
//! A message may be lost. Questions are resent until answered. A lost release or revocation is detected when lists of
//! reservations are compared (`Held`).

use legwork_model::time::Timestamp;
use legwork_plan::{Grant, Task, TaskId, Work};
use minicbor::{Decode, Encode};

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Reserving {
    /// To a planner: hold a reservation for `hold_ms`, or, if `None`, bid when the task could be done.
    #[n(0)]
    Ask {
        #[n(0)]
        task: Box<Task>,
        /// The number of the question, higher than those before.
        #[n(1)]
        attempt: u64,
        #[n(2)]
        hold_ms: Option<u64>,
    },
    #[n(1)]
    Answer {
        #[n(0)]
        task: TaskId,
        #[n(1)]
        attempt: u64,
        #[n(2)]
        grant: Option<Box<Grant>>,
        /// When the task could be done.
        #[n(3)]
        earliest: Option<Timestamp>,
        /// The load of its performer.
        #[n(4)]
        load: Work,
    },
    /// To a planner: the case goes ahead, make these reservations firm.
    #[n(2)]
    Confirm {
        #[n(0)]
        tasks: Vec<Attempt>,
    },
    /// The reservations that are firm and stored, and those that are not held any more.
    #[n(3)]
    Confirmed {
        #[n(0)]
        tasks: Vec<Attempt>,
        #[n(1)]
        lost: Vec<Attempt>,
    },
    /// To a planner: these reservations are not wanted any more.
    #[n(4)]
    Release {
        #[n(0)]
        tasks: Vec<Attempt>,
    },
    /// From a planner: this reservation is revoked.
    #[n(5)]
    TakenBack {
        #[n(0)]
        task: Attempt,
        #[n(1)]
        why: Why,
    },
    /// From a planner: all its firm reservations for the receiver after one task and up to another.
    #[n(6)]
    Held {
        #[n(0)]
        after: Option<TaskId>,
        #[n(1)]
        tasks: Vec<Attempt>,
        #[n(2)]
        up_to: Option<TaskId>,
    },
}

/// A task, with the number of its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Attempt {
    #[n(0)]
    pub task: TaskId,
    #[n(1)]
    pub attempt: u64,
}

/// Why a reservation is revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Why {
    /// A more important task displaced it.
    #[n(0)]
    Displaced,
    /// It cannot be done in time any more as planned.
    #[n(1)]
    Late,
    /// Its performer is gone, has less time than before, or is planned by another server now.
    #[n(2)]
    Gone,
    /// No worker has asked for such jobs for long.
    #[n(3)]
    Unseen,
}

impl Why {
    /// The text of a history entry.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Displaced => "displaced by a more important case",
            Self::Late => "could not be done in time as planned",
            Self::Gone => "the planned performer is not available any more",
            Self::Unseen => "no worker has asked for such jobs in the last ten minutes",
        }
    }
}
