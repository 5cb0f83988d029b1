//! This process among others: its certificate, and the logical servers it holds.
//!
//! Invariant: a logical server is held once. Those of one process know each other as near and hand
//! each other what they say without a socket. Whoever dials is shown the certificate of the
//! process's own server, whichever of its servers is meant.

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

/// How often the files of the certificates are looked at, besides at every new connection.
const RENEWAL: Duration = Duration::from_secs(5);
/// How often it is told of one address that it was refused, and of how many meanwhile.
const STRANGER: Duration = Duration::from_secs(60);
const STRANGERS_MAX: usize = 64;
/// What is wanted at once and waits.
const WISHES_MAX: usize = 64;

pub(crate) struct Host {
    /// The server whose certificate the process shows: its own.
    pub(crate) name: Arc<str>,
    /// Where other processes dial it, if that is not where the topology says.
    address: Option<Arc<str>>,
    pub(crate) identity: Identity,
    pub(crate) clock: Arc<Clock>,
    /// By name: the numbers are those of a topology, and not all know the same one.
    held: RwLock<BTreeMap<Arc<str>, Arc<Links>>>,
    /// Held by whoever tells the servers who is near: what was true last is told last.
    looking: Mutex<()>,
    /// Who was refused of late, and when that was told.
    strangers: Mutex<FxHashMap<IpAddr, Timestamp>>,
    wishes: mpsc::Sender<Wish>,
    /// Servers whose stores are being copied to this process.
    copies: Mutex<BTreeMap<Arc<str>, watch::Receiver<Progress>>>,
}

/// What is wanted of whoever keeps the servers of this process.
pub(crate) enum Wish {
    /// Another process wants to have a server back that this one has taken over.
    Release {
        server: Arc<str>,
        /// Told that it is given back, or why not.
        done: oneshot::Sender<Result<(), String>>,
    },
    /// A server is to move here: its store is copied ahead.
    Prepare {
        server: Arc<str>,
        /// Told how far that is.
        done: oneshot::Sender<Result<Progress, Unprepared>>,
    },
}

/// Why a server is not prepared to move here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unprepared {
    NotNow(String),
    /// However long it is waited for.
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

    /// Listens to other processes until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, listener: TcpListener) {
        let accepting = accept::accept(self.clone(), listener);
        let renewing = async {
            let mut renewal = tokio::time::interval(RENEWAL);
            loop {
                renewal.tick().await;
                // Says at once when a new certificate cannot be used.
                drop(self.identity.current());
            }
        };
        tokio::join!(accepting, renewing);
    }

    /// Where this process listens.
    pub(crate) fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// Where other processes dial this one, by a topology.
    pub(crate) fn place(&self, topology: &Topology) -> Place {
        let own = topology.server_named(&self.name).and_then(|own| topology.server(own));
        let address = self.address.clone().or_else(|| Some(own?.address.clone()));
        Place { host: self.name.clone(), address: address.unwrap_or_default() }
    }

    /// Gives a server back that was taken over, or says why not.
    pub(crate) async fn release(&self, server: Arc<str>) -> Result<(), String> {
        let (done, outcome) = oneshot::channel();
        self.wish(Wish::Release { server, done }, outcome).await
    }

    /// Copies the store of a server that is to move here: how far that is.
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

    /// The store of a server is being copied here from now on.
    pub(crate) fn follow_copy(&self, server: Arc<str>, progress: watch::Receiver<Progress>) {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        copies.insert(server, progress);
    }

    /// The servers whose stores are being copied here, and how far that is.
    pub(crate) fn copies(&self) -> Vec<(Arc<str>, Progress)> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever copied has ended.
        copies.retain(|_, progress| progress.has_changed().is_ok());
        let copies = copies.iter();
        copies.map(|(name, progress)| (name.clone(), progress.borrow().clone())).collect()
    }

    /// A logical server that is held here.
    pub(crate) fn held(&self, name: &str) -> Option<Arc<Links>> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All of them, in the order of their names.
    pub(crate) fn all(&self) -> Vec<Arc<Links>> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// From now on the process speaks and listens for this logical server.
    pub(crate) fn take_in(&self, links: &Arc<Links>) {
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.insert(links.name.clone(), links.clone());
        drop(held);
        links.enter(Presence::Held);
        self.look_around();
    }

    /// The process holds this logical server no more; what becomes of it here.
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

    /// Has all that are held look who is near.
    pub(crate) fn look_around(&self) {
        let _looking = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        for links in self.all() {
            links.look_around();
        }
    }

    /// Tells of somebody who was not let in: they will try again, and are not told of each time.
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
    fn a_stranger_who_tries_again_and_again_is_told_of_once_a_minute() {
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
