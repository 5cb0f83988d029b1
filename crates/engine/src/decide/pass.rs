//! The deadline passes: recorded where the instance was started.

use legwork_model::event::{Event, Then};
use legwork_model::time::Timestamp;

use super::{Case, Decision};
use crate::rejection::Rejection;

pub(super) fn pass(case: Case<'_>, at: Timestamp, then: Then) -> Result<Decision, Rejection> {
    case.alive()?;
    case.gives_orders()?;
    case.answer(Event::DeadlinePassed { at, then })
}
