//! The store in a PostgreSQL database, shared by many servers, and the leases of the servers.
//!
//! Invariant: a batch is one statement, and so one transaction, that begins by locking its lease. A
//! take-over waits for such a statement and then changes the epoch that the statement requires:
//! afterwards no statement of the old holder succeeds, however late it comes.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use legwork_store::postgres::{LEASE, Shared};
//! # fn example() -> Result<(), legwork_store::Error> {
//! let shared = Shared::connect("postgres://legwork@db.example/legwork")?;
//! let held = shared.acquire("muenchen-1", "host-a", LEASE)?; // or Error::LeaseHeld
//! let keeping = held.keep(|| println!("another process may hold the server now"));
//! let store = held.open()?; // an EventStore; Error::Fenced once the lease is another's
//! drop((store, keeping));
//! held.release()?;
//! # Ok(())
//! # }
//! ```
//!
//! See `docs/decisions/0019-postgresql-and-leases.md` for the design and the measurements.

mod blobs;
mod commit;
mod keep;
mod lease;
mod moment;
mod place;
mod pool;
mod read;
mod schema;
mod session;
mod store;
mod tls;
mod values;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use place::Place;
use pool::Pool;

pub use keep::Keeping;
pub use lease::{Held, LeaseInfo};
pub use schema::FORMAT;
pub use store::Postgres;

/// The duration of a lease without renewals. It is renewed four times as often, so that three
/// attempts may fail; a shorter lease would be lost to a pause of the machine, a longer one keeps a
/// dead server's instances waiting.
pub const LEASE: Duration = Duration::from_secs(5);

/// A database that servers share. Cheap to clone; reads share its connections.
#[derive(Clone)]
pub struct Shared {
    inner: Arc<Inner>,
}

struct Inner {
    place: Place,
    pool: Pool,
}

impl Shared {
    /// Connects, checks that the database keeps acknowledged commits, and creates or migrates the
    /// tables; several servers may do so at once.
    ///
    /// `postgres://user:password@host:port/database?parameter=value`; a folder of Unix sockets is
    /// percent-encoded in the place of the host.
    pub fn connect(url: &str) -> Result<Self, Error> {
        let place = Place::parse(url)?;
        let mut session = place.connect()?;
        schema::prepare(&place, &mut session)?;
        let pool = Pool::new(session);
        Ok(Self { inner: Arc::new(Inner { place, pool }) })
    }

    fn place(&self) -> &Place {
        &self.inner.place
    }
}

/// Without the password.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shared").field(&self.inner.place.name()).finish()
    }
}

/// The address of a database without its password, for display.
pub fn shown(url: &str) -> String {
    place::shown(url)
}
