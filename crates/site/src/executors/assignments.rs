//! Assignments: which executor has which job, and which ones have tried it.
//!
//! Invariant: a job is assigned to one executor at a time. Failed assignments are remembered for some time: a late
//! answer shows the speed of its executor.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use legwork_model::id::{Activity, InstanceId, NodeId};
use legwork_model::time::Timestamp;
use legwork_schedule::{AssignmentId, ExecutorId, KindId};

use crate::jobs::JobKey;

/// How many failed assignments are remembered.
const LATE_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Assignments {
    jobs: BTreeMap<JobKey, Assignment>,
    /// By executor.
    at: BTreeMap<ExecutorId, BTreeSet<JobKey>>,
    /// Executors whose assignments have changed since `take_changed`.
    changed: BTreeSet<ExecutorId>,
    /// Number of assignments of an executor, by type.
    counts: BTreeMap<(ExecutorId, KindId), u32>,
    /// Number of assignments of an executor.
    totals: BTreeMap<ExecutorId, u32>,
    /// Executors that have lost an assignment since `take_freed`: they may take more.
    freed: Vec<ExecutorId>,
    /// Executors that have had a job without completing it, latest last.
    tried: BTreeMap<JobKey, Vec<ExecutorId>>,
    /// Failed assignments by lease, oldest first.
    late: BTreeMap<u64, AssignmentId>,
    late_order: VecDeque<u64>,
}

/// A job assigned to an executor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assignment {
    pub(crate) lease: u64,
    pub(crate) executor: ExecutorId,
    pub(crate) kind: KindId,
    pub(crate) id: AssignmentId,
    pub(crate) at: Timestamp,
    /// The expected duration in milliseconds.
    pub(crate) takes_ms: i64,
}

impl Assignments {
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// How many jobs are remembered; only open ones are.
    pub(crate) fn jobs_kept(&self) -> usize {
        self.jobs.len().max(self.tried.len())
    }

    pub(crate) fn get(&self, key: &JobKey) -> Option<&Assignment> {
        self.jobs.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&JobKey, &Assignment)> {
        self.jobs.iter()
    }

    pub(crate) fn assign(&mut self, key: JobKey, assignment: Assignment) {
        self.take(&key);
        *self.counts.entry((assignment.executor, assignment.kind)).or_default() += 1;
        *self.totals.entry(assignment.executor).or_default() += 1;
        self.at.entry(assignment.executor).or_default().insert(key.clone());
        self.changed.insert(assignment.executor);
        self.jobs.insert(key, assignment);
    }

    /// Ends an assignment.
    pub(crate) fn take(&mut self, key: &JobKey) -> Option<Assignment> {
        let assignment = self.jobs.remove(key)?;
        count_down(&mut self.counts, (assignment.executor, assignment.kind));
        count_down(&mut self.totals, assignment.executor);
        self.freed.push(assignment.executor);
        if let Some(own) = self.at.get_mut(&assignment.executor) {
            own.remove(key);
        }
        self.changed.insert(assignment.executor);
        Some(assignment)
    }

    /// The assignments of an executor, oldest first.
    pub(crate) fn at(&self, executor: ExecutorId) -> Vec<(JobKey, Assignment)> {
        let own = self.at.get(&executor).into_iter().flatten();
        let assignment = |key: &JobKey| Some((key.clone(), *self.jobs.get(key)?));
        let mut own: Vec<(JobKey, Assignment)> = own.filter_map(assignment).collect();
        own.sort_unstable_by_key(|(_, assignment)| (assignment.at, assignment.lease));
        own
    }

    /// The expected durations of assignments of an instance may have changed.
    pub(crate) fn touch(&mut self, instance: InstanceId) {
        let first = JobKey { instance, activity: Activity::once(NodeId(0)) };
        let own = self.jobs.range(first..).take_while(|(key, _)| key.instance == instance);
        self.changed.extend(own.map(|(_, assignment)| assignment.executor));
    }

    /// Other facts about the load of an executor have changed.
    pub(crate) fn touch_executor(&mut self, executor: ExecutorId) {
        self.changed.insert(executor);
    }

    /// Executors whose assignments have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<ExecutorId> {
        std::mem::take(&mut self.changed)
    }

    /// Ends a failed assignment; the job goes to another executor. Also returns the oldest failed assignment if it is
    /// dropped to make room.
    pub(crate) fn give_up(&mut self, key: &JobKey) -> Option<(Assignment, Option<AssignmentId>)> {
        let assignment = self.take(key)?;
        self.note_tried(key, assignment.executor);
        self.late.insert(assignment.lease, assignment.id);
        self.late_order.push_back(assignment.lease);
        let is_full = self.late_order.len() > LATE_MAX;
        let oldest = is_full.then(|| self.late_order.pop_front()).flatten();
        Some((assignment, oldest.and_then(|oldest| self.late.remove(&oldest))))
    }

    /// Notes that an executor has had a job without completing it.
    pub(crate) fn note_tried(&mut self, key: &JobKey, executor: ExecutorId) {
        let tried = self.tried.entry(key.clone()).or_default();
        tried.retain(|own| *own != executor);
        tried.push(executor);
    }

    /// All executors have tried the job: all but the last one may have it again.
    pub(crate) fn reset_tried(&mut self, key: &JobKey) {
        if let Some(tried) = self.tried.get_mut(key) {
            tried.drain(..tried.len().saturating_sub(1));
        }
    }

    /// The number of the executor is reused for another one.
    pub(crate) fn forget_executor(&mut self, executor: ExecutorId) {
        self.tried.retain(|_, tried| {
            tried.retain(|own| *own != executor);
            !tried.is_empty()
        });
    }

    /// Executors that may take more than at the last call.
    pub(crate) fn take_freed(&mut self) -> Vec<ExecutorId> {
        std::mem::take(&mut self.freed)
    }

    /// The failed assignment with a lease.
    pub(crate) fn late(&self, lease: u64) -> Option<AssignmentId> {
        self.late.get(&lease).copied()
    }

    /// Like `late`, and removes it.
    pub(crate) fn take_late(&mut self, lease: u64) -> Option<AssignmentId> {
        self.late.remove(&lease)
    }

    /// The job is over.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.tried.remove(key);
    }

    pub(crate) fn has_tried(&self, key: &JobKey, executor: ExecutorId) -> bool {
        self.tried.get(key).is_some_and(|tried| tried.contains(&executor))
    }

    /// Number of assignments of an executor.
    pub(crate) fn total(&self, executor: ExecutorId) -> u32 {
        self.totals.get(&executor).copied().unwrap_or(0)
    }

    /// Number of assignments of an executor of a type.
    pub(crate) fn count(&self, executor: ExecutorId, kind: KindId) -> u32 {
        self.counts.get(&(executor, kind)).copied().unwrap_or(0)
    }
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, u32>, of: K) {
    let Some(count) = counts.get_mut(&of) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(&of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_failed_assignments_are_dropped_and_returned() {
        let mut assignments = Assignments::default();
        let mut forgotten = Vec::new();
        for number in 0..LATE_MAX as u64 + 3 {
            let (executor, kind) = (ExecutorId(0), KindId(0));
            let (lease, id, at) = (number, AssignmentId(number), Timestamp(0));
            let key =
                JobKey { instance: InstanceId(1), activity: Activity::once(NodeId(number as u32)) };
            let assignment = Assignment { lease, executor, kind, id, at, takes_ms: 1_000 };
            assignments.assign(key.clone(), assignment);
            // This one was answered late.
            if number == 4 {
                assert_eq!(assignments.take_late(1), Some(AssignmentId(1)));
            }
            forgotten.extend(assignments.give_up(&key).unwrap().1);
            assert_eq!((assignments.total(executor), assignments.count(executor, kind)), (0, 0));
        }
        assert_eq!(forgotten, [AssignmentId(0), AssignmentId(2)]);
        assert_eq!((assignments.late.len(), assignments.late_order.len()), (LATE_MAX, LATE_MAX));
    }
}
