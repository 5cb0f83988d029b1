//! Changes of plans, sent to the other servers that have a part of an instance, and resent with back-off until acknowledged.
//!
//! A plan changes at the server that started the instance, which numbers each change. A server that receives a change passes
//! it on to the others it knows of. A change that is older than what is known of a step does not count: it came by another
//! route, or late.
//!
//! Invariant: nothing here is stored. After a restart the server that started an instance sends its whole plan anew.

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
const SAID_AT_ONCE: usize = 256;

#[derive(Debug)]
pub(super) struct Updates {
    /// What servers have not acknowledged.
    unheard: Retries<(InstanceId, ServerId), Unheard>,
    /// The number of the last change that is known of a step.
    known: BTreeMap<TaskId, u64>,
    last: u64,
}

#[derive(Debug)]
struct Unheard {
    replanned: Replanned,
    /// 0: it gets one when it is sent.
    number: u64,
}

impl Default for Updates {
    fn default() -> Self {
        Self { unheard: Retries::new(BACKOFF), known: BTreeMap::new(), last: 0 }
    }
}

impl Updates {
    /// An instance is over.
    pub(super) fn forget(&mut self, id: InstanceId) {
        let (first, last) = ((id, ServerId(0)), (id, ServerId(u16::MAX)));
        self.unheard.remove_range(first..=last);
        self.known.extract_if(steps_of(id), |_, _| true).for_each(drop);
    }

    /// After a restart it is not known what others have acknowledged of the plan of an instance that was started here.
    pub(super) fn recover(&mut self, id: InstanceId, state: &State) {
        let Some(deadline) = state.deadline() else { return };
        for peer in state.peers() {
            let reason = "the server that started it is back".to_owned();
            let replanned = Replanned { legs: deadline.legs.clone(), reason };
            let unheard = Unheard { replanned, number: 0 };
            self.unheard.insert((id, peer.server), unheard, Timestamp::default());
        }
    }

    /// A server is to be sent this, besides what it has not acknowledged yet.
    fn add(&mut self, id: InstanceId, to: ServerId, told: &Replanned, number: u64, now: Timestamp) {
        let before = self.unheard.remove(&(id, to)).map(|before| before.replanned.legs);
        let is_other = |leg: &Leg| {
            let mut legs = told.legs.iter();
            legs.all(|own| (own.node, own.round) != (leg.node, leg.round))
        };
        let mut legs: Vec<Leg> = before.unwrap_or_default().into_iter().filter(is_other).collect();
        legs.extend(told.legs.iter().cloned());
        let replanned = Replanned { legs, reason: told.reason.clone() };
        self.unheard.insert((id, to), Unheard { replanned, number }, now);
    }

    /// Of what is told, that which is not older than what is known.
    fn news(&self, id: InstanceId, number: u64, legs: Vec<Leg>) -> Vec<Leg> {
        let known = |leg: &Leg| self.known.get(&task_of(id, leg)).copied().unwrap_or(0);
        legs.into_iter().filter(|leg| number >= known(leg)).collect()
    }

    fn know(&mut self, id: InstanceId, number: u64, legs: &[Leg]) {
        self.known.extend(legs.iter().map(|leg| (task_of(id, leg), number)));
    }
}

/// A number that is higher than all before, also than those from before a restart.
fn next(last: &mut u64, now: Timestamp) -> u64 {
    *last = (*last + 1).max(now.0.unsigned_abs());
    *last
}

impl Planning {
    pub(super) fn next_update(&self) -> Option<Timestamp> {
        self.updates.unheard.next_due()
    }

    /// Another server acknowledges a change of a plan.
    pub(crate) fn on_replanned_ack(&mut self, from: ServerId, id: InstanceId, number: u64) {
        let updates = &mut self.updates;
        if updates.unheard.get(&(id, from)).is_some_and(|it| it.number == number) {
            updates.unheard.remove(&(id, from));
        }
    }
}

impl Site {
    /// Others that have to do with an instance are told how it is planned now.
    pub(super) fn tell_plan(&mut self, id: InstanceId, replanned: &Replanned, now: Timestamp) {
        let number = next(&mut self.planning.updates.last, now);
        self.pass_plan_on(id, replanned, (number, None), now);
    }

    fn pass_plan_on(
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
        self.planning.updates.know(id, number, &replanned.legs);
        self.resend_plans(now);
    }

    /// Sends what is not acknowledged and is due.
    pub(super) fn resend_plans(&mut self, now: Timestamp) {
        let Updates { unheard, last, .. } = &mut self.planning.updates;
        for _ in 0..SAID_AT_ONCE {
            let Some(((id, to), unheard)) = unheard.attempt_next(now) else { return };
            if unheard.number == 0 {
                unheard.number = next(last, now);
            }
            let (instance, number) = (Instance(id), unheard.number);
            let replanned = Box::new(unheard.replanned.clone());
            let message =
                Message::Deadline(message::Deadline::Replanned { instance, replanned, number });
            self.out.push(Output::Send { to, message });
        }
    }

    /// The server that started an instance, or one in between, tells how steps are planned now.
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
            let legs = self.planning.updates.news(id, number, replanned.legs);
            let is_news = legs.iter().any(|leg| !deadline.legs.contains(leg));
            let told = Replanned { legs, reason: replanned.reason };
            let replan = Command::Replan(Box::new(told.clone()));
            // If it cannot be recorded now it is not acknowledged, and so resent.
            if is_news && self.command(id, replan, now).is_err() {
                return;
            }
            if is_news {
                self.pass_plan_on(id, &told, (number, Some(from)), now);
                self.show_plan(id, &told.legs);
            }
        }
        let message =
            Message::Deadline(message::Deadline::ReplannedAck { instance: Instance(id), number });
        self.out.push(Output::Send { to: from, message });
    }
}
