//! The configuration of a server, and its limits.
//!
//! Invariant: every limit has a default that suits one machine, and an error of its own.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use legwork_mail::Settings;
use legwork_placement::Topology;
use legwork_store::postgres::Shared;

#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen at. A server that is alone and has no token uses loopback addresses
    /// only, whatever this says.
    pub listen: SocketAddr,
    pub store: StoreChoice,
    pub limits: Limits,
    /// Threads that serve connections; 0 chooses by the number of processors.
    pub threads: usize,
    /// The number of instances whose state is kept in memory; the others are loaded when needed.
    pub resident_max: usize,
    /// How long to wait for requests in progress when the server stops.
    pub grace: Duration,
    /// Its membership in a cluster; `None` if it is alone.
    pub peering: Option<Peering>,
    /// The shortest time to hold a server that was taken over before its own process gets it back.
    pub takeover_hold: Duration,
    /// The address at which executors reach the API of this process, if not where it listens.
    pub public_url: Option<Arc<str>>,
    /// The mail settings; `None` sends no mail.
    pub mail: Option<Settings>,
    /// The commit that the program was built from; empty if unknown.
    pub commit: &'static str,
}

/// One server of a cluster.
#[derive(Clone, Debug)]
pub struct Peering {
    /// Its name in the topology and in its certificate.
    pub name: Arc<str>,
    /// The folder of `ca.pem`, `cert.pem` and `key.pem`.
    pub certificates: PathBuf,
    /// The topology until the catalog is known.
    pub topology: Arc<Topology>,
    /// Its text, which the first registrar publishes.
    pub source: Arc<str>,
    /// The address to listen at for other servers; that of the topology by default.
    pub listen: Option<SocketAddr>,
    /// The address of the process that this one replaces: it begins by copying that one's store.
    pub replaces: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreChoice {
    /// In memory: lost when the server stops.
    Memory,
    /// In this directory, which is created if it does not exist.
    Directory(PathBuf),
    /// In a PostgreSQL database, which other servers may share.
    Postgres(DatabaseUrl),
}

/// The folder of the guests' stores, in the folder of the process.
const GUESTS: &str = "guests";

impl StoreChoice {
    /// Whether other processes can use the same store.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::Memory | Self::Directory(_) => false,
            Self::Postgres(_) => true,
        }
    }

    /// The store of another logical server in the same process.
    pub(crate) fn of_guest(&self, name: &str) -> Self {
        match self {
            Self::Memory => Self::Memory,
            Self::Directory(folder) => Self::Directory(folder.join(GUESTS).join(name)),
            // They are separated by name.
            Self::Postgres(url) => Self::Postgres(url.clone()),
        }
    }
}

/// `postgres://user:password@host/database`. Never shown with its password. Its clones share the
/// connections for reading, so that a process has as many as one server.
#[derive(Clone)]
pub struct DatabaseUrl {
    url: Arc<str>,
    shared: Arc<Mutex<Option<Shared>>>,
}

#[derive(Clone, Debug)]
pub struct Limits {
    pub body_bytes_max: usize,
    /// Of a definition or an organisation.
    pub source_bytes_max: usize,
    pub file_bytes_max: usize,
    /// Concurrent uploads: each file is held in memory until it is stored.
    pub uploads_max: usize,
    pub json_depth_max: usize,
    pub header_bytes_max: usize,
    /// How long receiving the head of a request may take; twice that at most.
    pub head_wait: Duration,
    pub connections_max: usize,
    /// Queued requests to the site.
    pub queue_max: usize,
    /// Requests that wait for a job, a change or an end.
    pub waiting_max: usize,
    /// The longest a request may wait.
    pub wait_max: Duration,
    /// Requests a second per token, or per address without a valid one; 0 does not limit.
    pub rate_per_s: u32,
    /// The burst of requests before the rate counts; 0 stands for two seconds' worth.
    pub rate_burst: u32,
}

/// The default port.
pub const PORT: u16 = 7700;

impl DatabaseUrl {
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into().into(), shared: Arc::default() }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.url
    }

    /// Connects, unless connected before. Waits for the database.
    pub(crate) fn shared(&self) -> Result<Shared, legwork_store::Error> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match &*shared {
            Some(shared) => Ok(shared.clone()),
            None => Ok(shared.insert(Shared::connect(&self.url)?).clone()),
        }
    }
}

impl PartialEq for DatabaseUrl {
    fn eq(&self, other: &Self) -> bool {
        self.url == other.url
    }
}

impl Eq for DatabaseUrl {}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&legwork_store::postgres::shown(&self.url))
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Config {
    pub fn new(store: StoreChoice) -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT),
            store,
            limits: Limits::default(),
            threads: 0,
            resident_max: legwork_site::Config::default().resident_max,
            grace: Duration::from_secs(10),
            peering: None,
            takeover_hold: Duration::from_secs(10),
            public_url: None,
            mail: None,
            commit: "",
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 1 << 20,
            source_bytes_max: 1 << 20,
            file_bytes_max: 64 << 20,
            uploads_max: 8,
            json_depth_max: 64,
            header_bytes_max: 16 << 10,
            head_wait: Duration::from_secs(10),
            connections_max: 10_000,
            queue_max: 10_000,
            waiting_max: 10_000,
            wait_max: Duration::from_secs(60),
            rate_per_s: 0,
            rate_burst: 0,
        }
    }
}
