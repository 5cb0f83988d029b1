//! `executors`, under limits: does a limit, or a second server that assigns work to the same executors, cost
//! throughput?
//!
//! Four executors, each of which does one task at a time and is ten times as fast at one of four types as at the
//! others. All cases start at once; the limit is the number of tasks that an executor takes from each server.
//! Invariant: the bound is for the same work divided arbitrarily, computed in the same run.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use legwork_api::Client;
use legwork_api::instances::{InstanceState, StartRequest};
use legwork_model::id::InstanceId;
use legwork_testbed::ledger::Audit;
use legwork_testbed::{Service, bound};
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::{audited, until_ended, until_known};
use crate::cluster::Cluster;
use crate::place::Place;
use crate::report::{Row, rounded};
use crate::usage::load_average;

/// The measured limits of executors per server, and numbers of servers.
pub const LIMITS: [u32; 3] = [1, 16, 1_000];
pub const SERVERS: [usize; 2] = [1, 2];
/// Starts at each server.
pub const CASES: usize = 400;

const DEFINITION: &str = include_str!("../../processes/specialists.yaml");
const TYPES: [&str; 4] = ["one", "two", "three", "four"];
const EXECUTORS: usize = TYPES.len();
/// The service time at the executor that is good at the type, and at the others, in milliseconds.
const OWN_MS: f64 = 100.0;
const OTHERS_MS: f64 = 1_000.0;
/// Concurrent starts at a server.
const STARTS: usize = 32;

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub limit: u32,
    pub servers: usize,
    /// Per server.
    pub cases: usize,
}

#[derive(Debug)]
pub struct Outcome {
    pub makespan: Duration,
    pub bound: Duration,
    pub audit: Audit,
    failures: usize,
    load_average: Option<f64>,
}

impl Outcome {
    /// The duration as a multiple of the bound.
    pub fn ratio(&self) -> f64 {
        self.makespan.as_secs_f64() / self.bound.as_secs_f64()
    }

    pub fn row(&self, plan: Plan) -> Row {
        Row {
            workload: "executors-limits",
            policy: Some("ours"),
            executors: Some(EXECUTORS),
            servers: Some(plan.servers),
            limit: Some(plan.limit),
            cases: plan.cases * plan.servers,
            makespan_s: Some(rounded(self.makespan.as_secs_f64(), 2)),
            bound_s: Some(rounded(self.bound.as_secs_f64(), 2)),
            failures: Some(self.failures),
            lost: Some(self.audit.lost),
            doubled: Some(self.audit.doubled),
            load_average: self.load_average,
            ..Row::default()
        }
    }
}

pub async fn run(place: &Place, plan: Plan) -> Result<Outcome> {
    let load_average = load_average();
    let cluster = super::cluster(place, DEFINITION, plan.servers).await?;
    let folder = tempfile::Builder::new().prefix("executors-").tempdir_in(&place.data)?;
    let services = services(place, &folder, &cluster, plan)?;
    until_known(&cluster, EXECUTORS).await?;
    let begun = Instant::now();
    let cases = start_all(&cluster, plan.cases).await?;
    let makespan = until_ended(&cluster.client()?, &cases, begun).await?;
    let (failures, audit) = audited(&cluster, &cases, TYPES.len(), &services).await?;
    let bound = least(plan.cases * plan.servers);
    Ok(Outcome { makespan, bound, audit, failures, load_average })
}

/// The bound on any assignment of so many cases.
fn least(cases: usize) -> Duration {
    let mut speeds = [[1.0 / OTHERS_MS; EXECUTORS]; TYPES.len()];
    for (kind, row) in speeds.iter_mut().enumerate() {
        row[kind] = 1.0 / OWN_MS;
    }
    let ms = bound::least(&speeds, &[cases as f64; TYPES.len()]);
    Duration::from_secs_f64(ms / 1_000.0)
}

fn services(
    place: &Place,
    folder: &TempDir,
    cluster: &Cluster,
    plan: Plan,
) -> Result<Vec<Service>> {
    let legwork = cluster.urls().join(",");
    let service = |number: usize| {
        let mut args = vec!["--at-once=1".to_owned(), format!("--limit={}", plan.limit)];
        for (kind, name) in TYPES.iter().enumerate() {
            let ms = if kind == number { OWN_MS } else { OTHERS_MS };
            args.push(format!("--does={name}={ms}"));
        }
        let name = format!("executor-{}", number + 1);
        Service::start(&place.program(), folder.path(), (&name, &legwork), &args)
    };
    (0..EXECUTORS).map(service).collect()
}

/// Starts all cases of each server at once.
async fn start_all(cluster: &Cluster, cases: usize) -> Result<Vec<InstanceId>> {
    let mut starting = JoinSet::new();
    for server in &cluster.servers {
        for number in 0..STARTS {
            let client = server.client()?;
            let own = (number..cases).step_by(STARTS).count();
            starting.spawn(async move { start(&client, own).await });
        }
    }
    let mut started = Vec::new();
    while let Some(own) = starting.join_next().await {
        started.extend(own.context("a client broke down")??);
    }
    Ok(started)
}

async fn start(client: &Client, cases: usize) -> Result<Vec<InstanceId>> {
    let mut started = Vec::with_capacity(cases);
    for _ in 0..cases {
        let request = StartRequest { process: "specialists".into(), ..StartRequest::default() };
        let summary = client.start(&request, None).await?;
        ensure!(summary.state != InstanceState::Aborted, "{} is aborted", summary.instance);
        started.push(summary.instance);
    }
    Ok(started)
}
