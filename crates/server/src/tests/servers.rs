//! Servers on loopback that work together, and common operations on them.
//!
//! Requests take the same path as in production; between the servers are real sockets.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::{DomainId, InstanceId, ServerId};
use legwork_placement::{Domain, Server as Seated, Topology};
use legwork_testbed::Database;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::failures::{Faulty, faulty};
use super::support::{Answered, Call, call, send};
use crate::config::{Config, Peering, StoreChoice};
use crate::core::Opening;
use crate::peer::{Condition, Row};
use crate::status::Phase;
use crate::{Authority, DatabaseUrl, Server};

/// From the first domain to the second and back, with a value.
pub(super) const TRIP: &str = "
process: trip
data: { n: int, text: string }
start: [n]
result: [text]
steps:
  - { step: one, job: first, at: north, reads: [n], writes: [text] }
  - { step: two, job: second, at: south, reads: [text] }
  - { step: three, job: third, at: north, reads: [n] }
";

/// Two servers of one domain.
pub(super) const TWO: &str = "
topology: group
domains:
  north:
    servers:
      north-1: { address: \"127.0.0.1:PORT\", api: \"http://north-1\" }
      north-2: { address: \"127.0.0.1:PORT\", api: \"http://north-2\" }
";

pub(super) const PLAIN: &str = "process: plain\nsteps:\n  - { step: one, job: one }\n";
const CASES_MIN: usize = 12;

const VALID: Duration = Duration::from_secs(3_600);
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Everything needed to start servers.
pub(super) struct Cluster {
    pub(super) folder: TempDir,
    pub(super) authority: Authority,
    pub(super) topology: Arc<Topology>,
}

pub(super) struct Node {
    pub(super) server: Server,
    pub(super) name: String,
}

impl Cluster {
    /// A server in each of these domains, named like it with a number.
    pub(super) fn new(domains: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new().unwrap();
        // Held together, so that they differ.
        let ports: Vec<TcpListener> =
            domains.iter().map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let servers = (0..).zip(domains).zip(&ports).map(|((number, domain), port)| {
            let (name, api) = (format!("{domain}-1"), format!("http://{domain}"));
            let address = port.local_addr().unwrap().to_string();
            Seated::new(name.into(), DomainId(number), address.into(), api.into())
        });
        let topology = Topology {
            name: "group".into(),
            epoch: 1,
            servers: servers.collect(),
            domains: (0..)
                .zip(domains)
                .map(|(number, name)| Domain::new((*name).into(), ServerId(number)))
                .collect(),
            ..Topology::default()
        };
        let cluster = Self { folder, authority, topology: Arc::new(topology) };
        for server in &cluster.topology.servers {
            cluster.certify(&server.name, &cluster.authority, cluster.authority.certificate());
        }
        cluster
    }

    /// From a text in which every `PORT` stands for a free one.
    pub(super) fn of(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new().unwrap();
        let mut parts = text.split("PORT");
        let mut source = parts.next().unwrap().to_owned();
        // Held together, so that they differ.
        let mut ports = Vec::new();
        for part in parts {
            let port = TcpListener::bind("127.0.0.1:0").unwrap();
            source.push_str(&port.local_addr().unwrap().port().to_string());
            source.push_str(part);
            ports.push(port);
        }
        let (topology, findings) = Topology::parse(&source);
        let topology = topology.unwrap_or_else(|| panic!("{findings:?} in {source}"));
        let cluster = Self { folder, authority, topology: Arc::new(topology) };
        for server in &cluster.topology.servers {
            cluster.certify(&server.name, &cluster.authority, cluster.authority.certificate());
        }
        cluster
    }

    /// The same servers, with another topology.
    pub(super) fn with(&self, topology: Arc<Topology>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority =
            Authority::from_pem(self.authority.certificate().to_owned(), &self.authority.key());
        let cluster = Self { folder, authority: authority.unwrap(), topology };
        for server in &cluster.topology.servers {
            cluster.certify(&server.name, &cluster.authority, cluster.authority.certificate());
        }
        cluster
    }

    /// Writes a certificate of this authority for a server that trusts these.
    pub(super) fn certify(&self, server: &str, by: &Authority, trusted: &str) {
        let folder = self.folder.path().join(server);
        std::fs::create_dir_all(&folder).unwrap();
        let certified = by.certify(server, VALID).unwrap();
        std::fs::write(folder.join("ca.pem"), trusted).unwrap();
        std::fs::write(folder.join("cert.pem"), certified.certificate).unwrap();
        std::fs::write(folder.join("key.pem"), certified.key).unwrap();
    }

    pub(super) fn config(&self, name: &str, store: StoreChoice) -> Config {
        let mut config = Config::new(store);
        config.listen.set_port(0);
        config.peering = Some(Peering {
            name: name.into(),
            certificates: self.folder.path().join(name),
            topology: self.topology.clone(),
            source: self.topology.to_yaml().into(),
            listen: None,
            replaces: None,
        });
        config
    }

    pub(super) async fn start(&self, name: &str) -> Node {
        self.start_with(name, self.config(name, StoreChoice::Memory)).await
    }

    /// With a store on disk, which survives the server.
    pub(super) async fn start_stored(&self, name: &str) -> Node {
        let store = StoreChoice::Directory(self.folder.path().join(name).join("store"));
        self.start_with(name, self.config(name, store)).await
    }

    /// With a store that can be made to hang.
    pub(super) async fn start_faulty(&self, name: &str) -> (Arc<Faulty>, Node) {
        let (store, opener) = faulty();
        let config = self.config(name, StoreChoice::Memory);
        let server = Server::start_on(config, Opening::new(opener)).await.unwrap();
        server.until_ready().await;
        (store, Node { server, name: name.to_owned() })
    }

    pub(super) async fn start_with(&self, name: &str, config: Config) -> Node {
        let server = Server::start(config).await.unwrap();
        server.until_ready().await;
        Node { server, name: name.to_owned() }
    }

    /// The text of the topology with another line for one server.
    pub(super) fn changed(&self, server: &str, line: &str) -> String {
        changed(&self.topology.to_yaml(), server, line)
    }
}

pub(super) fn changed(text: &str, server: &str, line: &str) -> String {
    let lines = text.lines().map(|old| {
        let is_it = old.trim_start().starts_with(&format!("{server}:"));
        if is_it { format!("      {server}: {{ {line} }}") } else { old.to_owned() }
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}

/// A store that servers share.
pub(super) fn shared(database: &Database) -> StoreChoice {
    StoreChoice::Postgres(DatabaseUrl::new(database.url()))
}

/// A request to copy a server into the process of another, ahead of its move.
pub(super) fn prepare(server: &str, into: &str) -> Call {
    call("POST /v1/cluster/prepare").json(json!({"server": server, "into": into}))
}

impl Node {
    pub(super) async fn send(&self, call: Call) -> Answered {
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let answered = send(&self.server.core.app, peer, call);
        tokio::time::timeout(PATIENCE, answered).await.unwrap()
    }

    pub(super) async fn ok(&self, call: Call) -> Json {
        let line = format!("{} at {}", call.path, self.name);
        let answered = self.send(call).await;
        assert!(answered.status < 300, "{line}: {answered:?}");
        answered.json()
    }

    pub(super) async fn deploy(&self) {
        self.ok(call("POST /v1/definitions").body("text/yaml", TRIP)).await;
    }

    /// Waits for the definition, deployed here or replicated.
    pub(super) async fn until_deployed(&self, process: &str) {
        let path = format!("GET /v1/definitions/{process}");
        until_some(async || (self.send(call(&path)).await.status == 200).then_some(())).await;
    }

    /// Starts cases of one job until every server has some.
    pub(super) async fn start_plain(&self, servers: usize) -> Vec<InstanceId> {
        self.ok(call("POST /v1/definitions").body("text/yaml", PLAIN)).await;
        let (mut instances, mut seen) = (Vec::new(), BTreeSet::new());
        while seen.len() < servers || instances.len() < CASES_MIN {
            let instance = self.start_one(json!({"process": "plain"})).await;
            seen.insert(instance.server());
            instances.push(instance);
        }
        instances
    }

    pub(super) async fn start_one(&self, start: Json) -> InstanceId {
        let started = self.ok(call("POST /v1/instances").json(start)).await;
        started["instance"].as_str().unwrap().parse().unwrap()
    }

    /// Completes the one job of each of these, wherever it is.
    pub(super) async fn finish_all(&self, instances: &[InstanceId]) {
        for _ in instances {
            self.work("one", json!({})).await;
        }
        for instance in instances {
            let ended = self.ended(&instance.to_string()).await;
            assert_eq!(ended["state"], "completed", "{ended}");
        }
    }

    pub(super) async fn publish(&self, text: &str) {
        self.ok(call("PUT /v1/topology").body("text/yaml", text.to_owned())).await;
    }

    pub(super) async fn changes(&self) -> Json {
        self.ok(call("GET /v1/cluster/changes")).await
    }

    pub(super) fn epoch(&self) -> u32 {
        self.server.core.app.links.as_ref().unwrap().topology().epoch
    }

    pub(super) fn phase(&self) -> Phase {
        self.server.core.app.status.phase()
    }

    /// Whether another process holds its server, and it holds none.
    pub(super) fn is_away(&self) -> bool {
        self.phase() == Phase::Away && self.held().is_empty()
    }

    pub(super) async fn start_trip(&self) -> String {
        let start = json!({"process": "trip", "data": {"n": 7}});
        let started = self.ok(call("POST /v1/instances").json(start)).await;
        started["instance"].as_str().unwrap().to_owned()
    }

    /// Waits for a job and does it.
    pub(super) async fn work(&self, kind: &str, data: Json) {
        let activate = json!({"worker": "w", "types": [kind], "max": 1, "lease_ms": 60_000, "wait_ms": 30_000});
        let jobs = self.ok(call("POST /v1/jobs/activate").json(activate)).await;
        let job = &jobs["jobs"][0];
        let done = json!({"worker": "w",
            "jobs": [{"job": job["job"], "lease": job["lease"], "data": data}]});
        let results = self.ok(call("POST /v1/jobs/complete").json(done)).await;
        assert_eq!(results, json!({"results": [{"ok": true}]}), "{kind} at {}", self.name);
    }

    pub(super) async fn ended(&self, instance: &str) -> Json {
        self.ok(call(&format!("GET /v1/instances/{instance}?wait_ms=30000"))).await
    }

    pub(super) fn row(&self, peer: &str) -> Row {
        let rows = self.server.core.app.links.as_ref().unwrap().rows();
        rows.into_iter().find(|row| &*row.server == peer).unwrap()
    }

    pub(super) async fn until_up(&self, peer: &str) {
        // A server that has not joined may have links already, and refuses requests that need the
        // catalog.
        let has_joined = || self.server.core.app.status.joined_as().is_some();
        until(|| self.row(peer).condition == Condition::Up && has_joined()).await;
    }

    /// Waits until both sides know that their link is up.
    pub(super) async fn until_known(&self, other: &Self) {
        self.until_up(&other.name).await;
        other.until_up(&self.name).await;
    }

    /// The reason why a link is refused.
    pub(super) async fn refusal(&self, peer: &str) -> String {
        until(|| matches!(self.row(peer).condition, Condition::Refused { .. })).await;
        match self.row(peer).condition {
            Condition::Refused { reason } => reason,
            other @ (Condition::Up | Condition::Down { .. }) => panic!("{other:?}"),
        }
    }
}

/// Polls until it is true.
pub(super) async fn until(mut is_so: impl FnMut() -> bool) {
    until_some(async || is_so().then_some(())).await;
}

/// Polls until there is a value.
pub(super) async fn until_some<T>(mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let mut looks = tokio::time::interval(Duration::from_millis(2));
    let looking = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            looks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap()
}
