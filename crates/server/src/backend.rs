//! The stores of a server, and how they are reopened after a failure.
//!
//! Invariant: the drive thread alone commits. Others borrow the store for files and backups, and
//! get none while it is being reopened.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use legwork_store::embedded::Embedded;
use legwork_store::memory::Memory;
use legwork_store::{Error, EventStore, Listing};

use crate::config::StoreChoice;
use crate::lease::Tenant;

// The store never refuses an append of a site, and a round of the drive thread is cut in time.
const _: () = assert!(legwork_site::RECORD_BYTES_MAX < legwork_store::RECORD_BYTES_MAX);
const _: () = assert!(2 * legwork_site::OUTPUT_BYTES_MAX <= legwork_store::BATCH_BYTES_MAX);
const _: () = assert!(4 * legwork_site::OUTPUT_APPENDS_MAX <= legwork_store::APPENDS_PER_BATCH_MAX);

pub(crate) trait Backend: EventStore {
    /// Writes the whole store as of now, if this kind of store supports that.
    fn backup(&self, out: &mut dyn Write) -> Backup;

    /// Its disk use.
    fn bytes(&self) -> Result<u64, Error>;

    /// The holder and the epoch, for a store with a lease in a shared database.
    fn lease(&self) -> Option<(&str, u64)> {
        None
    }

    /// Whether the state in memory is certainly current: no other process may have written to the
    /// store. Checked before every answer.
    fn may_answer(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Sets the callback after which `may_answer` must be checked.
    fn when_in_doubt(&self, _doubt: Doubt) {}

    /// The listing of its contents; `None` for a shared store, which is never copied.
    fn listing(&self) -> Option<&dyn Listing> {
        None
    }
}

/// The outcome of a backup.
pub(crate) enum Backup {
    Written(Result<(), Error>),
    /// Not supported here, with the alternative.
    None(&'static str),
}

pub(crate) type Doubt = Arc<dyn Fn() + Send + Sync>;

/// The name of a server without one, in a database that several may share.
const ALONE: &str = "alone";

/// Opens the store; called again after a failure.
pub(crate) type Opener = Box<dyn FnMut() -> Result<Arc<dyn Backend>, Error> + Send>;

/// The opener of a logical server's store.
pub(crate) fn opener(choice: &StoreChoice, server: Option<&str>) -> Opener {
    match choice.clone() {
        StoreChoice::Memory => {
            let store = Arc::new(Memory::default());
            Box::new(move || Ok(store.clone()))
        }
        StoreChoice::Directory(dir) => Box::new(move || Ok(Arc::new(Embedded::open(&dir)?))),
        StoreChoice::Postgres(url) => {
            let mut tenant = Tenant::new(url, server.unwrap_or(ALONE));
            Box::new(move || tenant.open())
        }
    }
}

impl Backend for Embedded {
    fn backup(&self, out: &mut dyn Write) -> Backup {
        Backup::Written(Self::backup(self, out, &mut |_| {}))
    }

    fn bytes(&self) -> Result<u64, Error> {
        let used = self.disk_use()?;
        Ok(used.tables + used.journals + used.blobs)
    }

    fn listing(&self) -> Option<&dyn Listing> {
        Some(self)
    }
}

impl Backend for Memory {
    fn backup(&self, _: &mut dyn Write) -> Backup {
        Backup::None("a store in memory has no backups; start the server with a directory")
    }

    fn bytes(&self) -> Result<u64, Error> {
        Ok(0)
    }

    fn listing(&self) -> Option<&dyn Listing> {
        Some(self)
    }
}

/// The open store, for users outside of the drive thread.
#[derive(Default)]
pub(crate) struct Slot(Mutex<Option<Arc<dyn Backend>>>);

impl Slot {
    pub(crate) fn borrow(&self) -> Option<Arc<dyn Backend>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, store: Option<Arc<dyn Backend>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = store;
    }
}
