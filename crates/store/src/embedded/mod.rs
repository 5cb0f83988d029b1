//! The store in a directory of the local disk, on the log-structured engine fjall.
//!
//! Invariant: a commit is one entry of the engine's journal and one `fdatasync`. Before the engine
//! opens the directory, everything acknowledged is proven to be there, or nothing is touched.
//!
//! See `docs/decisions/0003-embedded-store.md` for the layout and the measurements.

mod backup;
mod blobs;
mod files;
mod journal;
mod keys;
mod listing;
mod open;
mod restore;
mod scan;
mod tuning;
mod verify;
mod watermark;

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use fjall::{AbstractTree, Database, Keyspace, OwnedWriteBatch, PersistMode, Readable};
use legwork_model::id::StreamId;

use crate::admit::{Admitted, Head, admit};
use crate::heads::Heads;
use crate::{Batch, BlobId, ClosedStream, Error, EventStore, OpenStream, Snapshot, Version};
use blobs::Blobs;
use keys::Commit;
use watermark::{Watermark, WatermarkFile};

pub use open::{FORMAT, Options};
pub use restore::restore;

/// An open store. The directory is locked until it is dropped.
pub struct Embedded {
    // Fields drop in this order: the engine is closed before the directory is unlocked.
    view: RwLock<View>,
    writer: Mutex<Writer>,
    records: Keyspace,
    open: Keyspace,
    closed: Keyspace,
    db: Database,
    blobs: Blobs,
    data: PathBuf,
    _lock: open::Lock,
}

/// The store as of the last completed commit. The engine's own view can include part of a batch
/// that it is just applying.
type View = Arc<fjall::Snapshot>;

/// The bytes that a store occupies on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUse {
    /// The streams: grows with their number.
    pub tables: u64,
    /// The journals: bounded, whatever the store contains.
    pub journals: u64,
    pub blobs: u64,
}

struct Writer {
    /// Of the last commit.
    sequence: u64,
    /// The journal file that the engine writes to, as far as known.
    journal: u64,
    heads: Heads,
    watermark: WatermarkFile,
    /// The error after which nothing more is written.
    stopped: Option<String>,
}

/// The engine blocks a commit forever if flushing or compacting has died. These limits are below
/// the engine's, so that waiting happens here, where the death is noticed.
const WAITING_MEMTABLES_MAX: usize = 1;
const UNCOMPACTED_RUNS_MAX: usize = 16;
const WAIT: Duration = Duration::from_millis(1);

impl DiskUse {
    pub fn total(self) -> u64 {
        self.tables + self.journals + self.blobs
    }
}

impl EventStore for Embedded {
    fn commit(&self, batch: Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut writer = self.running()?;
        let admitted =
            admit(&batch, |stream, expected| self.head(&writer.heads, stream, expected))?;
        self.write(&mut writer, |items| self.encode(items, batch, &admitted))?;
        for change in admitted.changes {
            match change.after {
                Head { closed: true, .. } => writer.heads.remove(change.stream),
                Head { version, closed: false } => writer.heads.insert(change.stream, version),
            }
        }
        Ok(())
    }

    fn read(&self, stream: StreamId, from: Version, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        let range = keys::record(stream, from)..=keys::record(stream, Version(u64::MAX));
        let mut records = Vec::new();
        for item in self.view().range(&self.records, range).take(limit) {
            let (key, record) = item.into_inner().map_err(|error| self.failed(error))?;
            let expected = Version(from.0 + records.len() as u64);
            if keys::parse_record(&key) != Some((stream, expected)) {
                return Err(self.damaged(format!("record {expected} of {stream:?} is missing")));
            }
            records.push(record.to_vec());
        }
        Ok(records)
    }

    fn snapshot(&self, stream: StreamId) -> Result<Option<Snapshot>, Error> {
        let value = self.view().get(&self.open, keys::stream(stream));
        match value.map_err(|error| self.failed(error))? {
            Some(value) => self.parse_snapshot(stream, &value),
            None => Ok(None),
        }
    }

    fn open_streams(
        &self,
        after: Option<StreamId>,
        visit: &mut dyn FnMut(OpenStream) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        scan::open_streams(self, after, visit)
    }

    fn closed_streams(
        &self,
        before: Option<StreamId>,
        limit: usize,
    ) -> Result<Vec<ClosedStream>, Error> {
        let below = before.map_or(Bound::Unbounded, |id| Bound::Excluded(keys::stream(id)));
        let range = (Bound::Unbounded, below);
        let newest_first = self.view().range::<[u8; 16], _>(&self.closed, range).rev();
        let closed = newest_first.take(limit).map(|item| {
            let (key, summary) = item.into_inner().map_err(|error| self.failed(error))?;
            let stream = self.parse_stream(&key)?;
            Ok(ClosedStream { stream, summary: summary.to_vec() })
        });
        closed.collect()
    }

    fn put_blob(&self, content: &[u8]) -> Result<BlobId, Error> {
        self.blobs.put(content)
    }

    fn blob(&self, id: BlobId) -> Result<Option<Vec<u8>>, Error> {
        self.blobs.get(id)
    }

    fn blob_size(&self, id: BlobId) -> Result<Option<u64>, Error> {
        self.blobs.size(id)
    }
}

impl Embedded {
    /// Opens the store in a directory, which is created if it does not exist.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        open::open(dir, Options::default())
    }

    pub fn open_with(dir: &Path, options: Options) -> Result<Self, Error> {
        open::open(dir, options)
    }

    /// The current disk use of the store.
    pub fn disk_use(&self) -> Result<DiskUse, Error> {
        let engine = self.data.join(open::ENGINE);
        let tables = files::occupied(&engine.join("keyspaces"))?;
        let journals = files::occupied(&engine)?.saturating_sub(tables);
        Ok(DiskUse { tables, journals, blobs: self.blobs.occupied()? })
    }

    /// Rewrites all tables into their smallest form. Commits and reads go on meanwhile.
    pub fn compact(&self) -> Result<(), Error> {
        self.flush()?;
        for keyspace in self.keyspaces() {
            keyspace.major_compact().map_err(|error| self.failed(error))?;
        }
        self.flush()
    }

    /// In the order of [`tuning::MEMTABLE_BYTES_MAX`].
    fn keyspaces(&self) -> [&Keyspace; 3] {
        [&self.records, &self.open, &self.closed]
    }

    /// Flushes memtables to tables, and drops obsolete tables: the engine does so only when it
    /// flushes something, so a commit is written first.
    fn flush(&self) -> Result<(), Error> {
        {
            let mut writer = self.running()?;
            self.write(&mut writer, |_| {})?;
            for keyspace in self.keyspaces() {
                self.rotate(keyspace)?;
            }
        }
        for keyspace in self.keyspaces() {
            self.wait_until(|| Ok(keyspace.sealed_memtable_count() == 0))?;
        }
        Ok(())
    }

    /// Writes one entry and marks it as acknowledged. After a failure no further entry is written.
    fn write(
        &self,
        writer: &mut Writer,
        fill: impl FnOnce(&mut OwnedWriteBatch),
    ) -> Result<(), Error> {
        self.try_write(writer, fill).inspect_err(|error| writer.stopped = Some(error.to_string()))
    }

    fn try_write(
        &self,
        writer: &mut Writer,
        fill: impl FnOnce(&mut OwnedWriteBatch),
    ) -> Result<(), Error> {
        self.make_room()?;
        self.write_entry(writer, fill)?;
        // A new journal file means that it is unknown which of the two holds the entry. The next
        // entry is in the new one for certain.
        while self.journal_has_moved(writer)? {
            self.write_entry(writer, |_| {})?;
        }
        let Writer { sequence, journal, .. } = *writer;
        writer.watermark.write(Watermark { sequence, journal })?;
        self.refresh_view(writer);
        Ok(())
    }

    fn write_entry(
        &self,
        writer: &mut Writer,
        fill: impl FnOnce(&mut OwnedWriteBatch),
    ) -> Result<(), Error> {
        let mut items = OwnedWriteBatch::with_capacity(self.db.clone(), 16)
            .durability(Some(PersistMode::SyncData));
        let sequence = writer.sequence + 1;
        let commit = Commit { sequence, entry_number_min: self.db.seqno() };
        items.insert(&self.open, keys::COMMIT_KEY, commit.encode());
        fill(&mut items);
        items.commit().map_err(|error| self.failed(error))?;
        writer.sequence = sequence;
        Ok(())
    }

    /// Each key at most once: the items of one entry have no order among themselves.
    fn encode(&self, items: &mut OwnedWriteBatch, batch: Batch, admitted: &Admitted) {
        for append in batch.appends {
            let key = keys::record(append.stream, append.expected);
            items.insert(&self.records, key, append.record);
            if let Some(summary) = append.close {
                items.insert(&self.closed, keys::stream(append.stream), summary);
            }
        }
        for change in &admitted.changes {
            let key = keys::stream(change.stream);
            let born = change.before == Head::NEW;
            if change.after.closed {
                if !born && !change.before.closed {
                    items.remove(&self.open, key);
                }
            } else if let Some(place) = change.snapshot {
                items.insert(&self.open, key, keys::snapshot_value(&batch.snapshots[place]));
            } else if born {
                items.insert(&self.open, key, []);
            }
        }
    }

    /// Whether the engine has begun a new journal file since the last call.
    fn journal_has_moved(&self, writer: &mut Writer) -> Result<bool, Error> {
        let engine = self.data.join(open::ENGINE);
        let exists = |file| journal::path(&engine, file).exists();
        if exists(writer.journal) && !exists(writer.journal + 1) {
            return Ok(false);
        }
        let newest = journal::list(&engine)?.last().copied();
        let moved = newest.is_some_and(|newest| newest != writer.journal);
        writer.journal = newest.unwrap_or(writer.journal);
        Ok(moved)
    }

    fn head(&self, heads: &Heads, stream: StreamId, expected: Version) -> Result<Head, Error> {
        if let Some(version) = heads.get(stream) {
            return Ok(Head { version, closed: false });
        }
        self.look_up(stream, expected).map_err(|error| self.failed(error))
    }

    /// Under the writer's lock nothing changes: the engine may be queried without a view.
    fn look_up(&self, stream: StreamId, expected: Version) -> Result<Head, fjall::Error> {
        let has_record = |version| self.records.contains_key(keys::record(stream, version));
        if !has_record(Version(0))? {
            return Ok(Head::NEW);
        }
        let closed = !self.open.contains_key(keys::stream(stream))?;
        // Two lookups confirm an expected version; finding the last record takes an iterator, which
        // is several times as slow.
        if let Some(last) = expected.0.checked_sub(1)
            && has_record(Version(last))?
            && !has_record(expected)?
        {
            return Ok(Head { version: expected, closed });
        }
        let all = keys::record(stream, Version(0))..=keys::record(stream, Version(u64::MAX));
        let last = self.records.range(all).next_back().map(fjall::Guard::key).transpose()?;
        let last = last.as_deref().and_then(keys::parse_record).unwrap_or((stream, Version(0)));
        Ok(Head { version: Version(last.1.0 + 1), closed })
    }

    /// Hands full memtables to the engine's worker, and waits if it is behind.
    ///
    /// The engine could do that itself, by a message to its worker for each commit beyond the
    /// limit. But a worker that compacts for a second leaves them lying; their queue fills up, and
    /// then the worker waits for ever for a place in its own queue.
    fn make_room(&self) -> Result<(), Error> {
        for (keyspace, bytes_max) in self.keyspaces().into_iter().zip(tuning::MEMTABLE_BYTES_MAX) {
            self.help_compact(keyspace)?;
            if keyspace.tree.active_memtable().size() >= bytes_max {
                self.rotate(keyspace)?;
            }
        }
        Ok(())
    }

    /// The engine compacts once for each flush, which may not be enough, and without another flush
    /// it would not continue.
    fn help_compact(&self, keyspace: &Keyspace) -> Result<(), Error> {
        self.wait_until(|| {
            if keyspace.tree.l0_run_count() <= UNCOMPACTED_RUNS_MAX {
                return Ok(true);
            }
            let strategy = keyspace.config.compaction_strategy.clone();
            keyspace.tree.compact(strategy, 0)?;
            Ok(false)
        })
    }

    fn rotate(&self, keyspace: &Keyspace) -> Result<(), Error> {
        self.wait_until(|| Ok(keyspace.sealed_memtable_count() <= WAITING_MEMTABLES_MAX))?;
        keyspace.rotate_memtable().map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Waits for the engine's background work, and fails if that has failed.
    fn wait_until(&self, done: impl Fn() -> fjall::Result<bool>) -> Result<(), Error> {
        while !done().map_err(|error| self.failed(error))? {
            self.db.persist(PersistMode::Buffer).map_err(|error| self.failed(error))?;
            thread::sleep(WAIT);
        }
        Ok(())
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer, if it has not stopped.
    fn running(&self) -> Result<MutexGuard<'_, Writer>, Error> {
        let writer = self.writer();
        match &writer.stopped {
            Some(cause) => Err(Error::Stopped { cause: cause.clone() }),
            None => Ok(writer),
        }
    }

    fn view(&self) -> View {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the writer as proof that no batch is being applied.
    fn refresh_view(&self, _: &mut Writer) {
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(self.db.snapshot());
    }

    fn parse_stream(&self, key: &[u8]) -> Result<StreamId, Error> {
        keys::parse_stream(key).ok_or_else(|| self.damaged("a key is not the id of a stream"))
    }

    fn parse_snapshot(&self, stream: StreamId, value: &[u8]) -> Result<Option<Snapshot>, Error> {
        let parsed = keys::parse_snapshot(stream, value);
        parsed.map_err(|()| self.damaged(format!("the snapshot of {stream:?} is too short")))
    }

    fn failed(&self, error: fjall::Error) -> Error {
        open::engine_error(&self.data, error)
    }

    fn damaged(&self, detail: impl Into<String>) -> Error {
        Error::damaged(&self.data, detail)
    }
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("data", &self.data).finish_non_exhaustive()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // The watermark is only a proof; a store that closes without it lacks nothing.
        let _ = self.writer().watermark.sync();
    }
}
