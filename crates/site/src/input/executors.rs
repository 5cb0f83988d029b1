//! Requests about executors, and by executors.

use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::{ExecutorType, RegularWork, Secret};
use legwork_model::rate::Rate;
use legwork_schedule::Feedback;

use super::{Data, JobLease};

/// A request about executors, or by an executor.
#[derive(Debug)]
pub enum Concern {
    Register(RegisterExecutor),
    /// Sets the policy of a type of jobs, and whether reasons are recorded.
    SetPolicy {
        job: Arc<str>,
        policy: Arc<str>,
        recorded: bool,
    },
    /// The types with a policy other than the default.
    Policies,
    Remove {
        name: Arc<str>,
    },
    /// By name; only those after the given one.
    List {
        after: Option<Arc<str>>,
        limit: usize,
    },
    /// Metrics of executors and the number of waiting jobs: a page, by name. Needs no scope.
    Figures {
        after: Option<Arc<str>>,
        limit: usize,
    },
    /// An executor's report on a task assigned to it.
    Report(TaskReport),
    /// An executor confirms the verdict about its result.
    Confirm {
        executor: Arc<str>,
        task: JobLease,
    },
}

/// A service that does automatic steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterExecutor {
    pub name: Arc<str>,
    /// The address at which it is called.
    pub url: Arc<str>,
    /// Signs messages in both directions.
    pub secret: Secret,
    /// The types of jobs it does, with their limits if they differ from the total.
    pub types: Vec<ExecutorType>,
    pub limit: u32,
    /// How many tasks it works on in parallel, if not all it accepts.
    pub at_once: Option<u32>,
    /// Rate limit of assignments.
    pub rate: Option<Rate>,
    /// Its share of the tasks under a policy by weights.
    pub weight: Option<u32>,
    /// Its regular work beside tasks.
    pub regularly: Vec<RegularWork>,
    /// The part of its time, in per cent, that is promised only after a fault.
    pub reserve: Option<u32>,
    /// Its home domain.
    pub domain: Option<String>,
    /// It gets verdicts about its results, and confirms them.
    pub verdicts: bool,
    /// The tasks that it has, if it reports them: not part of the registration.
    pub holds: Option<Vec<JobLease>>,
}

#[derive(Debug)]
pub struct TaskReport {
    pub executor: Arc<str>,
    pub task: JobLease,
    pub outcome: Outcome,
    pub feedback: Feedback,
    /// The tasks that the executor has, of all servers, if it reports them.
    pub holds: Option<Vec<JobLease>>,
}

/// The state of a task.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The executor has begun, or will; it reports again later.
    Taken,
    Done(Data),
    /// Without `retry` every attempt would fail.
    Failed {
        error: String,
        retry: bool,
    },
    /// Nothing was begun; the executor wants no tasks for a while.
    Busy {
        rest: Option<Duration>,
    },
}
