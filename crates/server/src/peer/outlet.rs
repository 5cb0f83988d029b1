//! The write queue of one connection.
//!
//! Invariant: senders never wait. All queued frames are taken at once, in order, as one byte
//! string: so they are written with one call and are one TLS record if they fit.

use std::sync::{Mutex, MutexGuard, PoisonError};

use legwork_site::Shares;
use tokio::sync::Notify;

/// The limits of the queue: about a second of a busy link.
const FRAMES_MAX: usize = 65_536;
const BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Default)]
pub(crate) struct Outlet {
    waiting: Mutex<Waiting>,
    wake: Notify,
    /// The excess has been written.
    room: Notify,
}

/// Concatenated frames, and the purposes of their bytes.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) bytes: Vec<u8>,
    pub(crate) shares: Shares,
    frames: usize,
    is_open: bool,
}

/// Why a frame was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    Closed,
    Full,
}

impl Waiting {
    fn is_full(&self) -> bool {
        self.frames >= FRAMES_MAX || self.bytes.len() >= BYTES_MAX
    }
}

impl Outlet {
    /// Frames are queued from now on.
    pub(crate) fn open(&self) {
        *self.lock() = Waiting { is_open: true, ..Waiting::default() };
    }

    /// Frames are dropped from now on, queued ones too.
    pub(crate) fn close(&self) {
        *self.lock() = Waiting::default();
    }

    pub(crate) fn is_open(&self) -> bool {
        self.lock().is_open
    }

    pub(crate) fn put(&self, frame: &[u8], shares: &Shares) -> Result<(), Dropped> {
        let waiting = self.lock();
        if !waiting.is_open {
            return Err(Dropped::Closed);
        }
        let is_full = waiting.is_full() || waiting.bytes.len() + frame.len() > BYTES_MAX;
        if is_full && waiting.frames > 0 {
            return Err(Dropped::Full);
        }
        self.add(waiting, frame, shares);
        Ok(())
    }

    /// For replies, which are bounded by received frames.
    pub(crate) fn put_beyond_limit(&self, frame: &[u8], shares: &Shares) {
        let waiting = self.lock();
        if waiting.is_open {
            self.add(waiting, frame, shares);
        }
    }

    /// Waits until the queue is within its limits. For one task: other senders do not wait.
    pub(crate) async fn until_room(&self) {
        while self.lock().is_full() {
            self.room.notified().await;
        }
    }

    /// Waits for frames and takes all of them. `into` is cleared first.
    pub(crate) async fn take(&self, into: &mut Waiting) {
        into.bytes.clear();
        into.shares = Shares::default();
        into.frames = 0;
        loop {
            let woken = self.wake.notified();
            {
                let mut waiting = self.lock();
                if waiting.frames > 0 {
                    into.is_open = waiting.is_open;
                    std::mem::swap(&mut *waiting, into);
                    drop(waiting);
                    if into.is_full() {
                        self.room.notify_one();
                    }
                    return;
                }
            }
            woken.await;
        }
    }

    fn add(&self, mut waiting: MutexGuard<'_, Waiting>, frame: &[u8], shares: &Shares) {
        let was_empty = waiting.frames == 0;
        waiting.bytes.extend_from_slice(frame);
        waiting.shares.add(shares);
        waiting.frames += 1;
        drop(waiting);
        if was_empty {
            self.wake.notify_one();
        }
    }

    /// Nothing can panic while the lock is held, so a poisoned lock still guards a consistent
    /// state.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(control: u64) -> Shares {
        Shares { control, ..Shares::default() }
    }

    #[tokio::test]
    async fn what_was_put_is_taken_at_once_and_in_order() {
        let outlet = Outlet::default();
        assert_eq!(outlet.put(b"lost", &shares(4)), Err(Dropped::Closed));
        outlet.open();
        outlet.put(b"ab", &shares(2)).unwrap();
        outlet.put(b"c", &shares(1)).unwrap();
        let mut taken = Waiting::default();
        outlet.take(&mut taken).await;
        assert_eq!((&taken.bytes[..], taken.shares), (&b"abc"[..], shares(3)));
        outlet.put(b"d", &shares(1)).unwrap();
        outlet.take(&mut taken).await;
        assert_eq!((&taken.bytes[..], taken.shares), (&b"d"[..], shares(1)));
    }

    #[tokio::test]
    async fn who_reads_no_answers_is_waited_for_until_they_are_taken() {
        let outlet = Outlet::default();
        outlet.open();
        outlet.until_room().await;
        for _ in 0..=FRAMES_MAX {
            outlet.put_beyond_limit(b"x", &shares(1));
        }
        let is_there = tokio::select! {
            biased;
            () = outlet.until_room() => true,
            () = std::future::ready(()) => false,
        };
        assert!(!is_there);
        let mut taken = Waiting::default();
        tokio::join!(outlet.until_room(), outlet.take(&mut taken));
        assert_eq!(taken.frames, FRAMES_MAX + 1);
    }

    #[test]
    fn a_full_outlet_drops_and_says_so() {
        let outlet = Outlet::default();
        outlet.open();
        for _ in 0..FRAMES_MAX {
            outlet.put(b"x", &shares(1)).unwrap();
        }
        assert_eq!(outlet.put(b"x", &shares(1)), Err(Dropped::Full));
        outlet.close();
        outlet.open();
        // A single frame passes even if it is larger than the limit.
        outlet.put(&vec![0; BYTES_MAX + 1], &shares(1)).unwrap();
        assert_eq!(outlet.put(b"x", &shares(1)), Err(Dropped::Full));
    }
}
