//! Aborting: the instance ends at once.
//!
//! Open activities are withdrawn; completed ones stay done and in the history. So do accepted results
//! of executors that are not acknowledged: the executors may know already.

use legwork_model::event::{Completed, Event, Performer, RequestDigest};

use super::{Case, Decision, Draft, cut};
use crate::rejection::Rejection;
use crate::state::Answer;

pub(super) fn abort(case: Case<'_>, by: Performer, reason: &str) -> Result<Decision, Rejection> {
    case.alive()?;
    case.gives_orders()?;
    Ok(ended_by(case, Event::Aborted { by, reason: cut(reason) }))
}

/// The decision of an event that aborts the instance, decided here or received.
pub(super) fn ended_by(case: Case<'_>, event: Event) -> Decision {
    let mut draft = Draft::of(case);
    for (activity, answer) in case.state.answers(case.schema) {
        let Answer { by, started_at, writes, lease } = answer.clone();
        let (code, request, home, channel) = (None, Some(RequestDigest(lease)), None, None);
        let done = Completed { activity, by, started_at, writes, code, request, home, channel };
        draft.record(Event::Completed(done));
    }
    draft.record(event);
    // Decisions that have become due are dropped.
    draft.undecided.clear();
    draft.finish()
}
