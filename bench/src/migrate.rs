//! `migrate`: how many migrations a second between two servers, and how long does one take?
//!
//! A case has ten automatic steps that do nothing, each at another server than the one before. A
//! migration is measured from the moment a worker reports a step at one server to the moment a worker
//! gets the next step at the other: two commits, and the wire between them. Invariant: before the
//! measurement, one case is checked: it has migrated nine times.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use legwork_api::Client;
use legwork_api::instances::{InstanceState, StartRequest, Started};
use legwork_api::jobs::{ActivateRequest, CompleteJobsRequest, CompletedJob, Job};
use legwork_model::id::InstanceId;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::{Cluster, Domain};
use crate::load::{Apart, Call, Measured, Scale, apart, closed_loop};
use crate::place::Place;
use crate::report::{Row, rounded};
use crate::usage::{Both, Usage, load_average};

const DEFINITION: &str = include_str!("../processes/relay.yaml");
const PROCESS: &str = "relay";
const JOB: &str = "no-op";
pub const MIGRATIONS_PER_CASE: usize = 9;
/// No case should take nearly as long.
const CASE_TIME_MAX: Duration = Duration::from_secs(60);
const POLLERS: usize = 2;
const JOBS_PER_BATCH: usize = 256;
const LEASE: Duration = Duration::from_secs(60);
const WAIT: Duration = Duration::from_secs(10);

/// The connection between two servers.
#[derive(Clone, Copy, Debug)]
pub struct Wired {
    pub workload: &'static str,
    pub transfer: &'static str,
    pub delay: Duration,
}

pub async fn measure(place: &Place, wired: Wired, scale: Scale) -> Result<Row> {
    let load_average = load_average();
    let domain = |name| Domain { name, transfer: wired.transfer, weights: &[1], database: None };
    let domains = [domain("left"), domain("right")];
    let pair = Cluster::start(place, DEFINITION, &domains, wired.delay).await?;
    let hops = Arc::new(Hops::default());
    let (stop, stopping) = watch::channel(false);
    let mut workers: Vec<Apart<()>> = Vec::new();
    for server in &pair.servers {
        let (url, hops, stopping) = (server.url(), hops.clone(), stopping.clone());
        workers.push(apart("worker", move || work(url, hops, stopping))?);
    }
    check_moves(&pair, &hops).await?;

    let (url, call) = (pair.servers[0].url(), case()?);
    let before = Both { server: pair.usage(), load: Usage::of(std::process::id()) };
    let begin = Instant::now() + scale.warm_up;
    hops.measure(begin, begin + scale.window);
    let load = apart("load", move || async move { closed_loop(&url, call, scale).await })?;
    let cases = load.result().await;
    let after = Both { server: pair.usage(), load: Usage::of(std::process::id()) };
    // If a worker failed, that is why the load did.
    stop.send_replace(true);
    for worker in workers {
        worker.result().await?;
    }
    let cases = cases?;
    let measured = Measured::new(scale.window.as_secs_f64(), hops.take(), 0)?;
    let row = Row {
        workload: wired.workload,
        clients: Some(scale.clients),
        cases: cases.calls(),
        seconds: Some(rounded(cases.seconds, 3)),
        cases_per_s: Some(rounded(cases.per_second(), 1)),
        migrations_per_s: Some(rounded(measured.per_second(), 1)),
        p50_ms: Some(rounded(measured.percentile_ms(50), 3)),
        p99_ms: Some(rounded(measured.percentile_ms(99), 3)),
        load_average,
        ..Row::default()
    };
    Ok(row.used(before, after, cases.completed * MIGRATIONS_PER_CASE))
}

/// When each case was last reported, and the durations of migrations.
#[derive(Default)]
struct Hops(Mutex<HopsState>);

#[derive(Default)]
struct HopsState {
    reported: HashMap<InstanceId, Instant>,
    window: Option<(Instant, Instant)>,
    latencies: Vec<Duration>,
    count: usize,
}

impl Hops {
    fn with<T>(&self, act: impl FnOnce(&mut HopsState) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn measure(&self, begin: Instant, end: Instant) {
        self.with(|state| state.window = Some((begin, end)));
    }

    fn got(&self, jobs: &[Job]) {
        let now = Instant::now();
        self.with(|state| {
            for job in jobs {
                let Some(reported) = state.reported.remove(&job.job.instance) else { continue };
                state.count += 1;
                if state.window.is_some_and(|(begin, end)| begin <= now && now < end) {
                    state.latencies.push(now - reported);
                }
            }
        });
    }

    fn reporting(&self, jobs: &[CompletedJob]) {
        let now = Instant::now();
        self.with(|state| {
            state.reported.extend(jobs.iter().map(|job| (job.job.instance, now)));
        });
    }

    fn take(&self) -> Vec<Duration> {
        self.with(|state| std::mem::take(&mut state.latencies))
    }

    fn count(&self) -> usize {
        self.with(|state| state.count)
    }
}

async fn work(url: String, hops: Arc<Hops>, stopping: watch::Receiver<bool>) -> Result<()> {
    let mut pollers = JoinSet::new();
    for _ in 0..POLLERS {
        let (client, hops) = (Client::new(&url, None)?, hops.clone());
        let mut stopping = stopping.clone();
        pollers.spawn(async move {
            tokio::select! {
                failed = poll(&client, &hops) => failed,
                _ = stopping.wait_for(|stopping| *stopping) => Ok(()),
            }
        });
    }
    while let Some(poller) = pollers.join_next().await {
        poller.context("a poller broke down")??;
    }
    Ok(())
}

/// Returns only on an error.
async fn poll(client: &Client, hops: &Hops) -> Result<()> {
    let ask = ActivateRequest {
        worker: "bench".into(),
        types: vec![JOB.into()],
        max: JOBS_PER_BATCH,
        lease_ms: u64::try_from(LEASE.as_millis())?,
        wait_ms: u64::try_from(WAIT.as_millis())?,
    };
    loop {
        let jobs = client.activate(&ask).await?.jobs;
        if jobs.is_empty() {
            continue;
        }
        hops.got(&jobs);
        let done = |job: Job| CompletedJob { job: job.job, lease: job.lease, data: job.data };
        let jobs: Vec<CompletedJob> = jobs.into_iter().map(done).collect();
        hops.reporting(&jobs);
        let report = CompleteJobsRequest { worker: ask.worker.clone(), jobs };
        let results = client.complete_jobs(&report).await?.results;
        ensure!(results.iter().all(|result| result.ok), "a report was not accepted: {results:?}");
    }
}

fn start() -> Result<StartRequest> {
    Ok(StartRequest {
        process: PROCESS.into(),
        wait_ms: Some(u64::try_from(CASE_TIME_MAX.as_millis())?),
        ..StartRequest::default()
    })
}

/// Starts a case and waits for its end.
fn case() -> Result<Call> {
    let body = Bytes::from(serde_json::to_vec(&start()?)?);
    Ok(Call { path: "/v1/instances", body, wait: CASE_TIME_MAX, check: ended })
}

fn ended(answer: &[u8]) -> Result<()> {
    let Started { instance, state, .. } = serde_json::from_slice(answer)?;
    ensure!(state == InstanceState::Completed, "{instance} is {state:?} after {CASE_TIME_MAX:?}");
    Ok(())
}

async fn check_moves(pair: &Cluster, hops: &Hops) -> Result<()> {
    let started = pair.servers[0].client()?.start(&start()?, None).await?;
    ensure!(started.state == InstanceState::Completed, "the first case did not end");
    let moves = hops.count();
    ensure!(moves == MIGRATIONS_PER_CASE, "the first case moved {moves} times");
    Ok(())
}
