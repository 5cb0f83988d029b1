//! Which executor has which job, and who has had it before.
//!
//! Invariant: a job is at one executor at a time. What was given up is remembered for a
//! while: a late answer says how fast its executor really is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use legwork_model::id::{Activity, InstanceId, NodeId};
use legwork_model::time::Timestamp;
use legwork_schedule::{AssignmentId, ExecutorId, KindId};

use crate::jobs::JobKey;

/// So many assignments that were given up are remembered.
const LATE_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Given {
    jobs: BTreeMap<JobKey, Gift>,
    /// By executor.
    at: BTreeMap<ExecutorId, BTreeSet<JobKey>>,
    /// Executors whose assignments have changed since `take_changed`.
    changed: BTreeSet<ExecutorId>,
    /// How many an executor has of a type.
    counts: BTreeMap<(ExecutorId, KindId), u32>,
    /// How many in all.
    totals: BTreeMap<ExecutorId, u32>,
    /// Executors that had something taken back since `take_freed`: they may take more.
    freed: Vec<ExecutorId>,
    /// Executors that have had a job and did not finish it; the last one last.
    tried: BTreeMap<JobKey, Vec<ExecutorId>>,
    /// Assignments that were given up, by their lease, the oldest first.
    late: BTreeMap<u64, AssignmentId>,
    late_order: VecDeque<u64>,
}

/// A job that an executor has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gift {
    pub(crate) lease: u64,
    pub(crate) executor: ExecutorId,
    pub(crate) kind: KindId,
    pub(crate) assignment: AssignmentId,
    pub(crate) at: Timestamp,
    /// How long it is expected to take, in milliseconds.
    pub(crate) takes_ms: i64,
}

impl Given {
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Of how many jobs something is kept in mind: of those alone that are open.
    pub(crate) fn jobs_kept(&self) -> usize {
        self.jobs.len().max(self.tried.len())
    }

    pub(crate) fn get(&self, key: &JobKey) -> Option<&Gift> {
        self.jobs.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&JobKey, &Gift)> {
        self.jobs.iter()
    }

    pub(crate) fn give(&mut self, key: JobKey, gift: Gift) {
        self.take(&key);
        *self.counts.entry((gift.executor, gift.kind)).or_default() += 1;
        *self.totals.entry(gift.executor).or_default() += 1;
        self.at.entry(gift.executor).or_default().insert(key.clone());
        self.changed.insert(gift.executor);
        self.jobs.insert(key, gift);
    }

    /// The executor has it no more.
    pub(crate) fn take(&mut self, key: &JobKey) -> Option<Gift> {
        let gift = self.jobs.remove(key)?;
        count_down(&mut self.counts, (gift.executor, gift.kind));
        count_down(&mut self.totals, gift.executor);
        self.freed.push(gift.executor);
        if let Some(own) = self.at.get_mut(&gift.executor) {
            own.remove(key);
        }
        self.changed.insert(gift.executor);
        Some(gift)
    }

    /// What an executor has, the first one first.
    pub(crate) fn at(&self, executor: ExecutorId) -> Vec<(JobKey, Gift)> {
        let own = self.at.get(&executor).into_iter().flatten();
        let gift = |key: &JobKey| Some((key.clone(), *self.jobs.get(key)?));
        let mut own: Vec<(JobKey, Gift)> = own.filter_map(gift).collect();
        own.sort_unstable_by_key(|(_, gift)| (gift.at, gift.lease));
        own
    }

    /// Something else is known of what executors have of an instance.
    pub(crate) fn touch(&mut self, instance: InstanceId) {
        let first = JobKey { instance, activity: Activity::once(NodeId(0)) };
        let own = self.jobs.range(first..).take_while(|(key, _)| key.instance == instance);
        self.changed.extend(own.map(|(_, gift)| gift.executor));
    }

    /// Something else is known of what an executor has besides.
    pub(crate) fn touch_executor(&mut self, executor: ExecutorId) {
        self.changed.insert(executor);
    }

    /// Executors whose assignments have changed since this was called last.
    pub(crate) fn take_changed(&mut self) -> BTreeSet<ExecutorId> {
        std::mem::take(&mut self.changed)
    }

    /// The attempt is given up, and the job goes to another executor. Answers also the oldest late assignment if it is
    /// forgotten for that.
    pub(crate) fn give_up(&mut self, key: &JobKey) -> Option<(Gift, Option<AssignmentId>)> {
        let gift = self.take(key)?;
        self.note_tried(key, gift.executor);
        self.late.insert(gift.lease, gift.assignment);
        self.late_order.push_back(gift.lease);
        let is_full = self.late_order.len() > LATE_MAX;
        let oldest = is_full.then(|| self.late_order.pop_front()).flatten();
        Some((gift, oldest.and_then(|oldest| self.late.remove(&oldest))))
    }

    /// It had the job, and did not finish it.
    pub(crate) fn note_tried(&mut self, key: &JobKey, executor: ExecutorId) {
        let tried = self.tried.entry(key.clone()).or_default();
        tried.retain(|own| *own != executor);
        tried.push(executor);
    }

    /// Everybody has had the job: all but the last one may have it again.
    pub(crate) fn begin_anew(&mut self, key: &JobKey) {
        if let Some(tried) = self.tried.get_mut(key) {
            tried.drain(..tried.len().saturating_sub(1));
        }
    }

    /// Its number is another one's from now on.
    pub(crate) fn forget_executor(&mut self, executor: ExecutorId) {
        self.tried.retain(|_, tried| {
            tried.retain(|own| *own != executor);
            !tried.is_empty()
        });
    }

    /// Executors that may take more than when this was called last.
    pub(crate) fn take_freed(&mut self) -> Vec<ExecutorId> {
        std::mem::take(&mut self.freed)
    }

    /// The assignment that was given up under a lease.
    pub(crate) fn late(&self, lease: u64) -> Option<AssignmentId> {
        self.late.get(&lease).copied()
    }

    /// The same, once.
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

    /// How many an executor has in all.
    pub(crate) fn total(&self, executor: ExecutorId) -> u32 {
        self.totals.get(&executor).copied().unwrap_or(0)
    }

    /// How many an executor has of a type.
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
    fn what_was_given_up_is_forgotten_in_the_end_and_that_is_told() {
        let mut given = Given::default();
        let mut forgotten = Vec::new();
        for number in 0..LATE_MAX as u64 + 3 {
            let (executor, kind) = (ExecutorId(0), KindId(0));
            let (lease, assignment, at) = (number, AssignmentId(number), Timestamp(0));
            let key =
                JobKey { instance: InstanceId(1), activity: Activity::once(NodeId(number as u32)) };
            let gift = Gift { lease, executor, kind, assignment, at, takes_ms: 1_000 };
            given.give(key.clone(), gift);
            // One that was answered late.
            if number == 4 {
                assert_eq!(given.take_late(1), Some(AssignmentId(1)));
            }
            forgotten.extend(given.give_up(&key).unwrap().1);
            assert_eq!((given.total(executor), given.count(executor, kind)), (0, 0));
        }
        assert_eq!(forgotten, [AssignmentId(0), AssignmentId(2)]);
        assert_eq!((given.late.len(), given.late_order.len()), (LATE_MAX, LATE_MAX));
    }
}
