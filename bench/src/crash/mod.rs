//! `crash`: a real server under load is killed repeatedly; does it keep its acknowledgements?
//!
//! Customers, programs and clerks work through the public API while SIGKILL comes at random moments, and sometimes
//! SIGTERM, after which the server has to shut down cleanly. Acknowledgements are recorded outside; in the end,
//! after one more kill, lists and histories must match them exactly. Invariant: the moments of the kills follow
//! from the seed.

mod actors;
mod dice;
pub mod grow;
mod ledger;
mod load;
pub mod shared;
mod verify;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use legwork_api::Client;
use legwork_testbed::Cluster as Postgres;
use serde::Serialize;

use crate::place::Place;
use crate::server::Server;
use dice::Dice;
pub use ledger::Fault;
use ledger::{Ledger, Shared};
use load::Load;

const DEFINITION: &str = include_str!("../../processes/crash.yaml");
const LOAD_MIN: Duration = Duration::from_millis(100);
const LOAD_MAX: Duration = Duration::from_millis(500);
/// How often a server is killed again before it is ready, in per cent.
const EARLY_PERCENT: u64 = 10;
const EARLY_MAX: Duration = Duration::from_millis(50);
/// The number of kills between two clean stops.
const STOP_EVERY: u32 = 5;
/// The number of kills of the server between two kills of its database, if it has one.
const DATABASE_EVERY: u32 = 3;
const READY_TIME_MAX: Duration = Duration::from_secs(60);
const REPORT_EVERY: u32 = 20;

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub kills: u32,
    pub seed: u64,
}

#[derive(Debug, Serialize)]
pub struct Outcome {
    pub acknowledged: usize,
    pub lost: usize,
    pub duplicated: usize,
    pub kills: u32,
    /// The number of clean stops.
    pub stops: u32,
    pub cases: usize,
    /// Requests without an answer, resent until there was one.
    pub unanswered: usize,
    /// How long the cases of a failed server were unavailable until take-over, by fault.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub away: BTreeMap<Trouble, Away>,
    pub seconds: f64,
    pub seed: u64,
    #[serde(skip)]
    pub faults: Vec<Fault>,
}

/// The faults of servers that share a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// A process is killed, with all its servers.
    Kill,
    /// A process is paused for longer than its leases last.
    Pause,
    /// The database is restarted.
    Restart,
}

/// How long cases were unavailable.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Away {
    pub times: usize,
    pub p50_ms: f64,
    pub max_ms: f64,
}

impl Away {
    fn by_trouble(all: &[(Trouble, Duration)]) -> BTreeMap<Trouble, Self> {
        let mut by_trouble: BTreeMap<Trouble, Vec<f64>> = BTreeMap::new();
        for (trouble, away) in all {
            by_trouble.entry(*trouble).or_default().push(away.as_secs_f64() * 1000.0);
        }
        let away = |mut ms: Vec<f64>| {
            ms.sort_unstable_by(f64::total_cmp);
            let at = |place: usize| ms.get(place).copied().unwrap_or_default();
            Self { times: ms.len(), p50_ms: at(ms.len() / 2), max_ms: at(ms.len() - 1) }
        };
        by_trouble.into_iter().map(|(trouble, ms)| (trouble, away(ms))).collect()
    }
}

impl Outcome {
    pub fn is_good(&self) -> bool {
        self.faults.is_empty()
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            acknowledged,
            lost,
            duplicated,
            kills,
            stops,
            cases,
            unanswered,
            away,
            seconds,
            seed,
            ..
        } = self;
        write!(
            f,
            "acknowledged={acknowledged} lost={lost} duplicated={duplicated} kills={kills} \
             stops={stops} cases={cases} unanswered={unanswered} seconds={seconds:.1} seed={seed}"
        )?;
        for (trouble, Away { times, p50_ms, max_ms }) in away {
            let name = match trouble {
                Trouble::Kill => "kill",
                Trouble::Pause => "pause",
                Trouble::Restart => "restart",
            };
            write!(f, " away_{name}={times}x p50={p50_ms:.0}ms max={max_ms:.0}ms")?;
        }
        Ok(())
    }
}

pub async fn run(place: &Place, plan: Plan) -> Result<Outcome> {
    let server = Server::with(place, DEFINITION).await?;
    run_on(server, None, plan).await
}

/// The same on PostgreSQL, which is killed as well.
pub async fn run_on_postgres(place: &Place, plan: Plan) -> Result<Outcome> {
    // The data of a killed process is in the page cache: a disk would only take time.
    let postgres = Postgres::start()?;
    let database = postgres.database("crash")?;
    let server = Server::with_args(place, DEFINITION, &["--store", database.url()]).await?;
    run_on(server, Some(postgres), plan).await
}

async fn run_on(mut server: Server, mut postgres: Option<Postgres>, plan: Plan) -> Result<Outcome> {
    let begun = Instant::now();
    let mut load = Load::begin(&[server.url()], plan.seed)?;
    let ledger = load.ledger.clone();
    tokio::select! {
        killed = kill_often(&mut server, postgres.as_mut(), plan, &ledger, begun) => killed?,
        failed = load.failure() => return Err(failed),
    }
    let ledger = load.end().await?;
    // The final check must read from the disk, not from memory.
    server.kill()?;
    server.up(READY_TIME_MAX).await?;
    judged(&server.client()?, &ledger, plan, begun, Vec::new()).await
}

async fn kill_often(
    server: &mut Server,
    mut postgres: Option<&mut Postgres>,
    plan: Plan,
    ledger: &Shared,
    begun: Instant,
) -> Result<()> {
    let mut dice = Dice::new(plan.seed, 0);
    let mut early = false;
    for kill in 1..=plan.kills {
        if kill.is_multiple_of(STOP_EVERY) {
            if early {
                server.until_ready(READY_TIME_MAX).await?;
            }
            tokio::time::sleep(dice.between(LOAD_MIN, LOAD_MAX)).await;
            server.stop().await.with_context(|| format!("before kill {kill}"))?;
            server.up(READY_TIME_MAX).await?;
            early = false;
        }
        if let Some(postgres) = &mut postgres
            && kill.is_multiple_of(DATABASE_EVERY)
        {
            tokio::time::sleep(dice.between(LOAD_MIN, LOAD_MAX)).await;
            // In the middle of commits; the server must reconnect by itself.
            postgres.kill()?;
            postgres.run()?;
            server.until_ready(READY_TIME_MAX).await?;
        }
        let (from, to) = if early { (Duration::ZERO, EARLY_MAX) } else { (LOAD_MIN, LOAD_MAX) };
        tokio::time::sleep(dice.between(from, to)).await;
        server.kill().with_context(|| format!("at kill {kill} it was gone already"))?;
        server.spawn()?;
        early = dice.chance(EARLY_PERCENT);
        if !early {
            server.until_ready(READY_TIME_MAX).await?;
        }
        if kill.is_multiple_of(REPORT_EVERY) {
            let acknowledged = ledger.lock().acknowledged;
            let seconds = begun.elapsed().as_secs_f64();
            eprintln!("{kill} kills, {acknowledged} acknowledged, {seconds:.0} s");
        }
    }
    server.until_ready(READY_TIME_MAX).await?;
    Ok(())
}

/// Compares the acknowledgements with the server. `away`: the unavailabilities.
async fn judged(
    client: &Client,
    ledger: &Ledger,
    plan: Plan,
    begun: Instant,
    away: Vec<(Trouble, Duration)>,
) -> Result<Outcome> {
    let faults = verify::verify(client, ledger).await?;
    let (lost, duplicated) = ledger::counted(&faults);
    Ok(Outcome {
        acknowledged: ledger.acknowledged,
        lost,
        duplicated,
        kills: plan.kills,
        stops: if away.is_empty() { plan.kills / STOP_EVERY } else { 0 },
        cases: ledger.cases.len(),
        unanswered: ledger.unanswered,
        away: Away::by_trouble(&away),
        seconds: begun.elapsed().as_secs_f64(),
        seed: plan.seed,
        faults,
    })
}
