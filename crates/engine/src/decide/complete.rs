//! Completing: a step or a decision by a person is done, exactly once.
//!
//! Either all outputs are valid and recorded, or nothing is. Completing an unclaimed item counts as
//! claiming it first.

use legwork_model::event::{Channel, Completed, Event, Incident, Performer, RequestDigest};
use legwork_model::id::{Activity, ElementId};
use legwork_model::schema::{LOOP_REPEAT, Node};
use legwork_model::time::Timestamp;
use legwork_model::value::Value;

use super::{Case, Decision, automatic};
use crate::data;
use crate::rejection::Rejection;

/// The completion.
pub(super) struct Done {
    pub(super) activity: Activity,
    pub(super) by: Performer,
    pub(super) started_at: Timestamp,
    pub(super) outputs: Vec<(ElementId, Value)>,
    pub(super) answer: Option<u32>,
    pub(super) request: Option<RequestDigest>,
    pub(super) channel: Option<Channel>,
}

pub(super) fn complete(case: Case<'_>, done: Done) -> Result<Decision, Rejection> {
    let node = match case.alive().and_then(|()| case.open(&done.activity)) {
        Ok(node) => node,
        Err(rejection) => return Err(repeated(case, &done).unwrap_or(rejection)),
    };
    if node.who().is_some() {
        entitled(case, node, &done.by)?;
    }
    case.not_answered(node)?;
    finish(case, node, done)
}

/// Checks and records the outputs of any performer.
pub(super) fn finish(case: Case<'_>, node: &Node, done: Done) -> Result<Decision, Rejection> {
    let code = answered(node, done.answer)?;
    data::check(case.schema, node, &done.outputs)?;
    if let Some(limit) = going_round_too_often(case, node, code) {
        let incident = Incident::TooManyIterations { limit };
        return case.answer(Event::IncidentRaised { activity: done.activity, incident });
    }
    let home = case.here.home(&done.by);
    case.answer(Event::Completed(Completed {
        activity: done.activity,
        by: done.by,
        started_at: done.started_at,
        writes: done.outputs,
        code,
        request: done.request,
        home,
        channel: done.channel,
    }))
}

/// The answer if this very request completed the activity before, or another one by the same person
/// with the same key; also if the instance has ended or its loop has repeated since.
fn repeated(case: Case<'_>, done: &Done) -> Option<Rejection> {
    let node = case.schema.nodes.get(done.activity.node.0 as usize)?;
    let last = case.state.done(node.id)?;
    let (now, before) = (done.request?, last.request?);
    if case.state.compare_iteration(node, &done.activity.iteration).is_gt() || last.by != done.by {
        None
    } else if now == before {
        Some(Rejection::AlreadyDone)
    } else {
        now.has_key_of(before).then_some(Rejection::KeyReused)
    }
}

/// The holder, or any person without a holder.
fn entitled(case: Case<'_>, node: &Node, by: &Performer) -> Result<(), Rejection> {
    let Performer::Agent(agent) = by else {
        return Err(Rejection::AgentMissing { step: node.name.to_string() });
    };
    match case.state.holder(node.id) {
        Some(holder) if holder == agent => Ok(()),
        Some(holder) => Err(Rejection::HeldBy { holder: holder.clone() }),
        None => case.not_suspended(),
    }
}

fn answered(node: &Node, answer: Option<u32>) -> Result<Option<u32>, Rejection> {
    match (node.is_decision(), answer) {
        (true, Some(code)) if (code as usize) < node.answers().len() => Ok(Some(code)),
        (true, Some(_)) => Err(data::answer_unknown(node)),
        (true, None) => Err(Rejection::AnswerMissing {
            step: node.name.to_string(),
            answers: data::answers(node),
        }),
        (false, Some(_)) => Err(Rejection::AnswerUnexpected { step: node.name.to_string() }),
        (false, None) => Ok(None),
    }
}

fn going_round_too_often(case: Case<'_>, node: &Node, code: Option<u32>) -> Option<u32> {
    if code == Some(LOOP_REPEAT) { automatic::rounds_used_up(case.state, node) } else { None }
}
