//! What executors whose plans are here have from other servers.
//!
//! Invariant: whatever is put in, taken out or heard of later marks its executor, so that its plans are looked at again,
//! and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::TaskKey;
use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

use super::busy::millis;

/// What is not heard of for twice as long as it takes, and this, is taken to be over.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// A job of another server that an executor works on.
#[derive(Clone, Debug)]
pub(super) struct Lent {
    pub(super) to: ServerId,
    pub(super) executor: Arc<str>,
    pub(super) at: Timestamp,
    pub(super) takes_ms: i64,
    pub(super) begun: Option<Timestamp>,
    pub(super) lane: Option<usize>,
    /// When whoever has it said so last.
    pub(super) heard: Timestamp,
}

impl Lent {
    fn forgotten_at(&self) -> Timestamp {
        let longest = self.takes_ms.saturating_mul(2).saturating_add(millis(FORGOTTEN));
        Timestamp(self.heard.0.saturating_add(longest))
    }
}

#[derive(Debug)]
pub(super) struct LentTurns {
    turns: BTreeMap<TaskKey, Lent>,
    by_executor: BTreeMap<Arc<str>, BTreeSet<TaskKey>>,
    changed: BTreeSet<Arc<str>>,
    /// Nothing is forgotten before that.
    look_at: Timestamp,
}

impl Default for LentTurns {
    fn default() -> Self {
        let look_at = Timestamp(i64::MAX);
        Self {
            turns: BTreeMap::new(),
            by_executor: BTreeMap::new(),
            changed: BTreeSet::new(),
            look_at,
        }
    }
}

impl LentTurns {
    /// A job, if an executor has it.
    pub(super) fn get(&self, task: TaskKey, executor: &Arc<str>) -> Option<&Lent> {
        self.turns.get(&task).filter(|lent| lent.executor == *executor)
    }

    /// All that an executor has.
    pub(super) fn at(&self, executor: &Arc<str>) -> impl Iterator<Item = (TaskKey, &Lent)> {
        let own = self.by_executor.get(executor).into_iter().flatten();
        own.filter_map(|task| Some((*task, self.turns.get(task)?)))
    }

    pub(super) fn put(&mut self, task: TaskKey, lent: Lent) {
        self.remove(task);
        self.look_at = self.look_at.min(lent.forgotten_at());
        self.changed.insert(lent.executor.clone());
        self.by_executor.entry(lent.executor.clone()).or_default().insert(task);
        self.turns.insert(task, lent);
    }

    /// Whoever has it says so. What was known before stays known.
    pub(super) fn told(&mut self, task: TaskKey, lent: Lent) {
        let heard = lent.heard;
        match self.turns.get_mut(&task) {
            Some(known) if known.executor == lent.executor => {
                (known.to, known.heard) = (lent.to, heard);
            }
            Some(_) | None => self.put(task, lent),
        }
    }

    pub(super) fn remove(&mut self, task: TaskKey) {
        let Some(lent) = self.turns.remove(&task) else { return };
        if let Some(own) = self.by_executor.get_mut(&lent.executor) {
            own.remove(&task);
            if own.is_empty() {
                self.by_executor.remove(&lent.executor);
            }
        }
        self.changed.insert(lent.executor);
    }

    /// It is in that one of its executor's plans, and begun since then.
    pub(super) fn put_into(&mut self, task: TaskKey, lane: usize, begun: Timestamp) {
        if let Some(lent) = self.turns.get_mut(&task) {
            (lent.lane, lent.begun) = (Some(lane), Some(begun));
        }
    }

    /// Something else is known of a job, if it is one of these.
    pub(super) fn touch(&mut self, task: TaskKey) {
        let lent = self.turns.get(&task);
        self.changed.extend(lent.map(|lent| lent.executor.clone()));
    }

    /// Takes those out that are over, and says which.
    pub(super) fn take_out(&mut self, is_over: impl Fn(TaskKey, &Lent) -> bool) -> Vec<TaskKey> {
        let over = self.turns.iter().filter(|(task, lent)| is_over(**task, lent));
        let over: Vec<TaskKey> = over.map(|(task, _)| *task).collect();
        over.iter().for_each(|task| self.remove(*task));
        over
    }

    /// Takes out what was not heard of for too long, and says which.
    pub(super) fn forget(&mut self, now: Timestamp) -> Vec<TaskKey> {
        if self.look_at > now {
            return Vec::new();
        }
        let forgotten = self.take_out(|_, lent| lent.forgotten_at() <= now);
        let next = self.turns.values().map(Lent::forgotten_at).min();
        self.look_at = next.unwrap_or(Timestamp(i64::MAX));
        forgotten
    }

    /// When it is looked whether something is forgotten.
    pub(super) fn next_look(&self) -> Option<Timestamp> {
        (!self.turns.is_empty()).then_some(self.look_at)
    }

    /// The executors of which something else is known since this was asked last.
    pub(super) fn take_changed(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.changed)
    }
}
