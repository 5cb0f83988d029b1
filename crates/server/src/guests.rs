//! The guests of a process: the logical servers that it holds besides its own.
//!
//! Invariant: servers that the topology places here are held as long as it says so; with a shared
//! store also those whose lease was won here, until their own process wants them back or another
//! one has them. A server that cannot be held is retried; the others go on.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use legwork_placement::Topology;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::config::StoreChoice;
use crate::core::{Away, Core, Opening, Process};
use crate::gate::stopped;
use crate::incoming::IncomingServers;
use crate::moving::{Origin, Progress, StoreReply, StoreRequest};
use crate::notes::Note;
use crate::peer::{Links, Moving, Twin, Unprepared, Wish};
use crate::published::{api_of, outdated};
use crate::status::{Phase, Status};
use crate::takeover::{self, Turns};

/// The pause before a store that could not be opened is retried.
const PAUSE: Duration = Duration::from_secs(5);
/// The same for a server that another process holds.
const HELD_PAUSE: Duration = Duration::from_millis(500);
/// How often to check the servers that a change moves here.
const LOOK: Duration = Duration::from_millis(100);
/// How often the holder of one of this process's servers is asked to give it back, and how long it
/// has to answer.
const ASKING: Duration = Duration::from_secs(1);

/// The task that manages the guests of a process.
pub(crate) struct Guests {
    stop: watch::Sender<bool>,
    settled: watch::Receiver<bool>,
    own: Arc<Links>,
    task: JoinHandle<()>,
}

impl Guests {
    pub(crate) fn keep(process: Arc<Process>, own: Arc<Links>) -> Self {
        let (stop, stopping) = watch::channel(false);
        let (settle, settled) = watch::channel(false);
        let keeper = Keeper {
            process,
            own: own.clone(),
            held: BTreeMap::new(),
            taken: BTreeMap::new(),
            turns: Turns::default(),
            wanted_back: BTreeMap::new(),
            incoming: IncomingServers::default(),
        };
        let task = tokio::spawn(keeper.run(settle, stopping));
        Self { stop, settled, own, task }
    }

    /// Waits until the initial guests are held and take requests.
    pub(crate) async fn until_ready(&self) {
        // An error means that the task is gone.
        drop(self.settled.clone().wait_for(|settled| *settled).await);
        for links in self.own.host.all() {
            if let Some(app) = links.app() {
                ready_or_gone(&app.status, &links).await;
            }
        }
    }

    /// Stops all of them.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        drop(self.task.await);
    }
}

/// Waits until a guest takes requests, or this process does not hold it any more.
async fn ready_or_gone(status: &Status, links: &Links) {
    tokio::select! {
        () = status.until(Phase::Ready) => {}
        () = links.until_let_go() => {}
    }
}

struct Keeper {
    process: Arc<Process>,
    own: Arc<Links>,
    held: BTreeMap<Arc<str>, Core>,
    /// Servers taken over, since when.
    taken: BTreeMap<Arc<str>, Instant>,
    turns: Turns,
    /// Servers that belong here and that another process has.
    wanted_back: BTreeMap<Arc<str>, JoinHandle<()>>,
    /// Servers that a change moves here.
    incoming: IncomingServers,
}

impl Keeper {
    async fn run(mut self, settle: watch::Sender<bool>, mut stopping: watch::Receiver<bool>) {
        let mut topology = self.own.topology_changes();
        let mut moving = self.own.moving();
        let mut looks = tokio::time::interval(LOOK);
        let mut wishes = self.wishes();
        let mut leases = match &self.process.config.store {
            StoreChoice::Postgres(url) => Some(takeover::watch(url.clone())),
            StoreChoice::Memory | StoreChoice::Directory(_) => None,
        };
        self.reclaim_own();
        let (mut is_apart, mut told_outdated) = (false, None);
        loop {
            // In this order: the topology that ends a change is published before its end is.
            let change = moving.borrow_and_update().clone();
            let now = topology.borrow_and_update().topology.clone();
            self.tell_apart(&now, &mut is_apart);
            if change.is_none() {
                self.tell_outdated(&now, &mut told_outdated);
            }
            self.incoming.follow(&self.process, &self.own, change.as_deref());
            let is_done = self.follow(&now, change.as_deref()).await;
            settle.send_replace(true);
            tokio::select! {
                changed = moving.changed() => if changed.is_err() { break },
                _ = looks.tick(), if change.is_some() => {}
                changed = topology.changed() => if changed.is_err() { break },
                () = tokio::time::sleep(HELD_PAUSE), if !is_done => {}
                Some(wish) = wishes.recv() => match wish {
                    // The requester may be gone.
                    Wish::Release { server, done } => drop(done.send(self.release(server).await)),
                    Wish::Prepare { server, done } => drop(done.send(self.prepare(&server))),
                },
                () = changed(&mut leases) => {
                    if let Some(leases) = &leases {
                        let leases = leases.borrow().clone();
                        let free = takeover::candidates(&now, &self.own.name);
                        self.take_over(&leases, free).await;
                    }
                }
                () = stopped(&mut stopping) => break,
            }
        }
        for task in self.wanted_back.values() {
            task.abort();
        }
        for core in std::mem::take(&mut self.held).into_values() {
            core.stop().await;
        }
    }

    /// Logs once that no process can take over the servers of this one.
    fn tell_apart(&self, topology: &Topology, was_apart: &mut bool) {
        let store = &self.process.config.store;
        let is_apart = takeover::is_apart(topology, &self.own.name, store);
        if is_apart && !*was_apart {
            tracing::warn!(
                "the topology says `store: shared`, and this process keeps its store to itself: no \
                 other can go on with it; start it with --store postgres://…, or say `store: embedded`"
            );
        }
        *was_apart = is_apart;
    }

    /// Logs once that clients are directed to an address where this process does not listen.
    fn tell_outdated(&self, topology: &Topology, told: &mut Option<SocketAddr>) {
        let (config, name) = (&self.process.config, &self.own.name);
        // Before it has joined, it knows no more than the file.
        if self.own.seat().is_none() || self.own.host.held(name).is_none() {
            return;
        }
        let in_file = config.peering.as_ref().and_then(|own| api_of(&own.topology, name));
        let outdated = outdated(config.listen, in_file, api_of(topology, name));
        if let Some(api) = outdated
            && *told != outdated
        {
            tracing::warn!(
                %api, listen = %config.listen,
                "people and programs are sent to an `api` that this process does not listen on; \
                 publish a topology with the new one, unless something in front passes it on"
            );
        }
        *told = outdated;
    }

    fn wishes(&self) -> mpsc::Receiver<Wish> {
        let wishes = &self.process.wishes;
        let wishes = wishes.lock().unwrap_or_else(PoisonError::into_inner).take();
        // There is one manager.
        wishes.unwrap_or_else(|| mpsc::channel(1).1)
    }

    /// Copies the store of a server that is to move here.
    fn prepare(&mut self, server: &Arc<str>) -> Result<Progress, Unprepared> {
        if self.own.host.held(server).is_some() {
            return Ok(Progress { is_close: true, ..Progress::default() });
        }
        self.incoming.prepare(&self.process, &self.own, server)
    }

    /// Holds the servers that the topology places here and those taken over; returns whether all
    /// are held now.
    async fn follow(&mut self, topology: &Topology, moving: Option<&Moving>) -> bool {
        let over: Vec<Arc<str>> = self
            .held
            .iter()
            .filter(|(_, core)| core.is_over())
            .map(|(name, _)| name.clone())
            .collect();
        for name in over {
            self.taken.remove(&name);
            self.stop(&name).await;
        }
        let mut placed = guests(topology, &self.own.name);
        // The server that ends the change must be here for that.
        placed.extend(moving.and_then(|moving| self.registrar_here(topology, moving)));
        self.taken.retain(|name, _| !placed.contains(name));
        let gone: Vec<Arc<str>> = self
            .held
            .keys()
            .filter(|name| !placed.contains(*name) && !self.taken.contains_key(*name))
            .cloned()
            .collect();
        for name in gone {
            tracing::info!(server = %name, "the server is no longer a guest of this process");
            self.stop(&name).await;
        }
        let mut is_done = true;
        for name in
            placed.iter().filter(|name| !self.held.contains_key(*name)).cloned().collect::<Vec<_>>()
        {
            let is_due = !self.turns.is_paused(&name, Instant::now());
            is_done &= is_due && self.start(&name).await;
        }
        is_done
    }

    /// The registrar, if a change moves it here.
    fn registrar_here(&self, topology: &Topology, moving: &Moving) -> Option<Arc<str>> {
        let registrar = topology.registrar().filter(|id| moving.servers.contains(id))?;
        let own = moving.next.server_named(&self.own.name)?;
        let server = moving.next.server(registrar)?;
        let is_here =
            server.host == Some(own) && self.incoming.may_open(&self.process, &server.name);
        is_here.then(|| server.name.clone())
    }

    async fn stop(&mut self, name: &Arc<str>) {
        if let Some(core) = self.held.remove(name) {
            core.stop().await;
        }
    }

    async fn start(&mut self, name: &Arc<str>) -> bool {
        let opening = match Opening::of(&self.process.store(Some(name)), Some(name)) {
            // An incomplete store is on its way, or was here before.
            Ok(opening) if matches!(opening.notes.last(), Note::Coming | Note::Gone) => {
                self.turns.pause(name, Instant::now() + HELD_PAUSE);
                return false;
            }
            Ok(opening) => opening,
            Err(error) => {
                tracing::error!(server = %name, reason = %error, "cannot hold a guest");
                self.turns.pause(name, Instant::now() + PAUSE);
                return false;
            }
        };
        match Core::start(&self.process, Some(name.clone()), opening).await {
            Ok(core) => {
                tracing::info!(server = %name, "this process holds the server now");
                self.held.insert(name.clone(), core);
                self.turns.go_on(name);
                if let Some(asking) = self.wanted_back.remove(name) {
                    asking.abort();
                }
                true
            }
            Err(crate::Error::Store(legwork_store::Error::LeaseHeld { holder, .. })) => {
                tracing::info!(server = %name, holder, "another process holds the server");
                self.turns.pause(name, Instant::now() + HELD_PAUSE);
                if guests(&self.own.topology(), &self.own.name).contains(name) {
                    self.reclaim(name);
                }
                false
            }
            Err(error) => {
                tracing::error!(
                    server = %name, reason = %error, "cannot hold a guest; retrying"
                );
                self.turns.pause(name, Instant::now() + PAUSE);
                false
            }
        }
    }

    /// Takes over free servers, if it is this process's turn.
    async fn take_over(
        &mut self,
        leases: &[legwork_store::postgres::LeaseInfo],
        mut free: BTreeSet<Arc<str>>,
    ) {
        let leases = takeover::leases_of(leases, &free, &self.own.name);
        let is_well = self.own.app().is_some_and(|app| app.status.phase() == Phase::Ready);
        free.retain(|name| !self.held.contains_key(name));
        if !is_well {
            return;
        }
        for name in self.turns.due(&leases, &free, Instant::now()) {
            let begun = Instant::now();
            if self.start(&name).await {
                tracing::warn!(
                    server = %name, ms = begun.elapsed().as_millis(), "taken over: its lease was free"
                );
                self.taken.insert(name, Instant::now());
            }
        }
    }

    /// Gives a taken-over server back.
    async fn release(&mut self, server: Arc<str>) -> Result<(), String> {
        let now = Instant::now();
        let least = self.turns.hold(&server, self.process.config.takeover_hold, now);
        let since = self.taken.get(&server).ok_or_else(|| "it belongs here".to_owned())?;
        if now.saturating_duration_since(*since) < least {
            return Err(format!("it was taken over less than {} s ago", least.as_secs()));
        }
        tracing::info!(%server, "giving the server back to its own process");
        self.taken.remove(&server);
        self.turns.give_back(&server, now);
        self.stop(&server).await;
        Ok(())
    }

    /// Requests a guest of this process from its holder.
    fn reclaim(&mut self, name: &Arc<str>) {
        if self.wanted_back.contains_key(name) {
            return;
        }
        let Some(away) = self.process.links_away(name) else { return };
        let asking = async move {
            let Away { links, .. } = &away;
            ask(links, || true).await;
        };
        self.wanted_back.insert(name.clone(), tokio::spawn(asking));
    }

    /// Requests the process's own server whenever another one holds it.
    fn reclaim_own(&mut self) {
        let own = self.own.clone();
        let asking = async move {
            ask(&own, || own.app().is_some_and(|app| app.status.phase() == Phase::Away)).await;
        };
        self.wanted_back.insert(self.own.name.clone(), tokio::spawn(asking));
    }
}

/// Asks the holder of a server to give it up, as long as it is wanted.
async fn ask(links: &Arc<Links>, is_wanted: impl Fn() -> bool) {
    let mut asks = tokio::time::interval(ASKING);
    loop {
        asks.tick().await;
        if !is_wanted() {
            continue;
        }
        let mut twin = Twin::new(links.clone());
        let answer = tokio::time::timeout(ASKING, twin.ask(StoreRequest::Release)).await;
        if let Ok(Ok(StoreReply::NotNow(reason))) = answer {
            tracing::debug!(server = %links.name, reason, "the server is not given back yet");
        }
    }
}

/// Waits until the leases were read again; without a shared store forever.
async fn changed<T>(watched: &mut Option<watch::Receiver<T>>) {
    let is_new = match watched {
        Some(watched) => watched.changed().await.is_ok(),
        None => false,
    };
    if !is_new {
        std::future::pending::<()>().await;
    }
}

/// The servers that a topology places in the process of this one.
fn guests(topology: &Topology, own: &str) -> BTreeSet<Arc<str>> {
    let own = topology.server_named(own);
    let here =
        topology.numbered().filter(|(_, server)| server.host.is_some() && server.host == own);
    here.map(|(_, server)| server.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{Presence, links_of, server_named};

    #[tokio::test(start_paused = true)]
    async fn a_guest_that_another_process_has_by_now_is_not_waited_for() {
        let (_folder, _, links) = links_of(vec![server_named("north")]);
        let (reading, ready) = (Status::new(), Status::new());
        ready.enter(Phase::Ready);
        ready_or_gone(&ready, &links).await;
        let lost = async { links.host.let_go(&links, Presence::Gone) };
        let waiting = async { tokio::join!(ready_or_gone(&reading, &links), lost) };
        tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap();
    }
}
