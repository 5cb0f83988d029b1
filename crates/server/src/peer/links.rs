//! All links of a logical server: to whom, in which state, and the way there.
//!
//! Invariant: the drive thread puts messages in and never waits. There is one link to every other
//! server of the topology: within the process from queue to queue, else dialled from here, and a second
//! one while two processes speak for it; what others dialled is listened to and answered on, nothing
//! else. The links follow the topology that the site has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_placement::{Server, Topology};
use legwork_site::{Fate, Message, Pending, Sent};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::counters::Meter;
use super::host::Host;
use super::link::Ended;
use super::other::{Condition, Peer, State};
use super::{dial, frame};
use crate::drive;
use crate::http::App;
use crate::queue::Queue;

/// How many places are tried for one server before there is a pause.
const PLACES_MAX: usize = 16;

pub(crate) struct Links {
    /// What this server is called.
    pub(crate) name: Arc<str>,
    /// The process that holds it.
    pub(crate) host: Arc<Host>,
    queue: Arc<Queue<drive::Message>>,
    topology: watch::Sender<Arc<Topology>>,
    peers: RwLock<BTreeMap<ServerId, Arc<Peer>>>,
    app: OnceLock<Weak<App>>,
    /// What the site has sent, as it counts.
    sent: Mutex<Sent>,
    presence: watch::Sender<Presence>,
    /// The change under way that moves servers, as the site knows it.
    moving: watch::Sender<Option<Arc<Moving>>>,
    fates: Mutex<Fates>,
}

/// How changes have ended, as the site knows it.
#[derive(Debug, Default)]
struct Fates {
    /// How many have ended.
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

/// What this process has to do with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It holds it.
    Held,
    /// Another process holds it: what is asked of it here is passed on there.
    Away,
    Gone,
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

/// Where a server may be reached: the process of a server, which shows its certificate.
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
        let (topology, presence) = (watch::Sender::new(topology), Presence::Gone);
        let (peers, app, sent) = (RwLock::default(), OnceLock::new(), Mutex::default());
        let presence = watch::Sender::new(presence);
        let (moving, fates) = (watch::Sender::new(None), Mutex::default());
        let links = Self { name, host, queue, topology, peers, app, sent, presence, moving, fates };
        links.acquaint();
        links
    }

    /// Who carries out what others pass on.
    pub(crate) fn serve_with(&self, app: &Arc<App>) {
        // Set once, before anybody can ask.
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
        let mut topology = self.topology.subscribe();
        let mut dialled = BTreeSet::new();
        loop {
            for peer in self.everybody() {
                let is_meant = match presence {
                    Presence::Held => peer.name != self.name,
                    Presence::Away => peer.name == self.name,
                    Presence::Gone => false,
                };
                if is_meant && dialled.insert((peer.id, peer.name.clone())) {
                    tasks.spawn(dial::keep(self.clone(), peer.clone()));
                    tasks.spawn(dial::keep_second(self.clone(), peer));
                }
            }
            if topology.changed().await.is_err() {
                return;
            }
        }
    }

    /// What the process has to do with this server from now on.
    pub(super) fn enter(&self, presence: Presence) {
        self.presence.send_replace(presence);
    }

    /// Waits until the process does not hold this server.
    pub(crate) async fn until_let_go(&self) {
        // An error means that it is gone altogether.
        drop(self.presence.subscribe().wait_for(|now| *now != Presence::Held).await);
    }

    /// The topology as the site has it.
    pub(crate) fn follow(&self, topology: &Arc<Topology>) {
        // Not by the epoch: the file it began with, and the first one published, are both the first.
        let is_known = Arc::ptr_eq(&self.topology.borrow(), topology);
        if !is_known {
            self.topology.send_replace(topology.clone());
            self.acquaint();
            self.host.look_around();
            // Those who dial look again when the peers are there.
            self.topology.send_modify(|_| {});
        }
    }

    /// The change under way as the site has it.
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

    /// How changes have ended as the site has it: `None` of those that have not.
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
        self.topology.borrow().clone()
    }

    pub(crate) fn topology_changes(&self) -> watch::Receiver<Arc<Topology>> {
        self.topology.subscribe()
    }

    /// The number of this server, by its name.
    pub(crate) fn here(&self) -> Option<ServerId> {
        self.topology.borrow().server_named(&self.name)
    }

    /// A server of the topology.
    pub(crate) fn server(&self, id: ServerId) -> Option<Server> {
        self.topology.borrow().server(id).cloned()
    }

    pub(crate) fn peer(&self, id: ServerId) -> Option<Arc<Peer>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// All other servers.
    fn peers(&self) -> Vec<Arc<Peer>> {
        let mut all = self.everybody();
        all.retain(|peer| peer.name != self.name);
        all
    }

    /// All servers: this one too, as another process may hold it.
    fn everybody(&self) -> Vec<Arc<Peer>> {
        self.peers.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn peer_named(&self, name: &str) -> Option<Arc<Peer>> {
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        peers.values().find(|peer| &*peer.name == name).cloned()
    }

    /// Knows every server of the topology.
    fn acquaint(&self) {
        let topology = self.topology();
        let now = self.host.clock.now();
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        for (number, server) in (0..).zip(&topology.servers) {
            let id = ServerId(number);
            // The file that the server began with may have told other numbers.
            let is_known = peers.get(&id).is_some_and(|peer| peer.name == server.name);
            if !is_known {
                peers.insert(id, Arc::new(Peer::new(id, server.name.clone(), now)));
            }
        }
    }

    /// Looks which of the others are in this process now.
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

    /// Where another server may be, the likeliest place first: where it was heard of last, where
    /// the topology says, and then at any other server of its domain.
    pub(crate) fn places(&self, peer: &Peer) -> Vec<Place> {
        let topology = self.topology();
        let Some(server) = topology.server(peer.id) else {
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
            // Who is not at this process need not be asked for at its own door.
            if place != own && !places.contains(&place) {
                places.push(place);
            }
        }
        places.truncate(PLACES_MAX);
        places
    }

    /// Says something to another server, if it can be reached; else it is dropped.
    pub(crate) fn post(&self, to: ServerId, message: Message) {
        let Some(peer) = self.peer(to) else { return };
        let near = peer.near();
        if let Some((there, back)) = near.as_ref().filter(|_| !peer.second.is_open()) {
            return there.hear_near(&peer, back, message);
        }
        let frame = frame::message(&message.to_bytes());
        let shares = message.shares(frame.len() as u64);
        // It is said to both who may be the server: whoever is not it does nothing.
        let second = peer.second.put(&frame, &shares);
        if let Some((there, back)) = near {
            return there.hear_near(&peer, &back, message);
        }
        if peer.outlet.put(&frame, &shares).and(second.or(Ok(()))).is_err() {
            peer.counters.sent.drop_one();
        }
    }

    /// Hears a server of the same process, which it knows as `back`.
    fn hear_near(&self, to: &Peer, back: &Peer, message: Message) {
        match back.room_now(message.bytes()) {
            Ok(room) => {
                to.counters.sent.hand_over();
                back.counters.received.hand_over();
                self.tell(drive::Message::Heard { from: back.id, message, room });
            }
            Err(_) => to.counters.sent.drop_one(),
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
            peer.count_parcels(waiting.get(&peer.id).copied().unwrap_or(0));
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
        if peer.enter(Condition::Up, self.host.clock.now()) {
            tracing::info!(peer = %peer.name, "the link is up");
            self.tell(drive::Message::Link { to: peer.id, is_up: true });
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
            if is_new {
                tracing::warn!(peer = %peer.name, reason = %why, "the link is down");
            }
            is_new
        };
        if is_new && was_up {
            self.tell(drive::Message::Link { to: peer.id, is_up: false });
        }
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        let topology = self.topology();
        let row = |peer: Arc<Peer>| {
            let server = topology.server(peer.id)?;
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

#[cfg(test)]
pub(super) mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use legwork_model::id::DomainId;

    use super::*;
    use crate::clock::Clock;
    use crate::peer::Authority;

    pub(crate) fn server(name: &str) -> Server {
        let address = "127.0.0.1:1".into();
        Server::new(name.into(), Default::default(), address, "".into())
    }

    /// The links of the first of these servers, none of which is there.
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
        links.follow(&Arc::new(topology));
        let names = |links: &Links| -> Vec<(u16, Arc<str>)> {
            links.peers().iter().map(|peer| (peer.id.0, peer.name.clone())).collect()
        };
        assert_eq!(names(&links), [(0, "ward".into()), (2, "lab".into())]);
        assert_eq!(links.here(), Some(ServerId(1)));
        assert_eq!(&*links.server(ServerId(2)).unwrap().address, "127.0.0.1:2");
    }

    #[test]
    fn servers_of_one_process_hear_each_other_without_a_socket() {
        let servers = ["north", "lab", "ward"].map(server).to_vec();
        let (_folder, _, north) = links(servers);
        let (host, queue) = (north.host.clone(), Arc::new(Queue::new(1)));
        let ward = Arc::new(Links::new("ward".into(), host.clone(), north.topology(), queue));
        assert_eq!(north.reachable(), [(ServerId(1), false), (ServerId(2), false)]);
        host.take_in(&ward);
        assert_eq!(north.reachable(), [(ServerId(1), false), (ServerId(2), true)]);
        assert_eq!(ward.reachable(), [(ServerId(0), true), (ServerId(1), false)]);
        north.post(ServerId(2), Message::CatalogWanted { have: 7, answer: false });
        let mut heard = VecDeque::new();
        ward.queue.take_all(&mut heard, None);
        let said = |message: &drive::Message| {
            let drive::Message::Heard { from, message, .. } = message else { return None };
            let Message::CatalogWanted { have, .. } = message else { return None };
            Some((from.0, *have))
        };
        let heard: Vec<(u16, u64)> = heard.iter().filter_map(said).collect();
        assert_eq!(heard, [(0, 7)]);
        assert_eq!(north.peer(ServerId(2)).unwrap().counters.sent.read().local, 1);
        host.let_go(&ward, Presence::Gone);
        assert_eq!(north.reachable(), [(ServerId(1), false), (ServerId(2), false)]);
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
        north.post(ServerId(1), Message::CatalogWanted { have: 7, answer: false });
        let (mut heard, mut said) = (VecDeque::new(), Default::default());
        ward.queue.take_all(&mut heard, None);
        assert!(heard.iter().any(|heard| matches!(heard, drive::Message::Heard { .. })));
        peer.second.take(&mut said).await;
        assert!(!said.bytes.is_empty());
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
