//! Executors as this process calls them: the registered ones, and the calls that the site orders.
//!
//! Invariant: only registered addresses are called, and every message is signed. The outcome of a call is reported
//! to the site once, or not at all: then the site's own time-out applies.

mod call;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use legwork_api::executors::HOLDS_MAX;
use legwork_model::event::ExecutorRegistered;
use legwork_model::value::FileRef;
use legwork_site::{Ask, Call, Concern, JobLease, Outcome, Request, TaskReport};
use legwork_store::BlobId;
use tokio::runtime::Handle;
use tokio::sync::SetOnce;

use crate::backend::Slot;
use crate::clock::Clock;
use crate::drive::Message;
use crate::files::named;
use crate::queue::Queue;
use call::{Said, Web};

pub(crate) struct Executors {
    known: RwLock<BTreeMap<Arc<str>, Arc<ExecutorRegistered>>>,
    queue: Arc<Queue<Message>>,
    clock: Arc<Clock>,
    web: Web,
    /// The callback address: the API of this process, once it listens.
    callback: Arc<SetOnce<Arc<str>>>,
    /// The name of this server, if it is one of several.
    server: Option<Arc<str>>,
    /// The store, for files in results.
    slot: Arc<Slot>,
    runtime: Handle,
}

impl Executors {
    pub(crate) fn new(
        queue: Arc<Queue<Message>>,
        clock: Arc<Clock>,
        (callback, server): (Arc<SetOnce<Arc<str>>>, Option<Arc<str>>),
        slot: Arc<Slot>,
    ) -> Self {
        let (known, web, runtime) = (RwLock::default(), Web::default(), Handle::current());
        Self { known, queue, clock, web, callback, server, slot, runtime }
    }

    /// Sets the currently registered executors.
    pub(crate) fn follow<'e>(&self, all: impl Iterator<Item = &'e Arc<ExecutorRegistered>>) {
        let all = all.map(|one| (one.name.clone(), one.clone())).collect();
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = all;
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<ExecutorRegistered>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Carries out a call ordered by the site, and reports its outcome.
    pub(crate) fn call(self: &Arc<Self>, call: Call) {
        let this = self.clone();
        self.runtime.spawn(async move { this.carry_out(call).await });
    }

    async fn carry_out(&self, Call { executor, ask, why }: Call) {
        let name = executor.name.clone();
        match ask {
            Ask::Task(job) => {
                if let Some(why) = why {
                    tracing::debug!(task = %job.activity, lease = job.lease, executor = %name, %why, "assigned");
                }
                let task = JobLease { activity: job.activity.clone(), lease: job.lease };
                let left = job.expires_at.since(self.clock.now());
                let given = async {
                    let callback = self.callback.wait().await;
                    let from = (&**callback, self.server.as_deref());
                    self.web.give(&executor, job, from, self.clock.now()).await
                };
                // Later it is no longer awaited: its time-out has passed at the site too.
                if let Ok(Said { outcome, feedback, holds }) =
                    tokio::time::timeout(left, given).await
                {
                    let outcome = self.with_files(outcome).await;
                    let executor = name.clone();
                    let report = TaskReport { executor, task, outcome, feedback, holds };
                    let request = Request::Executor(Concern::Report(report));
                    self.queue.push_beyond_limit(Message::Executor { name, request });
                }
            }
            Ask::Verdict { task, counts } => {
                let now = self.clock.now();
                if self.web.tell_verdict(&executor, &task, counts, now).await {
                    let request =
                        Request::Executor(Concern::Confirm { executor: name.clone(), task });
                    self.queue.push_beyond_limit(Message::Executor { name, request });
                }
            }
            Ask::Cancel(task) => self.web.cancel(&executor, &task, self.clock.now()).await,
        }
    }

    /// The immediate result of an executor, if its files are stored here; otherwise a failure.
    async fn with_files(&self, outcome: Outcome) -> Outcome {
        let Outcome::Done(data) = &outcome else { return outcome };
        for file in named(data) {
            let Some(store) = self.slot.borrow() else { return unstored(&file) };
            let blob = BlobId(file.blob);
            let found = tokio::task::spawn_blocking(move || store.blob_size(blob)).await;
            if !matches!(found, Ok(Ok(Some(size))) if size == file.size) {
                return unstored(&file);
            }
        }
        outcome
    }
}

/// A result with a file that cannot be read is a failure.
pub(crate) fn unstored(file: &FileRef) -> Outcome {
    let (blob, size) = (BlobId(file.blob), file.size);
    let error = format!("its result names file {blob} of {size} bytes, which was not uploaded");
    Outcome::Failed { error, retry: true }
}

/// Why an executor cannot be called at an address.
pub(crate) fn check_address(url: &str) -> Result<(), String> {
    call::address(url, "tasks").map(drop)
}

/// The public name of an assignment.
pub(crate) fn task_name(task: &JobLease) -> String {
    format!("{}#{}", task.activity, task.lease)
}

/// The assignment with this public name.
pub(crate) fn task_named(name: &str) -> Option<JobLease> {
    let (activity, lease) = name.rsplit_once('#')?;
    Some(JobLease { activity: activity.parse().ok()?, lease: lease.parse().ok()? })
}

/// The assignments that an executor reports to hold. Invalid names are left out, and those beyond the limit.
pub(crate) fn tasks_held(names: &[String]) -> Vec<JobLease> {
    names.iter().take(HOLDS_MAX).filter_map(|name| task_named(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_found_by_its_name() {
        let (instance, step) = (legwork_model::id::InstanceId(7), "pay".into());
        let iteration = legwork_model::id::Iteration(vec![1]);
        let activity = legwork_model::id::ActivityId { instance, step, iteration };
        let task = JobLease { activity, lease: u64::MAX - 7 };
        assert_eq!(task_named(&task_name(&task)), Some(task.clone()));
        for wrong in ["", "#", "x#1", "pay", "pay#x"] {
            assert_eq!(task_named(wrong), None, "{wrong}");
        }
        let names = ["x#1".to_owned(), task_name(&task)];
        assert_eq!(tasks_held(&names), std::slice::from_ref(&task), "what is no name is left out");
        let many = vec![task_name(&task); HOLDS_MAX + 5];
        assert_eq!(tasks_held(&many).len(), HOLDS_MAX, "a long list is cut");
    }
}
