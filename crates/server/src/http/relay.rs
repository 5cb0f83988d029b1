//! A request that another server can carry out, passed on to it.
//!
//! Invariant: a request is passed on a few times at most, whatever the servers know of each other.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, TE,
    TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::http::uri::InvalidUri;
use hyper::{Method, StatusCode};
use legwork_model::id::ServerId;

use super::App;
use super::body::{self, Incoming};
use super::exchange::Exchange;
use super::reply::{Refused, Reply, Result};
use super::route::Route;
use super::starts::INSTANCE;
use crate::peer::{Answered, From, Header, NotPassed, Passed};
use crate::status::Phase;

/// How often a request may be passed on: where it belongs can change while it is on its way.
const HOPS_MAX: u32 = 4;
/// How long an answer is waited for when the server stops.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long what was published elsewhere may take to get here before its publisher is answered.
const CATALOG_PATIENCE: Duration = Duration::from_secs(2);
static HOPS: HeaderName = HeaderName::from_static("legwork-hops");
/// How many records the catalog of the server has that passes a request on, or answers one: the
/// other one waits for them.
static CATALOG: HeaderName = HeaderName::from_static("legwork-catalog");
/// What concerns the connection of the caller alone.
static OF_THE_CONNECTION: [HeaderName; 7] =
    [CONNECTION, CONTENT_LENGTH, HOST, ORIGIN, TE, TRANSFER_ENCODING, UPGRADE];

/// The longest body that is passed on: it must fit into a frame with the rest of the request.
pub(super) const BODY_BYTES_MAX: usize = 3 << 20;
/// The server cannot be reached: nothing was carried out.
pub(super) const UNREACHABLE: &str = "server_unreachable";

/// Has another server answer.
pub(super) async fn pass_on(
    app: &Arc<App>,
    to: ServerId,
    head: &Parts,
    body: Bytes,
    more: Option<Header>,
) -> Result {
    let Some(links) = &app.links else { return Err(not_passed(&NotPassed::Unknown(to))) };
    tracing::debug!(to = to.0, "passed on");
    relay(app, head, body, more, |passed| links.pass_on(to, passed)).await
}

/// Whether another process hosts the server now, and has to answer.
pub(super) fn is_away(x: &Exchange<'_>) -> bool {
    x.app.status.phase() == Phase::Away && !x.route.is_of_the_process
}

/// Has the process answer that holds the server of this one.
pub(super) async fn pass_on_home(x: &Exchange<'_>, body: impl Incoming) -> Result {
    let (app, head) = (x.app, x.head);
    let body = body::read(body, BODY_BYTES_MAX).await?;
    let Some(links) = &app.links else { return Err(not_passed(&NotPassed::Unknown(ServerId(0)))) };
    relay(app, head, body, None, |passed| links.pass_on_home(passed)).await
}

async fn relay<A: Future<Output = std::result::Result<Answered, NotPassed>>>(
    app: &Arc<App>,
    head: &Parts,
    body: Bytes,
    more: Option<Header>,
    pass_on: impl FnOnce(Passed) -> A,
) -> Result {
    let hops = hops(&head.headers);
    if hops >= HOPS_MAX {
        let detail = format!(
            "the request was passed on {hops} times and what it is about has moved on each time; \
             try again later"
        );
        return Err(Refused::unavailable("too_many_hops", detail));
    }
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    // What was published is known to whoever carries the request out.
    let catalog =
        Header(CATALOG.as_str().to_owned(), app.status.catalog().to_string().into_bytes().into());
    let passed = Passed {
        method: head.method.as_str().to_owned(),
        target: target.to_owned(),
        headers: headers(&head.headers, hops + 1).chain(more).chain([catalog]).collect(),
        body: body.to_vec().into(),
    };
    let answered = tokio::select! {
        answered = pass_on(passed) => answered,
        () = stopping(app) => {
            let detail = "the server is stopping before another one has answered; whether the \
                          request was carried out is not known: look, or repeat it elsewhere with \
                          the same idempotency key";
            return Err(Refused::unavailable("no_answer", detail.to_owned()));
        }
    };
    match answered {
        Ok(answered) => {
            let (reply, catalog) = reply(answered);
            if let Some(records) = catalog {
                // Whoever publishes something here finds it here with the next request.
                catch_up(app, records).await;
            }
            Ok(reply)
        }
        Err(why) => Err(not_passed(&why)),
    }
}

/// Has another server answer a question of this server's own, in the name of the caller.
pub(super) async fn ask_in_turn(x: &Exchange<'_>, to: ServerId, target: &str) -> Result {
    let mut head = x.head.clone();
    head.method = Method::GET;
    head.uri = target.parse().map_err(|error: InvalidUri| Refused::fault(&error))?;
    pass_on(x.app, to, &head, Bytes::new(), None).await
}

/// Waits until the catalog here is as long as that of the server that relayed the request.
pub(super) async fn catch_up_with_sender(x: &Exchange<'_>) {
    if x.head.extensions.get::<From>().is_none() {
        return;
    }
    let known = x.head.headers.get(&CATALOG).and_then(|value| value.to_str().ok());
    if let Some(records) = known.and_then(|text| text.parse().ok()) {
        catch_up(x.app, records).await;
    }
}

async fn catch_up(app: &App, records: u64) {
    if app.status.catalog() < records {
        let here = app.status.until_catalog(records);
        drop(tokio::time::timeout(CATALOG_PATIENCE, here).await);
    }
}

/// Whether it was carried out makes a difference to programs.
pub(super) fn not_passed(why: &NotPassed) -> Refused {
    let code = match why {
        NotPassed::Unanswered(_) => "no_answer",
        NotPassed::Unreachable(_) | NotPassed::Full(_) | NotPassed::Unknown(_) => {
            "server_unreachable"
        }
    };
    Refused::unavailable(code, why.to_string())
}

/// Until the server has begun to stop, and has given those who are about to answer a moment.
async fn stopping(app: &App) {
    app.gate.until_stopping().await;
    tokio::time::sleep(FAREWELL).await;
}

fn hops(headers: &HeaderMap) -> u32 {
    let text = headers.get(&HOPS).and_then(|value| value.to_str().ok());
    text.map_or(0, |text| text.parse().unwrap_or(HOPS_MAX))
}

/// What only servers say to each other is not taken from a caller, nor from whoever has passed it on
/// before: what this one says counts.
fn headers(headers: &HeaderMap, hops: u32) -> impl Iterator<Item = Header> {
    let of_servers = [&HOPS, &INSTANCE, &CATALOG];
    let is_own =
        move |name: &HeaderName| !OF_THE_CONNECTION.contains(name) && !of_servers.contains(&name);
    let own = headers.iter().filter(move |(name, _)| is_own(name));
    let header =
        |name: &HeaderName, value: &[u8]| Header(name.as_str().to_owned(), value.to_vec().into());
    let hops = header(&HOPS, hops.to_string().as_bytes());
    own.map(move |(name, value)| header(name, value.as_bytes())).chain([hops])
}

/// Relays a refused request to the server that can carry it out, if the refusal names one.
pub(super) async fn pass_on_refused(
    app: &Arc<App>,
    head: &Parts,
    body: Bytes,
    result: Result,
) -> Result {
    match result {
        Err(Refused { at: Some(to), .. }) if app.links.is_some() => {
            pass_on(app, to, head, body, None).await
        }
        result => result,
    }
}

/// Tells the server that relayed a catalog change how long the catalog is: it waits for the change.
pub(super) fn tell_catalog(app: &App, head: &Parts, route: &Route, result: Result) -> Result {
    let is_awaited = route.writes_catalog && head.extensions.get::<From>().is_some();
    result.map(|reply| match is_awaited {
        true => reply.with_header(CATALOG.clone(), HeaderValue::from(app.status.catalog())),
        false => reply,
    })
}

/// The answer, and how much of the catalog it rests on.
fn reply(answered: Answered) -> (Reply, Option<u64>) {
    let Answered { status, headers, body } = answered;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    let mut content_type = None;
    let (mut other, mut catalog) = (None, None);
    for Header(name, value) in headers {
        let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(&value))
        else {
            continue;
        };
        if name == CONTENT_TYPE {
            content_type = Some(value);
        } else if name == CATALOG {
            catalog = value.to_str().ok().and_then(|text| text.parse().ok());
        } else {
            other = Some((name, value));
        }
    }
    let body = Bytes::from(Vec::from(body));
    (Reply::passed_back(status, content_type, other, body), catalog)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_before_has_said_of_its_catalog_is_not_said_again() {
        let mut came = HeaderMap::new();
        for name in [&CATALOG, &INSTANCE, &HOPS, &HOST] {
            came.insert(name, HeaderValue::from_static("3"));
        }
        came.insert("idempotency-key", HeaderValue::from_static("k"));
        let passed: Vec<(String, Vec<u8>)> =
            headers(&came, 2).map(|Header(name, value)| (name, value.into())).collect();
        let said = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
        assert_eq!(passed, [said("idempotency-key", b"k"), said("legwork-hops", b"2")]);
    }
}
