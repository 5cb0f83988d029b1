//! Verdicts: whether results count. A verdict is acknowledged only after the hook was called.
//!
//! Invariant: a hook runs independently of the request, and once at a time for a task.

use std::sync::Arc;

use legwork_api::executors::Verdict;
use tokio::task::JoinSet;

use crate::Failure;
use crate::memory::Judgement;
use crate::serve::Shared;

/// The answer to a verdict.
pub(crate) enum Confirmation {
    Confirmed,
    /// The hook is running: resend the verdict.
    Later,
    Failed(Failure),
}

pub(crate) async fn pass(shared: &Arc<Shared>, task: &str, verdict: Verdict) -> Confirmation {
    let judged = match shared.memory().judge(task) {
        Judgement::Call(judged) => judged,
        Judgement::Confirmed => return Confirmation::Confirmed,
        Judgement::Later => return Confirmation::Later,
    };
    let hook = match verdict {
        Verdict::Ack => shared.executor.ack.clone(),
        Verdict::Nack => shared.executor.nack.clone(),
    };
    let Some(hook) = hook else {
        shared.memory().judged(task, true);
        shared.changed.notify_waiters();
        return Confirmation::Confirmed;
    };
    let (told, heard) = tokio::sync::oneshot::channel();
    let (owner, name) = (shared.clone(), task.to_owned());
    shared.spawn(async move {
        let mut call = JoinSet::new();
        // The hook is called in the spawned task: if it panics, only the verdict is delivered
        // again.
        call.spawn(async move { hook(judged).await });
        let done = match call.join_next().await {
            Some(Ok(done)) => done,
            Some(Err(_)) | None => Err(Failure::again("the hook panicked; see the log")),
        };
        owner.memory().judged(&name, done.is_ok());
        owner.changed.notify_waiters();
        // The requester may be gone.
        let _ = told.send(done);
    });
    match heard.await {
        Ok(Ok(())) => Confirmation::Confirmed,
        Ok(Err(failure)) => Confirmation::Failed(failure),
        Err(_) => Confirmation::Later,
    }
}
