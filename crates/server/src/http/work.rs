//! Operations on worklists and work items.
//!
//! Invariant: whom a caller may act for is decided by the site, at the same moment as the deed.

use std::sync::Arc;

use legwork_api::endpoints;
use legwork_api::work::{ActRequest, CompleteRequest, DelegateRequest, ItemDetail};
use legwork_model::id::{ActivityId, AgentId};
use legwork_site::{Answer, Complete, Request};

use super::exchange::Exchange;
use super::files::require_stored_for;
use super::relay;
use super::reply::{Refused, Reply, Result, strange};
use crate::convert;
use crate::ids::completion_digest;

pub(super) async fn worklist(x: Exchange<'_>) -> Result {
    let agent = x.agent(x.query.text("agent")).await?;
    let list = legwork_site::Worklist {
        agent,
        since: x.query.text("since").map(str::to_owned),
        limit: x.query.limit()?,
        wait_until: x.wait_until(x.query.parsed("wait_ms")?)?,
    };
    Reply::json(&convert::worklist(read(&x, list).await?))
}

/// Waits if asked to; when the server stops, what there is.
pub(super) async fn read(
    x: &Exchange<'_>,
    list: legwork_site::Worklist,
) -> Result<legwork_site::WorklistView> {
    let (agent, since, limit) = (list.agent.clone(), list.since.clone(), list.limit);
    let answer = if list.wait_until.is_none() {
        Some(x.ask(Request::Worklist(list)).await?)
    } else {
        x.ask_patiently(Request::Worklist(list)).await?
    };
    let answer = match answer {
        Some(answer) => answer,
        None => {
            let list = legwork_site::Worklist { agent, since, limit, wait_until: None };
            x.ask(Request::Worklist(list)).await?
        }
    };
    let Answer::Worklist(view) = answer else { return strange() };
    Ok(view)
}

pub(super) async fn item(x: Exchange<'_>) -> Result {
    let activity: ActivityId = x.id()?;
    let agent = x.agent(x.query.text("agent")).await?;
    Reply::json(&detail(&x, agent, activity).await?)
}

async fn detail(x: &Exchange<'_>, agent: AgentId, activity: ActivityId) -> Result<ItemDetail> {
    let answer = x.ask(Request::Item { agent, activity }).await?;
    let Answer::Item(detail) = answer else { return strange() };
    Ok(convert::item_detail(*detail))
}

/// An item of whatever server, which decides whether the agent may see it.
pub(super) async fn detail_anywhere(
    x: &Exchange<'_>,
    agent: AgentId,
    activity: ActivityId,
) -> Result<ItemDetail> {
    let target = endpoints::ITEM.at(&activity).query("agent", Some(&agent));
    match detail(x, agent, activity).await {
        Err(Refused { at: Some(to), .. }) if x.app.links.is_some() => {
            relay::ask_in_turn(x, to, &target.text()).await?.into_json()
        }
        answered => answered,
    }
}

pub(super) async fn claim(x: Exchange<'_>) -> Result {
    let (activity, agent) = actor(&x).await?;
    x.order(Request::Claim { agent, activity }).await
}

pub(super) async fn release(x: Exchange<'_>) -> Result {
    let (activity, agent) = actor(&x).await?;
    x.order(Request::Release { agent, activity }).await
}

pub(super) async fn delegate(x: Exchange<'_>) -> Result {
    let activity: ActivityId = x.id()?;
    let DelegateRequest { agent, to } = x.json()?;
    let agent = x.agent(agent.as_deref()).await?;
    x.order(Request::Delegate { agent, activity, to: AgentId(to) }).await
}

pub(super) async fn complete(x: Exchange<'_>) -> Result {
    let activity: ActivityId = x.id()?;
    let CompleteRequest { agent, data, answer } = x.json_or_default()?;
    let agent = match agent {
        Some(agent) => AgentId(agent),
        None => x.agent(None).await?,
    };
    require_stored_for(&x, &activity, Some(&agent), &data).await?;
    let request = x
        .key()?
        .map(|key| completion_digest(key, &activity, &agent, &data, answer.as_deref()))
        .transpose()
        .map_err(|error| Refused::fault(&error))?;
    x.order(Request::Complete(Complete { agent, activity, data, answer, request })).await
}

async fn actor(x: &Exchange<'_>) -> Result<(ActivityId, AgentId)> {
    let activity = x.id()?;
    let ActRequest { agent } = x.json_or_default()?;
    let agent: Option<Arc<str>> = agent;
    Ok((activity, x.agent(agent.as_deref()).await?))
}
