//! Reports about jobs, each brought to the server that gave the job out.
//!
//! Invariant: every job of a report is answered, in order, whoever answers. What was passed on by
//! another server is not passed on again.

use std::collections::BTreeMap;

use legwork_api::Problem;
use legwork_api::jobs::{JobResult, JobResults};
use legwork_model::id::ServerId;
use legwork_site::{JobLease, Seat};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::exchange::Exchange;
use super::gather::posted;
use super::relay::not_passed;
use super::reply::{self, Refused, Reply, strange};
use crate::peer::{Answered, Links, Passed};

/// A report about several jobs.
pub(super) trait Reported: Serialize + DeserializeOwned + Clone {
    type Job;

    fn jobs(&mut self) -> &mut Vec<Self::Job>;

    fn lease(job: &Self::Job) -> u64;

    /// At the server that gave all its jobs out.
    async fn carry_out(self, x: &Exchange<'_>) -> reply::Result<JobResults>;
}

/// Has each job of a report answered by the server that gave it out.
pub(super) async fn divide<R: Reported>(x: &Exchange<'_>, mut report: R) -> reply::Result {
    let was_passed_on = x.passed_on_by().is_some();
    let links = x.app.links.as_ref().filter(|_| !was_passed_on);
    let seat = links.and_then(|links| Some((links, links.seat()?)));
    let Some((links, Seat { here, topology })) = seat else {
        return Reply::json(&report.carry_out(x).await?);
    };
    // Numbers that no server has ever given are answered here.
    let giver = |job: &R::Job| {
        let server = JobLease::server(R::lease(job));
        if topology.server(server).is_some() { server } else { here }
    };
    let givers: Vec<ServerId> = report.jobs().iter().map(giver).collect();
    if givers.iter().all(|giver| *giver == here) {
        return Reply::json(&report.carry_out(x).await?);
    }
    let mut parts: BTreeMap<ServerId, R> = BTreeMap::new();
    let jobs = std::mem::take(report.jobs());
    for (giver, job) in givers.iter().zip(jobs) {
        parts.entry(*giver).or_insert_with(|| report.clone()).jobs().push(job);
    }
    let mut answers = BTreeMap::new();
    // All at the same time: each has to commit before it answers.
    let (own, mut asked) = (parts.remove(&here), JoinSet::new());
    for (giver, mut part) in parts {
        let (len, links) = (part.jobs().len(), links.clone());
        let body = serde_json::to_vec(&part).map_err(|error| Refused::fault(&error))?;
        let passed = posted(x, x.route.path, body);
        asked.spawn(async move { (giver, each(pass_on(&links, giver, passed).await, len)) });
    }
    if let Some(mut own) = own {
        let (len, again) = (own.jobs().len(), own.clone());
        let results = match own.carry_out(x).await {
            Ok(results) => Ok(results.results),
            // It moves to another process: whoever reports need not know.
            Err(Refused { at: Some(server), .. }) => {
                let body = serde_json::to_vec(&again).map_err(|error| Refused::fault(&error))?;
                pass_on(links, server, posted(x, x.route.path, body)).await
            }
            Err(refused) => Err(refused.into_problem()),
        };
        answers.insert(here, each(results, len).into_iter());
    }
    while let Some(answered) = asked.join_next().await {
        let (giver, results) = answered.map_err(|error| Refused::fault(&error))?;
        answers.insert(giver, results.into_iter());
    }
    let results = givers.iter().filter_map(|giver| answers.get_mut(giver)?.next());
    Reply::json(&JobResults { results: results.collect() })
}

async fn pass_on(links: &Links, to: ServerId, passed: Passed) -> Result<Vec<JobResult>, Problem> {
    let fault = |error: serde_json::Error| Refused::fault(&error).into_problem();
    match links.pass_on(to, passed).await {
        Ok(Answered { status: 200, body, .. }) => {
            serde_json::from_slice(&body).map(|JobResults { results }| results).map_err(fault)
        }
        Ok(Answered { body, .. }) => Err(serde_json::from_slice(&body).map_err(fault)?),
        Err(why) => Err(not_passed(&why).into_problem()),
    }
}

/// One answer for each of so many jobs: what is refused as a whole is refused for each.
fn each(results: Result<Vec<JobResult>, Problem>, len: usize) -> Vec<JobResult> {
    match results {
        Ok(results) if results.len() == len => results,
        Ok(_) => each(strange().map_err(Refused::into_problem), len),
        Err(problem) => (0..len).map(|_| Err(problem.clone()).into()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_as_a_whole_is_refused_for_each_job() {
        let results = each(Err(Problem::new(503, "server_unreachable", "away")), 2);
        assert_eq!(results.len(), 2);
        assert!(results.iter().all(|result| !result.ok && result.problem.is_some()));
        let short = each(Ok(vec![Ok(()).into()]), 2);
        assert_eq!((short.len(), short[0].ok), (2, false), "nobody knows which one it was for");
    }
}
