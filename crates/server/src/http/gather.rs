//! What all servers know: of an instance, those that name each other; of lists, all there are.
//!
//! Invariant: whoever cannot be reached is named, not waited for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName};
use legwork_api::endpoints;
use legwork_api::instances::Instance;
use legwork_model::id::ServerId;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::exchange::Exchange;
use crate::everywhere::{named, together};
use crate::peer::{Header, Links, Passed};

/// How long another server may take to say what it knows.
const PATIENCE: Duration = Duration::from_secs(2);
/// More servers than control one instance in practice.
const SERVERS_MAX: usize = 64;

/// Adds what the other servers know: those that are named by one that was asked, and the one that
/// started it. The same comes out whichever of them is asked.
pub(super) async fn gather(x: &Exchange<'_>, own: Instance) -> Instance {
    let Some(links) = &x.app.links else { return own };
    let instance = own.summary.instance;
    let starter = links.topology().server(instance.server()).map(|server| server.name.clone());
    let target = |_: &str| endpoints::INSTANCE.at(&instance).query("here", Some(true)).text();
    let mut known: BTreeSet<Arc<str>> = named(&own).chain(starter.clone()).collect();
    let mut asked = BTreeSet::from([links.name.clone()]);
    let (mut accounts, mut unreachable) = (Vec::new(), Vec::new());
    loop {
        let room = SERVERS_MAX.saturating_sub(asked.len());
        let unasked: Vec<Arc<str>> = known.difference(&asked).take(room).cloned().collect();
        if unasked.is_empty() {
            break;
        }
        asked.extend(unasked.iter().cloned());
        for (server, account) in ask_all(x, links, unasked, target).await {
            match account {
                Ok(Some(account)) => {
                    known.extend(named(&account));
                    accounts.push((server, account));
                }
                // What is on its way there has not arrived.
                Ok(None) => {}
                Err(Silent) => unreachable.push(server),
            }
        }
    }
    let all = together(starter.as_ref(), (links.name.clone(), own), accounts);
    unreachable.sort();
    Instance { unreachable, ..all }
}

/// The same question to several servers at once; the answers in the order of their names.
pub(super) async fn ask_all<T: DeserializeOwned + Send + 'static>(
    x: &Exchange<'_>,
    links: &Arc<Links>,
    servers: Vec<Arc<str>>,
    target: impl Fn(&str) -> String,
) -> Vec<(Arc<str>, Result<Option<T>, Silent>)> {
    let mut asking = JoinSet::new();
    for server in servers {
        let (links, question) = (links.clone(), question(x, target(&server)));
        asking.spawn(async move {
            let answer = match links.topology().server_named(&server) {
                Some(id) => ask(&links, id, question).await,
                None => Err(Silent),
            };
            (server, answer)
        });
    }
    let mut answered = asking.join_all().await;
    answered.sort_by(|(a, _), (b, _)| a.cmp(b));
    answered
}

/// A server that does not answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Silent;

/// The same page of a list from every server, this one's own first, and who could not be asked.
pub(super) async fn pages<T: DeserializeOwned + Send + 'static>(
    x: &Exchange<'_>,
    own: T,
) -> (Vec<(ServerId, T)>, Vec<Arc<str>>) {
    let Some(links) = &x.app.links else { return (vec![(ServerId(0), own)], Vec::new()) };
    let topology = links.topology();
    let query = x.head.uri.query().unwrap_or_default().split('&');
    let query = query.filter(|parameter| !parameter.is_empty() && !parameter.starts_with("here="));
    let query: Vec<&str> = query.chain(["here=true"]).collect();
    let target = format!("{}?{}", x.head.uri.path(), query.join("&"));
    let passed = match x.body.is_empty() {
        true => question(x, target),
        false => with_body(x, x.head.method.as_str(), &target, x.body.to_vec()),
    };
    let mut asked = JoinSet::new();
    for (server, _) in topology.numbered().filter(|(_, server)| server.name != links.name) {
        let (links, passed) = (links.clone(), passed.clone());
        asked.spawn(async move { (server, ask(&links, server, passed).await) });
    }
    let (mut pages, mut silent) = (vec![(links.here().unwrap_or_default(), own)], Vec::new());
    while let Some(answered) = asked.join_next().await {
        // A task that has broken is of a server that has not said anything.
        let Ok((server, answer)) = answered else { continue };
        match answer {
            Ok(page) => pages.extend(page.map(|page| (server, page))),
            Err(Silent) => silent.push(server),
        }
    }
    silent.sort_unstable();
    let name = |id: &ServerId| topology.server(*id).map(|server| server.name.clone());
    (pages, silent.iter().filter_map(name).collect())
}

/// Asked in the name of the caller.
pub(super) fn question(x: &Exchange<'_>, target: String) -> Passed {
    let headers = header(x, &AUTHORIZATION).into_iter().collect();
    Passed { method: "GET".to_owned(), target, headers, body: Vec::new().into() }
}

/// JSON for another server, in the name of the caller.
pub(super) fn posted(x: &Exchange<'_>, target: &str, body: Vec<u8>) -> Passed {
    with_body(x, "POST", target, body)
}

/// A body of the same type as that of the caller.
fn with_body(x: &Exchange<'_>, method: &str, target: &str, body: Vec<u8>) -> Passed {
    let headers = [AUTHORIZATION, CONTENT_TYPE].iter().filter_map(|name| header(x, name));
    Passed {
        method: method.to_owned(),
        target: target.to_owned(),
        headers: headers.collect(),
        body: body.into(),
    }
}

fn header(x: &Exchange<'_>, name: &HeaderName) -> Option<Header> {
    let value = x.head.headers.get(name)?;
    Some(Header(name.as_str().to_owned(), value.as_bytes().to_vec().into()))
}

pub(super) async fn ask<T: DeserializeOwned>(
    links: &Links,
    server: ServerId,
    passed: Passed,
) -> Result<Option<T>, Silent> {
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
