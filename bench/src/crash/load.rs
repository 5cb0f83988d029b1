//! All actors together: started at once, stopped together.
//!
//! Invariant: an actor that ends before it is told to has failed.

use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::actors::Actor;
use super::dice::Dice;
use super::ledger::{Ledger, Shared};

const CUSTOMERS: usize = 32;
const WORKERS: usize = 4;
const CLERKS: usize = 8;

pub(super) struct Load {
    pub(super) ledger: Arc<Shared>,
    customers: JoinSet<Result<()>>,
    others: JoinSet<Result<()>>,
    end_customers: watch::Sender<bool>,
    end_others: watch::Sender<bool>,
}

impl Load {
    /// Each actor has a client of its own, with all these addresses.
    pub(super) fn begin(addresses: &[String], seed: u64) -> Result<Self> {
        let ledger = Arc::new(Shared::default());
        let (end_customers, customers_end) = watch::channel(false);
        let (end_others, others_end) = watch::channel(false);
        let actor = |name: String, number: usize, ending: &watch::Receiver<bool>| {
            let dice = Dice::new(seed, 1 + number as u64);
            Actor::new(addresses.to_vec(), ledger.clone(), dice, name, ending.clone())
        };
        let (mut customers, mut others) = (JoinSet::new(), JoinSet::new());
        for number in 0..CUSTOMERS {
            customers.spawn(actor(format!("start-{number}"), number, &customers_end)?.customer());
        }
        for number in 0..WORKERS {
            let worker = actor(format!("worker-{number}"), 1_000 + number, &others_end)?;
            others.spawn(worker.worker());
        }
        for number in 0..CLERKS {
            let clerk = actor(format!("clerk-{number}"), 2_000 + number, &others_end)?;
            others.spawn(clerk.clerk());
        }
        Ok(Self { ledger, customers, others, end_customers, end_others })
    }

    /// Waits for the first failure of an actor.
    pub(super) async fn failure(&mut self) -> anyhow::Error {
        tokio::select! {
            failed = failure(&mut self.customers) => failed,
            failed = failure(&mut self.others) => failed,
        }
    }

    /// Every customer waits for the end of their case: then nothing is open any more. Returns the
    /// ledger.
    pub(super) async fn end(self) -> Result<Ledger> {
        let (ledger, failures) = self.end_with_failures().await?;
        failures.into_iter().next().map_or(Ok(ledger), Err)
    }

    /// The same; also returns the failures.
    pub(super) async fn end_with_failures(mut self) -> Result<(Ledger, Vec<anyhow::Error>)> {
        self.end_customers.send_replace(true);
        let mut failures = all_ended(&mut self.customers).await?;
        self.end_others.send_replace(true);
        failures.extend(all_ended(&mut self.others).await?);
        // All writers have ended.
        Ok((std::mem::take(&mut *self.ledger.lock()), failures))
    }
}

async fn all_ended(actors: &mut JoinSet<Result<()>>) -> Result<Vec<anyhow::Error>> {
    let mut failures = Vec::new();
    while let Some(actor) = actors.join_next().await {
        failures.extend(actor.context("an actor broke down")?.err());
    }
    Ok(failures)
}

async fn failure(actors: &mut JoinSet<Result<()>>) -> anyhow::Error {
    match actors.join_next().await {
        Some(Ok(Err(error))) => error,
        Some(Err(panic)) => panic.into(),
        Some(Ok(Ok(()))) | None => anyhow::anyhow!("an actor went home early"),
    }
}
