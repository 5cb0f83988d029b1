//! Jobs of automatic steps: which are open, who works on them, until when.
//!
//! Leases are volatile on purpose. The history knows only what a step did; after a restart every
//! open job is offered again, and a worker that still holds one may report it as long as nobody
//! else has taken it since. So there is at most one accepted completion per activity, always.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::{Activity, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use rustc_hash::FxHashMap;

use crate::input::JobLease;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobKey {
    pub(crate) instance: InstanceId,
    pub(crate) activity: Activity,
}

#[derive(Debug)]
struct Entry {
    job: Arc<str>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queued,
    Delayed { due: Timer },
    Leased { lease: u64, since: Timestamp, due: Timer },
}

/// The moment something is due, and a number that tells timers of one moment apart.
type Timer = (Timestamp, u64);

/// Why a report about a job does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseError {
    /// Completed already, withdrawn, or never there.
    NotOpen,
    /// Its lease ran out and another worker has taken it.
    Lost,
}

#[derive(Debug, Default)]
struct Queue {
    /// Oldest first. May hold keys that are no longer queued: they are skipped when they come up.
    keys: VecDeque<JobKey>,
    /// How many of them are queued.
    queued: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// Looked up by key; never iterated.
    entries: FxHashMap<JobKey, Entry>,
    /// One for each type that has jobs queued, and no other.
    queues: BTreeMap<Arc<str>, Queue>,
    /// When leases run out and delays end.
    timers: BTreeMap<Timer, JobKey>,
    last_lease: u64,
    last_timer: u64,
    queued: usize,
    leased: usize,
}

impl Jobs {
    /// From `first_lease` on no number may have been given out before a restart.
    pub(crate) fn new(first_lease: u64) -> Self {
        Self { last_lease: first_lease, ..Self::default() }
    }

    /// A job came up, to be given out from `not_before` on.
    pub(crate) fn open(
        &mut self,
        key: JobKey,
        job: Arc<str>,
        not_before: Option<Timestamp>,
        now: Timestamp,
    ) {
        self.close(&key);
        let phase = match not_before.filter(|&until| until > now) {
            Some(until) => Phase::Delayed { due: self.set_timer(until, key.clone()) },
            None => {
                self.enqueue(&job, key.clone());
                Phase::Queued
            }
        };
        self.entries.insert(key, Entry { job, phase });
    }

    /// The job is done or no longer wanted.
    pub(crate) fn close(&mut self, key: &JobKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.count_out(entry.phase, &entry.job);
        }
    }

    /// The next job of one of these types, leased from now on by this server.
    pub(crate) fn take(
        &mut self,
        types: &[Arc<str>],
        lease_for: Duration,
        here: ServerId,
        now: Timestamp,
    ) -> Option<(JobKey, Arc<str>, u64, Timestamp)> {
        for job in types {
            let Some(queue) = self.queues.get_mut(job) else { continue };
            while let Some(key) = queue.keys.pop_front() {
                let Some(entry) = self.entries.get_mut(&key) else { continue };
                if entry.phase != Phase::Queued {
                    continue;
                }
                self.last_lease = self.last_lease.wrapping_add(1);
                let lease = JobLease::number(here, self.last_lease);
                let expires = now + lease_for;
                self.last_timer += 1;
                let due = (expires, self.last_timer);
                entry.phase = Phase::Leased { lease, since: now, due };
                let job = entry.job.clone();
                self.leave_queue(&job);
                self.leased += 1;
                self.timers.insert(due, key.clone());
                return Some((key, job, lease, expires));
            }
        }
        None
    }

    /// Whether a report with this lease counts; answers when the work began, if that is known.
    pub(crate) fn verify(&self, key: &JobKey, lease: u64) -> Result<Option<Timestamp>, LeaseError> {
        match self.entries.get(key).map(|entry| entry.phase) {
            None => Err(LeaseError::NotOpen),
            Some(Phase::Leased { lease: current, since, .. }) if current == lease => {
                Ok(Some(since))
            }
            Some(Phase::Leased { .. }) => Err(LeaseError::Lost),
            // Nobody has taken it since: the work is not thrown away. A delayed one was reported
            // as failed already.
            Some(Phase::Queued) => Ok(None),
            Some(Phase::Delayed { .. }) => Err(LeaseError::Lost),
        }
    }

    /// Prolongs a lease that has not run out.
    pub(crate) fn extend(
        &mut self,
        key: &JobKey,
        lease: u64,
        lease_for: Duration,
        now: Timestamp,
    ) -> Result<(), LeaseError> {
        let entry = self.entries.get_mut(key).ok_or(LeaseError::NotOpen)?;
        match &mut entry.phase {
            Phase::Leased { lease: current, due, .. } if *current == lease => {
                self.timers.remove(due);
                self.last_timer += 1;
                *due = (now + lease_for, self.last_timer);
                self.timers.insert(*due, key.clone());
                Ok(())
            }
            Phase::Leased { .. } | Phase::Queued | Phase::Delayed { .. } => Err(LeaseError::Lost),
        }
    }

    /// Offers a job again whose worker does not want it, before those that wait.
    pub(crate) fn give_back(&mut self, key: &JobKey, lease: u64) -> Result<(), LeaseError> {
        let entry = self.entries.get_mut(key).ok_or(LeaseError::NotOpen)?;
        match entry.phase {
            Phase::Leased { lease: current, .. } if current == lease => {
                let (phase, job) =
                    (std::mem::replace(&mut entry.phase, Phase::Queued), entry.job.clone());
                self.count_out(phase, &job);
                self.enqueue(&job, key.clone());
                if let Some(queue) = self.queues.get_mut(&job) {
                    queue.keys.rotate_right(1);
                }
                Ok(())
            }
            Phase::Leased { .. } | Phase::Queued | Phase::Delayed { .. } => Err(LeaseError::Lost),
        }
    }

    /// The job of a type that has waited longest.
    pub(crate) fn next(&mut self, job: &str) -> Option<&JobKey> {
        let Self { queues, entries, .. } = self;
        let queue = queues.get_mut(job)?;
        let is_queued =
            |key: &JobKey| entries.get(key).is_some_and(|entry| entry.phase == Phase::Queued);
        while queue.keys.front().is_some_and(|key| !is_queued(key)) {
            queue.keys.pop_front();
        }
        queue.keys.front()
    }

    /// Offers again what was delayed until now or whose lease has run out; answers which leases
    /// that were.
    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<JobKey> {
        let mut ran_out = Vec::new();
        while let Some(timer) = self.timers.first_entry() {
            if timer.key().0 > now {
                break;
            }
            let key = timer.remove();
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let (phase, job) = (entry.phase, entry.job.clone());
            entry.phase = Phase::Queued;
            if matches!(phase, Phase::Leased { .. }) {
                ran_out.push(key.clone());
            }
            self.count_out(phase, &job);
            self.enqueue(&job, key);
        }
        ran_out
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn contains(&self, key: &JobKey) -> bool {
        self.entries.contains_key(key)
    }

    pub(crate) fn is_leased(&self, key: &JobKey) -> bool {
        matches!(self.entries.get(key), Some(Entry { phase: Phase::Leased { .. }, .. }))
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// The types that have jobs queued.
    pub(crate) fn types_queued(&self) -> Vec<Arc<str>> {
        self.queues.keys().cloned().collect()
    }

    pub(crate) fn has_queued(&self, job: &str) -> bool {
        self.queues.contains_key(job)
    }

    pub(crate) fn leased(&self) -> usize {
        self.leased
    }

    fn enqueue(&mut self, job: &Arc<str>, key: JobKey) {
        self.queued += 1;
        if let Some(queue) = self.queues.get_mut(job) {
            queue.keys.push_back(key);
            queue.queued += 1;
        } else {
            self.queues.insert(job.clone(), Queue { keys: VecDeque::from([key]), queued: 1 });
        }
    }

    fn leave_queue(&mut self, job: &Arc<str>) {
        self.queued -= 1;
        let Some(queue) = self.queues.get_mut(job) else { return };
        queue.queued -= 1;
        if queue.queued == 0 {
            self.queues.remove(job);
        }
    }

    fn set_timer(&mut self, at: Timestamp, key: JobKey) -> Timer {
        self.last_timer += 1;
        let due = (at, self.last_timer);
        self.timers.insert(due, key);
        due
    }

    fn count_out(&mut self, phase: Phase, job: &Arc<str>) {
        match phase {
            Phase::Queued => self.leave_queue(job),
            Phase::Leased { due, .. } => {
                self.timers.remove(&due);
                self.leased -= 1;
            }
            Phase::Delayed { due } => drop(self.timers.remove(&due)),
        }
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::id::NodeId;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const HERE: ServerId = ServerId(7);

    fn key(number: u128) -> JobKey {
        JobKey { instance: InstanceId(number), activity: Activity::once(NodeId(1)) }
    }

    fn types() -> [Arc<str>; 1] {
        [Arc::from("mail")]
    }

    #[test]
    fn jobs_are_given_out_oldest_first_and_once() {
        let mut jobs = Jobs::default();
        jobs.open(key(1), "mail".into(), None, Timestamp(0));
        jobs.open(key(2), "mail".into(), None, Timestamp(0));
        jobs.open(key(3), "other".into(), None, Timestamp(0));
        let taken: Vec<_> = std::iter::from_fn(|| jobs.take(&types(), MINUTE, HERE, Timestamp(0)))
            .map(|(key, ..)| key.instance.0)
            .collect();
        assert_eq!(taken, [1, 2]);
        assert_eq!((jobs.queued(), jobs.leased()), (1, 2));
    }

    #[test]
    fn a_job_whose_lease_ran_out_is_offered_again_and_the_first_worker_has_lost_it() {
        let mut jobs = Jobs::default();
        jobs.open(key(1), "mail".into(), None, Timestamp(0));
        let (_, _, first, expires) = jobs.take(&types(), MINUTE, HERE, Timestamp(0)).unwrap();
        assert_eq!((jobs.next_due(), JobLease::server(first)), (Some(expires), HERE));
        jobs.expire(expires);
        assert_eq!(jobs.verify(&key(1), first), Ok(None), "nobody else has it: still welcome");
        let (_, _, second, _) = jobs.take(&types(), MINUTE, HERE, expires).unwrap();
        assert_eq!(jobs.verify(&key(1), first), Err(LeaseError::Lost));
        assert_eq!(jobs.verify(&key(1), second), Ok(Some(expires)));
        jobs.close(&key(1));
        assert_eq!(jobs.verify(&key(1), second), Err(LeaseError::NotOpen));
    }

    #[test]
    fn a_job_given_back_is_the_next_to_be_given_out_and_its_first_worker_has_lost_it() {
        let mut jobs = Jobs::default();
        jobs.open(key(1), "mail".into(), None, Timestamp(0));
        jobs.open(key(2), "mail".into(), None, Timestamp(0));
        let (_, _, first, _) = jobs.take(&types(), MINUTE, HERE, Timestamp(0)).unwrap();
        jobs.give_back(&key(1), first).unwrap();
        assert_eq!((jobs.queued(), jobs.leased(), jobs.next_due()), (2, 0, None));
        assert_eq!(jobs.give_back(&key(1), first), Err(LeaseError::Lost));
        let (again, _, second, _) = jobs.take(&types(), MINUTE, HERE, Timestamp(0)).unwrap();
        assert_eq!(again, key(1));
        assert_eq!(jobs.give_back(&key(1), first), Err(LeaseError::Lost));
        jobs.close(&key(1));
        assert_eq!(jobs.give_back(&key(1), second), Err(LeaseError::NotOpen));
    }

    #[test]
    fn an_extended_lease_does_not_run_out_at_the_old_moment() {
        let mut jobs = Jobs::default();
        jobs.open(key(1), "mail".into(), None, Timestamp(0));
        let (_, _, lease, expires) = jobs.take(&types(), MINUTE, HERE, Timestamp(0)).unwrap();
        jobs.extend(&key(1), lease, MINUTE, Timestamp(30_000)).unwrap();
        jobs.expire(expires);
        assert_eq!(jobs.leased(), 1);
        assert!(jobs.take(&types(), MINUTE, HERE, expires).is_none());
        jobs.expire(Timestamp(90_000));
        assert!(jobs.take(&types(), MINUTE, HERE, Timestamp(90_000)).is_some());
    }

    #[test]
    fn a_delayed_job_waits_for_its_moment() {
        let mut jobs = Jobs::default();
        jobs.open(key(1), "mail".into(), Some(Timestamp(500)), Timestamp(0));
        assert!(jobs.take(&types(), MINUTE, HERE, Timestamp(499)).is_none());
        jobs.expire(Timestamp(500));
        assert!(jobs.take(&types(), MINUTE, HERE, Timestamp(500)).is_some());
    }
}
