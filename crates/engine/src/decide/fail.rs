//! Failing: an attempt at a job failed.
//!
//! It is repeated with exponential back-off as often as its definition says; then it is an
//! incident. An attempt is never lost silently.

use legwork_model::event::{Event, Incident, Performer};
use legwork_model::id::Activity;
use legwork_model::schema::NodeKind;

use super::{Case, Decision, Draft, cut};
use crate::rejection::Rejection;

pub(super) fn fail(
    case: Case<'_>,
    activity: Activity,
    by: Performer,
    error: &str,
    retry: bool,
) -> Result<Decision, Rejection> {
    case.alive()?;
    let node = case.open(&activity)?;
    let NodeKind::Automatic { retry: policy, .. } = &node.kind else {
        return Err(Rejection::NotAJob { step: node.name.to_string() });
    };
    case.not_answered(node)?;
    let failed = case.state.pending(node.id).map_or(0, |pending| pending.attempts);
    let attempts = failed.saturating_add(1);
    let again = retry && attempts <= policy.times;
    let retry_at = again.then(|| case.now + policy.pause_after(attempts));
    let error = cut(error);
    let incident = Incident::RetriesExhausted { attempts, error: error.clone() };
    let mut draft = Draft::of(case);
    draft.record(Event::Failed { activity: activity.clone(), by, error, retry_at });
    if !again {
        draft.record(Event::IncidentRaised { activity, incident });
    }
    Ok(draft.finish())
}
