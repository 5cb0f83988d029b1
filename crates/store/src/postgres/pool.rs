//! Connections for reading and for blobs, shared by all stores of a process.
//!
//! Invariant: there are at most [`SESSIONS_MAX`] connections; a request without a free one waits. A
//! failed session is dropped, together with all idle ones: they are as dead after a restart of the
//! database.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::place::Place;
use super::session::{Failure, Session};
use crate::Error;

/// Per process; each logical server has two more, for commits and for its lease.
pub(super) const SESSIONS_MAX: usize = 6;
/// How long to wait for a free one.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub(super) struct Pool {
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    idle: Vec<Session>,
    in_use: usize,
}

/// Returns the slot of a session when dropped.
struct Taken<'a> {
    pool: &'a Pool,
    session: Option<Session>,
}

impl Pool {
    pub(super) fn new(first: Session) -> Self {
        Self { state: Mutex::new(State { idle: vec![first], in_use: 0 }), freed: Condvar::new() }
    }

    /// Queries the database; once more over a new connection if the idle one was dead. The query must
    /// be idempotent.
    pub(super) fn ask<T>(
        &self,
        place: &Place,
        action: &'static str,
        ask: impl Fn(&Session) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let mut taken = self.take(place)?;
        if let Some(session) = &taken.session {
            match ask(session) {
                Ok(answer) => return Ok(answer),
                Err(failure) => {
                    taken.session = None;
                    if !failure.is_disconnected() {
                        return Err(failure.told(action, place));
                    }
                    self.state().idle.clear();
                }
            }
        }
        let session = place.connect()?;
        let answer = ask(&session).map_err(|failure| failure.told(action, place))?;
        taken.session = Some(session);
        Ok(answer)
    }

    fn take(&self, place: &Place) -> Result<Taken<'_>, Error> {
        let is_full = |state: &mut State| state.in_use >= SESSIONS_MAX;
        let waited = self.freed.wait_timeout_while(self.state(), WAIT_MAX, is_full);
        let (mut state, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return Err(Failure::Late.told("waiting for a connection to", place));
        }
        state.in_use += 1;
        let session = state.idle.pop();
        drop(state);
        Ok(Taken { pool: self, session })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.in_use -= 1;
        state.idle.extend(self.session.take());
        drop(state);
        self.pool.freed.notify_one();
    }
}
