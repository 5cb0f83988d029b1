//! Operations on instances.
//!
//! Invariant: a start with an idempotency key happens once, however often it is sent.

use hyper::StatusCode;
use legwork_api::instances::{
    History, IncidentList, Instance, InstanceList, Reason, ResolveAction, ResolveRequest,
    StartRequest, Started,
};
use legwork_model::id::{ActivityId, AgentId, InstanceId};
use legwork_placement::Topology;
use legwork_site::{Answer, InstanceInfo, Key, List, Request, Resolution, Start};

use super::exchange::Exchange;
use super::files::require_stored;
use super::gather;
use super::reply::{Refused, Reply, Result};
use crate::convert;
use crate::everywhere;
use crate::ids::{Front, NoRandomness, key_spread, key_stream, start_digest};

/// Starts an instance of a process.
#[utoipa::path(
    post, path = "/v1/instances", tag = "instances", operation_id = "start",
    params(("Idempotency-Key" = Option<String>, Header, description = "A repetition with the \
        same key and content answers the instance that the first one started; a start of the \
        same process with the key and another content is refused")),
    request_body = StartRequest,
    responses((status = 201, body = Started), (status = 200, body = Started,
        description = "The same request had started it before")),
)]
pub(super) async fn start(x: Exchange<'_>) -> Result {
    x.query(&[])?;
    let start = start_request(&x)?;
    require_stored(&x, &start.data).await?;
    let (instance, wait_until, has_key) = (start.instance, start.wait_until, start.key.is_some());
    tracing::debug!(%instance, process = %start.process, "start");
    let start = Request::Start(start);
    let answer = match wait_until {
        None => Some(x.ask(start).await?),
        Some(_) => x.ask_patiently(start).await?,
    };
    // Without an answer the server stops: it is started and will go on, but not while anybody
    // waits here.
    let (info, repeated) = match (answer, has_key) {
        (Some(answer), _) => started(answer)?,
        (None, false) => (view(&x, instance).await?.info, false),
        (None, true) => {
            // Only the key can tell which instance it is.
            let again = Start { instance, wait_until: None, ..start_request(&x)? };
            let (info, _) = started(x.ask(Request::Start(again)).await?)?;
            let repeated = info.instance != instance;
            (info, repeated)
        }
    };
    let status = if repeated { StatusCode::OK } else { StatusCode::CREATED };
    Reply::json_with(status, &convert::started(info, repeated))
}

fn start_request(x: &Exchange<'_>) -> Result<Start> {
    let request: StartRequest = x.json()?;
    let key = match x.key()? {
        None => None,
        Some(key) => Some(Box::new(Key {
            stream: key_stream(&request.process, key),
            request: start_digest(&request).map_err(|error| Refused::fault(&error))?,
        })),
    };
    let drawn = draw(x, &request.process, key.as_deref());
    let instance = drawn.map_err(|error| Refused::fault(&error))?;
    Ok(Start {
        instance,
        process: request.process,
        version: request.version,
        data: request.data,
        agent: request.agent.map(AgentId),
        key,
        wait_until: x.wait_until(request.wait_ms)?,
    })
}

/// An id for a start: as long as it has to be here, one that belongs here.
fn draw(
    x: &Exchange<'_>,
    process: &str,
    key: Option<&Key>,
) -> std::result::Result<InstanceId, NoRandomness> {
    let (now, here, ids) = (x.app.clock.now(), x.app.status.server(), &x.app.ids);
    let topology = x.app.links.as_ref().map(|links| links.topology());
    // Before the catalog is here the numbers of the file count for nothing.
    let is_own = |topology: &&Topology| {
        let own = x.app.links.as_ref().map(|links| &links.name);
        topology.server(here).map(|server| &server.name) == own
    };
    let front = Front { here, topology: topology.as_deref().filter(is_own) };
    let drawn = match key {
        Some(key) => ids.draw_with(now, front, key_spread(key.stream))?,
        None => ids.draw(now, front, process)?,
    };
    if drawn.server() == here { Ok(drawn) } else { ids.draw_here(now, front, process) }
}

fn started(answer: Answer) -> Result<(InstanceInfo, bool)> {
    let Answer::Started { instance, repeated } = answer else {
        return Err(Refused::strange_answer());
    };
    Ok((*instance, repeated))
}

async fn view(x: &Exchange<'_>, instance: InstanceId) -> Result<legwork_site::InstanceView> {
    let show = Request::Show { instance, wait_until: None };
    let Answer::Instance(view) = x.ask(show).await? else { return Err(Refused::strange_answer()) };
    Ok(*view)
}

/// Lists the instances of all servers, newest first.
#[utoipa::path(
    get, path = "/v1/instances", tag = "instances", operation_id = "instances",
    params(
        ("process" = Option<String>, Query),
        ("state" = Option<String>, Query, description = "`open` (the default) or `ended`"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("here" = Option<bool>, Query, description = "Only those the server asked has a part in"),
    ),
    responses((status = 200, body = InstanceList)),
)]
pub(super) async fn list(x: Exchange<'_>) -> Result {
    let query = x.query(&["process", "state", "limit", "cursor", "here"])?;
    let ended = match query.text("state") {
        None | Some("open") => false,
        Some("ended") => true,
        Some(_) => {
            let detail = "the parameter `state` is `open` or `ended`";
            return Err(Refused::bad_request("bad_parameter", detail));
        }
    };
    let (limit, here) = (query.limit()?, query.parsed("here")?.unwrap_or(false));
    let list = List {
        process: query.text("process").map(Into::into),
        ended,
        limit,
        before: query.parsed("cursor")?,
    };
    let Answer::Instances { instances, next } = x.ask(Request::List(list)).await? else {
        return Err(Refused::strange_answer());
    };
    let own = convert::instance_list(instances, next);
    if here {
        return Reply::json(&own);
    }
    let (pages, unreachable) = gather::pages(&x, own).await;
    Reply::json(&InstanceList { unreachable, ..everywhere::instances(pages, limit) })
}

/// An instance as a whole, put together from all servers that control a part of it. With `wait_ms`
/// the answer comes when it has ended.
#[utoipa::path(
    get, path = "/v1/instances/{instance}", tag = "instances", operation_id = "instance",
    params(
        ("instance" = String, Path),
        ("wait_ms" = Option<u64>, Query, maximum = 60000),
        ("here" = Option<bool>, Query, description = "Only what the server asked knows"),
    ),
    responses((status = 200, body = Instance)),
)]
pub(super) async fn show(x: Exchange<'_>) -> Result {
    let instance: InstanceId = x.id()?;
    let query = x.query(&["wait_ms", "here"])?;
    let wait_until = x.wait_until(query.parsed("wait_ms")?)?;
    let here = query.parsed("here")?.unwrap_or(false);
    let answered = match wait_until {
        Some(_) => x.ask_patiently(Request::Show { instance, wait_until }).await?,
        None => None,
    };
    let view = match answered {
        Some(Answer::Instance(view)) => *view,
        Some(_) => return Err(Refused::strange_answer()),
        None => view(&x, instance).await?,
    };
    let instance = convert::instance(view);
    if here { Reply::json(&instance) } else { Reply::json(&gather::gather(&x, instance).await) }
}

/// The execution history of an instance.
#[utoipa::path(
    get, path = "/v1/instances/{instance}/history", tag = "instances", operation_id = "history",
    params(
        ("instance" = String, Path),
        ("from" = Option<u64>, Query, description = "Number of the first record"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
    ),
    responses((status = 200, body = History)),
)]
pub(super) async fn history(x: Exchange<'_>) -> Result {
    let instance: InstanceId = x.id()?;
    let query = x.query(&["from", "limit"])?;
    let from = query.parsed("from")?.unwrap_or(0);
    let history = Request::History { instance, from, limit: query.limit()? };
    let Answer::History { entries, next } = x.ask(history).await? else {
        return Err(Refused::strange_answer());
    };
    Reply::json(&convert::history(entries, next))
}

/// Holds an instance: nothing new of it is offered.
#[utoipa::path(
    post, path = "/v1/instances/{instance}/suspend", tag = "instances", operation_id = "suspend",
    params(("instance" = String, Path)), request_body = Reason,
    responses((status = 204)),
)]
pub(super) async fn suspend(x: Exchange<'_>) -> Result {
    let (instance, Reason { reason }) = control(&x)?;
    x.order(Request::Suspend { instance, reason }).await?;
    Reply::done()
}

/// Lets a suspended instance go on.
#[utoipa::path(
    post, path = "/v1/instances/{instance}/resume", tag = "instances", operation_id = "resume",
    params(("instance" = String, Path)), request_body = Reason,
    responses((status = 204)),
)]
pub(super) async fn resume(x: Exchange<'_>) -> Result {
    let (instance, Reason { reason }) = control(&x)?;
    x.order(Request::Resume { instance, reason }).await?;
    Reply::done()
}

/// Ends an instance for good.
#[utoipa::path(
    post, path = "/v1/instances/{instance}/abort", tag = "instances", operation_id = "abort",
    params(("instance" = String, Path)), request_body = Reason,
    responses((status = 204)),
)]
pub(super) async fn abort(x: Exchange<'_>) -> Result {
    let (instance, Reason { reason }) = control(&x)?;
    x.order(Request::Abort { instance, reason: reason.unwrap_or_default() }).await?;
    Reply::done()
}

fn control(x: &Exchange<'_>) -> Result<(InstanceId, Reason)> {
    let instance = x.id()?;
    x.query(&[])?;
    Ok((instance, x.json_or_default()?))
}

/// Activities of all servers that cannot go on without somebody's decision.
#[utoipa::path(
    get, path = "/v1/incidents", tag = "instances", operation_id = "incidents",
    params(
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("here" = Option<bool>, Query, description = "Only those of the server asked"),
    ),
    responses((status = 200, body = IncidentList)),
)]
pub(super) async fn incidents(x: Exchange<'_>) -> Result {
    let query = x.query(&["limit", "cursor", "here"])?;
    let (limit, after) = (query.limit()?, query.parsed("cursor")?);
    let here = query.parsed("here")?.unwrap_or(false);
    let answer = x.ask(Request::Incidents { limit, after }).await?;
    let Answer::Incidents { incidents, more } = answer else {
        return Err(Refused::strange_answer());
    };
    let own = convert::incident_list(incidents, more);
    if here {
        return Reply::json(&own);
    }
    let (pages, unreachable) = gather::pages(&x, own).await;
    Reply::json(&IncidentList { unreachable, ..everywhere::incidents(pages, limit) })
}

/// The way out of an incident.
#[utoipa::path(
    post, path = "/v1/activities/{activity}/resolve", tag = "instances", operation_id = "resolve",
    params(("activity" = String, Path)), request_body = ResolveRequest,
    responses((status = 204)),
)]
pub(super) async fn resolve(x: Exchange<'_>) -> Result {
    let activity: ActivityId = x.id()?;
    x.query(&[])?;
    let ResolveRequest { action, answer, data } = x.json()?;
    let misplaced = |field: &str| {
        let detail = format!("`{field}` does not belong to this action; leave it out");
        Refused::bad_request("unexpected_json", detail)
    };
    let resolution = match (action, answer, data) {
        (ResolveAction::Retry, None, None) => Resolution::Retry,
        (ResolveAction::Choose, Some(answer), None) => Resolution::Choose(answer),
        (ResolveAction::Choose, None, _) => {
            let detail = "`choose` needs the branch in `answer`";
            return Err(Refused::bad_request("unexpected_json", detail));
        }
        (ResolveAction::Complete, None, data) => Resolution::Complete(data.unwrap_or_default()),
        (ResolveAction::Retry | ResolveAction::Complete, Some(_), _) => {
            return Err(misplaced("answer"));
        }
        (ResolveAction::Retry | ResolveAction::Choose, _, Some(_)) => {
            return Err(misplaced("data"));
        }
    };
    if let Resolution::Complete(data) = &resolution {
        require_stored(&x, data).await?;
    }
    x.order(Request::Resolve { activity, resolution }).await?;
    Reply::done()
}
