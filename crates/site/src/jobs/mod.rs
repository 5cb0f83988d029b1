//! Jobs of automatic steps: the open ones, their leases and delays.
//!
//! Leases are volatile on purpose. The history records only what a step did. After a restart every open job is offered
//! again; a worker that still has one may report it as long as no other worker has taken it since. So there is at most
//! one accepted completion per activity.

pub(crate) mod demand;
pub(crate) mod worker;

mod backlog;
mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::{Activity, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_schedule::{ExecutorId, Waiting};
use rustc_hash::FxHashMap;

use crate::input::JobLease;
use backlog::{Backlog, Place};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct JobKey {
    pub(crate) instance: InstanceId,
    pub(crate) activity: Activity,
}

/// A new job.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) job: Arc<str>,
    pub(crate) process: Arc<str>,
    pub(crate) priority: u32,
    /// Amount of work, in the unit of the type.
    pub(crate) size: f64,
    /// Since when it is due.
    pub(crate) since: Timestamp,
    /// The earliest moment to give it out.
    pub(crate) not_before: Option<Timestamp>,
    /// By when it is due, if it is promised.
    pub(crate) promised: Option<Timestamp>,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Queued,
    Delayed { due: Timer },
    Leased { lease: u64, since: Timestamp, due: Timer },
}

/// A due time, and a number that distinguishes timers of the same moment.
type Timer = (Timestamp, u64);

/// Why a report about a job is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseError {
    /// Already completed, withdrawn, or never open.
    NotOpen,
    /// Its lease expired, and another worker has taken it.
    Lost,
}

#[derive(Debug, Default)]
pub(crate) struct Jobs {
    /// Looked up by key; never iterated.
    entries: FxHashMap<JobKey, Entry>,
    queued: Backlog,
    /// When leases expire and delays end.
    timers: BTreeMap<Timer, JobKey>,
    first_lease: u64,
    last_lease: u64,
    last_timer: u64,
    leased: usize,
    /// Promised jobs whose lease has ended.
    unleased: Vec<JobKey>,
}

impl Jobs {
    /// No number above `first_lease` may have been used before a restart.
    pub(crate) fn new(first_lease: u64) -> Self {
        Self { first_lease, last_lease: first_lease, ..Self::default() }
    }

    /// Opens a job.
    pub(crate) fn open(&mut self, key: JobKey, offer: Offer, now: Timestamp) {
        let Offer { job, process, priority, size, since, not_before, promised } = offer;
        self.close(&key);
        let rank = match promised {
            Some(due) => self.queued.rank_promised(due),
            None => self.queued.rank(since, priority),
        };
        let place = Place { job, process, rank, size, is_promised: promised.is_some() };
        let phase = match not_before.filter(|&until| until > now) {
            Some(until) => Phase::Delayed { due: self.set_timer(until, key.clone()) },
            None => {
                self.queued.add(&place, key.clone());
                Phase::Queued
            }
        };
        self.entries.insert(key, Entry { place, phase });
    }

    /// Promised jobs whose lease has ended, by completion or otherwise, since the last call.
    pub(crate) fn take_unleased(&mut self) -> Vec<JobKey> {
        std::mem::take(&mut self.unleased)
    }

    fn note_unleased(&mut self, key: &JobKey) {
        if self.is_leased(key) && self.is_promised(key) == Some(true) {
            self.unleased.push(key.clone());
        }
    }

    /// The job is completed or no longer wanted.
    pub(crate) fn close(&mut self, key: &JobKey) {
        self.note_unleased(key);
        if let Some(entry) = self.entries.remove(key) {
            self.unregister(&entry);
        }
    }

    /// The next job of the wanted types.
    pub(crate) fn next(
        &self,
        is_wanted: impl Fn(&Arc<str>, bool) -> bool,
    ) -> Option<(&Arc<str>, &JobKey)> {
        self.queued.next(is_wanted)
    }

    /// The executor that has promised a job cannot begin it now, or no executor accepts it: other jobs go first until
    /// it is released.
    pub(crate) fn hold(&mut self, key: &JobKey, by: Option<ExecutorId>) {
        if let Some(entry) = self.entries.get(key).filter(|entry| entry.phase == Phase::Queued) {
            self.queued.hold(&entry.place, by);
        }
    }

    /// Returns jobs held for an executor, or for any if `None`, to the queue.
    pub(crate) fn unhold(&mut self, by: Option<ExecutorId>) {
        self.queued.unhold(by);
    }

    /// The due time of a promised job has changed, or the promise was revoked. Without a promise the job is ranked by
    /// its age and priority.
    pub(crate) fn rerank(
        &mut self,
        key: &JobKey,
        promised: Option<Timestamp>,
        (since, priority): (Timestamp, u32),
    ) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let rank = match promised {
            Some(due) => self.queued.rank_promised(due),
            None => self.queued.rank(since, priority),
        };
        let is_promised = promised.is_some();
        let before = entry.place.clone();
        entry.place = Place { rank, is_promised, ..before.clone() };
        if entry.phase == Phase::Queued {
            self.queued.remove(&before);
            self.queued.add(&entry.place, key.clone());
        }
    }

    /// Whether a job is promised; `None` if it is not open.
    pub(crate) fn is_promised(&self, key: &JobKey) -> Option<bool> {
        self.entries.get(key).map(|entry| entry.place.is_promised)
    }

    /// Leases a queued job; returns the lease and its end.
    pub(crate) fn take(
        &mut self,
        key: &JobKey,
        lease_for: Duration,
        here: ServerId,
        now: Timestamp,
    ) -> Option<(u64, Timestamp)> {
        let entry = self.entries.get_mut(key).filter(|entry| entry.phase == Phase::Queued)?;
        self.queued.take(&entry.place);
        self.last_lease = self.last_lease.wrapping_add(1);
        let lease = JobLease::number(here, self.last_lease);
        let expires = now + lease_for;
        self.last_timer += 1;
        let due = (expires, self.last_timer);
        entry.phase = Phase::Leased { lease, since: now, due };
        self.leased += 1;
        self.timers.insert(due, key.clone());
        Some((lease, expires))
    }

    /// Whether a report with this lease is accepted; returns when the work began, if known.
    pub(crate) fn verify(&self, key: &JobKey, lease: u64) -> Result<Option<Timestamp>, LeaseError> {
        match self.entries.get(key).map(|entry| entry.phase) {
            None => Err(LeaseError::NotOpen),
            Some(Phase::Leased { lease: current, since, .. }) if current == lease => {
                Ok(Some(since))
            }
            Some(Phase::Leased { .. }) => Err(LeaseError::Lost),
            // No other worker has taken the job since: the work is accepted. A delayed job was already reported as
            // failed.
            Some(Phase::Queued) => Ok(None),
            Some(Phase::Delayed { .. }) => Err(LeaseError::Lost),
        }
    }

    /// Extends a lease that has not expired.
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

    /// Extends all leases; delays end when they would have.
    pub(crate) fn prolong(&mut self, by: Duration) {
        for (due, key) in std::mem::take(&mut self.timers) {
            let later = (due.0 + by, due.1);
            let kept = match self.entries.get_mut(&key).map(|entry| &mut entry.phase) {
                Some(Phase::Leased { due, .. }) => {
                    *due = later;
                    later
                }
                Some(Phase::Queued | Phase::Delayed { .. }) | None => due,
            };
            self.timers.insert(kept, key);
        }
    }

    /// Offers a job again that its worker has returned. It keeps its age and so its rank.
    pub(crate) fn give_back(&mut self, key: &JobKey, lease: u64) -> Result<(), LeaseError> {
        let entry = self.entries.get(key).ok_or(LeaseError::NotOpen)?;
        match entry.phase {
            Phase::Leased { lease: current, .. } if current == lease => {
                self.enqueue(key, Backlog::requeue);
                Ok(())
            }
            Phase::Leased { .. } | Phase::Queued | Phase::Delayed { .. } => Err(LeaseError::Lost),
        }
    }

    /// Ends the lease of a job and delays it. It keeps its age.
    pub(crate) fn delay(&mut self, key: &JobKey, until: Timestamp) {
        self.note_unleased(key);
        let Some(mut entry) = self.entries.remove(key) else { return };
        self.unregister(&entry);
        entry.phase = Phase::Delayed { due: self.set_timer(until, key.clone()) };
        self.entries.insert(key.clone(), entry);
    }

    /// Offers jobs again whose delay is over or whose lease has expired; returns the latter.
    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<JobKey> {
        let mut ran_out = Vec::new();
        while let Some(timer) = self.timers.first_entry() {
            if timer.key().0 > now {
                break;
            }
            let key = timer.remove();
            if self.is_leased(&key) {
                ran_out.push(key.clone());
            }
            self.enqueue(&key, Backlog::add);
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

    /// Whether a lease was given out by this server since it started.
    pub(crate) fn has_leased(&self, here: ServerId, lease: u64) -> bool {
        // Counters begin anywhere and wrap around.
        let after_first =
            |counter: u64| JobLease::number(ServerId(0), counter.wrapping_sub(self.first_lease));
        let place = after_first(lease);
        JobLease::server(lease) == here && (1..=after_first(self.last_lease)).contains(&place)
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued.len()
    }

    /// The types with queued jobs.
    pub(crate) fn types_queued(&self) -> Vec<Arc<str>> {
        let mut types: Vec<Arc<str>> = self.queued.types().map(|(job, _)| job.clone()).collect();
        types.sort_unstable();
        types.dedup();
        types
    }

    /// The types with queued jobs, promised and others separately.
    pub(crate) fn queued_of(&self) -> impl Iterator<Item = (&Arc<str>, bool)> {
        self.queued.types()
    }

    /// Number and size of the waiting jobs of each type that are not promised.
    pub(crate) fn amounts(&self) -> impl Iterator<Item = (&Arc<str>, Waiting)> {
        self.queued.amounts()
    }

    /// Number of waiting jobs of each type.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.queued.counts().into_iter()
    }

    pub(crate) fn has_queued(&self, job: &str) -> bool {
        self.queued.has(job)
    }

    pub(crate) fn leased(&self) -> usize {
        self.leased
    }

    /// Queues a job that was leased or delayed.
    fn enqueue(&mut self, key: &JobKey, put: fn(&mut Backlog, &Place, JobKey)) {
        self.note_unleased(key);
        let Some(mut entry) = self.entries.remove(key) else { return };
        self.unregister(&entry);
        put(&mut self.queued, &entry.place, key.clone());
        entry.phase = Phase::Queued;
        self.entries.insert(key.clone(), entry);
    }

    fn set_timer(&mut self, at: Timestamp, key: JobKey) -> Timer {
        self.last_timer += 1;
        let due = (at, self.last_timer);
        self.timers.insert(due, key);
        due
    }

    fn unregister(&mut self, entry: &Entry) {
        match entry.phase {
            Phase::Queued => self.queued.remove(&entry.place),
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

    fn offer(job: &str, not_before: Option<Timestamp>) -> Offer {
        let (process, since) = ("claim".into(), Timestamp(0));
        Offer {
            job: job.into(),
            process,
            priority: 5,
            size: 1.0,
            since,
            not_before,
            promised: None,
        }
    }

    /// The next mail job, with its lease and the end of the lease.
    fn take(jobs: &mut Jobs, now: Timestamp) -> Option<(JobKey, u64, Timestamp)> {
        let (_, key) = jobs.next(|job, _| **job == *"mail")?;
        let key = key.clone();
        let (lease, expires) = jobs.take(&key, MINUTE, HERE, now)?;
        Some((key, lease, expires))
    }

    #[test]
    fn jobs_are_given_out_oldest_first_and_once() {
        let mut jobs = Jobs::default();
        jobs.open(key(1), offer("mail", None), Timestamp(0));
        jobs.open(key(2), offer("mail", None), Timestamp(0));
        jobs.open(key(3), offer("other", None), Timestamp(0));
        let taken: Vec<_> = std::iter::from_fn(|| take(&mut jobs, Timestamp(0)))
            .map(|(key, ..)| key.instance.0)
            .collect();
        assert_eq!(taken, [1, 2]);
        assert_eq!((jobs.queued(), jobs.leased()), (1, 2));
    }

    #[test]
    fn a_job_whose_lease_expired_is_offered_again_and_lost_to_its_first_worker() {
        let mut jobs = Jobs::default();
        jobs.open(key(1), offer("mail", None), Timestamp(0));
        let (_, first, expires) = take(&mut jobs, Timestamp(0)).unwrap();
        assert_eq!((jobs.next_due(), JobLease::server(first)), (Some(expires), HERE));
        jobs.expire(expires);
        assert_eq!(jobs.verify(&key(1), first), Ok(None), "nobody else has it: still welcome");
        let (_, second, _) = take(&mut jobs, expires).unwrap();
        assert_eq!(jobs.verify(&key(1), first), Err(LeaseError::Lost));
        assert_eq!(jobs.verify(&key(1), second), Ok(Some(expires)));
        jobs.close(&key(1));
        assert_eq!(jobs.verify(&key(1), second), Err(LeaseError::NotOpen));
    }

    #[test]
    fn a_returned_job_is_the_next_to_be_leased_and_lost_to_its_first_worker() {
        let mut jobs = Jobs::default();
        jobs.open(key(1), offer("mail", None), Timestamp(0));
        jobs.open(key(2), offer("mail", None), Timestamp(0));
        let (_, first, _) = take(&mut jobs, Timestamp(0)).unwrap();
        jobs.give_back(&key(1), first).unwrap();
        assert_eq!((jobs.queued(), jobs.leased(), jobs.next_due()), (2, 0, None));
        assert_eq!(jobs.give_back(&key(1), first), Err(LeaseError::Lost));
        let (again, second, _) = take(&mut jobs, Timestamp(0)).unwrap();
        assert_eq!(again, key(1));
        assert_eq!(jobs.give_back(&key(1), first), Err(LeaseError::Lost));
        jobs.close(&key(1));
        assert_eq!(jobs.give_back(&key(1), second), Err(LeaseError::NotOpen));
    }

    #[test]
    fn an_extended_lease_does_not_expire_at_the_old_moment() {
        let mut jobs = Jobs::default();
        jobs.open(key(1), offer("mail", None), Timestamp(0));
        let (_, lease, expires) = take(&mut jobs, Timestamp(0)).unwrap();
        jobs.extend(&key(1), lease, MINUTE, Timestamp(30_000)).unwrap();
        jobs.expire(expires);
        assert_eq!(jobs.leased(), 1);
        assert!(take(&mut jobs, expires).is_none());
        jobs.expire(Timestamp(90_000));
        assert!(take(&mut jobs, Timestamp(90_000)).is_some());
    }

    #[test]
    fn a_delayed_job_waits_for_its_moment() {
        let mut jobs = Jobs::default();
        jobs.open(key(1), offer("mail", Some(Timestamp(500))), Timestamp(0));
        assert!(take(&mut jobs, Timestamp(499)).is_none());
        jobs.expire(Timestamp(500));
        assert!(take(&mut jobs, Timestamp(500)).is_some());
    }
}
