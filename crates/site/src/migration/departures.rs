//! What goes to other servers by a decision: control, orders, word of the end.
//!
//! Invariant: it stands in the same record as the decision, so that nothing is ever decided and not
//! told. Each server is told the end, and each order, once.

use std::collections::BTreeSet;

use legwork_engine::{Command, Decision, Lifecycle, State};
use legwork_model::event::{Event, Order, Orders, Parcel, Performer};
use legwork_model::id::{InstanceId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;

use crate::Site;
use crate::cluster::seat::At;
use crate::migration::passages::{ends_here, passages};

impl Site {
    /// Adds to a decision what goes to other servers by it.
    pub(crate) fn with_departures(
        &self,
        id: InstanceId,
        schema: &Schema,
        before: Option<&State>,
        mut decision: Decision,
        now: Timestamp,
    ) -> Decision {
        let Some(at) = self.cluster.seat.as_ref().map(|seat| seat.at(id)) else { return decision };
        for (to, passages) in passages(at, schema, before, &decision.state) {
            let order = order_in_force(&decision.state);
            let parcel = Parcel::Control { passages, order };
            self.also(id, schema, &mut decision, Command::Send { to, parcel }, now);
        }
        if !decision.state.is_shared() {
            return decision;
        }
        if let Some(order) = new_order(before, &decision) {
            for to in reached(&decision) {
                let parcel = Parcel::Order(order.clone());
                self.also(id, schema, &mut decision, Command::Send { to, parcel }, now);
            }
        }
        if ends_here(at, schema, &decision.state) {
            self.also(id, schema, &mut decision, Command::Finish, now);
        }
        let is_completed = |state: &State| state.lifecycle() == Lifecycle::Completed;
        if is_completed(&decision.state) && !before.is_some_and(is_completed) {
            let ended = decision.state.ended_at();
            for (to, told) in untold(at, &decision) {
                let parcel = Parcel::Finished { told, at: ended };
                self.also(id, schema, &mut decision, Command::Send { to, parcel }, now);
            }
        }
        decision
    }
}

/// The order that whoever gets control has to know of.
fn order_in_force(state: &State) -> Option<Order> {
    let suspended =
        || Order { number: 1, what: Orders::Suspend, by: Performer::System, reason: None };
    let implied = || (state.lifecycle() == Lifecycle::Suspended).then(suspended);
    state.order().cloned().or_else(implied)
}

/// The order to pass on: one that was given here, or one that came and is new here.
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

/// The servers that control went to from here, but for the one that an order came from.
fn reached(decision: &Decision) -> Vec<ServerId> {
    let from = received(decision).map(|(from, _)| from);
    let peers = decision.state.peers().iter().filter(|peer| peer.sent > 0);
    peers.map(|peer| peer.server).filter(|server| Some(*server) != from).collect()
}

/// Who has to be told the end, each with the list of all that know it then.
fn untold(at: At<'_>, decision: &Decision) -> Vec<(ServerId, Vec<ServerId>)> {
    let mut told: BTreeSet<ServerId> = BTreeSet::from([at.seat.here]);
    if let Some((from, Parcel::Finished { told: others, .. })) = received(decision) {
        told.insert(from);
        told.extend(others);
    }
    let others = at.others(&decision.state);
    let untold: Vec<ServerId> = others.into_iter().filter(|to| !told.contains(to)).collect();
    told.extend(&untold);
    let told: Vec<ServerId> = told.into_iter().collect();
    untold.into_iter().map(|to| (to, told.clone())).collect()
}

/// What came from another server, if that is what the decision is about.
fn received(decision: &Decision) -> Option<(ServerId, &Parcel)> {
    decision.events.iter().find_map(|event| {
        let Event::Received(received) = event else { return None };
        Some((received.from, &received.parcel))
    })
}
