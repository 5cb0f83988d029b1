//! Aborting: the instance ends where it stands.
//!
//! Everything open is withdrawn; what was done stays done and in the history.

use legwork_model::event::{Event, Performer};

use super::{Case, Decision, cut};
use crate::rejection::Rejection;

pub(super) fn abort(case: Case<'_>, by: Performer, reason: &str) -> Result<Decision, Rejection> {
    case.alive()?;
    case.gives_orders()?;
    case.answer(Event::Aborted { by, reason: cut(reason) })
}
