//! People and executors as seen by planners: working hours and capacity.

use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::{ExecutorRegistered, Performer};
use legwork_model::id::{AgentId, ServerId};
use legwork_model::time::Timestamp;
use legwork_placement::Map;
use legwork_plan::{Discipline, ResourceId, Setup, Span, Supply, WHOLE, Window, Work};

use super::candidates::WHY_LACKING;
use super::regular::{lag, share};
use crate::Site;
use crate::catalog::Catalog;
use crate::executors::Executors;
use crate::executors::WORKERS_MAX;

/// How far ahead working hours are computed; nothing is promised for later.
pub(super) const AHEAD: Duration = Duration::from_secs(400 * 24 * 3600);
/// How far back: a task begun before a restart has progressed by the working hours since.
const BEHIND: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most parallel tasks for which an executor is planned.
const AT_ONCE_MAX: u32 = 64;

/// A performer in its stored form; for workers the type of their jobs.
pub(super) fn performer(resource: &ResourceId) -> Performer {
    match resource {
        ResourceId::Person(agent) => Performer::Agent(agent.clone()),
        ResourceId::Executor(name) => Performer::Executor(name.clone()),
        ResourceId::Workers(job) => Performer::Worker(job.clone()),
    }
}

impl Executors {
    /// The resource of a stored performer. Earlier versions stored executors as workers: if an executor has the name,
    /// it is meant.
    pub(super) fn resource(&self, performer: &Performer) -> ResourceId {
        match performer {
            Performer::Agent(agent) => ResourceId::Person(agent.clone()),
            Performer::Worker(name) if self.registry.named(name).is_none() => {
                ResourceId::Workers(name.clone())
            }
            Performer::Worker(name) | Performer::Executor(name) => {
                ResourceId::Executor(name.clone())
            }
            Performer::System => ResourceId::Executor("".into()),
        }
    }
}

impl Catalog {
    /// The working hours of a performer by the organisation, wherever its plan is kept.
    pub(super) fn hours_of(&self, id: &ResourceId, now: Timestamp) -> Arc<Supply> {
        let spans = match id {
            ResourceId::Person(agent) => self.organisation().working_time(agent).map(|time| {
                let spans = time.spans_between_appointments(now, now + AHEAD);
                Supply::new(spans.map(|span| Span {
                    from: span.from,
                    to: span.to,
                    share: span.share.min(WHOLE),
                }))
            }),
            ResourceId::Executor(_) | ResourceId::Workers(_) => None,
        };
        Arc::new(spans.unwrap_or_else(|| Supply::always(before(now))))
    }

    fn person(&self, agent: &AgentId, now: Timestamp) -> Option<Setup> {
        let organisation = self.organisation();
        let time = organisation.working_time(agent)?;
        let reserve = organisation.agent(agent).map_or(0, |agent| agent.reserve);
        let until = now + AHEAD;
        let spans = time.spans_between_appointments(before(now), until);
        let spans =
            spans.map(|span| Span { from: span.from, to: span.to, share: span.share.min(WHOLE) });
        let regular = time.occurrences_between_appointments(now, until);
        let jobs = regular.map(|occurrence| {
            let window = Window { release: occurrence.release, due: occurrence.deadline };
            (window, work(occurrence.takes))
        });
        Some(Setup {
            supply: Supply::new(spans),
            discipline: Discipline::Preemptive,
            hands: 1,
            regular: jobs.collect(),
            reserve: percent(reserve),
            lag: Work(0),
        })
    }
}

impl Site {
    /// The server that keeps the plan of a resource: the first one of its home domain, or else of the first domain.
    /// Workers are planned by the server they ask: no server knows all workers, and a worker that asks several servers
    /// is planned by each of them. So promises of workers are best effort.
    pub(crate) fn planner_of(&self, resource: &ResourceId) -> ServerId {
        let Some(seat) = &self.cluster.seat else { return ServerId(0) };
        if let ResourceId::Workers(_) = resource {
            return seat.here;
        }
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
            ResourceId::Workers(_) => None,
        };
        let first = domain.and_then(|domain| topology.servers_of(domain).next());
        first.map_or(ServerId(0), |(server, _)| server)
    }

    /// Ensures that a resource has an up-to-date plan, if its plan is kept here.
    pub(super) fn ensure_planned(&mut self, id: &ResourceId, now: Timestamp) {
        let is_here = self.planner_of(id) == self.cluster.server_here();
        let planner = &self.planning.planner;
        let is_old = match id {
            ResourceId::Workers(job) => planner.hands(id) != self.hands_for(job, now),
            ResourceId::Person(_) | ResourceId::Executor(_) => !planner.has(id),
        };
        if is_here
            && is_old
            && let Some(setup) = self.setup(id, now)
        {
            self.planning.planner.pass(now);
            self.planning.planner.set_up(id.clone(), &setup, now);
            self.note_all_occupied(id, now);
        }
    }

    /// The capacity of workers for a type: the number of different workers that have asked recently, and no fewer than
    /// work on promised jobs.
    pub(super) fn hands_for(&self, job: &Arc<str>, now: Timestamp) -> usize {
        let begun = self.planning.planner.begun(&ResourceId::Workers(job.clone()));
        self.executors.recent_workers.count(job, now).max(begun).min(WORKERS_MAX)
    }

    /// Updates the capacity of workers; reservations of types without workers are revoked.
    pub(super) fn follow_workers(&mut self, now: Timestamp) {
        let planned = self.planning.planner.resources();
        let workers = planned.filter(|id| matches!(id, ResourceId::Workers(_)));
        for id in workers.cloned().collect::<Vec<_>>() {
            match self.setup(&id, now) {
                Some(_) => self.ensure_planned(&id, now),
                None => self.drop_resource(&id, now),
            }
        }
    }

    /// The organisation has changed: people work at other times, or not at all, or may not do planned steps any more.
    /// Losses by that count as faults.
    pub(crate) fn refit(&mut self, now: Timestamp) {
        self.refit_all(true, now);
    }

    /// Rebuilds all plans: calendars are computed for some time ahead only.
    pub(super) fn refit_all(&mut self, is_fault: bool, now: Timestamp) {
        self.planning.note_refitted(now);
        self.planning.hurry_revoked(now);
        self.refit_where(|_| true, is_fault, now);
        for task in self.steps_lacking_performer() {
            self.replan_step(task, WHY_LACKING, is_fault, now);
        }
    }

    /// Executors were registered, changed or removed.
    pub(crate) fn follow_executors(&mut self, now: Timestamp) {
        let changed = self.executors.registry.take_changed();
        if changed.is_empty() {
            return;
        }
        self.planning.hurry_revoked(now);
        let is_one = |id: &ResourceId| match id {
            ResourceId::Executor(name) => changed.contains(name),
            ResourceId::Person(_) | ResourceId::Workers(_) => false,
        };
        self.refit_where(is_one, true, now);
        // Before the jobs of removed executors are assigned to others.
        self.replan_due(now);
    }

    fn refit_where(
        &mut self,
        counts: impl Fn(&ResourceId) -> bool,
        is_fault: bool,
        now: Timestamp,
    ) {
        self.planning.planner.pass(now);
        let late = self.planning.planner.late();
        let all: Vec<ResourceId> =
            self.planning.planner.resources().filter(|id| counts(id)).cloned().collect();
        self.planning.check_now();
        for id in all {
            match self.setup(&id, now) {
                Some(setup) => self.planning.planner.set_up(id, &setup, now),
                None => self.drop_resource(&id, now),
            }
        }
        if is_fault {
            self.revoke_newly_late(&late, now);
        }
    }

    fn setup(&self, id: &ResourceId, now: Timestamp) -> Option<Setup> {
        match id {
            ResourceId::Person(agent) => self.catalog.person(agent, now),
            ResourceId::Executor(name) => {
                let (_, executor) = self.executors.registry.named(name)?;
                let at_once = hands_for_any(executor).min(AT_ONCE_MAX);
                Some(Setup {
                    supply: Supply::always_with(share(executor), before(now)),
                    discipline: Discipline::NonPreemptive,
                    hands: at_once as usize,
                    regular: Vec::new(),
                    reserve: percent(executor.reserve.unwrap_or_default()),
                    lag: lag(executor),
                })
            }
            ResourceId::Workers(job) => {
                let hands = Some(self.hands_for(job, now)).filter(|hands| *hands > 0)?;
                Some(Setup {
                    supply: Supply::always(before(now)),
                    discipline: Discipline::NonPreemptive,
                    hands,
                    regular: Vec::new(),
                    reserve: 0,
                    lag: Work(0),
                })
            }
        }
    }
}

/// How many tasks an executor works on at a time.
pub(super) fn hands(executor: &ExecutorRegistered) -> u32 {
    executor.at_once.unwrap_or(executor.limit).min(executor.limit)
}

/// Like `hands`, whatever the types of the tasks.
pub(super) fn hands_for_any(executor: &ExecutorRegistered) -> u32 {
    let least = executor.types.iter().filter_map(|own| own.limit).min();
    hands(executor).min(least.unwrap_or(u32::MAX)).max(1)
}

fn percent(part: u32) -> u8 {
    u8::try_from(part.min(WHOLE)).unwrap_or_default()
}

fn before(now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_sub(BEHIND.as_millis() as i64))
}

pub(super) fn work(length: Duration) -> Work {
    Work(i64::try_from(length.as_millis()).unwrap_or(i64::MAX))
}
