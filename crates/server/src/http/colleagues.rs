//! The jobs of all servers of a domain, given out by whichever of them is asked.
//!
//! Invariant: a worker gets jobs once. What comes from another server when the worker has been
//! answered already goes back there at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use legwork_api::jobs::{ActivateRequest, Job, JobList, LeasedJob, ReturnJobsRequest};
use legwork_model::id::ServerId;
use tokio::sync::mpsc;

use super::exchange::Exchange;
use super::gather::posted;
use super::jobs::activate_here;
use super::reply::{Refused, Result};
use crate::peer::{Answered, Late, Links, Passed};

const ACTIVATE: &str = "/v1/jobs/activate";
const RETURN: &str = "/v1/jobs/return";

/// Jobs of any server of the domain: those that are there now, else the first that come up.
pub(super) async fn activate(x: &Exchange<'_>, request: ActivateRequest) -> Result<JobList> {
    let Some((links, others)) = others(x) else { return activate_here(x, request).await };
    let at_once = ActivateRequest { wait_ms: 0, ..request.clone() };
    // Everybody is asked first in turn: a server with much to do must not hide what others have.
    let turn = x.app.turn.fetch_add(1, Ordering::Relaxed) % (others.len() + 1);
    let (before, after) = others.split_at(turn);
    for server in before {
        let jobs = ask(&links, *server, activation(x, &at_once)?, None).await.unwrap_or_default();
        if !jobs.is_empty() {
            return Ok(JobList { jobs });
        }
    }
    let own = activate_here(x, at_once.clone()).await?;
    if !own.jobs.is_empty() {
        return Ok(own);
    }
    for server in after {
        let jobs = ask(&links, *server, activation(x, &at_once)?, None).await.unwrap_or_default();
        if !jobs.is_empty() {
            return Ok(JobList { jobs });
        }
    }
    match request.wait_ms {
        0 => Ok(own),
        _ => first(x, &links, &others, request).await,
    }
}

/// The other servers of this server's domain that can be reached; `None` if there are none, or if
/// one of them asks.
fn others(x: &Exchange<'_>) -> Option<(Arc<Links>, Vec<ServerId>)> {
    let links = x.app.links.as_ref().filter(|_| x.passed_on_by().is_none())?;
    let (topology, here) = (links.topology(), links.here()?);
    let domain = topology.server(here)?.domain;
    let is_colleague =
        |server: &ServerId| topology.server(*server).is_some_and(|server| server.domain == domain);
    let reachable = links.reachable().into_iter().filter(|(_, is_up)| *is_up);
    let others: Vec<ServerId> = reachable.map(|(id, _)| id).filter(is_colleague).collect();
    (!others.is_empty()).then(|| (links.clone(), others))
}

/// The first jobs that come up anywhere.
async fn first(
    x: &Exchange<'_>,
    links: &Arc<Links>,
    others: &[ServerId],
    request: ActivateRequest,
) -> Result<JobList> {
    let (sender, come) = mpsc::channel(1);
    let mut come = Come(come);
    for server in others {
        let (links, server, sender) = (links.clone(), *server, sender.clone());
        let question = activation(x, &request)?;
        let give_back = Returning { worker: request.worker.clone(), headers: question.clone() };
        tokio::spawn(async move {
            let late = give_back.clone().when_late(links.clone(), server);
            let jobs = tokio::select! {
                biased;
                jobs = ask(&links, server, question, Some(late)) => jobs.unwrap_or_default(),
                () = sender.closed() => return,
            };
            if !jobs.is_empty()
                && let Err(mpsc::error::SendError(come)) =
                    sender.send(Jobs { jobs, give_back, links, server }).await
            {
                come.give_back().await;
            }
        });
    }
    drop(sender);
    let own = activate_here(x, request);
    tokio::pin!(own);
    tokio::select! {
        biased;
        own = &mut own => own,
        Some(come) = come.0.recv() => Ok(JobList { jobs: come.jobs }),
        // All others have said that there is nothing, or nothing at all.
        else => own.await,
    }
}

/// Jobs of another server.
struct Jobs {
    jobs: Vec<Job>,
    give_back: Returning,
    links: Arc<Links>,
    server: ServerId,
}

impl Jobs {
    async fn give_back(self) {
        self.give_back.carry_out(&self.links, self.server, self.jobs).await;
    }
}

/// What has come from others. What is not taken out of it goes back.
struct Come(mpsc::Receiver<Jobs>);

impl Drop for Come {
    fn drop(&mut self) {
        // Who comes from here on takes the jobs back itself.
        self.0.close();
        while let Ok(jobs) = self.0.try_recv() {
            tokio::spawn(jobs.give_back());
        }
    }
}

/// What it takes to give jobs back that came too late.
#[derive(Clone)]
struct Returning {
    worker: Arc<str>,
    /// Asked in the name of the caller, like the question.
    headers: Passed,
}

impl Returning {
    /// For an answer that was on its way when the worker was answered.
    fn when_late(self, links: Arc<Links>, server: ServerId) -> Late {
        Box::new(move |answered| {
            let jobs = jobs_in(&answered).unwrap_or_default();
            if !jobs.is_empty() {
                tokio::spawn(async move { self.carry_out(&links, server, jobs).await });
            }
        })
    }

    async fn carry_out(self, links: &Links, server: ServerId, jobs: Vec<Job>) {
        let jobs = jobs.into_iter().map(|Job { job, lease, .. }| LeasedJob { job, lease });
        let back = ReturnJobsRequest { worker: self.worker, jobs: jobs.collect() };
        let Ok(body) = serde_json::to_vec(&back) else { return };
        let passed = Passed { target: RETURN.to_owned(), body: body.into(), ..self.headers };
        // Should it not get there, the leases run out.
        drop(links.pass_on(server, passed).await);
    }
}

fn activation(x: &Exchange<'_>, request: &ActivateRequest) -> Result<Passed> {
    let body = serde_json::to_vec(request).map_err(|error| Refused::fault(&error))?;
    Ok(posted(x, ACTIVATE, body))
}

/// The jobs of another server; `None` if it does not say.
async fn ask(
    links: &Links,
    server: ServerId,
    passed: Passed,
    late: Option<Late>,
) -> Option<Vec<Job>> {
    jobs_in(&links.pass_on_or(server, passed, late).await.ok()?)
}

fn jobs_in(answered: &Answered) -> Option<Vec<Job>> {
    let list: JobList =
        (answered.status == 200).then(|| serde_json::from_slice(&answered.body).ok())??;
    Some(list.jobs)
}
