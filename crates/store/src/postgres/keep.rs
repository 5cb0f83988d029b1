//! The thread that renews a lease.
//!
//! Invariant: it does nothing else, and ends when it is dropped or the lease is lost.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::lease::Held;
use crate::Error;

/// Renewals per lease duration.
const RENEWALS: u32 = 4;
/// The pause after a failed renewal.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);

/// Renews a lease until it is dropped.
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
        // Without the thread the lease expires, which its holder checks.
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
