//! Servers are added to the first, a middle and the last of four domains while cases run, by typing
//! the printed commands of `legwork cluster add`.
//!
//! A new server knows only the file, which has the servers of each domain together; the catalog
//! numbers them by age. No case hangs, and no server mistakes another for itself.

use std::cell::RefCell;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use legwork_api::Data;
use legwork_api::client::{Client, InstanceQuery};
use legwork_api::instances::{HistoryEntry, InstanceState, StartRequest};
use legwork_api::jobs::{ActivateRequest, CompleteJobsRequest, CompletedJob};
use legwork_e2e::wait::until;
use legwork_e2e::{Folder, Server, cluster, command, legwork};
use legwork_model::id::InstanceId;
use legwork_testbed::free_port;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

const DOMAINS: [&str; 4] = ["east", "lab", "north", "ward"];
/// The number of open cases, and of starts after each added server.
const OPEN_MAX: usize = 20;
const CASES_AFTER: u32 = 25;
const PATIENCE: Duration = Duration::from_secs(20);

const TOUR: &str = "
process: tour
data: { n: int, a: string, b: string }
start: [n]
steps:
  - { step: one, job: at-east, at: east, reads: [n], writes: [a] }
  - parallel: apart
    branches:
      - steps: [{ step: two, job: at-lab, at: lab, reads: [a], writes: [b] }]
      - steps: [{ step: three, job: at-north, at: north, reads: [a] }]
  - { step: four, job: at-ward, at: ward, reads: [a, b] }
  - { step: five, job: back-at-east, at: east, reads: [b] }
";

/// The jobs of each site. The last job of a case makes room for the next case.
const KINDS: [&[&str]; 4] =
    [&["at-east", "back-at-east"], &["at-lab"], &["at-north"], &["at-ward"]];

/// Running cases, and workers at all sites.
struct Load {
    starting: JoinHandle<Result<Vec<InstanceId>>>,
    working: JoinSet<Result<()>>,
    /// Permits for starts; closed when all cases have ended.
    room: Arc<Semaphore>,
    /// Started cases.
    begun: Arc<Semaphore>,
    is_over: Arc<AtomicBool>,
}

impl Load {
    fn begin(servers: &[Server]) -> Result<Self> {
        let clients: Result<Vec<Client>> = servers.iter().map(Server::client).collect();
        let clients = clients?;
        let (room, begun) = (Arc::new(Semaphore::new(OPEN_MAX)), Arc::new(Semaphore::new(0)));
        let is_over = Arc::new(AtomicBool::new(false));
        let mut working = JoinSet::new();
        for (client, kinds) in clients.iter().zip(KINDS) {
            working.spawn(work(client.clone(), kinds, room.clone()));
        }
        let starting = start(clients, room.clone(), begun.clone(), is_over.clone());
        let starting = tokio::spawn(starting);
        Ok(Self { starting, working, room, begun, is_over })
    }

    /// Waits until so many more have started.
    async fn go_on(&mut self, cases: u32) -> Result<()> {
        self.begun.forget_permits(usize::MAX);
        tokio::select! {
            begun = timeout(PATIENCE, self.begun.acquire_many(cases)) => {
                begun.context("cases hang: there is no room for new ones")??.forget();
            }
            Some(failed) = self.working.join_next() => failed??,
        }
        Ok(())
    }

    /// Stops starting; returns the cases as soon as all have ended.
    async fn end(mut self) -> Result<Vec<InstanceId>> {
        self.is_over.store(true, Ordering::Relaxed);
        let cases = timeout(PATIENCE, self.starting).await.context("cases hang")???;
        let all = timeout(PATIENCE, self.room.acquire_many(OPEN_MAX as u32)).await;
        drop(all.context("cases hang: not all have ended")??);
        self.room.close();
        while let Some(ended) = self.working.join_next().await {
            ended??;
        }
        Ok(cases)
    }
}

/// Starts a case at one site after the other, whenever there is a permit.
async fn start(
    clients: Vec<Client>,
    room: Arc<Semaphore>,
    begun: Arc<Semaphore>,
    is_over: Arc<AtomicBool>,
) -> Result<Vec<InstanceId>> {
    let mut cases = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        room.acquire().await?.forget();
        let client = &clients[cases.len() % clients.len()];
        let data = Data::from([("n".to_owned(), cases.len().into())]);
        let request = StartRequest { process: "tour".into(), data, ..StartRequest::default() };
        cases.push(client.start(&request, None).await?.instance);
        begun.add_permits(1);
    }
    Ok(cases)
}

/// Does the jobs of a site.
async fn work(client: Client, kinds: &'static [&str], room: Arc<Semaphore>) -> Result<()> {
    let request = ActivateRequest {
        worker: "w".into(),
        types: kinds.iter().map(|kind| (*kind).into()).collect(),
        max: 10,
        lease_ms: 60_000,
        wait_ms: 500,
    };
    while !room.is_closed() {
        let jobs = client.activate(&request).await?.jobs;
        if jobs.is_empty() {
            continue;
        }
        let done = jobs.iter().map(|job| {
            let written = match &*job.kind {
                "at-east" => Data::from([("a".to_owned(), "something".into())]),
                "at-lab" => Data::from([("b".to_owned(), "something else".into())]),
                _ => Data::new(),
            };
            CompletedJob { job: job.job.clone(), lease: job.lease, data: written }
        });
        let completed = CompleteJobsRequest { worker: "w".into(), jobs: done.collect() };
        let results = client.complete_jobs(&completed).await?.results;
        ensure!(results.iter().all(|result| result.ok), "{results:?}");
        room.add_permits(jobs.iter().filter(|job| &*job.kind == "back-at-east").count());
    }
    Ok(())
}

/// Adds a second server to a domain, as an operator who types the printed commands.
async fn add(folder: &Folder, first: &Server, domain: &str) -> Result<Server> {
    let name = format!("{domain}-2");
    let address = free_port()?.local_addr()?.to_string();
    let api = format!("http://{name}.example:7700");
    let at = ["--server", first.url(), "cluster", "add", &name, "--domain", domain];
    let mut adding: Child = command::prepared()?
        .args(at)
        .args(["--address", &address, "--api", &api])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let said = adding.stderr.take().context("nothing to read")?;
    let mut typed = Vec::new();
    for line in BufReader::new(said).lines() {
        let line = line?;
        if let Some(line) = line.trim().strip_prefix("legwork ") {
            typed.push(line.split(' ').map(str::to_owned).collect::<Vec<String>>());
        }
        if typed.len() == 3 {
            break;
        }
    }
    let [show, init, up] = &typed[..] else { anyhow::bail!("it tells too little: {typed:?}") };
    let [show @ .., into, file] = &show[..] else { anyhow::bail!("{show:?}") };
    ensure!(into == ">", "{typed:?}");
    let show: Vec<&str> = show.iter().map(String::as_str).collect();
    folder.file(file, first.run(&show)?.succeeded()?)?;
    let init: Vec<&str> = init.iter().map(String::as_str).collect();
    legwork(folder.path(), &init)?.succeeded()?;
    let up: Vec<&str> = up.iter().map(String::as_str).collect();
    let [up, cluster @ .., "--data", data] = &up[..] else { anyhow::bail!("{up:?}") };
    ensure!((*up, *data) == ("up", &name), "{typed:?}");
    let server = folder.server(&name, cluster).await?;
    let adding = RefCell::new(adding);
    until("the server is not added", async || Ok(adding.borrow_mut().try_wait()?.is_some()))
        .await?;
    let status = adding.into_inner().wait()?;
    ensure!(status.success(), "{status}");
    Ok(server)
}

/// The other server of a transfer.
fn partner(entry: &HistoryEntry) -> Option<&str> {
    let is_of_servers = matches!(&*entry.kind, "received" | "sent" | "delivered");
    entry.to.as_deref().or(entry.from.as_deref()).filter(|_| is_of_servers)
}

/// No server sent anything to itself, whichever server shows the case.
async fn is_sane(servers: &[(String, Client)], case: InstanceId) -> Result<()> {
    for (name, client) in servers {
        let told = client.history(case, None, Some(1_000)).await?.entries;
        let names_itself = |entry: &&HistoryEntry| {
            partner(entry).is_some_and(|partner| entry.server.as_deref() == Some(partner))
        };
        let wrong: Vec<&HistoryEntry> = told.iter().filter(names_itself).collect();
        ensure!(wrong.is_empty() && !told.is_empty(), "{case} at {name}: {wrong:#?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn servers_join_any_domain_under_load_and_no_case_hangs() -> Result<()> {
    let folder = Folder::new()?;
    cluster::init(&folder, &DOMAINS)?;
    let mut servers = Vec::new();
    for domain in DOMAINS {
        servers.push(cluster::up(&folder, &format!("{domain}-1")).await?);
    }
    servers[0].client()?.deploy(TOUR).await?;
    for server in &servers {
        let client = server.client()?;
        let knows = async || Ok(client.instances(&InstanceQuery::default()).await.is_ok());
        until("a server has not joined", knows).await?;
    }
    let mut load = Load::begin(&servers)?;
    load.go_on(CASES_AFTER).await?;
    let mut names: Vec<String> = DOMAINS.map(|domain| format!("{domain}-1")).to_vec();
    for domain in [DOMAINS[0], DOMAINS[2], DOMAINS[3]] {
        servers.push(add(&folder, &servers[0], domain).await?);
        names.push(format!("{domain}-2"));
        load.go_on(CASES_AFTER).await?;
    }
    load.go_on(CASES_AFTER).await?;
    let cases = load.end().await?;
    let clients: Result<Vec<Client>> = servers.iter().map(Server::client).collect();
    let all: Vec<(String, Client)> = names.into_iter().zip(clients?).collect();
    for case in &cases {
        let (_, starter) = &all[usize::from(case.server().0)];
        let ended = starter.instance(*case, Duration::ZERO).await?;
        ensure!(ended.summary.state == InstanceState::Completed, "{ended:?}");
        is_sane(&all, *case).await?;
    }
    let starters = |number: u16| cases.iter().filter(|case| case.server().0 == number).count();
    // With half of the spreads, and as many starts as happen meanwhile, every server gets some.
    let started: Vec<usize> = (0..7).map(starters).collect();
    ensure!(started.iter().all(|started| *started > 0), "one has started nothing: {started:?}");
    Ok(())
}
