//! Operations on instances that there are.
//!
//! Invariant: what is asked of all servers is put together, and who could not be asked is named.

use hyper::StatusCode;
use legwork_api::instances::{IncidentList, InstanceList, Reason, ResolveAction, ResolveRequest};
use legwork_model::id::{ActivityId, InstanceId};
use legwork_model::time::Timestamp;
use legwork_site::{Answer, InstanceView, List, Request, Resolution};

use super::exchange::Exchange;
use super::files::require_stored_for;
use super::reply::{Refused, Reply, Result, strange};
use super::{gather, histories};
use crate::convert;
use crate::everywhere;

pub(super) async fn view(x: &Exchange<'_>, instance: InstanceId) -> Result<InstanceView> {
    let show = Request::Show { instance, wait_until: None };
    let Answer::Instance(view) = x.ask(show).await? else { return strange() };
    Ok(*view)
}

pub(super) async fn list(x: Exchange<'_>) -> Result {
    let ended = match x.query.text("state") {
        None | Some("open") => false,
        Some("ended") => true,
        Some(_) => {
            let detail = "the parameter `state` is `open` or `ended`";
            return Err(Refused::bad_request("bad_parameter", detail));
        }
    };
    let (limit, here) = (x.query.limit()?, x.query.parsed("here")?.unwrap_or(false));
    let list = List {
        process: x.query.text("process").map(Into::into),
        ended,
        deadline: x.query.parsed("deadline")?.unwrap_or(false),
        limit,
        before: x.query.parsed("cursor")?,
    };
    let answer = x.ask(Request::List(list)).await?;
    let Answer::Instances { instances, next } = answer else { return strange() };
    let own = convert::instance_list(instances, next);
    if here {
        return Reply::json(&own);
    }
    let (pages, unreachable) = gather::pages(&x, own).await;
    Reply::json(&InstanceList { unreachable, ..everywhere::instances(pages, limit) })
}

pub(super) async fn show(x: Exchange<'_>) -> Result {
    let instance: InstanceId = x.id()?;
    let wait_until = x.wait_until(x.query.parsed("wait_ms")?)?;
    let here = x.query.parsed("here")?.unwrap_or(false);
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
        Some(_) => strange(),
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

pub(super) async fn history(x: Exchange<'_>) -> Result {
    let instance: InstanceId = x.id()?;
    let (limit, here) = (x.query.limit()?, x.query.parsed("here")?.unwrap_or(false));
    match &x.app.links {
        Some(links) if !here => {
            let from = x.query.parsed("from")?.unwrap_or_default();
            Reply::json(&histories::gather(&x, links, instance, from, limit).await?)
        }
        Some(_) | None => {
            let from = x.query.parsed("from")?.unwrap_or(0);
            let own = histories::own(&x, instance, from, limit).await;
            Reply::json(&own.map_err(|refused| not_passed_on(refused, instance))?)
        }
    }
}

pub(super) async fn suspend(x: Exchange<'_>) -> Result {
    let (instance, Reason { reason }) = control(&x)?;
    x.order(Request::Suspend { instance, reason }).await
}

pub(super) async fn resume(x: Exchange<'_>) -> Result {
    let (instance, Reason { reason }) = control(&x)?;
    x.order(Request::Resume { instance, reason }).await
}

pub(super) async fn abort(x: Exchange<'_>) -> Result {
    let (instance, Reason { reason }) = control(&x)?;
    x.order(Request::Abort { instance, reason: reason.unwrap_or_default() }).await
}

fn control(x: &Exchange<'_>) -> Result<(InstanceId, Reason)> {
    Ok((x.id()?, x.json_or_default()?))
}

pub(super) async fn incidents(x: Exchange<'_>) -> Result {
    let (limit, after) = (x.query.limit()?, x.query.parsed("cursor")?);
    let here = x.query.parsed("here")?.unwrap_or(false);
    let answer = x.ask(Request::Incidents { limit, after }).await?;
    let Answer::Incidents { incidents, more } = answer else { return strange() };
    let own = convert::incident_list(incidents, more);
    if here {
        return Reply::json(&own);
    }
    let (pages, unreachable) = gather::pages(&x, own).await;
    Reply::json(&IncidentList { unreachable, ..everywhere::incidents(pages, limit) })
}

pub(super) async fn resolve(x: Exchange<'_>) -> Result {
    let activity: ActivityId = x.id()?;
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
    x.order(Request::Resolve { activity, resolution }).await
}
