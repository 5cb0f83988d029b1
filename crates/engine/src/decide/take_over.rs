//! Taking over: a substitute goes on with the item of an absent person.
//!
//! Authorisation is checked before; here the item only has to have another holder.

use legwork_model::event::Event;
use legwork_model::id::{Activity, AgentId};

use super::{Case, Decision};
use crate::rejection::Rejection;

pub(super) fn take_over(
    case: Case<'_>,
    activity: Activity,
    by: AgentId,
) -> Result<Decision, Rejection> {
    case.alive()?;
    let node = case.work_item(&activity)?;
    match case.state.holder(node.id) {
        None => Err(Rejection::NotHeld { step: node.name.to_string() }),
        Some(holder) if *holder == by => Err(Rejection::HeldBy { holder: by }),
        Some(_) => case.answer(Event::Delegated { activity, by: by.clone(), to: by }),
    }
}
