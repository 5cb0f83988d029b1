//! What executors do besides what is reserved, and who may begin a job now.
//!
//! A job that nobody promised takes a hand of its executor like one that was, for as long as it is expected to take. What is
//! known of it is what the dispatcher knows and what executors report that they hold, so nothing of it is stored: after a
//! restart jobs are given out anew.
//!
//! Invariant: an executor that is planned here is given nothing from here that would make a reservation late, if it takes as
//! long as is expected. What other servers give it is known as far as it reports what it holds.

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

/// How long a job is expected to take of which nothing is known.
const USUAL: Duration = Duration::from_secs(60);

/// Who may begin a job now.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The executor it is planned for.
    Of(ExecutorId),
    /// The executor it is planned for, later.
    After(ExecutorId),
    /// Any executor but those that need their time for what is reserved.
    Any { but: BTreeSet<ExecutorId>, is_promised: bool },
}

/// How long a job is expected to take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Takes {
    /// What the definition says.
    pub(crate) said: Option<Duration>,
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

    /// How long a job is expected to take: what was promised for it, what its definition says, what was seen of its
    /// executor, or as long as it may take.
    pub(crate) fn takes(
        &self,
        schema: &Schema,
        state: &State,
        key: &JobKey,
        (id, task): (ExecutorId, &Task),
    ) -> Takes {
        let said = schema.node(key.activity.node).takes;
        let promised = leg_of(schema, state, &key.activity);
        let promised = promised.map(|leg| i64::try_from(leg.takes_ms).unwrap_or(i64::MAX));
        let seen = || self.paced_ms(id, task.kind, task.size);
        let Demanded { timeout, .. } = demanded(schema, state, &key.activity);
        let expected = promised.or_else(|| said.map(millis)).or_else(seen);
        let expected_ms = expected.unwrap_or_else(|| millis(timeout.unwrap_or(USUAL))).max(1);
        Takes { said, expected_ms }
    }

    /// How long so much of a type takes an executor, by what was seen of it.
    fn paced_ms(&self, id: ExecutorId, kind: KindId, size: f64) -> Option<i64> {
        let pace_ms = self.book.seen(id, kind).pace_ms?;
        // That is by the clock, with what it does regularly.
        let part = f64::from(share(self.registry.get(id)?)) / f64::from(WHOLE);
        Some((pace_ms * size * part) as i64)
    }
}

impl Site {
    /// Whose turn it is to begin a job.
    pub(crate) fn turn_of(&mut self, key: &JobKey, task: &Task, now: Timestamp) -> Turn {
        let is_promised = self.jobs.is_promised(key) == Some(true);
        if let Some((_, by, planner)) = self.promised(key)
            && self.executors.is_awaited(key, by, task.kind, now)
        {
            // Another server keeps its plan: what is promised goes first here, and more is not known.
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

    /// The executor a job is planned for, if it is known here.
    fn promised(&self, key: &JobKey) -> Option<(TaskId, ExecutorId, ServerId)> {
        let (schema, state) = self.cases.instances.state(key.instance)?;
        let leg = leg_of(schema, state, &key.activity)?;
        let planned = leg.planned.as_ref()?;
        match self.executors.resource(&planned.by) {
            ResourceId::Executor(name) => {
                let (id, _) = self.executors.registry.named(&name)?;
                Some((task_of(key.instance, leg), id, planned.planner))
            }
            // Any worker may do what workers have promised: the one that asks first.
            ResourceId::Person(_) | ResourceId::Workers(_) => None,
        }
    }

    /// Whether an executor can begin a job now, for all that is reserved here.
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

    /// Brings the plans in line with what executors have been given from here, and have finished.
    pub(crate) fn note_occupied(&mut self, now: Timestamp) {
        // After a restart nothing is given out before it is known what was promised.
        if self.planning.is_asleep() {
            self.wake_planner(now);
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

    /// A plan is new here: its executor may have been given something before.
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

    /// How long a task is expected to take that an executor holds and this server has not given: as long as any such job if
    /// its case is here, else as long as the longest of its types, by what was seen of them.
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

    /// Brings the places of jobs that wait in line with their plans.
    pub(super) fn rank_jobs(&mut self, id: InstanceId) {
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let Some(deadline) = state.deadline() else { return };
        let mut anew = Vec::new();
        for leg in deadline.legs.iter().filter(|leg| (leg.node.0 as usize) < schema.nodes.len()) {
            let activity = state.activity(schema, leg.node);
            let promised = promised_for(schema, state, &activity);
            let key = JobKey { instance: id, activity };
            let is_other = self.jobs.is_promised(&key).is_some_and(|was| was != promised.is_some());
            if is_other {
                let since = state.open_at(schema, leg.node).map(|open| open.since);
                let Demanded { priority, .. } = demanded(schema, state, &key.activity);
                anew.push((key, promised, (since.unwrap_or(self.clock.latest), priority)));
            }
        }
        for (key, promised, waited) in anew {
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
