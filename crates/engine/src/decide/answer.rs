//! Answering: the result of an executor counts, and the step is done when the executor has confirmed
//! that it knows.
//!
//! Of all that an executor may have been given more than once, one result is taken. From then on
//! nobody else can complete the step or fail it.

use legwork_model::event::{Answered, Assigned, Event, RequestDigest};
use legwork_model::id::Activity;
use legwork_model::schema::NodeKind;

use super::complete::{self, Done};
use super::{Case, Decision};
use crate::data;
use crate::rejection::Rejection;
use crate::state::Answer;

/// It is taken down who was given what.
pub(super) fn assign(case: Case<'_>, assigned: Box<Assigned>) -> Result<Decision, Rejection> {
    case.alive()?;
    let node = case.open(&assigned.activity)?;
    if !matches!(node.kind, NodeKind::Automatic { .. }) {
        return Err(Rejection::NotAJob { step: node.name.to_string() });
    }
    case.not_answered(node)?;
    case.answer(Event::Assigned(assigned))
}

/// A result is taken.
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

/// The one who gave the result knows that it counts.
pub(super) fn confirm(case: Case<'_>, activity: &Activity) -> Result<Decision, Rejection> {
    case.alive()?;
    let node = case.open(activity)?;
    let Some(answer) = case.state.answer(node.id) else {
        return Err(Rejection::NotAnswered { step: node.name.to_string() });
    };
    let Answer { by, started_at, writes: outputs, lease } = answer.clone();
    // Whoever asks later what became of an assignment finds it here.
    let (activity, answer, request) = (activity.clone(), None, Some(RequestDigest(lease)));
    let channel = None;
    let done = Done { activity, by, started_at, outputs, answer, request, channel };
    complete::finish(case, node, done)
}
