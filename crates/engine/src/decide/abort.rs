//! Aborting: the instance ends where it stands.
//!
//! Everything open is withdrawn; what was done stays done and in the history. That goes for results of
//! executors too that count and are not confirmed: they may know.

use legwork_model::event::{Completed, Event, Performer, RequestDigest};

use super::{Case, Decision, Draft, cut};
use crate::rejection::Rejection;
use crate::state::Answer;

pub(super) fn abort(case: Case<'_>, by: Performer, reason: &str) -> Result<Decision, Rejection> {
    case.alive()?;
    case.gives_orders()?;
    Ok(ended_by(case, Event::Aborted { by, reason: cut(reason) }))
}

/// What an event leads to that aborts the instance, given here or elsewhere.
pub(super) fn ended_by(case: Case<'_>, event: Event) -> Decision {
    let mut draft = Draft::of(case);
    for (activity, answer) in case.state.answers(case.schema) {
        let Answer { by, started_at, writes, lease } = answer.clone();
        let (code, request, home, channel) = (None, Some(RequestDigest(lease)), None, None);
        let done = Completed { activity, by, started_at, writes, code, request, home, channel };
        draft.record(Event::Completed(done));
    }
    draft.record(event);
    // Nothing that has become due by that is decided any more.
    draft.undecided.clear();
    draft.finish()
}
