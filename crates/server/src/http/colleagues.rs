//! The jobs of all servers of a domain, given out by whichever of them is asked.
//!
//! Invariant: a worker gets jobs once, and never more than it asked for. What comes from another
//! server when the worker has been answered already goes back there at once.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use legwork_api::endpoints;
use legwork_api::jobs::{ActivateRequest, Job, JobList, LeasedJob, ReturnJobsRequest};
use legwork_model::id::ServerId;
use legwork_site::Seat;
use tokio::sync::mpsc;

use super::exchange::Exchange;
use super::gather::posted;
use super::jobs::activate_here;
use super::reply::{Refused, Result};
use crate::peer::{Answered, Late, Links, Passed};

/// How long another server may take to say that it has nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it is waited for when there are jobs of others already.
const LINGER: Duration = Duration::from_millis(100);

/// Jobs of any server of the domain: those that are there now, else the first that come up.
pub(super) async fn activate(x: &Exchange<'_>, request: ActivateRequest) -> Result<JobList> {
    let Some((links, mut servers)) = others(x) else { return activate_here(x, request).await };
    servers.push(x.app.status.server());
    // Everybody comes first in turn: a server with much to do must not hide what others have.
    let turn = x.app.turn.fetch_add(1, Ordering::Relaxed) % servers.len();
    servers.rotate_left(turn);
    let at_once = ActivateRequest { wait_ms: 0, ..request.clone() };
    for shares in shares(&servers, request.max) {
        let asked = Asked::these(x, &links, &shares, &at_once)?;
        let jobs = asked.all(x, &links, &shares, &at_once).await?;
        if !jobs.is_empty() {
            return Ok(JobList { jobs });
        }
    }
    if request.wait_ms == 0 {
        return Ok(JobList { jobs: Vec::new() });
    }
    // Nobody knows who has something first, and then it may be much.
    let shares: Vec<_> = servers.iter().map(|server| (*server, request.max)).collect();
    let asked = Asked::these(x, &links, &shares, &request)?;
    asked.first(activate_here(x, request.clone()), request.max).await
}

/// How many jobs each server is asked for, at the same time as the others of its group: all of them
/// together for as many as are wanted. There is a second group only if there are fewer.
fn shares(servers: &[ServerId], wanted: usize) -> Vec<Vec<(ServerId, usize)>> {
    let group = |servers: &[ServerId]| {
        let (each, more) = (wanted / servers.len(), wanted % servers.len());
        let share = |place: usize| each + usize::from(place < more);
        servers.iter().enumerate().map(|(place, server)| (*server, share(place))).collect()
    };
    servers.chunks(wanted.max(1)).map(group).collect()
}

/// The other servers of this server's domain that can be reached; `None` if there are none, or if
/// one of them asks.
fn others(x: &Exchange<'_>) -> Option<(Arc<Links>, Vec<ServerId>)> {
    let links = x.app.links.as_ref().filter(|_| x.passed_on_by().is_none())?;
    let Seat { here, topology } = links.seat()?;
    let domain = topology.server(here)?.domain;
    let is_colleague =
        |server: &ServerId| topology.server(*server).is_some_and(|server| server.domain == domain);
    let reachable = links.reachable().into_iter().filter(|(_, is_up)| *is_up);
    let others: Vec<ServerId> = reachable
        .filter_map(|(name, _)| topology.server_named(&name))
        .filter(is_colleague)
        .collect();
    (!others.is_empty()).then(|| (links.clone(), others))
}

/// Other servers that have been asked for jobs, and what has come from them. What is not taken out
/// of it goes back, also when the worker hangs up; who is not heard any more takes its jobs back
/// itself.
struct Asked {
    come: mpsc::Receiver<Jobs>,
    /// What is for the worker, with more to come.
    in_hand: Vec<Jobs>,
}

impl Asked {
    /// Each of these servers but this one, for so many jobs.
    fn these(
        x: &Exchange<'_>,
        links: &Arc<Links>,
        shares: &[(ServerId, usize)],
        request: &ActivateRequest,
    ) -> Result<Self> {
        let (sender, come) = mpsc::channel(1);
        let here = x.app.status.server();
        for (server, share) in shares.iter().filter(|(server, _)| *server != here) {
            let (links, server, sender) = (links.clone(), *server, sender.clone());
            let question = activation(x, &ActivateRequest { max: *share, ..request.clone() })?;
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
        Ok(Self { come, in_hand: Vec::new() })
    }

    /// What they and this server have now.
    async fn all(
        mut self,
        x: &Exchange<'_>,
        links: &Arc<Links>,
        shares: &[(ServerId, usize)],
        request: &ActivateRequest,
    ) -> Result<Vec<Job>> {
        let server = x.app.status.server();
        if let Some((_, share)) = shares.iter().find(|(id, _)| *id == server) {
            let request = ActivateRequest { max: *share, ..request.clone() };
            let headers = activation(x, &request)?;
            let give_back = Returning { worker: request.worker.clone(), headers };
            let jobs = activate_here(x, request).await?.jobs;
            self.in_hand.push(Jobs { jobs, give_back, links: links.clone(), server });
        }
        loop {
            let has_some = self.in_hand.iter().any(|come| !come.jobs.is_empty());
            let patience = if has_some { LINGER } else { PATIENCE };
            match tokio::time::timeout(patience, self.come.recv()).await {
                Ok(Some(come)) => self.in_hand.push(come),
                // All have answered, or somebody does not.
                Ok(None) | Err(_) => break,
            }
        }
        let in_hand = std::mem::take(&mut self.in_hand);
        Ok(in_hand.into_iter().flat_map(|come| come.jobs).collect())
    }

    /// The first jobs that come up anywhere, `own` among them, with what has come by then.
    async fn first(
        mut self,
        own: impl Future<Output = Result<JobList>>,
        wanted: usize,
    ) -> Result<JobList> {
        tokio::pin!(own);
        let mut jobs = tokio::select! {
            biased;
            own = &mut own => own?.jobs,
            // Once all others have said that there is nothing, or nothing at all, own is waited for.
            Some(come) = self.come.recv() => come.jobs,
        };
        while let Some(come) = self.next_within(wanted.saturating_sub(jobs.len())) {
            jobs.extend(come.jobs);
        }
        Ok(JobList { jobs })
    }

    /// What has come from one more server, if it is no more than that; else it goes back.
    fn next_within(&mut self, room: usize) -> Option<Jobs> {
        let come = self.come.try_recv().ok()?;
        if come.jobs.len() <= room {
            return Some(come);
        }
        tokio::spawn(come.give_back());
        None
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // Who comes from here on takes the jobs back itself.
        self.come.close();
        self.in_hand.extend(std::iter::from_fn(|| self.come.try_recv().ok()));
        for jobs in self.in_hand.drain(..).filter(|come| !come.jobs.is_empty()) {
            tokio::spawn(jobs.give_back());
        }
    }
}

/// Jobs that a server has given.
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
        let passed = Passed {
            target: endpoints::RETURN_JOBS.path.to_owned(),
            body: body.into(),
            ..self.headers
        };
        // Should it not get there, the leases run out.
        drop(links.pass_on(server, passed).await);
    }
}

fn activation(x: &Exchange<'_>, request: &ActivateRequest) -> Result<Passed> {
    let body = serde_json::to_vec(request).map_err(|error| Refused::fault(&error))?;
    Ok(posted(x, endpoints::ACTIVATE_JOBS.path, body))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(servers: u16, wanted: usize, expected: &[&[usize]]) {
        let servers: Vec<ServerId> = (0..servers).map(ServerId).collect();
        let shares = shares(&servers, wanted);
        let sizes: Vec<Vec<usize>> =
            shares.iter().map(|group| group.iter().map(|(_, share)| *share).collect()).collect();
        assert_eq!(sizes, expected, "{wanted} jobs of {} servers", servers.len());
        let asked: Vec<ServerId> = shares.iter().flatten().map(|(server, _)| *server).collect();
        assert_eq!(asked, servers, "each once, in turn");
    }

    #[test]
    fn together_they_are_never_asked_for_more_than_is_wanted() {
        check(2, 256, &[&[128, 128]]);
        check(3, 10, &[&[4, 3, 3]]);
        check(3, 1, &[&[1], &[1], &[1]]);
        check(3, 2, &[&[1, 1], &[2]]);
        check(1, 5, &[&[5]]);
        // Refused by each of them.
        check(2, 0, &[&[0], &[0]]);
    }
}
