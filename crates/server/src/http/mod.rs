//! HTTP: from a request to an operation and back.
//!
//! Invariant: every request gets exactly one answer, counted by route and status; nothing that a
//! caller sends makes the server panic.

mod body;
mod cluster;
mod colleagues;
mod deadlines;
mod definitions;
pub(crate) mod documents;
pub(crate) mod endpoints;
mod events;
mod exchange;
mod executors;
mod files;
mod gather;
mod guard;
mod histories;
mod instances;
mod jobs;
mod links;
mod query;
mod rate;
mod relay;
pub(crate) mod reply;
mod reports;
pub(crate) mod route;
mod schedules;
mod starts;
mod system;
mod tokens;
mod topology;
mod trace;
mod work;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use bytes::Bytes;
use hyper::{Request, Response, StatusCode};
use legwork_site::Credential;
use tracing::Instrument;

use crate::backend::Slot;
use crate::clock::Clock;
use crate::config::Limits;
use crate::drive::Surroundings;
use crate::executors::Executors;
use crate::files::{Fetcher, Offered};
use crate::gate::Gate;
use crate::ids::Ids;
use crate::mail::Post;
use crate::meters::Meters;
use crate::moving::Source;
use crate::peer::{self, Links};
use crate::status::Status;
use body::Incoming;
use exchange::Exchange;
use files::Uploads;
use query::Query;
use rate::Rates;
use reply::{Content, Refused, Reply, Result};
use route::Astray;

/// What all requests share.
pub(crate) struct App {
    pub(crate) gate: Gate,
    pub(crate) clock: Arc<Clock>,
    pub(crate) ids: Ids,
    pub(crate) limits: Limits,
    pub(crate) meters: Arc<Meters>,
    pub(crate) rates: Rates,
    pub(crate) uploads: Uploads,
    pub(crate) slot: Arc<Slot>,
    pub(crate) status: Arc<Status>,
    /// To other servers; `None` if this one is alone.
    pub(crate) links: Option<Arc<Links>>,
    /// The contents of files that others get from here, and who brings theirs.
    pub(crate) offered: Offered,
    pub(crate) fetcher: Option<Arc<Fetcher<Links>>>,
    pub(crate) executors: Arc<Executors>,
    /// The store, for another process that is to hold this server.
    pub(crate) source: Source,
    /// Whose turn it is to be asked for jobs first.
    pub(crate) turn: AtomicUsize,
    /// What letters need, if any are sent.
    pub(crate) post: Option<Arc<Post>>,
}

impl App {
    pub(crate) fn new(
        gate: Gate,
        limits: Limits,
        meters: Arc<Meters>,
        around: Surroundings,
    ) -> Self {
        let Surroundings { clock, status, slot, links, fetcher, written, executors, .. } = around;
        let rates = Rates::new(limits.rate_per_s, limits.rate_burst);
        let uploads = Uploads::new(limits.uploads_max);
        let (ids, offered) = (Ids::default(), Offered::new(slot.clone()));
        let source = Source::new(slot.clone(), written);
        Self {
            gate,
            clock,
            ids,
            limits,
            meters,
            rates,
            uploads,
            slot,
            status,
            links,
            offered,
            fetcher,
            executors,
            source,
            turn: AtomicUsize::new(0),
            post: None,
        }
    }
}

/// Answers one request.
pub(crate) async fn serve(
    app: &Arc<App>,
    peer: IpAddr,
    request: Request<impl Incoming>,
) -> Response<Content> {
    let begun = Instant::now();
    let (head, sent) = request.into_parts();
    let passed_on = head.extensions.get::<peer::From>().cloned();
    let (route, result) = match route::find(&head.method, head.uri.path()) {
        Ok((route, parameter)) => {
            let span = trace::span(route, parameter);
            let (head, body, place) = (&head, Bytes::new(), None);
            let (credential, query, span) = (Credential::None, Query::default(), &span);
            let x = Exchange { app, head, route, parameter, credential, query, body, place, span };
            let result = answer(x, peer, sent).instrument(span.clone()).await;
            trace::answered(span, &result, begun.elapsed());
            (Some(route), result)
        }
        Err(astray) => (None, Err(astray.into())),
    };
    let reply = result.unwrap_or_else(Reply::from);
    // What was passed on within this process is counted where it came in.
    if !passed_on.is_some_and(|from| from.is_near) {
        app.meters.answered(route, reply.status.as_u16(), begun.elapsed());
    }
    reply.into_response()
}

/// The layers of a request, in their order. Each has one purpose; a refusal skips those that follow.
async fn answer(mut x: Exchange<'_>, peer: IpAddr, body: impl Incoming) -> Result {
    guard::check_headers(&x)?;
    guard::check_local(&x, peer)?;
    let presented = guard::presented(&x);
    relay::catch_up_with_sender(&x).await;
    guard::check_rate(&x, peer, &presented)?;
    let presented = presented?;
    if relay::is_away(&x) {
        return relay::pass_on_home(&x, body).await;
    }
    // A letter is verified against the organisation here, which is at least as new as the sender's by now.
    x.credential = guard::credential(&x, presented).await?;
    let body = files::take_place(&mut x, body).await?;
    x.body = body::take_in(&x, body).await?;
    x.query = Query::parse(x.head.uri.query(), x.route.parameters)?;
    let (app, head, route, body) = (x.app, x.head, x.route, x.body.clone());
    let has_token = matches!(x.credential, Credential::Token(_));
    let result = endpoints::carry_out(x).await;
    let result = guard::explain_unknown_token(app, has_token, result);
    let result = relay::tell_catalog(app, head, route, result);
    relay::pass_on_refused(app, head, body, result).await
}

impl From<Astray> for Refused {
    fn from(astray: Astray) -> Self {
        match astray {
            Astray::WrongMethod { allowed } => Self::wrong_method(&allowed),
            Astray::NoSuchPath { nearest } => {
                let next = match nearest {
                    Some(path) => format!("did you mean {path}?"),
                    None => "all paths are listed in /openapi.json".to_owned(),
                };
                let detail = format!("there is no such path; {next}");
                Self::new(StatusCode::NOT_FOUND, "no_such_path", detail)
            }
        }
    }
}
