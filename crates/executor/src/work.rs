//! Runs a task: the handler runs on its own while the request waits for a while.
//!
//! Invariant: a handler runs independently of the request, so that a broken connection ends nothing; if it takes
//! longer than the patience, or the request is gone, its result is sent.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use legwork_api::Data;
use serde_json::Value as Json;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet, unconstrained};
use tokio::time::Instant;

use crate::memory::{Admission, Outcome, Waiting, giver};
use crate::serve::Shared;
use crate::{Failure, Handler, Task, callback, remind};

/// The largest result: a server accepts bodies of 1 MiB.
const RESULT_BYTES_MAX: usize = (1 << 20) - (8 << 10);

/// Why a task is not begun now.
pub(crate) enum NotNow {
    Busy,
    Closed,
}

/// Begins the task unless it was begun before; either way there is one answer to wait for.
pub(crate) fn begin(
    shared: &Arc<Shared>,
    task: Task,
    handler: &Handler,
    limit_of: Option<u32>,
) -> Result<Waiting, NotNow> {
    let mut memory = shared.memory();
    match memory.admit(&task, shared.executor.limit, limit_of) {
        Admission::Known(waiting) => Ok(waiting),
        Admission::Busy => Err(NotNow::Busy),
        Admission::Closed => Err(NotNow::Closed),
        Admission::New(waiting) => {
            let (callback, giver) = (task.callback.clone(), giver(&task));
            let run = Run { task: task.task.clone(), kind: task.kind.clone(), callback, giver };
            let handler = handler.clone();
            let hands = shared.hands_of.get(&task.kind).into_iter().chain([&shared.hands]);
            let hands: Vec<_> = hands.cloned().collect();
            let hand = queue(hands);
            let mut work = JoinSet::new();
            // The handler is called in the spawned task: if it panics, only the task fails.
            let working = work.spawn(async move {
                let hand = hand.await;
                let begun = Instant::now();
                let outcome = handler(task).await;
                drop(hand);
                (outcome, begun.elapsed())
            });
            memory.begun(&run.task, working);
            drop(memory);
            shared.spawn(run.go(shared.clone(), work));
            Ok(waiting)
        }
    }
}

/// Waits for a free slot of each semaphore in turn, in the order of the calls: spawned tasks run in any order, and
/// only a polled future is in the queue of a semaphore.
fn queue(
    hands: Vec<Arc<Semaphore>>,
) -> impl Future<Output = Vec<Option<OwnedSemaphorePermit>>> + Send {
    let mut place = Box::pin(unconstrained(async move {
        let mut own = Vec::with_capacity(hands.len());
        for hands in hands {
            own.push(hands.acquire_owned().await.ok());
        }
        own
    }));
    let first = place.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    async move {
        match first {
            Poll::Ready(own) => own,
            Poll::Pending => place.await,
        }
    }
}

/// The result of a handler, and its service time.
type Worked = (Result<Json, Failure>, Duration);

struct Run {
    task: String,
    kind: String,
    callback: String,
    /// The server that it counts for.
    giver: String,
}

impl Run {
    async fn go(self, shared: Arc<Shared>, mut work: JoinSet<Worked>) {
        let ended = match tokio::time::timeout(shared.executor.patience, work.join_next()).await {
            Ok(ended) => ended,
            Err(_) => {
                shared.memory().taken(&self.task);
                work.join_next().await
            }
        };
        let took = match &ended {
            Some(Ok((_, took))) => u64::try_from(took.as_millis()).ok(),
            Some(Err(_)) | None => None,
        };
        let (outcome, bytes) = outcome(ended.map(|ended| ended.map(|(outcome, _)| outcome)));
        let outcome = Arc::new(outcome);
        let send = {
            let mut memory = shared.memory();
            memory.ended(&self.task, &self.giver, &self.kind);
            memory.took(&self.task, took);
            memory.finished(&self.task, &outcome, bytes)
        };
        shared.changed.notify_waiters();
        if send {
            // Boxed, like the following future: many wait for their verdict, and few send.
            Box::pin(callback::send(&shared, &self.task, &outcome, &self.callback)).await;
            shared.changed.notify_waiters();
        }
        if shared.executor.verdicts {
            remind::until_judged(&shared, &self.task, &outcome, &self.callback).await;
        }
    }
}

/// The outcome, and its size.
fn outcome(ended: Option<Result<Result<Json, Failure>, JoinError>>) -> (Outcome, usize) {
    let outcome = match ended {
        Some(Ok(Ok(Json::Object(values)))) => Ok(Data::from_iter(values)),
        Some(Ok(Ok(Json::Null))) => Ok(Data::new()),
        Some(Ok(Ok(Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_)))) => {
            Err(Failure::forever("the handler did not answer a JSON object; mend the executor"))
        }
        Some(Ok(Err(failure))) => Err(failure),
        Some(Err(error)) if error.is_cancelled() => Err(Failure::again("it was cancelled")),
        Some(Err(_)) | None => Err(Failure::again("the handler panicked; see the executor's log")),
    };
    match outcome {
        Ok(data) => {
            let bytes = serde_json::to_vec(&data).map_or(usize::MAX, |json| json.len());
            if bytes <= RESULT_BYTES_MAX {
                return (Ok(data), bytes);
            }
            let reason = format!(
                "the result has more than {RESULT_BYTES_MAX} bytes; put large values into files"
            );
            (Err(Failure::forever(reason)), 0)
        }
        Err(failure) => {
            let bytes = failure.reason.len();
            (Err(failure), bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_objects_of_a_size_that_can_be_told_are_results() {
        let check = |answered: Json| outcome(Some(Ok(Ok(answered)))).0;
        assert_eq!(check(json!({"a": 1})), Ok(Data::from([("a".to_owned(), json!(1))])));
        assert_eq!(check(Json::Null), Ok(Data::new()));
        assert!(!check(json!([1])).unwrap_err().retry);
        let large = check(json!({"a": "x".repeat(RESULT_BYTES_MAX)})).unwrap_err();
        assert!(!large.retry && large.reason.contains("files"), "{large:?}");
    }

    #[test]
    fn the_first_in_the_queue_has_the_next_slot() {
        let hands = Arc::new(Semaphore::new(1));
        let mut places = [0, 1, 2].map(|_| Box::pin(queue(vec![hands.clone()])));
        let mut has = |place: usize| {
            places[place].as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        // Each is polled before the earlier ones; the slot is released when it is acquired.
        assert!(!has(2) && !has(1) && has(0));
        assert!(!has(2) && has(1));
        assert!(has(2));
    }
}
