//! Answering: the result of an executor is accepted, and the step is done when the executor has
//! acknowledged that.
//!
//! A step may have been assigned several times; one result is accepted. From then on no other
//! completion or failure is.

use legwork_model::event::{Answered, Assigned, Event, RequestDigest};
use legwork_model::id::Activity;
use legwork_model::schema::NodeKind;

use super::complete::{self, Done};
use super::{Case, Decision};
use crate::data;
use crate::rejection::Rejection;
use crate::state::Answer;

/// Records an assignment.
pub(super) fn assign(case: Case<'_>, assigned: Box<Assigned>) -> Result<Decision, Rejection> {
    case.alive()?;
    let node = case.open(&assigned.activity)?;
    if !matches!(node.kind, NodeKind::Automatic { .. }) {
        return Err(Rejection::NotAJob { step: node.name.to_string() });
    }
    case.not_answered(node)?;
    case.answer(Event::Assigned(assigned))
}

/// A result is accepted.
pub(super) fn answer(case: Case<'_>, answered: Answered) -> Result<Decision, Rejection> {
    case.alive()?;
    let node = case.open(&answered.activity)?;
    if !matches!(node.kind, NodeKind::Automatic { .. }) {
        return Err(Rejection::NotAJob { step: node.name.to_string() });
    }
    case.not_answered(node)?;
    data::check(case.schema, node, &answered.writes)?;
    case.answer(Event::Answered(Box::new(answered)))
}

/// The executor has acknowledged that its result counts.
pub(super) fn confirm(case: Case<'_>, activity: &Activity) -> Result<Decision, Rejection> {
    case.alive()?;
    let node = case.open(activity)?;
    let Some(answer) = case.state.answer(node.id) else {
        return Err(Rejection::NotAnswered { step: node.name.to_string() });
    };
    let Answer { by, started_at, writes: outputs, lease } = answer.clone();
    // Later questions about the outcome of an assignment find it here.
    let (activity, answer, request) = (activity.clone(), None, Some(RequestDigest(lease)));
    let channel = None;
    let done = Done { activity, by, started_at, outputs, answer, request, channel };
    complete::finish(case, node, done)
}
