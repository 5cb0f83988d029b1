//! Answers about deadlines and plans.

use std::sync::Arc;

use legwork_model::event::{Passed, Performer};
use legwork_model::id::{InstanceId, Iteration};
use legwork_model::time::Timestamp;

/// The deadline of an instance, and the plan for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlineView {
    pub at: Timestamp,
    pub promised: bool,
    /// When it passed last, and how often it was extended.
    pub passed: Option<Passed>,
    /// From when on it is in danger, if nothing happens until then and it is not promised.
    pub danger: Option<Timestamp>,
    /// Not in lists.
    pub revoked: Option<Revoked>,
    pub legs: Vec<LegView>,
}

/// A step on the way to a deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegView {
    pub step: Arc<str>,
    /// The rounds of the loops around it.
    pub iteration: Iteration,
    /// By when it should be done, so that later steps are in time: advice.
    pub due: Timestamp,
    /// The planned performer; `None` if it is not planned any more.
    pub by: Option<Performer>,
    /// Workers promise it, on a best-effort basis: there were enough of them when it was planned.
    pub is_best_effort: bool,
    /// The planned begin; a task that is due sooner may come before.
    pub start: Option<Timestamp>,
    /// The planned end.
    pub end: Option<Timestamp>,
    /// The loop was left before this round.
    pub is_given_back: bool,
}

/// Since when a promise is revoked, by which step and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    pub at: Timestamp,
    pub step: Arc<str>,
    pub reason: String,
}

/// The plan of a performer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanView {
    pub by: Performer,
    pub at: Timestamp,
    pub turns: Vec<PlannedTurn>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTurn {
    /// The position among tasks done in parallel.
    pub lane: usize,
    pub from: Timestamp,
    pub to: Timestamp,
    /// Regular work, which is not a task.
    pub is_regular: bool,
    /// It is promised, and not only held by an admission.
    pub is_firm: bool,
    /// `None`: regular work, or a job without a promise.
    pub instance: Option<InstanceId>,
    /// If known here.
    pub step: Option<Arc<str>>,
    /// The rounds of the loops around it; empty if these are not known here.
    pub iteration: Iteration,
    pub due: Option<Timestamp>,
}
