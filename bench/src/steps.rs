//! `sequence` and `fanout`: how many durable steps a second, and how long does a case take?
//!
//! A case has ten automatic steps that do nothing, sequential or parallel. Every client starts a
//! case and waits for its end; a worker takes the jobs and reports them. Invariant: before the
//! measurement, the history of one case is checked: it must have ten completions.

use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use legwork_api::instances::{InstanceState, StartRequest, Started};

use crate::load::{Call, Scale, apart, closed_loop};
use crate::place::Place;
use crate::report::Row;
use crate::server::Server;
use crate::usage::load_average;
use crate::worker::Worker;

pub const STEPS_PER_CASE: usize = 10;

/// The type of all jobs.
const JOB: &str = "no-op";
/// No case should take nearly as long.
const CASE_TIME_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Sequence,
    Fanout,
}

impl Shape {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sequence => "sequence",
            Self::Fanout => "fanout",
        }
    }

    pub fn definition(self) -> &'static str {
        match self {
            Self::Sequence => include_str!("../processes/sequence.yaml"),
            Self::Fanout => include_str!("../processes/fanout.yaml"),
        }
    }
}

/// Measures one shape at one number of clients on a new server.
pub async fn measure(shape: Shape, place: &Place, scale: Scale) -> Result<Row> {
    let server = Server::with(place, shape.definition()).await?;
    measure_on(&server, shape, scale).await
}

/// The same on a running server with the definition.
pub(crate) async fn measure_on(server: &Server, shape: Shape, scale: Scale) -> Result<Row> {
    let load_average = load_average();
    let worker = Worker::start(&server.url(), JOB)?;
    check_steps(server, shape).await?;

    let (url, call) = (server.url(), case(shape)?);
    let before = server.usages();
    let load = apart("load", move || async move { closed_loop(&url, call, scale).await })?;
    let measured = load.result().await;
    let after = server.usages();
    // If the worker failed, that is why the load did.
    let done = worker.stop().await?;
    let measured = measured?;

    let steps = measured.completed * STEPS_PER_CASE;
    let row = Row::loaded(shape.name(), scale.clients, STEPS_PER_CASE, &measured);
    let row = Row {
        jobs_per_batch: Some((done.jobs as f64 / done.batches.max(1) as f64).round()),
        load_average,
        ..row.used(before, after, steps)
    };
    Ok(row)
}

/// Starts a case and waits for its end.
pub(crate) fn case(shape: Shape) -> Result<Call> {
    let request = StartRequest {
        process: shape.name().into(),
        wait_ms: Some(u64::try_from(CASE_TIME_MAX.as_millis())?),
        ..StartRequest::default()
    };
    let body = Bytes::from(serde_json::to_vec(&request)?);
    Ok(Call { path: "/v1/instances", body, wait: CASE_TIME_MAX, check: ended })
}

fn ended(answer: &[u8]) -> Result<()> {
    let Started { instance, state, .. } = serde_json::from_slice(answer)?;
    ensure!(
        state == InstanceState::Completed,
        "{instance} is {state:?} after {CASE_TIME_MAX:?}; is the machine overloaded?"
    );
    Ok(())
}

async fn check_steps(server: &Server, shape: Shape) -> Result<()> {
    let client = server.client()?;
    let request = StartRequest {
        process: shape.name().into(),
        wait_ms: Some(u64::try_from(CASE_TIME_MAX.as_millis())?),
        ..StartRequest::default()
    };
    let started = client.start(&request, None).await?;
    ensure!(started.state == InstanceState::Completed, "the first case did not end");
    let history = client.history(started.instance, None, Some(1_000)).await?;
    let completed = history.entries.iter().filter(|entry| entry.kind == "completed").count();
    ensure!(
        completed == STEPS_PER_CASE,
        "a case of {} left {completed} completions in its history, not {STEPS_PER_CASE}",
        shape.name()
    );
    Ok(())
}
