//! A worker as a user would write one: it polls jobs in batches, does nothing, reports them done.
//!
//! Invariant: a report that is not accepted ends the worker with an error.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_api::Client;
use legwork_api::jobs::{ActivateRequest, CompleteJobsRequest, CompletedJob};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::load::{Apart, apart};

/// Concurrent polls: while one batch is being reported, the next is already on its way.
const POLLERS: usize = 4;
const JOBS_PER_BATCH: usize = 256;
const LEASE: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_secs(10);

/// A worker on its own thread.
pub struct Worker {
    stop: watch::Sender<bool>,
    outcome: Apart<Done>,
}

/// The results of a worker.
#[derive(Clone, Copy, Debug, Default)]
pub struct Done {
    pub jobs: usize,
    pub batches: usize,
}

impl Worker {
    pub fn start(url: &str, job: &'static str) -> Result<Self> {
        let (stop, stopping) = watch::channel(false);
        let url = url.to_owned();
        let outcome = apart("worker", move || work(url, job, stopping))?;
        Ok(Self { stop, outcome })
    }

    /// Called at the end: jobs in progress are given up.
    pub async fn stop(self) -> Result<Done> {
        // Fails only if the worker has ended already: then its error is in the outcome.
        let _ = self.stop.send(true);
        self.outcome.result().await
    }
}

async fn work(url: String, job: &'static str, stopping: watch::Receiver<bool>) -> Result<Done> {
    let mut pollers = JoinSet::new();
    for _ in 0..POLLERS {
        let client = Client::new(&url, None)?;
        let mut stopping = stopping.clone();
        pollers.spawn(async move {
            let mut done = Done::default();
            tokio::select! {
                failed = poll(&client, job, &mut done) => failed?,
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
            anyhow::Ok(done)
        });
    }
    let mut done = Done::default();
    while let Some(poller) = pollers.join_next().await {
        let its = poller.context("a poller broke down")??;
        done = Done { jobs: done.jobs + its.jobs, batches: done.batches + its.batches };
    }
    Ok(done)
}

/// Ends only by an error.
async fn poll(client: &Client, job: &str, done: &mut Done) -> Result<()> {
    let ask = ActivateRequest {
        worker: "bench".into(),
        types: vec![job.into()],
        max: JOBS_PER_BATCH,
        lease_ms: u64::try_from(LEASE.as_millis())?,
        wait_ms: u64::try_from(WAIT.as_millis())?,
    };
    loop {
        let jobs = client.activate(&ask).await?.jobs;
        if jobs.is_empty() {
            continue;
        }
        let report = CompleteJobsRequest {
            worker: ask.worker.clone(),
            jobs: jobs
                .into_iter()
                .map(|job| CompletedJob { job: job.job, lease: job.lease, data: job.data })
                .collect(),
        };
        let results = client.complete_jobs(&report).await?.results;
        ensure!(results.len() == report.jobs.len(), "a report has results for other jobs");
        for (job, result) in report.jobs.iter().zip(&results) {
            let problem = result.problem.as_ref();
            ensure!(result.ok, "{} was not accepted: {:?}", job.job, problem.map(|p| &p.detail));
        }
        done.jobs += results.len();
        done.batches += 1;
    }
}
