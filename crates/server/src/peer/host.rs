//! This process in a cluster: its certificate, and the logical servers it holds.
//!
//! Invariant: a logical server is held once. Servers of one process exchange messages without a
//! socket. The process always shows the certificate of its own server, whichever of its servers is
//! dialled.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use legwork_model::time::Timestamp;
use legwork_placement::Topology;
use rustc_hash::FxHashMap;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use super::accept;
use super::link::Ended;
use super::links::{Links, Place, Presence};
use super::tls::{Identity, Unusable};
use crate::clock::Clock;
use crate::moving::Progress;

/// How often the certificate files are checked, besides at every new connection.
const RENEWAL: Duration = Duration::from_secs(5);
/// How often the rejection of an address is logged, and for how many addresses.
const STRANGER: Duration = Duration::from_secs(60);
const STRANGERS_MAX: usize = 64;
/// Queued requests to the guests' manager.
const WISHES_MAX: usize = 64;

pub(crate) struct Host {
    /// The server whose certificate the process shows: its own.
    pub(crate) name: Arc<str>,
    /// The address for other processes, if not that of the topology.
    address: Option<Arc<str>>,
    pub(crate) identity: Identity,
    pub(crate) clock: Arc<Clock>,
    /// By name: numbers depend on the topology, and servers may have different versions.
    held: RwLock<BTreeMap<Arc<str>, Arc<Links>>>,
    /// Held while servers are told which peers are local, so that the last report is the latest
    /// state.
    looking: Mutex<()>,
    /// Recently rejected addresses, and when each was logged.
    strangers: Mutex<FxHashMap<IpAddr, Timestamp>>,
    wishes: mpsc::Sender<Wish>,
    /// Servers whose stores are being copied to this process.
    copies: Mutex<BTreeMap<Arc<str>, watch::Receiver<Progress>>>,
}

/// A request to the guests' manager.
pub(crate) enum Wish {
    /// Another process requests a server that this one has taken over.
    Release {
        server: Arc<str>,
        /// Tells that it is given back, or why not.
        done: oneshot::Sender<Result<(), String>>,
    },
    /// A server is to move here: its store is copied in advance.
    Prepare {
        server: Arc<str>,
        /// Tells the progress.
        done: oneshot::Sender<Result<Progress, Unprepared>>,
    },
}

/// Why a server is not prepared to move here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unprepared {
    NotNow(String),
    /// Permanently.
    Never(String),
}

impl From<String> for Unprepared {
    fn from(why: String) -> Self {
        Self::NotNow(why)
    }
}

impl Host {
    pub(crate) fn new(
        name: Arc<str>,
        address: Option<Arc<str>>,
        certificates: &Path,
        clock: Arc<Clock>,
    ) -> Result<(Self, mpsc::Receiver<Wish>), Unusable> {
        let identity = Identity::read(certificates)?;
        identity.require(&name)?;
        let (held, looking, strangers) = (RwLock::default(), Mutex::default(), Mutex::default());
        let (wishes, wished) = mpsc::channel(WISHES_MAX);
        let copies = Mutex::default();
        let host =
            Self { name, address, identity, clock, held, looking, strangers, wishes, copies };
        Ok((host, wished))
    }

    /// Accepts other processes until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, listener: TcpListener) {
        let accepting = accept::accept(self.clone(), listener);
        let renewing = async {
            let mut renewal = tokio::time::interval(RENEWAL);
            loop {
                renewal.tick().await;
                // Logs at once if a new certificate is unusable.
                drop(self.identity.current());
            }
        };
        tokio::join!(accepting, renewing);
    }

    /// The address of this process.
    pub(crate) fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// The place of this process in a topology.
    pub(crate) fn place(&self, topology: &Topology) -> Place {
        let own = topology.server_named(&self.name).and_then(|own| topology.server(own));
        let address = self.address.clone().or_else(|| Some(own?.address.clone()));
        Place { host: self.name.clone(), address: address.unwrap_or_default() }
    }

    /// Gives a taken-over server back, or says why not.
    pub(crate) async fn release(&self, server: Arc<str>) -> Result<(), String> {
        let (done, outcome) = oneshot::channel();
        self.wish(Wish::Release { server, done }, outcome).await
    }

    /// Copies the store of a server that is to move here; returns the progress.
    pub(crate) async fn prepare(&self, server: Arc<str>) -> Result<Progress, Unprepared> {
        let (done, outcome) = oneshot::channel();
        self.wish(Wish::Prepare { server, done }, outcome).await
    }

    async fn wish<T, E: From<String>>(
        &self,
        wish: Wish,
        outcome: oneshot::Receiver<Result<T, E>>,
    ) -> Result<T, E> {
        let stopping = || E::from("the process is stopping".to_owned());
        self.wishes.send(wish).await.map_err(|_| stopping())?;
        outcome.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Registers a copy in progress.
    pub(crate) fn follow_copy(&self, server: Arc<str>, progress: watch::Receiver<Progress>) {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.insert(server, progress);
    }

    /// The servers whose stores are being copied here, with progress.
    pub(crate) fn copies(&self) -> Vec<(Arc<str>, Progress)> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        // The copying task has ended.
        copies.retain(|_, progress| progress.has_changed().is_ok());
        let copies = copies.iter();
        copies.map(|(name, progress)| (name.clone(), progress.borrow().clone())).collect()
    }

    /// A logical server that is held here.
    pub(crate) fn held(&self, name: &str) -> Option<Arc<Links>> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All of them, by name.
    pub(crate) fn all(&self) -> Vec<Arc<Links>> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// The process holds this logical server from now on.
    pub(crate) fn take_in(&self, links: &Arc<Links>) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.insert(links.name.clone(), links.clone());
        drop(held);
        links.enter(Presence::Held);
        self.look_around();
    }

    /// The process no longer holds this logical server; `presence` is its new relation.
    pub(crate) fn let_go(&self, links: &Arc<Links>, presence: Presence) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let is_held = held.get(&links.name).is_some_and(|held| Arc::ptr_eq(held, links));
        if is_held {
            held.remove(&links.name);
        }
        drop(held);
        links.enter(presence);
        self.look_around();
        links.look_around();
    }

    /// Updates which peers of the held servers are local.
    pub(crate) fn look_around(&self) {
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        for links in self.all() {
            links.look_around();
        }
    }

    /// Logs a rejected peer: it will retry, and not every attempt is logged.
    pub(crate) fn refused(&self, from: SocketAddr, why: &Ended) {
        if self.is_news(from.ip(), self.clock.now()) {
            tracing::warn!(%from, reason = %why, "a connection was refused");
        } else {
            tracing::debug!(%from, reason = %why, "a connection was refused again");
        }
    }

    fn is_news(&self, from: IpAddr, now: Timestamp) -> bool {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.retain(|_, told| now.since(*told) < STRANGER);
        if strangers.contains_key(&from) || strangers.len() >= STRANGERS_MAX {
            return false;
        }
        strangers.insert(from, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::peer::links::tests::{links, server};

    #[test]
    fn a_rejected_peer_is_logged_once_a_minute() {
        let (_folder, _, links) = links(vec![server("north")]);
        let news = |last: u32, seconds: i64| {
            links.host.is_news(Ipv4Addr::from(last).into(), Timestamp(seconds * 1_000))
        };
        assert_eq!([news(1, 0), news(1, 5), news(2, 5), news(1, 59)], [true, false, true, false]);
        assert!(news(1, 60));
        let told = (10..1_000).filter(|last| news(*last, 70)).count();
        assert!(told < STRANGERS_MAX, "{told}");
    }
}
