//! Starting instances: at the server that the id drawn for one tells.
//!
//! Invariant: a start with an idempotency key happens once, however often it is sent. Where an
//! instance starts follows from its id, which is drawn where the start comes in; it is passed on
//! there once. Only another server may say which id it is.

use hyper::StatusCode;
use hyper::header::HeaderName;
use legwork_api::deadlines::{self, DeadlineRequest};
use legwork_api::instances::StartRequest;
use legwork_model::event::Deadline;
use legwork_model::id::{AgentId, InstanceId, ServerId};
use legwork_placement::Map;
use legwork_site::{
    Answer, Credential, InstanceInfo, KEY_OF_SCHEDULE, Key, Request, Seat, Start, Unpromised, Wish,
};

use super::exchange::Exchange;
use super::files::require_stored;
use super::instances::view;
use super::relay;
use super::reply::{Refused, Reply, Result, strange};
use crate::convert;
use crate::ids::{Front, NoRandomness, key_spread, key_stream, start_digest};
use crate::peer::Header;

/// How many ids are drawn for one start: the weights may change while it is on its way, and
/// servers may go away.
const DRAWS_MAX: usize = 8;
/// The id of an instance that another server has drawn for a start which it passes on.
pub(super) static INSTANCE: HeaderName = HeaderName::from_static("legwork-instance");
/// The id does not belong to the server that was asked to start it.
const PLACED_ELSEWHERE: &str = "placed_elsewhere";

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Start,
    /// To hear whether its deadline could be promised.
    Ask,
}

pub(super) async fn start(x: Exchange<'_>) -> Result {
    let request: StartRequest = x.json()?;
    let key = key(&x, &request)?;
    at_its_server(&x, request, key, Purpose::Start).await
}

/// Has a start carried out, or looked at, where it belongs.
pub(super) async fn at_its_server(
    x: &Exchange<'_>,
    request: StartRequest,
    key: Option<Key>,
    purpose: Purpose,
) -> Result {
    if let Some(instance) = given(x)? {
        return start_or_find(x, request, key, instance, purpose).await;
    }
    let (process, mut request) = (request.process.clone(), Some(request));
    let mut last = None;
    for _ in 0..DRAWS_MAX {
        let seat = x.app.links.as_ref().and_then(|links| links.seat());
        let front = front(seat.as_ref());
        let instance = draw(x, front, &process, key)?;
        let started = if instance.server() == front.here {
            let request = request.take().map_or_else(|| x.json(), Ok)?;
            start_or_find(x, request, key, instance, purpose).await
        } else {
            pass_on(x, instance.server(), instance).await
        };
        match started {
            Ok(reply) if reply.code().as_deref() == Some(PLACED_ELSEWHERE) => {
                last = Some(Ok(reply))
            }
            // What was not sent was not carried out. Under a key it belongs there and nowhere else.
            Err(refused)
                if refused.code() == PLACED_ELSEWHERE
                    || refused.code() == relay::UNREACHABLE && key.is_none() =>
            {
                last = Some(Err(refused));
            }
            started => return started,
        }
    }
    last.unwrap_or_else(strange)
}

/// Starts an instance at this server, or has the one answer that knows the key from before the weights
/// were changed. By the key alone it would send the start back here.
async fn start_or_find(
    x: &Exchange<'_>,
    request: StartRequest,
    key: Option<Key>,
    instance: InstanceId,
    purpose: Purpose,
) -> Result {
    let done = match purpose {
        Purpose::Start => start_here(x, request, key, instance).await,
        Purpose::Ask => ask_here(x, request, instance).await,
    };
    match done {
        Err(Refused { at: Some(server), .. }) if key.is_some() && server != instance.server() => {
            pass_on(x, server, instance).await
        }
        started => started,
    }
}

/// Passes a start on with the id that was drawn for it.
async fn pass_on(x: &Exchange<'_>, to: ServerId, instance: InstanceId) -> Result {
    let drawn = Header(INSTANCE.as_str().to_owned(), instance.to_string().into_bytes().into());
    relay::pass_on(x.app, to, x.head, x.body.clone(), Some(drawn)).await
}

/// Starts an instance at this server.
async fn start_here(
    x: &Exchange<'_>,
    request: StartRequest,
    key: Option<Key>,
    instance: InstanceId,
) -> Result {
    let start = start_request(x, request, key, instance)?;
    require_stored(x, &start.data).await?;
    let wait_until = start.wait_until;
    tracing::debug!(%instance, process = %start.process, "start");
    let start = Request::Start(start);
    let answer = match wait_until {
        None => Some(x.ask(start).await?),
        Some(_) => x.ask_patiently(start).await?,
    };
    // Without an answer the server stops: it is started and will go on, but not while anybody
    // waits here.
    let (info, repeated) = match (answer, key) {
        (Some(answer), _) => started(answer)?,
        (None, None) => (view(x, instance).await?.info, false),
        (None, Some(_)) => {
            // Only the key can tell which instance it is.
            let again = start_request(x, x.json()?, key, instance)?;
            let again = Request::Start(Start { wait_until: None, ..again });
            let (info, _) = started(x.ask(again).await?)?;
            let repeated = info.instance != instance;
            (info, repeated)
        }
    };
    let status = if repeated { StatusCode::OK } else { StatusCode::CREATED };
    Reply::json_with(status, &convert::started(info, repeated))
}

/// Asks this server whether the deadline of a start could be promised.
async fn ask_here(x: &Exchange<'_>, request: StartRequest, instance: InstanceId) -> Result {
    let mut start = start_request(x, request, None, instance)?;
    require_stored(x, &start.data).await?;
    start.wait_until = None;
    start.deadline.iter_mut().for_each(|wish| wish.ask_only = true);
    let Answer::Deadline(view) = x.ask(Request::Start(start)).await? else { return strange() };
    Reply::json(&convert::deadline(*view))
}

fn start_request(
    x: &Exchange<'_>,
    request: StartRequest,
    key: Option<Key>,
    instance: InstanceId,
) -> Result<Start> {
    Ok(Start {
        instance,
        process: request.process,
        version: request.version,
        data: request.data,
        agent: request.agent.map(AgentId),
        key: key.map(Box::new),
        wait_until: x.wait_until(request.wait_ms)?,
        deadline: request.deadline.map(wish).transpose()?,
    })
}

fn wish(request: DeadlineRequest) -> Result<Box<Wish>> {
    let DeadlineRequest { at, unpromised, priority } = request;
    if priority > Deadline::PRIORITY_MAX {
        let detail = format!("`priority` can be 0 to {}", Deadline::PRIORITY_MAX);
        return Err(Refused::bad_request("unexpected_json", detail));
    }
    let mut wish = Box::new(Wish::new(at));
    wish.priority = priority;
    wish.unpromised = match unpromised {
        deadlines::Unpromised::Refuse => Unpromised::Refuse,
        deadlines::Unpromised::Start => Unpromised::Start,
    };
    Ok(wish)
}

fn key(x: &Exchange<'_>, request: &StartRequest) -> Result<Option<Key>> {
    let Some(key) = x.key()? else { return Ok(None) };
    // Whoever took the key of a moment to come would keep its schedule from starting it.
    if key.starts_with(KEY_OF_SCHEDULE) && !matches!(x.credential, Credential::Schedule(_)) {
        let detail = format!(
            "keys that begin with `{KEY_OF_SCHEDULE}` are those of schedules; choose another"
        );
        return Err(Refused::bad_request("reserved_idempotency_key", detail));
    }
    Ok(Some(Key {
        stream: key_stream(&request.process, key),
        request: start_digest(request).map_err(|error| Refused::fault(&error))?,
    }))
}

/// The id that another server has drawn.
fn given(x: &Exchange<'_>) -> Result<Option<InstanceId>> {
    let is_passed_on = x.passed_on_by().is_some();
    let Some(value) = x.head.headers.get(&INSTANCE).filter(|_| is_passed_on) else {
        return Ok(None);
    };
    let id = value.to_str().ok().and_then(|text| text.parse().ok());
    match id {
        Some(id) => Ok(Some(id)),
        None => Err(Refused::bad_request("bad_id", "a server passed on what is no id")),
    }
}

/// Who draws ids here. One that has not joined draws them as if it were alone: by the numbers of the
/// file nothing can be placed, and its site refuses to start anything.
fn front(seat: Option<&Seat>) -> Front<'_> {
    match seat {
        Some(seat) => Front { here: seat.here, topology: Some(&seat.topology) },
        None => Front { here: ServerId::default(), topology: None },
    }
}

/// An id for a start: it tells the server where. One that cannot be reached is passed over, unless
/// a key says that it is there and nowhere else.
fn draw(x: &Exchange<'_>, front: Front<'_>, process: &str, key: Option<Key>) -> Result<InstanceId> {
    let (now, ids) = (x.app.clock.now(), &x.app.ids);
    let fault = |error: NoRandomness| Refused::fault(&error);
    if let Some(key) = key {
        return ids.draw_with(now, front, key_spread(key.stream)).map_err(fault);
    }
    let first = ids.draw(now, front, process).map_err(fault)?;
    let here = front.here;
    let is_reachable = |server| server == here || is_up(x, server);
    if is_reachable(first.server()) {
        return Ok(first);
    }
    // The next ones keep the ratio of the weights among those that can be reached.
    for _ in 0..DRAWS_MAX {
        let next = ids.draw(now, front, process).map_err(fault)?;
        if is_reachable(next.server()) {
            return Ok(next);
        }
    }
    let domain = front.topology.and_then(|topology| topology.domain_of(here));
    let servers = domain.into_iter().flat_map(|domain| {
        front.topology.into_iter().flat_map(move |topology| topology.servers_of(domain))
    });
    for (server, _) in servers.filter(|(server, _)| is_reachable(*server)) {
        if let Some(id) = ids.draw_at(now, front, process, server).map_err(fault)? {
            return Ok(id);
        }
    }
    Ok(first)
}

fn is_up(x: &Exchange<'_>, server: ServerId) -> bool {
    let links = x.app.links.as_ref();
    links.and_then(|links| links.peer(server)).is_some_and(|peer| peer.is_up())
}

fn started(answer: Answer) -> Result<(InstanceInfo, bool)> {
    let Answer::Started { instance, repeated } = answer else { return strange() };
    Ok((*instance, repeated))
}
