//! Resends a result without a verdict: a server that was killed before it stored the result does
//! not know of it.
//!
//! Invariant: it ends with the first verdict, or when the result is forgotten, so at most the
//! remembered results wait; few are sent at a time.

use std::sync::Arc;
use std::time::Duration;

use crate::callback::{self, Message};
use crate::memory::Outcome;
use crate::serve::{Pauses, Shared};

/// The most concurrent resends: after an outage many are due at once.
pub(crate) const AT_A_TIME_MAX: usize = 32;
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// Returns when there is a verdict, or none is expected.
pub(crate) async fn until_judged(
    shared: &Arc<Shared>,
    task: &str,
    outcome: &Outcome,
    callback: &str,
) {
    let Some(mut judged) = shared.memory().unjudged(task) else { return };
    let first = shared.executor.verdict_patience.max(PAUSE_MIN);
    let mut pauses = Pauses::new(first, PAUSE_MAX.max(first));
    loop {
        let turn = async {
            pauses.wait().await;
            shared.reminders.acquire().await
        };
        let turn = tokio::select! {
            _ = &mut judged => return,
            turn = turn => turn,
        };
        tracing::info!(task, "no verdict: resending the result");
        // A begun send is completed: a verdict may come before its answer.
        let Some(message) = Message::now(shared, task, outcome, callback) else { return };
        Box::pin(callback::attempt(shared, task, &message)).await;
        drop(turn);
    }
}
