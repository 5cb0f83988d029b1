//! HTTP: from a request to an operation and back.
//!
//! Invariant: every request gets exactly one answer, counted by route and status; nothing that a
//! caller sends makes the server panic.

mod body;
mod cluster;
mod colleagues;
mod deadlines;
mod definitions;
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

pub(crate) mod documents;

use std::fmt::Display;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

use bytes::Bytes;
use hyper::body::Body;
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode};
use legwork_site::Credential;
use tracing::{Instrument, Span};

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
use crate::schedules::FromSchedule;
use crate::status::{Phase, Status};
use exchange::Exchange;
use files::Uploads;
use rate::Rates;
use reply::{Content, Refused, Reply, Result};
use route::{Astray, Operation, Route, Verb};

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
pub(crate) async fn serve<B>(app: &Arc<App>, peer: IpAddr, request: Request<B>) -> Response<Content>
where
    B: Body<Data = Bytes>,
    B::Error: Display,
{
    let begun = Instant::now();
    let (head, body) = request.into_parts();
    let passed_on = head.extensions.get::<peer::From>().cloned();
    let (route, result) = match route::find(&head.method, head.uri.path()) {
        Ok((route, parameter)) => {
            let span = trace::span(route, parameter);
            let answer = answer(app, peer, route, parameter, &head, body, &span);
            let result = answer.instrument(span.clone()).await;
            trace::answered(&span, &result, begun.elapsed());
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

async fn answer<B>(
    app: &Arc<App>,
    peer: IpAddr,
    route: &'static Route,
    parameter: Option<&str>,
    head: &Parts,
    body: B,
    span: &Span,
) -> Result
where
    B: Body<Data = Bytes>,
    B::Error: Display,
{
    guard::check_headers(&head.headers, app.limits.header_bytes_max)?;
    if !app.status.has_tokens() {
        guard::check_local(peer, head)?;
    }
    let of_letter = guard::mail_token(&head.headers);
    let credential = match (&of_letter, guard::schedule(head)) {
        (Some(_), _) => guard::check_from_inbox(app, head).map(|()| Credential::None),
        (None, Some(schedule)) if route.operation == Operation::Start => Ok(schedule),
        (None, _) => guard::credential(&head.headers),
    };
    let was_passed_on = head.extensions.get::<peer::From>().is_some();
    if was_passed_on {
        relay::catch_up_with(app, &head.headers).await;
    } else if head.extensions.get::<FromSchedule>().is_none() {
        app.rates.check(known_token(app, &credential), peer, || app.clock.now())?;
    }
    let credential = credential?;
    if app.status.phase() == Phase::Away && !is_of_the_process(route.operation) {
        let body = body::read(body, relay::BODY_BYTES_MAX).await?;
        return relay::pass_on_home(app, head, body).await;
    }
    let credential = match of_letter {
        // Here alone: it takes an organisation that is not behind that of whoever passed it on.
        Some(token) => guard::reply(app, (route.operation, parameter), token).await?,
        None => credential,
    };
    let (place, nothing) = (None, Bytes::new());
    let mut exchange = Exchange { app, head, parameter, credential, body: nothing, place, span };
    if route.operation == Operation::Upload {
        // Before 64 MiB are taken in.
        exchange.require_files().await?;
        match app.uploads.enter() {
            Ok(place) => exchange.place = Some(place),
            Err(refused) => {
                body::drain(pin!(body)).await;
                return Err(refused);
            }
        }
    }
    if matches!(route.verb, Verb::Post | Verb::Put) {
        exchange.body = body::read(body, bytes_max(app, route.operation)).await?;
    }
    let body = exchange.body.clone();
    let shows_token = matches!(exchange.credential, Credential::Token(_));
    match carry_out(route.operation, exchange).await {
        Err(refused)
            if shows_token && app.links.is_some() && refused.code() == "unauthenticated" =>
        {
            let detail = "the token is not known here; give one that `legwork token create` \
                          printed, or try again if it is new: this server may hear of it yet";
            Err(Refused::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail))
        }
        Err(refused) => match refused.at.filter(|_| app.links.is_some()) {
            Some(to) => relay::pass_on(app, to, head, body, None).await,
            None => Err(refused),
        },
        Ok(reply) if was_passed_on && writes_catalog(route.operation) => {
            Ok(relay::with_catalog(app, reply))
        }
        Ok(reply) => Ok(reply),
    }
}

/// The token of a caller who has one that counts.
fn known_token(app: &App, credential: &Result<Credential>) -> Option<[u8; 32]> {
    match credential {
        Ok(Credential::Token(hash)) => Some(*hash).filter(|hash| app.status.knows(hash)),
        Ok(
            Credential::None
            | Credential::Anybody
            | Credential::Executor(_)
            | Credential::Reply(_)
            | Credential::Mailer
            | Credential::Schedule(_),
        )
        | Err(_) => None,
    }
}

/// Whether it is about the process that is asked, and not about what its server has.
fn is_of_the_process(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Health
            | Operation::Metrics
            | Operation::OpenApi
            | Operation::DefinitionSchema
            | Operation::OrganisationSchema
            | Operation::TopologySchema
    )
}

fn writes_catalog(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Deploy
            | Operation::PublishOrganisation
            | Operation::PublishTopology
            | Operation::UndoChange
            | Operation::CreateToken
            | Operation::RegisterExecutor
            | Operation::RemoveExecutor
            | Operation::SetPolicy
            | Operation::PutSchedule
            | Operation::RemoveSchedule
            | Operation::PauseSchedule
            | Operation::ResumeSchedule
            | Operation::RevokeToken
    )
}

async fn carry_out(operation: Operation, x: Exchange<'_>) -> Result {
    match operation {
        Operation::Complete => work::complete(x).await,
        Operation::Claim => work::claim(x).await,
        Operation::Release => work::release(x).await,
        Operation::Delegate => work::delegate(x).await,
        Operation::Item => work::item(x).await,
        Operation::ItemFile => files::of_item(x).await,
        Operation::Worklist => work::worklist(x).await,
        Operation::WorklistEvents => events::worklist_events(x).await,
        Operation::ActivateJobs => jobs::activate(x).await,
        Operation::CompleteJobs => jobs::complete(x).await,
        Operation::FailJobs => jobs::fail(x).await,
        Operation::ExtendJobs => jobs::extend(x).await,
        Operation::ReturnJobs => jobs::give_back(x).await,
        Operation::Start => starts::start(x).await,
        Operation::Instances => instances::list(x).await,
        Operation::Instance => instances::show(x).await,
        Operation::History => instances::history(x).await,
        Operation::Suspend => instances::suspend(x).await,
        Operation::Resume => instances::resume(x).await,
        Operation::Abort => instances::abort(x).await,
        Operation::AskDeadline => deadlines::ask(x).await,
        Operation::Plan => deadlines::plan(x).await,
        Operation::Incidents => instances::incidents(x).await,
        Operation::Resolve => instances::resolve(x).await,
        Operation::Deploy => definitions::deploy(x).await,
        Operation::Definitions => definitions::list(x).await,
        Operation::Definition => definitions::show(x).await,
        Operation::DefinitionVersions => definitions::definition_versions(x).await,
        Operation::PublishOrganisation => definitions::publish_organisation(x).await,
        Operation::Organisation => definitions::organisation(x).await,
        Operation::OrganisationVersions => definitions::organisation_versions(x).await,
        Operation::PublishTopology => topology::publish(x).await,
        Operation::Topology => topology::show(x).await,
        Operation::TopologyVersions => topology::epochs(x).await,
        Operation::Check => definitions::check(x).await,
        Operation::Upload => files::upload(x).await,
        Operation::Download => files::download(x).await,
        Operation::RegisterExecutor => executors::register(x).await,
        Operation::RemoveExecutor => executors::remove(x).await,
        Operation::Executors => executors::list(x).await,
        Operation::SetPolicy => executors::set_policy(x).await,
        Operation::Policies => executors::policies(x).await,
        Operation::ReportTask => executors::report(x).await,
        Operation::PutSchedule => schedules::put(x).await,
        Operation::RemoveSchedule => schedules::remove(x).await,
        Operation::PauseSchedule => schedules::pause(x).await,
        Operation::ResumeSchedule => schedules::resume(x).await,
        Operation::Schedule => schedules::show(x).await,
        Operation::Schedules => schedules::list(x).await,
        Operation::CreateToken => tokens::create(x).await,
        Operation::Tokens => tokens::list(x).await,
        Operation::RevokeToken => tokens::revoke(x).await,
        Operation::WhoAmI => tokens::whoami(x).await,
        Operation::Links => links::list(x).await,
        Operation::Cluster => cluster::show(x).await,
        Operation::Changes => cluster::changes(x).await,
        Operation::UndoChange => cluster::undo(x).await,
        Operation::PrepareMove => cluster::prepare(x).await,
        Operation::Backup => system::backup(x).await,
        Operation::OpenApi => system::openapi(&x),
        Operation::DefinitionSchema => system::definition_schema(&x),
        Operation::OrganisationSchema => system::organisation_schema(&x),
        Operation::TopologySchema => system::topology_schema(&x),
        Operation::Metrics => system::metrics(x).await,
        Operation::Health => system::health(&x),
        Operation::Ready => system::ready(&x),
    }
}

fn bytes_max(app: &App, operation: Operation) -> usize {
    if operation == Operation::Upload {
        app.limits.file_bytes_max
    } else if matches!(
        operation,
        Operation::Deploy | Operation::PublishOrganisation | Operation::PublishTopology
    ) {
        app.limits.source_bytes_max
    } else {
        app.limits.body_bytes_max
    }
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
