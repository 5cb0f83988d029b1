//! `executors`: how soon is work done that two servers assign to six executors, and does exactly one result of each
//! step count, with and without faults of the executors?
//!
//! The second setting of experiment 001 with real processes: two servers, six executors; case 3 of the paper, one
//! step of which takes five milliseconds. Invariant: the measurement fails if the ledgers of the executors and the
//! histories differ.

mod drawn;
pub mod limits;
pub mod service;
pub mod throughput;
mod trouble;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use legwork_api::executors::PolicyRequest;
use legwork_api::instances::{HistoryEntry, InstanceState, Performer, StartRequest};
use legwork_api::{Client, Data};
use legwork_model::id::{ActivityId, InstanceId};
use legwork_model::time::Timestamp;
use legwork_testbed::Service;
use legwork_testbed::ledger::{self, Audit, Did, Step};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::cluster::{Cluster, Domain};
use crate::place::Place;
use crate::report::{Row, rounded};
use crate::usage::load_average;
use drawn::{Drawn, Sizes};

/// The compared policies, in order. Recorded rows have `adaptive` under its former name, `ours`.
pub const POLICIES: [&str; 6] =
    ["random", "round-robin", "least-outstanding", "two-choices", "oxthas-3", "ours"];
/// The default policy.
const USUAL: &str = "ours";
/// Starts at each server, as in the paper's experiments with failures.
pub const CASES: usize = 200;

const DEFINITION: &str = include_str!("../../processes/paper.yaml");
const SERVERS: usize = 2;
const EXECUTORS: usize = 6;
/// The types of activities; their sizes are in elements `a` to `e`.
const TYPES: [&str; 5] = ["one", "two", "three", "four", "five"];
const ELEMENTS: [&str; TYPES.len()] = ["a", "b", "c", "d", "e"];

const READY_TIME_MAX: Duration = Duration::from_secs(30);
/// Nothing should take nearly as long.
const END_TIME_MAX: Duration = Duration::from_secs(600);
const WAIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const HISTORY_MAX: usize = 1_000;

/// The work of a run, and its faults.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub policy: &'static str,
    /// Per server.
    pub cases: usize,
    pub disturbed: bool,
    pub seed: u64,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    pub makespan: Duration,
    pub bound: Duration,
    /// Failed attempts in the histories.
    pub failures: usize,
    pub audit: Audit,
    load_average: Option<f64>,
}

impl Outcome {
    pub fn row(&self, plan: Plan) -> Row {
        let told = |did| Some(self.audit.count(did));
        Row {
            workload: if plan.disturbed { "executors-disturbed" } else { "executors" },
            policy: Some(plan.policy),
            executors: Some(EXECUTORS),
            servers: Some(SERVERS),
            cases: plan.cases * SERVERS,
            makespan_s: Some(rounded(self.makespan.as_secs_f64(), 2)),
            bound_s: Some(rounded(self.bound.as_secs_f64(), 2)),
            failures: Some(self.failures),
            acked: told(Did::Acked),
            nacked: told(Did::Nacked),
            lost: Some(self.audit.lost),
            doubled: Some(self.audit.doubled),
            load_average: self.load_average,
            ..Row::default()
        }
    }
}

pub async fn run(place: &Place, plan: Plan) -> Result<Outcome> {
    let load_average = load_average();
    let drawn = Drawn::new(plan.cases, plan.seed);
    let cluster = cluster(place, DEFINITION, SERVERS).await?;
    let folder = tempfile::Builder::new().prefix("executors-").tempdir_in(&place.data)?;
    let mut services = services(place, &folder, &cluster, &drawn, plan)?;
    until_known(&cluster, EXECUTORS).await?;
    set_policy(&cluster, plan.policy).await?;

    let begun = Instant::now();
    let troubles = async {
        match plan.disturbed {
            true => trouble::make(&mut services, drawn.bound()).await,
            false => Ok(()),
        }
    };
    let work = async {
        let cases = start_all(&cluster, &drawn).await?;
        let makespan = until_ended(&cluster.client()?, &cases, begun).await?;
        anyhow::Ok((cases, makespan))
    };
    let (worked, troubles) = tokio::join!(work, troubles);
    troubles?;
    let (cases, makespan) = worked?;
    let (failures, audit) = audited(&cluster, &cases, TYPES.len(), &services).await?;
    Ok(Outcome { makespan, bound: drawn.bound(), failures, audit, load_average })
}

/// A cluster of so many servers, each in a domain of its own.
async fn cluster(place: &Place, definition: &str, servers: usize) -> Result<Cluster> {
    let domain = |name| Domain { name, transfer: "proven", weights: &[1], database: None };
    let domains: Vec<Domain<'_>> = ["east", "west"].into_iter().take(servers).map(domain).collect();
    Cluster::start(place, definition, &domains, Duration::ZERO).await
}

/// The number of failed attempts in the histories, and the audit of the executors' ledgers.
async fn audited(
    cluster: &Cluster,
    cases: &[InstanceId],
    steps: usize,
    services: &[Service],
) -> Result<(usize, Audit)> {
    let told = Told::by(&cluster.client()?, cases, steps).await?;
    let ledgers = services.iter().map(|one| Ok((one.name().to_owned(), one.ledger()?)));
    let ledgers: BTreeMap<_, _> = ledgers.collect::<Result<_>>()?;
    Ok((told.failures, ledger::audit(&ledgers, &told.completed)))
}

/// Six executors of different speeds, registered at both servers.
fn services(
    place: &Place,
    folder: &TempDir,
    cluster: &Cluster,
    drawn: &Drawn,
    plan: Plan,
) -> Result<Vec<Service>> {
    let legwork = cluster.urls().join(",");
    let program = place.program();
    let service = |number: usize| {
        let mut args = vec!["--at-once=1".to_owned()];
        for (kind, name) in TYPES.iter().enumerate() {
            args.push(format!("--does={name}={}", drawn.pace_ms(number, kind)));
        }
        if plan.disturbed && number == trouble::FAILING {
            args.push(format!("--fails={}", trouble::FAILING_AT));
        }
        let name = format!("executor-{}", number + 1);
        Service::start(&program, folder.path(), (&name, &legwork), &args)
    };
    (0..EXECUTORS).map(service).collect()
}

/// Waits until all servers know so many executors.
async fn until_known(cluster: &Cluster, executors: usize) -> Result<()> {
    let since = Instant::now();
    for server in &cluster.servers {
        let client = server.client()?;
        while client.executors().await?.executors.len() < executors {
            ensure!(since.elapsed() < READY_TIME_MAX, "not all executors have registered");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    Ok(())
}

/// Sets one policy for all types, at all servers.
async fn set_policy(cluster: &Cluster, policy: &str) -> Result<()> {
    if policy == USUAL {
        return Ok(());
    }
    let (client, since) = (cluster.client()?, Instant::now());
    for kind in TYPES {
        let request = PolicyRequest { policy: policy.to_owned(), record: false };
        client.set_policy(kind, &request).await?;
    }
    for server in &cluster.servers {
        let client = server.client()?;
        while client.policies().await?.policies.len() < TYPES.len() {
            ensure!(since.elapsed() < READY_TIME_MAX, "the policy does not come to all servers");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    Ok(())
}

/// Starts the cases of each server at their intervals.
async fn start_all(cluster: &Cluster, drawn: &Drawn) -> Result<Vec<InstanceId>> {
    let mut starting = JoinSet::new();
    for (server, sizes) in cluster.servers.iter().zip(&drawn.sizes) {
        let (client, sizes) = (server.client()?, sizes.clone());
        starting.spawn(async move {
            let mut turn = tokio::time::interval(Drawn::interval());
            let mut cases = Vec::new();
            for sizes in &sizes {
                turn.tick().await;
                cases.push(client.start(&request(sizes), None).await?.instance);
            }
            anyhow::Ok(cases)
        });
    }
    let mut cases = Vec::new();
    while let Some(started) = starting.join_next().await {
        cases.extend(started.context("a client broke down")??);
    }
    Ok(cases)
}

fn request(sizes: &Sizes) -> StartRequest {
    let values = ELEMENTS.iter().zip(sizes);
    let data: Data = values.map(|(name, size)| ((*name).to_owned(), (*size).into())).collect();
    StartRequest { process: "paper".into(), data, ..StartRequest::default() }
}

/// Returns the time from the first start to the last end.
async fn until_ended(client: &Client, cases: &[InstanceId], begun: Instant) -> Result<Duration> {
    let (mut first, mut last) = (Timestamp(i64::MAX), Timestamp(0));
    for case in cases {
        loop {
            let seen = client.instance(*case, WAIT).await?.summary;
            if seen.state == InstanceState::Completed {
                let ended_at = seen.ended_at.with_context(|| format!("{case} ended, and when?"))?;
                (first, last) = (first.min(seen.started_at), last.max(ended_at));
                break;
            }
            ensure!(seen.incidents == 0, "{case} has an incident");
            ensure!(begun.elapsed() < END_TIME_MAX, "{case} has no end: {:?}", seen.state);
        }
    }
    Ok(last.since(first))
}

/// The contents of histories.
#[derive(Debug, Default)]
struct Told {
    failures: usize,
    completed: Vec<Step>,
}

impl Told {
    async fn by(client: &Client, cases: &[InstanceId], steps: usize) -> Result<Self> {
        let mut told = Self::default();
        for case in cases {
            let history = client.history(*case, None, Some(HISTORY_MAX)).await?;
            let before = told.completed.len();
            history.entries.iter().try_for_each(|entry| told.add(*case, entry))?;
            let completed = told.completed.len() - before;
            ensure!(completed == steps, "{case} has ended with {completed} steps completed");
        }
        Ok(told)
    }

    fn add(&mut self, case: InstanceId, entry: &HistoryEntry) -> Result<()> {
        match &*entry.kind {
            "failed" => self.failures += 1,
            "completed" => {
                let step = entry.step.clone().context("completed, and no step")?;
                let iteration = Default::default();
                let key = ActivityId { instance: case, step, iteration }.to_string();
                let Performer::Executor(by) = &entry.by else {
                    anyhow::bail!("{key} was completed by {:?}", entry.by)
                };
                self.completed.push(Step { key, by: by.to_string() });
            }
            _ => {}
        }
        Ok(())
    }
}
