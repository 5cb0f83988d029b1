//! Verdicts that executors have not confirmed: said again until they have.
//!
//! Invariant: an ACK that is not confirmed is here again after a restart, since the history has its
//! result. A NACK is not: an executor that hears no verdict sends its result again, and gets it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::{ActivityId, InstanceId};
use legwork_model::time::Timestamp;

use crate::retries::{Backoff, Retries};

/// Back-off before a verdict is resent.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
/// How often a NACK is sent: an executor that did not receive it asks by itself.
const NACKS: u32 = 5;

#[derive(Debug)]
pub(crate) struct Unsaid {
    /// By the lease of the assignment that it is about.
    all: Retries<u64, Verdict>,
    /// How many there are of an instance.
    instances: BTreeMap<InstanceId, u32>,
    /// How many an executor is to be told.
    executors: BTreeMap<Arc<str>, usize>,
}

/// What an executor is to be told of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) executor: Arc<str>,
    pub(crate) activity: ActivityId,
    pub(crate) counts: bool,
}

impl Default for Unsaid {
    fn default() -> Self {
        let (instances, executors) = (BTreeMap::new(), BTreeMap::new());
        Self { all: Retries::new(BACKOFF), instances, executors }
    }
}

impl Unsaid {
    pub(crate) fn concerns(&self, instance: InstanceId) -> bool {
        self.instances.contains_key(&instance)
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.all.next_due()
    }

    /// To be said now, and again until it is confirmed.
    pub(crate) fn add(
        &mut self,
        lease: u64,
        (executor, activity): (Arc<str>, ActivityId),
        counts: bool,
        now: Timestamp,
    ) {
        self.confirmed(lease);
        *self.instances.entry(activity.instance).or_default() += 1;
        *self.executors.entry(executor.clone()).or_default() += 1;
        self.all.insert(lease, Verdict { executor, activity, counts }, now);
    }

    /// The next one that is to be said, and its lease.
    pub(crate) fn say_next(&mut self, now: Timestamp) -> Option<(u64, Verdict)> {
        let (lease, verdict) = self.all.attempt_next(now)?;
        let verdict = verdict.clone();
        if !verdict.counts && self.all.attempts(&lease) >= NACKS {
            self.confirmed(lease);
        }
        Some((lease, verdict))
    }

    /// The executor has confirmed, or need not be told any more.
    pub(crate) fn confirmed(&mut self, lease: u64) -> Option<Verdict> {
        let verdict = self.all.remove(&lease)?;
        let instance = verdict.activity.instance;
        if let Some(count) = self.instances.get_mut(&instance) {
            *count -= 1;
            if *count == 0 {
                self.instances.remove(&instance);
            }
        }
        if let Some(count) = self.executors.get_mut(&verdict.executor) {
            *count -= 1;
            if *count == 0 {
                self.executors.remove(&verdict.executor);
            }
        }
        Some(verdict)
    }

    /// How many an executor is to be told.
    pub(crate) fn count(&self, executor: &str) -> usize {
        self.executors.get(executor).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_said_again_with_growing_pauses_until_it_is_confirmed() {
        let mut unsaid = Unsaid::default();
        let activity = ActivityId {
            instance: InstanceId(5),
            step: "pay".into(),
            iteration: Default::default(),
        };
        unsaid.add(7, ("crm".into(), activity.clone()), true, Timestamp(0));
        let mut moments = Vec::new();
        for _ in 0..7 {
            let due = unsaid.next_due().unwrap();
            moments.push(due.0);
            assert_eq!(unsaid.say_next(due).unwrap().0, 7);
            assert!(unsaid.say_next(due).is_none());
        }
        assert_eq!(moments, [0, 2_000, 6_000, 14_000, 30_000, 62_000, 122_000]);
        assert!(unsaid.concerns(InstanceId(5)));
        assert_eq!((unsaid.count("crm"), unsaid.count("erp")), (1, 0));
        assert_eq!(unsaid.confirmed(7).map(|verdict| verdict.counts), Some(true));
        assert_eq!((unsaid.confirmed(7), unsaid.next_due()), (None, None));
        assert!(!unsaid.concerns(InstanceId(5)));
        unsaid.add(8, ("crm".into(), activity), false, Timestamp(0));
        let said = std::iter::from_fn(|| unsaid.say_next(unsaid.next_due()?)).count();
        assert_eq!((said, unsaid.count("crm")), (5, 0), "whoever missed a NACK asks");
    }
}
