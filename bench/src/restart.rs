//! `restart`: after a kill with many cases waiting, when is the server ready again?
//!
//! Invariant: the kill is SIGKILL, right after the last start was acknowledged, and the clock runs
//! from the start of the process to the first `/ready`; all cases must be there then.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use legwork_api::client::InstanceQuery;
use legwork_api::work::CompleteRequest;
use legwork_model::id::{ActivityId, Iteration};

use crate::place::Place;
use crate::report::{Row, rounded};
use crate::server::Server;
use crate::usage::load_average;
use crate::waiting;

const READY_TIME_MAX: Duration = Duration::from_secs(600);
/// The number of cases checked after the restart.
const SAMPLE: usize = 100;

pub async fn measure(place: &Place, cases: usize) -> Result<Row> {
    let load_average = load_average();
    let mut server = Server::with(place, waiting::DEFINITION).await?;
    let begun = Instant::now();
    let instances = waiting::start_all(&server, cases).await?;
    eprintln!("{cases} cases wait after {:.0} s", begun.elapsed().as_secs_f64());
    let disk = server.disk_bytes()?;
    server.kill()?;
    let ready_s = server.up(READY_TIME_MAX).await?;
    let usage = server.usage();

    let client = server.client()?;
    let every = instances.len().div_ceil(SAMPLE).max(1);
    for instance in instances.iter().step_by(every) {
        let activity = ActivityId {
            instance: *instance,
            step: "approve".into(),
            iteration: Iteration::default(),
        };
        let done = CompleteRequest { agent: Some("clerk-0".into()), ..Default::default() };
        client.complete(&activity, &done, None).await?;
    }
    let ended = InstanceQuery { ended: true, limit: Some(SAMPLE), ..Default::default() };
    let ended = client.instances(&ended).await?.instances.len();
    ensure!(ended == instances.iter().step_by(every).count(), "{ended} cases have ended");
    Ok(Row {
        workload: "restart",
        cases,
        ready_s: Some(rounded(ready_s, 2)),
        rss_mib: usage.rss_mib.map(|mib| rounded(mib, 1)),
        disk_bytes_per_case: Some((disk as f64 / cases as f64).round()),
        load_average,
        ..Row::default()
    })
}
