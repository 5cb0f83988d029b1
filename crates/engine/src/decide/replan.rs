//! Replanning: somebody else is to do steps, at other times, or nobody promises them any more.
//!
//! Decided where the instance was started; the others that have to do with it are told, and put it down as well.

use legwork_model::event::{Event, Replanned};

use super::{Case, Decision};
use crate::rejection::Rejection;

pub(super) fn replan(case: Case<'_>, replanned: Box<Replanned>) -> Result<Decision, Rejection> {
    case.alive()?;
    case.answer(Event::Replanned(replanned))
}
