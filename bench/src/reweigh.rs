//! `reweigh`: how does a change of weights at a site full of cases affect callers?
//!
//! Three servers share a site 20:30:50. While clients start and complete cases, the weights become
//! 50:30:20, for all but the cases that are there. Measured are its duration, the longest request of a
//! client meanwhile, and, for another change of the weights without load, the bytes on all links.
//! Invariant: one failed request fails the measurement.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use legwork_api::Client;
use legwork_api::cluster::{Method, TopologyOptions};
use legwork_api::instances::StartRequest;
use legwork_api::work::CompleteRequest;
use legwork_model::id::{ActivityId, Iteration};
use tokio::task::JoinSet;

use crate::cluster::{Cluster, Domain};
use crate::load::apart;
use crate::place::Place;
use crate::report::{Row, rounded};
use crate::usage::load_average;
use crate::waiting::{DEFINITION, start_all};

const BEFORE: [u32; 3] = [20, 30, 50];
const AFTER: [u32; 3] = [50, 30, 20];
const FURTHER: [u32; 3] = [20, 50, 30];
/// The duration of the load before and after the change.
const CALM: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(5);
const CHANGE_TIME_MAX: Duration = Duration::from_secs(60);
const CLERKS: usize = 64;

/// A request of a client: its start and duration.
type Command = (Instant, Duration);

pub async fn measure(place: &Place, cases: usize, clients: usize) -> Result<Row> {
    let load_average = load_average();
    let site = Domain { name: "site", transfer: "proven", weights: &BEFORE, database: None };
    let cluster = Cluster::start(place, DEFINITION, &[site], Duration::ZERO).await?;
    let first = cluster.servers.first().context("no server")?;
    start_all(first, cases).await?;

    let urls: Vec<String> = cluster.servers.iter().map(|server| server.url()).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = stop.clone();
    let load = apart("load", move || async move { load(urls, clients, stopping).await })?;
    tokio::time::sleep(CALM).await;
    let client = cluster.client()?;
    let begun = Instant::now();
    let excepted = reweigh(&client, &cluster.topology, BEFORE, AFTER).await?;
    let seconds = begun.elapsed().as_secs_f64();
    tokio::time::sleep(CALM).await;
    stop.store(true, Ordering::Relaxed);
    let commands = load.result().await?;

    let quiet = wire_bytes(&cluster).await?;
    let topology = weighed(&cluster.topology, BEFORE, AFTER)?;
    reweigh(&client, &topology, AFTER, FURTHER).await?;
    let bytes = wire_bytes(&cluster).await?.saturating_sub(quiet);

    let longest = |of: &dyn Fn(&Command) -> bool| {
        let took = commands.iter().filter(|command| of(command)).map(|(_, took)| *took).max();
        rounded(took.unwrap_or_default().as_secs_f64() * 1000.0, 1)
    };
    Ok(Row {
        workload: "reweigh",
        clients: Some(clients),
        cases,
        seconds: Some(rounded(seconds, 3)),
        pause_ms: Some(longest(&|(given, took)| *given + *took >= begun)),
        pause_before_ms: Some(longest(&|(given, took)| *given + *took < begun)),
        excepted: Some(excepted),
        bytes_moved: Some(bytes),
        load_average,
        ..Row::default()
    })
}

/// Changes the weights and waits for the end; returns the number of cases that keep their server.
async fn reweigh(client: &Client, topology: &str, from: [u32; 3], to: [u32; 3]) -> Result<u64> {
    let topology = weighed(topology, from, to)?;
    let options = TopologyOptions { method: Some(Method::Except), ..Default::default() };
    let since = Instant::now();
    let answer = client.publish_topology(&topology, &options).await?;
    ensure!(!answer.unchanged, "the weights were these already");
    loop {
        let changes = client.changes().await?;
        if changes.under_way.is_none() {
            let last = changes.last.context("the change is not told of")?;
            let why = last.undone.unwrap_or_default();
            ensure!(last.epoch.is_some(), "the change was undone: {why}");
            return Ok(last.excepted);
        }
        ensure!(since.elapsed() < CHANGE_TIME_MAX, "the change has no end");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The topology file with other weights.
fn weighed(topology: &str, from: [u32; 3], to: [u32; 3]) -> Result<String> {
    let mut text = topology.to_owned();
    for (number, (from, to)) in (1..).zip(from.into_iter().zip(to)) {
        let name = format!("site-{number}:");
        let line = text.lines().find(|line| line.trim_start().starts_with(&name));
        let line = line.with_context(|| format!("no {name} in the topology"))?.to_owned();
        let other = line.replace(&format!("weight: {from} "), &format!("weight: {to} "));
        text = text.replace(&line, &other);
    }
    Ok(text)
}

/// Bytes that all servers have sent to each other.
async fn wire_bytes(cluster: &Cluster) -> Result<u64> {
    let mut bytes = 0;
    for server in &cluster.servers {
        let links = server.client()?.links().await?.links;
        bytes += links.iter().map(|link| link.sent.socket).sum::<u64>();
    }
    Ok(bytes)
}

/// Clients start and complete cases, each at one of the servers.
async fn load(urls: Vec<String>, clients: usize, stop: Arc<AtomicBool>) -> Result<Vec<Command>> {
    let mut running = JoinSet::new();
    for number in 0..clients {
        let url = urls.get(number % urls.len()).context("no server")?;
        let (client, stop) = (Client::new(url, None)?, stop.clone());
        running.spawn(async move {
            let mut commands = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                one_case(&client, number, &mut commands).await?;
            }
            anyhow::Ok(commands)
        });
    }
    let mut commands = Vec::new();
    while let Some(client) = running.join_next().await {
        commands.extend(client.context("a client broke down")??);
    }
    Ok(commands)
}

async fn one_case(client: &Client, number: usize, commands: &mut Vec<Command>) -> Result<()> {
    let start = StartRequest { process: "waiting".into(), ..StartRequest::default() };
    let given = Instant::now();
    let instance = client.start(&start, None).await?.instance;
    commands.push((given, given.elapsed()));
    let activity = ActivityId { instance, step: "approve".into(), iteration: Iteration::default() };
    let agent = Some(format!("clerk-{}", number % CLERKS).into());
    let complete = CompleteRequest { agent, ..CompleteRequest::default() };
    let given = Instant::now();
    client.complete(&activity, &complete, None).await?;
    commands.push((given, given.elapsed()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_weights_of_the_named_servers_change() {
        let line = |number, weight| {
            format!("      site-{number}: {{ address: \"a:20\", weight: {weight} }}\n")
        };
        let before = line(1, 20) + &line(2, 30) + &line(3, 50);
        let after = line(1, 50) + &line(2, 30) + &line(3, 20);
        assert_eq!(weighed(&before, BEFORE, AFTER).unwrap(), after);
        assert_eq!(weighed(&after, AFTER, BEFORE).unwrap(), before);
    }
}
