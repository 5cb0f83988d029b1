//! Operations of programs that carry out automatic steps.
//!
//! Invariant: each job of a batch is answered for itself, in order. The servers of a domain give
//! their jobs out together: whom of them a worker asks, and reports to, makes no difference.

use std::time::Duration;

use legwork_api::jobs::{
    ActivateRequest, CompleteJobsRequest, CompletedJob, ExtendJobsRequest, FailJobsRequest,
    FailedJob, JobList, JobResults, LeasedJob, ReturnJobsRequest,
};
use legwork_site::{Activate, Answer, JobFailure, JobLease, JobResult, Request};

use super::colleagues;
use super::exchange::Exchange;
use super::files::require_stored;
use super::reply::{Refused, Reply, Result, strange};
use super::reports::{self, Reported};
use crate::convert;

const WORKER_BYTES_MAX: usize = 256;

pub(super) async fn activate(x: Exchange<'_>) -> Result {
    let request: ActivateRequest = x.json()?;
    check_worker(&request.worker)?;
    // Before it is divided among others: they would wait too.
    x.wait_until(Some(request.wait_ms))?;
    Reply::json(&colleagues::activate(&x, request).await?)
}

/// The jobs of this server alone.
pub(super) async fn activate_here(x: &Exchange<'_>, request: ActivateRequest) -> Result<JobList> {
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
    let answer = answer.unwrap_or_else(|| Answer::Jobs(Vec::new()));
    let Answer::Jobs(jobs) = answer else { return strange() };
    Ok(convert::jobs(jobs))
}

pub(super) async fn complete(x: Exchange<'_>) -> Result {
    let report: CompleteJobsRequest = x.json()?;
    check_worker(&report.worker)?;
    reports::divide(&x, report).await
}

pub(super) async fn fail(x: Exchange<'_>) -> Result {
    let report: FailJobsRequest = x.json()?;
    check_worker(&report.worker)?;
    reports::divide(&x, report).await
}

pub(super) async fn extend(x: Exchange<'_>) -> Result {
    let report: ExtendJobsRequest = x.json()?;
    check_worker(&report.worker)?;
    reports::divide(&x, report).await
}

pub(super) async fn give_back(x: Exchange<'_>) -> Result {
    let report: ReturnJobsRequest = x.json()?;
    check_worker(&report.worker)?;
    reports::divide(&x, report).await
}

impl Reported for CompleteJobsRequest {
    type Job = CompletedJob;

    fn jobs(&mut self) -> &mut Vec<CompletedJob> {
        &mut self.jobs
    }

    fn lease(job: &CompletedJob) -> u64 {
        job.lease
    }

    async fn carry_out(self, x: &Exchange<'_>) -> Result<JobResults> {
        let (mut complete, mut refused) = (Vec::new(), Vec::new());
        for (place, CompletedJob { job, lease, data }) in self.jobs.into_iter().enumerate() {
            match require_stored(x, &data).await {
                Ok(()) => {
                    complete.push(JobResult { job: JobLease { activity: job, lease }, data });
                }
                Err(missing) => refused.push((place, missing)),
            }
        }
        let mut results = match complete.is_empty() && !refused.is_empty() {
            true => JobResults { results: Vec::new() },
            false => {
                results(x, Request::CompleteJobs { worker: self.worker, jobs: complete }).await?
            }
        };
        for (place, missing) in refused {
            // In order: those before it are there already.
            results.results.insert(place, Err(missing.into_problem()).into());
        }
        Ok(results)
    }
}

impl Reported for FailJobsRequest {
    type Job = FailedJob;

    fn jobs(&mut self) -> &mut Vec<FailedJob> {
        &mut self.jobs
    }

    fn lease(job: &FailedJob) -> u64 {
        job.lease
    }

    async fn carry_out(self, x: &Exchange<'_>) -> Result<JobResults> {
        let jobs = self.jobs.into_iter().map(|FailedJob { job, lease, error, retry }| JobFailure {
            job: JobLease { activity: job, lease },
            error,
            retry,
        });
        results(x, Request::FailJobs { worker: self.worker, jobs: jobs.collect() }).await
    }
}

impl Reported for ExtendJobsRequest {
    type Job = LeasedJob;

    fn jobs(&mut self) -> &mut Vec<LeasedJob> {
        &mut self.jobs
    }

    fn lease(job: &LeasedJob) -> u64 {
        job.lease
    }

    async fn carry_out(self, x: &Exchange<'_>) -> Result<JobResults> {
        let lease = Duration::from_millis(self.lease_ms);
        let jobs = self.jobs.into_iter().map(leased).collect();
        results(x, Request::ExtendJobs { worker: self.worker, jobs, lease }).await
    }
}

impl Reported for ReturnJobsRequest {
    type Job = LeasedJob;

    fn jobs(&mut self) -> &mut Vec<LeasedJob> {
        &mut self.jobs
    }

    fn lease(job: &LeasedJob) -> u64 {
        job.lease
    }

    async fn carry_out(self, x: &Exchange<'_>) -> Result<JobResults> {
        results(x, Request::ReturnJobs { jobs: self.jobs.into_iter().map(leased).collect() }).await
    }
}

fn leased(LeasedJob { job, lease }: LeasedJob) -> JobLease {
    JobLease { activity: job, lease }
}

async fn results(x: &Exchange<'_>, request: Request) -> Result<JobResults> {
    let Answer::JobResults(results) = x.ask(request).await? else { return strange() };
    Ok(convert::job_results(results))
}

fn check_worker(worker: &str) -> Result<()> {
    if worker.is_empty() || worker.len() > WORKER_BYTES_MAX {
        let detail = format!("`worker` names the program in 1 to {WORKER_BYTES_MAX} bytes");
        return Err(Refused::bad_request("bad_worker", detail));
    }
    Ok(())
}
