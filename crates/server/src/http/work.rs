//! Operations on worklists and work items.
//!
//! Invariant: whom a caller may act for is decided by the site, at the same moment as the deed.

use std::sync::Arc;

use legwork_api::work::{ActRequest, CompleteRequest, DelegateRequest, ItemDetail, Worklist};
use legwork_model::id::{ActivityId, AgentId};
use legwork_site::{Answer, Complete, Request};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::exchange::Exchange;
use super::files::require_stored_for;
use super::relay;
use super::reply::{Refused, Reply, Result};
use crate::convert;
use crate::ids::completion_digest;

/// What is in a person's worklist, or has changed in it.
#[utoipa::path(
    get, path = "/v1/worklist", tag = "work", operation_id = "worklist",
    params(
        ("agent" = Option<String>, Query, description = "Whose list; may be left out when the \
            token allows to work as exactly one agent"),
        ("since" = Option<String>, Query, description = "A cursor: only what has changed since"),
        ("limit" = Option<usize>, Query, minimum = 1, maximum = 1000),
        ("wait_ms" = Option<u64>, Query, maximum = 60000, description = "Answer only when \
            something has changed, or after this time"),
    ),
    responses((status = 200, body = Worklist)),
)]
pub(super) async fn worklist(x: Exchange<'_>) -> Result {
    let query = x.query(&["agent", "since", "limit", "wait_ms"])?;
    let agent = x.agent(query.text("agent")).await?;
    let list = legwork_site::Worklist {
        agent,
        since: query.text("since").map(str::to_owned),
        limit: query.limit()?,
        wait_until: x.wait_until(query.parsed("wait_ms")?)?,
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
    let Answer::Worklist(view) = answer else { return Err(Refused::strange_answer()) };
    Ok(view)
}

/// An item with what is needed to work on it.
#[utoipa::path(
    get, path = "/v1/work/{activity}", tag = "work", operation_id = "item",
    params(
        ("activity" = String, Path),
        ("agent" = Option<String>, Query, description = "Who asks; may be left out when the \
            token allows to work as exactly one agent"),
    ),
    responses((status = 200, body = ItemDetail)),
)]
pub(super) async fn item(x: Exchange<'_>) -> Result {
    let activity: ActivityId = x.id()?;
    let query = x.query(&["agent"])?;
    let agent = x.agent(query.text("agent")).await?;
    Reply::json(&detail(&x, agent, activity).await?)
}

async fn detail(x: &Exchange<'_>, agent: AgentId, activity: ActivityId) -> Result<ItemDetail> {
    let Answer::Item(detail) = x.ask(Request::Item { agent, activity }).await? else {
        return Err(Refused::strange_answer());
    };
    Ok(convert::item_detail(*detail))
}

/// An item of whatever server, which decides whether the agent may see it.
pub(super) async fn detail_anywhere(
    x: &Exchange<'_>,
    agent: AgentId,
    activity: ActivityId,
) -> Result<ItemDetail> {
    let agent_encoded = utf8_percent_encode(&agent.0, NON_ALPHANUMERIC).to_string();
    match detail(x, agent, activity).await {
        Err(Refused { at: Some(to), .. }) if x.app.links.is_some() => {
            // The segment in braces as it came: it was understood above.
            let segment = x.parameter.unwrap_or_default();
            let target = format!("/v1/work/{segment}?agent={agent_encoded}");
            relay::ask_in_turn(x, to, &target).await?.into_json()
        }
        answered => answered,
    }
}

/// Reserves an item for oneself; exactly one of several succeeds.
#[utoipa::path(
    post, path = "/v1/work/{activity}/claim", tag = "work", operation_id = "claim",
    params(("activity" = String, Path)), request_body = ActRequest,
    responses((status = 204)),
)]
pub(super) async fn claim(x: Exchange<'_>) -> Result {
    let (activity, agent) = actor(&x).await?;
    x.order(Request::Claim { agent, activity }).await?;
    Reply::done()
}

/// Gives a claimed item back to all who may do it.
#[utoipa::path(
    post, path = "/v1/work/{activity}/release", tag = "work", operation_id = "release",
    params(("activity" = String, Path)), request_body = ActRequest,
    responses((status = 204)),
)]
pub(super) async fn release(x: Exchange<'_>) -> Result {
    let (activity, agent) = actor(&x).await?;
    x.order(Request::Release { agent, activity }).await?;
    Reply::done()
}

/// Hands an item to somebody else.
#[utoipa::path(
    post, path = "/v1/work/{activity}/delegate", tag = "work", operation_id = "delegate",
    params(("activity" = String, Path)), request_body = DelegateRequest,
    responses((status = 204)),
)]
pub(super) async fn delegate(x: Exchange<'_>) -> Result {
    let activity: ActivityId = x.id()?;
    x.query(&[])?;
    let DelegateRequest { agent, to } = x.json()?;
    let agent = x.agent(agent.as_deref()).await?;
    x.order(Request::Delegate { agent, activity, to: AgentId(to) }).await?;
    Reply::done()
}

/// The work is done. Exactly one completion of an activity is ever accepted.
#[utoipa::path(
    post, path = "/v1/work/{activity}/complete", tag = "work", operation_id = "complete",
    params(
        ("activity" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "A repetition with the same \
            key and content is answered like the first; with another content it is refused"),
    ),
    request_body = CompleteRequest,
    responses((status = 204)),
)]
pub(super) async fn complete(x: Exchange<'_>) -> Result {
    let activity: ActivityId = x.id()?;
    x.query(&[])?;
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
    x.order(Request::Complete(Complete { agent, activity, data, answer, request })).await?;
    Reply::done()
}

async fn actor(x: &Exchange<'_>) -> Result<(ActivityId, AgentId)> {
    let activity = x.id()?;
    x.query(&[])?;
    let ActRequest { agent } = x.json_or_default()?;
    let agent: Option<Arc<str>> = agent;
    Ok((activity, x.agent(agent.as_deref()).await?))
}
