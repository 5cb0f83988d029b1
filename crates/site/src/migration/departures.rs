//! Transfers that follow from a decision: control, orders, notice of the end.
//!
//! Invariant: a transfer is in the same record as its decision, so that a decision without its transfers is never
//! stored. Each server is sent the end, and each order, once.

use std::collections::BTreeSet;

use legwork_engine::{Command, Decision, Lifecycle, State};
use legwork_model::event::{Event, Order, Orders, Parcel, Performer};
use legwork_model::id::{InstanceId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;

use crate::Site;
use crate::cluster::seat::At;
use crate::migration::handover::{ends_here, hand_overs};

impl Site {
    /// Adds the transfers that follow from a decision.
    pub(crate) fn with_departures(
        &self,
        id: InstanceId,
        schema: &Schema,
        before: Option<&State>,
        mut decision: Decision,
        now: Timestamp,
    ) -> Decision {
        let Some(at) = self.cluster.seat.as_ref().map(|seat| seat.at(id)) else { return decision };
        for (to, passages) in hand_overs(at, schema, before, &decision.state) {
            let order = order_in_force(&decision.state);
            let parcel = Parcel::Control { passages, order };
            self.add_command(id, schema, &mut decision, Command::Send { to, parcel }, now);
        }
        if !decision.state.is_shared() {
            return decision;
        }
        if let Some(order) = new_order(before, &decision) {
            for to in control_receivers(&decision) {
                let parcel = Parcel::Order(order.clone());
                self.add_command(id, schema, &mut decision, Command::Send { to, parcel }, now);
            }
        }
        if ends_here(at, schema, &decision.state) {
            self.add_command(id, schema, &mut decision, Command::Finish, now);
        }
        let is_completed = |state: &State| state.lifecycle() == Lifecycle::Completed;
        if is_completed(&decision.state) && !before.is_some_and(is_completed) {
            let ended = decision.state.ended_at();
            for (to, notified) in unnotified(at, &decision) {
                let parcel = Parcel::Finished { told: notified, at: ended };
                self.add_command(id, schema, &mut decision, Command::Send { to, parcel }, now);
            }
        }
        decision
    }
}

/// The order that every new owner of control has to receive.
fn order_in_force(state: &State) -> Option<Order> {
    let suspended =
        || Order { number: 1, what: Orders::Suspend, by: Performer::System, reason: None };
    let implied = || (state.lifecycle() == Lifecycle::Suspended).then(suspended);
    state.order().cloned().or_else(implied)
}

/// The order to pass on: given here, or received and new here.
fn new_order(before: Option<&State>, decision: &Decision) -> Option<Order> {
    let last = before.and_then(State::order);
    let next = last.map_or(1, |order| order.number.saturating_add(1));
    let given = decision.events.iter().find_map(|event| {
        let (what, by, reason) = if let Event::Suspended { by, reason } = event {
            (Orders::Suspend, by, reason.clone())
        } else if let Event::Resumed { by, reason } = event {
            (Orders::Resume, by, reason.clone())
        } else if let Event::Aborted { by, reason } = event {
            (Orders::Abort, by, Some(reason.clone()))
        } else {
            return None;
        };
        Some(Order { number: next, what, by: by.clone(), reason })
    });
    given.or_else(|| {
        let come = received(decision)?.1.order()?;
        (come.number >= next).then(|| come.clone())
    })
}

/// The servers that control was handed over to from here, except the sender of the order.
fn control_receivers(decision: &Decision) -> Vec<ServerId> {
    let from = received(decision).map(|(from, _)| from);
    let peers = decision.state.peers().iter().filter(|peer| peer.sent > 0);
    peers.map(|peer| peer.server).filter(|server| Some(*server) != from).collect()
}

/// The servers to notify of the end, each with the list of all servers that will know it then.
fn unnotified(at: At<'_>, decision: &Decision) -> Vec<(ServerId, Vec<ServerId>)> {
    let mut notified: BTreeSet<ServerId> = BTreeSet::from([at.seat.here]);
    if let Some((from, Parcel::Finished { told: others, .. })) = received(decision) {
        notified.insert(from);
        notified.extend(others);
    }
    let others = at.others(&decision.state);
    let unnotified: Vec<ServerId> =
        others.into_iter().filter(|to| !notified.contains(to)).collect();
    notified.extend(&unnotified);
    let notified: Vec<ServerId> = notified.into_iter().collect();
    unnotified.into_iter().map(|to| (to, notified.clone())).collect()
}

/// The received transfer, if the decision is about one.
fn received(decision: &Decision) -> Option<(ServerId, &Parcel)> {
    decision.events.iter().find_map(|event| {
        let Event::Received(received) = event else { return None };
        Some((received.from, &received.parcel))
    })
}
