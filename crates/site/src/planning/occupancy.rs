//! Unreserved work of executors, and which executor may begin a job now.
//!
//! A job without a promise occupies its executor like a promised one, for its expected duration. It is known from the
//! dispatcher and from what executors report to hold, so nothing of it is stored: after a restart jobs are dispatched
//! again.
//!
//! Invariant: an executor that is planned here is assigned nothing from here that would make a reservation late, if it
//! takes as long as expected. Work assigned by other servers is known as far as the executor reports what it holds.

use std::collections::BTreeSet;
use std::time::Duration;

use legwork_engine::State;
use legwork_model::id::{InstanceId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_plan::{ResourceId, TaskId, WHOLE, Work};
use legwork_schedule::{ExecutorId, KindId, Task};

use super::regular::share;
use super::steps::{leg_of, promised_for, task_of};
use crate::Site;
use crate::executors::Executors;
use crate::jobs::JobKey;
use crate::jobs::demand::{Demanded, demanded};

/// The expected duration of a job of which nothing is known.
const USUAL: Duration = Duration::from_secs(60);

/// Which executor may begin a job now.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The executor that has promised it.
    Of(ExecutorId),
    /// The executor that has promised it, later.
    After(ExecutorId),
    /// Any executor except those that need their time for reservations.
    Any { but: BTreeSet<ExecutorId>, is_promised: bool },
}

/// The expected duration of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Takes {
    /// By the definition.
    pub(crate) defined: Option<Duration>,
    expected_ms: i64,
}

impl Takes {
    pub(crate) fn ms(self) -> i64 {
        self.expected_ms
    }

    fn work(self) -> Work {
        Work(self.expected_ms)
    }
}

impl Executors {
    fn resource_of(&self, id: ExecutorId) -> Option<ResourceId> {
        let one = self.registry.get(id)?;
        Some(ResourceId::Executor(one.name.clone()))
    }

    /// The expected duration of a job: as promised, by its definition, as seen of the executor, or its timeout.
    pub(crate) fn takes(
        &self,
        schema: &Schema,
        state: &State,
        key: &JobKey,
        (id, task): (ExecutorId, &Task),
    ) -> Takes {
        let defined = schema.node(key.activity.node).takes;
        let promised = leg_of(schema, state, &key.activity);
        let promised = promised.map(|leg| i64::try_from(leg.takes_ms).unwrap_or(i64::MAX));
        let seen = || self.paced_ms(id, task.kind, task.size);
        let Demanded { timeout, .. } = demanded(schema, state, &key.activity);
        let expected = promised.or_else(|| defined.map(millis)).or_else(seen);
        let expected_ms = expected.unwrap_or_else(|| millis(timeout.unwrap_or(USUAL))).max(1);
        Takes { defined, expected_ms }
    }

    /// The expected duration by the observed pace of an executor.
    fn paced_ms(&self, id: ExecutorId, kind: KindId, size: f64) -> Option<i64> {
        let pace_ms = self.book.seen(id, kind).pace_ms?;
        // The pace includes regular work of the executor, by the clock.
        let part = f64::from(share(self.registry.get(id)?)) / f64::from(WHOLE);
        Some((pace_ms * size * part) as i64)
    }
}

impl Site {
    /// Which executor may begin a job.
    pub(crate) fn turn_of(&mut self, key: &JobKey, task: &Task, now: Timestamp) -> Turn {
        let is_promised = self.jobs.is_promised(key) == Some(true);
        if let Some((_, by, planner)) = self.promised(key)
            && self.executors.is_awaited(key, by, task.kind, now)
        {
            // Another server plans this executor: promised jobs go first here, and no more is known.
            let is_turn = self.executors.has_room(by, task.kind)
                && (planner != self.cluster.server_here() || self.may_begin(key, (by, task), now));
            return if is_turn { Turn::Of(by) } else { Turn::After(by) };
        }
        if self.planning.planner.is_empty() {
            return Turn::Any { but: BTreeSet::new(), is_promised };
        }
        let mut but: BTreeSet<ExecutorId> =
            self.executors.registry.offering(task.kind).iter().copied().collect();
        but.retain(|id| !self.may_begin(key, (*id, task), now));
        Turn::Any { but, is_promised }
    }

    /// The executor that has promised a job, if it is known here.
    fn promised(&self, key: &JobKey) -> Option<(TaskId, ExecutorId, ServerId)> {
        let (schema, state) = self.cases.instances.state(key.instance)?;
        let leg = leg_of(schema, state, &key.activity)?;
        let planned = leg.planned.as_ref()?;
        match self.executors.resource(&planned.by) {
            ResourceId::Executor(name) => {
                let (id, _) = self.executors.registry.named(&name)?;
                Some((task_of(key.instance, leg), id, planned.planner))
            }
            // A job promised by workers may be done by any worker, first come first served.
            ResourceId::Person(_) | ResourceId::Workers(_) => None,
        }
    }

    /// Whether an executor can begin a job now without making reservations late.
    fn may_begin(&mut self, key: &JobKey, (id, task): (ExecutorId, &Task), now: Timestamp) -> bool {
        let Some(resource) = self.executors.resource_of(id) else { return false };
        if !self.planning.planner.has_reserved(&resource) {
            return true;
        }
        self.note_occupied(now);
        self.planning.planner.pass(now);
        let promised = self.promised(key).map(|(task, ..)| task);
        let Some((schema, state)) = self.cases.instances.state(key.instance) else { return false };
        let takes = self.executors.takes(schema, state, key, (id, task));
        self.planning.planner.may_begin(promised, &resource, takes.work())
    }

    /// Updates the plans with the assignments of executors.
    pub(crate) fn note_occupied(&mut self, now: Timestamp) {
        // After a restart nothing is dispatched before the promises are restored.
        if self.planning.is_restore_due() {
            self.restore_plans_once(now);
        }
        self.executors.expire_holds(now);
        let changed = self.executors.assignments.take_changed();
        if changed.is_empty() {
            return;
        }
        self.planning.planner.pass(now);
        for id in changed {
            let Some(resource) = self.executors.resource_of(id) else { continue };
            if self.planning.planner.has(&resource) {
                self.note_occupied_by(id, &resource, now);
                self.executors.plans_changed();
            }
        }
    }

    /// A plan is new here: its executor may already have assignments.
    pub(super) fn note_all_occupied(&mut self, resource: &ResourceId, now: Timestamp) {
        if let ResourceId::Executor(name) = resource
            && let Some((id, _)) = self.executors.registry.named(name)
        {
            self.note_occupied_by(id, resource, now);
        }
    }

    fn note_occupied_by(&mut self, id: ExecutorId, resource: &ResourceId, now: Timestamp) {
        let given = self.executors.assignments.at(id);
        let mut others: Vec<(TaskId, Work)> = given
            .iter()
            .map(|(key, assignment)| (task_of_job(key), Work(assignment.takes_ms)))
            .filter(|(task, _)| {
                let own = self.planning.planner.reservation(*task);
                own.is_none_or(|own| own.by != *resource)
            })
            .collect();
        let held = self.executors.holds.at(id);
        others.extend(held.map(|(task, until)| (task, Work((until.0 - now.0).max(1)))));
        self.planning.planner.occupied(resource, &others);
    }

    /// The expected duration of a task that an executor holds and this server did not assign: that of such a job if its
    /// case is here, else that of the slowest of its types, by its observed pace.
    pub(crate) fn held_ms(&self, id: ExecutorId, key: Option<&JobKey>) -> i64 {
        let registry = &self.executors.registry;
        let known = key.and_then(|key| {
            let (schema, state) = self.cases.instances.state(key.instance)?;
            let kind = registry.kind(schema.node(key.activity.node).job()?)?;
            let Demanded { size, .. } = demanded(schema, state, &key.activity);
            let task = Task { kind, size, attempt: 0 };
            Some(self.executors.takes(schema, state, key, (id, &task)).ms())
        });
        let paces = || {
            registry.taken(id).iter().filter_map(|own| self.executors.paced_ms(id, own.kind, 1.0))
        };
        known.or_else(|| paces().max()).unwrap_or_else(|| millis(USUAL)).max(1)
    }

    /// Updates the ranks of waiting jobs after a change of plans.
    pub(super) fn rank_jobs(&mut self, id: InstanceId) {
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let Some(deadline) = state.deadline() else { return };
        let mut reranked = Vec::new();
        for leg in deadline.legs.iter().filter(|leg| (leg.node.0 as usize) < schema.nodes.len()) {
            let activity = state.activity(schema, leg.node);
            let promised = promised_for(schema, state, &activity);
            let key = JobKey { instance: id, activity };
            let is_other = self.jobs.is_promised(&key).is_some_and(|was| was != promised.is_some());
            if is_other {
                let since = state.open_at(schema, leg.node).map(|open| open.since);
                let Demanded { priority, .. } = demanded(schema, state, &key.activity);
                reranked.push((key, promised, (since.unwrap_or(self.clock.latest), priority)));
            }
        }
        for (key, promised, waited) in reranked {
            self.jobs.rerank(&key, promised, waited);
        }
    }
}

fn task_of_job(key: &JobKey) -> TaskId {
    let round = key.activity.iteration.number();
    TaskId { instance: key.instance, step: key.activity.node.0, round }
}

pub(super) fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}
