//! Runs one workload against one fresh server and takes its figures.
//!
//! Invariant: every row has its own server and its own directory, so no row affects another.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;

use crate::install::Installed;
use crate::load::{self, Measured};
use crate::report::Row;
use crate::server::{Server, Setup};
use crate::service::{self, Endpointed, STEPS_PER_CASE};
use crate::usage::{Usage, load_average};

const WAIT_TIME_MAX: Duration = Duration::from_secs(300);
const WAIT_POLL: Duration = Duration::from_millis(2);
const SUSPENDED_POLL: Duration = Duration::from_millis(200);
const STARTERS: usize = 64;

#[derive(Clone, Copy)]
pub(crate) enum Workload {
    Sequence,
    Fanout,
    WaitingAttached,
    WaitingSuspended,
}

#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) clients: usize,
    pub(crate) warm_up: Duration,
    pub(crate) window: Duration,
    /// How many cases wait at the same time.
    pub(crate) waiting_cases: usize,
}

/// A configuration of the server under the name it has in the figures.
#[derive(Clone, Copy)]
pub(crate) struct Config {
    pub(crate) name: &'static str,
    pub(crate) partitions: Option<u16>,
}

pub(crate) async fn run(
    workload: Workload,
    config: Config,
    scale: Scale,
    installed: &Installed,
    data: &Path,
) -> Result<Row> {
    let load_average = load_average();
    let mut figures = match workload {
        Workload::Sequence => steps("sequence", config, scale, installed, data).await?,
        Workload::Fanout => steps("fanout", config, scale, installed, data).await?,
        Workload::WaitingAttached => waiting("attached", config, scale, installed, data).await?,
        Workload::WaitingSuspended => waiting("suspended", config, scale, installed, data).await?,
    };
    figures.load_average = load_average;
    Ok(figures)
}

async fn steps(
    name: &'static str,
    config: Config,
    scale: Scale,
    installed: &Installed,
    data: &Path,
) -> Result<Row> {
    let setup = Setup { partitions: config.partitions, concurrent_invocations: None };
    let server = Server::start(&installed.binary, data, setup).await?;
    let endpoint = service::serve(0).await?;
    server.register(endpoint.address).await?;
    let path = if name == "fanout" { "/Bench/fanout" } else { "/Bench/sequence" };
    check_steps(&server, path).await?;

    let idle = server.usage()?;
    let measured =
        load::closed_loop(server.ingress, path, scale.clients, scale.warm_up, scale.window).await?;
    let busy = server.usage()?;
    let row = row(name, config, scale, installed, measured, idle, busy);
    Ok(Row { steps_per_case: STEPS_PER_CASE, ..row })
}

/// One case before the clock runs: its steps must all be in the server's journal.
async fn check_steps(server: &Server, path: &'static str) -> Result<()> {
    let one = Arc::new(vec![(path.to_owned(), Bytes::new())]);
    load::drain(server.ingress, 1, one).await?;
    for entry in ["Command: Run", "Notification: Run"] {
        let query = format!("SELECT COUNT(*) FROM sys_journal WHERE entry_type = '{entry}'");
        let found = server.count(&query).await?;
        ensure!(
            found == STEPS_PER_CASE as u64,
            "a case of {path} left {found} entries '{entry}' in the journal, not {STEPS_PER_CASE}"
        );
    }
    Ok(())
}

async fn waiting(
    how: &'static str,
    config: Config,
    scale: Scale,
    installed: &Installed,
    data: &Path,
) -> Result<Row> {
    let cases = scale.waiting_cases;
    // The peer's limit is per partition: with few partitions its default would let the first cases
    // keep the others from starting until they suspend.
    let setup =
        Setup { partitions: config.partitions, concurrent_invocations: Some(cases.max(1000)) };
    let server = Server::start(&installed.binary, data, setup).await?;
    let endpoint = service::serve(cases).await?;
    server.register(endpoint.address).await?;
    let idle = server.usage()?;

    let start = format!("/Bench/wait_{how}/send");
    let calls = (0..cases).map(|case| (start.clone(), Bytes::from(case.to_string()))).collect();
    load::drain(server.ingress, STARTERS, Arc::new(calls)).await?;
    until(cases, || endpoint.waiting.registered_count()).await?;
    if how == "suspended" {
        until_suspended(&server, cases).await?;
    }
    // The cases came in a burst; people answer later, when the server is idle again.
    tokio::time::sleep(scale.warm_up).await;
    let busy = server.usage()?;

    let resolved = Instant::now();
    let measured = resolve_all(&server, &endpoint, scale.clients).await?;
    until(cases, || endpoint.waiting.finished_count()).await?;
    let finished_per_s = cases as f64 / resolved.elapsed().as_secs_f64();

    let row = row("waiting", config, scale, installed, measured, idle, busy);
    Ok(Row { waiting: Some(how), finished_per_s: Some(finished_per_s), ..row })
}

async fn resolve_all(server: &Server, endpoint: &Endpointed, clients: usize) -> Result<Measured> {
    let resolve = |id: String| {
        (format!("/restate/awakeables/{id}/resolve"), Bytes::from_static(b"\"approved\""))
    };
    let calls = endpoint.waiting.ids().into_iter().map(resolve).collect();
    load::drain(server.ingress, clients, Arc::new(calls)).await
}

async fn until(wanted: usize, reached: impl Fn() -> usize) -> Result<()> {
    let since = Instant::now();
    while reached() < wanted {
        ensure!(
            since.elapsed() < WAIT_TIME_MAX,
            "only {} of {wanted} cases came so far within {WAIT_TIME_MAX:?}",
            reached()
        );
        tokio::time::sleep(WAIT_POLL).await;
    }
    Ok(())
}

async fn until_suspended(server: &Server, cases: usize) -> Result<()> {
    let query = "SELECT COUNT(*) FROM sys_invocation WHERE status = 'suspended'";
    let since = Instant::now();
    loop {
        let suspended = server.count(query).await?;
        if suspended == cases as u64 {
            return Ok(());
        }
        ensure!(
            since.elapsed() < WAIT_TIME_MAX,
            "only {suspended} of {cases} cases are suspended after {WAIT_TIME_MAX:?}"
        );
        tokio::time::sleep(SUSPENDED_POLL).await;
    }
}

fn row(
    workload: &'static str,
    config: Config,
    scale: Scale,
    installed: &Installed,
    measured: Measured,
    idle: Usage,
    busy: Usage,
) -> Row {
    let cases = measured.completed as f64;
    let written = busy.written_bytes.zip(idle.written_bytes);
    Row {
        version: installed.version.clone(),
        workload,
        config: config.name,
        waiting: None,
        clients: scale.clients,
        steps_per_case: 1,
        rss_bytes: busy.rss_bytes,
        rss_idle_bytes: idle.rss_bytes,
        disk_bytes_per_case: Some(busy.disk_bytes.saturating_sub(idle.disk_bytes) as f64 / cases),
        written_bytes_per_case: written
            .map(|(busy, idle)| busy.saturating_sub(idle) as f64 / cases),
        finished_per_s: None,
        load_average: None,
        best: false,
        measured,
    }
}
