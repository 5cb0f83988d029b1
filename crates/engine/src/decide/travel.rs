//! Transfers to and from other servers that control parts of the same instance.
//!
//! A transfer is accepted once, in order, together with all predecessors of its subject.

use legwork_model::event::{Event, FetchedValue, Orders, Parcel, Received};
use legwork_model::id::{NodeId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;

use super::{Case, Decision, Draft, Here, abort};
use crate::evolve;
use crate::rejection::Rejection;
use crate::state::NodeState;

/// Begins an instance at a server that it migrates to for the first time.
pub fn receive_first(
    here: &dyn Here,
    schema: &Schema,
    received: Box<Received>,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    let state = evolve::begin_elsewhere(schema, &received).ok_or(Rejection::NoBeginning)?;
    receive(Case { here, schema, state: &state, now }, received)
}

pub(super) fn send(case: Case<'_>, to: ServerId, parcel: Parcel) -> Result<Decision, Rejection> {
    let number = case.state.peer(to).map_or(0, |peer| peer.sent) + 1;
    case.answer(Event::Sent { to, number, parcel })
}

pub(super) fn deliver(case: Case<'_>, to: ServerId, number: u32) -> Result<Decision, Rejection> {
    let waiting = case.state.peer(to).map_or(&[][..], |peer| &peer.waiting);
    if waiting.iter().any(|outgoing| outgoing.number == number) {
        case.answer(Event::Delivered { to, number })
    } else {
        Err(Rejection::AlreadyDone)
    }
}

/// Redirects unacknowledged transfers to another server. Only if no part of the instance is known
/// to have reached the first one: a server that has had a part of it keeps its place in the domain.
pub(super) fn redirect(
    case: Case<'_>,
    from: ServerId,
    to: ServerId,
) -> Result<Decision, Rejection> {
    let Some(peer) = case.state.peer(from).filter(|peer| peer.is_untouched()) else {
        return Err(Rejection::AlreadyDone);
    };
    let had_a_part = case.state.started_elsewhere() == Some(from)
        || case.state.completions().any(|done| done.server == Some(from));
    if peer.waiting.is_empty() || from == to || had_a_part {
        return Err(Rejection::AlreadyDone);
    }
    // After the end of an instance, a server that never had a part of it need not be told.
    let to = Some(to).filter(|_| !case.state.lifecycle().has_ended());
    case.answer(Event::Redirected { from, to })
}

pub(super) fn receive(case: Case<'_>, received: Box<Received>) -> Result<Decision, Rejection> {
    let before = case.state.peer(received.from).map_or(0, |peer| peer.received);
    let expected = if received.parcel.is_part() { before } else { before + 1 };
    match received.number.cmp(&expected) {
        std::cmp::Ordering::Less => Err(Rejection::AlreadyDone),
        std::cmp::Ordering::Greater => Err(Rejection::OutOfOrder { expected }),
        std::cmp::Ordering::Equal if aborts(case, &received) => {
            Ok(abort::ended_by(case, Event::Received(received)))
        }
        std::cmp::Ordering::Equal => case.answer(Event::Received(received)),
    }
}

/// Whether it was aborted elsewhere, and not yet here.
fn aborts(case: Case<'_>, received: &Received) -> bool {
    let order = received.parcel.order();
    order.is_some_and(|order| order.what == Orders::Abort) && case.alive().is_ok()
}

pub(super) fn fetch(case: Case<'_>, values: Vec<FetchedValue>) -> Result<Decision, Rejection> {
    // Also after the end: its results may still be elsewhere.
    case.answer(Event::Fetched { values })
}

/// The end was reached, or skipped: recorded once, by the server that controls the end.
pub(super) fn finish(case: Case<'_>) -> Result<Decision, Rejection> {
    case.alive()?;
    let end: NodeId = case.schema.end();
    let settled = match case.state.node_state(end) {
        NodeState::Completed | NodeState::Skipped => true,
        NodeState::NotActivated
        | NodeState::Activated
        | NodeState::Selected
        | NodeState::Failed => false,
    };
    if !settled {
        return Err(Rejection::NoSuchActivity);
    }
    let mut draft = Draft::of(case);
    draft.record(Event::Finished);
    Ok(draft.finish())
}
