//! A ready executor: an HTTP server that does automatic steps for Legwork.
//!
//! Invariant: a task is begun at most once while it is remembered, also if it is resent; its outcome is resent
//! until Legwork has acknowledged it, and a result until its verdict; unsigned requests are ignored.
//!
//! ```no_run
//! use legwork_executor::{Executor, Task};
//! use serde_json::json;
//!
//! # async fn run(listener: tokio::net::TcpListener) -> Result<(), legwork_executor::Error> {
//! Executor::new("crm", "a secret of at least 32 characters")
//!     .on("score", |task: Task| async move { Ok(json!({ "points": task.inputs.len() })) })
//!     .serve(listener, "http://127.0.0.1:7700", None)
//!     .await
//! # }
//! ```

mod callback;
mod clock;
mod error;
mod failure;
mod memory;
mod register;
mod remind;
mod route;
mod serve;
mod verdicts;
mod work;

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use legwork_api::Data;
use legwork_api::executors::{ExecutorRequest, LIMIT, Regularly, TypeLimit};
use legwork_api::signature::SECRET_CHARS_MIN;
use serde_json::Value as Json;
use tokio::net::TcpListener;

pub use error::Error;
pub use failure::Failure;
pub use legwork_api::executors::TaskRequest as Task;

/// How long the answer to a task waits for its result.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an executor that stops waits for begun tasks.
const GRACE: Duration = Duration::from_secs(30);
/// How long to wait for a verdict before the result is first resent.
const VERDICT_PATIENCE: Duration = Duration::from_secs(30);

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Handler = Arc<dyn Fn(Task) -> Later<Result<Json, Failure>> + Send + Sync>;
type Hook = Arc<dyn Fn(Judged) -> Later<Result<(), Failure>> + Send + Sync>;

/// Its types of tasks, limits and name.
#[derive(Clone)]
pub struct Executor {
    name: String,
    secret: String,
    types: BTreeMap<String, Kind>,
    limit: u32,
    at_once: Option<u32>,
    rate: Option<String>,
    weight: Option<u32>,
    regularly: Vec<Regularly>,
    reserve: Option<u32>,
    url: Option<String>,
    domain: Option<String>,
    verdicts: bool,
    patience: Duration,
    grace: Duration,
    verdict_patience: Duration,
    ack: Option<Hook>,
    nack: Option<Hook>,
}

/// A type of tasks.
#[derive(Clone, Default)]
struct Kind {
    limit: Option<u32>,
    rate: Option<String>,
    handler: Option<Handler>,
}

impl Kind {
    fn asked(&self) -> TypeLimit {
        TypeLimit { limit: self.limit, rate: self.rate.clone() }
    }
}

/// A result with its verdict. It may be from before this process began, and a verdict whose hook failed is
/// delivered again: a hook should be idempotent by the name of the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    pub task: String,
    /// The key of the step; unknown for a forgotten task.
    pub key: Option<String>,
    /// The result of the handler; unknown like the key, and absent for failures.
    pub data: Option<Data>,
}

impl Executor {
    /// The secret signs messages in both directions; it has at least 32 characters.
    pub fn new(name: impl Into<String>, secret: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            secret: secret.into(),
            types: BTreeMap::new(),
            limit: LIMIT,
            at_once: None,
            rate: None,
            weight: None,
            regularly: Vec::new(),
            reserve: None,
            url: None,
            domain: None,
            verdicts: true,
            patience: PATIENCE,
            grace: GRACE,
            verdict_patience: VERDICT_PATIENCE,
            ack: None,
            nack: None,
        }
    }

    /// Does tasks of the type. The handler returns a JSON object, the values of the step's outputs. Its future is
    /// dropped when the task is cancelled.
    #[must_use]
    pub fn on<F, R>(mut self, kind: &str, handler: F) -> Self
    where
        F: Fn(Task) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Json, Failure>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |task| Box::pin(handler(task)));
        self.types.entry(kind.to_owned()).or_default().handler = Some(handler);
        self
    }

    /// The limit on tasks of all types at a time; 16 by default.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// The concurrency: further tasks wait in the order in which they came. By default as many as the limit.
    #[must_use]
    pub fn at_once(mut self, tasks: u32) -> Self {
        self.at_once = Some(tasks);
        self
    }

    /// The limit on tasks of the type at a time.
    #[must_use]
    pub fn limit_of(mut self, kind: &str, limit: u32) -> Self {
        self.types.entry(kind.to_owned()).or_default().limit = Some(limit);
        self
    }

    /// The rate limit per server: `10/s`, `600/m`, `1000/h`; unlimited by default.
    #[must_use]
    pub fn rate(mut self, rate: impl Into<String>) -> Self {
        self.rate = Some(rate.into());
        self
    }

    /// The rate limit of the type.
    #[must_use]
    pub fn rate_of(mut self, kind: &str, rate: impl Into<String>) -> Self {
        self.types.entry(kind.to_owned()).or_default().rate = Some(rate.into());
        self
    }

    /// Its share of the tasks under the policy `weighted`; 1 by default.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = Some(weight);
        self
    }

    /// Its regular work beside its tasks, at unknown times: `.regularly("1h", "5m")` is five minutes in every hour.
    /// Plans of deadlines account for it. Can be called several times.
    #[must_use]
    pub fn regularly(mut self, every: impl Into<String>, takes: impl Into<String>) -> Self {
        self.regularly.push(Regularly { every: every.into(), takes: takes.into() });
        self
    }

    /// The per cent of its time, up to 90, that is promised only after a fault: when a person falls ill, or another
    /// executor or a server is gone. None by default.
    #[must_use]
    pub fn reserve(mut self, percent: u32) -> Self {
        self.reserve = Some(percent);
        self
    }

    /// The address at which Legwork reaches it, with a path prefix; by default that of the listener.
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Its home domain.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Whether it wants verdicts on its results; true by default.
    #[must_use]
    pub fn verdicts(mut self, wanted: bool) -> Self {
        self.verdicts = wanted;
        self
    }

    /// The result counts: make it final. If this fails, the verdict is delivered again.
    #[must_use]
    pub fn on_ack<F, R>(mut self, hook: F) -> Self
    where
        F: Fn(Judged) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.ack = Some(Arc::new(move |judged| Box::pin(hook(judged))));
        self
    }

    /// The result does not count: undo it. If this fails, the verdict is delivered again.
    #[must_use]
    pub fn on_nack<F, R>(mut self, hook: F) -> Self
    where
        F: Fn(Judged) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.nack = Some(Arc::new(move |judged| Box::pin(hook(judged))));
        self
    }

    /// Results that take longer are sent to the callback; one second by default.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long it waits for begun tasks when it stops; 30 seconds by default.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// A result without a verdict is resent, first after this time, then with doubling pauses up to ten minutes; 30
    /// seconds by default, and at least 10 milliseconds.
    #[must_use]
    pub fn verdict_patience(mut self, patience: Duration) -> Self {
        self.verdict_patience = patience;
        self
    }

    /// Registers with Legwork and serves tasks forever; `serve_until` can be stopped.
    pub async fn serve(
        self,
        listener: TcpListener,
        legwork: &str,
        token: Option<&str>,
    ) -> Result<(), Error> {
        self.serve_until(listener, legwork, token, std::future::pending()).await
    }

    /// Registers with Legwork and serves tasks until `shutdown` is ready. Then it refuses new tasks, and returns
    /// when begun ones are done and acknowledged, or the grace period is over.
    pub async fn serve_until(
        self,
        listener: TcpListener,
        legwork: &str,
        token: Option<&str>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        serve::run(self, listener, legwork, token, shutdown).await
    }

    /// Its registration, with its address.
    fn request(&self, url: String) -> Result<ExecutorRequest, Error> {
        let chars = self.secret.chars().count();
        if chars < SECRET_CHARS_MIN {
            let executor = self.name.clone();
            return Err(Error::ShortSecret { executor, chars, min: SECRET_CHARS_MIN });
        }
        if self.types.is_empty() {
            return Err(Error::NoTypes { executor: self.name.clone() });
        }
        if let Some((kind, _)) = self.types.iter().find(|(_, kind)| kind.handler.is_none()) {
            return Err(Error::NoHandler { kind: kind.clone() });
        }
        let limits = self.types.values().filter_map(|kind| kind.limit);
        if limits.chain([self.limit]).chain(self.at_once).any(|limit| limit == 0) {
            return Err(Error::NoRoom);
        }
        let types = self.types.iter();
        Ok(ExecutorRequest {
            url,
            secret: self.secret.clone(),
            types: types.map(|(name, kind)| (name.clone(), kind.asked())).collect(),
            limit: self.limit,
            at_once: self.at_once,
            rate: self.rate.clone(),
            weight: self.weight,
            regularly: self.regularly.clone(),
            reserve: self.reserve,
            domain: self.domain.clone(),
            verdicts: self.verdicts,
            holds: None,
        })
    }
}

/// Secrets stay out of logs.
impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("name", &self.name)
            .field("types", &self.types.keys())
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    #[test]
    fn what_cannot_work_is_refused_before_it_starts() {
        let refusal =
            |executor: Executor| executor.request("http://a:1".to_owned()).unwrap_err().to_string();
        let some = |secret| Executor::new("crm", secret).on("score", |_| async { Ok(json!({})) });
        assert!(refusal(some("short")).contains("at least 32"));
        assert!(refusal(Executor::new("crm", SECRET)).contains("does nothing"));
        assert!(refusal(some(SECRET).limit_of("mail", 1)).contains("no handler"));
        assert!(refusal(some(SECRET).limit(0)).contains("at least 1"));
        assert!(refusal(some(SECRET).at_once(0)).contains("at least 1"));
        assert!(refusal(some(SECRET).limit_of("score", 0)).contains("at least 1"));
    }

    #[test]
    fn a_secret_stays_out_of_logs() {
        assert!(!format!("{:?}", Executor::new("crm", SECRET)).contains(SECRET));
    }
}
