//! Raising: an open activity cannot go on, for a reason that lies outside of the instance.
//!
//! A claim ends with it; the way on is to resolve the incident.

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
