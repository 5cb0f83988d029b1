//! The thread that renews a lease.
//!
//! Invariant: it does nothing else, and ends when it is dropped or when the lease is another's.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::lease::Held;
use crate::Error;

/// Renewals in the time of a lease.
const RENEWALS: u32 = 4;
/// After a renewal that failed there is the next attempt this soon.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);

/// Keeps a lease; dropped, it stops doing so.
#[must_use = "a lease is kept as long as this value"]
pub struct Keeping {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeping {
    pub(super) fn start(held: Held, doubt: impl Fn() + Send + 'static) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let pause = held.ttl() / RENEWALS;
        let keep = move || {
            let (mut next, mut is_told) = (pause, false);
            while stopped.recv_timeout(next) == Err(RecvTimeoutError::Timeout) {
                match held.renew() {
                    Ok(()) => (next, is_told) = (pause, false),
                    Err(Error::Fenced { .. }) => return doubt(),
                    Err(_) => {
                        next = pause.min(ATTEMPT_PAUSE);
                        if !is_told && !held.is_valid() {
                            is_told = true;
                            doubt();
                        }
                    }
                }
            }
        };
        // Without the thread the lease runs out, which is what its holder goes by.
        let thread = thread::Builder::new().name("legwork-lease".to_owned()).spawn(keep).ok();
        Self { stop: Some(stop), thread }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
