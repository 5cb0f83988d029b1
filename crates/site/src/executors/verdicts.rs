//! Verdicts, resent with back-off until the executor confirms.
//!
//! Invariant: an unconfirmed ACK is here again after a restart, since its result is in the history. A NACK is not: an
//! executor that receives no verdict resends its result, and gets one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::{ActivityId, InstanceId};
use legwork_model::time::Timestamp;

use crate::retries::{Backoff, Retries};

/// Back-off before a verdict is resent.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
/// How often a NACK is sent. An executor that received none of them asks by itself.
const NACKS: u32 = 5;

#[derive(Debug)]
pub(crate) struct Verdicts {
    /// By the lease of the assignment.
    all: Retries<u64, Verdict>,
    /// Number of verdicts by instance.
    instances: BTreeMap<InstanceId, u32>,
    /// Number of verdicts by executor.
    executors: BTreeMap<Arc<str>, usize>,
}

/// The verdict about a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) executor: Arc<str>,
    pub(crate) activity: ActivityId,
    pub(crate) counts: bool,
}

impl Default for Verdicts {
    fn default() -> Self {
        let (instances, executors) = (BTreeMap::new(), BTreeMap::new());
        Self { all: Retries::new(BACKOFF), instances, executors }
    }
}

impl Verdicts {
    pub(crate) fn concerns(&self, instance: InstanceId) -> bool {
        self.instances.contains_key(&instance)
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.all.next_due()
    }

    /// Queues a verdict, due now.
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

    /// The next verdict that is due, with its lease.
    pub(crate) fn resend_next(&mut self, now: Timestamp) -> Option<(u64, Verdict)> {
        let (lease, verdict) = self.all.attempt_next(now)?;
        let verdict = verdict.clone();
        if !verdict.counts && self.all.attempts(&lease) >= NACKS {
            self.confirmed(lease);
        }
        Some((lease, verdict))
    }

    /// Removes a verdict, since it was confirmed or need not be sent any more.
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

    /// Number of unconfirmed verdicts of an executor.
    pub(crate) fn count(&self, executor: &str) -> usize {
        self.executors.get(executor).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_resent_with_back_off_until_confirmed() {
        let mut verdicts = Verdicts::default();
        let activity = ActivityId {
            instance: InstanceId(5),
            step: "pay".into(),
            iteration: Default::default(),
        };
        verdicts.add(7, ("crm".into(), activity.clone()), true, Timestamp(0));
        let mut moments = Vec::new();
        for _ in 0..7 {
            let due = verdicts.next_due().unwrap();
            moments.push(due.0);
            assert_eq!(verdicts.resend_next(due).unwrap().0, 7);
            assert!(verdicts.resend_next(due).is_none());
        }
        assert_eq!(moments, [0, 2_000, 6_000, 14_000, 30_000, 62_000, 122_000]);
        assert!(verdicts.concerns(InstanceId(5)));
        assert_eq!((verdicts.count("crm"), verdicts.count("erp")), (1, 0));
        assert_eq!(verdicts.confirmed(7).map(|verdict| verdict.counts), Some(true));
        assert_eq!((verdicts.confirmed(7), verdicts.next_due()), (None, None));
        assert!(!verdicts.concerns(InstanceId(5)));
        verdicts.add(8, ("crm".into(), activity), false, Timestamp(0));
        let sent = std::iter::from_fn(|| verdicts.resend_next(verdicts.next_due()?)).count();
        assert_eq!((sent, verdicts.count("crm")), (5, 0), "an executor that missed a NACK asks");
    }
}
