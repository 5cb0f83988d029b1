//! The store of one server in a shared database.
//!
//! Invariant: same contract as on disk. One connection commits; others read, and see committed
//! data.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use legwork_model::id::StreamId;

use super::session::Session;
use super::{Shared, blobs, commit, read};
use crate::heads::Heads;
use crate::{Batch, BlobId, ClosedStream, Error, EventStore, OpenStream, Snapshot, Version};

/// An open store, from [`Held::open`](super::Held::open).
pub struct Postgres {
    pub(super) shared: Shared,
    pub(super) server: Arc<str>,
    pub(super) fence: Fence,
    writer: Mutex<Writer>,
}

/// The condition of every commit on the lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    pub(super) number: i16,
    pub(super) epoch: i64,
    pub(super) opening: i64,
}

pub(super) struct Writer {
    pub(super) session: Session,
    /// Valid as long as nobody else can commit, which the fence ensures.
    pub(super) heads: Heads,
    /// The error after which nothing more is written.
    pub(super) stopped: Option<String>,
}

impl EventStore for Postgres {
    fn commit(&self, batch: Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut writer = self.writer();
        if let Some(cause) = &writer.stopped {
            return Err(Error::Stopped { cause: cause.clone() });
        }
        let outcome = commit::commit(self, &mut writer, &batch);
        if let Err(error) = &outcome
            && !is_refusal(error)
        {
            writer.stopped = Some(error.to_string());
        }
        outcome
    }

    fn read(&self, stream: StreamId, from: Version, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        read::records(self, stream, from, limit)
    }

    fn snapshot(&self, stream: StreamId) -> Result<Option<Snapshot>, Error> {
        read::snapshot(self, stream)
    }

    fn open_streams(
        &self,
        after: Option<StreamId>,
        visit: &mut dyn FnMut(OpenStream) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        read::open_streams(self, after, visit)
    }

    fn closed_streams(
        &self,
        before: Option<StreamId>,
        limit: usize,
    ) -> Result<Vec<ClosedStream>, Error> {
        read::closed_streams(self, before, limit)
    }

    fn put_blob(&self, content: &[u8]) -> Result<BlobId, Error> {
        blobs::put(&self.shared, content)
    }

    fn blob(&self, id: BlobId) -> Result<Option<Vec<u8>>, Error> {
        blobs::get(&self.shared, id)
    }

    fn blob_size(&self, id: BlobId) -> Result<Option<u64>, Error> {
        blobs::size(&self.shared, id)
    }
}

/// Whether the batch was refused, and the store is unchanged.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::Conflict { .. }
            | Error::Closed { .. }
            | Error::TooLarge { .. }
            | Error::Snapshot { .. }
    )
}

impl Postgres {
    pub(super) fn new(shared: Shared, server: Arc<str>, fence: Fence, session: Session) -> Self {
        let writer = Writer { session, heads: Heads::default(), stopped: None };
        Self { shared, server, fence, writer: Mutex::new(writer) }
    }

    /// The name of the server that owns the store.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The disk use of all servers of the database.
    pub fn disk_use(&self) -> Result<u64, Error> {
        const SQL: &str = "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint \
             FROM pg_class WHERE relkind = 'r' AND relnamespace = 'legwork'::regnamespace";
        let rows = self
            .shared
            .inner
            .pool
            .ask(self.shared.place(), "measuring", |session| session.query(SQL, &[]))?;
        let bytes: i64 = rows.first().map_or(0, |row| row.get(0));
        Ok(u64::try_from(bytes).unwrap_or(0))
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn damaged(&self, detail: impl Into<String>) -> Error {
        Error::damaged(self.shared.place().name().as_ref(), detail)
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut store = f.debug_struct("Postgres");
        store.field("server", &self.server).field("fence", &self.fence).finish_non_exhaustive()
    }
}
