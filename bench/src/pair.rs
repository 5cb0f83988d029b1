//! Two real servers that control cases together, each with a store of its own.
//!
//! Invariant: when it is handed out, both know the organisation and the definition, and each reaches
//! the other.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::delay::Wire;
use crate::place::Place;
use crate::server::{ORGANISATION, Server};
use crate::usage::Usage;

const NAMES: [&str; 2] = ["left", "right"];
const READY_TIME_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

pub struct Pair {
    pub servers: [Server; 2],
    /// Dropped after the servers.
    _wires: Vec<Wire>,
    _directory: TempDir,
}

impl Pair {
    /// Servers `left` and `right` that send histories in this way, over wires with this delay.
    pub async fn start(
        place: &Place,
        definition: &str,
        transfer: &str,
        delay: Duration,
    ) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("pair-").tempdir_in(&place.data)?;
        let (mut wires, mut listens) = (Vec::new(), Vec::new());
        let mut topology = String::from("topology: bench\ndomains:\n");
        for name in NAMES {
            let listen = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
            let address = if delay.is_zero() {
                listen
            } else {
                let wire = Wire::to(listen, delay).await?;
                let address = wire.address;
                wires.push(wire);
                address
            };
            listens.push(listen);
            writeln!(topology, "  {name}:\n    transfer: {transfer}\n    servers:")?;
            // Nobody looks there: the addresses of the APIs are chosen when the servers start.
            let api = format!("http://{name}.example:7700");
            writeln!(topology, "      {name}-1: {{ address: \"{address}\", api: \"{api}\" }}")?;
        }
        let [left, right] = NAMES.map(|name| directory.path().join(format!("{name}-1")));
        initialise(place, directory.path(), &topology)?;
        let left = member(place, &left, listens[0]).await?;
        let client = left.client()?;
        client.publish_organisation(ORGANISATION).await?;
        let deployed = client.deploy(definition).await?;
        let right = member(place, &right, listens[1]).await?;
        until_known(&right, &deployed.process).await?;
        Ok(Self { servers: [left, right], _wires: wires, _directory: directory })
    }

    /// What both have taken so far.
    pub fn usage(&self) -> Usage {
        let [left, right] = self.servers.each_ref().map(Server::usage);
        let sum = |of: fn(&Usage) -> Option<f64>| Some(of(&left)? + of(&right)?);
        Usage {
            rss_mib: sum(|usage| usage.rss_mib),
            cpu_seconds: sum(|usage| usage.cpu_seconds),
            written_bytes: left.written_bytes.zip(right.written_bytes).map(|(a, b)| a + b),
        }
    }
}

/// Certificates for both.
fn initialise(place: &Place, directory: &Path, topology: &str) -> Result<()> {
    let file = directory.join("topology.yaml");
    std::fs::write(&file, topology)?;
    let output = Command::new(&place.binary)
        .args(["cluster", "init"])
        .arg(&file)
        .arg("--out")
        .arg(directory)
        .env_clear()
        .output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    ensure!(output.status.success(), "the cluster cannot be set up: {said}");
    Ok(())
}

async fn member(place: &Place, folder: &Path, listen: SocketAddr) -> Result<Server> {
    let folder = folder.to_str().context("a path that is no text")?;
    let args = ["--cluster", folder, "--peer-listen", &listen.to_string()];
    Server::start_with(place, &args).await
}

/// The definition comes from the other server.
async fn until_known(server: &Server, process: &str) -> Result<()> {
    let (client, since) = (server.client()?, Instant::now());
    while client.definition(process, None).await.is_err() {
        ensure!(
            since.elapsed() < READY_TIME_MAX,
            "{process} does not come:\n{}",
            server.log_tail()
        );
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
