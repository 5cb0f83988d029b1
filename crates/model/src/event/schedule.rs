//! Periodic starts: their schedules, in the site's stream, and their outcomes, in a stream of their
//! own.

use std::sync::Arc;

use minicbor::{Decode, Encode};

use super::Performer;
use crate::id::{AgentId, InstanceId, instance_bytes, shared_text};
use crate::time::Timestamp;

/// A process is started periodically from now on.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SchedulePut {
    #[cbor(n(0), with = "shared_text")]
    pub name: Arc<str>,
    /// The newest version at each moment is started.
    #[cbor(n(1), with = "shared_text")]
    pub process: Arc<str>,
    #[n(2)]
    pub period: Period,
    /// The start data: a JSON object.
    #[n(3)]
    pub data: String,
    #[n(4)]
    pub by: Performer,
    /// The agent in whose name it is started.
    #[n(5)]
    pub agent: Option<AgentId>,
    /// The deadline of each start after its moment.
    #[n(6)]
    pub within: Option<Within>,
}

/// When a process is started.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Period {
    /// By a timetable in local time of a zone.
    #[n(0)]
    Cron {
        #[cbor(n(0), with = "shared_text")]
        text: Arc<str>,
        #[cbor(n(1), with = "shared_text")]
        zone: Arc<str>,
    },
    /// Periodically, from when the schedule was put.
    #[n(1)]
    Every {
        #[n(0)]
        ms: u64,
    },
}

/// The deadline of each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Within {
    /// After the moment of the start.
    #[n(0)]
    pub ms: u64,
    #[n(1)]
    pub priority: u8,
}

/// The outcomes of starts.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum ScheduleEvent {
    #[n(0)]
    Fired {
        #[cbor(n(0), with = "shared_text")]
        name: Arc<str>,
        /// The latest moment that it was started for.
        #[n(1)]
        moment: Timestamp,
        #[n(2)]
        outcome: Fired,
    },
}

/// The outcome of one start.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Fired {
    #[n(0)]
    Started {
        #[cbor(n(0), with = "instance_bytes")]
        instance: InstanceId,
        /// Whether its deadline was promised, if it has one.
        #[n(1)]
        promised: Option<bool>,
    },
    /// It is not retried.
    #[n(1)]
    Refused {
        #[n(0)]
        code: String,
        #[n(1)]
        message: String,
    },
    /// It was retried until the next moment had come.
    #[n(2)]
    Missed {
        /// The last failure.
        #[n(0)]
        reason: String,
    },
}
