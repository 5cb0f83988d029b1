//! All links of a server: to whom, in which state, and the way there.
//!
//! Invariant: the drive thread puts messages in and never waits. There is one link to every other
//! server of the topology, dialled from here; what others dialled is listened to and answered on,
//! nothing else. The links follow the topology that the site has.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_placement::{Server, Topology};
use legwork_site::{Message, Sent};
use rustc_hash::FxHashMap;
use tokio::net::TcpListener;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;

use super::counters::{Counters, Meter};
use super::frame::{self, Answered};
use super::link::Ended;
use super::outlet::Outlet;
use super::tls::{Identity, Unusable};
use super::{accept, dial};
use crate::clock::Clock;
use crate::drive;
use crate::files::FileReply;
use crate::http::App;
use crate::queue::Queue;

/// How often the files of the certificates are looked at, besides at every new connection.
const RENEWAL: Duration = Duration::from_secs(5);
/// How often it is told of one address that it was refused, and of how many meanwhile.
const STRANGER: Duration = Duration::from_secs(60);
const STRANGERS_MAX: usize = 64;
/// What one peer has said and the drive thread has not heard: beyond that its connections are not
/// read further. A small message counts for more than its bytes, since there are more of them.
const HEARD_BYTES_MAX: u32 = 64 << 20;
const HEARD_BYTES_MIN: u32 = 16 << 10;

pub(crate) struct Links {
    /// What this server is called.
    pub(crate) name: Arc<str>,
    pub(crate) identity: Identity,
    pub(crate) clock: Arc<Clock>,
    queue: Arc<Queue<drive::Message>>,
    topology: watch::Sender<Arc<Topology>>,
    peers: RwLock<BTreeMap<ServerId, Arc<Peer>>>,
    app: OnceLock<Weak<App>>,
    /// What the site has sent, as it counts.
    sent: Mutex<Sent>,
    /// Who was refused of late, and when that was told.
    strangers: Mutex<FxHashMap<IpAddr, Timestamp>>,
}

/// Another server.
pub(crate) struct Peer {
    pub(crate) id: ServerId,
    pub(crate) name: Arc<str>,
    pub(crate) counters: Arc<Counters>,
    /// Of the connection dialled from here.
    pub(crate) outlet: Outlet,
    /// Requests passed on that wait for their answer.
    pub(crate) asked: Mutex<FxHashMap<u64, oneshot::Sender<Answered>>>,
    /// Questions for contents of files, likewise.
    pub(crate) files: Mutex<FxHashMap<u64, oneshot::Sender<FileReply>>>,
    pub(crate) next_request: AtomicU64,
    /// Room for what it says, in bytes.
    room: Arc<Semaphore>,
    /// It was heard of: worth another try.
    pub(crate) sign_of_life: Notify,
    state: Mutex<State>,
    parcels: AtomicUsize,
}

#[derive(Clone, Debug)]
struct State {
    condition: Condition,
    since: Timestamp,
}

/// How a link is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Up,
    Down {
        reason: String,
    },
    /// One of both does not want the other.
    Refused {
        reason: String,
    },
}

/// A link as it is shown.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) server: Arc<str>,
    pub(crate) domain: Arc<str>,
    pub(crate) address: Arc<str>,
    pub(crate) condition: Condition,
    pub(crate) since: Timestamp,
    /// Parcels that wait until the other server has taken them.
    pub(crate) parcels: usize,
    pub(crate) sent: Meter,
    pub(crate) received: Meter,
}

impl Links {
    pub(crate) fn new(
        name: Arc<str>,
        certificates: &Path,
        topology: Arc<Topology>,
        clock: Arc<Clock>,
        queue: Arc<Queue<drive::Message>>,
    ) -> Result<Self, Unusable> {
        let identity = Identity::read(certificates)?;
        identity.require(&name)?;
        let (topology, _) = watch::channel(topology);
        let (peers, app) = (RwLock::default(), OnceLock::new());
        let (sent, strangers) = (Mutex::default(), Mutex::default());
        let links = Self { name, identity, clock, queue, topology, peers, app, sent, strangers };
        links.acquaint();
        Ok(links)
    }

    /// Who carries out what others pass on.
    pub(crate) fn serve_with(&self, app: &Arc<App>) {
        // Set once, before anybody can ask.
        drop(self.app.set(Arc::downgrade(app)));
    }

    pub(crate) fn app(&self) -> Option<Arc<App>> {
        self.app.get()?.upgrade()
    }

    /// Dials and listens until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, listener: TcpListener) {
        let mut tasks = JoinSet::new();
        tasks.spawn(accept::accept(self.clone(), listener));
        let mut topology = self.topology.subscribe();
        let mut renewal = tokio::time::interval(RENEWAL);
        let mut dialled = BTreeSet::new();
        loop {
            for peer in self.peers() {
                if dialled.insert((peer.id, peer.name.clone())) {
                    tasks.spawn(dial::keep(self.clone(), peer));
                }
            }
            tokio::select! {
                changed = topology.changed() => if changed.is_err() { return },
                // Says at once when a new certificate cannot be used.
                _ = renewal.tick() => drop(self.identity.current()),
            }
        }
    }

    /// The topology as the site has it.
    pub(crate) fn follow(&self, topology: &Arc<Topology>) {
        // Not by the epoch: the file it began with, and the first one published, are both the first.
        let is_known = Arc::ptr_eq(&self.topology.borrow(), topology);
        if !is_known {
            self.topology.send_replace(topology.clone());
            self.acquaint();
            // Those who dial look again when the peers are there.
            self.topology.send_modify(|_| {});
        }
    }

    pub(crate) fn topology(&self) -> Arc<Topology> {
        self.topology.borrow().clone()
    }

    pub(crate) fn topology_changes(&self) -> watch::Receiver<Arc<Topology>> {
        self.topology.subscribe()
    }

    /// The number of this server, by its name.
    pub(crate) fn here(&self) -> Option<ServerId> {
        self.topology.borrow().server_named(&self.name)
    }

    /// A server of the topology, unless it is gone.
    pub(crate) fn in_use(&self, id: ServerId) -> Option<Server> {
        self.topology.borrow().server(id).filter(|server| !server.is_gone).cloned()
    }

    pub(crate) fn peer(&self, id: ServerId) -> Option<Arc<Peer>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    fn peers(&self) -> Vec<Arc<Peer>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Knows every other server of the topology.
    fn acquaint(&self) {
        let topology = self.topology();
        let now = self.clock.now();
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        for (number, server) in (0..).zip(&topology.servers) {
            let is_other = server.name != self.name && !server.is_gone;
            let id = ServerId(number);
            // The file that the server began with may have told other numbers.
            let is_known = peers.get(&id).is_some_and(|peer| peer.name == server.name);
            if server.name == self.name {
                peers.remove(&id);
            } else if is_other && !is_known {
                peers.insert(id, Arc::new(Peer::new(id, server.name.clone(), now)));
            }
        }
    }

    /// Says something to another server, if it can be reached; else it is dropped.
    pub(crate) fn post(&self, to: ServerId, message: &Message) {
        let Some(peer) = self.peer(to) else { return };
        let frame = frame::message(&message.to_bytes());
        if peer.outlet.put(&frame, &message.shares(frame.len() as u64)).is_err() {
            peer.counters.sent.drop_one();
        }
    }

    /// Whether the other servers can be reached.
    pub(crate) fn reachable(&self) -> Vec<(ServerId, bool)> {
        self.peers().iter().map(|peer| (peer.id, peer.is_up())).collect()
    }

    /// How many parcels wait for each server; none for those not named.
    pub(crate) fn show_parcels(&self, waiting: &BTreeMap<ServerId, usize>) {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        for peer in peers.values() {
            let parcels = waiting.get(&peer.id).copied().unwrap_or(0);
            peer.parcels.store(parcels, Ordering::Relaxed);
        }
    }

    pub(crate) fn show_sent(&self, sent: Sent) {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = sent;
    }

    /// What the site has sent, as it counts.
    pub(crate) fn sent(&self) -> Sent {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The drive thread hears it.
    pub(crate) fn tell(&self, message: drive::Message) {
        self.queue.push_beyond_limit(message);
    }

    pub(crate) fn is_up(&self, peer: &Peer) {
        if peer.enter(Condition::Up, self.clock.now()) {
            tracing::info!(peer = %peer.name, "the link is up");
            self.tell(drive::Message::Link { to: peer.id, is_up: true });
        }
    }

    pub(crate) fn is_down(&self, peer: &Peer, why: &Ended) {
        let was_up = peer.is_up();
        let reason = why.to_string();
        let is_new = if why.is_refusal() {
            let is_new = peer.enter(Condition::Refused { reason }, self.clock.now());
            if is_new {
                tracing::warn!(peer = %peer.name, reason = %why, "the link is refused");
            }
            is_new
        } else {
            let is_new = peer.enter(Condition::Down { reason }, self.clock.now());
            if is_new {
                tracing::warn!(peer = %peer.name, reason = %why, "the link is down");
            }
            is_new
        };
        if is_new && was_up {
            self.tell(drive::Message::Link { to: peer.id, is_up: false });
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

    pub(crate) fn rows(&self) -> Vec<Row> {
        let topology = self.topology();
        let row = |peer: Arc<Peer>| {
            let server = topology.server(peer.id).filter(|server| !server.is_gone)?;
            let domain = topology.domain(server.domain)?;
            let State { condition, since } = peer.state();
            Some(Row {
                server: peer.name.clone(),
                domain: domain.name.clone(),
                address: server.address.clone(),
                condition,
                since,
                parcels: peer.parcels.load(Ordering::Relaxed),
                sent: peer.counters.sent.read(),
                received: peer.counters.received.read(),
            })
        };
        self.peers().into_iter().filter_map(row).collect()
    }
}

impl Peer {
    fn new(id: ServerId, name: Arc<str>, now: Timestamp) -> Self {
        let condition = Condition::Down { reason: "not dialled yet".to_owned() };
        Self {
            id,
            name,
            counters: Arc::default(),
            outlet: Outlet::default(),
            asked: Mutex::default(),
            files: Mutex::default(),
            next_request: AtomicU64::new(1),
            room: Arc::new(Semaphore::new(HEARD_BYTES_MAX as usize)),
            sign_of_life: Notify::new(),
            state: Mutex::new(State { condition, since: now }),
            parcels: AtomicUsize::new(0),
        }
    }

    /// Waits until there is room for a message of so many bytes; `None` never comes.
    pub(crate) async fn room(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let most = u64::from(HEARD_BYTES_MAX);
        let bytes = u32::try_from(bytes.min(most)).unwrap_or(HEARD_BYTES_MAX);
        self.room.clone().acquire_many_owned(bytes.max(HEARD_BYTES_MIN)).await.ok()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state().condition == Condition::Up
    }

    fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether that is new. What is down for another reason than before is down all the same.
    fn enter(&self, condition: Condition, now: Timestamp) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = state.condition != condition;
        let (was_up, is_up) = (state.condition == Condition::Up, condition == Condition::Up);
        if was_up != is_up {
            state.since = now;
        }
        state.condition = condition;
        is_new
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::peer::Authority;

    pub(crate) fn server(name: &str, is_gone: bool) -> Server {
        let address = "127.0.0.1:1".into();
        Server { name: name.into(), domain: Default::default(), address, api: "".into(), is_gone }
    }

    /// The links of the first of these servers, none of which is there.
    pub(crate) fn links(servers: Vec<Server>) -> (tempfile::TempDir, Authority, Links) {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new().unwrap();
        let name = servers[0].name.clone();
        let own = authority.certify(&name, Duration::from_secs(60)).unwrap();
        for (file, text) in [
            ("ca.pem", authority.certificate()),
            ("cert.pem", &own.certificate),
            ("key.pem", &own.key),
        ] {
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        let topology = Arc::new(Topology { servers, ..Topology::default() });
        let (clock, queue) = (Arc::new(Clock::default()), Arc::new(Queue::new(1)));
        let links = Links::new(name, folder.path(), topology, clock, queue).unwrap();
        (folder, authority, links)
    }

    fn peer() -> Peer {
        Peer::new(ServerId(1), "lab".into(), Timestamp(0))
    }

    #[test]
    fn a_link_is_down_since_it_went_down_whatever_is_wrong_with_it_now() {
        let peer = peer();
        let down = |reason: &str| Condition::Down { reason: reason.to_owned() };
        assert!(peer.enter(Condition::Up, Timestamp(1)));
        assert!(peer.enter(down("silent"), Timestamp(2)));
        assert!(!peer.enter(down("silent"), Timestamp(3)));
        assert!(peer.enter(down("refused"), Timestamp(4)));
        assert!(peer.enter(Condition::Refused { reason: "stranger".to_owned() }, Timestamp(5)));
        assert_eq!(peer.state().since, Timestamp(2));
        assert!(peer.enter(Condition::Up, Timestamp(6)));
        assert_eq!(peer.state().since, Timestamp(6));
    }

    #[test]
    fn the_topology_of_the_catalog_counts_and_not_the_file_though_both_are_the_first() {
        let named = |names: [&str; 3]| names.map(|name| server(name, false)).to_vec();
        let (_folder, _, links) = links(named(["north", "lab", "ward"]));
        let mut servers = named(["ward", "north", "lab"]);
        servers[2].address = "127.0.0.1:2".into();
        let topology = Topology { servers, ..(*links.topology()).clone() };
        links.follow(&Arc::new(topology));
        let names = |links: &Links| -> Vec<(u16, Arc<str>)> {
            links.peers().iter().map(|peer| (peer.id.0, peer.name.clone())).collect()
        };
        assert_eq!(names(&links), [(0, "ward".into()), (2, "lab".into())]);
        assert_eq!(links.here(), Some(ServerId(1)));
        assert_eq!(&*links.in_use(ServerId(2)).unwrap().address, "127.0.0.1:2");
    }

    #[test]
    fn a_stranger_who_tries_again_and_again_is_told_of_once_a_minute() {
        let (_folder, _, links) = links(vec![server("north", false)]);
        let news = |last: u32, seconds: i64| {
            links.is_news(Ipv4Addr::from(last).into(), Timestamp(seconds * 1_000))
        };
        assert_eq!([news(1, 0), news(1, 5), news(2, 5), news(1, 59)], [true, false, true, false]);
        assert!(news(1, 60));
        let told = (10..1_000).filter(|last| news(*last, 70)).count();
        assert!(told < STRANGERS_MAX, "{told}");
    }

    #[tokio::test]
    async fn large_messages_leave_less_room_than_small_ones() {
        let peer = peer();
        let mut heard = Vec::new();
        for _ in 0..HEARD_BYTES_MAX / HEARD_BYTES_MIN {
            heard.push(peer.room(20).await.unwrap());
        }
        assert_eq!(peer.room.available_permits(), 0);
        heard.clear();
        // One that is larger than all the room there is gets all of it.
        let alone = peer.room(u64::MAX).await.unwrap();
        assert_eq!(peer.room.available_permits(), 0);
        drop(alone);
        let _half = peer.room(u64::from(HEARD_BYTES_MAX / 2)).await.unwrap();
        assert_eq!(peer.room.available_permits(), HEARD_BYTES_MAX as usize / 2);
    }
}
