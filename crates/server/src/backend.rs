//! The stores a server can work on, and how they are opened again after a failure.
//!
//! Invariant: the drive thread alone commits. Others borrow the store for files and backups, and
//! get none while it is being reopened.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use legwork_store::embedded::Embedded;
use legwork_store::memory::Memory;
use legwork_store::{Error, EventStore};

use crate::config::StoreChoice;

// The store never refuses what a site appends, and a round of the drive thread is cut in time.
const _: () = assert!(legwork_site::RECORD_BYTES_MAX < legwork_store::RECORD_BYTES_MAX);
const _: () = assert!(2 * legwork_site::OUTPUT_BYTES_MAX <= legwork_store::BATCH_BYTES_MAX);
const _: () = assert!(4 * legwork_site::OUTPUT_APPENDS_MAX <= legwork_store::APPENDS_PER_BATCH_MAX);

pub(crate) trait Backend: EventStore {
    /// Writes the whole store as of now; `None` if this kind of store has no backups.
    fn backup(&self, out: &mut dyn Write) -> Option<Result<(), Error>>;

    /// What it occupies on disk.
    fn bytes(&self) -> Result<u64, Error>;
}

/// Opens the store; called again after a failure.
pub(crate) type Opener = Box<dyn FnMut() -> Result<Arc<dyn Backend>, Error> + Send>;

pub(crate) fn opener(choice: &StoreChoice) -> Opener {
    match choice.clone() {
        StoreChoice::Memory => {
            let store = Arc::new(Memory::default());
            Box::new(move || Ok(store.clone()))
        }
        StoreChoice::Directory(dir) => Box::new(move || Ok(Arc::new(Embedded::open(&dir)?))),
    }
}

impl Backend for Embedded {
    fn backup(&self, out: &mut dyn Write) -> Option<Result<(), Error>> {
        Some(Self::backup(self, out, &mut |_| {}))
    }

    fn bytes(&self) -> Result<u64, Error> {
        let used = self.disk_use()?;
        Ok(used.tables + used.journals + used.blobs)
    }
}

impl Backend for Memory {
    fn backup(&self, _: &mut dyn Write) -> Option<Result<(), Error>> {
        None
    }

    fn bytes(&self) -> Result<u64, Error> {
        Ok(0)
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
