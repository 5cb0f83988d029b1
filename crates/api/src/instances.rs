//! Instances: starting them, looking at them, stopping and mending them.
//!
//! Invariant: `instance` is the whole name of an instance everywhere, `activity` that of one
//! execution of one step.

use std::sync::Arc;

use legwork_model::id::{ActivityId, InstanceId};
use legwork_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use utoipa::ToSchema;

use crate::deadlines::{Deadline, DeadlineRequest};
use crate::{Data, text};

/// A new case of a process. With the header `Idempotency-Key` a repetition answers the instance
/// that the first one started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartRequest {
    pub process: Arc<str>,
    /// Without one, the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The elements that the process asks for at its start.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub data: Data,
    /// Who starts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<str>>,
    /// Answer only when the instance has ended, or after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 60_000)]
    pub wait_ms: Option<u64>,
    /// By when it is to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<DeadlineRequest>,
}

/// An instance was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Started {
    #[serde(with = "text")]
    #[schema(value_type = String, example = "inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC")]
    pub instance: InstanceId,
    pub process: Arc<str>,
    pub version: u32,
    pub state: InstanceState,
    /// The result elements; only when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Data>,
    /// The same request had started it before.
    pub repeated: bool,
    /// By when it is to be done, and what is planned for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InstanceState {
    Running,
    Suspended,
    Completed,
    Aborted,
}

/// An instance in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstanceSummary {
    #[serde(with = "text")]
    #[schema(value_type = String)]
    pub instance: InstanceId,
    pub process: Arc<str>,
    pub version: u32,
    pub state: InstanceState,
    /// How many of its activities cannot go on without somebody's decision.
    pub incidents: u32,
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    /// By when it is to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
}

/// A page of instances, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InstanceList {
    pub instances: Vec<InstanceSummary>,
    /// Give it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Servers that could not be asked: what they alone know is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<Arc<str>>,
}

/// An instance as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Instance {
    #[serde(flatten)]
    pub summary: InstanceSummary,
    pub title: Arc<str>,
    pub started_by: Performer,
    /// The result elements; only when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Data>,
    pub data: Vec<Element>,
    /// Steps and blocks in document order.
    pub nodes: Vec<Node>,
    /// Other servers that control went to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<Elsewhere>,
    /// Those of them that could not be asked: what happened there since is not shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<Arc<str>>,
}

/// Another server that an instance went to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Elsewhere {
    pub server: Arc<str>,
    /// Parcels that have not arrived there yet.
    pub waiting: usize,
}

/// A data element and its present value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Element {
    pub element: Arc<str>,
    #[serde(rename = "type")]
    #[schema(example = "decimal")]
    pub kind: String,
    /// The latest version; absent if nothing was written yet, or the server that has it cannot be
    /// reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Json>,
    /// How often it was written.
    pub versions: u32,
}

/// A step or a block of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its name in the definition.
    pub name: Arc<str>,
    pub title: Arc<str>,
    /// What sort of node it is, such as `manual`, `automatic` or `parallel`.
    pub kind: String,
    /// How many blocks are around it.
    pub depth: u32,
    /// The branch it begins, if it is the first node of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<Arc<str>>,
    /// The branches that it is divided into, also those in which nothing is done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<Branch>,
    pub state: NodeState,
    #[serde(with = "text")]
    #[schema(value_type = String)]
    pub activity: ActivityId,
    /// Who has claimed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Arc<str>>,
    /// Who has done it, or has answered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub performer: Option<Performer>,
    /// Failed attempts so far.
    pub attempts: u32,
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub retry_at: Option<Timestamp>,
    /// Why it cannot go on by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<String>,
    /// Of which kind that is, as in the list of incidents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident_kind: Option<String>,
    /// The latest failed attempts, ten at most, the first one first. The history has all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// The server that controls it, where there are several and that is known yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Arc<str>>,
}

/// A branch of a parallel block or a choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Branch {
    pub name: Arc<str>,
    pub title: Arc<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    NotActivated,
    /// Due: offered to people, or waiting for a worker.
    Activated,
    /// A person has it.
    Claimed,
    /// An executor has done it, and has not confirmed that it knows that its result counts.
    Answered,
    /// Of blocks: begun and not ended.
    Running,
    Completed,
    /// It can no longer run: the instance took another way.
    Skipped,
    /// It has an incident.
    Failed,
}

/// Who did it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Performer {
    /// Nobody in particular: the server itself, or a caller without a name.
    System,
    Agent(Arc<str>),
    /// A program that asked for the job; in what older versions wrote also an executor.
    Worker(Arc<str>),
    /// A service that was called.
    Executor(Arc<str>),
}

/// A part of an instance's execution history, each entry after all its predecessors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct History {
    pub entries: Vec<HistoryEntry>,
    /// Give it as `from` for the next part; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Servers that could not be asked: of what happened there only what others were told is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HistoryEntry {
    /// Number of the record at the server that tells of it, counted from 0; entries of one command
    /// share it.
    pub record: u64,
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What happened, such as `completed`.
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Arc<str>>,
    /// How often the loops around the step had gone round, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iteration: Vec<u32>,
    pub by: Performer,
    /// When the work began: when the item was claimed, or offered if nobody claimed it, or when the
    /// job was given out.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// The values written.
    #[serde(default, skip_serializing_if = "Data::is_empty")]
    #[schema(value_type = Object)]
    pub writes: Data,
    /// Decision, error, reason, incident or recipient, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// By which way it came, where that is known: `mail` for the answer to a letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The server where it happened, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Arc<str>>,
    /// Of what goes between servers: where it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Arc<str>>,
    /// Of what goes between servers: where it goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Arc<str>>,
    /// Of what goes between servers: its number, counted from 1 between the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
}

/// Why an instance is suspended, resumed or aborted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A page of incidents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IncidentList {
    pub incidents: Vec<Incident>,
    /// Give it as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// Servers that could not be asked: what they alone know is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<Arc<str>>,
}

/// An activity that cannot go on without somebody's decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Incident {
    #[serde(with = "text")]
    #[schema(value_type = String)]
    pub activity: ActivityId,
    pub process: Arc<str>,
    /// A stable word for the kind, such as `retries_exhausted`.
    pub kind: String,
    pub message: String,
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The latest failed attempts that led to it, ten at most, the first one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
}

/// An attempt that went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Failure {
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The executor or the worker that made it.
    pub by: Performer,
    /// What went wrong, in words.
    pub error: String,
}

/// The way out of an incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolveRequest {
    pub action: ResolveAction,
    /// With `choose`: the branch to take; at the end of a loop `repeat` or `leave`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// With `complete`: the outputs of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub data: Option<Data>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolveAction {
    /// Try again.
    Retry,
    /// At a decision that failed: take the branch in `answer`.
    Choose,
    /// At a step that failed: its outputs are in `data`.
    Complete,
}
