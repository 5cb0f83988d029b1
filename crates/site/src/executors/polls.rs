//! Workers that wait for jobs during a dispatch.
//!
//! Invariant: each request is answered once, with all jobs of one dispatch, and with no more jobs than it asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_schedule::ExecutorId;

use crate::answer::Job;
use crate::input::RequestId;

#[derive(Debug, Default)]
pub(super) struct OpenPolls {
    polls: BTreeMap<RequestId, Poll>,
    /// Requests that accept more jobs of a type, oldest first.
    open: BTreeMap<Arc<str>, BTreeSet<RequestId>>,
}

/// A request that waits for jobs.
#[derive(Debug)]
pub(super) struct Poll {
    pub(super) worker: Arc<str>,
    pub(super) number: ExecutorId,
    pub(super) lease: Duration,
    pub(super) max: usize,
    pub(super) jobs: Vec<Job>,
}

impl OpenPolls {
    /// Adds a request for jobs of these types.
    pub(super) fn add<'t>(
        &mut self,
        id: RequestId,
        types: impl Iterator<Item = &'t Arc<str>>,
        poll: Poll,
    ) {
        for job in types {
            self.open.entry(job.clone()).or_default().insert(id);
        }
        self.polls.insert(id, poll);
    }

    /// How many jobs all requests accept.
    pub(super) fn room(&self) -> usize {
        self.polls.values().map(|poll| poll.max - poll.jobs.len()).sum()
    }

    pub(super) fn wants(&self, job: &str) -> bool {
        self.open.contains_key(job)
    }

    /// The workers that wait for a job of a type, by number.
    pub(super) fn workers(&self, job: &str) -> Vec<ExecutorId> {
        let mut numbers: Vec<ExecutorId> = self.of_type(job).map(|(_, poll)| poll.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The oldest request for jobs of a type, of any worker or of one.
    pub(super) fn first(
        &self,
        job: &str,
        number: Option<ExecutorId>,
    ) -> Option<(RequestId, &Poll)> {
        self.of_type(job).find(|(_, poll)| number.is_none_or(|number| poll.number == number))
    }

    fn of_type(&self, job: &str) -> impl Iterator<Item = (RequestId, &Poll)> {
        let ids = self.open.get(job).into_iter().flatten();
        ids.filter_map(|id| Some((*id, self.polls.get(id)?)))
    }

    pub(super) fn give(&mut self, id: RequestId, job: Job) {
        let Some(poll) = self.polls.get_mut(&id) else { return };
        poll.jobs.push(job);
        if poll.jobs.len() >= poll.max {
            self.open.retain(|_, ids| {
                ids.remove(&id);
                !ids.is_empty()
            });
        }
    }

    /// The requests that were given jobs.
    pub(super) fn served(self) -> impl Iterator<Item = (RequestId, Vec<Job>)> {
        let polls = self.polls.into_iter().map(|(id, poll)| (id, poll.jobs));
        polls.filter(|(_, jobs)| !jobs.is_empty())
    }
}
