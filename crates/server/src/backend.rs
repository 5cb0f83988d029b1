//! The stores a server can work on, and how they are opened again after a failure.
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

// The store never refuses what a site appends, and a round of the drive thread is cut in time.
const _: () = assert!(legwork_site::RECORD_BYTES_MAX < legwork_store::RECORD_BYTES_MAX);
const _: () = assert!(2 * legwork_site::OUTPUT_BYTES_MAX <= legwork_store::BATCH_BYTES_MAX);
const _: () = assert!(4 * legwork_site::OUTPUT_APPENDS_MAX <= legwork_store::APPENDS_PER_BATCH_MAX);

pub(crate) trait Backend: EventStore {
    /// Writes the whole store as of now, if this kind of store does that.
    fn backup(&self, out: &mut dyn Write) -> Backup;

    /// What it occupies on disk.
    fn bytes(&self) -> Result<u64, Error>;

    /// Who holds it, and by which epoch, if that is told by a lease in a shared database.
    fn lease(&self) -> Option<(&str, u64)> {
        None
    }

    /// Whether what is in memory is certainly still all there is: nobody else may have gone on with
    /// the store. Asked before anything is answered.
    fn may_answer(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Whom to tell that `may_answer` has to be asked.
    fn when_in_doubt(&self, _doubt: Doubt) {}

    /// What it holds, in order; `None` if it is shared, and so never copied.
    fn listing(&self) -> Option<&dyn Listing> {
        None
    }
}

/// What became of a backup.
pub(crate) enum Backup {
    Written(Result<(), Error>),
    /// There is none to be had here, and what to do instead.
    None(&'static str),
}

pub(crate) type Doubt = Arc<dyn Fn() + Send + Sync>;

/// The name of a server that has none, in a database that several may share.
const ALONE: &str = "alone";

/// Opens the store; called again after a failure.
pub(crate) type Opener = Box<dyn FnMut() -> Result<Arc<dyn Backend>, Error> + Send>;

/// For the store of a logical server.
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

/// The store in use, for those beside the drive thread.
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
