//! Jobs of automatic steps: how programs take them and report them.
//!
//! Invariant: a job is worked on under a lease. A report counts only while nobody else has taken
//! the job since; each job of a batch is answered for itself, in order.

use std::sync::Arc;

use legwork_model::id::ActivityId;
use legwork_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Data, Problem, text};

/// Asks for jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ActivateRequest {
    /// A name for the program, written into the history.
    pub worker: Arc<str>,
    /// The types of jobs it can do.
    pub types: Vec<Arc<str>>,
    /// At most this many jobs.
    #[schema(minimum = 1, maximum = 1000)]
    pub max: usize,
    /// How long it may work on them before they are offered to others again.
    #[schema(minimum = 100, maximum = 86_400_000)]
    pub lease_ms: u64,
    /// Answer only when there is a job, or after this time.
    #[serde(default)]
    #[schema(maximum = 60_000)]
    pub wait_ms: u64,
}

/// Jobs to do; none if the waiting time is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    pub jobs: Vec<Job>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// The activity to carry out.
    #[serde(with = "text")]
    #[schema(value_type = String, example = "inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC:send-letter")]
    pub job: ActivityId,
    #[serde(rename = "type")]
    pub kind: Arc<str>,
    pub process: Arc<str>,
    /// Give it with the report.
    #[serde(with = "text")]
    #[schema(value_type = String)]
    pub lease: u64,
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub expires_at: Timestamp,
    /// Counts from 1.
    pub attempt: u32,
    /// The values the step reads.
    #[schema(value_type = Object)]
    pub data: Data,
}

/// Reports jobs as done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteJobsRequest {
    pub worker: Arc<str>,
    #[schema(max_items = 1000)]
    pub jobs: Vec<CompletedJob>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompletedJob {
    #[serde(with = "text")]
    #[schema(value_type = String)]
    pub job: ActivityId,
    #[serde(with = "text")]
    #[schema(value_type = String)]
    pub lease: u64,
    /// The values of the step's outputs.
    #[serde(default, skip_serializing_if = "Data::is_empty")]
    #[schema(value_type = Object)]
    pub data: Data,
}

/// Reports jobs as failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailJobsRequest {
    pub worker: Arc<str>,
    #[schema(max_items = 1000)]
    pub jobs: Vec<FailedJob>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailedJob {
    #[serde(with = "text")]
    #[schema(value_type = String)]
    pub job: ActivityId,
    #[serde(with = "text")]
    #[schema(value_type = String)]
    pub lease: u64,
    /// What went wrong, in words.
    pub error: String,
    /// Whether trying again makes sense; if not, the failure becomes an incident at once.
    #[serde(default = "yes")]
    pub retry: bool,
}

/// Asks for more time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendJobsRequest {
    pub worker: Arc<str>,
    #[schema(max_items = 1000)]
    pub jobs: Vec<LeasedJob>,
    /// The leases run out this long from now.
    #[schema(minimum = 100, maximum = 86_400_000)]
    pub lease_ms: u64,
}

/// Gives jobs back that will not be done; others get them at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReturnJobsRequest {
    pub worker: Arc<str>,
    #[schema(max_items = 1000)]
    pub jobs: Vec<LeasedJob>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeasedJob {
    #[serde(with = "text")]
    #[schema(value_type = String)]
    pub job: ActivityId,
    #[serde(with = "text")]
    #[schema(value_type = String)]
    pub lease: u64,
}

/// One result per job of the request, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobResults {
    pub results: Vec<JobResult>,
}

/// Either `ok` is true, or `problem` tells why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobResult {
    pub ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
}

impl From<Result<(), Problem>> for JobResult {
    fn from(result: Result<(), Problem>) -> Self {
        Self { ok: result.is_ok(), problem: result.err() }
    }
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_times_and_leases_are_text_and_round_trip() {
        let wire = json!({
            "job": "inst_00000000000000000000000001:give-drug:2.0",
            "type": "pump",
            "process": "chemotherapy",
            "lease": "1887436800000000123",
            "expires_at": "2026-03-01T09:30:00.000Z",
            "attempt": 1,
            "data": {"dose": "12.50"},
        });
        let job: Job = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!(job.lease, 1_887_436_800_000_000_123, "more than JavaScript keeps exact");
        assert_eq!(serde_json::to_value(&job).unwrap(), wire);
    }

    #[test]
    fn requests_refuse_what_they_do_not_know_and_say_what_is_wrong() {
        for (wire, reason) in [
            (json!({"job": "inst_0:a", "lease": "1"}), "is not an activity id"),
            (json!({"job": "inst_00000000000000000000000001:a", "lease": 1}), "expected text"),
            (
                json!({"job": "inst_00000000000000000000000001:a", "lease": "1", "dat": {}}),
                "unknown field `dat`",
            ),
        ] {
            let error = serde_json::from_value::<CompletedJob>(wire).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
