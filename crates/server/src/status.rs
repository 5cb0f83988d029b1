//! The status of the server, for `/ready` and for requests that must not wait.
//!
//! Invariant: the phase is `Ready` only while the store takes commits.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};

use legwork_model::id::ServerId;
use legwork_site::BrokenAt;
use rustc_hash::FxHashSet;
use tokio::sync::{Notify, watch};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Recovering,
    Ready,
    /// The store failed and is being reopened.
    Failing,
    Stopping,
    /// Another process holds the server: requests are passed on there.
    Away,
}

#[derive(Debug)]
pub(crate) struct Status {
    phase: AtomicU8,
    reason: Mutex<String>,
    recovered: AtomicU64,
    /// The hashes of all tokens.
    tokens: RwLock<FxHashSet<[u8; 32]>>,
    /// Without any, only local callers are admitted.
    has_tokens: AtomicBool,
    changed: Notify,
    /// The server was told to stop.
    stop: AtomicBool,
    /// Its number in the cluster, once known.
    server: OnceLock<ServerId>,
    /// The number of local records of the catalog.
    catalog: watch::Sender<u64>,
    /// The change that moves the server to another host, and has frozen it.
    frozen: watch::Sender<Option<u32>>,
    /// The load: open instances, and records written since the start.
    instances: AtomicUsize,
    records: AtomicU64,
    /// The steps at which promises were broken, with counts.
    broken: Mutex<Vec<(BrokenAt, u64)>>,
}

impl Status {
    pub(crate) fn new() -> Self {
        Self {
            phase: AtomicU8::new(Phase::Recovering as u8),
            reason: Mutex::new(String::new()),
            recovered: AtomicU64::new(0),
            tokens: RwLock::default(),
            has_tokens: AtomicBool::new(false),
            changed: Notify::new(),
            stop: AtomicBool::new(false),
            server: OnceLock::new(),
            catalog: watch::Sender::new(0),
            frozen: watch::Sender::new(None),
            instances: AtomicUsize::new(0),
            records: AtomicU64::new(0),
            broken: Mutex::default(),
        }
    }

    /// Its number in the cluster; 0 while it is alone, or has no catalog yet.
    pub(crate) fn server(&self) -> ServerId {
        self.joined_as().unwrap_or_default()
    }

    /// Its number in the cluster, once it is in the catalog.
    pub(crate) fn joined_as(&self) -> Option<ServerId> {
        self.server.get().copied()
    }

    /// It has joined; its number is permanent.
    pub(crate) fn join_as(&self, server: ServerId) {
        self.server.get_or_init(|| server);
    }

    /// The number of local records of the catalog.
    pub(crate) fn catalog(&self) -> u64 {
        *self.catalog.borrow()
    }

    pub(crate) fn set_catalog(&self, records: u64) {
        self.catalog.send_replace(records);
    }

    /// Open instances, and records written since the start.
    pub(crate) fn load(&self) -> (usize, u64) {
        (self.instances.load(Ordering::Relaxed), self.records.load(Ordering::Relaxed))
    }

    pub(crate) fn set_instances(&self, open: usize) {
        self.instances.store(open, Ordering::Relaxed);
    }

    /// The steps at which promises were broken, with counts.
    pub(crate) fn broken(&self) -> Vec<(BrokenAt, u64)> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_broken<'a>(&self, broken: impl Iterator<Item = (&'a BrokenAt, u64)>) {
        let broken = broken.map(|(place, count)| (place.clone(), count)).collect();
        *self.broken.lock().unwrap_or_else(PoisonError::into_inner) = broken;
    }

    pub(crate) fn count_records(&self, written: usize) {
        self.records.fetch_add(written as u64, Ordering::Relaxed);
    }

    /// Waits until so many records of the catalog are here.
    pub(crate) async fn until_catalog(&self, records: u64) {
        // An error means that the server itself is gone.
        drop(self.catalog.subscribe().wait_for(|here| *here >= records).await);
    }

    /// The change that moves the server to another host, and has frozen it.
    pub(crate) fn frozen(&self) -> Option<u32> {
        *self.frozen.borrow()
    }

    pub(crate) fn set_frozen(&self, change: Option<u32>) {
        self.frozen.send_if_modified(|known| std::mem::replace(known, change) != change);
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Recovering,
            1 => Phase::Ready,
            2 => Phase::Failing,
            3 => Phase::Stopping,
            _ => Phase::Away,
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Waits for a phase.
    pub(crate) async fn until(&self, phase: Phase) {
        self.until_any(&[phase]).await;
    }

    pub(crate) async fn until_any(&self, phases: &[Phase]) {
        loop {
            let changed = self.changed.notified();
            if phases.contains(&self.phase()) {
                return;
            }
            changed.await;
        }
    }

    pub(crate) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub(crate) fn must_stop(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(crate) fn fail(&self, reason: &str) {
        reason.clone_into(&mut self.reason.lock().unwrap_or_else(PoisonError::into_inner));
        self.enter(Phase::Failing);
    }

    /// Another process holds the server.
    pub(crate) fn go_away(&self, reason: &str) {
        reason.clone_into(&mut self.reason.lock().unwrap_or_else(PoisonError::into_inner));
        self.enter(Phase::Away);
    }

    pub(crate) fn count_recovered(&self, instances: u64) {
        self.recovered.store(instances, Ordering::Relaxed);
    }

    pub(crate) fn set_tokens(&self, hashes: FxHashSet<[u8; 32]>) {
        self.has_tokens.store(!hashes.is_empty(), Ordering::Release);
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = hashes;
    }

    pub(crate) fn has_tokens(&self) -> bool {
        self.has_tokens.load(Ordering::Acquire)
    }

    /// Whether there is a token with this hash.
    pub(crate) fn knows(&self, hash: &[u8; 32]) -> bool {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).contains(hash)
    }

    /// Why requests are not served, in words.
    pub(crate) fn reason(&self) -> String {
        match self.phase() {
            Phase::Recovering => {
                let instances = self.recovered.load(Ordering::Relaxed);
                format!("the server is reading its store ({instances} instances so far)")
            }
            Phase::Ready => "the server is ready".to_owned(),
            Phase::Failing | Phase::Away => {
                self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
            }
            Phase::Stopping => "the server is stopping".to_owned(),
        }
    }
}
