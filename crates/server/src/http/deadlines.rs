//! Deadlines: whether one could be promised, and what somebody is to do when.
//!
//! Invariant: nothing is started or promised here. What could be promised is held as an offer for five minutes.

use legwork_api::instances::StartRequest;
use legwork_model::id::AgentId;
use legwork_site::{Answer, Request, ResourceId};

use super::exchange::Exchange;
use super::reply::{Refused, Reply, Result, strange};
use super::starts::{self, Purpose};
use crate::convert;

pub(super) async fn ask(x: Exchange<'_>) -> Result {
    let request: StartRequest = x.json()?;
    if request.deadline.is_none() {
        let detail = "say in `deadline` by when it is to be done";
        return Err(Refused::bad_request("unexpected_json", detail));
    }
    starts::at_its_server(&x, request, None, Purpose::Ask).await
}

pub(super) async fn plan(x: Exchange<'_>) -> Result {
    let name = x.name()?;
    let person = || ResourceId::Person(AgentId::from(name.as_str()));
    let executor = || ResourceId::Executor(name.as_str().into());
    match x.query.text("kind") {
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
    let Answer::Plan(plan) = x.ask(Request::Plan { resource }).await? else { return strange() };
    Reply::json(&convert::plan(*plan))
}
