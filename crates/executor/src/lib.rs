//! A ready executor: an HTTP server that does automatic steps for Legwork.
//!
//! Invariant: a task is begun at most once while it is remembered, whatever is repeated; what came
//! of it is told until Legwork has heard it, and a result until it is judged; nothing unsigned is
//! listened to.
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

/// How long the answer to a task is held back, in case it is done by then.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an executor that stops waits for what it has begun.
const GRACE: Duration = Duration::from_secs(30);
/// How long a verdict may take before the result is sent again, the first time.
const VERDICT_PATIENCE: Duration = Duration::from_secs(30);

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Handler = Arc<dyn Fn(Task) -> Later<Result<Json, Failure>> + Send + Sync>;
type Hook = Arc<dyn Fn(Judged) -> Later<Result<(), Failure>> + Send + Sync>;

/// What it does, for how many at a time, and under which name.
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

/// A result of ours that was judged. It may have been given before this process began, and a
/// verdict whose hook failed comes again: a hook goes by the name of the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    pub task: String,
    /// The key of the step; unknown for a task that is not remembered.
    pub key: Option<String>,
    /// What the handler gave; unknown like the key, and absent for failures.
    pub data: Option<Data>,
}

impl Executor {
    /// The secret signs what both sides say; it has at least 32 characters.
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

    /// Does tasks of the type. The handler answers a JSON object, the values of the step's
    /// outputs. It is dropped where it waits when the task is cancelled.
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

    /// Tasks that it has at a time, of all types together; 16 unless said otherwise.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// Works on so many tasks at a time; those that it has beyond wait for their turn, in the order in
    /// which they came. On all that it has unless said otherwise.
    #[must_use]
    pub fn at_once(mut self, tasks: u32) -> Self {
        self.at_once = Some(tasks);
        self
    }

    /// Tasks of the type at a time.
    #[must_use]
    pub fn limit_of(mut self, kind: &str, limit: u32) -> Self {
        self.types.entry(kind.to_owned()).or_default().limit = Some(limit);
        self
    }

    /// How many each server gives it in so long: `10/s`, `600/m`, `1000/h`; any number unless said
    /// otherwise.
    #[must_use]
    pub fn rate(mut self, rate: impl Into<String>) -> Self {
        self.rate = Some(rate.into());
        self
    }

    /// How many of the type.
    #[must_use]
    pub fn rate_of(mut self, kind: &str, rate: impl Into<String>) -> Self {
        self.types.entry(kind.to_owned()).or_default().rate = Some(rate.into());
        self
    }

    /// Its part of the tasks, where they are given out by weights; 1 unless said otherwise.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = Some(weight);
        self
    }

    /// What it does again and again beside its tasks, at times of its own: `.regularly("1h", "5m")` is five minutes in
    /// every hour. Promises of deadlines reckon with it. May be said of several things.
    #[must_use]
    pub fn regularly(mut self, every: impl Into<String>, takes: impl Into<String>) -> Self {
        self.regularly.push(Regularly { every: every.into(), takes: takes.into() });
        self
    }

    /// The per cent of its time, up to 90, that is promised only after a fault: when somebody falls ill, or another executor
    /// or a server is gone. None unless said otherwise.
    #[must_use]
    pub fn reserve(mut self, percent: u32) -> Self {
        self.reserve = Some(percent);
        self
    }

    /// Under which address Legwork reaches it, with the path it calls below; without, that of the
    /// listener.
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// The domain where it is at home.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Whether it wants to be told which of its results count; it does unless said otherwise.
    #[must_use]
    pub fn verdicts(mut self, wanted: bool) -> Self {
        self.verdicts = wanted;
        self
    }

    /// The result counts: make it final. If this fails, the verdict comes again.
    #[must_use]
    pub fn on_ack<F, R>(mut self, hook: F) -> Self
    where
        F: Fn(Judged) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.ack = Some(Arc::new(move |judged| Box::pin(hook(judged))));
        self
    }

    /// The result does not count: undo it. If this fails, the verdict comes again.
    #[must_use]
    pub fn on_nack<F, R>(mut self, hook: F) -> Self
    where
        F: Fn(Judged) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.nack = Some(Arc::new(move |judged| Box::pin(hook(judged))));
        self
    }

    /// What takes longer is told later, by callback; one second unless said otherwise.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// How long it waits for what it has begun when it stops; 30 seconds unless said otherwise.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// A result without a verdict is sent again, first after this time, then with doubling pauses
    /// up to ten minutes; 30 seconds unless said otherwise, and at least 10 milliseconds.
    #[must_use]
    pub fn verdict_patience(mut self, patience: Duration) -> Self {
        self.verdict_patience = patience;
        self
    }

    /// Registers at Legwork and does tasks for ever; `serve_until` can be stopped.
    pub async fn serve(
        self,
        listener: TcpListener,
        legwork: &str,
        token: Option<&str>,
    ) -> Result<(), Error> {
        self.serve_until(listener, legwork, token, std::future::pending()).await
    }

    /// Registers at Legwork and does tasks until `shutdown` is ready. Then it takes no more, and
    /// returns when what it has begun is done and told, or the time of grace is over.
    pub async fn serve_until(
        self,
        listener: TcpListener,
        legwork: &str,
        token: Option<&str>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        serve::run(self, listener, legwork, token, shutdown).await
    }

    /// What it says of itself, with the address that it is reached under.
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
