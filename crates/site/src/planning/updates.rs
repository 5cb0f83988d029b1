//! Changes of plans, sent to the other servers that have a part of an instance, and resent with back-off until
//! acknowledged.
//!
//! A plan changes at the server that started the instance, which numbers each change. A receiver forwards a change to
//! the other servers it knows of. A change older than the last known one of a step is ignored: it came by another
//! route, or late.
//!
//! Invariant: nothing here is stored. After a restart the server that started an instance resends its whole plan.

use std::collections::BTreeMap;
use std::time::Duration;

use legwork_engine::{Command, State};
use legwork_model::event::{Leg, Replanned};
use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_plan::TaskId;

use super::cases::steps_of;
use super::steps::task_of;
use crate::Site;
use crate::message::{self, Instance, Message};
use crate::output::Output;
use crate::planning::Planning;
use crate::retries::{Backoff, Retries};

/// Back-off before a change is resent.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// How many are sent at a time: after a restart there may be many.
const SENT_AT_ONCE: usize = 256;

#[derive(Debug)]
pub(super) struct Updates {
    /// Changes that were not acknowledged.
    unacked: Retries<(InstanceId, ServerId), Unacked>,
    /// The number of the last known change of each step.
    known: BTreeMap<TaskId, u64>,
    last: u64,
}

#[derive(Debug)]
struct Unacked {
    replanned: Replanned,
    /// 0: assigned when it is sent.
    number: u64,
}

impl Default for Updates {
    fn default() -> Self {
        Self { unacked: Retries::new(BACKOFF), known: BTreeMap::new(), last: 0 }
    }
}

impl Updates {
    /// An instance is over.
    pub(super) fn forget(&mut self, id: InstanceId) {
        let (first, last) = ((id, ServerId(0)), (id, ServerId(u16::MAX)));
        self.unacked.remove_range(first..=last);
        self.known.extract_if(steps_of(id), |_, _| true).for_each(drop);
    }

    /// After a restart it is unknown which changes of an instance started here are acknowledged.
    pub(super) fn recover(&mut self, id: InstanceId, state: &State) {
        let Some(deadline) = state.deadline() else { return };
        for peer in state.peers() {
            let reason = "the server that started it is back".to_owned();
            let replanned = Replanned { legs: deadline.legs.clone(), reason };
            let unacked = Unacked { replanned, number: 0 };
            self.unacked.insert((id, peer.server), unacked, Timestamp::default());
        }
    }

    /// Adds a change for a server to those it has not acknowledged yet.
    fn add(
        &mut self,
        id: InstanceId,
        to: ServerId,
        replanned: &Replanned,
        number: u64,
        now: Timestamp,
    ) {
        let before = self.unacked.remove(&(id, to)).map(|before| before.replanned.legs);
        let is_other = |leg: &Leg| {
            let mut legs = replanned.legs.iter();
            legs.all(|own| (own.node, own.round) != (leg.node, leg.round))
        };
        let mut legs: Vec<Leg> = before.unwrap_or_default().into_iter().filter(is_other).collect();
        legs.extend(replanned.legs.iter().cloned());
        let replanned = Replanned { legs, reason: replanned.reason.clone() };
        self.unacked.insert((id, to), Unacked { replanned, number }, now);
    }

    /// The legs of a change that are not older than the known ones.
    fn newer_legs(&self, id: InstanceId, number: u64, legs: Vec<Leg>) -> Vec<Leg> {
        let known = |leg: &Leg| self.known.get(&task_of(id, leg)).copied().unwrap_or(0);
        legs.into_iter().filter(|leg| number >= known(leg)).collect()
    }

    fn note_known(&mut self, id: InstanceId, number: u64, legs: &[Leg]) {
        self.known.extend(legs.iter().map(|leg| (task_of(id, leg), number)));
    }
}

/// A number higher than all before, including those from before a restart.
fn next(last: &mut u64, now: Timestamp) -> u64 {
    *last = (*last + 1).max(now.0.unsigned_abs());
    *last
}

impl Planning {
    pub(super) fn next_update(&self) -> Option<Timestamp> {
        self.updates.unacked.next_due()
    }

    /// Another server acknowledges a change of a plan.
    pub(crate) fn on_replanned_ack(&mut self, from: ServerId, id: InstanceId, number: u64) {
        let updates = &mut self.updates;
        if updates.unacked.get(&(id, from)).is_some_and(|it| it.number == number) {
            updates.unacked.remove(&(id, from));
        }
    }
}

impl Site {
    /// Sends a change of a plan to the other servers involved in an instance.
    pub(super) fn send_plan(&mut self, id: InstanceId, replanned: &Replanned, now: Timestamp) {
        let number = next(&mut self.planning.updates.last, now);
        self.forward_plan(id, replanned, (number, None), now);
    }

    fn forward_plan(
        &mut self,
        id: InstanceId,
        replanned: &Replanned,
        (number, from): (u64, Option<ServerId>),
        now: Timestamp,
    ) {
        let Some((_, state)) = self.cases.instances.state(id) else { return };
        let peers = state.peers().iter().map(|peer| peer.server).filter(|to| Some(*to) != from);
        for to in peers.collect::<Vec<_>>() {
            self.planning.updates.add(id, to, replanned, number, now);
        }
        self.planning.updates.note_known(id, number, &replanned.legs);
        self.resend_plans(now);
    }

    /// Sends all changes that are due.
    pub(super) fn resend_plans(&mut self, now: Timestamp) {
        let Updates { unacked, last, .. } = &mut self.planning.updates;
        for _ in 0..SENT_AT_ONCE {
            let Some(((id, to), unacked)) = unacked.attempt_next(now) else { return };
            if unacked.number == 0 {
                unacked.number = next(last, now);
            }
            let (instance, number) = (Instance(id), unacked.number);
            let replanned = Box::new(unacked.replanned.clone());
            let message =
                Message::Deadline(message::Deadline::Replanned { instance, replanned, number });
            self.out.push(Output::Send { to, message });
        }
    }

    /// The server that started an instance, or one in between, sends a change of a plan.
    pub(crate) fn on_replanned(
        &mut self,
        from: ServerId,
        id: InstanceId,
        (replanned, number): (Replanned, u64),
        now: Timestamp,
    ) {
        let Some((_, state)) = self.cases.instances.state(id) else { return };
        let is_elsewhere = state.started_elsewhere().is_some();
        if let Some(deadline) = state.deadline().filter(|_| is_elsewhere) {
            let legs = self.planning.updates.newer_legs(id, number, replanned.legs);
            let is_news = legs.iter().any(|leg| !deadline.legs.contains(leg));
            let replanned = Replanned { legs, reason: replanned.reason };
            let replan = Command::Replan(Box::new(replanned.clone()));
            // If it cannot be recorded now, it is not acknowledged, and so resent.
            if is_news && self.command(id, replan, now).is_err() {
                return;
            }
            if is_news {
                self.forward_plan(id, &replanned, (number, Some(from)), now);
                self.touch_items(id, &replanned.legs);
            }
        }
        let message =
            Message::Deadline(message::Deadline::ReplannedAck { instance: Instance(id), number });
        self.out.push(Output::Send { to: from, message });
    }
}
