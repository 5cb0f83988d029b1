//! Shared by the tests: a server without sockets, a process and an organisation.
//!
//! Requests take the same path as in production, from the router to the store and back.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};
use legwork_store::memory::Memory;
use serde_json::{Value as Json, json};
use tokio::sync::watch;

use crate::backend::Opener;
use crate::config::{Config, StoreChoice};
use crate::core::{Core, Opening, Process};
use crate::http::{App, serve};
use crate::status::Phase;

/// A letter is written by a program, then signed by a clerk, who also decides whether it is sent.
pub(super) const LETTER: &str = "
process: letter
title: Write a letter
data:
  to: string
  text: string
  signed: bool
start: [to]
result: [text, signed]
steps:
  - step: write
    job: writer
    retry: { times: 1, pause: 1s }
    reads: [to]
    writes: [text]
  - step: sign
    title: Sign the letter
    who: Role(clerk)
    takes: 5m
    reads: [text]
    writes: [signed]
  - choice: send
    title: Does it go out?
    who: Role(clerk)
    reads: [text]
    branches:
      - name: post
        title: By post
      - name: drop
";

/// Only work for a program.
pub(super) const PLAIN: &str = "
process: plain
data: { n: int }
start: [n]
result: [n]
steps:
  - step: one
    job: plain
    reads: [n]
";

pub(super) const OFFICE: &str = "
organisation: office
units:
  desk: { title: The desk, manager: eva }
agents:
  ann: { name: Ann, roles: [clerk], share: 100 }
  ben: { name: Ben, roles: [clerk], share: 100 }
  eva: { name: Eva }
";

/// Sends a call to a server.
pub(super) async fn send(app: &Arc<App>, peer: IpAddr, call: Call) -> Answered {
    let response = serve(app, peer, call.request()).await;
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answered { status: head.status.as_u16(), headers: head.headers, body }
}

pub(super) struct Fixture {
    pub(super) core: Core,
    pub(super) stop: watch::Sender<bool>,
    pub(super) peer: IpAddr,
}

#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// A call under construction: `call("POST /v1/instances").json(…)`.
pub(super) struct Call {
    pub(super) method: String,
    pub(super) path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

pub(super) fn call(line: &str) -> Call {
    let (method, path) = line.split_once(' ').unwrap();
    Call {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: Vec::new(),
        body: Bytes::new(),
    }
}

impl Call {
    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub(super) fn json(self, body: Json) -> Self {
        self.body("application/json", body.to_string())
    }

    pub(super) fn body(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.header("content-type", content_type)
    }

    fn request(self) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(self.method.as_str()).uri(&self.path);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::new(self.body)).unwrap()
    }
}

/// A store that survives the server.
pub(super) fn on(store: &Arc<Memory>) -> Opener {
    let store = store.clone();
    Box::new(move || Ok(store.clone()))
}

impl Fixture {
    /// On a store in memory.
    pub(super) async fn new() -> Self {
        Self::with(Config::new(StoreChoice::Memory)).await
    }

    pub(super) async fn with(config: Config) -> Self {
        let store = Arc::new(Memory::default());
        Self::on(config, Box::new(move || Ok(store.clone()))).await
    }

    pub(super) async fn on(config: Config, opener: Opener) -> Self {
        let (stop, stopping) = watch::channel(false);
        let process = Process::new(config, stopping).unwrap();
        // Nothing listens there; executors are given tasks nevertheless.
        drop(process.callback.set("http://127.0.0.1:1".into()));
        let core = Core::start(&process, None, Opening::new(opener)).await.unwrap();
        core.app.status.until(Phase::Ready).await;
        Self { core, stop, peer: IpAddr::V4(Ipv4Addr::LOCALHOST) }
    }

    /// With the process and the organisation above.
    pub(super) async fn furnished() -> Self {
        let fixture = Self::new().await;
        fixture.furnish().await;
        fixture
    }

    pub(super) async fn furnish(&self) {
        self.ok(call("PUT /v1/organisation").body("text/yaml", OFFICE)).await;
        self.ok(call("POST /v1/definitions").body("text/yaml", LETTER)).await;
        self.ok(call("POST /v1/definitions").body("text/yaml", PLAIN)).await;
    }

    pub(super) async fn send(&self, call: Call) -> Answered {
        send(&self.core.app, self.peer, call).await
    }

    /// Without the body of an answer that may have no end.
    pub(super) async fn head(&self, call: Call) -> Answered {
        let response = serve(&self.core.app, self.peer, call.request()).await;
        let (head, body) = response.into_parts();
        let endless = head.headers.get("content-type").is_some_and(|t| t == "text/event-stream");
        let body = if endless { Bytes::new() } else { body.collect().await.unwrap().to_bytes() };
        Answered { status: head.status.as_u16(), headers: head.headers, body }
    }

    /// Waits until so many requests wait in the site.
    pub(super) async fn until_waiting(&self, count: u32) {
        loop {
            // Every call is a round of the drive thread, so that the figure is current.
            self.send(call("GET /v1/whoami")).await;
            let metrics = self.send(call("GET /metrics")).await;
            let text = String::from_utf8(metrics.body.to_vec()).unwrap();
            if text.lines().any(|line| line == format!("legwork_requests_waiting {count}")) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// For calls that must succeed.
    pub(super) async fn ok(&self, call: Call) -> Json {
        let line = format!("{} {}", call.method, call.path);
        let answered = self.send(call).await;
        assert!(answered.status < 300, "{line}: {answered:?}");
        answered.json()
    }

    /// For calls that must be refused: status and code.
    pub(super) async fn refused(&self, call: Call) -> (u16, String) {
        let line = format!("{} {}", call.method, call.path);
        let answered = self.send(call).await;
        assert!(answered.status >= 400, "{line}: {answered:?}");
        (answered.status, answered.json()["code"].as_str().unwrap().to_owned())
    }

    /// Starts a letter and writes it as the program: ann and ben can sign.
    pub(super) async fn letter_to_sign(&self) -> String {
        let start = json!({"process": "letter", "data": {"to": "Zoe"}});
        let started = self.ok(call("POST /v1/instances").json(start)).await;
        let instance = started["instance"].as_str().unwrap().to_owned();
        let job = self.take_job("writer").await;
        self.complete_job(&job, json!({"text": "Dear Zoe"})).await;
        instance
    }

    pub(super) async fn take_job(&self, kind: &str) -> Json {
        let activate = json!({"worker": "w1", "types": [kind], "max": 1, "lease_ms": 60_000});
        let jobs = self.ok(call("POST /v1/jobs/activate").json(activate)).await;
        jobs["jobs"][0].clone()
    }

    pub(super) async fn complete_job(&self, job: &Json, data: Json) {
        let done = json!({"worker": "w1",
            "jobs": [{"job": job["job"], "lease": job["lease"], "data": data}]});
        let results = self.ok(call("POST /v1/jobs/complete").json(done)).await;
        assert_eq!(results, json!({"results": [{"ok": true}]}));
    }

    pub(super) async fn token(&self, admin: &str, name: &str, scopes: &[&str]) -> String {
        let body = json!({"name": name, "scopes": scopes});
        let mut make = call("POST /v1/tokens").json(body);
        if !admin.is_empty() {
            make = make.token(admin);
        }
        self.ok(make).await["token"].as_str().unwrap().to_owned()
    }

    pub(super) async fn stop(self) {
        let _ = self.stop.send(true);
        self.core.stop().await;
    }
}

impl Answered {
    pub(super) fn json(&self) -> Json {
        if self.status == StatusCode::NO_CONTENT {
            return Json::Null;
        }
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    pub(super) fn content_type(&self) -> &str {
        self.headers.get("content-type").map_or("", |value| value.to_str().unwrap())
    }
}
