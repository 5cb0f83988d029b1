//! Operations of programs that carry out automatic steps.
//!
//! Invariant: each job of a batch is answered for itself, in order.

use std::time::Duration;

use legwork_api::jobs::{
    ActivateRequest, CompleteJobsRequest, CompletedJob, ExtendJobsRequest, FailJobsRequest,
    FailedJob, JobList, JobResults, LeasedJob,
};
use legwork_site::{Activate, Answer, JobFailure, JobLease, JobResult, Request};

use super::exchange::Exchange;
use super::files::require_stored;
use super::reply::{Refused, Reply, Result};
use crate::convert;

const WORKER_BYTES_MAX: usize = 256;

/// Asks for jobs. With `wait_ms` the answer comes when there is one.
#[utoipa::path(
    post, path = "/v1/jobs/activate", tag = "jobs", operation_id = "activate_jobs",
    request_body = ActivateRequest,
    responses((status = 200, body = JobList)),
)]
pub(super) async fn activate(x: Exchange<'_>) -> Result {
    x.query(&[])?;
    let request: ActivateRequest = x.json()?;
    check_worker(&request.worker)?;
    let wait_until = x.wait_until(Some(request.wait_ms))?;
    let activate = Request::Activate(Activate {
        worker: request.worker,
        types: request.types,
        max: request.max,
        lease: Duration::from_millis(request.lease_ms),
        wait_until,
    });
    let answer = if wait_until.is_some() {
        x.ask_patiently(activate).await?
    } else {
        Some(x.ask(activate).await?)
    };
    // None when the server stops.
    let Answer::Jobs(jobs) = answer.unwrap_or_else(|| Answer::Jobs(Vec::new())) else {
        return Err(Refused::strange_answer());
    };
    Reply::json(&convert::jobs(jobs))
}

/// Reports jobs as done.
#[utoipa::path(
    post, path = "/v1/jobs/complete", tag = "jobs", operation_id = "complete_jobs",
    request_body = CompleteJobsRequest,
    responses((status = 200, body = JobResults)),
)]
pub(super) async fn complete(x: Exchange<'_>) -> Result {
    x.query(&[])?;
    let CompleteJobsRequest { worker, jobs } = x.json()?;
    check_worker(&worker)?;
    let (mut complete, mut refused) = (Vec::new(), Vec::new());
    for (place, CompletedJob { job, lease, data }) in jobs.into_iter().enumerate() {
        match require_stored(&x, &data).await {
            Ok(()) => {
                complete.push(JobResult { job: JobLease { activity: job, lease }, data });
            }
            Err(missing) => refused.push((place, missing)),
        }
    }
    let mut results = results(&x, Request::CompleteJobs { worker, jobs: complete }).await?;
    for (place, missing) in refused {
        // In order: those before it are there already.
        results.results.insert(place, Err(missing.into_problem()).into());
    }
    Reply::json(&results)
}

/// Reports jobs as failed; they are tried again after a pause, or become incidents.
#[utoipa::path(
    post, path = "/v1/jobs/fail", tag = "jobs", operation_id = "fail_jobs",
    request_body = FailJobsRequest,
    responses((status = 200, body = JobResults)),
)]
pub(super) async fn fail(x: Exchange<'_>) -> Result {
    x.query(&[])?;
    let FailJobsRequest { worker, jobs } = x.json()?;
    check_worker(&worker)?;
    let jobs = jobs.into_iter().map(|FailedJob { job, lease, error, retry }| JobFailure {
        job: JobLease { activity: job, lease },
        error,
        retry,
    });
    Reply::json(&results(&x, Request::FailJobs { worker, jobs: jobs.collect() }).await?)
}

/// Asks for more time for jobs that are being worked on.
#[utoipa::path(
    post, path = "/v1/jobs/extend", tag = "jobs", operation_id = "extend_jobs",
    request_body = ExtendJobsRequest,
    responses((status = 200, body = JobResults)),
)]
pub(super) async fn extend(x: Exchange<'_>) -> Result {
    x.query(&[])?;
    let ExtendJobsRequest { worker, jobs, lease_ms } = x.json()?;
    check_worker(&worker)?;
    let jobs = jobs.into_iter().map(|LeasedJob { job, lease }| JobLease { activity: job, lease });
    let lease = Duration::from_millis(lease_ms);
    Reply::json(&results(&x, Request::ExtendJobs { worker, jobs: jobs.collect(), lease }).await?)
}

async fn results(x: &Exchange<'_>, request: Request) -> Result<JobResults> {
    let Answer::JobResults(results) = x.ask(request).await? else {
        return Err(Refused::strange_answer());
    };
    Ok(convert::job_results(results))
}

fn check_worker(worker: &str) -> Result<()> {
    if worker.is_empty() || worker.len() > WORKER_BYTES_MAX {
        let detail = format!("`worker` names the program in 1 to {WORKER_BYTES_MAX} bytes");
        return Err(Refused::bad_request("bad_worker", detail));
    }
    Ok(())
}
