//! Deadlines: asking for a promise, what was planned for it, and the plan of somebody.
//!
//! Invariant: a case has one promise, its deadline. The dates of its steps are advice: they may change while the promise
//! stands.

use std::sync::Arc;

use legwork_model::event;
use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::instances::Performer;
use crate::text;

/// By when a case is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadlineRequest {
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What to do if it cannot be promised.
    #[serde(default)]
    pub unpromised: Unpromised,
    /// A case that is promised can be displaced by a more important one; 9 is the most important.
    #[serde(default = "usual_priority")]
    #[schema(maximum = 9, default = 5)]
    pub priority: u8,
}

impl DeadlineRequest {
    /// A deadline that is to be promised.
    pub fn new(at: Timestamp) -> Self {
        Self { at, unpromised: Unpromised::Refuse, priority: usual_priority() }
    }
}

fn usual_priority() -> u8 {
    event::Deadline::PRIORITY_DEFAULT
}

/// What to do with a start that nobody can promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unpromised {
    /// Refuse it, with the earliest date that could be promised.
    #[default]
    Refuse,
    /// Start it all the same.
    Start,
}

/// The deadline of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deadline {
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Whether it is promised: every step that is left is planned, and done before the deadline by that plan.
    pub promised: bool,
    /// Workers have promised some of the steps: nobody knows whether they stay. Not in lists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub best_effort: bool,
    /// The last deadline that passed before the case had ended. Where it is the same as `at`, the case is late; else it was
    /// extended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<Passed>,
    /// From then on the deadline is in danger if nothing is done until then: what is left takes longer than there is time. Absent
    /// where it is promised, where nobody has said how long steps take, and where the case has ended.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub in_danger_from: Option<Timestamp>,
    /// Since when and why it is not promised any more; absent while it is, where it never was, and in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revoked>,
    /// What is planned for it; not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<DeadlineStep>,
}

/// A deadline that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Passed {
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// How often the deadline of the case was extended.
    pub extended: u8,
}

/// A promise that does not stand any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Revoked {
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The first step that is not planned any more.
    pub step: Arc<str>,
    pub reason: String,
}

/// A step on the way to a deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadlineStep {
    pub step: Arc<str>,
    /// In which round of the loops around it, outermost first, each from 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iteration: Vec<u32>,
    /// Nobody has to do it: the loop was left before this round.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_back: bool,
    /// Who is to do it; absent if it is not planned any more. With `best_effort` it is the workers that ask for jobs of the type that
    /// is named as `worker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Performer>,
    /// Workers are to do it, planned by how many of them have asked lately.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub best_effort: bool,
    /// When they were to begin as it was planned; what is due sooner may come before.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start: Option<Timestamp>,
    /// When they were to be done as it was planned.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub end: Option<Timestamp>,
    /// By when it is to be done, so that the steps behind it are in time. This is advice: it changes when the case is planned
    /// anew.
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub due: Timestamp,
}

/// What a person or an executor is to do when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    pub name: Arc<str>,
    pub kind: PlanKind,
    /// The moment it is the plan of.
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub turns: Vec<Turn>,
}

/// Whose plan it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanKind {
    Person,
    Executor,
}

impl PlanKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Executor => "executor",
        }
    }
}

/// What somebody does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnKind {
    Promised,
    /// Held for a caller who asked, until they start the case or some minutes are over.
    Offered,
    /// What they do regularly.
    Regular,
    /// A job that nobody promised.
    Other,
}

/// A stretch of time for one task. A task that is put aside for another one has several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Turn {
    pub what: TurnKind,
    /// Which of those that are done at a time, from 0.
    pub lane: usize,
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub to: Timestamp,
    /// Of what is promised.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub instance: Option<InstanceId>,
    /// As far as the server that keeps the plan knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Arc<str>>,
    /// In which round of the loops around it, outermost first, each from 0; as far as the server that keeps the plan
    /// knows the case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iteration: Vec<u32>,
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub due: Option<Timestamp>,
}
