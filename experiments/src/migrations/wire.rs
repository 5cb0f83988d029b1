//! The same run on real servers over loopback: the traffic on the sockets between servers 2 and 3.
//!
//! Invariant: counted is the traffic of the link from before the last step of `b` is reported until
//! server 3 has accepted the case and server 2 has the acknowledgement: frames and TLS records
//! included. Other traffic in that interval, such as a ping, counts too.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use legwork_api::Client;
use legwork_api::Data;
use legwork_api::instances::StartRequest;
use legwork_api::links::Link;
use legwork_api::work::CompleteRequest;
use legwork_model::id::{ActivityId, InstanceId};
use legwork_placement::Transfer;
use legwork_server::{Config, Peering, Server, StoreChoice, cluster};
use serde_json::{Value as Json, json};

use super::scenario::{
    AGENTS, DOMAINS, LARGE, LARGE_BYTES, ROUNDS, SOURCE, TARGET, definition,
    definition_without_scans, organisation, topology,
};

const VALID: Duration = Duration::from_secs(86_400);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// No step takes nearly as long.
const LOOKS_MAX: u32 = 30_000;
/// The bytes that change between two versions of a scan.
const CHANGED_BYTES: usize = 500_000;

/// The traffic on the sockets.
#[derive(Clone, Copy, Debug, Default)]
struct Wire {
    /// Of all `M2` together, in both directions.
    bytes: u64,
    /// Large elements sent to server 3, with all messages about them.
    large: u64,
}

/// Bytes of the case itself, in a run without large elements.
pub(crate) fn case_bytes(transfer: Transfer) -> Result<u64> {
    Ok(measure(transfer, false)?.bytes)
}

/// Bytes of large elements sent to server 3.
pub(crate) fn large_bytes(transfer: Transfer) -> Result<u64> {
    Ok(measure(transfer, true)?.large)
}

fn measure(transfer: Transfer, with_scans: bool) -> Result<Wire> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let folder = tempfile::tempdir()?;
        let servers = start(folder.path(), transfer).await?;
        let wire = run(&servers, with_scans).await;
        for server in servers {
            server.stop().await;
        }
        wire
    })
}

async fn start(folder: &Path, transfer: Transfer) -> Result<Vec<Server>> {
    let mut topology = topology(transfer);
    // Held together, so that they differ.
    let held: Vec<TcpListener> = DOMAINS
        .iter()
        .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .collect::<Result<_, _>>()?;
    for (server, listener) in topology.servers.iter_mut().zip(&held) {
        server.address = listener.local_addr()?.to_string().into();
    }
    drop(held);
    cluster::init(&topology.to_yaml(), &folder.join("cluster"), VALID)?;
    let mut servers = Vec::new();
    for server in &topology.servers {
        let store = StoreChoice::Directory(folder.join("stores").join(&*server.name));
        let mut config = Config::new(store);
        config.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        config.peering = Some(Peering::read(&folder.join("cluster").join(&*server.name))?);
        servers.push(Server::start(config).await?);
    }
    for server in &servers {
        server.until_ready().await;
    }
    Ok(servers)
}

async fn run(servers: &[Server], with_scans: bool) -> Result<Wire> {
    let client = |server: &Server| Client::new(&format!("http://{}", server.address()), None);
    let clients = servers.iter().map(client).collect::<Result<Vec<_>, _>>()?;
    clients[0].publish_organisation(&organisation()).await?;
    let definition = if with_scans { definition() } else { definition_without_scans() };
    clients[0].deploy(&definition).await?;
    let request = StartRequest { process: "treatment".into(), ..StartRequest::default() };
    let instance = clients[0].start(&request, None).await?.instance;
    let scans = if with_scans { (0..LARGE as u64).map(noise).collect() } else { Vec::new() };
    let mut hospital = Hospital { clients, instance, scans };
    for number in 1..=30 {
        hospital.done(0, "a", number, None).await?;
    }
    let mut wire = Wire::default();
    for round in 0..ROUNDS {
        for (place, group) in (1..).zip(["b", "c", "d"]) {
            for number in 1..=5 {
                let is_last = group == "b" && number == 5;
                let before = if is_last { hospital.link_bytes().await? } else { 0 };
                hospital.done(place, group, number, Some(round)).await?;
                if is_last {
                    hospital.until_taken().await?;
                    wire.bytes += hospital.link_bytes().await? - before;
                }
            }
        }
    }
    let links = hospital.clients[usize::from(TARGET)].links().await?;
    wire.large = links.links.iter().map(|link| link.received.large).sum();
    Ok(wire)
}

struct Hospital {
    clients: Vec<Client>,
    instance: InstanceId,
    /// The newest version of each scan.
    scans: Vec<Vec<u8>>,
}

impl Hospital {
    /// Completes a step as soon as it is open.
    async fn done(
        &mut self,
        place: usize,
        group: &str,
        number: usize,
        round: Option<u32>,
    ) -> Result<()> {
        let data = self.written(place, group, number, round).await?;
        let step = format!("{group}{number}");
        let round = round.map(|round| format!(":{round}")).unwrap_or_default();
        let activity: ActivityId = format!("{}:{step}{round}", self.instance).parse()?;
        let agent = Some(AGENTS[place].into());
        let complete = CompleteRequest { agent, data, answer: None };
        let mut refused = None;
        for _ in 0..LOOKS_MAX {
            match self.clients[place].complete(&activity, &complete, None).await {
                Ok(()) => return Ok(()),
                Err(error) => refused = Some(error),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Err(refused.context("never tried")?).with_context(|| format!("{activity} cannot be done"))
    }

    async fn written(
        &mut self,
        place: usize,
        group: &str,
        number: usize,
        round: Option<u32>,
    ) -> Result<Data> {
        let scan = match (group, number) {
            ("a", number) if number <= LARGE => number,
            ("b", 1) => 1,
            ("d", 1) => 2,
            ("d", 5) => {
                let round = json!(round.unwrap_or(0) + 1);
                return Ok(Data::from([("round".to_owned(), round)]));
            }
            _ => return Ok(Data::new()),
        };
        let Some(content) = self.scans.get_mut(scan - 1) else { return Ok(Data::new()) };
        if let Some(round) = round {
            let change = noise(u64::from(round + 1) << 8 | scan as u64);
            let at = CHANGED_BYTES * (round as usize % 10);
            content[at..at + CHANGED_BYTES].copy_from_slice(&change[..CHANGED_BYTES]);
        }
        let upload = self.clients[place].upload("scan", "image/dicom", content.clone().into());
        let file: Json = serde_json::to_value(upload.await?)?;
        Ok(Data::from([(format!("scan{scan}"), file)]))
    }

    /// All bytes between servers 2 and 3.
    async fn link_bytes(&self) -> Result<u64> {
        let link = self.link().await?;
        Ok(link.sent.socket + link.received.socket)
    }

    async fn link(&self) -> Result<Link> {
        let links = self.clients[usize::from(SOURCE)].links().await?.links;
        let target = format!("{}-1", DOMAINS[usize::from(TARGET)]);
        links.into_iter().find(|link| link.server == target).context("there is no such link")
    }

    async fn until_taken(&self) -> Result<()> {
        for _ in 0..LOOKS_MAX {
            if self.link().await?.parcels_waiting == 0 {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        bail!("the case does not move")
    }
}

/// Incompressible bytes: the same for the same seed.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let word = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    word.flatten().take(LARGE_BYTES as usize).collect()
}
