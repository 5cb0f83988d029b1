//! What a server that starts cases and the planners of their performers say to each other.
//!
//! A message may be lost. Questions are asked again until they are answered; what was released or taken back without being
//! heard is found when lists of reservations are compared (`Held`).

use legwork_model::time::Timestamp;
use legwork_plan::{Grant, Task, TaskId, Work};
use minicbor::{Decode, Encode};

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Reserving {
    /// To a planner: hold a reservation for so long, or only say when the task could be done.
    #[n(0)]
    Ask {
        #[n(0)]
        task: Box<Task>,
        /// Each question has a number of its own, higher than those before.
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
        /// When it could be done.
        #[n(3)]
        earliest: Option<Timestamp>,
        /// How much its performer has to do.
        #[n(4)]
        load: Work,
    },
    /// To a planner: the case goes ahead, so these reservations are firm.
    #[n(2)]
    Confirm {
        #[n(0)]
        tasks: Vec<Attempt>,
    },
    /// They are firm and stored, or not held any more.
    #[n(3)]
    Confirmed {
        #[n(0)]
        tasks: Vec<Attempt>,
        #[n(1)]
        lost: Vec<Attempt>,
    },
    /// To a planner: not wanted any more.
    #[n(4)]
    Release {
        #[n(0)]
        tasks: Vec<Attempt>,
    },
    /// From a planner: this cannot be kept as it was reserved.
    #[n(5)]
    TakenBack {
        #[n(0)]
        task: Attempt,
        #[n(1)]
        why: Why,
    },
    /// From a planner: all firm reservations that it has for the receiver after one task and up to another.
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

/// A task, and the number under which it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct Attempt {
    #[n(0)]
    pub task: TaskId,
    #[n(1)]
    pub attempt: u64,
}

/// Why a reservation cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Why {
    /// Something more important displaced it.
    #[n(0)]
    Displaced,
    /// It cannot be done in time any more as planned.
    #[n(1)]
    Late,
    /// Its performer is gone, has less time than before, or is planned elsewhere now.
    #[n(2)]
    Gone,
    /// No worker has asked for such jobs for long.
    #[n(3)]
    Unseen,
}

impl Why {
    /// As the history of a case has it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Displaced => "displaced by a more important case",
            Self::Late => "could not be done in time as planned",
            Self::Gone => "who was to do it is not available any more",
            Self::Unseen => "no worker has asked for such jobs in the last ten minutes",
        }
    }
}
