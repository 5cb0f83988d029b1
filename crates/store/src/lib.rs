//! The durable store of event streams: append, read, snapshot, list; and blobs by content.
//!
//! Invariant: the store is dumb. It never looks inside a record, a snapshot, a summary or a blob. A
//! batch for which [`EventStore::commit`] has returned `Ok` is on disk exactly once, in order; a
//! batch is atomic.

mod admit;
pub mod embedded;
mod error;
mod heads;
mod listing;
pub mod memory;
pub mod postgres;

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use legwork_model::id::StreamId;

pub use admit::{
    APPENDS_PER_BATCH_MAX, BATCH_BYTES_MAX, BLOB_BYTES_MAX, RECORD_BYTES_MAX,
    RECORDS_PER_STREAM_MAX, SNAPSHOT_BYTES_MAX, SUMMARY_BYTES_MAX,
};
pub use error::Error;
pub use listing::{Listed, Listing};

/// The number of records of a stream: the next append must expect exactly this number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// One record, appended to one stream. A record is the bytes of one atomic append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    pub stream: StreamId,
    /// The version of the stream before this append; 0 starts the stream.
    pub expected: Version,
    pub record: Vec<u8>,
    /// The stream ends with this record; the summary is kept for [`EventStore::closed_streams`].
    pub close: Option<Vec<u8>>,
}

/// A cache: the state of a stream after its first `version` records, as opaque bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub stream: StreamId,
    pub version: Version,
    pub bytes: Vec<u8>,
}

/// An atomic commit. Appends take effect in order, then the snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    pub appends: Vec<Append>,
    pub snapshots: Vec<Snapshot>,
}

/// A stream that has not been closed, for the restart path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenStream {
    pub stream: StreamId,
    pub snapshot: Option<Snapshot>,
    /// The records after the snapshot, or all of them without one.
    pub records: Vec<Vec<u8>>,
}

/// A closed stream, with its summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedStream {
    pub stream: StreamId,
    pub summary: Vec<u8>,
}

/// The BLAKE3 hash of a blob: its name. Displays as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId(pub [u8; 32]);

/// The contract of every store.
///
/// One thread commits at a time (others wait); reads may come from any thread at any time and see
/// the store as of the last completed commit, never half of a batch.
pub trait EventStore: Send + Sync {
    /// Commits the batch: all of it or, with an error, nothing that was acknowledged changes.
    /// When it returns `Ok`, the batch survives a crash of the process and of the machine.
    ///
    /// [`Error::Conflict`], [`Error::Closed`], [`Error::TooLarge`] and [`Error::Snapshot`] refuse
    /// the batch and leave the store as it was. After any other error the store is
    /// [stopped](Error::Stopped): whether this one batch is there is known only after reopening;
    /// everything acknowledged before is there.
    fn commit(&self, batch: Batch) -> Result<(), Error>;

    /// At most `limit` records of a stream, from version `from` on; none of an unknown stream. No
    /// more than these are read.
    fn read(&self, stream: StreamId, from: Version, limit: usize) -> Result<Vec<Vec<u8>>, Error>;

    /// The last snapshot of an open stream. Closing a stream drops its snapshot.
    fn snapshot(&self, stream: StreamId) -> Result<Option<Snapshot>, Error>;

    /// Visits each stream that is not closed and whose id is above `after`, in the order of their
    /// ids, until `visit` breaks. The records of the others are not read.
    fn open_streams(
        &self,
        after: Option<StreamId>,
        visit: &mut dyn FnMut(OpenStream) -> ControlFlow<()>,
    ) -> Result<(), Error>;

    /// At most `limit` closed streams with ids below `before`, the greatest id first.
    fn closed_streams(
        &self,
        before: Option<StreamId>,
        limit: usize,
    ) -> Result<Vec<ClosedStream>, Error>;

    /// Stores the content durably under its hash. Putting the same content again writes nothing.
    fn put_blob(&self, content: &[u8]) -> Result<BlobId, Error>;

    /// The content with this hash, verified.
    fn blob(&self, id: BlobId) -> Result<Option<Vec<u8>>, Error>;

    /// The size of the content with this hash, if it exists. The content is not read.
    fn blob_size(&self, id: BlobId) -> Result<Option<u64>, Error>;
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.appends.is_empty() && self.snapshots.is_empty()
    }
}

impl OpenStream {
    /// The version of the stream: that of its snapshot and the records since.
    pub fn version(&self) -> Version {
        let before = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.version.0);
        Version(before + self.records.len() as u64)
    }
}

impl BlobId {
    pub fn of(content: &[u8]) -> Self {
        Self(*blake3::hash(content).as_bytes())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A store may be shared: the simulator's crash drops the site and keeps the store.
impl<S: EventStore + ?Sized> EventStore for Arc<S> {
    fn commit(&self, batch: Batch) -> Result<(), Error> {
        (**self).commit(batch)
    }

    fn read(&self, stream: StreamId, from: Version, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        (**self).read(stream, from, limit)
    }

    fn snapshot(&self, stream: StreamId) -> Result<Option<Snapshot>, Error> {
        (**self).snapshot(stream)
    }

    fn open_streams(
        &self,
        after: Option<StreamId>,
        visit: &mut dyn FnMut(OpenStream) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        (**self).open_streams(after, visit)
    }

    fn closed_streams(
        &self,
        before: Option<StreamId>,
        limit: usize,
    ) -> Result<Vec<ClosedStream>, Error> {
        (**self).closed_streams(before, limit)
    }

    fn put_blob(&self, content: &[u8]) -> Result<BlobId, Error> {
        (**self).put_blob(content)
    }

    fn blob(&self, id: BlobId) -> Result<Option<Vec<u8>>, Error> {
        (**self).blob(id)
    }

    fn blob_size(&self, id: BlobId) -> Result<Option<u64>, Error> {
        (**self).blob_size(id)
    }
}
