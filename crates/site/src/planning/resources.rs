//! People and executors as planners see them: when they work, and how much at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::{ExecutorRegistered, Performer};
use legwork_model::id::{AgentId, ServerId};
use legwork_model::time::Timestamp;
use legwork_placement::Map;
use legwork_promise::{
    Discipline, Message as Told, ResourceId, Said, Setup, Span, Supply, WHOLE, Window, Work,
};

use super::opening::wanted;
use super::regular::{lag, share};
use crate::Site;

/// How far ahead somebody's time is looked at; nothing is promised for later.
pub(super) const AHEAD: Duration = Duration::from_secs(400 * 24 * 3600);
/// How far back: what was begun before a restart is done as far as they had time for it.
const BEHIND: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most tasks at a time that an executor is planned for.
const AT_ONCE_MAX: u32 = 64;

pub(super) fn resource(performer: &Performer) -> ResourceId {
    match performer {
        Performer::Agent(agent) => ResourceId::Person(agent.clone()),
        Performer::Worker(name) | Performer::Executor(name) => ResourceId::Executor(name.clone()),
        Performer::System => ResourceId::Executor("".into()),
    }
}

pub(super) fn performer(resource: &ResourceId) -> Performer {
    match resource {
        ResourceId::Person(agent) => Performer::Agent(agent.clone()),
        ResourceId::Executor(name) => Performer::Executor(name.clone()),
    }
}

impl Site {
    /// The server that keeps somebody's plan: the first one of the domain where they are at home, or of the
    /// first domain.
    pub(crate) fn planner_of(&self, resource: &ResourceId) -> ServerId {
        let Some(seat) = &self.seat else { return ServerId(0) };
        let topology = &seat.topology;
        let named = |name: &Arc<str>| {
            let registered = self.executors.registry.named(name)?.1.domain.as_deref()?;
            topology.domain_named(registered)
        };
        let domain = match resource {
            ResourceId::Person(agent) => topology.homes.get(agent).copied(),
            ResourceId::Executor(name) => {
                topology.executors.get(name).copied().or_else(|| named(name))
            }
        };
        let first = domain.and_then(|domain| topology.servers_of(domain).next());
        first.map_or(ServerId(0), |(server, _)| server)
    }

    /// Sees to it that somebody has a plan, if it is kept here, and that it is known where it is.
    pub(super) fn prepare(&mut self, id: &ResourceId, now: Timestamp) {
        let planner = self.planner_of(id);
        let is_here = planner == self.server_here();
        let has_plan = self.planning.node.as_ref().is_some_and(|node| node.desk.has(id));
        let setup = if is_here && !has_plan { self.setup(id, now) } else { None };
        let Some(node) = &mut self.planning.node else { return };
        node.know(id.clone(), planner);
        if let Some(setup) = setup {
            node.desk.add(id.clone(), &setup, now);
            self.planning.busy_until = now;
            self.recall_forgotten(id, now);
        }
    }

    /// Sees to it that those have plans whom another planner asks about.
    pub(super) fn prepare_for(&mut self, said: &Said, now: Timestamp) {
        self.wake_planner(now);
        if let Told::TakenBack { task, .. } = &said.message {
            self.look_again_who_could(*task, now);
        }
        let asked = wanted(said);
        asked.iter().for_each(|id| self.prepare(id, now));
    }

    /// People may work at other times from now on, or not at all; executors may be gone.
    pub(crate) fn refit(&mut self, now: Timestamp) {
        self.planning.refitted_at = now;
        self.planning.again.hurry(now);
        self.forget_hours();
        if self.planning.node.is_none() {
            return;
        }
        let in_vain = self.promised_in_vain(now);
        let lost = self.refit_those(|_| true, now);
        // When it is known what time the others have.
        for task in in_vain {
            self.plan(now, |node| node.promise_anew(task, now));
        }
        self.lose_all(&lost, now);
    }

    /// Executors may do more or less from now on, or are gone: that concerns nobody else.
    pub(super) fn refit_executors(&mut self, changed: &BTreeSet<Arc<str>>, now: Timestamp) {
        let is_one = |id: &ResourceId| match id {
            ResourceId::Executor(name) => changed.contains(name),
            ResourceId::Person(_) => false,
        };
        // What queues there may be through later than was thought.
        self.planning.queues.retain(|name, _| !changed.contains(name));
        changed.iter().for_each(|name| self.look_anew(name, now));
        let is_gone = |name: &&Arc<str>| self.executors.registry.named(name).is_none();
        for name in changed.iter().filter(is_gone) {
            // Should it be registered anew, it is asked anew what it has.
            self.planning.forgotten.forget(name);
            self.planning.opening.forget(name);
        }
        self.planning.again.hurry(now);
        let lost = self.refit_those(is_one, now);
        self.lose_all(&lost, now);
    }

    /// Answers those who are not here any more.
    fn refit_those(
        &mut self,
        counts: impl Fn(&ResourceId) -> bool,
        now: Timestamp,
    ) -> Vec<ResourceId> {
        self.planning.busy_until = now;
        let Some(node) = &mut self.planning.node else { return Vec::new() };
        node.desk.pass(now);
        let all: Vec<ResourceId> = node.desk.resources().filter(|id| counts(id)).cloned().collect();
        let mut lost = Vec::new();
        for id in all {
            let setup = self.setup(&id, now);
            match (setup, &mut self.planning.node) {
                (Some(setup), Some(node)) => node.desk.refit(&id, &setup, now),
                (Some(_) | None, _) => lost.push(id),
            }
        }
        lost
    }

    fn lose_all(&mut self, lost: &[ResourceId], now: Timestamp) {
        for id in lost {
            let desk = self.planning.node.as_ref().map(|node| &node.desk);
            let held = desk.map(|desk| desk.reservations(id)).unwrap_or_default();
            for reservation in held {
                self.look_again_who_could(reservation.task.id, now);
            }
            self.plan(now, |node| node.lose_resource(id, now));
        }
        self.give_up_endangered(now);
    }

    /// What cannot be kept any more is promised by others, by those who could today, or whoever wants it is told.
    pub(super) fn give_up_endangered(&mut self, now: Timestamp) {
        if !self.may_judge(now) {
            return;
        }
        let Some(node) = &mut self.planning.node else { return };
        node.desk.pass(now);
        for id in node.desk.endangered(now) {
            self.look_again_who_could(id, now);
        }
        self.plan(now, |node| node.give_up_endangered(now));
    }

    fn setup(&self, id: &ResourceId, now: Timestamp) -> Option<Setup> {
        match id {
            ResourceId::Person(agent) => self.person(agent, now),
            ResourceId::Executor(name) => {
                let (_, executor) = self.executors.registry.named(name)?;
                let at_once = hands_for_any(executor).min(AT_ONCE_MAX);
                Some(Setup {
                    supply: Supply::always_with(share(executor), before(now)),
                    discipline: Discipline::NonPreemptive,
                    at_once: at_once as usize,
                    loads: Vec::new(),
                    jobs: Vec::new(),
                    lag: lag(executor),
                })
            }
        }
    }

    fn person(&self, agent: &AgentId, now: Timestamp) -> Option<Setup> {
        let time = self.catalog.organisation().working_time(agent)?;
        let until = now + AHEAD;
        let spans = time.spans_between_appointments(before(now), until);
        let spans =
            spans.map(|span| Span { from: span.from, to: span.to, share: span.share.min(WHOLE) });
        let regular = time.occurrences_between_appointments(now, until);
        let jobs = regular.map(|occurrence| {
            let window = Window { release: occurrence.release, deadline: occurrence.deadline };
            (window, work(occurrence.takes))
        });
        Some(Setup {
            supply: Supply::new(spans),
            discipline: Discipline::Preemptive,
            at_once: 1,
            loads: Vec::new(),
            jobs: jobs.collect(),
            lag: Work(0),
        })
    }
}

/// How many tasks an executor works on at a time.
pub(super) fn hands(executor: &ExecutorRegistered) -> u32 {
    executor.at_once.unwrap_or(executor.limit).min(executor.limit)
}

/// The same, of whichever type they are.
pub(super) fn hands_for_any(executor: &ExecutorRegistered) -> u32 {
    let least = executor.types.iter().filter_map(|own| own.limit).min();
    hands(executor).min(least.unwrap_or(u32::MAX)).max(1)
}

/// How many tasks an executor takes from one server.
pub(super) fn taken_from_one(executor: &ExecutorRegistered) -> u32 {
    let own = executor.types.iter().map(|own| own.limit.unwrap_or(executor.limit));
    own.fold(0, u32::saturating_add).min(executor.limit)
}

fn before(now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub(BEHIND.as_millis() as i64))
}

pub(super) fn work(length: Duration) -> Work {
    Work(i64::try_from(length.as_millis()).unwrap_or(i64::MAX))
}
