//! The load: customers who start cases and wait for their end, a program that does jobs, clerks who
//! claim and complete.
//!
//! Invariant: an actor completes everything that it has begun, however often the server dies
//! meanwhile: an unanswered request is resent, with the same key, until there is an answer.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use legwork_api::client::{Error, WorklistQuery};
use legwork_api::instances::{InstanceState, StartRequest};
use legwork_api::jobs::{ActivateRequest, CompleteJobsRequest, CompletedJob};
use legwork_api::work::CompleteRequest;
use legwork_api::{Client, Data, Problem};
use legwork_model::id::{ActivityId, InstanceId};
use tokio::sync::watch;

use super::dice::Dice;
use super::ledger::Shared;

const WAIT: Duration = Duration::from_secs(1);
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// No request should take nearly as long.
const PATIENCE: Duration = Duration::from_secs(120);
const JOBS_PER_BATCH_MAX: usize = 16;
const LEASE: Duration = Duration::from_secs(60);
/// How often a completed request is repeated, in per cent.
const REPETITION_PERCENT: u64 = 10;

/// How often an actor reconnects as a new client, to any server, in per cent.
const RETURN_PERCENT: u64 = 10;

/// An actor of the load.
pub(super) struct Actor {
    client: Client,
    addresses: Vec<String>,
    ledger: Arc<Shared>,
    dice: Dice,
    name: String,
    /// True when nothing new may be begun.
    ending: watch::Receiver<bool>,
}

impl Actor {
    pub(super) fn new(
        addresses: Vec<String>,
        ledger: Arc<Shared>,
        dice: Dice,
        name: String,
        ending: watch::Receiver<bool>,
    ) -> Result<Self> {
        let client = Client::new(&addresses.join(","), None)?;
        Ok(Self { client, addresses, ledger, dice, name, ending })
    }

    /// A client stays with the server that it reached last; another client may reach any.
    fn come_back(&mut self) -> Result<()> {
        if self.addresses.len() > 1 && self.dice.chance(RETURN_PERCENT) {
            let first = self.dice.below(self.addresses.len());
            self.addresses.rotate_left(first);
            self.client = Client::new(&self.addresses.join(","), None)?;
        }
        Ok(())
    }

    /// Starts cases and waits for their ends, repeatedly.
    pub(super) async fn customer(mut self) -> Result<()> {
        let mut number = 0;
        while !*self.ending.borrow() {
            number += 1;
            self.come_back()?;
            let key = format!("{}-{number}", self.name);
            let data = Data::from([("order".to_owned(), key.clone().into())]);
            let request = StartRequest { process: "crash".into(), data, ..Default::default() };
            let instance = self.start(&request, &key).await?;
            if self.dice.chance(REPETITION_PERCENT) {
                self.start(&request, &key).await?;
            }
            self.until_ended(instance).await?;
        }
        Ok(())
    }

    async fn start(&self, request: &StartRequest, key: &str) -> Result<InstanceId> {
        let (started, asked) = self.command(|| self.client.start(request, Some(key))).await?;
        let started = started.with_context(|| format!("start {key} was refused"))?;
        self.ledger.lock().started(key, started.instance, started.repeated, asked);
        Ok(started.instance)
    }

    async fn until_ended(&self, instance: InstanceId) -> Result<()> {
        let since = Instant::now();
        loop {
            let (seen, _) = self.insist(|| self.client.instance(instance, WAIT)).await?;
            match seen {
                Ok(seen) if seen.summary.state == InstanceState::Completed => return Ok(()),
                Ok(_) => {}
                Err(problem) if problem.status == 404 => {
                    let text = format!("{instance} was started and is not there: {problem}");
                    self.ledger.lock().lost(text);
                    return Ok(());
                }
                Err(problem) => bail!("{instance} cannot be looked at: {problem}"),
            }
            ensure!(since.elapsed() < PATIENCE, "{instance} has not ended within {PATIENCE:?}");
        }
    }

    /// Fetches jobs and reports them as done, in batches.
    pub(super) async fn worker(mut self) -> Result<()> {
        let mut number = 0;
        while !*self.ending.borrow() {
            self.come_back()?;
            let ask = ActivateRequest {
                worker: self.name.as_str().into(),
                types: vec!["pack".into(), "send".into()],
                max: 1 + self.dice.below(JOBS_PER_BATCH_MAX),
                lease_ms: u64::try_from(LEASE.as_millis())?,
                wait_ms: u64::try_from(WAIT.as_millis())?,
            };
            let (jobs, _) = self.insist(|| self.client.activate(&ask)).await?;
            let jobs = jobs.context("a worker was refused its jobs")?.jobs;
            let mut report = CompleteJobsRequest { worker: ask.worker.clone(), jobs: Vec::new() };
            let mut texts = Vec::new();
            for job in jobs {
                number += 1;
                let text = format!("{}-{number}", self.name);
                self.ledger.lock().tried(&job.job, &text);
                let element = if &*job.kind == "pack" { "packed" } else { "sent" };
                let data = Data::from([(element.to_owned(), text.clone().into())]);
                report.jobs.push(CompletedJob { job: job.job, lease: job.lease, data });
                texts.push(text);
            }
            if !report.jobs.is_empty() {
                self.report(&report, &texts).await?;
            }
        }
        Ok(())
    }

    /// Reports jobs; those of an unreachable server are resent.
    async fn report(&self, report: &CompleteJobsRequest, texts: &[String]) -> Result<()> {
        let (mut report, mut texts, since) = (report.clone(), texts.to_vec(), Instant::now());
        while !report.jobs.is_empty() {
            ensure!(since.elapsed() < PATIENCE, "jobs cannot be reported for {PATIENCE:?}");
            let (results, _) = self.command(|| self.client.complete_jobs(&report)).await?;
            let results = results.context("a report of jobs was refused as a whole")?.results;
            ensure!(results.len() == report.jobs.len(), "a report has results for other jobs");
            let mut left = (Vec::new(), Vec::new());
            for ((job, text), result) in report.jobs.drain(..).zip(texts).zip(results) {
                match result.problem {
                    None => self.ledger.lock().done(&job.job, &text),
                    // Done by this very report, whose answer was lost, or by another worker after a
                    // restart. The history tells by which.
                    Some(problem) if ["job_not_open", "lease_lost"].contains(&&*problem.code) => {}
                    Some(problem) if problem.status == 503 => {
                        left.0.push(job);
                        left.1.push(text);
                    }
                    Some(problem) => bail!("{} was not accepted: {problem}", job.job),
                }
            }
            (report.jobs, texts) = left;
            if !report.jobs.is_empty() {
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
        Ok(())
    }

    /// Follows a worklist; claims and completes unclaimed items.
    pub(super) async fn clerk(mut self) -> Result<()> {
        let mut open = BTreeSet::new();
        let mut query = WorklistQuery { agent: Some(self.name.clone()), ..Default::default() };
        query.limit = Some(1_000);
        while !*self.ending.borrow() {
            self.come_back()?;
            query.wait = if open.is_empty() { WAIT } else { Duration::ZERO };
            let (list, _) = self.insist(|| self.client.worklist(&query)).await?;
            let list = list.context("a clerk was refused the worklist")?;
            query.since = Some(list.cursor);
            if list.reset {
                open.clear();
            }
            open.retain(|activity| !list.removed.contains(activity));
            for item in list.items {
                match item.claimed_by {
                    None => open.insert(item.activity),
                    Some(_) => open.remove(&item.activity),
                };
            }
            let Some(activity) = open.iter().nth(self.dice.below(open.len())).cloned() else {
                continue;
            };
            open.remove(&activity);
            if self.claim(&activity).await? {
                self.complete(&activity).await?;
            }
        }
        Ok(())
    }

    /// Whether this actor has claimed the item.
    async fn claim(&self, activity: &ActivityId) -> Result<bool> {
        let name = Some(self.name.as_str());
        let (claimed, _) = self.command(|| self.client.claim(activity, name)).await?;
        let ours = match claimed {
            Ok(()) => true,
            // By this actor, if the answer to the first attempt was lost.
            Err(problem) if problem.code == "held_by" => {
                let (item, _) = self.insist(|| self.client.item(activity, name)).await?;
                item.is_ok_and(|item| item.item.claimed_by.as_deref() == name)
            }
            Err(problem) if [404, 409].contains(&problem.status) => false,
            Err(problem) => bail!("{activity} cannot be claimed: {problem}"),
        };
        if ours {
            self.ledger.lock().claimed(activity, &self.name);
        }
        Ok(ours)
    }

    async fn complete(&mut self, activity: &ActivityId) -> Result<()> {
        let text = format!("{}-{activity}", self.name);
        let key = format!("done-{text}");
        let request = CompleteRequest {
            agent: Some(self.name.as_str().into()),
            data: Data::from([("approved".to_owned(), text.clone().into())]),
            answer: None,
        };
        self.ledger.lock().tried(activity, &text);
        let (done, _) =
            self.command(|| self.client.complete(activity, &request, Some(&key))).await?;
        if let Err(problem) = done {
            let text = format!("{activity} was claimed by {}, then refused: {problem}", self.name);
            self.ledger.lock().lost(text);
            return Ok(());
        }
        self.ledger.lock().done(activity, &text);
        if self.dice.chance(REPETITION_PERCENT) {
            self.complete_once_more(activity, &request, &key).await?;
        }
        Ok(())
    }

    /// The same request is answered like the first, another one is refused.
    async fn complete_once_more(
        &self,
        activity: &ActivityId,
        request: &CompleteRequest,
        key: &str,
    ) -> Result<()> {
        let (again, _) =
            self.command(|| self.client.complete(activity, request, Some(key))).await?;
        if let Err(problem) = again {
            self.ledger.lock().lost(format!("{activity} was done, its repetition: {problem}"));
        }
        let other = format!("{key}-other");
        let (second, _) =
            self.command(|| self.client.complete(activity, request, Some(&other))).await?;
        if second.is_ok() {
            self.ledger.lock().duplicated(format!("{activity} was completed by two requests"));
        }
        Ok(())
    }

    /// Asks until there is an answer; also returns the number of attempts.
    async fn insist<T, F>(&self, ask: impl Fn() -> F) -> Result<(Result<T, Box<Problem>>, u32)>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let since = Instant::now();
        let mut asked = 0;
        loop {
            asked += 1;
            let reason = match ask().await {
                Ok(answer) => return Ok((Ok(answer), asked)),
                Err(Error::Problem(problem)) if !problem.is_temporary() => {
                    return Ok((Err(problem), asked));
                }
                Err(
                    error @ (Error::Problem(_)
                    | Error::Unreachable { .. }
                    | Error::Broken { .. }
                    | Error::TimedOut { .. }),
                ) => error,
                Err(
                    error @ (Error::BadAddress { .. }
                    | Error::BadToken
                    | Error::BadArgument { .. }
                    | Error::Unexpected { .. }),
                ) => return Err(error.into()),
            };
            self.ledger.lock().unanswered += 1;
            ensure!(since.elapsed() < PATIENCE, "no answer within {PATIENCE:?}: {reason}");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// The same for requests that do not wait for an event: they should be answered at once.
    async fn command<T, F>(&self, ask: impl Fn() -> F) -> Result<(Result<T, Box<Problem>>, u32)>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let given = Instant::now();
        let answer = self.insist(ask).await;
        let mut ledger = self.ledger.lock();
        ledger.longest = ledger.longest.max(given.elapsed());
        answer
    }
}
