//! Delegating: a work item goes to another person, who holds it from then on.
//!
//! Its holder can hand it on; while nobody holds it, whoever may claim it can (it counts as claiming
//! first). A suspended instance lets held work change hands, but nobody take up new work.

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
