//! Another server, from the view of a local one: how to reach it, and the requests in progress.
//!
//! Invariant: unhandled messages from it are bounded, whether they came over a socket or from the
//! same process. It is identified by name: numbers depend on the topology, and a joining server
//! receives the current one over its first links. Its state says since when its link is up or down.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use legwork_model::time::Timestamp;
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot, watch};

use super::counters::Counters;
use super::frame::Answered;
use super::links::{Links, Place};
use super::outlet::Outlet;
use crate::files::FileReply;
use crate::moving::StoreReply;

/// The most bytes of messages from one peer that the drive thread has not handled: beyond that its
/// connections are not read. A small message counts more than its bytes, since there are more of
/// them.
const HEARD_BYTES_MAX: u32 = 64 << 20;
const HEARD_BYTES_MIN: u32 = 16 << 10;
/// Concurrent requests that one server has passed on to another in the same process.
const REQUESTS_MAX: usize = 10_000;

/// Expected late answers after their callers have gone. Most never arrive.
const LATE_MAX: usize = 1_024;

pub(crate) type Late = Box<dyn FnOnce(Answered) + Send>;

/// Another server.
pub(crate) struct Peer {
    pub(crate) name: Arc<str>,
    pub(crate) counters: Arc<Counters>,
    /// Of the dialled connection.
    pub(crate) outlet: Outlet,
    /// Of a second one: while a server moves, or was taken over, two processes may speak for it.
    pub(crate) second: Outlet,
    /// Passed-on requests that wait for their answer.
    pub(crate) asked: Mutex<FxHashMap<u64, oneshot::Sender<Answered>>>,
    /// Callbacks for answers whose callers have gone, latest last.
    late: Mutex<VecDeque<(u64, Late)>>,
    /// Requests for contents of files, and about a store, likewise.
    pub(crate) files: Mutex<FxHashMap<u64, oneshot::Sender<FileReply>>>,
    pub(crate) stores: Mutex<FxHashMap<u64, oneshot::Sender<StoreReply>>>,
    pub(crate) next_request: AtomicU64,
    /// Free bytes for its messages.
    room: Arc<Semaphore>,
    /// Free slots for requests that it passes on within this process.
    requests: Arc<Semaphore>,
    /// A sign of life: it is worth another attempt.
    pub(crate) sign_of_life: Notify,
    state: Mutex<State>,
    pub(crate) parcels: AtomicUsize,
    /// Set if it is in this process.
    near: watch::Sender<Option<Near>>,
    /// The last known processes that hold it, latest first.
    seen_at: watch::Sender<[Option<Place>; 2]>,
}

/// A server of the same process.
#[derive(Clone)]
pub(crate) struct Near {
    links: Weak<Links>,
    /// The speaking server, from the view of the receiving one.
    pub(crate) back: Arc<Peer>,
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) condition: Condition,
    pub(crate) since: Timestamp,
}

/// The condition of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Up,
    Down {
        reason: String,
    },
    /// One side rejects the other.
    Refused {
        reason: String,
    },
}

impl Peer {
    pub(crate) fn new(name: Arc<str>, now: Timestamp) -> Self {
        let condition = Condition::Down { reason: "not dialled yet".to_owned() };
        Self {
            name,
            counters: Arc::default(),
            outlet: Outlet::default(),
            second: Outlet::default(),
            asked: Mutex::default(),
            late: Mutex::default(),
            files: Mutex::default(),
            stores: Mutex::default(),
            next_request: AtomicU64::new(1),
            room: Arc::new(Semaphore::new(HEARD_BYTES_MAX as usize)),
            requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
            sign_of_life: Notify::new(),
            state: Mutex::new(State { condition, since: now }),
            parcels: AtomicUsize::new(0),
            near: watch::Sender::new(None),
            seen_at: watch::Sender::new([None, None]),
        }
    }

    /// Waits for room for a message of so many bytes; never returns `None`.
    pub(crate) async fn room(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        self.room.clone().acquire_many_owned(places(bytes)).await.ok()
    }

    /// The same without waiting.
    pub(crate) fn room_now(&self, bytes: u64) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.room.clone().try_acquire_many_owned(places(bytes))
    }

    /// A slot for a request within this process, if one is free.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.requests.clone().try_acquire_owned().ok()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.state().condition == Condition::Up
    }

    pub(crate) fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the condition is new. A link that is down for another reason stays down.
    pub(crate) fn enter(&self, condition: Condition, now: Timestamp) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = state.condition != condition;
        let (was_up, is_up) = (state.condition == Condition::Up, condition == Condition::Up);
        if was_up != is_up {
            state.since = now;
        }
        state.condition = condition;
        is_new
    }

    pub(crate) fn count_parcels(&self, parcels: usize) {
        self.parcels.store(parcels, Ordering::Relaxed);
    }

    /// The local server that it is, if any, and the view of the speaker there.
    pub(crate) fn near(&self) -> Option<(Arc<Links>, Arc<Self>)> {
        let near = self.near.borrow();
        let Near { links, back } = near.as_ref()?;
        Some((links.upgrade()?, back.clone()))
    }

    pub(crate) fn is_near(&self) -> bool {
        self.near.borrow().is_some()
    }

    /// Sets whether it is in this process; returns whether that is new.
    pub(crate) fn set_near(&self, near: Option<(&Arc<Links>, Arc<Self>)>) -> bool {
        self.near.send_if_modified(|known| {
            let same = match (&*known, &near) {
                (None, None) => true,
                (Some(known), Some((links, back))) => {
                    known.links.as_ptr() == Arc::as_ptr(links) && Arc::ptr_eq(&known.back, back)
                }
                (Some(_), None) | (None, Some(_)) => false,
            };
            if !same {
                *known = near.map(|(links, back)| Near { links: Arc::downgrade(links), back });
            }
            !same
        })
    }

    /// Changes when it enters or leaves this process.
    pub(crate) fn nearness(&self) -> watch::Receiver<Option<Near>> {
        self.near.subscribe()
    }

    /// The last known processes that hold it, latest first.
    pub(crate) fn seen_at(&self) -> [Option<Place>; 2] {
        self.seen_at.borrow().clone()
    }

    /// Changes when another process speaks for it.
    pub(crate) fn sightings(&self) -> watch::Receiver<[Option<Place>; 2]> {
        self.seen_at.subscribe()
    }

    /// A process holds it, or claims so: the last one to claim it is the likeliest.
    pub(crate) fn see_at(&self, place: Place) {
        self.seen_at.send_if_modified(|[last, before]| {
            let is_new = last.as_ref() != Some(&place);
            if is_new {
                *before = last.replace(place);
            }
            is_new
        });
    }

    /// An answer may have been on its way when its caller went.
    pub(crate) fn expect_late(&self, id: u64, late: Late) {
        let mut all = self.late();
        if all.len() >= LATE_MAX {
            all.pop_front();
        }
        all.push_back((id, late));
    }

    /// The callback for a late answer.
    pub(crate) fn take_late(&self, id: u64) -> Option<Late> {
        let mut all = self.late();
        let place = all.iter().position(|(other, _)| *other == id)?;
        all.remove(place).map(|(_, late)| late)
    }

    fn late(&self) -> MutexGuard<'_, VecDeque<(u64, Late)>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all waiting requests that there will be no answer.
    pub(crate) fn give_up(&self) {
        self.outlet.close();
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.late().clear();
        self.files.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.stores.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn places(bytes: u64) -> u32 {
    let most = u64::from(HEARD_BYTES_MAX);
    let bytes = u32::try_from(bytes.min(most)).unwrap_or(HEARD_BYTES_MAX);
    bytes.max(HEARD_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> Peer {
        Peer::new("lab".into(), Timestamp(0))
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

    #[tokio::test]
    async fn large_messages_leave_less_room_than_small_ones() {
        let peer = peer();
        let mut heard = Vec::new();
        for _ in 0..HEARD_BYTES_MAX / HEARD_BYTES_MIN {
            heard.push(peer.room(20).await.unwrap());
        }
        assert_eq!(peer.room.available_permits(), 0);
        assert!(peer.room_now(20).is_err());
        heard.clear();
        // A message larger than the whole budget takes all of it.
        let alone = peer.room(u64::MAX).await.unwrap();
        assert_eq!(peer.room.available_permits(), 0);
        drop(alone);
        let _half = peer.room(u64::from(HEARD_BYTES_MAX / 2)).await.unwrap();
        assert_eq!(peer.room.available_permits(), HEARD_BYTES_MAX as usize / 2);
    }
}
