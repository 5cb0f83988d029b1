//! `disk`: how many bytes does a completed case of ten steps keep on disk?
//!
//! Runs a number of cases, stops the server cleanly, compacts its store with `legwork compact` and
//! compares with the store before the first case. Invariant: the count is the disk use of the files,
//! journals and reserved blocks included.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::load::{Calls, apart, drain};
use crate::place::Place;
use crate::report::Row;
use crate::server::Server;
use crate::steps::{Shape, case};
use crate::usage::{load_average, occupied_bytes};
use crate::worker::Worker;

const CLIENTS: usize = 128;

pub async fn measure(place: &Place, cases: usize) -> Result<Row> {
    let load_average = load_average();
    // Both are measured alike: stopped, compacted, without a process.
    let empty = {
        let mut server = Server::with(place, Shape::Sequence.definition()).await?;
        server.stop().await?;
        compacted(place, &server)?
    };
    let mut server = Server::with(place, Shape::Sequence.definition()).await?;
    let worker = Worker::start(&server.url(), "no-op")?;
    let before = server.usage();
    let ran = run_cases(&server, cases).await;
    let after = server.usage();
    worker.stop().await?;
    ran?;
    server.stop().await?;
    let stopped = server.disk_bytes()?;
    let kept = compacted(place, &server)?;

    let per_case = |bytes: u64| (bytes as f64 / cases as f64).round();
    let written = after.written_bytes.zip(before.written_bytes);
    Ok(Row {
        workload: "disk",
        clients: Some(CLIENTS.min(cases)),
        cases,
        disk_bytes_per_case: Some(per_case(kept.saturating_sub(empty))),
        disk_bytes_per_case_before_compaction: Some(per_case(stopped.saturating_sub(empty))),
        written_bytes_per_case: written.map(|(after, before)| per_case(after - before)),
        load_average,
        ..Row::default()
    })
}

async fn run_cases(server: &Server, cases: usize) -> Result<()> {
    let call = case(Shape::Sequence)?;
    let (url, clients) = (server.url(), CLIENTS.min(cases));
    let body = call.body.clone();
    let calls = Calls {
        count: cases,
        request: Box::new(move |_, _| (call.path.to_owned(), body.clone())),
        wait: call.wait,
        accept: call.check,
    };
    apart("load", move || async move { drain(&url, clients, calls).await })?.result().await?;
    Ok(())
}

fn compacted(place: &Place, server: &Server) -> Result<u64> {
    let output =
        Command::new(&place.binary).args(["compact", "--data"]).arg(server.data()).output();
    let output = output.with_context(|| format!("cannot run {}", place.binary.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "compacting failed: {said}");
    occupied_bytes(&server.data())
}
