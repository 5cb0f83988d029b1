//! Reserving, replanning and following steps on the way to a deadline.

use legwork_model::event::{RecordedAt, Replanned, TaskKey};
use legwork_model::id::{AgentId, InstanceId};
use minicbor::{Decode, Encode};

use super::Instance;
use crate::planning::Reserving;

/// About planned steps. Numbers 15 and 17 to 19 were of messages that are not sent any more.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat, context_bound = "AsRef<RecordedAt>")]
pub enum Deadline {
    /// The stage of a planned step, to its planner and to the server that started the instance: resent until
    /// acknowledged.
    #[n(16)]
    Step {
        #[n(0)]
        task: TaskKey,
        #[n(1)]
        stage: Stage,
        /// Its duration in milliseconds of working time, if known.
        #[n(2)]
        took_ms: Option<u64>,
        /// The number of the change at the server that reported it first, increasing. 0 if it is sent once.
        #[cbor(n(3), skip_if = "is_none")]
        number: u64,
        /// How long it has been so.
        #[cbor(n(4), skip_if = "is_none")]
        ago_ms: u64,
        /// Who has claimed it.
        #[n(5)]
        holder: Option<AgentId>,
    },
    /// A change of the plan of an instance: resent until acknowledged.
    #[n(20)]
    Replanned {
        #[n(0)]
        instance: Instance,
        #[n(1)]
        replanned: Box<Replanned>,
        /// The number of the change at the server that started the instance, increasing.
        #[n(2)]
        number: u64,
    },
    /// The change is acknowledged.
    #[n(21)]
    ReplannedAck {
        #[n(0)]
        instance: Instance,
        #[n(1)]
        number: u64,
    },
    /// The stage of a step is acknowledged.
    #[n(22)]
    StepAck {
        #[n(0)]
        task: TaskKey,
        #[n(1)]
        number: u64,
    },
    /// Reservations in plans: see `planning`. Numbers 15 and 17 to 19 were of the messages that these replaced.
    #[n(23)]
    Reserve(#[n(0)] Box<Reserving>),
}

impl Deadline {
    pub(crate) fn instance(&self) -> Option<InstanceId> {
        match self {
            Self::Replanned { instance: Instance(id), .. } => Some(*id),
            Self::Step { .. }
            | Self::StepAck { .. }
            | Self::ReplannedAck { .. }
            | Self::Reserve(_) => None,
        }
    }
}

/// The stage of a promised step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(index_only)]
pub enum Stage {
    /// Nobody works on it, or nobody any more.
    #[n(0)]
    Waiting,
    #[n(1)]
    Begun,
    #[n(2)]
    Over,
}

fn is_none(number: &u64) -> bool {
    *number == 0
}
