//! `legwork demo`: three sites in one process, with people, a machine and migrating cases.
//!
//! Invariant: everything is real: each site has its own store, API and links, on loopback; the
//! people use the API. It leaves nothing behind.

mod actors;
mod board;
mod screen;

use std::io::IsTerminal;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use legwork_api::Client;
use legwork_model::time::parse_duration;
use legwork_server::{Config, Peering, Server, StoreChoice, cluster};
use tokio::task::JoinSet;

use crate::layout;
use crate::output::{self, Output};
use actors::{Cases, analyser, patients, person};
use board::{Asked, Board};
use screen::{cases_max, drawn, fitting, heading};

const DEFINITION: &str = include_str!("../../demo/referral.yaml");
const ORGANISATION: &str = include_str!("../../demo/organisation.yaml");
/// The sites, their residents, and their descriptions.
const SITES: [(&str, &[&str], &str); 3] = [
    ("clinic", &["ann", "ben"], "ann, a nurse, and ben, a doctor"),
    ("imaging", &["cleo", "dan"], "cleo, a radiographer, and dan, a radiologist"),
    ("lab", &[], "a machine that counts blood cells"),
];
const LAB: usize = 2;
const VALID: Duration = Duration::from_secs(7 * 86_400);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// End after this time [default: when you press Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// How often the table is drawn
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    every: Duration,
}

pub(crate) fn run(args: &Args, out: Output) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let folder = tempfile::tempdir().context("there is no room for temporary files")?;
        let servers = start(folder.path()).await?;
        let shown = tokio::select! {
            shown = show(args, out, &servers) => shown,
            _ = tokio::signal::ctrl_c() => Ok(()),
        };
        for server in servers {
            server.stop().await;
        }
        shown
    })
}

/// Starts the three servers; the first one gets the organisation and the definition.
async fn start(folder: &Path) -> Result<Vec<Server>> {
    let free = free_addresses(2 * SITES.len())?;
    let (apis, addresses) = free.split_at(SITES.len());
    let mut topology = String::from("topology: demonstration\ndomains:\n");
    for ((name, people, _), (api, address)) in SITES.iter().zip(apis.iter().zip(addresses)) {
        topology.push_str(&format!(
            "  {name}:\n    servers:\n      {name}-1: {{ address: \"{address}\", api: \
             \"http://{api}\" }}\n    people: [{}]\n",
            people.join(", ")
        ));
    }
    let certificates = folder.join("cluster");
    cluster::init(&topology, &certificates, VALID)?;
    let mut servers = Vec::new();
    for ((name, ..), api) in SITES.iter().zip(apis) {
        let store = StoreChoice::Directory(folder.join("stores").join(name));
        let mut config = Config::new(store);
        config.listen = *api;
        config.peering = Some(Peering::read(&certificates.join(format!("{name}-1")))?);
        servers.push(Server::start(config).await?);
    }
    for server in &servers {
        server.until_ready().await;
    }
    let first = client(&servers[0])?;
    first.publish_organisation(ORGANISATION).await?;
    first.deploy(DEFINITION).await?;
    Ok(servers)
}

/// Different addresses that were free a moment ago.
fn free_addresses(count: usize) -> Result<Vec<SocketAddr>> {
    let bind = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("there is no free port");
    let held = (0..count).map(|_| bind()).collect::<Result<Vec<_>>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?)).collect()
}

fn client(server: &Server) -> Result<Client> {
    Ok(Client::new(&format!("http://{}", server.address()), None)?)
}

/// Runs the people and draws the table, until the time is over or one of them fails.
async fn show(args: &Args, out: Output, servers: &[Server]) -> Result<()> {
    let clients = servers.iter().map(client).collect::<Result<Vec<_>>>()?;
    until_known(&clients).await?;
    let cases = Arc::new(Cases::default());
    let mut acting = JoinSet::new();
    acting.spawn(patients(clients.clone(), cases.clone()));
    for (client, (_, people, _)) in clients.iter().zip(SITES) {
        for agent in people {
            acting.spawn(person(client.clone(), agent));
        }
    }
    acting.spawn(analyser(clients[LAB].clone()));
    let asked: Vec<Asked> = clients
        .into_iter()
        .zip(SITES)
        .zip(servers)
        .map(|((client, (name, _, who)), server)| {
            let url = format!("http://{}", server.address());
            Asked { name, who, url, client }
        })
        .collect();
    let drawing = draw(args, out, &asked, &cases);
    tokio::select! {
        drawn = drawing => drawn,
        Some(ended) = acting.join_next() => ended.context("somebody fell over")?,
    }
}

/// Waits until the definition is replicated from the first site.
async fn until_known(clients: &[Client]) -> Result<()> {
    let mut looks = tokio::time::interval(Duration::from_millis(50));
    for client in clients {
        while client.definition("referral", None).await.is_err() {
            looks.tick().await;
        }
    }
    Ok(())
}

async fn draw(args: &Args, out: Output, sites: &[Asked], cases: &Arc<Cases>) -> Result<()> {
    let (begin, mut ticks) = (Instant::now(), tokio::time::interval(args.every));
    let is_screen = std::io::stdout().is_terminal() && !out.json;
    let mut is_first = true;
    if !is_screen && !out.json {
        output::write(&layout::fold(heading(sites), layout::columns()))?;
    }
    loop {
        ticks.tick().await;
        let rows = layout::rows().filter(|_| is_screen);
        let board = Board::read(sites, cases, begin.elapsed(), cases_max(rows)).await?;
        match is_screen {
            true => {
                let text = fitting(sites, &board, rows, layout::columns());
                output::write(&drawn(&text, is_first))?;
            }
            false => out.event(&board, || format!("{}\n", board.render(board.cases.len())))?,
        }
        is_first = false;
        if args.duration.is_some_and(|duration| begin.elapsed() >= duration) {
            return Ok(());
        }
    }
}
