//! Tasks that executors report to have and that this server did not assign: from before a restart, and of other
//! servers.
//!
//! Such a task takes time of its executor in the plan. It is dropped when a report does not name it any more, or when
//! it should be done, so that an executor that stops reporting does not count as busy forever.
//!
//! Invariant: at most `HOLDS_MAX` tasks of an executor are remembered.

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_plan::{ResourceId, TaskId};
use legwork_schedule::ExecutorId;

use crate::Site;
use crate::executors::Executors;
use crate::input::JobLease;

/// The most tasks of one executor.
const HOLDS_MAX: usize = 1_000;
/// No step has this number, so that a held task does not replace a planned one.
const NO_STEP: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(crate) struct Holds {
    /// By executor and lease.
    all: BTreeMap<(ExecutorId, u64), Held>,
    /// When they should be done.
    due: BTreeSet<(Timestamp, ExecutorId, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    instance: InstanceId,
    until: Timestamp,
}

impl Holds {
    /// Sets the tasks an executor holds, and when each should be done. A known task keeps its date. Returns whether
    /// anything has changed.
    fn set(&mut self, executor: ExecutorId, held: &[(u64, InstanceId, Timestamp)]) -> bool {
        let named: BTreeSet<u64> = held.iter().map(|(lease, ..)| *lease).collect();
        let over: Vec<u64> = self.of(executor).map(|(lease, _)| lease).collect();
        let over: Vec<u64> = over.into_iter().filter(|lease| !named.contains(lease)).collect();
        let mut is_changed = !over.is_empty();
        over.into_iter().for_each(|lease| self.remove(executor, lease));
        for &(lease, instance, until) in held {
            if self.all.contains_key(&(executor, lease)) {
                continue;
            }
            self.all.insert((executor, lease), Held { instance, until });
            self.due.insert((until, executor, lease));
            is_changed = true;
        }
        is_changed
    }

    fn of(&self, executor: ExecutorId) -> impl Iterator<Item = (u64, &Held)> {
        let own = self.all.range((executor, 0)..=(executor, u64::MAX));
        own.map(|((_, lease), held)| (*lease, held))
    }

    fn remove(&mut self, executor: ExecutorId, lease: u64) {
        if let Some(held) = self.all.remove(&(executor, lease)) {
            self.due.remove(&(held.until, executor, lease));
        }
    }

    /// The executor is removed, or its number is reused.
    pub(super) fn forget(&mut self, executor: ExecutorId) {
        self.set(executor, &[]);
    }

    /// Drops tasks that should be done by now; returns their executors.
    fn expire(&mut self, now: Timestamp) -> BTreeSet<ExecutorId> {
        let mut changed = BTreeSet::new();
        while let Some(&(until, executor, lease)) = self.due.first()
            && until <= now
        {
            self.remove(executor, lease);
            changed.insert(executor);
        }
        changed
    }

    /// The tasks an executor holds, as the planner identifies them, and when each should be done.
    pub(crate) fn at(&self, executor: ExecutorId) -> impl Iterator<Item = (TaskId, Timestamp)> {
        self.of(executor).map(|(lease, held)| {
            let task = TaskId { instance: held.instance, step: NO_STEP, round: lease };
            (task, held.until)
        })
    }

    /// When the first one should be done.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(until, ..)| *until)
    }
}

impl Executors {
    /// Held tasks that should be done by now no longer take time of their executors.
    pub(crate) fn expire_holds(&mut self, now: Timestamp) {
        for id in self.holds.expire(now) {
            self.assignments.touch_executor(id);
        }
    }
}

impl Site {
    /// An executor reports all tasks that it has. Tasks that this server has assigned since its start are known; that
    /// also holds if reports overtake each other. Other tasks are noted by the server that plans the executor.
    pub(super) fn note_holds(&mut self, executor: &str, holds: &[JobLease], now: Timestamp) {
        let Some((id, registered)) = self.executors.registry.named(executor) else { return };
        let resource = ResourceId::Executor(registered.name.clone());
        let here = self.cluster.server_here();
        if self.planner_of(&resource) != here {
            return;
        }
        let is_foreign = |held: &&JobLease| {
            // The executor may still work on an attempt that was given up.
            !self.jobs.has_leased(here, held.lease)
                || self.executors.assignments.late(held.lease).is_some()
        };
        let foreign = holds.iter().filter(is_foreign).take(HOLDS_MAX).map(|held| {
            let takes_ms = self.held_ms(id, self.cases.key_of(held).as_ref());
            let until = Timestamp(now.0.saturating_add(takes_ms));
            (held.lease, held.activity.instance, until)
        });
        let foreign: Vec<(u64, InstanceId, Timestamp)> = foreign.collect();
        if self.executors.holds.set(id, &foreign) {
            self.executors.assignments.touch_executor(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_task_is_dropped_when_not_reported_or_overdue() {
        let mut holds = Holds::default();
        let (crane, lift) = (ExecutorId(0), ExecutorId(1));
        let held = |lease: u64, until: i64| (lease, InstanceId(7), Timestamp(until));
        let leases =
            |holds: &Holds, id| holds.at(id).map(|(task, _)| task.round).collect::<Vec<_>>();
        assert!(holds.set(crane, &[held(1, 10), held(2, 20)]));
        assert!(holds.set(lift, &[held(1, 30)]));
        assert!(!holds.set(crane, &[held(1, 99), held(2, 99)]), "their dates stay");
        assert_eq!(holds.next_due(), Some(Timestamp(10)));
        assert_eq!(holds.expire(Timestamp(10)), BTreeSet::from([crane]));
        assert_eq!((leases(&holds, crane), leases(&holds, lift)), (vec![2], vec![1]));
        assert!(holds.set(crane, &[]) && leases(&holds, crane).is_empty());
        holds.forget(lift);
        assert_eq!((holds.next_due(), holds.all.len()), (None, 0));
    }
}
