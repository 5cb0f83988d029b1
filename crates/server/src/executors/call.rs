//! One call to an executor over HTTP.
//!
//! Invariant: redirects are not followed, answers are read up to a limit, and every wait is bounded.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, RETRY_AFTER};
use hyper::{HeaderMap, Method, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use legwork_api::endpoints;
use legwork_api::executors::{
    CancelRequest, TaskDone, TaskRefused, TaskRequest, TaskTaken, Verdict, VerdictRequest,
};
use legwork_api::signature::{self, Signed};
use legwork_model::event::ExecutorRegistered;
use legwork_model::time::Timestamp;
use legwork_site::{Feedback, Job, JobLease, Outcome};
use serde::Serialize;

use super::{task_name, tasks_held};
use crate::convert;

/// How long connecting to an executor may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an answer that needs no work may take.
const PATIENCE: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(60);
/// The idle connections kept per executor: a batch of tasks is sent at once, and answers arrive at once.
const IDLE_MAX: usize = 1_024;
/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 4 << 20;

type Connector = HttpsConnector<HttpConnector>;

/// The HTTP client for executors; connections are kept.
#[derive(Default)]
pub(super) struct Web {
    client: OnceLock<Result<Client<Connector, Full<Bytes>>, String>>,
}

/// The answer of an executor to a task.
pub(super) struct Said {
    pub(super) outcome: Outcome,
    pub(super) feedback: Feedback,
    /// The tasks that it holds, if reported.
    pub(super) holds: Option<Vec<JobLease>>,
}

/// An HTTP answer of an executor.
struct Answered {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Web {
    /// Gives a task to an executor and returns its answer.
    pub(super) async fn give(
        &self,
        executor: &ExecutorRegistered,
        job: Job,
        (callback, server): (&str, Option<&str>),
        now: Timestamp,
    ) -> Said {
        let (attempt, deadline) = (job.attempt, job.expires_at);
        let task = JobLease { activity: job.activity.clone(), lease: job.lease };
        let request = TaskRequest {
            task: task_name(&task),
            key: task.activity.to_string(),
            attempt,
            kind: job.job.to_string(),
            size: job.size,
            process: job.process.to_string(),
            inputs: convert::data(&job.inputs),
            deadline,
            callback: callback.to_owned() + &endpoints::REPORT_TASK.at(&executor.name).text(),
            server: server.map(str::to_owned),
        };
        match self.post(executor, "tasks", &request, now).await {
            Ok(answered) => said(&answered),
            Err(error) => {
                let outcome = Outcome::Failed { error, retry: true };
                Said { outcome, feedback: Feedback::default(), holds: None }
            }
        }
    }

    /// Tells an executor whether its result counts; returns whether it has acknowledged.
    pub(super) async fn tell_verdict(
        &self,
        executor: &ExecutorRegistered,
        task: &JobLease,
        counts: bool,
        now: Timestamp,
    ) -> bool {
        let verdict = if counts { Verdict::Ack } else { Verdict::Nack };
        let request = VerdictRequest { task: task_name(task), verdict };
        let told = self.post(executor, "verdicts", &request, now);
        let told = tokio::time::timeout(PATIENCE, told).await;
        matches!(told, Ok(Ok(Answered { status, .. })) if status.is_success())
    }

    /// Cancels a task that is no longer wanted. Only a hint.
    pub(super) async fn cancel(
        &self,
        executor: &ExecutorRegistered,
        task: &JobLease,
        now: Timestamp,
    ) {
        let request = CancelRequest { task: task_name(task) };
        let told = self.post(executor, "cancellations", &request, now);
        drop(tokio::time::timeout(PATIENCE, told).await);
    }

    async fn post<T: Serialize>(
        &self,
        executor: &ExecutorRegistered,
        what: &str,
        content: &T,
        now: Timestamp,
    ) -> Result<Answered, String> {
        let client = self.client.get_or_init(client).as_ref().map_err(Clone::clone)?;
        let body = serde_json::to_vec(content).map_err(|error| error.to_string())?;
        let uri = address(&executor.url, what)?;
        let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        let signed = Signed { method: "POST", target: &target, body: &body };
        let signature = signature::sign(&executor.secret.0, &signed, now);
        let request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header(CONTENT_TYPE, "application/json")
            .header(signature::HEADER, signature)
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| error.to_string())?;
        let response = client.request(request).await.map_err(|error| why(&error))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| format!("its answer cannot be read: {error}"))?.to_bytes();
        Ok(Answered { status: head.status, headers: head.headers, body })
    }
}

/// The URL for a request to an executor with this base address.
pub(super) fn address(base: &str, what: &str) -> Result<Uri, String> {
    let uri: Uri = format!("{}/{what}", base.trim_end_matches('/'))
        .parse()
        .map_err(|error| format!("`{base}` is no address: {error}"))?;
    // An invalid port would be replaced by the default one.
    let port = uri
        .authority()
        .and_then(|authority| authority.as_str().strip_prefix(authority.host())?.strip_prefix(':'));
    match port {
        Some(port) if port.parse::<u16>().is_err() => {
            Err(format!("`{base}` is no address: `{port}` is no port"))
        }
        Some(_) | None => Ok(uri),
    }
}

fn client() -> Result<Client<Connector, Full<Bytes>>, String> {
    let mut http = HttpConnector::new();
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT));
    http.enforce_http(false);
    let https = HttpsConnectorBuilder::new()
        .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
        .map_err(|error| format!("no certificates to trust: {error}"))?;
    let https = https.https_or_http().enable_http1().wrap_connector(http);
    let mut client = Client::builder(TokioExecutor::new());
    client.pool_idle_timeout(IDLE).pool_max_idle_per_host(IDLE_MAX).pool_timer(TokioTimer::new());
    Ok(client.build(https))
}

fn why(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    format!("it cannot be reached: {last}")
}

/// Interprets an answer to a task, with the executor's report about itself.
fn said(answered: &Answered) -> Said {
    let Answered { status, headers, body } = answered;
    let error = || match serde_json::from_slice(body) {
        Ok(TaskRefused { error, .. }) => error,
        Err(_) => format!("it answered {status}"),
    };
    let TaskTaken { has, mut holds } = serde_json::from_slice(body).unwrap_or_default();
    let mut feedback = Feedback { has, took_ms: None };
    let outcome = match status.as_u16() {
        200 => match serde_json::from_slice(body) {
            Ok(TaskDone { data, has, holds: held, took_ms }) => {
                (feedback, holds) = (Feedback { has, took_ms }, held);
                Outcome::Done(data)
            }
            Err(unreadable) => {
                let error = format!("its result cannot be read: {unreadable}");
                Outcome::Failed { error, retry: true }
            }
        },
        202 => Outcome::Taken,
        429 | 503 => {
            let rest = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            Outcome::Busy { rest: rest.map(Duration::from_secs) }
        }
        422 => Outcome::Failed { error: error(), retry: false },
        _ => Outcome::Failed { error: error(), retry: true },
    };
    Said { outcome, feedback, holds: holds.as_deref().map(tasks_held) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, body: &str) -> Outcome {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, "7".parse().unwrap())]);
        let (status, body) = (StatusCode::from_u16(status).unwrap(), body.to_owned().into());
        said(&Answered { status, headers, body }).outcome
    }

    #[test]
    fn what_an_executor_says_of_itself_is_heard_if_it_is_said() {
        let told = |status, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            let (headers, body) = (HeaderMap::new(), body.to_owned().into());
            said(&Answered { status, headers, body }).feedback
        };
        let done = told(200, r#"{"data": {}, "has": 3, "took_ms": 41}"#);
        assert_eq!((done.has, done.took_ms), (Some(3), Some(41)));
        assert_eq!(told(202, r#"{"has": 2}"#).has, Some(2));
        for status in [422, 429, 500, 503] {
            assert_eq!(told(status, r#"{"error": "busy", "has": 9}"#).has, Some(9), "{status}");
        }
        for (status, body) in [(200, "{}"), (202, ""), (202, "thanks"), (503, r#"{"error": "no"}"#)]
        {
            assert_eq!(told(status, body), Feedback::default(), "{status} {body}");
        }
    }

    #[test]
    fn the_tasks_that_an_executor_holds_are_read_from_every_answer() {
        let held = |status, body: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            let (headers, body) = (HeaderMap::new(), body.to_owned().into());
            said(&Answered { status, headers, body }).holds
        };
        let activity: legwork_model::id::ActivityId =
            format!("{}:pay", legwork_model::id::InstanceId(7)).parse().unwrap();
        let task = JobLease { activity, lease: 9 };
        let list = format!(r#""holds": ["{}", "none"]"#, task_name(&task));
        for (status, body) in [
            (200, format!(r#"{{"data": {{}}, {list}}}"#)),
            (202, format!("{{{list}}}")),
            (503, format!(r#"{{"error": "busy", {list}}}"#)),
        ] {
            assert_eq!(held(status, &body), Some(vec![task.clone()]), "{status}");
        }
        assert_eq!(held(202, r#"{"holds": []}"#), Some(Vec::new()));
        for body in ["", "{}", r#"{"has": 2}"#, r#"{"holds": 3}"#] {
            assert_eq!(held(202, body), None, "{body}");
        }
    }

    #[test]
    fn what_cannot_be_called_is_no_address() {
        for good in
            ["http://a", "https://a.example:7001/x/", "http://[::1]:1", "http://10.0.0.1:80"]
        {
            assert!(
                address(good, "tasks").is_ok_and(|uri| uri.path().ends_with("/tasks")),
                "{good}"
            );
        }
        assert_eq!(address("http://a:1/x/", "tasks").unwrap(), "http://a:1/x/tasks");
        for bad in ["http://a:99999", "http://a:port", "http://[::1", "http://ü", "http://"] {
            let why = address(bad, "tasks").unwrap_err();
            assert!(why.contains(bad), "{why}");
        }
    }

    #[test]
    fn what_an_executor_answers_is_a_result_a_failure_or_no_yet() {
        let said = |status, body| format!("{:?}", answered(status, body));
        assert!(said(200, r#"{"data":{"points":7}}"#).contains("points"));
        assert!(said(200, "{}").contains("Done"));
        assert!(said(200, "oops").contains("cannot be read"));
        assert!(said(202, "").contains("Taken"));
        assert!(said(429, "").contains("Busy { rest: Some(7s) }"));
        let forever = said(422, r#"{"error":"no such customer"}"#);
        assert!(forever.contains("no such customer") && forever.contains("retry: false"));
        assert!(said(500, "").contains("500") && said(307, "").contains("retry: true"));
    }
}
