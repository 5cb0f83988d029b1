//! Periodic starts: what was said of them, in the site's own stream, and what came of each, in a
//! stream of its own.

use std::sync::Arc;

use minicbor::{Decode, Encode};

use super::Performer;
use crate::id::{AgentId, InstanceId, instance_bytes, shared_text};
use crate::time::Timestamp;

/// A process is started again and again from now on.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SchedulePut {
    #[cbor(n(0), with = "shared_text")]
    pub name: Arc<str>,
    /// Its newest version at each moment.
    #[cbor(n(1), with = "shared_text")]
    pub process: Arc<str>,
    #[n(2)]
    pub period: Period,
    /// What each start is given: a JSON object.
    #[n(3)]
    pub data: String,
    #[n(4)]
    pub by: Performer,
    /// In whose name it is started.
    #[n(5)]
    pub agent: Option<AgentId>,
    /// How long after its moment each start is to be done.
    #[n(6)]
    pub within: Option<Within>,
}

/// When a process is started.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum Period {
    /// By the clock on the wall of a zone.
    #[n(0)]
    Cron {
        #[cbor(n(0), with = "shared_text")]
        text: Arc<str>,
        #[cbor(n(1), with = "shared_text")]
        zone: Arc<str>,
    },
    /// Each time after so long, from when it was put.
    #[n(1)]
    Every {
        #[n(0)]
        ms: u64,
    },
}

/// The deadline of each start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Within {
    /// From the moment on.
    #[n(0)]
    pub ms: u64,
    #[n(1)]
    pub priority: u8,
}

/// What came of the starts.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat)]
pub enum ScheduleEvent {
    #[n(0)]
    Fired {
        #[cbor(n(0), with = "shared_text")]
        name: Arc<str>,
        /// The one it was started for, however late.
        #[n(1)]
        moment: Timestamp,
        #[n(2)]
        outcome: Fired,
    },
}

/// What came of one start.
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
    /// It is not tried again.
    #[n(1)]
    Refused {
        #[n(0)]
        code: String,
        #[n(1)]
        message: String,
    },
    /// It was tried until the next moment had come.
    #[n(2)]
    Missed {
        /// Why it did not come through the last time.
        #[n(0)]
        reason: String,
    },
}
