//! Leases of servers by the database's clock, with an epoch as a fencing token.
//!
//! Invariant: at most one holder has the epoch of the lease, and only its commits and renewals
//! succeed. Renewals use their own connection and a lock that does not conflict with commits: a long
//! commit does not lose the lease. The local validity, [`Held::is_valid`], counts from before the
//! renewal was sent and so ends before the database grants the lease to another holder.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;

use super::moment::Moment;
use super::session::{Failure, Session};
use super::store::{Fence, Postgres};
use super::{Shared, keep::Keeping};
use crate::Error;

/// The longest name of a server or of a holder, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// How long to wait for a commit in progress before its hanging session is terminated. The alternative
/// is to wait for its outcome without end.
const PATIENCE: &str = "SET LOCAL lock_timeout = '3s'";
/// Servers of one database; their numbers are a `smallint`.
const SERVERS_MAX: i64 = i16::MAX as i64;

const FIND_SERVER: &str = "SELECT number FROM legwork.server WHERE name = $1";
const ADD_SERVER: &str = "INSERT INTO legwork.server (number, name) \
     SELECT coalesce(max(number), 0) + 1, $1 FROM legwork.server HAVING count(*) < $2 \
     ON CONFLICT DO NOTHING";
const ADD_LEASE: &str = "INSERT INTO legwork.lease (server, holder, epoch, opening, expires) \
     VALUES ($1, '', 0, 0, 'epoch') ON CONFLICT DO NOTHING";
const LOOK: &str = "SELECT holder, \
     extract(epoch FROM expires - clock_timestamp())::float8 FROM legwork.lease WHERE server = $1";
/// Waits for a commit in progress, and then checks again whether the lease has expired.
const LOCK_EXPIRED: &str = "SELECT 1 FROM legwork.lease \
     WHERE server = $1 AND expires <= clock_timestamp() FOR UPDATE";
const TAKE: &str = "UPDATE legwork.lease SET holder = $2, epoch = epoch + 1, writer = NULL, \
     expires = clock_timestamp() + $3 * interval '1 second' WHERE server = $1 RETURNING epoch";
/// Changes no column that a commit locks, and so does not wait for it.
const RENEW: &str = "UPDATE legwork.lease \
     SET expires = clock_timestamp() + $3 * interval '1 second' \
     WHERE server = $1 AND epoch = $2 RETURNING 1";
const RELEASE: &str = "UPDATE legwork.lease SET holder = '', expires = 'epoch' \
     WHERE server = $1 AND epoch = $2";
const BREAK: &str = "UPDATE legwork.lease SET expires = 'epoch' \
     WHERE epoch = $2 AND server = (SELECT number FROM legwork.server WHERE name = $1) RETURNING 1";
/// Waits for a commit of the previous opening, whose outcome is then known.
const LOCK_OWN: &str = "SELECT 1 FROM legwork.lease WHERE server = $1 AND epoch = $2 FOR UPDATE";
const OPEN: &str = "UPDATE legwork.lease SET opening = opening + 1, writer = pg_backend_pid(), \
     writer_start = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()) \
     WHERE server = $1 AND epoch = $2 RETURNING opening";
/// The session that commits for the holder, if it hangs in the middle of a commit.
const END_WRITER: &str = "SELECT pg_terminate_backend(session.pid) FROM legwork.lease AS lease \
     JOIN pg_stat_activity AS session \
     ON session.pid = lease.writer AND session.backend_start = lease.writer_start \
     WHERE lease.server = $1";
const LIST: &str = "SELECT server.name, lease.holder, lease.epoch, \
     extract(epoch FROM lease.expires - clock_timestamp())::float8 \
     FROM legwork.lease AS lease JOIN legwork.server AS server ON server.number = lease.server \
     ORDER BY server.name";

/// The public state of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    pub server: String,
    /// The current or last holder; empty if it was released.
    pub holder: String,
    /// The number of take-overs.
    pub epoch: u64,
    /// The remaining time by the database's clock without a renewal; `None` if it has expired or was
    /// released, so that it is free.
    pub left: Option<Duration>,
}

/// The right to write for a server, until it expires. Cheap to clone; dropping it does not release it.
#[derive(Clone)]
pub struct Held {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Shared,
    server: Arc<str>,
    holder: String,
    number: i16,
    epoch: i64,
    ttl: Duration,
    valid_until: Mutex<Moment>,
    lost: AtomicBool,
    /// For renewals only.
    session: Mutex<Option<Session>>,
}

impl Shared {
    /// Acquires the lease of a server, which is registered by this, if it is free. Waits for a commit
    /// of the last holder in progress.
    ///
    /// [`Error::LeaseHeld`] names the holder and how long the lease lasts at most.
    pub fn acquire(&self, server: &str, holder: &str, ttl: Duration) -> Result<Held, Error> {
        for name in [server, holder] {
            if name.len() > NAME_BYTES_MAX {
                let (size, max) = (name.len() as u64, NAME_BYTES_MAX as u64);
                return Err(Error::TooLarge { what: "name of a server or a holder", size, max });
            }
        }
        let session = self.place().connect()?;
        let failed = |failure: Failure| failure.told("taking a lease in", self.place());
        let number = self.number(&session, server)?;
        session.query(ADD_LEASE, &[&number]).map_err(failed)?;
        self.refuse_held(&session, server, number)?;
        let sent = Moment::now();
        // A session cannot be used again after a failure.
        let (taken, session) = match take(&session, number, holder, ttl) {
            // Its writer hangs in the middle of a commit: its answer is no longer awaited.
            Err(failure) if failure.is(&SqlState::LOCK_NOT_AVAILABLE) => {
                let again = self.place().connect()?;
                again.query(END_WRITER, &[&number]).map_err(failed)?;
                (take(&again, number, holder, ttl).map_err(failed)?, again)
            }
            other => (other.map_err(failed)?, session),
        };
        let Some(epoch) = taken else {
            // Renewed, or acquired by another holder, since the check.
            let fresh = self.place().connect()?;
            self.refuse_held(&fresh, server, number)?;
            let (server, holder) = (server.to_owned(), "another one".to_owned());
            return Err(Error::LeaseHeld { server, holder, left: Duration::ZERO });
        };
        let inner = Inner {
            shared: self.clone(),
            server: server.into(),
            holder: holder.to_owned(),
            number,
            epoch,
            ttl,
            valid_until: Mutex::new(sent.plus(ttl)),
            lost: AtomicBool::new(false),
            session: Mutex::new(Some(session)),
        };
        Ok(Held { inner: Arc::new(inner) })
    }

    /// All leases, by server name.
    pub fn leases(&self) -> Result<Vec<LeaseInfo>, Error> {
        let rows = self
            .inner
            .pool
            .ask(self.place(), "reading the leases of", |session| session.query(LIST, &[]))?;
        let info = |row: &tokio_postgres::Row| LeaseInfo {
            server: row.get(0),
            holder: row.get(1),
            epoch: to_epoch(row.get(2)),
            left: Duration::try_from_secs_f64(row.get(3)).ok().filter(|left| !left.is_zero()),
        };
        Ok(rows.iter().map(info).collect())
    }

    /// Ends a lease whose holder is known to be dead. A lease with a new holder is left alone, and
    /// `false` is returned.
    pub fn break_lease(&self, server: &str, epoch: u64) -> Result<bool, Error> {
        let epoch = i64::try_from(epoch).unwrap_or(i64::MAX);
        let rows = self.inner.pool.ask(self.place(), "ending a lease in", |session| {
            session.query(BREAK, &[&server, &epoch])
        })?;
        Ok(!rows.is_empty())
    }

    /// The permanent number of a server.
    fn number(&self, session: &Session, server: &str) -> Result<i16, Error> {
        let failed = |failure: Failure| failure.told("naming a server in", self.place());
        // Rarely more than twice: a number may have been given to another name at the same moment.
        for _ in 0..16 {
            let rows = session.query(FIND_SERVER, &[&server]).map_err(failed)?;
            if let Some(row) = rows.first() {
                return Ok(row.get(0));
            }
            session.query(ADD_SERVER, &[&server, &SERVERS_MAX]).map_err(failed)?;
        }
        let max = u64::try_from(SERVERS_MAX).unwrap_or(0);
        Err(Error::TooLarge { what: "number of servers of a database", size: max + 1, max })
    }

    fn refuse_held(&self, session: &Session, server: &str, number: i16) -> Result<(), Error> {
        let rows = session.query(LOOK, &[&number]);
        let rows = rows.map_err(|failure| failure.told("reading a lease of", self.place()))?;
        let Some(row) = rows.first() else { return Ok(()) };
        let (holder, seconds): (String, f64) = (row.get(0), row.get(1));
        if seconds <= 0.0 {
            return Ok(());
        }
        let left = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Err(Error::LeaseHeld { server: server.to_owned(), holder, left })
    }
}

fn take(
    session: &Session,
    number: i16,
    holder: &str,
    ttl: Duration,
) -> Result<Option<i64>, Failure> {
    session.transaction(|| {
        session.execute(PATIENCE)?;
        if session.query(LOCK_EXPIRED, &[&number])?.is_empty() {
            return Ok(None);
        }
        let rows = session.query(TAKE, &[&number, &holder, &ttl.as_secs_f64()])?;
        Ok(rows.first().map(|row| row.get(0)))
    })
}

impl Held {
    pub fn server(&self) -> &str {
        &self.inner.server
    }

    pub fn holder(&self) -> &str {
        &self.inner.holder
    }

    /// The epoch of this holder.
    pub fn epoch(&self) -> u64 {
        to_epoch(self.inner.epoch)
    }

    pub fn ttl(&self) -> Duration {
        self.inner.ttl
    }

    /// Until then no other holder can have the lease, counted from before the last renewal was sent.
    pub fn valid_until(&self) -> Instant {
        self.valid().passed
    }

    fn valid(&self) -> Moment {
        *self.inner.valid_until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no other holder can have the lease now. A holder that was paused for longer than the
    /// lease lasts notices by this.
    pub fn is_valid(&self) -> bool {
        !self.is_lost() && !self.valid().has_come(Moment::now())
    }

    /// Another holder has, or had, the lease after this one; it does not come back.
    pub fn is_lost(&self) -> bool {
        self.inner.lost.load(Ordering::Acquire)
    }

    /// Extends the lease to its whole duration, also after its expiry, unless another holder has
    /// acquired it: [`Error::Fenced`].
    pub fn renew(&self) -> Result<(), Error> {
        let inner = &*self.inner;
        let mut session = inner.session.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open = match session.take() {
            Some(open) => open,
            None => inner.shared.place().connect()?,
        };
        let mut sent = Moment::now();
        let mut renewed = self.renew_over(&open);
        if renewed.as_ref().is_err_and(Failure::is_disconnected) {
            // The connection may have died long ago: the database was restarted.
            open = inner.shared.place().connect()?;
            sent = Moment::now();
            renewed = self.renew_over(&open);
        }
        let renewed =
            renewed.map_err(|failure| failure.told("renewing a lease in", inner.shared.place()))?;
        *session = Some(open);
        if !renewed {
            inner.lost.store(true, Ordering::Release);
            return Err(self.fenced());
        }
        let mut valid_until = inner.valid_until.lock().unwrap_or_else(PoisonError::into_inner);
        // Renewals are sequential: the last one counts, also after a change of the time of day.
        *valid_until = sent.plus(inner.ttl);
        Ok(())
    }

    fn renew_over(&self, session: &Session) -> Result<bool, Failure> {
        let Inner { number, epoch, ttl, .. } = &*self.inner;
        // A renewal that takes as long as the lease is useless.
        let limit = (*ttl / 3).max(Duration::from_millis(200));
        let parameters: [super::values::Parameter<'_>; 3] = [number, epoch, &ttl.as_secs_f64()];
        let rows = session.query_within(limit, RENEW, &parameters)?;
        Ok(!rows.is_empty())
    }

    /// Renews the lease from now on in a thread of its own. `doubt` is called whenever the lease has
    /// expired without a renewal, and when another holder has acquired it; that ends the thread.
    pub fn keep(&self, doubt: impl Fn() + Send + 'static) -> Keeping {
        Keeping::start(self.clone(), doubt)
    }

    /// Opens the store of the server. Unanswered batches of a previous opening are committed or not
    /// from here on, and that opening can commit nothing more.
    pub fn open(&self) -> Result<Postgres, Error> {
        self.renew()?;
        let Inner { shared, server, number, epoch, .. } = &*self.inner;
        let failed = |failure: Failure| failure.told("opening", shared.place());
        let session = shared.place().connect()?;
        let opened = match self.open_over(&session) {
            Err(failure) if failure.is(&SqlState::LOCK_NOT_AVAILABLE) => {
                let again = shared.place().connect()?;
                again.query(END_WRITER, &[number]).map_err(failed)?;
                let opened = self.open_over(&again).map_err(failed)?;
                opened.map(|opening| (opening, again))
            }
            other => other.map_err(failed)?.map(|opening| (opening, session)),
        };
        let Some((opening, session)) = opened else {
            self.inner.lost.store(true, Ordering::Release);
            return Err(self.fenced());
        };
        let fence = Fence { number: *number, epoch: *epoch, opening };
        Ok(Postgres::new(shared.clone(), server.clone(), fence, session))
    }

    fn open_over(&self, session: &Session) -> Result<Option<i64>, Failure> {
        let Inner { number, epoch, .. } = &*self.inner;
        session.transaction(|| {
            session.execute(PATIENCE)?;
            if session.query(LOCK_OWN, &[number, epoch])?.is_empty() {
                return Ok(None);
            }
            Ok(session.query(OPEN, &[number, epoch])?.first().map(|row| row.get(0)))
        })
    }

    /// Releases the lease at once, without waiting for its expiry. Close the store first.
    pub fn release(self) -> Result<(), Error> {
        let Inner { shared, number, epoch, .. } = &*self.inner;
        self.inner.lost.store(true, Ordering::Release);
        let place = shared.place();
        shared.inner.pool.ask(place, "releasing a lease in", |session| {
            session.query(RELEASE, &[number, epoch])
        })?;
        Ok(())
    }

    fn fenced(&self) -> Error {
        Error::Fenced { server: self.server().to_owned() }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { server, holder, epoch, .. } = &*self.inner;
        let mut held = f.debug_struct("Held");
        held.field("server", server).field("holder", holder).field("epoch", epoch);
        held.finish_non_exhaustive()
    }
}

fn to_epoch(epoch: i64) -> u64 {
    u64::try_from(epoch).unwrap_or(0)
}
