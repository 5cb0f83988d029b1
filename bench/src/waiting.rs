//! `waiting`: how fast are cases that wait for a person completed, and what does waiting cost?
//!
//! Every case has one manual step that 64 clerks may do. All cases are started, then each is
//! completed once by an API call. Invariant: no completion is answered before it is durable.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::Bytes;
use legwork_api::instances::{StartRequest, Started};
use legwork_api::work::CompleteRequest;
use legwork_model::id::InstanceId;

use crate::load::{Calls, apart, drain};
use crate::place::Place;
use crate::report::{Row, rounded};
use crate::server::Server;
use crate::usage::load_average;

pub const DEFINITION: &str = include_str!("../processes/waiting.yaml");
/// The clerks of the organisation: each client acts as one of them.
const CLERKS: usize = 64;
const STARTERS: usize = 64;

/// How fast `clients` complete `cases` cases.
pub async fn measure(place: &Place, cases: usize, clients: usize) -> Result<Row> {
    let load_average = load_average();
    let server = Server::with(place, DEFINITION).await?;
    let instances = Arc::new(start_all(&server, cases).await?);
    let before = server.usages();
    let url = server.url();
    let bodies = bodies(clients)?;
    let calls = Calls {
        count: cases,
        request: Box::new(move |call, client| {
            let path = format!("/v1/work/{}:approve/complete", instances[call]);
            (path, bodies[client].clone())
        }),
        wait: Duration::ZERO,
        accept: |_| Ok(()),
    };
    let load = apart("load", move || async move { drain(&url, clients, calls).await })?;
    let (measured, _) = load.result().await?;
    let after = server.usages();
    let open = server.client()?.instances(&Default::default()).await?.instances.len();
    ensure!(open == 0, "{open} cases are still open after all were completed");
    let row = Row::loaded("waiting", clients, 1, &measured).used(before, after, cases);
    Ok(Row { load_average, rss_mib: before.server.rss_mib.map(|mib| rounded(mib, 1)), ..row })
}

/// The memory of the server while so many cases wait. They come in a burst; memory is read after a
/// pause.
pub async fn memory(place: &Place, cases: usize, rest: Duration) -> Result<Row> {
    let load_average = load_average();
    let server = Server::with(place, DEFINITION).await?;
    let empty = server.disk_bytes()?;
    start_all(&server, cases).await?;
    tokio::time::sleep(rest).await;
    let disk = server.disk_bytes()?.saturating_sub(empty);
    let rss_mib = server.usage().rss_mib.map(|mib| rounded(mib, 1));
    Ok(Row {
        workload: "waiting-memory",
        cases,
        rss_mib,
        disk_bytes_per_case: Some((disk as f64 / cases as f64).round()),
        load_average,
        ..Row::default()
    })
}

/// Starts waiting cases; returns their ids.
pub(crate) async fn start_all(server: &Server, cases: usize) -> Result<Vec<InstanceId>> {
    let request = StartRequest { process: "waiting".into(), ..StartRequest::default() };
    let body = Bytes::from(serde_json::to_vec(&request)?);
    let calls = Calls {
        count: cases,
        request: Box::new(move |_, _| ("/v1/instances".to_owned(), body.clone())),
        wait: Duration::ZERO,
        accept: |answer| Ok(serde_json::from_slice::<Started>(answer)?.instance),
    };
    let url = server.url();
    let load = apart("load", move || async move { drain(&url, STARTERS.min(cases), calls).await })?;
    let (_, instances) = load.result().await?;
    Ok(instances)
}

fn bodies(clients: usize) -> Result<Vec<Bytes>> {
    (0..clients)
        .map(|client| {
            let agent = format!("clerk-{}", client % CLERKS);
            let request = CompleteRequest { agent: Some(agent.into()), ..Default::default() };
            Ok(Bytes::from(serde_json::to_vec(&request)?))
        })
        .collect()
}
