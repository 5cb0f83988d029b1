//! Periodic starts of a real server: no moment is started twice, however often it is killed.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_api::client::{Client, InstanceQuery};
use legwork_e2e::{Folder, wait};
use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;

const TICK: &str = "process: tick\nsteps:\n  - { step: note, job: note }\n";
const HOUR_MS: i64 = 3_600_000;

/// The moment of each case: its deadline is an hour later.
async fn moments(client: &Client) -> Result<BTreeMap<InstanceId, Timestamp>> {
    let query = InstanceQuery { limit: Some(1_000), ..InstanceQuery::default() };
    let list = client.instances(&query).await?;
    ensure!(list.next.is_none(), "more cases than a page holds");
    let moment = |one: legwork_api::instances::InstanceSummary| {
        let deadline = one.deadline.with_context(|| format!("{} has no deadline", one.instance))?;
        Ok((one.instance, Timestamp(deadline.at.0 - HOUR_MS)))
    };
    list.instances.into_iter().map(moment).collect()
}

#[tokio::test]
async fn no_moment_is_started_twice_over_kills_and_the_clock_goes_on() -> Result<()> {
    let folder = Folder::new()?;
    let mut known = BTreeMap::new();
    for round in 0..4 {
        let server = folder.server("store", &[]).await?;
        let client = server.client()?;
        if round == 0 {
            let tick = folder.file("tick.yaml", TICK)?;
            server.run(&["deploy", &tick])?.succeeded()?;
            let put = ["schedules", "put", "ticks", "tick", "--every", "1s", "--by", "1h"];
            // It cannot be promised: no worker is known.
            server.run(&put)?.succeeded()?;
        }
        let before = known.len();
        let have_come = async || Ok(moments(&client).await?.len() >= before + 2);
        wait::until("no cases are started", have_come).await?;
        known.append(&mut moments(&client).await?);
        // At another part of the second each time.
        tokio::time::sleep(Duration::from_millis(230 * round)).await;
        server.kill()?;
    }
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    let shown = client.schedule("ticks").await?;
    let all = moments(&client).await?;
    for (instance, moment) in &known {
        ensure!(all.get(instance) == Some(moment), "{instance} of {moment} is gone");
    }
    let mut sorted: Vec<Timestamp> = all.values().copied().collect();
    sorted.sort();
    for pair in sorted.windows(2) {
        ensure!(pair[0] < pair[1], "{} is started twice: {all:#?}", pair[0]);
    }
    let begin = shown.put_at.0 - shown.put_at.0.rem_euclid(1_000);
    ensure!(sorted.iter().all(|moment| (moment.0 - begin) % 1_000 == 0), "{sorted:?}");
    let last = shown.last.context("nothing was started")?;
    assert_eq!(last.promised, Some(false), "{last:?}");
    // The case of the last start exists.
    let instance = last.instance.with_context(|| format!("{:?}", last.detail))?;
    assert_eq!(all.get(&instance), Some(&last.at));

    server.run(&["schedules", "remove", "ticks"])?.succeeded()?;
    let listed = server.run(&["schedules"])?.succeeded()?;
    ensure!(listed.contains("nothing is started periodically"), "{listed}");
    Ok(())
}

#[tokio::test]
async fn a_refused_start_is_seen_in_the_list_and_in_the_log() -> Result<()> {
    let folder = Folder::new()?;
    let server = folder.server("store", &[]).await?;
    let client = server.client()?;
    client.deploy(TICK).await?;
    server.run(&["schedules", "put", "ticks", "tick", "--every", "1s"])?.succeeded()?;
    client.deploy(&TICK.replace("steps:", "data: { n: int }\nstart: [n]\nsteps:")).await?;
    let is_refused = async || {
        let last = client.schedule("ticks").await?.last;
        Ok(last.is_some_and(|last| last.code.as_deref() == Some("missing_input")))
    };
    wait::until("no start is refused", is_refused).await?;
    let listed = server.run(&["schedules"])?.succeeded()?;
    ensure!(listed.contains("refused: missing_input"), "{listed}");
    let metrics = client.metrics().await?;
    ensure!(metrics.lines().any(|line| line.starts_with("legwork_schedules_refused_total ")));
    let log = server.log();
    ensure!(log.contains("a periodic start was refused"), "{log}");
    Ok(())
}
