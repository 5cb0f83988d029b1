//! `crash`: a real server under load is killed over and over; does it keep its word?
//!
//! Customers, programs and clerks work through the public API while SIGKILL comes at random
//! moments, and now and then SIGTERM, upon which it has to end in good order. What was acknowledged is written down outside; in the end, after one more kill, lists and
//! histories must hold exactly that. Invariant: the moments of the kills follow from the seed.

mod actors;
mod dice;
mod ledger;
mod verify;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::place::Place;
use crate::server::Server;
use actors::Actor;
use dice::Dice;
pub use ledger::Fault;
use ledger::Shared;

const DEFINITION: &str = include_str!("../../processes/crash.yaml");
const LOAD_MIN: Duration = Duration::from_millis(100);
const LOAD_MAX: Duration = Duration::from_millis(500);
/// How often a server is killed again before it is ready.
const EARLY_PERCENT: u64 = 10;
const EARLY_MAX: Duration = Duration::from_millis(50);
/// Before each so many kills the server is stopped in good order.
const STOP_EVERY: u32 = 5;
const READY_TIME_MAX: Duration = Duration::from_secs(60);
const REPORT_EVERY: u32 = 20;

const CUSTOMERS: usize = 32;
const WORKERS: usize = 4;
const CLERKS: usize = 8;

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
    /// How often it was told to stop, beside the kills.
    pub stops: u32,
    pub cases: usize,
    /// Requests without an answer, sent again until there was one.
    pub unanswered: usize,
    pub seconds: f64,
    pub seed: u64,
    #[serde(skip)]
    pub faults: Vec<Fault>,
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
            seconds,
            seed,
            ..
        } = self;
        write!(
            f,
            "acknowledged={acknowledged} lost={lost} duplicated={duplicated} kills={kills} \
             stops={stops} cases={cases} unanswered={unanswered} seconds={seconds:.1} seed={seed}"
        )
    }
}

pub async fn run(place: &Place, plan: Plan) -> Result<Outcome> {
    let begun = Instant::now();
    let mut server = Server::with(place, DEFINITION).await?;
    let ledger = Arc::new(Shared::default());
    let (end_customers, customers_end) = watch::channel(false);
    let (end_others, others_end) = watch::channel(false);
    let actor = |name: String, number: usize, ending: &watch::Receiver<bool>| -> Result<Actor> {
        Ok(Actor {
            client: server.client()?,
            ledger: ledger.clone(),
            dice: Dice::new(plan.seed, 1 + number as u64),
            name,
            ending: ending.clone(),
        })
    };
    let (mut customers, mut others) = (JoinSet::new(), JoinSet::new());
    for number in 0..CUSTOMERS {
        let customer = actor(format!("start-{number}"), number, &customers_end)?;
        customers.spawn(customer.customer());
    }
    for number in 0..WORKERS {
        let worker = actor(format!("worker-{number}"), 1_000 + number, &others_end)?;
        others.spawn(worker.worker());
    }
    for number in 0..CLERKS {
        let clerk = actor(format!("clerk-{number}"), 2_000 + number, &others_end)?;
        others.spawn(clerk.clerk());
    }

    tokio::select! {
        killed = kill_often(&mut server, plan, &ledger, begun) => killed?,
        failed = failure(&mut customers) => return Err(failed),
        failed = failure(&mut others) => return Err(failed),
    }

    // Every customer waits for the end of their case: then nothing is open any more.
    end_customers.send_replace(true);
    all_ended(&mut customers).await?;
    end_others.send_replace(true);
    all_ended(&mut others).await?;
    // What is looked at comes from the disk, not from memory.
    server.kill()?;
    server.up(READY_TIME_MAX).await?;
    outcome(&server, plan, &ledger, begun).await
}

async fn kill_often(
    server: &mut Server,
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

async fn all_ended(actors: &mut JoinSet<Result<()>>) -> Result<()> {
    while let Some(actor) = actors.join_next().await {
        actor.context("an actor broke down")??;
    }
    Ok(())
}

/// Nobody ends by themselves: whoever does has failed.
async fn failure(actors: &mut JoinSet<Result<()>>) -> anyhow::Error {
    match actors.join_next().await {
        Some(Ok(Err(error))) => error,
        Some(Err(panic)) => panic.into(),
        Some(Ok(Ok(()))) | None => anyhow::anyhow!("an actor went home early"),
    }
}

async fn outcome(server: &Server, plan: Plan, ledger: &Shared, begun: Instant) -> Result<Outcome> {
    // Nobody writes any more.
    let ledger = std::mem::take(&mut *ledger.lock());
    let faults = verify::verify(&server.client()?, &ledger).await?;
    let lost = faults.iter().filter(|fault| fault.is_loss()).count();
    Ok(Outcome {
        acknowledged: ledger.acknowledged,
        lost,
        duplicated: faults.len() - lost,
        kills: plan.kills,
        stops: plan.kills / STOP_EVERY,
        cases: ledger.cases.len(),
        unanswered: ledger.unanswered,
        seconds: begun.elapsed().as_secs_f64(),
        seed: plan.seed,
        faults,
    })
}
