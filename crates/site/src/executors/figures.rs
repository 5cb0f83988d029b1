//! Metrics of executors and of the backlog.
//!
//! Invariant: they are shown without a token, so they hold names and numbers, and nothing of a case.

use std::sync::Arc;

use crate::Site;
use crate::answer::Answer;
use crate::page;

/// The most types for which waiting jobs are counted.
const TYPES_MAX: usize = 1_000;

impl Site {
    /// A page of executors by name; the first page also has the number of waiting jobs by type.
    pub(super) fn figures(&self, after: Option<&str>, limit: usize) -> Answer {
        let later = self.executors.registry.all();
        let later = later.filter(|(_, one)| after.is_none_or(|after| &*one.name > after));
        let (executors, more) = page(later.map(|(id, one)| self.executor_info(id, one)), limit);
        let waiting = self.jobs.waiting().take(if after.is_none() { TYPES_MAX } else { 0 });
        let waiting = waiting.map(|(job, count)| (Arc::clone(job), count)).collect();
        Answer::Figures { executors, more, waiting }
    }
}
