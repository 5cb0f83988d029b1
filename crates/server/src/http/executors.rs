//! Operations on executors, and what they report.
//!
//! Invariant: a report counts by its signature alone, and is heard by the server that gave the task.

use std::sync::Arc;

use hyper::StatusCode;
use legwork_api::executors::{
    ExecutorList, ExecutorRequest, PolicyList, PolicyRequest, PolicyState, Received, Registered,
    Regularly, TaskResult, TypeLimit,
};
use legwork_api::signature::{self, Signed};
use legwork_model::event::{ExecutorType, RegularWork, Secret};
use legwork_model::rate::Rate;
use legwork_model::time::parse_duration;
use legwork_site::{
    Answer, Concern, Credential, ExecutorInfo, Feedback, JobLease, Outcome, RegisterExecutor,
    Request, TaskReport,
};

use super::exchange::Exchange;
use super::files::missing;
use super::relay;
use super::reply::{Refused, Reply, Result, strange};
use crate::convert;
use crate::executors::{check_address, task_named, tasks_held, unstored};

pub(super) async fn register(x: Exchange<'_>) -> Result {
    let name = x.name()?;
    let asked = registration(&name, x.json()?)
        .map_err(|why| Refused::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_executor", why))?;
    let answer = x.ask(Request::Executor(Concern::Register(asked))).await?;
    let Answer::ExecutorRegistered { unchanged } = answer else { return strange() };
    if !unchanged {
        tracing::info!(%name, "executor registered");
    }
    Reply::json(&Registered { executor: name, unchanged })
}

type Registration = std::result::Result<RegisterExecutor, String>;

/// What a registration says, if it can be read.
fn registration(name: &str, request: ExecutorRequest) -> Registration {
    let ExecutorRequest {
        url,
        secret,
        types,
        limit,
        at_once,
        rate,
        weight,
        regularly,
        reserve,
        domain,
        verdicts,
        holds,
    } = request;
    check_address(&url)?;
    let rate_of = |text: Option<String>| {
        text.map(|text| text.parse::<Rate>().map_err(|error| error.to_string())).transpose()
    };
    let mut own = Vec::with_capacity(types.len());
    for (job, TypeLimit { limit, rate }) in types {
        own.push(ExecutorType { job: job.into(), limit, rate: rate_of(rate)? });
    }
    Ok(RegisterExecutor {
        name: name.into(),
        url: url.into(),
        secret: Secret(secret),
        types: own,
        limit,
        at_once,
        rate: rate_of(rate)?,
        weight,
        regularly: regularly.iter().map(regular_work).collect::<std::result::Result<_, _>>()?,
        reserve,
        domain,
        verdicts,
        holds: holds.as_deref().map(tasks_held),
    })
}

fn regular_work(
    Regularly { every, takes }: &Regularly,
) -> std::result::Result<RegularWork, String> {
    let read = |text: &str| match parse_duration(text) {
        Ok(length) => Ok(u64::try_from(length.as_millis()).unwrap_or(u64::MAX)),
        Err(error) => Err(format!("what it does regularly: {error}")),
    };
    Ok(RegularWork { every_ms: read(every)?, takes_ms: read(takes)? })
}

pub(super) async fn remove(x: Exchange<'_>) -> Result {
    let name = x.name()?;
    x.order(Request::Executor(Concern::Remove { name: name.as_str().into() })).await?;
    tracing::info!(%name, "executor removed");
    Reply::done()
}

pub(super) async fn set_policy(x: Exchange<'_>) -> Result {
    let kind = x.name()?;
    let PolicyRequest { policy, record } = x.json()?;
    let (job, named) = (Arc::from(kind.as_str()), Arc::from(policy.as_str()));
    let concern = Concern::SetPolicy { job, policy: named, recorded: record };
    x.order(Request::Executor(concern)).await?;
    tracing::info!(%kind, %policy, record, "policy set");
    Reply::done()
}

pub(super) async fn policies(x: Exchange<'_>) -> Result {
    let answer = x.ask(Request::Executor(Concern::Policies)).await?;
    let Answer::Policies(policies) = answer else { return strange() };
    let policies = policies.iter().map(|set| PolicyState {
        kind: set.job.to_string(),
        policy: set.policy.to_string(),
        record: set.recorded,
    });
    Reply::json(&PolicyList { policies: policies.collect() })
}

pub(super) async fn list(x: Exchange<'_>) -> Result {
    let (after, limit) = (x.query.text("cursor").map(Arc::from), x.query.limit()?);
    let answer = x.ask(Request::Executor(Concern::List { after, limit })).await?;
    let Answer::Executors { executors, more } = answer else { return strange() };
    let next = executors.last().filter(|_| more).map(ExecutorInfo::cursor);
    let executors = executors.iter().map(convert::executor).collect();
    Reply::json(&ExecutorList { executors, next })
}

pub(super) async fn report(x: Exchange<'_>) -> Result {
    let name = x.name()?;
    check_signature(&x, &name)?;
    let TaskResult { task, data, error, retry, has, holds, took_ms } = x.json()?;
    let bad = |detail: &str| Err(Refused::bad_request("bad_task", detail.to_owned()));
    let Some(task) = task_named(&task) else {
        return bad("`task` is not one that was given; send it as it came");
    };
    let outcome = match (data, error) {
        (Some(data), None) => Outcome::Done(data),
        (None, Some(error)) => Outcome::Failed { error, retry: retry.unwrap_or(true) },
        (Some(_), Some(_)) | (None, None) => return bad("a result has either `data` or `error`"),
    };
    let giver = JobLease::server(task.lease);
    let links = x.app.links.as_ref().filter(|_| x.passed_on_by().is_none());
    if let Some(seat) = links.and_then(|links| links.seat())
        && giver != seat.here
        && seat.topology.server(giver).is_some()
    {
        return relay::pass_on(x.app, giver, x.head, x.body.clone(), None).await;
    }
    let unstored = match &outcome {
        Outcome::Done(data) => missing(&x, data).await?.as_ref().map(unstored),
        Outcome::Failed { .. } | Outcome::Busy { .. } | Outcome::Taken => None,
    };
    let outcome = unstored.unwrap_or(outcome);
    let executor: Arc<str> = name.into();
    let report = TaskReport {
        executor: executor.clone(),
        task,
        outcome,
        feedback: Feedback { has, took_ms },
        holds: holds.as_deref().map(tasks_held),
    };
    x.app
        .gate
        .ask(Credential::Executor(executor), Request::Executor(Concern::Report(report)))
        .await?;
    Reply::json_with(StatusCode::ACCEPTED, &Received {})
}

fn check_signature(x: &Exchange<'_>, name: &str) -> Result<()> {
    let unsigned = |detail: String| Refused::new(StatusCode::UNAUTHORIZED, "bad_signature", detail);
    let Some(executor) = x.app.executors.get(name) else {
        let detail = format!("there is no executor `{name}`; register it first");
        return Err(Refused::new(StatusCode::NOT_FOUND, "no_such_executor", detail));
    };
    let target = x.head.uri.path_and_query().map_or("/", |target| target.as_str());
    let signed = Signed { method: x.head.method.as_str(), target, body: &x.body };
    let header = x.head.headers.get(signature::HEADER).and_then(|value| value.to_str().ok());
    signature::verify(&executor.secret.0, &signed, header, x.app.clock.now())
        .map_err(|refusal| unsigned(refusal.to_string()))
}
