//! Jobs of workers, of types that executors do as well: they are noted in the book like those of executors.
//!
//! Invariant: the lease of a worker lasts as long as it asked for. A job whose lease expired or that failed counts as
//! tried by the worker; a returned job does not.

use std::collections::BTreeSet;
use std::sync::Arc;

use legwork_model::time::Timestamp;
use legwork_schedule::ExecutorId;

use super::Executors;
use super::assignments::Assignment;
use super::polls::{OpenPolls, Poll};
use super::registry::Number;
use super::workers::{self, WORKERS_MAX};
use crate::Site;
use crate::input::{Activate, RequestId};
use crate::jobs::JobKey;
use crate::waiting::Waiting;

/// How many requests that wait for jobs of a type take part in a dispatch, oldest first.
const POLLS_MAX: usize = 100;
/// How many requests take part in all, so that no worker is forgotten for another.
const POLLS_IN_ALL_MAX: usize = WORKERS_MAX / 2;

impl Executors {
    /// Whether executors do these jobs.
    pub(crate) fn offers(&self, job: &str) -> bool {
        self.registry.offered(job).is_some()
    }

    /// Whether executors do some of the types a worker asks for.
    pub(crate) fn offers_any(&self, types: &[Arc<str>]) -> bool {
        self.registry.len() > 0 && types.iter().any(|job| self.offers(job))
    }

    /// The number of a worker that asks.
    pub(super) fn worker_number(&mut self, name: &Arc<str>) -> ExecutorId {
        let Self { registry, workers, book, assignments, .. } = self;
        let number = workers.on_poll(name, || registry.reserve());
        match number {
            Number::Same(_) => {}
            Number::New(_) => drop(book.register(&workers::limits())),
            Number::Reused(id) => {
                // The forgotten worker keeps its leases all the same.
                let own = assignments.iter().filter(|(_, assignment)| assignment.executor == id);
                for key in own.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
                    assignments.take(&key);
                }
                assignments.forget_executor(id);
                book.replace(id, &workers::limits());
            }
        }
        number.id()
    }

    /// Whether an executor, not a worker, has a job.
    pub(crate) fn is_with_executor(&self, key: &JobKey) -> bool {
        self.assignments.get(key).is_some_and(|assignment| !self.workers.knows(assignment.executor))
    }

    /// The assignment of a worker under a lease, if it is known.
    fn worker_assignment(&self, key: &JobKey, lease: u64) -> Option<&Assignment> {
        let assignment = self.assignments.get(key)?;
        (assignment.lease == lease && self.workers.knows(assignment.executor)).then_some(assignment)
    }

    /// Ends the assignment of a worker that reports on it; `None` if it is not known. If the report is not accepted, it
    /// is restored.
    pub(crate) fn take_from_worker(&mut self, key: &JobKey, lease: u64) -> Option<Assignment> {
        self.worker_assignment(key, lease)?;
        self.assignments.take(key)
    }

    /// A worker has completed a job, perhaps after its lease expired.
    pub(crate) fn on_worker_done(
        &mut self,
        assignment: Option<Assignment>,
        lease: u64,
        now: Timestamp,
    ) {
        let late = || self.assignments.take_late(lease);
        if let Some(id) = assignment.map(|assignment| assignment.id).or_else(late) {
            self.book.answered(id, now);
        }
    }

    /// A worker has failed; `is_open`: there is another attempt.
    pub(crate) fn on_worker_failed(
        &mut self,
        (key, lease): (&JobKey, u64),
        assignment: Option<Assignment>,
        is_open: bool,
        now: Timestamp,
    ) {
        if let (Some(assignment), true) = (assignment, is_open) {
            self.assignments.note_tried(key, assignment.executor);
        }
        let late = || self.assignments.take_late(lease);
        if let Some(id) = assignment.map(|assignment| assignment.id).or_else(late) {
            self.book.failed(id, now);
        }
    }

    /// A worker returns a job, which is not held against it.
    pub(crate) fn on_worker_returned(&mut self, key: &JobKey, lease: u64, now: Timestamp) {
        if let Some(assignment) = self.take_from_worker(key, lease) {
            self.book.withdrawn(assignment.id, now);
        }
    }

    /// The lease of a worker has expired: the job may go to others.
    pub(super) fn on_worker_lease_expired(&mut self, key: &JobKey, now: Timestamp) {
        let Some((assignment, forgotten)) = self.assignments.give_up(key) else { return };
        self.book.timed_out(assignment.id, now);
        if let Some(forgotten) = forgotten {
            self.book.withdrawn(forgotten, now);
        }
    }
}

impl Site {
    /// A report was not accepted: its worker still has the job, if the job is open.
    pub(crate) fn put_back(
        &mut self,
        key: &JobKey,
        assignment: Option<Assignment>,
        now: Timestamp,
    ) {
        let Some(assignment) = assignment else { return };
        match self.jobs.contains(key) {
            true => self.executors.assignments.assign(key.clone(), assignment),
            false => self.executors.book.withdrawn(assignment.id, now),
        }
    }

    /// The oldest requests that wait for types with queued jobs.
    pub(super) fn open_polls(&mut self) -> OpenPolls {
        let mut polls = OpenPolls::default();
        if self.executors.registry.len() == 0 {
            return polls;
        }
        let queued = self.jobs.types_queued();
        let ids = queued.iter().flat_map(|job| self.waiting.polls_for(job).take(POLLS_MAX));
        let ids: BTreeSet<RequestId> = ids.collect();
        for id in ids.into_iter().take(POLLS_IN_ALL_MAX) {
            let Some(Waiting::Jobs(Activate { worker, types, max, lease, .. })) =
                self.waiting.peek(id)
            else {
                continue;
            };
            let poll = Poll {
                worker: worker.clone(),
                number: self.executors.worker_number(worker),
                lease: *lease,
                max: *max,
                jobs: Vec::new(),
            };
            polls.add(id, types.iter().filter(|job| self.jobs.has_queued(job)), poll);
        }
        polls
    }
}
