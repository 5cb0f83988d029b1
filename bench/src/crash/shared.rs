//! Three servers of one site on one PostgreSQL: the busiest is killed repeatedly, sometimes one is
//! paused past its lease and resumed, and PostgreSQL itself restarted. Is anything lost, and how long
//! are the cases of a dead server unavailable?
//!
//! A case waits at every server from the beginning; the time until it can be read again counts as the
//! time to take over. Invariant: the moments of the faults follow from the seed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use legwork_api::Client;
use legwork_api::instances::StartRequest;
use legwork_model::id::{InstanceId, ServerId};
use legwork_testbed::Cluster as Database;

use super::dice::Dice;
use super::load::Load;
use super::{DEFINITION, Outcome, Plan, Trouble, judged};
use crate::cluster::{Cluster, Domain};
use crate::place::Place;

const SERVERS: usize = 3;
/// A case that only waits: no worker does such jobs.
const PROBE: &str = "process: probe\nsteps: [{ step: wait, job: never }]\n";
const LOAD_MIN: Duration = Duration::from_millis(300);
const LOAD_MAX: Duration = Duration::from_millis(1_500);
/// The number of kills between pauses, and between restarts of the database.
const PAUSE_EVERY: u32 = 10;
const RESTART_EVERY: u32 = 25;
/// Longer than any lease.
const PAUSE: Duration = Duration::from_secs(8);
/// No server should be unavailable for nearly as long.
const AWAY_TIME_MAX: Duration = Duration::from_secs(60);
const READY_TIME_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub async fn run(place: &Place, plan: Plan) -> Result<Outcome> {
    let begun = Instant::now();
    let mut database = Database::start_in(&place.data, &[("max_connections", "200")])?;
    let site = database.database("site")?;
    let domain = Domain {
        name: "site",
        transfer: "proven",
        weights: &[1; SERVERS],
        database: Some(site.url()),
    };
    let mut cluster = Cluster::start(place, DEFINITION, &[domain], Duration::ZERO).await?;
    let probes = probes(&cluster).await?;
    let mut load = Load::begin(&cluster.urls(), plan.seed)?;
    let mut away = Vec::new();
    let troubles = async {
        let mut dice = Dice::new(plan.seed, 0);
        for (number, trouble) in (1..).zip(planned(plan.kills)) {
            tokio::time::sleep(dice.between(LOAD_MIN, LOAD_MAX)).await;
            let time = match trouble {
                Trouble::Kill => kill(&mut cluster, &probes).await?,
                Trouble::Pause => pause(&cluster, &probes, &mut dice).await?,
                Trouble::Restart => restart(&mut database, &cluster, &probes).await?,
            };
            eprintln!("{number}: {trouble:?}, away for {time:.1?}");
            away.push((trouble, time));
        }
        anyhow::Ok(())
    };
    tokio::select! {
        troubles = troubles => troubles?,
        failed = load.failure() => return Err(failed),
    }
    let ledger = load.end().await?;
    // The final check must read from the database, not from memory.
    for server in &mut cluster.servers {
        server.kill()?;
        server.spawn()?;
    }
    for server in &mut cluster.servers {
        server.until_ready(READY_TIME_MAX).await?;
    }
    let client = cluster.client()?;
    all_seen(&client, &probes, Instant::now()).await?;
    judged(&client, &ledger, plan, begun, away).await
}

/// So many kills, and every other fault at least once.
fn planned(kills: u32) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    for number in 1..=kills {
        let is_last = number == kills;
        troubles.push(Trouble::Kill);
        if number.is_multiple_of(PAUSE_EVERY) || is_last && kills < PAUSE_EVERY {
            troubles.push(Trouble::Pause);
        }
        if number.is_multiple_of(RESTART_EVERY) || is_last && kills < RESTART_EVERY {
            troubles.push(Trouble::Restart);
        }
    }
    troubles
}

/// A case at each server.
async fn probes(cluster: &Cluster) -> Result<Vec<InstanceId>> {
    let client = cluster.client()?;
    client.deploy(PROBE).await?;
    let start = StartRequest { process: "probe".into(), ..StartRequest::default() };
    let mut probes: Vec<Option<InstanceId>> = vec![None; SERVERS];
    let since = Instant::now();
    while probes.iter().any(Option::is_none) {
        let instance = client.start(&start, None).await?.instance;
        let ServerId(number) = instance.server();
        let place = probes.get_mut(usize::from(number)).context("a server that is not there")?;
        match place {
            None => *place = Some(instance),
            Some(_) => client.abort(instance, Some("one is enough")).await?,
        }
        ensure!(since.elapsed() < AWAY_TIME_MAX, "a server gets no cases");
    }
    Ok(probes.into_iter().flatten().collect())
}

/// Kills the server whose process has the most work since its start.
async fn kill(cluster: &mut Cluster, probes: &[InstanceId]) -> Result<Duration> {
    let worked = |place: &usize| cluster.servers[*place].usage().cpu_seconds.unwrap_or(0.0);
    let busiest = (0..SERVERS).max_by(|a, b| worked(a).total_cmp(&worked(b))).unwrap_or(0);
    let killed = Instant::now();
    cluster.servers[busiest].kill()?;
    let away = all_seen(&others(cluster, busiest)?, probes, killed).await?;
    cluster.servers[busiest].spawn()?;
    cluster.servers[busiest].until_ready(READY_TIME_MAX).await?;
    Ok(away)
}

/// Pauses a server past its lease and resumes it.
async fn pause(cluster: &Cluster, probes: &[InstanceId], dice: &mut Dice) -> Result<Duration> {
    let paused = dice.below(SERVERS);
    let since = Instant::now();
    cluster.servers[paused].signal("STOP")?;
    let away = all_seen(&others(cluster, paused)?, probes, since).await?;
    tokio::time::sleep(PAUSE.saturating_sub(since.elapsed())).await;
    cluster.servers[paused].signal("CONT")?;
    Ok(away)
}

/// Restarts the database without telling the servers.
async fn restart(
    database: &mut Database,
    cluster: &Cluster,
    probes: &[InstanceId],
) -> Result<Duration> {
    let since = Instant::now();
    database.stop()?;
    database.run()?;
    all_seen(&cluster.client()?, probes, since).await
}

/// A client that knows all servers but one.
fn others(cluster: &Cluster, one: usize) -> Result<Client> {
    let others = cluster.servers.iter().enumerate().filter(|(place, _)| *place != one);
    let urls: Vec<String> = others.map(|(_, server)| server.url()).collect();
    Ok(Client::new(&urls.join(","), None)?)
}

/// The time from the failure of a server until all cases can be read.
async fn all_seen(client: &Client, cases: &[InstanceId], gone: Instant) -> Result<Duration> {
    for case in cases {
        while client.instance(*case, Duration::ZERO).await.is_err() {
            ensure!(gone.elapsed() < AWAY_TIME_MAX, "{case} is away for {AWAY_TIME_MAX:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    Ok(gone.elapsed())
}
