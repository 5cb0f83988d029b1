//! What is said to a site of processes that are started again and again.

use std::sync::Arc;

use legwork_model::event::{Period, ScheduleEvent, Within};
use legwork_model::id::AgentId;
use legwork_model::time::Timestamp;

use super::Data;

/// What is wanted of periodic starts, or came of one.
#[derive(Debug)]
pub enum Recurring {
    Put(PutSchedule),
    Remove {
        name: Arc<str>,
    },
    /// Starts nothing for a while, or goes on.
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
    /// What came of a start.
    Fired(ScheduleEvent),
    /// A start did not come through, and may later.
    PutOff {
        name: Arc<str>,
        moment: Timestamp,
        reason: String,
    },
}

/// A process that is to be started again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutSchedule {
    pub name: Arc<str>,
    pub process: Arc<str>,
    pub period: Period,
    pub data: Data,
    /// In whose name.
    pub agent: Option<AgentId>,
    /// By when each is to be promised, if it can be.
    pub within: Option<Within>,
}
