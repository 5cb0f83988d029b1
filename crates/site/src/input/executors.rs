//! What is said to a site of executors, and by them.

use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::{ExecutorType, RegularWork, Secret};
use legwork_model::rate::Rate;
use legwork_schedule::Feedback;

use super::{Data, JobLease};

/// What is wanted of, or by, executors.
#[derive(Debug)]
pub enum Concern {
    Register(RegisterExecutor),
    /// Says who chooses the executors of a type of jobs, and whether the reasons are kept.
    SetPolicy {
        job: Arc<str>,
        policy: Arc<str>,
        recorded: bool,
    },
    /// The types whose executors are not chosen as usual.
    Policies,
    Remove {
        name: Arc<str>,
    },
    /// By name; only those after the given one.
    List {
        after: Option<Arc<str>>,
        limit: usize,
    },
    /// What is counted of them, and how many jobs wait: a page, by name. Needs no right.
    Figures {
        after: Option<Arc<str>>,
        limit: usize,
    },
    /// What an executor says of a task that it was given.
    Report(TaskReport),
    /// An executor knows the verdict about its result.
    Confirm {
        executor: Arc<str>,
        task: JobLease,
    },
}

/// A service that wants to do automatic steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisterExecutor {
    pub name: Arc<str>,
    /// Where it is called.
    pub url: Arc<str>,
    /// Signs what is said in either direction.
    pub secret: Secret,
    /// The types of jobs it does, and how many of each at a time, if not as many as in all.
    pub types: Vec<ExecutorType>,
    pub limit: u32,
    /// On how many it works at a time, if not on all that it takes.
    pub at_once: Option<u32>,
    /// How many it is given in so long.
    pub rate: Option<Rate>,
    /// Its part of the tasks where they are given out by weights.
    pub weight: Option<u32>,
    /// What it does again and again beside its tasks.
    pub regularly: Vec<RegularWork>,
    /// The part of its time, in per cent, that is promised only after a fault.
    pub reserve: Option<u32>,
    /// Where it is at home.
    pub domain: Option<String>,
    /// It is told whether its results count, and confirms.
    pub verdicts: bool,
    /// The tasks that it has, if it says so: no part of what is registered.
    pub holds: Option<Vec<JobLease>>,
}

#[derive(Debug)]
pub struct TaskReport {
    pub executor: Arc<str>,
    pub task: JobLease,
    pub outcome: Outcome,
    pub feedback: Feedback,
    /// The tasks that the executor has, of all servers, if it says so.
    pub holds: Option<Vec<JobLease>>,
}

/// How a task stands.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The executor has begun, or will; it says more later.
    Taken,
    Done(Data),
    /// Without `retry` it would always fail.
    Failed {
        error: String,
        retry: bool,
    },
    /// Nothing was begun; the executor wants nothing for a while.
    Busy {
        rest: Option<Duration>,
    },
}
