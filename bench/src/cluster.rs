//! Real servers that control cases together, each with its own store or all on one database.
//!
//! Invariant: a returned cluster has the organisation and the definition at all servers.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use legwork_api::Client;
use legwork_testbed::free_port;
use tempfile::TempDir;

use crate::delay::Wire;
use crate::place::Place;
use crate::server::{ORGANISATION, Server};
use crate::usage::Usage;

const READY_TIME_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// The longest change; the servers undo one without an end long before.
const ORDER_TIME_MAX: Duration = Duration::from_secs(900);

/// A domain and its servers, which are named like it with a number.
#[derive(Clone, Copy, Debug)]
pub struct Domain<'a> {
    pub name: &'a str,
    /// How histories are transferred to it.
    pub transfer: &'a str,
    /// One for each server.
    pub weights: &'a [u32],
    /// The database of all its servers; each has a store of its own without one.
    pub database: Option<&'a str>,
}

pub struct Cluster {
    /// In the order of the domains.
    pub servers: Vec<Server>,
    /// The name of each.
    pub names: Vec<String>,
    /// The first published topology.
    pub topology: String,
    place: Place,
    /// Dropped after the servers.
    _wires: Vec<Wire>,
    directory: TempDir,
}

/// The place of a server, before it runs.
#[derive(Clone, Debug)]
pub struct Seat {
    pub name: String,
    /// Its address for other servers.
    pub listen: SocketAddr,
    /// Its address for people and programs.
    pub api: SocketAddr,
    database: Option<String>,
}

impl Cluster {
    /// Starts all servers of these domains, with a delaying proxy before each.
    pub async fn start(
        place: &Place,
        definition: &str,
        domains: &[Domain<'_>],
        delay: Duration,
    ) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("cluster-").tempdir_in(&place.data)?;
        let (mut wires, mut seats) = (Vec::new(), Vec::new());
        let mut topology = String::from("topology: bench\ndomains:\n");
        for domain in domains {
            let store = if domain.database.is_some() { "shared" } else { "embedded" };
            let Domain { name, transfer, .. } = domain;
            writeln!(topology, "  {name}:\n    transfer: {transfer}\n    store: {store}")?;
            writeln!(topology, "    servers:")?;
            for (number, weight) in (1..).zip(domain.weights) {
                let seat = Seat::new(format!("{name}-{number}"), domain.database)?;
                let address = match delay.is_zero() {
                    true => seat.listen,
                    false => {
                        wires.push(Wire::to(seat.listen, delay).await?);
                        wires.last().map_or(seat.listen, |wire| wire.address)
                    }
                };
                let Seat { name, api, .. } = &seat;
                writeln!(
                    topology,
                    "      {name}: {{ address: \"{address}\", api: \"http://{api}\", weight: {weight} }}"
                )?;
                seats.push(seat);
            }
        }
        let names = seats.iter().map(|seat| seat.name.clone()).collect();
        let place = place.clone();
        let mut cluster =
            Self { servers: Vec::new(), names, topology, place, _wires: wires, directory };
        cluster.certify(&cluster.topology).await?;
        for seat in &seats {
            cluster.bring_up(seat).await?;
        }
        cluster.furnish(definition).await?;
        Ok(cluster)
    }

    /// The servers of one domain in one process: the first has the others as its guests.
    pub async fn in_one_process(
        place: &Place,
        definition: &str,
        domain: Domain<'_>,
    ) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("cluster-").tempdir_in(&place.data)?;
        let Domain { name, transfer, weights, database } = domain;
        let store = if database.is_some() { "shared" } else { "embedded" };
        let seat = Seat::new(format!("{name}-1"), database)?;
        let Seat { name: host, listen, api, .. } = &seat;
        let mut topology = format!(
            "topology: bench\ndomains:\n  {name}:\n    transfer: {transfer}\n    store: {store}\n\
             \x20   servers:\n"
        );
        let mut names = Vec::new();
        for (number, weight) in (1..).zip(weights) {
            let place = match number {
                1 => format!("address: \"{listen}\", api: \"http://{api}\""),
                _ => format!("host: {host}"),
            };
            writeln!(topology, "      {name}-{number}: {{ {place}, weight: {weight} }}")?;
            names.push(format!("{name}-{number}"));
        }
        let place = place.clone();
        let mut cluster =
            Self { servers: Vec::new(), names, topology, place, _wires: Vec::new(), directory };
        cluster.certify(&cluster.topology).await?;
        cluster.bring_up(&seat).await?;
        cluster.furnish(definition).await?;
        Ok(cluster)
    }

    /// A client that knows all servers.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::new(&self.urls().join(","), None)?)
    }

    /// The addresses for people and programs.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Server::url).collect()
    }

    /// Starts a process for a server at this place, on an empty store.
    pub async fn bring_up(&mut self, seat: &Seat) -> Result<()> {
        let mut server = self.server_at(seat, &[])?;
        server.up(READY_TIME_MAX).await?;
        self.servers.push(server);
        Ok(())
    }

    /// A process for a server at this place, on an empty store; not started yet.
    pub fn server_at(&self, seat: &Seat, args: &[&str]) -> Result<Server> {
        seat.server(&self.place, &self.folder(&seat.name), args)
    }

    /// Begins a command of `legwork`.
    pub fn order(&self, args: &[&str]) -> Result<Order> {
        Order::begin(&self.place.binary, args)
    }

    /// Creates the certificates and folders of all servers in this topology that lack them.
    pub async fn certify(&self, topology: &str) -> Result<()> {
        let file = self.directory.path().join("topology.yaml");
        std::fs::write(&file, topology)?;
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that is no text");
        let (file, out) = (text(&file)?, text(self.directory.path())?);
        self.order(&["cluster", "init", &file, "--out", &out])?.done().await.map(drop)
    }

    /// The resources used by all servers so far.
    pub fn usage(&self) -> Usage {
        let all: Vec<Usage> = self.servers.iter().map(Server::usage).collect();
        let sum = |of: fn(&Usage) -> Option<f64>| all.iter().map(of).sum::<Option<f64>>();
        Usage {
            rss_mib: sum(|usage| usage.rss_mib),
            cpu_seconds: sum(|usage| usage.cpu_seconds),
            written_bytes: all.iter().map(|usage| usage.written_bytes).sum::<Option<_>>(),
        }
    }

    /// The folder with the certificate of a server.
    fn folder(&self, server: &str) -> PathBuf {
        self.directory.path().join(server)
    }

    async fn furnish(&self, definition: &str) -> Result<()> {
        let first = self.servers.first().context("a cluster without a server")?.client()?;
        first.publish_organisation(ORGANISATION).await?;
        let deployed = first.deploy(definition).await?;
        for server in &self.servers {
            until_known(server, &deployed.process).await?;
        }
        Ok(())
    }
}

impl Seat {
    pub fn new(name: String, database: Option<&str>) -> Result<Self> {
        // Held together, so that they differ.
        let ports = [(); 2].map(|()| free_port());
        let [listen, api] = ports;
        let (listen, api) = (listen?.local_addr()?, api?.local_addr()?);
        Ok(Self { name, listen, api, database: database.map(str::to_owned) })
    }

    /// The address for people and programs.
    pub fn url(&self) -> String {
        format!("http://{}", self.api)
    }

    fn server(&self, place: &Place, folder: &Path, more: &[&str]) -> Result<Server> {
        let folder = folder.to_str().context("a path that is no text")?;
        let listen = self.listen.to_string();
        let mut args = vec!["--cluster", folder, "--peer-listen", &listen];
        args.extend(self.database.iter().flat_map(|database| ["--store", database]));
        args.extend(more);
        Server::new(place, self.api, &args)
    }
}

/// A running `legwork` command; killed on drop.
pub struct Order {
    process: Option<Child>,
    text: String,
}

impl Order {
    fn begin(binary: &Path, args: &[&str]) -> Result<Self> {
        let process = Command::new(binary)
            .args(args)
            // No setting of the caller may leak in.
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        Ok(Self { process: Some(process), text: args.join(" ") })
    }

    /// Whether it has ended, successfully or not.
    pub fn is_over(&mut self) -> Result<bool> {
        match &mut self.process {
            Some(process) => Ok(process.try_wait()?.is_some()),
            None => Ok(true),
        }
    }

    /// Its output, once it has ended successfully.
    pub async fn done(mut self) -> Result<String> {
        let since = Instant::now();
        let text = self.text.clone();
        while !self.is_over()? {
            ensure!(since.elapsed() < ORDER_TIME_MAX, "`{text}` has no end");
            tokio::time::sleep(POLL).await;
        }
        let output = self.process.take().context("it has ended already")?.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let remarks = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{text}` failed: {said}{remarks}");
        Ok(said)
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // Both fail only if the process is gone already, as intended.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The definition is replicated from another server.
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
