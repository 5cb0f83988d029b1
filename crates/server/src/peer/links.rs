//! All links of a logical server: their peers, states and routes.
//!
//! Invariant: the drive thread queues messages and never waits. There is one link to every other server
//! of the topology: within the process from queue to queue, else dialled from here, and a second one
//! while two processes speak for the peer; accepted connections are only read and answered. The links
//! follow the topology of the site.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use legwork_model::id::ServerId;
use legwork_placement::{Server, Topology};
use legwork_site::{Fate, Message, Pending, Seat, Sent};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::host::Host;
use super::link::Ended;
use super::other::{Condition, Peer};
use super::{dial, frame};
use crate::drive;
use crate::http::App;
use crate::queue::Queue;

/// How many places are tried for one server before a pause.
const PLACES_MAX: usize = 16;

pub(crate) struct Links {
    /// The name of this server.
    pub(crate) name: Arc<str>,
    /// The process that holds it.
    pub(crate) host: Arc<Host>,
    queue: Arc<Queue<drive::Message>>,
    known: watch::Sender<Known>,
    /// By name: numbers depend on the topology, and the file has others than the catalog.
    peers: RwLock<BTreeMap<Arc<str>, Arc<Peer>>>,
    app: OnceLock<Weak<App>>,
    /// The site's counters of sent messages.
    sent: Mutex<Sent>,
    presence: watch::Sender<Presence>,
    /// The reconfiguration under way that moves servers, from the site.
    moving: watch::Sender<Option<Arc<Moving>>>,
    fates: Mutex<Fates>,
}

/// The topology of the site.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) topology: Arc<Topology>,
    /// The number of this server in it.
    here: Option<ServerId>,
    /// Whether it is that of the catalog. Before, it is the file's, whose numbers do not count.
    has_joined: bool,
}

/// The outcomes of changes, from the site.
#[derive(Debug, Default)]
struct Fates {
    /// The number of ended changes.
    known: u32,
    undone: BTreeSet<u32>,
}

/// A change that moves servers to other hosts.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) change: u32,
    pub(crate) servers: BTreeSet<ServerId>,
    /// The topology that it leads to.
    pub(crate) next: Arc<Topology>,
}

/// The relation of this process to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// This process holds it.
    Held,
    /// Another process holds it: requests are passed on there.
    Away,
    Gone,
}

/// A place where a server may be reached: the process of a server, which shows its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) host: Arc<str>,
    pub(crate) address: Arc<str>,
}

impl Links {
    pub(crate) fn new(
        name: Arc<str>,
        host: Arc<Host>,
        topology: Arc<Topology>,
        queue: Arc<Queue<drive::Message>>,
    ) -> Self {
        let here = topology.server_named(&name);
        let known = watch::Sender::new(Known { topology, here, has_joined: false });
        let (peers, app, sent) = (RwLock::default(), OnceLock::new(), Mutex::default());
        let presence = watch::Sender::new(Presence::Gone);
        let (moving, fates) = (watch::Sender::new(None), Mutex::default());
        let links = Self { name, host, queue, known, peers, app, sent, presence, moving, fates };
        links.acquaint();
        links
    }

    /// Sets the application that carries out passed-on requests.
    pub(crate) fn serve_with(&self, app: &Arc<App>) {
        // Set once, before any request.
        drop(self.app.set(Arc::downgrade(app)));
    }

    pub(crate) fn app(&self) -> Option<Arc<App>> {
        self.app.get()?.upgrade()
    }

    /// Dials until it is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut presence = self.presence.subscribe();
        loop {
            let now = *presence.borrow_and_update();
            tokio::select! {
                () = self.dial_all(now) => return,
                changed = presence.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Dials all others while the process holds this server; while another one does, only that.
    async fn dial_all(self: &Arc<Self>, presence: Presence) {
        let mut tasks = JoinSet::new();
        let mut topology = self.known.subscribe();
        let mut dialled = BTreeSet::new();
        loop {
            for peer in self.everybody() {
                let is_meant = match presence {
                    Presence::Held => peer.name != self.name,
                    Presence::Away => peer.name == self.name,
                    Presence::Gone => false,
                };
                if is_meant && dialled.insert(peer.name.clone()) {
                    tasks.spawn(dial::keep(self.clone(), peer.clone()));
                    tasks.spawn(dial::keep_second(self.clone(), peer));
                }
            }
            if topology.changed().await.is_err() {
                return;
            }
        }
    }

    /// Sets the relation of this process to the server.
    pub(super) fn enter(&self, presence: Presence) {
        self.presence.send_replace(presence);
    }

    /// Waits until the process does not hold this server.
    pub(crate) async fn until_let_go(&self) {
        // An error means that the server is gone.
        drop(self.presence.subscribe().wait_for(|now| *now != Presence::Held).await);
    }

    /// Sets the topology of the site: that of the catalog once it has joined, before that the one of the
    /// file.
    pub(crate) fn follow(&self, topology: &Arc<Topology>, has_joined: bool) {
        // Not by the epoch: the initial file and the first published topology both have the first epoch.
        let is_known = {
            let known = self.known.borrow();
            Arc::ptr_eq(&known.topology, topology) && known.has_joined == has_joined
        };
        if is_known {
            return;
        }
        let (topology, here) = (topology.clone(), topology.server_named(&self.name));
        let before = self.known.send_replace(Known { topology, here, has_joined });
        self.acquaint();
        if has_joined {
            self.report_new_links(&before);
        }
        self.host.look_around();
        // The dialling tasks look again when the peers exist.
        self.known.send_modify(|_| {});
    }

    /// The site knows links by server number: reports links whose server has a number only now.
    fn report_new_links(&self, before: &Known) {
        let topology = self.topology();
        for (id, server) in topology.numbered().filter(|(_, server)| server.name != self.name) {
            let named = before.topology.server(id).is_some_and(|known| known.name == server.name);
            if !(before.has_joined && named)
                && let Some(peer) = self.peer_named(&server.name)
            {
                self.tell(drive::Message::ReportLink { to: peer.name.clone() });
            }
        }
    }

    /// Sets the change under way.
    pub(crate) fn follow_change(&self, pending: Option<&Pending>) {
        let pending = pending.filter(|pending| !pending.change.servers.is_empty());
        let known = self.moving.borrow().as_ref().map(|moving| moving.change);
        if known != pending.map(|pending| pending.number) {
            self.moving.send_replace(pending.map(|pending| {
                Arc::new(Moving {
                    change: pending.number,
                    servers: pending.change.servers.clone(),
                    next: pending.next.clone(),
                })
            }));
        }
    }

    /// Records the outcomes of changes; `None` for those that have not ended.
    pub(crate) fn follow_fates(&self, fate: impl Fn(u32) -> Option<Fate>) {
        let mut fates = self.fates.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(fate) = fate(fates.known + 1) {
            fates.known += 1;
            let change = fates.known;
            if fate == Fate::Undone {
                fates.undone.insert(change);
            }
        }
    }

    /// Whether a change is known to have been undone.
    pub(crate) fn is_undone(&self, change: u32) -> bool {
        self.fates.lock().unwrap_or_else(PoisonError::into_inner).undone.contains(&change)
    }

    pub(crate) fn moving(&self) -> watch::Receiver<Option<Arc<Moving>>> {
        self.moving.subscribe()
    }

    pub(crate) fn topology(&self) -> Arc<Topology> {
        self.known.borrow().topology.clone()
    }

    pub(crate) fn topology_changes(&self) -> watch::Receiver<Known> {
        self.known.subscribe()
    }

    /// The number of this server in that topology.
    pub(crate) fn here(&self) -> Option<ServerId> {
        self.known.borrow().here
    }

    /// The number in the catalog; `None` before it is known here.
    pub(crate) fn seat(&self) -> Option<Seat> {
        let known = self.known.borrow();
        let here = known.here.filter(|_| known.has_joined)?;
        Some(Seat { here, topology: known.topology.clone() })
    }

    /// Whether the topology has a server of this name.
    pub(super) fn has_server(&self, name: &str) -> bool {
        self.topology().server_named(name).is_some()
    }

    pub(crate) fn peer(&self, id: ServerId) -> Option<Arc<Peer>> {
        let name = self.known.borrow().topology.server(id)?.name.clone();
        self.peer_named(&name)
    }

    /// Another process that holds this very server, or is to hold it.
    pub(crate) fn twin(&self) -> Option<Arc<Peer>> {
        self.peer_named(&self.name)
    }

    /// All other servers.
    pub(super) fn peers(&self) -> Vec<Arc<Peer>> {
        let mut all = self.everybody();
        all.retain(|peer| peer.name != self.name);
        all
    }

    /// All servers of the topology: this one too, as another process may hold it.
    fn everybody(&self) -> Vec<Arc<Peer>> {
        let topology = self.topology();
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        let named = topology.servers.iter().filter_map(|server| peers.get(&server.name));
        named.cloned().collect()
    }

    pub(super) fn peer_named(&self, name: &str) -> Option<Arc<Peer>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Creates the missing peers of the topology.
    fn acquaint(&self) {
        let topology = self.topology();
        let now = self.host.clock.now();
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        for server in &topology.servers {
            let name = &server.name;
            peers.entry(name.clone()).or_insert_with(|| Arc::new(Peer::new(name.clone(), now)));
        }
    }

    /// Updates which peers are in this process.
    pub(crate) fn look_around(&self) {
        let is_here = *self.presence.borrow() == Presence::Held;
        for peer in self.peers() {
            let there = self.host.held(&peer.name).filter(|_| is_here);
            let near =
                there.as_ref().and_then(|there| Some((there, there.peer_named(&self.name)?)));
            let is_near = near.is_some();
            if peer.set_near(near) {
                if is_near {
                    self.is_up(&peer);
                } else {
                    self.is_down(&peer, &Ended::Left);
                }
            }
        }
    }

    /// The places where another server may be, likeliest first: its last known place, that of the
    /// topology, and then any other server of its domain.
    pub(crate) fn places(&self, peer: &Peer) -> Vec<Place> {
        let topology = self.topology();
        let named = topology.server_named(&peer.name);
        let Some(server) = named.and_then(|id| topology.server(id)) else {
            return Vec::new();
        };
        let colleagues = || topology.servers_of(server.domain).map(|(_, other)| other);
        let place = |server: &Server| {
            let host = server.host.and_then(|host| topology.server(host)).unwrap_or(server);
            Place { host: host.name.clone(), address: host.address.clone() }
        };
        let last = peer.seen_at().into_iter().flatten();
        let others = colleagues().map(place);
        let (own, mut places) = (self.host.place(&topology), Vec::new());
        for place in last.chain([place(server)]).chain(others) {
            // A server that is not in this process need not be dialled at this process's address.
            if place != own && !places.contains(&place) {
                places.push(place);
            }
        }
        places.truncate(PLACES_MAX);
        places
    }

    /// Sends a message to another server if its link is up; otherwise drops it.
    pub(crate) fn post(&self, to: &str, message: Message) {
        let Some(peer) = self.peer_named(to) else { return };
        let near = peer.near();
        if let Some((there, back)) = near.as_ref().filter(|_| !peer.second.is_open()) {
            return there.on_local_message(&peer, back, message);
        }
        let frame = frame::message(&message.to_bytes());
        let shares = message.shares(frame.len() as u64);
        // Both processes that may be the server get it: the wrong one ignores it.
        let second = peer.second.put(&frame, &shares);
        if let Some((there, back)) = near {
            return there.on_local_message(&peer, &back, message);
        }
        if peer.outlet.put(&frame, &shares).and(second.or(Ok(()))).is_err() {
            peer.counters.sent.drop_one();
        }
    }

    /// Receives a message from a server of the same process, which it knows as `back`.
    fn on_local_message(&self, to: &Peer, back: &Peer, message: Message) {
        match back.room_now(message.bytes()) {
            Ok(room) => {
                to.counters.sent.hand_over();
                back.counters.received.hand_over();
                self.tell(drive::Message::FromPeer { from: back.name.clone(), message, room });
            }
            Err(_) => to.counters.sent.drop_one(),
        }
    }

    /// Whether the links to the other servers are up.
    pub(crate) fn reachable(&self) -> Vec<(Arc<str>, bool)> {
        self.peers().iter().map(|peer| (peer.name.clone(), peer.is_up())).collect()
    }

    /// Whether the link to a server is up, if there is a server of this name.
    pub(crate) fn is_peer_up(&self, name: &str) -> Option<bool> {
        self.peer_named(name).map(|peer| peer.is_up())
    }

    /// The number of unacknowledged transfers by server; none for those not listed.
    pub(crate) fn show_parcels(&self, waiting: &BTreeMap<ServerId, usize>) {
        let topology = self.topology();
        let named =
            |(id, parcels): (&ServerId, &usize)| Some((&topology.server(*id)?.name, *parcels));
        let waiting: BTreeMap<&Arc<str>, usize> = waiting.iter().filter_map(named).collect();
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        for peer in peers.values() {
            peer.count_parcels(waiting.get(&peer.name).copied().unwrap_or(0));
        }
    }

    pub(crate) fn show_sent(&self, sent: Sent) {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner) = sent;
    }

    /// The site's counters of sent messages.
    pub(crate) fn sent(&self) -> Sent {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message to the drive thread.
    pub(crate) fn tell(&self, message: drive::Message) {
        self.queue.push_beyond_limit(message);
    }

    pub(crate) fn is_up(&self, peer: &Peer) {
        if peer.enter(Condition::Up, self.host.clock.now()) {
            tracing::info!(peer = %peer.name, "the link is up");
            self.tell(drive::Message::Link { to: peer.name.clone(), is_up: true });
        }
    }

    pub(crate) fn is_down(&self, peer: &Peer, why: &Ended) {
        let was_up = peer.is_up();
        let reason = why.to_string();
        let is_new = if why.is_refusal() {
            let is_new = peer.enter(Condition::Refused { reason }, self.host.clock.now());
            if is_new {
                tracing::warn!(peer = %peer.name, reason = %why, "the link is refused");
            }
            is_new
        } else {
            let is_new = peer.enter(Condition::Down { reason }, self.host.clock.now());
            if is_new && why.is_wanted() {
                tracing::info!(peer = %peer.name, reason = %why, "the link is down");
            } else if is_new {
                tracing::warn!(peer = %peer.name, reason = %why, "the link is down");
            }
            is_new
        };
        if is_new && was_up {
            self.tell(drive::Message::Link { to: peer.name.clone(), is_up: false });
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use legwork_model::id::DomainId;

    use super::*;
    use crate::clock::Clock;
    use crate::peer::Authority;
    use legwork_site::message;

    pub(crate) fn server(name: &str) -> Server {
        let address = "127.0.0.1:1".into();
        Server::new(name.into(), Default::default(), address, "".into())
    }

    /// The links of the first of these servers, all of them down.
    pub(crate) fn links(servers: Vec<Server>) -> (tempfile::TempDir, Authority, Arc<Links>) {
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
        let clock = Arc::new(Clock::default());
        let host = Arc::new(Host::new(name.clone(), None, folder.path(), clock).unwrap().0);
        let links = Arc::new(Links::new(name, host.clone(), topology, Arc::new(Queue::new(1))));
        host.take_in(&links);
        (folder, authority, links)
    }

    #[test]
    fn the_topology_of_the_catalog_counts_and_not_the_file_though_both_are_the_first() {
        let named = |names: [&str; 3]| names.map(server).to_vec();
        let (_folder, _, links) = links(named(["north", "lab", "ward"]));
        let mut servers = named(["ward", "north", "lab"]);
        servers[2].address = "127.0.0.1:2".into();
        let topology = Topology { servers, ..(*links.topology()).clone() };
        assert!(links.seat().is_none(), "the numbers of the file count for nothing");
        links.follow(&Arc::new(topology), true);
        assert_eq!(links.reachable(), [("ward".into(), false), ("lab".into(), false)]);
        assert_eq!(links.seat().unwrap().here, ServerId(1));
        let lab = links.peer(ServerId(2)).unwrap();
        assert_eq!(&*links.places(&lab)[0].address, "127.0.0.1:2");
    }

    #[test]
    fn servers_of_one_process_hear_each_other_without_a_socket() {
        let servers = ["north", "lab", "ward"].map(server).to_vec();
        let (_folder, _, north) = links(servers);
        let (host, queue) = (north.host.clone(), Arc::new(Queue::new(1)));
        let ward = Arc::new(Links::new("ward".into(), host.clone(), north.topology(), queue));
        assert_eq!(north.reachable(), [("lab".into(), false), ("ward".into(), false)]);
        host.take_in(&ward);
        assert_eq!(north.reachable(), [("lab".into(), false), ("ward".into(), true)]);
        assert_eq!(ward.reachable(), [("north".into(), true), ("lab".into(), false)]);
        north.post("ward", Message::Catalog(message::Catalog::Wanted { have: 7, answer: false }));
        let mut heard = VecDeque::new();
        ward.queue.take_all(&mut heard, None);
        let said = |message: &drive::Message| {
            let drive::Message::FromPeer { from, message, .. } = message else { return None };
            let Message::Catalog(message::Catalog::Wanted { have, .. }) = message else {
                return None;
            };
            Some((from.to_string(), *have))
        };
        let heard: Vec<(String, u64)> = heard.iter().filter_map(said).collect();
        assert_eq!(heard, [("north".to_owned(), 7)]);
        assert_eq!(north.peer(ServerId(2)).unwrap().counters.sent.read().local, 1);
        host.let_go(&ward, Presence::Gone);
        assert_eq!(north.reachable(), [("lab".into(), false), ("ward".into(), false)]);
    }

    #[tokio::test]
    async fn a_guest_that_another_process_speaks_for_is_spoken_to_at_both() {
        let (_folder, _, north) = links(["north", "ward"].map(server).to_vec());
        let (host, queue) = (north.host.clone(), Arc::new(Queue::new(1)));
        let ward = Arc::new(Links::new("ward".into(), host.clone(), north.topology(), queue));
        let peer = north.peer(ServerId(1)).unwrap();
        let place = Place { host: "clinic".into(), address: "127.0.0.1:3".into() };
        peer.see_at(place);
        host.take_in(&ward);
        peer.second.open();
        north.post("ward", Message::Catalog(message::Catalog::Wanted { have: 7, answer: false }));
        let (mut heard, mut said) = (VecDeque::new(), Default::default());
        ward.queue.take_all(&mut heard, None);
        assert!(heard.iter().any(|heard| matches!(heard, drive::Message::FromPeer { .. })));
        peer.second.take(&mut said).await;
        assert!(!said.bytes.is_empty());
    }

    #[test]
    fn a_peer_stays_the_same_under_another_number_and_the_site_hears_of_its_link_again() {
        let (_folder, _, north) = links(["north", "north-2", "lab", "ward"].map(server).to_vec());
        let lab = north.peer(ServerId(2)).unwrap();
        assert_eq!(&*lab.name, "lab");
        let mut topology = Topology::clone(&north.topology());
        topology.servers = ["north", "lab", "ward", "north-2"].map(server).to_vec();
        north.follow(&Arc::new(topology), true);
        // Requests in progress with it go on, under its number in the catalog.
        assert!(Arc::ptr_eq(&lab, &north.peer(ServerId(1)).unwrap()));
        assert_eq!(&*north.peer(ServerId(2)).unwrap().name, "ward");
        let told = || -> Vec<String> {
            let mut told = VecDeque::new();
            north.queue.take_all(&mut told, Some(Duration::ZERO));
            let link = |message| {
                let drive::Message::ReportLink { to } = message else {
                    return "another".to_owned();
                };
                to.to_string()
            };
            told.into_iter().map(link).collect()
        };
        assert_eq!(told(), ["lab", "ward", "north-2"]);
        let mut topology = Topology::clone(&north.topology());
        topology.servers.push(server("clinic"));
        north.follow(&Arc::new(topology), true);
        assert_eq!(told(), ["clinic"], "the others are what they were");
    }

    #[test]
    fn a_server_is_looked_for_where_it_was_last_then_where_it_should_be_then_nearby() {
        let mut servers = ["north", "lab", "ward", "clinic"].map(server);
        servers[0].domain = DomainId(1);
        for (place, server) in servers.iter_mut().enumerate() {
            server.address = format!("127.0.0.1:{place}").into();
        }
        let (_folder, _, north) = links(servers.to_vec());
        let ward = north.peer(ServerId(2)).unwrap();
        let names = || -> Vec<String> {
            north.places(&ward).iter().map(|place| place.host.to_string()).collect()
        };
        assert_eq!(names(), ["ward", "lab", "clinic"]);
        ward.see_at(Place { host: "clinic".into(), address: "127.0.0.1:3".into() });
        assert_eq!(names(), ["clinic", "ward", "lab"]);
    }
}
