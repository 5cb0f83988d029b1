//! An executor on a real socket, a fake Legwork for it, and requests as Legwork sends them.
//!
//! Invariant: no wait is by time alone; every wait is for an event.

pub(crate) mod document;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use legwork_api::signature::{self, Signed};
use legwork_executor::{Error, Executor};
use legwork_model::time::Timestamp;
use serde_json::{Value as Json, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";
const TOKEN: &str = "lw_token";
/// Far more than anything takes; only a failure waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request to Legwork.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) token: Option<String>,
    pub(crate) signed: Result<(), signature::Refusal>,
    pub(crate) body: Json,
}

/// An executor and a Legwork.
pub(crate) struct World {
    url: String,
    legwork: String,
    registrations: mpsc::UnboundedReceiver<Call>,
    results: mpsc::UnboundedReceiver<Call>,
    stop: Option<oneshot::Sender<()>>,
    executor: JoinHandle<Result<(), Error>>,
    told: Mutex<Told>,
}

/// The last report of the executor about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Told {
    pub(crate) has: Option<u64>,
    pub(crate) holds: Option<Json>,
    pub(crate) took_ms: Option<u64>,
}

impl Told {
    /// Takes the report out of an answer or a result.
    fn out_of(body: &mut Json) -> Self {
        let mut take = |name| body.as_object_mut()?.remove(name);
        let (has, holds, took_ms) = (take("has"), take("holds"), take("took_ms"));
        let number = |value: Option<Json>| value?.as_u64();
        Self { has: number(has), holds, took_ms: number(took_ms) }
    }
}

/// An answer.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<String>,
    pub(crate) body: Json,
}

pub(crate) fn executor() -> Executor {
    Executor::new("crm", SECRET)
}

impl World {
    /// Registered, with every result acknowledged at once.
    pub(crate) async fn new(executor: Executor) -> Self {
        let mut world = Self::answering(executor, &[], &[]).await;
        world.registration().await;
        world
    }

    /// Legwork gives these answers to registrations and results first, then 200 and 202.
    pub(crate) async fn answering(
        executor: Executor,
        registrations: &[u16],
        results: &[u16],
    ) -> Self {
        let (to_registrations, heard_registrations) = mpsc::unbounded_channel();
        let (to_results, heard_results) = mpsc::unbounded_channel();
        let script = |statuses: &[u16], last: u16, to| {
            let statuses = Mutex::new(statuses.iter().copied().collect());
            Arc::new(Script { statuses, last, to })
        };
        let registrations = script(registrations, 200, to_registrations);
        let results = script(results, 202, to_results);
        let legwork = listen().await;
        let legwork_url = format!("http://{}", legwork.local_addr().unwrap());
        tokio::spawn(fake(legwork, registrations, results));

        let listener = listen().await;
        let url = format!("http://{}/legwork", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        let (executor, address) = (executor.url(&url), legwork_url.clone());
        let executor = tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap_or(()) };
            executor.serve_until(listener, &address, Some(TOKEN), stopped).await
        });
        Self {
            url,
            legwork: legwork_url,
            registrations: heard_registrations,
            results: heard_results,
            stop: Some(stop),
            executor,
            told: Mutex::default(),
        }
    }

    /// The next registration.
    pub(crate) async fn registration(&mut self) -> Call {
        let call = soon(self.registrations.recv()).await.unwrap();
        assert_eq!(call.token.as_deref(), Some("Bearer lw_token"));
        assert_eq!(call.body["url"], self.url);
        call
    }

    /// The next result; its signature is checked.
    pub(crate) async fn result(&mut self) -> Json {
        let mut call = soon(self.results.recv()).await.unwrap();
        *self.told.lock().unwrap() = Told::out_of(&mut call.body);
        assert_eq!(call.signed, Ok(()));
        assert_eq!(call.token, None, "a token is for registering alone");
        call.body
    }

    /// Drops the results received so far.
    pub(crate) fn forget_results(&mut self) {
        while self.results.try_recv().is_ok() {}
    }

    pub(crate) fn task(&self, name: &str, kind: &str) -> Json {
        json!({
            "task": name, "key": "case/step", "attempt": 1, "type": kind, "size": 12.0,
            "process": "loan", "inputs": {"amount": 1200}, "deadline": "2026-11-16T02:30:00.000Z",
            "callback": format!("{}/v1/executors/crm/results", self.legwork),
        })
    }

    pub(crate) async fn give(&self, name: &str, kind: &str) -> Answer {
        self.say("/tasks", &self.task(name, kind)).await
    }

    pub(crate) async fn judge(&self, name: &str, verdict: &str) -> Answer {
        self.say("/verdicts", &json!({"task": name, "verdict": verdict})).await
    }

    pub(crate) async fn cancel(&self, name: &str) -> Answer {
        self.say("/cancellations", &json!({"task": name})).await
    }

    /// Signed now, with the right secret.
    pub(crate) async fn say(&self, path: &str, body: &Json) -> Answer {
        let sign = |signed: &Signed<'_>| Some(signature::sign(SECRET, signed, now()));
        self.post(path, body, sign).await
    }

    /// Every answer is checked against the document.
    pub(crate) async fn post(
        &self,
        path: &str,
        asked: &Json,
        sign: impl FnOnce(&Signed<'_>) -> Option<String>,
    ) -> Answer {
        let authority = self.url.trim_start_matches("http://").trim_end_matches("/legwork");
        let stream = TcpStream::connect(authority).await.unwrap();
        let (mut connection, driver) = client::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver);
        let (target, body) = (format!("/legwork{path}"), asked.to_string());
        let signature = sign(&Signed { method: "POST", target: &target, body: body.as_bytes() });
        let mut request = Request::builder().method(Method::POST).uri(&target);
        if let Some(signature) = signature {
            request = request.header("Legwork-Signature", signature);
        }
        let request = request.header("host", authority).body(Full::new(Bytes::from(body)));
        let response = soon(connection.send_request(request.unwrap())).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let retry_after = head.headers.get(RETRY_AFTER).map(|v| v.to_str().unwrap().to_owned());
        let body = serde_json::from_slice(&body).unwrap();
        let media = head.headers.get(CONTENT_TYPE).map(|v| v.to_str().unwrap());
        assert_eq!(media, Some("application/json"));
        let mut answer = Answer { status: head.status.as_u16(), retry_after, body };
        document::hold(path, asked, &answer);
        *self.told.lock().unwrap() = Told::out_of(&mut answer.body);
        answer
    }

    pub(crate) fn told(&self) -> Told {
        self.told.lock().unwrap().clone()
    }

    pub(crate) fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits until it is gone; it sends nothing after that.
    pub(crate) async fn gone(mut self) {
        if self.stop.is_some() {
            self.stop();
        }
        soon(&mut self.executor).await.unwrap().unwrap();
        assert!(self.results.try_recv().is_err(), "a result is sent after it was received");
    }
}

impl Answer {
    /// Status and error.
    pub(crate) fn refusal(&self) -> (u16, &str) {
        (self.status, self.body["error"].as_str().unwrap_or_default())
    }
}

/// Waits for an event that is certain.
pub(crate) async fn soon<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, event).await.expect("it does not happen")
}

#[expect(clippy::disallowed_methods, reason = "the clock of the other side")]
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(since.as_millis()).unwrap())
}

/// The answers to requests of one kind, and where they are recorded.
struct Script {
    statuses: Mutex<VecDeque<u16>>,
    last: u16,
    to: mpsc::UnboundedSender<Call>,
}

async fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

async fn fake(listener: TcpListener, registrations: Arc<Script>, results: Arc<Script>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (registrations, results) = (registrations.clone(), results.clone());
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| async {
                let script = match (request.method(), request.uri().path()) {
                    (&Method::PUT, "/v1/executors/crm") => &registrations,
                    (&Method::POST, "/v1/executors/crm/results") => &results,
                    other => panic!("nobody says {other:?}"),
                };
                Ok::<_, Infallible>(on_request(request, script).await)
            });
            let _ = server::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn on_request(request: Request<Incoming>, script: &Script) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = |name: &str| head.headers.get(name).map(|v| v.to_str().unwrap().to_owned());
    let target = head.uri.path_and_query().unwrap().as_str();
    let signed = Signed { method: head.method.as_str(), target, body: &body };
    let header = text("legwork-signature");
    let call = Call {
        path: target.to_owned(),
        token: text(AUTHORIZATION.as_str()),
        signed: signature::verify(SECRET, &signed, header.as_deref(), now()),
        body: serde_json::from_slice(&body).unwrap(),
    };
    let status = script.statuses.lock().unwrap().pop_front().unwrap_or(script.last);
    let answer = match status {
        200..300 => json!({"executor": "crm", "unchanged": false}),
        _ => json!({"type": "x", "title": "x", "status": status, "detail": "x", "code": "x"}),
    };
    // The test may be over.
    let _ = script.to.send(call);
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
    *response.status_mut() = status.try_into().unwrap();
    response
}
