//! Deadlines: whether one could be promised, and what somebody is to do when.
//!
//! Invariant: nothing is started or promised here. What could be promised is held as an offer for five minutes.

use legwork_api::deadlines::{Deadline, Plan};
use legwork_api::instances::StartRequest;
use legwork_model::id::AgentId;
use legwork_site::{Answer, Request, ResourceId};

use super::exchange::Exchange;
use super::reply::{Refused, Reply, Result};
use super::starts::{self, Purpose};
use crate::convert;

/// Tells whether the deadline of a start could be promised, and how. Nothing is started. What was found is
/// held for five minutes, for the next start of the same process by the same caller.
#[utoipa::path(
    post, path = "/v1/deadlines", tag = "deadlines", operation_id = "ask_deadline",
    request_body = StartRequest,
    responses((status = 200, body = Deadline)),
)]
pub(super) async fn ask(x: Exchange<'_>) -> Result {
    x.query(&[])?;
    let request: StartRequest = x.json()?;
    if request.deadline.is_none() {
        let detail = "say in `deadline` by when it is to be done";
        return Err(Refused::bad_request("unexpected_json", detail));
    }
    starts::at_its_server(&x, request, None, Purpose::Ask).await
}

/// What a person or an executor is to do when.
#[utoipa::path(
    get, path = "/v1/plans/{name}", tag = "deadlines", operation_id = "plan",
    params(
        ("name" = String, Path),
        ("kind" = Option<String>, Query, description = "`person` or `executor`; without it of two \
            of the same name the person"),
    ),
    responses((status = 200, body = Plan)),
)]
pub(super) async fn plan(x: Exchange<'_>) -> Result {
    let name = x.name()?;
    let query = x.query(&["kind"])?;
    let person = || ResourceId::Person(AgentId::from(name.as_str()));
    let executor = || ResourceId::Executor(name.as_str().into());
    match query.text("kind") {
        Some("person") => plan_of(&x, person()).await,
        Some("executor") => plan_of(&x, executor()).await,
        Some(_) => {
            let detail = "the parameter `kind` is `person` or `executor`";
            Err(Refused::bad_request("bad_parameter", detail))
        }
        None => match plan_of(&x, person()).await {
            // Kept by another server: that one is asked.
            Err(refused) if refused.at.is_none() => {
                plan_of(&x, executor()).await.map_err(|other| match other.at {
                    Some(_) => other,
                    None => refused,
                })
            }
            answered => answered,
        },
    }
}

async fn plan_of(x: &Exchange<'_>, resource: ResourceId) -> Result {
    let Answer::Plan(plan) = x.ask(Request::Plan { resource }).await? else {
        return Err(Refused::strange_answer());
    };
    Reply::json(&convert::plan(*plan))
}
