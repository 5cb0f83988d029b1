//! Operations on schedules: what is started again and again.
//!
//! Invariant: all of them are carried out by the registrar; others pass them on.

use std::sync::Arc;

use hyper::StatusCode;
use legwork_api::schedules::{ScheduleList, SchedulePut, ScheduleRequest, Within};
use legwork_model::event::{self, Period};
use legwork_model::id::AgentId;
use legwork_site::{Answer, PutSchedule, Recurring, Request};

use super::exchange::Exchange;
use super::files::require_stored;
use super::reply::{Refused, Reply, Result, strange};
use crate::convert;

pub(super) async fn put(x: Exchange<'_>) -> Result {
    let name = x.name()?;
    let asked = asked(&name, x.json()?)?;
    require_stored(&x, &asked.data).await?;
    let answer = x.ask(Request::Schedule(Recurring::Put(asked))).await?;
    let Answer::SchedulePut { unchanged, next } = answer else { return strange() };
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

pub(super) async fn remove(x: Exchange<'_>) -> Result {
    let name = x.name()?;
    x.order(Request::Schedule(Recurring::Remove { name: name.as_str().into() })).await?;
    tracing::info!(%name, "schedule removed");
    Reply::done()
}

pub(super) async fn pause(x: Exchange<'_>) -> Result {
    set_paused(x, true).await
}

pub(super) async fn resume(x: Exchange<'_>) -> Result {
    set_paused(x, false).await
}

async fn set_paused(x: Exchange<'_>, is_paused: bool) -> Result {
    let name = x.name()?;
    let pause = Recurring::Pause { name: name.as_str().into(), is_paused };
    x.order(Request::Schedule(pause)).await?;
    tracing::info!(%name, is_paused, "schedule paused or resumed");
    Reply::done()
}

pub(super) async fn show(x: Exchange<'_>) -> Result {
    let show = Recurring::Show { name: x.name()?.into() };
    let Answer::Schedule(info) = x.ask(Request::Schedule(show)).await? else { return strange() };
    Reply::json(&convert::schedule(*info))
}

pub(super) async fn list(x: Exchange<'_>) -> Result {
    let (after, limit) = (x.query.text("cursor").map(Arc::from), x.query.limit()?);
    let answer = x.ask(Request::Schedule(Recurring::List { after, limit })).await?;
    let Answer::Schedules { schedules, more } = answer else { return strange() };
    let next = schedules.last().filter(|_| more).map(|last| last.name.to_string());
    let schedules = schedules.into_iter().map(convert::schedule).collect();
    Reply::json(&ScheduleList { schedules, next })
}
