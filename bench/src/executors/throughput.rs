//! `dispatch`, end to end: how many tasks a second go through executors that answer at once, and what is the
//! limit?
//!
//! One server, two executors, each a process of its own; cases of ten steps. The limit is measured in the same
//! run: the same requests by the same HTTP client to the same executors, without decisions and storage in
//! between. Invariant: only correctly answered round trips count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use legwork_api::executors::{TaskRequest, Verdict, VerdictRequest};
use legwork_api::signature::{self, Signed};
use legwork_model::time::Timestamp;
use legwork_testbed::Service;
use serde::Serialize;
use tokio::task::JoinSet;

use super::{LOOK_EVERY, READY_TIME_MAX, service::SECRET};
use crate::load::{Scale, apart, closed_loop};
use crate::place::Place;
use crate::report::{Row, rounded};
use crate::server::Server;
use crate::steps::{STEPS_PER_CASE, Shape, case};
use crate::usage::load_average;

/// Cases in flight.
pub const CLIENTS: u16 = 128;

const EXECUTORS: usize = 2;
/// The type of all tasks.
const JOB: &str = "no-op";
/// As in the server.
const IDLE_MAX: usize = 1_024;

/// With and without verdicts.
pub async fn measure(place: &Place, verdicts: bool, scale: Scale) -> Result<Row> {
    let load_average = load_average();
    let server = Server::with(place, Shape::Sequence.definition()).await?;
    let folder = tempfile::Builder::new().prefix("executors-").tempdir_in(&place.data)?;
    let service = |number: usize| {
        // Room for half of the tasks, so that both executors are needed.
        let limit = scale.clients.div_ceil(EXECUTORS);
        let limit = format!("--limit={limit}");
        let mut args = vec![format!("--does={JOB}=0"), limit, "--no-ledger".to_owned()];
        args.extend((!verdicts).then(|| "--no-verdicts".to_owned()));
        let (name, legwork) = (format!("executor-{number}"), server.url());
        Service::start(&place.program(), folder.path(), (&name, &legwork), &args)
    };
    let services: Vec<Service> = (1..=EXECUTORS).map(service).collect::<Result<_>>()?;
    until_known(&server).await?;

    let (url, call) = (server.url(), case(Shape::Sequence)?);
    let before = server.usages();
    let load = apart("load", move || async move { closed_loop(&url, call, scale).await })?;
    let measured = load.result().await?;
    let after = server.usages();
    let urls = services.iter().map(Service::url).collect();
    let limit = apart("limit", move || async move { limit(urls, verdicts, scale).await })?;
    let limit = limit.result().await?;

    let tasks_per_s = measured.per_second() * STEPS_PER_CASE as f64;
    let row = Row {
        workload: if verdicts { "dispatch-http" } else { "dispatch-http-no-verdicts" },
        executors: Some(EXECUTORS),
        clients: Some(scale.clients),
        cases: measured.calls(),
        seconds: Some(rounded(measured.seconds, 3)),
        tasks_per_s: Some(rounded(tasks_per_s, 0)),
        limit_tasks_per_s: Some(rounded(limit, 0)),
        p50_ms: Some(rounded(measured.percentile_ms(50), 3)),
        p99_ms: Some(rounded(measured.percentile_ms(99), 3)),
        load_average,
        ..Row::default()
    };
    Ok(row.used(before, after, measured.completed * STEPS_PER_CASE))
}

async fn until_known(server: &Server) -> Result<()> {
    let (client, since) = (server.client()?, Instant::now());
    while client.executors().await?.executors.len() < EXECUTORS {
        ensure!(since.elapsed() < READY_TIME_MAX, "not all executors have registered");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// The tasks a second of the executors over plain HTTP.
async fn limit(urls: Vec<String>, verdicts: bool, scale: Scale) -> Result<f64> {
    let web = Arc::new(Web::new());
    let begin = Instant::now() + scale.warm_up;
    let end = begin + scale.window;
    let mut running = JoinSet::new();
    for client in 0..scale.clients {
        let (web, url) = (web.clone(), urls[client % urls.len()].clone());
        running.spawn(async move {
            let mut done = 0_usize;
            while Instant::now() < end {
                web.task(&url, verdicts).await?;
                done += usize::from((begin..end).contains(&Instant::now()));
            }
            anyhow::Ok(done)
        });
    }
    let mut done = 0;
    while let Some(client) = running.join_next().await {
        done += client.context("a client broke down")??;
    }
    Ok(done as f64 / scale.window.as_secs_f64())
}

/// The HTTP client, configured as in a server.
struct Web {
    client: Client<HttpConnector, Full<Bytes>>,
    last: AtomicU64,
}

impl Web {
    fn new() -> Self {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_max_idle_per_host(IDLE_MAX);
        Self { client: client.build(http), last: AtomicU64::new(0) }
    }

    /// Sends a task and, if wanted, its verdict.
    async fn task(&self, url: &str, verdicts: bool) -> Result<()> {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let task = format!("inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC:step-1#{number}");
        let now = Timestamp(jiff::Timestamp::now().as_millisecond());
        let request = TaskRequest {
            server: None,
            task: task.clone(),
            key: "inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC:step-1".to_owned(),
            attempt: 1,
            kind: JOB.to_owned(),
            size: 1.0,
            process: "sequence".to_owned(),
            inputs: Default::default(),
            deadline: Timestamp(now.0 + 60_000),
            callback: "http://127.0.0.1:1/v1/executors/executor-1/results".to_owned(),
        };
        self.post(url, "tasks", &request, now).await?;
        if verdicts {
            let request = VerdictRequest { task, verdict: Verdict::Ack };
            self.post(url, "verdicts", &request, now).await?;
        }
        Ok(())
    }

    async fn post(
        &self,
        url: &str,
        what: &str,
        content: &impl Serialize,
        now: Timestamp,
    ) -> Result<()> {
        let body = serde_json::to_vec(content)?;
        let uri: Uri = format!("{url}/{what}").parse()?;
        let signed = Signed { method: "POST", target: uri.path(), body: &body };
        let signature = signature::sign(SECRET, &signed, now);
        let request = Request::post(uri)
            .header(CONTENT_TYPE, "application/json")
            .header(signature::HEADER, signature)
            .body(Full::new(Bytes::from(body)))?;
        let (head, body) = self.client.request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        let said = String::from_utf8_lossy(&body);
        ensure!(head.status == StatusCode::OK, "{what}: {} {said}", head.status);
        Ok(())
    }
}
