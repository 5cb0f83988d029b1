//! Operations on instances that there are.
//!
//! Invariant: what is asked of all servers is put together, and who could not be asked is named.

use hyper::StatusCode;
use legwork_api::instances::{
    History, IncidentList, Instance, InstanceList, Reason, ResolveAction, ResolveRequest,
};
use legwork_model::id::{ActivityId, InstanceId};
use legwork_model::time::Timestamp;
use legwork_site::{Answer, InstanceView, List, Request, Resolution};

use super::exchange::Exchange;
use super::files::require_stored_for;
use super::reply::{Refused, Reply, Result};
use super::{gather, histories};
use crate::convert;
use crate::everywhere;

pub(super) async fn view(x: &Exchange<'_>, instance: InstanceId) -> Result<InstanceView> {
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
        ("deadline" = Option<bool>, Query, description = "Only those with a deadline"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
        ("here" = Option<bool>, Query, description = "Only those the server asked has a part in"),
    ),
    responses((status = 200, body = InstanceList)),
)]
pub(super) async fn list(x: Exchange<'_>) -> Result {
    let query = x.query(&["process", "state", "deadline", "limit", "cursor", "here"])?;
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
        deadline: query.parsed("deadline")?.unwrap_or(false),
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
    let known = known_here(&x, instance, wait_until).await.map(convert::instance);
    if here {
        return Reply::json(&known.map_err(|refused| not_passed_on(refused, instance))?);
    }
    Reply::json(&gather::gather(&x, known?).await)
}

async fn known_here(
    x: &Exchange<'_>,
    instance: InstanceId,
    wait_until: Option<Timestamp>,
) -> Result<InstanceView> {
    let answered = match wait_until {
        Some(_) => x.ask_patiently(Request::Show { instance, wait_until }).await?,
        None => None,
    };
    match answered {
        Some(Answer::Instance(view)) => Ok(*view),
        Some(_) => Err(Refused::strange_answer()),
        None => view(x, instance).await,
    }
}

/// With `here`, another server that could answer is not asked.
fn not_passed_on(refused: Refused, instance: InstanceId) -> Refused {
    if refused.at.is_none() {
        return refused;
    }
    let detail = format!("instance {instance} is not at this server; ask again without `here`");
    Refused::new(StatusCode::NOT_FOUND, "no_such_instance", detail)
}

/// The execution history of an instance, put together from all servers that have a part in it. While
/// the instance runs, reading on with `next` leaves nothing out and brings nothing twice.
#[utoipa::path(
    get, path = "/v1/instances/{instance}/history", tag = "instances", operation_id = "history",
    params(
        ("instance" = String, Path),
        ("from" = Option<String>, Query, description = "`next` of the page before"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000,
            description = "How many records, each with all entries of one command"),
        ("here" = Option<bool>, Query, description = "Only what the server asked holds, in the \
            order in which it came there; `from` is the number of the first record then"),
    ),
    responses((status = 200, body = History)),
)]
pub(super) async fn history(x: Exchange<'_>) -> Result {
    let instance: InstanceId = x.id()?;
    let query = x.query(&["from", "limit", "here"])?;
    let (limit, here) = (query.limit()?, query.parsed("here")?.unwrap_or(false));
    match &x.app.links {
        Some(links) if !here => {
            let from = query.parsed("from")?.unwrap_or_default();
            Reply::json(&histories::gather(&x, links, instance, from, limit).await?)
        }
        Some(_) | None => {
            let from = query.parsed("from")?.unwrap_or(0);
            let own = histories::own(&x, instance, from, limit).await;
            Reply::json(&own.map_err(|refused| not_passed_on(refused, instance))?)
        }
    }
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
        require_stored_for(&x, &activity, None, data).await?;
    }
    x.order(Request::Resolve { activity, resolution }).await?;
    Reply::done()
}
