//! The planner of this server: what others ask of it, and what it tells them.
//!
//! Invariant: what is firm is stored before anybody hears of it. What cannot be kept is told at once, and again for as long as
//! it stays so.

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

/// How often plans are looked at for what becomes late, and how often how people work: their calendars are known for some
/// time ahead only.
const WATCHED: Duration = Duration::from_secs(5);
const REFITTED: Duration = Duration::from_hours(24);
/// How often all reservations of another server are compared with what it wants.
const COMPARED: Duration = Duration::from_mins(1);
/// How many of them one message has.
const HELD_MAX: usize = 500;
/// How often it is told that something cannot be kept.
const TOLD: Duration = Duration::from_secs(10);
/// How long others have to hear of a new topology before what moved is taken back.
const SPREADS: Duration = Duration::from_secs(10);

/// When the planner is to look at what.
#[derive(Debug, Default)]
pub(super) struct Watch {
    watched: Timestamp,
    refitted: Timestamp,
    compared: Timestamp,
    /// From when on that is done with what is planned here for this server.
    own_from: Timestamp,
    /// Servers that can be reached again: they may have begun anew.
    back: BTreeSet<ServerId>,
    /// Servers that had something held here since this one was started: they hear every minute what is firm, if only nothing.
    askers: BTreeSet<ServerId>,
    /// When it was told last that something becomes late, and why.
    late: BTreeMap<TaskId, (Timestamp, Why)>,
    /// The epoch and the change of executors up to which it is known where each is planned.
    homes: (u32, u64),
    moves_at: Option<Timestamp>,
    /// Before that nothing is judged by the plans: time has jumped.
    judges_from: Timestamp,
}

impl Planning {
    /// Another server can be reached again: it may have begun anew.
    pub(super) fn greet_planner(&mut self, server: ServerId) {
        self.watch.back.insert(server);
        // It may not have heard what becomes late.
        let told = self.watch.late.values_mut();
        told.for_each(|(at, _)| *at = Timestamp::default());
    }

    /// Nothing is judged by the plans until then; before that is done they are made anew.
    pub(crate) fn listen_to_planners(&mut self, until: Timestamp) {
        self.watch.judges_from = until;
        self.watch.refitted = Timestamp::default();
    }

    pub(super) fn judges_from(&self) -> Timestamp {
        self.watch.judges_from
    }

    /// Plans are looked at now: performers have other hours, or are gone.
    pub(super) fn watch_now(&mut self) {
        self.watch.watched = Timestamp::default();
    }

    pub(super) fn watch_later(&mut self, now: Timestamp) {
        self.watch.watched = now;
    }

    /// After a restart: what is planned here is compared when all cases are read.
    pub(super) fn compare_own_later(&mut self, now: Timestamp) {
        self.watch.own_from = now + COMPARED;
    }

    pub(super) fn note_refitted(&mut self, now: Timestamp) {
        self.watch.refitted = now;
    }
}

impl Site {
    pub(super) fn say(&mut self, to: ServerId, what: Reserving) {
        self.out.push(Output::Send {
            to,
            message: Message::Deadline(message::Deadline::Reserve(Box::new(what))),
        });
    }

    /// What another server says about reservations.
    pub(crate) fn on_reserve(&mut self, from: ServerId, what: Reserving, now: Timestamp) {
        self.planner_speaks(from, now);
        match what {
            Reserving::Ask { task, attempt, hold_ms } => {
                let hold = hold_ms.map(Duration::from_millis);
                let Answered { grant, earliest, load } =
                    self.serve_ask(from, &task, attempt, hold, now);
                let (task, grant) = (task.id, grant.map(Box::new));
                self.say(from, Reserving::Answer { task, attempt, grant, earliest, load });
            }
            Reserving::Answer { task, attempt, grant, earliest, load } => {
                let answer = Answered { grant: grant.map(|grant| *grant), earliest, load };
                self.hear_answer(from, (task, attempt), answer, now);
            }
            Reserving::Confirm { tasks } => {
                let (tasks, lost) = self.serve_confirm(from, &tasks, now);
                self.say(from, Reserving::Confirmed { tasks, lost });
            }
            Reserving::Confirmed { tasks, lost } => self.hear_confirmed(from, &tasks, &lost, now),
            Reserving::Release { tasks } => self.serve_release(from, &tasks, now),
            Reserving::TakenBack { task, why } => self.was_taken_back(from, task, why, now),
            Reserving::Held { after, tasks, up_to } => {
                self.compare_held(from, (after, up_to), &tasks, now);
            }
        }
    }

    /// Says when something could be done, or holds it.
    pub(super) fn serve_ask(
        &mut self,
        asker: ServerId,
        task: &Task,
        attempt: u64,
        hold: Option<Duration>,
        now: Timestamp,
    ) -> Answered {
        self.wake_planner(now);
        task.who.iter().for_each(|candidate| self.prepare(&candidate.who, now));
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
        // A question that comes late must not replace what was asked for after it.
        let own = planner.reservation(task.id).filter(|own| own.asker == asker);
        if own.is_some_and(|own| own.attempt > attempt) {
            return Answered::default();
        }
        let held = planner.hold(task, (asker, attempt), now + hold);
        // An executor that works on it already does so all the same.
        self.executors.assignments.touch(task.id.instance);
        if asker != self.cluster.server_here() {
            self.planning.watch.askers.insert(asker);
        }
        self.keep_plans(now);
        match held {
            Ok((grant, displaced)) => {
                for reservation in displaced {
                    self.take_back(&reservation, Why::Displaced, now);
                }
                Answered { grant: Some(grant), ..Answered::default() }
            }
            Err(earliest) => Answered { earliest, ..Answered::default() },
        }
    }

    /// Makes reservations firm; answers which are, and which are not held any more.
    pub(super) fn serve_confirm(
        &mut self,
        asker: ServerId,
        tasks: &[Attempt],
        now: Timestamp,
    ) -> (Vec<Attempt>, Vec<Attempt>) {
        self.wake_planner(now);
        let planner = &mut self.planning.planner;
        planner.pass(now);
        let parts =
            tasks.iter().copied().partition(|it| planner.confirm(it.task, asker, it.attempt));
        self.keep_plans(now);
        parts
    }

    pub(super) fn serve_release(&mut self, asker: ServerId, tasks: &[Attempt], now: Timestamp) {
        self.wake_planner(now);
        for Attempt { task, attempt } in tasks {
            self.planning.planner.release(*task, asker, *attempt);
        }
        self.keep_plans(now);
    }

    /// Tells a server that one of its reservations cannot be kept.
    pub(super) fn take_back(&mut self, reservation: &Reservation, why: Why, now: Timestamp) {
        let Reservation { task, asker, attempt, .. } = *reservation;
        let task = Attempt { task, attempt };
        if asker == self.cluster.server_here() {
            self.was_taken_back(asker, task, why, now);
        } else {
            self.say(asker, Reserving::TakenBack { task, why });
        }
    }

    /// A resource is not planned here any more.
    pub(super) fn lose_resource(&mut self, id: &ResourceId, now: Timestamp) {
        let lost = self.planning.planner.lose(id);
        self.keep_plans(now);
        let why = match id {
            ResourceId::Person(_) | ResourceId::Executor(_) => Why::Gone,
            ResourceId::Workers(_) => Why::Unseen,
        };
        for reservation in lost {
            self.take_back(&reservation, why, now);
        }
    }

    /// Looks whether all that is firm can be kept.
    fn watch_plans(&mut self, now: Timestamp) {
        self.planning.watch.watched = now;
        if now.since(self.planning.watch.refitted) >= REFITTED {
            self.refit_all(false, now);
        }
        self.follow_workers(now);
        self.note_occupied(now);
        self.planning.planner.pass(now);
        let late: BTreeSet<TaskId> = self.planning.planner.late().into_iter().collect();
        self.planning.watch.late.retain(|task, _| late.contains(task));
        for task in late {
            let told = self.planning.watch.late.get(&task).copied();
            if told.is_none_or(|(at, _)| now.since(at) >= TOLD) {
                self.tell_late(task, told.map_or(Why::Late, |(_, why)| why), now);
            }
        }
    }

    fn tell_late(&mut self, task: TaskId, why: Why, now: Timestamp) {
        self.planning.watch.late.insert(task, (now, why));
        if let Some(reservation) = self.planning.planner.reservation(task).cloned() {
            self.take_back(&reservation, why, now);
        }
    }

    /// Performers have less time than before: tells what becomes late by that, and was not late before.
    pub(super) fn tell_lost(&mut self, before: &[TaskId], now: Timestamp) {
        if now < self.planning.watch.judges_from {
            return;
        }
        for task in self.planning.planner.late() {
            if !before.contains(&task) {
                self.tell_late(task, Why::Gone, now);
            }
        }
    }

    /// What is due at the planner.
    pub(super) fn settle_planner(&mut self, now: Timestamp) {
        self.follow_homes(now);
        if now < self.planning.watch.judges_from {
            return;
        }
        let watch = &self.planning.watch;
        if !self.planning.planner.is_empty() && now.since(watch.watched) >= WATCHED {
            self.watch_plans(now);
        }
        if self.planning.planner.next_due().is_some_and(|due| due <= now) {
            self.planning.planner.pass(now);
            self.keep_plans(now);
        }
        let is_due = now.since(self.planning.watch.compared) >= COMPARED;
        let back = std::mem::take(&mut self.planning.watch.back);
        if is_due || !back.is_empty() {
            self.tell_held(is_due, &back, now);
        }
    }

    pub(super) fn next_planner(&self) -> Option<Timestamp> {
        let watch = &self.planning.watch;
        let holds = !self.planning.planner.is_empty();
        let watched = holds.then(|| watch.watched + WATCHED);
        let is_asked = holds || !watch.askers.is_empty() || !self.planning.stages.is_empty();
        let compared = is_asked.then(|| watch.compared + COMPARED);
        let watched = watched.into_iter().chain(compared).min();
        let back = (!watch.back.is_empty()).then_some(self.clock.latest);
        let due = [watched, self.planning.planner.next_due(), back].into_iter().flatten().min();
        [due.map(|due| due.max(watch.judges_from)), watch.moves_at].into_iter().flatten().min()
    }

    /// Tells servers what is firm here for them: those that can be reached again, or all.
    fn tell_held(&mut self, all: bool, back: &BTreeSet<ServerId>, now: Timestamp) {
        let mut told = back.clone();
        if all {
            self.planning.watch.compared = now;
            if now >= self.planning.watch.own_from {
                self.compare_own(now);
            }
            told.extend(&self.planning.watch.askers);
        }
        let here = self.cluster.server_here();
        let mut held: BTreeMap<ServerId, Vec<Attempt>> =
            told.into_iter().map(|server| (server, Vec::new())).collect();
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
                self.say(to, Reserving::Held { after, tasks: Vec::new(), up_to: None });
            }
            while let Some(page) = pages.next() {
                let last = page.last().map(|it| it.task).filter(|_| pages.peek().is_some());
                self.say(to, Reserving::Held { after, tasks: page.to_vec(), up_to: last });
                after = last;
            }
        }
    }

    /// People and executors may be planned elsewhere since the topology or the executors have changed.
    fn follow_homes(&mut self, now: Timestamp) {
        let epoch = self.cluster.seat.as_ref().map_or(0, |seat| seat.topology.epoch);
        let seen = (epoch, self.executors.registry.revision());
        let watch = &mut self.planning.watch;
        if std::mem::replace(&mut watch.homes, seen) != seen {
            watch.moves_at = Some(now + SPREADS);
        }
        if watch.moves_at.is_some_and(|at| at <= now) {
            watch.moves_at = None;
            let here = self.cluster.server_here();
            let planned = self.planning.planner.resources();
            let moved: Vec<ResourceId> =
                planned.filter(|id| self.planner_of(id) != here).cloned().collect();
            moved.iter().for_each(|id| self.lose_resource(id, now));
        }
    }
}
