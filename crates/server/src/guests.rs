//! The guests of a process: the logical servers that the topology puts into it besides its own.
//!
//! Invariant: a guest is held as long as the topology that the process's own server has says so. One
//! whose store cannot be opened is tried again; the others go on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_placement::Topology;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::backend;
use crate::core::{Core, Process};
use crate::peer::Links;
use crate::status::Phase;

/// How long to wait before a store that could not be opened is tried again.
const PAUSE: Duration = Duration::from_secs(5);

/// Whoever keeps the guests of a process.
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
        let keeper = Keeper { process, own: own.clone(), held: BTreeMap::new() };
        let task = tokio::spawn(keeper.run(settle, stopping));
        Self { stop, settled, own, task }
    }

    /// Waits until those that were to be held at first are, and take requests.
    pub(crate) async fn until_ready(&self) {
        // An error means that the keeper is gone.
        drop(self.settled.clone().wait_for(|settled| *settled).await);
        for links in self.own.host.all() {
            if let Some(app) = links.app() {
                app.status.until(Phase::Ready).await;
            }
        }
    }

    /// Stops all of them.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        drop(self.task.await);
    }
}

struct Keeper {
    process: Arc<Process>,
    own: Arc<Links>,
    held: BTreeMap<Arc<str>, Core>,
}

impl Keeper {
    async fn run(mut self, settle: watch::Sender<bool>, mut stopping: watch::Receiver<bool>) {
        let mut topology = self.own.topology_changes();
        loop {
            let wanted = guests(&topology.borrow_and_update().clone(), &self.own.name);
            let is_done = self.follow(&wanted).await;
            settle.send_replace(true);
            tokio::select! {
                changed = topology.changed() => if changed.is_err() { break },
                () = tokio::time::sleep(PAUSE), if !is_done => {}
                _ = stopping.wait_for(|stopping| *stopping) => break,
            }
        }
        for core in std::mem::take(&mut self.held).into_values() {
            core.stop().await;
        }
    }

    /// Holds these and no others; whether all are held now.
    async fn follow(&mut self, wanted: &BTreeSet<Arc<str>>) -> bool {
        let gone: Vec<Arc<str>> =
            self.held.keys().filter(|name| !wanted.contains(*name)).cloned().collect();
        for name in gone {
            if let Some(core) = self.held.remove(&name) {
                tracing::info!(server = %name, "it is no guest of this process any more");
                core.stop().await;
            }
        }
        let mut is_done = true;
        for name in wanted {
            if !self.held.contains_key(name) {
                is_done &= self.start(name).await;
            }
        }
        is_done
    }

    async fn start(&mut self, name: &Arc<str>) -> bool {
        let opener = backend::opener(&self.process.config.store.of_guest(name), Some(name));
        match Core::start(&self.process, Some(name.clone()), opener).await {
            Ok(core) => {
                tracing::info!(server = %name, "it is held by this process too");
                self.held.insert(name.clone(), core);
                true
            }
            Err(error) => {
                tracing::error!(server = %name, reason = %error, "a guest cannot be held; it is tried again");
                false
            }
        }
    }
}

/// The servers that a topology puts into the process of this one.
fn guests(topology: &Topology, own: &str) -> BTreeSet<Arc<str>> {
    let own = topology.server_named(own);
    let here = topology.in_use().filter(|(_, server)| server.host.is_some() && server.host == own);
    here.map(|(_, server)| server.name.clone()).collect()
}
