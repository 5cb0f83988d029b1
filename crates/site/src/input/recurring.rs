//! Requests about periodic starts.

use std::sync::Arc;

use legwork_model::event::{Period, ScheduleEvent, Within};
use legwork_model::id::AgentId;
use legwork_model::time::Timestamp;

use super::Data;

/// A request about periodic starts, or the outcome of one.
#[derive(Debug)]
pub enum Recurring {
    Put(PutSchedule),
    Remove {
        name: Arc<str>,
    },
    /// Pauses it, or resumes it.
    Pause {
        name: Arc<str>,
        is_paused: bool,
    },
    /// By name; only those after the given one.
    List {
        after: Option<Arc<str>>,
        limit: usize,
    },
    Show {
        name: Arc<str>,
    },
    /// Whether a start that is about to be carried out is still wanted.
    Begin {
        name: Arc<str>,
        moment: Timestamp,
    },
    /// The outcome of a start.
    Fired(ScheduleEvent),
    /// A start has failed, and may succeed later.
    PutOff {
        name: Arc<str>,
        moment: Timestamp,
        reason: String,
    },
}

/// A process to start periodically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutSchedule {
    pub name: Arc<str>,
    pub process: Arc<str>,
    pub period: Period,
    pub data: Data,
    /// In whose name it is started.
    pub agent: Option<AgentId>,
    /// By when each start should be promised, if possible.
    pub within: Option<Within>,
}
