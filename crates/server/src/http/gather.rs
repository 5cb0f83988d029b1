//! What all servers know of an instance, asked one after the other as they name each other.
//!
//! Invariant: whoever cannot be reached is named, not waited for.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::AUTHORIZATION;
use legwork_api::instances::{Instance, InstanceState};
use legwork_model::id::ServerId;
use serde::de::DeserializeOwned;

use super::exchange::Exchange;
use crate::everywhere::{add, unasked};
use crate::peer::{Header, Links, Passed};

/// How long another server may take to say what it knows.
const PATIENCE: Duration = Duration::from_secs(2);
/// More servers than control one instance in practice.
const SERVERS_MAX: usize = 64;

/// Adds what the other servers know.
pub(super) async fn gather(x: &Exchange<'_>, mut all: Instance) -> Instance {
    let Some(links) = &x.app.links else { return all };
    let mut asked: Vec<Arc<str>> = vec![links.name.clone()];
    // What has ended is known as a whole where it was started.
    while is_open(&all) && asked.len() < SERVERS_MAX {
        let Some(server) = unasked(&all, &asked).pop() else { break };
        asked.push(server.clone());
        match part(x, links, &server, &all).await {
            Ok(Some(part)) => add(&mut all, part),
            // What is on its way there has not arrived.
            Ok(None) => {}
            Err(Silent) => all.unreachable.push(server),
        }
    }
    all.elsewhere.retain(|elsewhere| elsewhere.server != links.name);
    all
}

fn is_open(instance: &Instance) -> bool {
    match instance.summary.state {
        InstanceState::Running | InstanceState::Suspended => true,
        InstanceState::Completed | InstanceState::Aborted => false,
    }
}

/// A server that does not answer.
#[derive(Debug, PartialEq, Eq)]
struct Silent;

/// What one other server knows.
async fn part(
    x: &Exchange<'_>,
    links: &Links,
    name: &str,
    all: &Instance,
) -> Result<Option<Instance>, Silent> {
    let server: ServerId = links.topology().server_named(name).ok_or(Silent)?;
    let credential = x.head.headers.get(AUTHORIZATION);
    let headers = credential
        .map(|value| Header(AUTHORIZATION.as_str().to_owned(), value.as_bytes().to_vec().into()));
    let passed = Passed {
        method: "GET".to_owned(),
        target: format!("/v1/instances/{}?here=true", all.summary.instance),
        headers: headers.into_iter().collect(),
        body: Vec::new().into(),
    };
    let answer = tokio::time::timeout(PATIENCE, links.pass_on(server, passed)).await;
    let answer = answer.map_err(|_| Silent)?.map_err(|_| Silent)?;
    understood(answer.status, &answer.body)
}

/// Who cannot say now what it knows does not know nothing.
fn understood<T: DeserializeOwned>(status: u16, body: &[u8]) -> Result<Option<T>, Silent> {
    match status {
        200 => serde_json::from_slice(body).map(Some).map_err(|_| Silent),
        404 => Ok(None),
        _ => Err(Silent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_say_what_it_knows_is_not_taken_for_one_that_knows_nothing() {
        assert_eq!(understood::<u32>(200, b"7"), Ok(Some(7)));
        assert_eq!(understood::<u32>(404, b"{}"), Ok(None));
        for status in [401, 429, 503] {
            assert_eq!(understood::<u32>(status, b"{}"), Err(Silent));
        }
    }
}
