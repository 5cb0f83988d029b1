//! Replanning: somebody else is to do steps, at other times, or nobody promises them any more.

use legwork_model::event::{Event, Replanned};

use super::{Case, Decision};
use crate::rejection::Rejection;

pub(super) fn replan(case: Case<'_>, replanned: Box<Replanned>) -> Result<Decision, Rejection> {
    case.alive()?;
    case.gives_orders()?;
    case.answer(Event::Replanned(replanned))
}
