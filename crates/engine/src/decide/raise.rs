//! Raising: an open activity cannot go on, for a reason outside of the instance.
//!
//! A claim ends with it; the activity goes on when the incident is resolved.

use legwork_model::event::{Event, Incident};
use legwork_model::id::Activity;

use super::{Case, Decision};
use crate::rejection::Rejection;

pub(super) fn raise(
    case: Case<'_>,
    activity: Activity,
    incident: Incident,
) -> Result<Decision, Rejection> {
    case.alive()?;
    case.open(&activity)?;
    case.answer(Event::IncidentRaised { activity, incident })
}
