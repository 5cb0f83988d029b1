//! Claiming: a work item has one holder.
//!
//! A second claim is refused with the name of the holder, also a repeated claim of the holder.

use legwork_model::event::Event;
use legwork_model::id::{Activity, AgentId};

use super::{Case, Decision};
use crate::rejection::Rejection;

pub(super) fn claim(
    case: Case<'_>,
    activity: Activity,
    by: AgentId,
) -> Result<Decision, Rejection> {
    case.alive()?;
    let node = case.work_item(&activity)?;
    if let Some(holder) = case.state.holder(node.id) {
        return Err(Rejection::HeldBy { holder: holder.clone() });
    }
    case.not_suspended()?;
    case.answer(Event::Claimed { activity, by })
}
