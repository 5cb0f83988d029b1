//! The planner of this server: requests of other servers, and notifications to them.
//!
//! Invariant: a firm reservation is stored before it is confirmed. A reservation that cannot be kept is revoked at
//! once, and the message is resent as long as that is so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_plan::{Reservation, ResourceId, Task, TaskId};

use super::admission::Answered;
use super::reserving::{Attempt, Reserving, Why};
use crate::Site;
use crate::message::{self, Message};
use crate::output::Output;
use crate::planning::Planning;

/// How often plans are checked for late tasks, and how often they are rebuilt: calendars are computed for some time
/// ahead only.
const CHECK_EVERY: Duration = Duration::from_secs(5);
const REFIT_EVERY: Duration = Duration::from_hours(24);
/// How often all reservations of another server are compared with what it wants.
const COMPARE_EVERY: Duration = Duration::from_mins(1);
/// The most reservations in one message.
const HELD_MAX: usize = 500;
/// How often a revocation is resent.
const RESEND_LATE_EVERY: Duration = Duration::from_secs(10);
/// How long a new topology takes to spread before moved resources are dropped.
const SPREAD_TIME: Duration = Duration::from_secs(10);

/// Due times of the planner.
#[derive(Debug, Default)]
pub(super) struct Watch {
    watched: Timestamp,
    refitted: Timestamp,
    compared: Timestamp,
    /// From when on the reservations for this server itself are compared.
    own_from: Timestamp,
    /// Servers that can be reached again: they may have restarted.
    reachable_again: BTreeSet<ServerId>,
    /// Servers that held reservations here since the last start: each minute they are sent what is firm, even if
    /// nothing is.
    askers: BTreeSet<ServerId>,
    /// For each late task: when its revocation was last sent, and why.
    late: BTreeMap<TaskId, (Timestamp, Why)>,
    /// The epoch and the revision of executors for which the homes of resources are known.
    homes: (u32, u64),
    moves_at: Option<Timestamp>,
    /// Before this moment no task counts as late: time has jumped.
    grace_until: Timestamp,
}

impl Planning {
    /// Another server can be reached again: it may have restarted.
    pub(super) fn on_planner_reachable(&mut self, server: ServerId) {
        self.watch.reachable_again.insert(server);
        // It may have missed revocations.
        let sent = self.watch.late.values_mut();
        sent.for_each(|(at, _)| *at = Timestamp::default());
    }

    /// Grace period: no task counts as late before `until`; plans are rebuilt first.
    pub(crate) fn grant_grace(&mut self, until: Timestamp) {
        self.watch.grace_until = until;
        self.watch.refitted = Timestamp::default();
    }

    pub(super) fn grace_until(&self) -> Timestamp {
        self.watch.grace_until
    }

    /// Makes a check of the plans due: performers have other hours, or are gone.
    pub(super) fn check_now(&mut self) {
        self.watch.watched = Timestamp::default();
    }

    pub(super) fn check_later(&mut self, now: Timestamp) {
        self.watch.watched = now;
    }

    /// After a restart: the reservations for this server itself are compared when all cases are read.
    pub(super) fn compare_own_later(&mut self, now: Timestamp) {
        self.watch.own_from = now + COMPARE_EVERY;
    }

    pub(super) fn note_refitted(&mut self, now: Timestamp) {
        self.watch.refitted = now;
    }
}

impl Site {
    pub(super) fn send_reserving(&mut self, to: ServerId, what: Reserving) {
        self.out.push(Output::Send {
            to,
            message: Message::Deadline(message::Deadline::Reserve(Box::new(what))),
        });
    }

    /// A message about reservations from another server.
    pub(crate) fn on_reserve(&mut self, from: ServerId, what: Reserving, now: Timestamp) {
        self.on_planner_message(from, now);
        match what {
            Reserving::Ask { task, attempt, hold_ms } => {
                let hold = hold_ms.map(Duration::from_millis);
                let Answered { grant, earliest, load } =
                    self.on_ask(from, &task, attempt, hold, now);
                let (task, grant) = (task.id, grant.map(Box::new));
                self.send_reserving(
                    from,
                    Reserving::Answer { task, attempt, grant, earliest, load },
                );
            }
            Reserving::Answer { task, attempt, grant, earliest, load } => {
                let answer = Answered { grant: grant.map(|grant| *grant), earliest, load };
                self.on_answer(from, (task, attempt), answer, now);
            }
            Reserving::Confirm { tasks } => {
                let (tasks, lost) = self.on_confirm(from, &tasks, now);
                self.send_reserving(from, Reserving::Confirmed { tasks, lost });
            }
            Reserving::Confirmed { tasks, lost } => self.on_confirmed(from, &tasks, &lost, now),
            Reserving::Release { tasks } => self.on_release(from, &tasks, now),
            Reserving::TakenBack { task, why } => self.on_taken_back(from, task, why, now),
            Reserving::Held { after, tasks, up_to } => {
                self.on_held(from, (after, up_to), &tasks, now);
            }
        }
    }

    /// Bids when a task could be done, or holds a reservation for it.
    pub(super) fn on_ask(
        &mut self,
        asker: ServerId,
        task: &Task,
        attempt: u64,
        hold: Option<Duration>,
        now: Timestamp,
    ) -> Answered {
        self.restore_plans_once(now);
        task.who.iter().for_each(|candidate| self.ensure_planned(&candidate.who, now));
        self.note_occupied(now);
        let planner = &mut self.planning.planner;
        planner.pass(now);
        let Some(hold) = hold else {
            let (earliest, load) = planner.probe(task).unzip();
            return Answered { grant: None, earliest, load: load.unwrap_or_default() };
        };
        if let Some(grant) = planner.grant_of(task.id, asker, attempt) {
            return Answered { grant: Some(grant), ..Answered::default() };
        }
        // A late question must not replace a newer one.
        let own = planner.reservation(task.id).filter(|own| own.asker == asker);
        if own.is_some_and(|own| own.attempt > attempt) {
            return Answered::default();
        }
        let held = planner.hold(task, (asker, attempt), now + hold);
        // Its executor may already be working on it.
        self.executors.assignments.touch(task.id.instance);
        if asker != self.cluster.server_here() {
            self.planning.watch.askers.insert(asker);
        }
        self.record_plan_changes(now);
        match held {
            Ok((grant, displaced)) => {
                for reservation in displaced {
                    self.revoke_reservation(&reservation, Why::Displaced, now);
                }
                Answered { grant: Some(grant), ..Answered::default() }
            }
            Err(earliest) => Answered { earliest, ..Answered::default() },
        }
    }

    /// Makes reservations firm; returns those that are, and those that are not held any more.
    pub(super) fn on_confirm(
        &mut self,
        asker: ServerId,
        tasks: &[Attempt],
        now: Timestamp,
    ) -> (Vec<Attempt>, Vec<Attempt>) {
        self.restore_plans_once(now);
        let planner = &mut self.planning.planner;
        planner.pass(now);
        let parts =
            tasks.iter().copied().partition(|it| planner.confirm(it.task, asker, it.attempt));
        self.record_plan_changes(now);
        parts
    }

    pub(super) fn on_release(&mut self, asker: ServerId, tasks: &[Attempt], now: Timestamp) {
        self.restore_plans_once(now);
        for Attempt { task, attempt } in tasks {
            self.planning.planner.release(*task, asker, *attempt);
        }
        self.record_plan_changes(now);
    }

    /// Notifies a server that one of its reservations is revoked.
    pub(super) fn revoke_reservation(
        &mut self,
        reservation: &Reservation,
        why: Why,
        now: Timestamp,
    ) {
        let Reservation { task, asker, attempt, .. } = *reservation;
        let task = Attempt { task, attempt };
        if asker == self.cluster.server_here() {
            self.on_taken_back(asker, task, why, now);
        } else {
            self.send_reserving(asker, Reserving::TakenBack { task, why });
        }
    }

    /// A resource is not planned here any more.
    pub(super) fn drop_resource(&mut self, id: &ResourceId, now: Timestamp) {
        let lost = self.planning.planner.lose(id);
        self.record_plan_changes(now);
        let why = match id {
            ResourceId::Person(_) | ResourceId::Executor(_) => Why::Gone,
            ResourceId::Workers(_) => Why::Unseen,
        };
        for reservation in lost {
            self.revoke_reservation(&reservation, why, now);
        }
    }

    /// Checks whether all firm reservations can be kept.
    fn check_plans(&mut self, now: Timestamp) {
        self.planning.watch.watched = now;
        if now.since(self.planning.watch.refitted) >= REFIT_EVERY {
            self.refit_all(false, now);
        }
        self.follow_workers(now);
        self.note_occupied(now);
        self.planning.planner.pass(now);
        let late: BTreeSet<TaskId> = self.planning.planner.late().into_iter().collect();
        self.planning.watch.late.retain(|task, _| late.contains(task));
        for task in late {
            let sent = self.planning.watch.late.get(&task).copied();
            if sent.is_none_or(|(at, _)| now.since(at) >= RESEND_LATE_EVERY) {
                self.revoke_late(task, sent.map_or(Why::Late, |(_, why)| why), now);
            }
        }
    }

    fn revoke_late(&mut self, task: TaskId, why: Why, now: Timestamp) {
        self.planning.watch.late.insert(task, (now, why));
        if let Some(reservation) = self.planning.planner.reservation(task).cloned() {
            self.revoke_reservation(&reservation, why, now);
        }
    }

    /// Performers have less time than before: revokes what is late by that, and was not late before.
    pub(super) fn revoke_newly_late(&mut self, before: &[TaskId], now: Timestamp) {
        if now < self.planning.watch.grace_until {
            return;
        }
        for task in self.planning.planner.late() {
            if !before.contains(&task) {
                self.revoke_late(task, Why::Gone, now);
            }
        }
    }

    /// Handles everything that is due at the planner.
    pub(super) fn settle_planner(&mut self, now: Timestamp) {
        self.follow_homes(now);
        if now < self.planning.watch.grace_until {
            return;
        }
        let watch = &self.planning.watch;
        if !self.planning.planner.is_empty() && now.since(watch.watched) >= CHECK_EVERY {
            self.check_plans(now);
        }
        if self.planning.planner.next_due().is_some_and(|due| due <= now) {
            self.planning.planner.pass(now);
            self.record_plan_changes(now);
        }
        let is_due = now.since(self.planning.watch.compared) >= COMPARE_EVERY;
        let back = std::mem::take(&mut self.planning.watch.reachable_again);
        if is_due || !back.is_empty() {
            self.send_held(is_due, &back, now);
        }
    }

    pub(super) fn next_planner(&self) -> Option<Timestamp> {
        let watch = &self.planning.watch;
        let holds = !self.planning.planner.is_empty();
        let watched = holds.then(|| watch.watched + CHECK_EVERY);
        let is_asked = holds || !watch.askers.is_empty() || !self.planning.stages.is_empty();
        let compared = is_asked.then(|| watch.compared + COMPARE_EVERY);
        let watched = watched.into_iter().chain(compared).min();
        let back = (!watch.reachable_again.is_empty()).then_some(self.clock.latest);
        let due = [watched, self.planning.planner.next_due(), back].into_iter().flatten().min();
        [due.map(|due| due.max(watch.grace_until)), watch.moves_at].into_iter().flatten().min()
    }

    /// Sends servers the list of their firm reservations: those that can be reached again, or all.
    fn send_held(&mut self, all: bool, back: &BTreeSet<ServerId>, now: Timestamp) {
        let mut receivers = back.clone();
        if all {
            self.planning.watch.compared = now;
            if now >= self.planning.watch.own_from {
                self.compare_own(now);
            }
            receivers.extend(&self.planning.watch.askers);
        }
        let here = self.cluster.server_here();
        let mut held: BTreeMap<ServerId, Vec<Attempt>> =
            receivers.into_iter().map(|server| (server, Vec::new())).collect();
        for own in self.planning.planner.firm().filter(|own| own.asker != here) {
            if all || back.contains(&own.asker) {
                let attempt = Attempt { task: own.task, attempt: own.attempt };
                held.entry(own.asker).or_default().push(attempt);
            }
        }
        for (to, tasks) in held {
            let mut after = None;
            let mut pages = tasks.chunks(HELD_MAX).peekable();
            if pages.peek().is_none() {
                self.send_reserving(to, Reserving::Held { after, tasks: Vec::new(), up_to: None });
            }
            while let Some(page) = pages.next() {
                let last = page.last().map(|it| it.task).filter(|_| pages.peek().is_some());
                self.send_reserving(
                    to,
                    Reserving::Held { after, tasks: page.to_vec(), up_to: last },
                );
                after = last;
            }
        }
    }

    /// After a change of the topology or of executors, resources may be planned by another server.
    fn follow_homes(&mut self, now: Timestamp) {
        let epoch = self.cluster.seat.as_ref().map_or(0, |seat| seat.topology.epoch);
        let seen = (epoch, self.executors.registry.revision());
        let watch = &mut self.planning.watch;
        if std::mem::replace(&mut watch.homes, seen) != seen {
            watch.moves_at = Some(now + SPREAD_TIME);
        }
        if watch.moves_at.is_some_and(|at| at <= now) {
            watch.moves_at = None;
            let here = self.cluster.server_here();
            let planned = self.planning.planner.resources();
            let moved: Vec<ResourceId> =
                planned.filter(|id| self.planner_of(id) != here).cloned().collect();
            moved.iter().for_each(|id| self.drop_resource(id, now));
        }
    }
}
