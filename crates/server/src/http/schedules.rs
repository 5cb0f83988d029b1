//! Operations on schedules: what is started again and again.
//!
//! Invariant: all of them are carried out by the registrar; others pass them on.

use std::sync::Arc;

use hyper::StatusCode;
use legwork_api::schedules::{Schedule, ScheduleList, SchedulePut, ScheduleRequest, Within};
use legwork_model::event::{self, Period};
use legwork_model::id::AgentId;
use legwork_site::{Answer, PutSchedule, Recurring, Request};

use super::exchange::Exchange;
use super::files::require_stored;
use super::reply::{Refused, Reply, Result};
use crate::convert;

/// Starts a process again and again from now on. The same again changes nothing; anything else begins anew.
#[utoipa::path(
    put, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "put_schedule",
    params(("name" = String, Path)),
    request_body = ScheduleRequest,
    responses((status = 200, body = SchedulePut)),
)]
pub(super) async fn put(x: Exchange<'_>) -> Result {
    x.query(&[])?;
    let name = x.name()?;
    let asked = asked(&name, x.json()?)?;
    require_stored(&x, &asked.data).await?;
    let answer = x.ask(Request::Schedule(Recurring::Put(asked))).await?;
    let Answer::SchedulePut { unchanged, next } = answer else {
        return Err(Refused::strange_answer());
    };
    if !unchanged {
        tracing::info!(%name, "schedule put");
    }
    Reply::json(&SchedulePut { name, unchanged, next_at: next })
}

fn asked(name: &str, request: ScheduleRequest) -> Result<PutSchedule> {
    let ScheduleRequest { process, cron, zone, every_ms, data, agent, deadline } = request;
    let period = match (cron, every_ms, zone) {
        (Some(text), None, zone) => {
            Period::Cron { text, zone: zone.unwrap_or_else(|| Arc::from("UTC")) }
        }
        (None, Some(ms), None) => Period::Every { ms },
        (None, Some(_), Some(_)) => {
            return Err(bad("`zone` is for `cron`; `every_ms` goes by no clock on a wall"));
        }
        (Some(_), Some(_), _) | (None, None, _) => {
            return Err(bad("say when: either `cron` or `every_ms`"));
        }
    };
    let within = deadline.map(|Within { within_ms: ms, priority }| event::Within { ms, priority });
    let agent = agent.map(AgentId);
    Ok(PutSchedule { name: name.into(), process, period, data, agent, within })
}

fn bad(detail: &str) -> Refused {
    Refused::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_schedule", detail)
}

/// Takes a schedule out; what it has started goes on.
#[utoipa::path(
    delete, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "remove_schedule",
    params(("name" = String, Path)),
    responses((status = 204)),
)]
pub(super) async fn remove(x: Exchange<'_>) -> Result {
    x.query(&[])?;
    let name = x.name()?;
    x.order(Request::Schedule(Recurring::Remove { name: name.as_str().into() })).await?;
    tracing::info!(%name, "schedule removed");
    Reply::done()
}

/// Starts nothing until it is resumed.
#[utoipa::path(
    post, path = "/v1/schedules/{name}/pause", tag = "schedules", operation_id = "pause_schedule",
    params(("name" = String, Path)),
    responses((status = 204)),
)]
pub(super) async fn pause(x: Exchange<'_>) -> Result {
    set_paused(x, true).await
}

/// Goes on with the next moment; those that have passed meanwhile are not started.
#[utoipa::path(
    post, path = "/v1/schedules/{name}/resume", tag = "schedules", operation_id = "resume_schedule",
    params(("name" = String, Path)),
    responses((status = 204)),
)]
pub(super) async fn resume(x: Exchange<'_>) -> Result {
    set_paused(x, false).await
}

async fn set_paused(x: Exchange<'_>, is_paused: bool) -> Result {
    x.query(&[])?;
    let name = x.name()?;
    let pause = Recurring::Pause { name: name.as_str().into(), is_paused };
    x.order(Request::Schedule(pause)).await?;
    tracing::info!(%name, is_paused, "schedule paused or resumed");
    Reply::done()
}

/// One schedule, and what came of it.
#[utoipa::path(
    get, path = "/v1/schedules/{name}", tag = "schedules", operation_id = "schedule",
    params(("name" = String, Path)),
    responses((status = 200, body = Schedule)),
)]
pub(super) async fn show(x: Exchange<'_>) -> Result {
    x.query(&[])?;
    let show = Recurring::Show { name: x.name()?.into() };
    let Answer::Schedule(info) = x.ask(Request::Schedule(show)).await? else {
        return Err(Refused::strange_answer());
    };
    Reply::json(&convert::schedule(*info))
}

/// The schedules there are, by name, and what came of them.
#[utoipa::path(
    get, path = "/v1/schedules", tag = "schedules", operation_id = "schedules",
    params(
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("cursor" = Option<String>, Query, description = "`next` of the page before"),
    ),
    responses((status = 200, body = ScheduleList)),
)]
pub(super) async fn list(x: Exchange<'_>) -> Result {
    let query = x.query(&["limit", "cursor"])?;
    let (after, limit) = (query.text("cursor").map(Arc::from), query.limit()?);
    let answer = x.ask(Request::Schedule(Recurring::List { after, limit })).await?;
    let Answer::Schedules { schedules, more } = answer else {
        return Err(Refused::strange_answer());
    };
    let next = schedules.last().filter(|_| more).map(|last| last.name.to_string());
    let schedules = schedules.into_iter().map(convert::schedule).collect();
    Reply::json(&ScheduleList { schedules, next })
}
