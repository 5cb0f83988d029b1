//! Which executor has which job, and who has had it before.
//!
//! Invariant: a job is at one executor at a time. What was given up is remembered for a
//! while: a late answer says how fast its executor really is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use legwork_model::time::Timestamp;
use legwork_schedule::{AssignmentId, ExecutorId, KindId};

use crate::jobs::JobKey;

/// So many assignments that were given up are remembered.
const LATE_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Given {
    jobs: BTreeMap<JobKey, Gift>,
    /// How many an executor has of a type.
    counts: BTreeMap<(ExecutorId, KindId), u32>,
    /// Who has had a job, and did not finish it.
    tried: BTreeMap<JobKey, BTreeSet<ExecutorId>>,
    /// Assignments that were given up, by their lease, the oldest first.
    late: BTreeMap<u64, AssignmentId>,
    late_order: VecDeque<u64>,
    /// Until when executors want nothing, as they said.
    resting: BTreeMap<ExecutorId, Timestamp>,
}

/// A job that an executor has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gift {
    pub(crate) lease: u64,
    pub(crate) executor: ExecutorId,
    pub(crate) kind: KindId,
    pub(crate) assignment: AssignmentId,
    pub(crate) at: Timestamp,
}

impl Given {
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(crate) fn get(&self, key: &JobKey) -> Option<&Gift> {
        self.jobs.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&JobKey, &Gift)> {
        self.jobs.iter()
    }

    pub(crate) fn give(&mut self, key: JobKey, gift: Gift) {
        *self.counts.entry((gift.executor, gift.kind)).or_default() += 1;
        self.jobs.insert(key, gift);
    }

    /// The executor has it no more.
    pub(crate) fn take(&mut self, key: &JobKey) -> Option<Gift> {
        let gift = self.jobs.remove(key)?;
        let place = (gift.executor, gift.kind);
        if let Some(count) = self.counts.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&place);
            }
        }
        Some(gift)
    }

    /// It is given up, and somebody else is to have it.
    pub(crate) fn give_up(&mut self, key: &JobKey) -> Option<Gift> {
        let gift = self.take(key)?;
        self.tried.entry(key.clone()).or_default().insert(gift.executor);
        self.late.insert(gift.lease, gift.assignment);
        self.late_order.push_back(gift.lease);
        if self.late_order.len() > LATE_MAX
            && let Some(oldest) = self.late_order.pop_front()
        {
            self.late.remove(&oldest);
        }
        Some(gift)
    }

    /// The assignment that was given up under a lease, once.
    pub(crate) fn take_late(&mut self, lease: u64) -> Option<AssignmentId> {
        self.late.remove(&lease)
    }

    /// Nobody needs to have the job any more.
    pub(crate) fn forget(&mut self, key: &JobKey) {
        self.tried.remove(key);
    }

    pub(crate) fn has_tried(&self, key: &JobKey, executor: ExecutorId) -> bool {
        self.tried.get(key).is_some_and(|tried| tried.contains(&executor))
    }

    /// How many an executor has in all.
    pub(crate) fn total(&self, executor: ExecutorId) -> u32 {
        let all = self.counts.range((executor, KindId(0))..=(executor, KindId(u32::MAX)));
        all.map(|(_, count)| count).sum()
    }

    /// How many an executor has of a type.
    pub(crate) fn count(&self, executor: ExecutorId, kind: KindId) -> u32 {
        self.counts.get(&(executor, kind)).copied().unwrap_or(0)
    }

    /// It wants nothing until then.
    pub(crate) fn rest(&mut self, executor: ExecutorId, until: Timestamp) {
        self.resting.insert(executor, until);
    }

    pub(crate) fn is_resting(&self, executor: ExecutorId, now: Timestamp) -> bool {
        self.resting.get(&executor).is_some_and(|until| *until > now)
    }

    pub(crate) fn resting_until(&self, executor: ExecutorId) -> Option<Timestamp> {
        self.resting.get(&executor).copied()
    }

    pub(crate) fn wake(&mut self, now: Timestamp) {
        self.resting.retain(|_, until| *until > now);
    }

    pub(crate) fn next_rested(&self) -> Option<Timestamp> {
        self.resting.values().min().copied()
    }
}
