//! What a site answers about deadlines and plans.

use std::sync::Arc;

use legwork_model::event::{Passed, Performer};
use legwork_model::id::{InstanceId, Iteration};
use legwork_model::time::Timestamp;

/// By when an instance is to be done, and what is planned for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlineView {
    pub at: Timestamp,
    pub promised: bool,
    /// When it passed last, and how often it was extended.
    pub passed: Option<Passed>,
    /// From when on it is in danger, if nothing happens until then and nobody has promised it.
    pub danger: Option<Timestamp>,
    /// Not in lists.
    pub revoked: Option<Revoked>,
    pub legs: Vec<LegView>,
}

/// A step on the way to a deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegView {
    pub step: Arc<str>,
    /// In which round of the loops around it.
    pub iteration: Iteration,
    /// By when it is to be done, so that the steps behind it are in time: advice.
    pub due: Timestamp,
    /// Who is to do it; nobody, if it is not planned any more.
    pub by: Option<Performer>,
    /// Workers promise it: there were enough of them when it was planned, and nobody knows whether they stay.
    pub is_best_effort: bool,
    /// When they were to begin as it was planned; what is due sooner may come before.
    pub start: Option<Timestamp>,
    /// When they were to be done as it was planned.
    pub end: Option<Timestamp>,
    /// The loop was left before this round.
    pub is_given_back: bool,
}

/// Since when a case is not promised any more, by which step and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    pub at: Timestamp,
    pub step: Arc<str>,
    pub reason: String,
}

/// What somebody is to do when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanView {
    pub by: Performer,
    pub at: Timestamp,
    pub turns: Vec<PlannedTurn>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTurn {
    /// Which of those it does at a time.
    pub lane: usize,
    pub from: Timestamp,
    pub to: Timestamp,
    /// What it does regularly, and nobody has given it.
    pub is_regular: bool,
    /// It is promised, and not only held while somebody decides.
    pub is_firm: bool,
    /// `None`: what it does regularly, or a job that nobody promised.
    pub instance: Option<InstanceId>,
    /// As far as it is known here.
    pub step: Option<Arc<str>>,
    /// In which round of the loops around it; empty where these are not known here.
    pub iteration: Iteration,
    pub due: Option<Timestamp>,
}
