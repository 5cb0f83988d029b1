//! Executors: services that do automatic steps and are called by Legwork.
//!
//! Invariant: a task is named by its assignment. Everything either side says about it names it, so
//! that saying it twice changes nothing. What an executor reads may gain fields at any time; what a
//! server reads refuses fields it does not know.

use std::collections::BTreeMap;

use legwork_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Data, text};

/// The longest name of a task.
pub const TASK_CHARS_MAX: usize = 400;
/// The most tasks that an executor names as those that it has; the others are left out.
pub const HOLDS_MAX: usize = 1_000;
/// Tasks at a time of an executor that says nothing else.
pub const LIMIT: u32 = 16;

/// Says what an executor does and where; the same again changes nothing.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecutorRequest {
    /// Legwork calls below it: `http` or `https`, without a query and without a user.
    #[schema(example = "http://crm.example:7001/legwork")]
    pub url: String,
    /// Signs what both sides say; never shown again.
    #[schema(min_length = 32)]
    pub secret: String,
    /// The types of tasks it does.
    pub types: BTreeMap<String, TypeLimit>,
    /// Tasks that it takes at a time from a server, of all types together.
    #[serde(default = "limit")]
    #[schema(minimum = 1)]
    pub limit: u32,
    /// On how many it works at a time: what it is given beyond, it keeps waiting. If absent, on all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub at_once: Option<u32>,
    /// How many a server gives it in a second, a minute or an hour; if absent, any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "10/s")]
    pub rate: Option<String>,
    /// Its part of the tasks where they are given out by weights; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// What it does again and again beside its tasks, at times of its own: promises of deadlines reckon with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regularly: Vec<Regularly>,
    /// The per cent of its time that is promised only after a fault: when somebody falls ill, or another executor or a server
    /// is gone. None if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 90)]
    pub reserve: Option<u32>,
    /// The domain where it is at home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Whether it wants to be told which of its results count, and confirms that.
    #[serde(default = "yes")]
    pub verdicts: bool,
    /// The names of the tasks that it has now, of all servers; at most 1,000. It is no part of what is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TypeLimit {
    /// Tasks of the type at a time; if absent, as many as the executor takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub limit: Option<u32>,
    /// How many of the type a server gives it in so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "600/m")]
    pub rate: Option<String>,
}

/// So much at some time in every period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Regularly {
    #[schema(example = "1h")]
    pub every: String,
    #[schema(example = "5m")]
    pub takes: String,
}

/// Sets the policy that chooses the executors of a type of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyRequest {
    /// By name: `adaptive`, `random`, `round-robin`, `weighted`, `least-outstanding`, `two-choices`, or
    /// `oxthas-1` to `oxthas-6`.
    #[schema(example = "adaptive")]
    pub policy: String,
    /// Whether the history says of each assignment why it went where it went.
    #[serde(default)]
    pub record: bool,
}

/// The types of jobs whose executors are not chosen as usual, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyList {
    pub policies: Vec<PolicyState>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyState {
    #[serde(rename = "type")]
    pub kind: String,
    pub policy: String,
    pub record: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Registered {
    pub executor: String,
    /// It was registered like this already.
    pub unchanged: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecutorList {
    pub executors: Vec<ExecutorState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An executor, as the server that answers has seen it; or a worker that asks for jobs of types that
/// executors do as well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecutorState {
    pub name: String,
    /// It is a worker: it asks for jobs under this name, and has neither an address nor limits.
    #[serde(default)]
    pub polls: bool,
    /// Of an executor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Of an executor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// On how many it works at a time, if not on all that it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regularly: Vec<Regularly>,
    /// The per cent of its time that is promised only after a fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<u32>,
    pub verdicts: bool,
    pub condition: ExecutorCondition,
    /// Verdicts that it has not confirmed.
    pub unconfirmed: usize,
    pub types: Vec<ExecutorTypeState>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecutorCondition {
    /// It gets what it is best for.
    Ready,
    /// It said that it is busy, and gets nothing for a while.
    Resting,
    /// It has been silent for too long: it gets a task now and then, to see whether it is back.
    Suspected,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecutorTypeState {
    #[serde(rename = "type")]
    pub kind: String,
    /// Of an executor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Tasks that it has now.
    pub outstanding: u32,
    /// How long a task of size 1 takes it once begun, as learned; absent while not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace_ms: Option<f64>,
    pub answers: u64,
    pub timeouts: u64,
    pub failures: u64,
    /// It has failed so often, with nothing done in between, that it gets a task of the type only now and
    /// then, to see whether it is back.
    #[serde(default)]
    pub failing: bool,
}

/// One attempt at a step, given to one executor: `POST {url}/tasks`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TaskRequest {
    /// This assignment.
    #[schema(max_length = 400)]
    pub task: String,
    /// The same for every attempt at the step: an idempotency key for whatever it sets off.
    pub key: String,
    /// Counts from 1.
    pub attempt: u32,
    #[serde(rename = "type")]
    pub kind: String,
    /// How much work it is, in the unit of the type.
    pub size: f64,
    pub process: String,
    /// The values the step reads.
    #[schema(value_type = Object)]
    pub inputs: Data,
    /// After that it is given to somebody else.
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub deadline: Timestamp,
    /// Where a result that takes longer goes.
    pub callback: String,
    /// Which server gives it, where there are several. Servers of one process share a callback, and limits are those of
    /// each server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

/// The answer 200 to a task: it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskDone {
    /// The values of the step's outputs.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub data: Data,
    /// How many tasks the executor still has, of all servers, those that wait for their turn included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<u32>,
    /// The names of these tasks; at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Vec<String>>,
    /// For how many milliseconds it worked on this one, waiting for its turn not included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

/// The answer 202 to a task: its result comes by callback. The body may be anything else as well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskTaken {
    /// How many tasks the executor has with this one, of all servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<u32>,
    /// The names of these tasks; at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Vec<String>>,
}

/// The body of any other answer than 200 and 202.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskRefused {
    /// What went wrong, in words.
    pub error: String,
    /// How many tasks the executor has, of all servers, without this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<u32>,
    /// The names of these tasks; at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Vec<String>>,
}

/// What came of a task, later: either `data` or `error`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskResult {
    pub task: String,
    /// The values of the step's outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub data: Option<Data>,
    /// What went wrong, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// With `error`: whether trying again makes sense. If absent, it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<bool>,
    /// How many tasks the executor still has, of all servers, those that wait for their turn included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<u32>,
    /// The names of these tasks; at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holds: Option<Vec<String>>,
    /// For how many milliseconds it worked on this one, waiting for its turn not included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

/// It was heard: it is stored, or known to come too late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Received {}

/// Whether a result counts: `POST {url}/verdicts`. Any answer 2xx confirms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VerdictRequest {
    pub task: String,
    pub verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The result counts: make it final.
    Ack,
    /// It does not, because another assignment came first or the case has ended: undo it.
    Nack,
}

/// Nobody waits for the task any more: `POST {url}/cancellations`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CancelRequest {
    pub task: String,
}

impl TaskResult {
    pub fn done(task: impl Into<String>, data: Data) -> Self {
        let (task, data) = (task.into(), Some(data));
        Self { task, data, error: None, retry: None, has: None, holds: None, took_ms: None }
    }

    pub fn failed(task: impl Into<String>, error: impl Into<String>, retry: bool) -> Self {
        let (task, error, retry) = (task.into(), Some(error.into()), Some(retry));
        Self { task, data: None, error, retry, has: None, holds: None, took_ms: None }
    }
}

/// Secrets stay out of logs.
impl std::fmt::Debug for ExecutorRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecutorRequest")
            .field("url", &self.url)
            .field("types", &self.types)
            .field("limit", &self.limit)
            .field("at_once", &self.at_once)
            .field("rate", &self.rate)
            .field("weight", &self.weight)
            .field("regularly", &self.regularly)
            .field("reserve", &self.reserve)
            .field("domain", &self.domain)
            .field("verdicts", &self.verdicts)
            .finish_non_exhaustive()
    }
}

fn limit() -> u32 {
    LIMIT
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value as Json, json};

    use super::*;

    fn check<T: Serialize + DeserializeOwned>(wire: &Json) {
        let read: T = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), *wire);
    }

    #[test]
    fn what_both_sides_say_round_trips() {
        check::<ExecutorRequest>(&json!({
            "url": "http://crm.example:7001/legwork",
            "secret": "at least 32 characters, and these are",
            "types": {"score": {"limit": 4}, "mail": {}},
            "limit": 16,
            "at_once": 2,
            "regularly": [{"every": "1h", "takes": "5m"}],
            "reserve": 10,
            "domain": "north",
            "verdicts": true,
        }));
        check::<TaskRequest>(&json!({
            "task": "2QK/check@1#7318349394477056",
            "key": "2QK/check",
            "attempt": 1,
            "type": "score",
            "size": 12.0,
            "process": "loan",
            "inputs": {"amount": 1200},
            "deadline": "2026-11-16T02:30:00.000Z",
            "callback": "http://legwork.example:8080/v1/executors/crm/results",
        }));
        check::<TaskResult>(&json!({"task": "t", "data": {"points": 7}}));
        check::<TaskResult>(&json!({"task": "t", "data": {}, "has": 2, "took_ms": 40}));
        check::<TaskDone>(&json!({"data": {"points": 7}, "has": 2, "took_ms": 40}));
        check::<TaskTaken>(&json!({"has": 3}));
        check::<TaskTaken>(&json!({"has": 1, "holds": ["t"]}));
        check::<TaskResult>(&json!({"task": "t", "data": {}, "has": 0, "holds": []}));
        check::<TaskResult>(&json!({"task": "t", "error": "no answer", "retry": false}));
        check::<VerdictRequest>(&json!({"task": "t", "verdict": "ack"}));
        check::<VerdictRequest>(&json!({"task": "t", "verdict": "nack"}));
        check::<ExecutorState>(&json!({
            "name": "robot",
            "polls": true,
            "verdicts": false,
            "condition": "ready",
            "unconfirmed": 0,
            "types": [{"type": "score", "outstanding": 1, "answers": 2, "timeouts": 0, "failures": 0, "failing": false}],
        }));
        check::<CancelRequest>(&json!({"task": "t"}));
        check::<Registered>(&json!({"executor": "crm", "unchanged": false}));
    }

    #[test]
    fn what_a_registration_leaves_out_is_the_usual() {
        let wire = json!({"url": "http://a:1", "secret": "s", "types": {"score": {}}});
        let read: ExecutorRequest = serde_json::from_value(wire).unwrap();
        assert_eq!((read.limit, read.verdicts, read.domain), (16, true, None));
    }

    #[test]
    fn a_server_refuses_fields_it_does_not_know_and_an_executor_does_not() {
        let wire = json!({"task": "t", "verdict": "ack", "later": 1});
        assert!(serde_json::from_value::<VerdictRequest>(wire).is_ok());
        let wire = json!({"task": "t", "dat": {}});
        assert!(serde_json::from_value::<TaskResult>(wire).is_err());
    }

    #[test]
    fn a_secret_stays_out_of_logs() {
        let wire = json!({"url": "http://a:1", "secret": "hush", "types": {}});
        let read: ExecutorRequest = serde_json::from_value(wire).unwrap();
        assert!(!format!("{read:?}").contains("hush"));
    }
}
