//! Replanning: steps have other performers or other dates, or are no longer promised.
//!
//! Decided where the instance was started; the other servers of the instance are told, and record it as well.

use legwork_model::event::{Event, Replanned};

use super::{Case, Decision};
use crate::rejection::Rejection;

pub(super) fn replan(case: Case<'_>, replanned: Box<Replanned>) -> Result<Decision, Rejection> {
    case.alive()?;
    case.answer(Event::Replanned(replanned))
}
