//! Sends a late result to the callback of its task, with retries until it is acknowledged.
//!
//! Invariant: only `202`, or a verdict, which implies it, ends the retries. The address comes from
//! a signed request, and no redirect is followed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Uri;
use legwork_api::Client;
use legwork_api::client;
use legwork_api::executors::TaskResult;
use legwork_api::signature::{self, Signed};

use crate::clock;
use crate::memory::{Load, Outcome};
use crate::serve::{Pauses, Shared};

/// Acknowledged: stored, or known to be too late.
const RECEIVED: u16 = 202;
/// Legwork does not know this executor any more.
const UNKNOWN: u16 = 404;
/// The largest message that a server reads.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The address of results.
pub(crate) struct Target {
    /// `http://host:port`.
    pub(crate) origin: String,
    /// Path and query, as signed.
    path: String,
}

impl Target {
    pub(crate) fn parse(url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http"))?;
        if authority.as_str().contains('@') {
            return None;
        }
        let (host, port) = (authority.host(), authority.port_u16().unwrap_or(80));
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Some(Self { origin: format!("http://{host}:{port}"), path })
    }
}

/// A message and its address.
pub(crate) struct Message {
    target: Target,
    body: Bytes,
}

impl Message {
    /// A result, with the tasks that the executor has at the moment.
    pub(crate) fn now(
        shared: &Shared,
        task: &str,
        outcome: &Outcome,
        callback: &str,
    ) -> Option<Self> {
        let feedback = {
            let memory = shared.memory();
            (memory.load(), memory.took_ms(task))
        };
        Self::new(task, outcome, callback, feedback)
    }

    /// Never `None`: texts and values are JSON, and the callback was parsed with the task.
    fn new(
        task: &str,
        outcome: &Outcome,
        callback: &str,
        (Load { has, holds }, took_ms): (Load, Option<u64>),
    ) -> Option<Self> {
        let body = match outcome {
            Ok(data) => TaskResult::done(task, data.clone()),
            Err(failure) => TaskResult::failed(task, &failure.reason, failure.retry),
        };
        let result = TaskResult { has: Some(has), holds: Some(holds), took_ms, ..body };
        let mut body = serde_json::to_vec(&result).ok()?;
        // The result matters more than the rest.
        if body.len() > MESSAGE_BYTES_MAX {
            body = serde_json::to_vec(&TaskResult { holds: None, ..result }).ok()?;
        }
        Some(Self { target: Target::parse(callback)?, body: body.into() })
    }
}

/// Returns when the result is acknowledged, or no longer needed.
pub(crate) async fn send(shared: &Arc<Shared>, task: &str, outcome: &Outcome, callback: &str) {
    let mut pauses = Pauses::new(PAUSE_MIN, PAUSE_MAX);
    while shared.memory().is_sending(task) {
        // The other tasks change between the retries.
        let Some(message) = Message::now(shared, task, outcome, callback) else {
            return shared.memory().sent(task);
        };
        if attempt(shared, task, &message).await {
            return shared.memory().sent(task);
        }
        pauses.wait().await;
    }
}

/// Whether it was acknowledged.
pub(crate) async fn attempt(shared: &Shared, task: &str, message: &Message) -> bool {
    match post(shared, &message.target, &message.body).await {
        Ok(RECEIVED) => return true,
        Ok(status) => tracing::warn!(task, status, "resending the result: not acknowledged"),
        Err(error) => {
            tracing::warn!(task, %error, "resending the result");
            if status(&error) == Some(UNKNOWN) {
                shared.unknown.notify_one();
            }
        }
    }
    false
}

async fn post(shared: &Shared, target: &Target, body: &Bytes) -> Result<u16, client::Error> {
    let client = shared.client(&target.origin)?;
    let request = Signed { method: "POST", target: &target.path, body };
    let signature = signature::sign(&shared.executor.secret, &request, clock::now());
    client.post_signed(&target.path, body.clone(), &signature).await
}

/// Results usually go to the same place as before.
pub(crate) fn connect(origin: &str) -> Result<Client, client::Error> {
    Client::new(origin, None)
}

fn status(error: &client::Error) -> Option<u16> {
    match error {
        client::Error::Problem(problem) => Some(problem.status),
        client::Error::Unexpected { status, .. } => Some(*status),
        client::Error::BadAddress { .. }
        | client::Error::BadToken
        | client::Error::BadArgument { .. }
        | client::Error::Unreachable { .. }
        | client::Error::Broken { .. }
        | client::Error::TimedOut { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_that_leaves_no_room_is_sent_without_the_tasks_that_are_held() {
        let held = |length: usize| {
            let data = legwork_api::Data::from([("a".to_owned(), "x".repeat(length).into())]);
            let load = Load { has: 1, holds: vec!["t2".repeat(200)] };
            let message = Message::new("t1", &Ok(data), "http://a/b", (load, None)).unwrap();
            assert!(message.body.len() <= MESSAGE_BYTES_MAX);
            serde_json::from_slice::<TaskResult>(&message.body).unwrap().holds
        };
        assert!(held(10).is_some() && held(MESSAGE_BYTES_MAX - 200).is_none());
    }

    #[test]
    fn callbacks_are_read_as_they_are_signed() {
        let target =
            Target::parse("http://legwork.example/v1/executors/a%20b/results?x=1").unwrap();
        assert_eq!(target.origin, "http://legwork.example:80");
        assert_eq!(target.path, "/v1/executors/a%20b/results?x=1");
        for url in ["https://a/b", "http://ann:pw@a/b", "/v1", "a b", ""] {
            assert!(Target::parse(url).is_none(), "{url}");
        }
    }
}
