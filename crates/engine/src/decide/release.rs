//! Releasing: a claimed work item is offered to all its actors again.
//!
//! Only its holder can release it.

use legwork_model::event::Event;
use legwork_model::id::{Activity, AgentId};

use super::{Case, Decision};
use crate::rejection::Rejection;

pub(super) fn release(
    case: Case<'_>,
    activity: Activity,
    by: AgentId,
) -> Result<Decision, Rejection> {
    case.alive()?;
    let node = case.work_item(&activity)?;
    match case.state.holder(node.id) {
        Some(holder) if *holder == by => case.answer(Event::Released { activity, by }),
        Some(holder) => Err(Rejection::HeldBy { holder: holder.clone() }),
        None => Err(Rejection::NotHeld { step: node.name.to_string() }),
    }
}
