//! Suspending and resuming.
//!
//! While suspended, held work may still be completed or fail, incidents may be resolved, and the
//! marking goes on; but nobody can take up new work.

use legwork_model::event::{Event, Performer};

use super::{Case, Decision, cut};
use crate::rejection::Rejection;
use crate::state::Lifecycle;

pub(super) fn suspend(
    case: Case<'_>,
    by: Performer,
    reason: Option<&str>,
) -> Result<Decision, Rejection> {
    case.alive()?;
    case.gives_orders()?;
    case.not_suspended()?;
    case.answer(Event::Suspended { by, reason: reason.map(cut) })
}

pub(super) fn resume(
    case: Case<'_>,
    by: Performer,
    reason: Option<&str>,
) -> Result<Decision, Rejection> {
    case.alive()?;
    case.gives_orders()?;
    match case.state.lifecycle() {
        Lifecycle::Suspended => case.answer(Event::Resumed { by, reason: reason.map(cut) }),
        Lifecycle::Running | Lifecycle::Completed | Lifecycle::Aborted => {
            Err(Rejection::NotSuspended)
        }
    }
}
