//! What workers do with jobs of types that executors do as well: it is written down as of executors.
//!
//! Invariant: a worker's lease is the one that it asked for. What it lets run out or fails at it has tried;
//! what it gives back it has not.

use std::collections::BTreeSet;
use std::sync::Arc;

use legwork_model::time::Timestamp;
use legwork_schedule::ExecutorId;

use super::Executors;
use super::asking::{Asking, Poll};
use super::given::Gift;
use super::registry::Number;
use super::workers::{self, WORKERS_MAX};
use crate::Site;
use crate::input::{Activate, RequestId};
use crate::jobs::JobKey;
use crate::waiting::Waiting;

/// So many of those that wait for jobs of a type are looked at, the oldest first.
const ASKING_MAX: usize = 100;
/// And so many in all: none of them is forgotten for another one.
const ASKING_IN_ALL_MAX: usize = WORKERS_MAX / 2;

impl Executors {
    /// Whether executors do these jobs as well.
    pub(crate) fn offers(&self, job: &str) -> bool {
        self.registry.offered(job).is_some()
    }

    /// Whether executors do some of what a worker asks for.
    pub(crate) fn offers_any(&self, types: &[Arc<str>]) -> bool {
        self.registry.len() > 0 && types.iter().any(|job| self.offers(job))
    }

    /// The number of a worker that asks.
    pub(super) fn know_worker(&mut self, name: &Arc<str>) -> ExecutorId {
        let Self { registry, workers, book, given, .. } = self;
        let number = workers.ask(name, || registry.reserve());
        match number {
            Number::Same(_) => {}
            Number::New(_) => drop(book.register(&workers::limits())),
            Number::Again(id) => {
                // What the forgotten one has is leased to it all the same.
                let own = given.iter().filter(|(_, gift)| gift.executor == id);
                for key in own.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
                    given.take(&key);
                }
                given.forget_executor(id);
                book.replace(id, &workers::limits());
            }
        }
        number.id()
    }

    /// Whether an executor has a job, and no worker.
    pub(crate) fn is_called(&self, key: &JobKey) -> bool {
        self.given.get(key).is_some_and(|gift| !self.workers.knows(gift.executor))
    }

    /// What a worker has under a lease, if it was told apart.
    fn polled(&self, key: &JobKey, lease: u64) -> Option<&Gift> {
        let gift = self.given.get(key)?;
        (gift.lease == lease && self.workers.knows(gift.executor)).then_some(gift)
    }

    /// A worker reports on what it has under a lease; `None` if it was not told apart. If the report does
    /// not count, it is put back.
    pub(crate) fn take_polled(&mut self, key: &JobKey, lease: u64) -> Option<Gift> {
        self.polled(key, lease)?;
        self.given.take(key)
    }

    /// A worker has done what it had under a lease, perhaps after that ran out.
    pub(crate) fn worker_did(&mut self, gift: Option<Gift>, lease: u64, now: Timestamp) {
        let late = || self.given.take_late(lease);
        if let Some(assignment) = gift.map(|gift| gift.assignment).or_else(late) {
            self.book.answered(assignment, now);
        }
    }

    /// A worker has failed at it; `is_open`: there is another attempt.
    pub(crate) fn worker_failed(
        &mut self,
        (key, lease): (&JobKey, u64),
        gift: Option<Gift>,
        is_open: bool,
        now: Timestamp,
    ) {
        if let (Some(gift), true) = (gift, is_open) {
            self.given.note_tried(key, gift.executor);
        }
        let late = || self.given.take_late(lease);
        if let Some(assignment) = gift.map(|gift| gift.assignment).or_else(late) {
            self.book.failed(assignment, now);
        }
    }

    /// A worker gives back what it was given; that counts against no one.
    pub(crate) fn worker_returned(&mut self, key: &JobKey, lease: u64, now: Timestamp) {
        if let Some(gift) = self.take_polled(key, lease) {
            self.book.withdrawn(gift.assignment, now);
        }
    }

    /// The lease of a worker has run out: others may have the job, as always.
    pub(super) fn worker_ran_out(&mut self, key: &JobKey, now: Timestamp) {
        let Some((gift, forgotten)) = self.given.give_up(key) else { return };
        self.book.timed_out(gift.assignment, now);
        if let Some(forgotten) = forgotten {
            self.book.withdrawn(forgotten, now);
        }
    }
}

impl Site {
    /// The report on a job did not count: its worker has it still, if there is such a job.
    pub(crate) fn put_back(&mut self, key: &JobKey, gift: Option<Gift>, now: Timestamp) {
        let Some(gift) = gift else { return };
        match self.jobs.contains(key) {
            true => self.executors.given.give(key.clone(), gift),
            false => self.executors.book.withdrawn(gift.assignment, now),
        }
    }

    /// Some of those that wait for jobs of which there are some, the oldest.
    pub(super) fn asking(&mut self) -> Asking {
        let mut asking = Asking::default();
        if self.executors.registry.len() == 0 {
            return asking;
        }
        let queued = self.jobs.types_queued();
        let polls = queued.iter().flat_map(|job| self.waiting.polls_for(job).take(ASKING_MAX));
        let polls: BTreeSet<RequestId> = polls.collect();
        for id in polls.into_iter().take(ASKING_IN_ALL_MAX) {
            let Some(Waiting::Jobs(Activate { worker, types, max, lease, .. })) =
                self.waiting.peek(id)
            else {
                continue;
            };
            let poll = Poll {
                worker: worker.clone(),
                number: self.executors.know_worker(worker),
                lease: *lease,
                max: *max,
                jobs: Vec::new(),
            };
            asking.add(id, types.iter().filter(|job| self.jobs.has_queued(job)), poll);
        }
        asking
    }
}
