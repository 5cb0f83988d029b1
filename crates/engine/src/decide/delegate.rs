//! Delegating: a work item gets another person as its holder.
//!
//! Its holder can delegate it; without a holder any of its actors can (it counts as claiming first).
//! In a suspended instance held work can change hands, but nobody can take up new work.

use legwork_model::event::Event;
use legwork_model::id::{Activity, AgentId};

use super::{Case, Decision};
use crate::rejection::Rejection;

pub(super) fn delegate(
    case: Case<'_>,
    activity: Activity,
    by: AgentId,
    to: AgentId,
) -> Result<Decision, Rejection> {
    case.alive()?;
    let node = case.work_item(&activity)?;
    match case.state.holder(node.id) {
        Some(holder) if *holder != by || *holder == to => {
            return Err(Rejection::HeldBy { holder: holder.clone() });
        }
        Some(_) => {}
        None => case.not_suspended()?,
    }
    case.answer(Event::Delegated { activity, by, to })
}
