//! Whether a batch may be committed: versions, closing, limits; one rule for every store.
//!
//! Invariant: a batch that is admitted can be written without further questions; a refused batch has
//! changed nothing. Several appends to one stream within a batch have ascending versions.

use legwork_model::id::StreamId;
use rustc_hash::FxHashMap;

use crate::{Append, Batch, Error, Snapshot, Version};

pub const RECORD_BYTES_MAX: usize = 16 << 20;
pub const SNAPSHOT_BYTES_MAX: usize = 64 << 20;
pub const SUMMARY_BYTES_MAX: usize = 64 << 10;
pub const BLOB_BYTES_MAX: usize = 256 << 20;
/// All bytes of one batch: it is held in memory several times over while it is written.
pub const BATCH_BYTES_MAX: usize = 128 << 20;
pub const APPENDS_PER_BATCH_MAX: usize = 65_536;
/// The version is 4 bytes of a key of 20, the longest that the embedded store keeps in place; those of
/// PostgreSQL have a sign.
pub const RECORDS_PER_STREAM_MAX: u64 = i32::MAX as u64;

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) version: Version,
    pub(crate) closed: bool,
}

/// The changes of a batch to its streams, each stream once, in the order of the batch.
#[derive(Debug, Default)]
pub(crate) struct Admitted {
    pub(crate) changes: Vec<Change>,
    /// The index of a stream in `changes`. Never iterated.
    places: FxHashMap<StreamId, usize>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) stream: StreamId,
    pub(crate) before: Head,
    pub(crate) after: Head,
    /// The index in the batch of the new snapshot.
    pub(crate) snapshot: Option<usize>,
}

/// Checks the batch against the heads of its streams, which `head` looks up. `head` gets the expected
/// version: a store may find it cheaper to confirm a version than to find one.
pub(crate) fn admit(
    batch: &Batch,
    mut head: impl FnMut(StreamId, Version) -> Result<Head, Error>,
) -> Result<Admitted, Error> {
    check_sizes(batch)?;
    let mut admitted = Admitted::default();
    for append in &batch.appends {
        admitted.append(append, &mut head)?;
    }
    for (place, snapshot) in batch.snapshots.iter().enumerate() {
        admitted.snapshot(place, snapshot, &mut head)?;
    }
    Ok(admitted)
}

pub(crate) fn check_blob(content: &[u8]) -> Result<(), Error> {
    check("blob", content.len(), BLOB_BYTES_MAX)
}

impl Head {
    /// A stream without records.
    pub(crate) const NEW: Self = Self { version: Version(0), closed: false };
}

impl Admitted {
    fn append(
        &mut self,
        append: &Append,
        head: &mut impl FnMut(StreamId, Version) -> Result<Head, Error>,
    ) -> Result<(), Error> {
        let stream = append.stream;
        let change = self.look_up(stream, append.expected, head)?;
        let Head { version: found, closed } = change.after;
        if closed {
            return Err(Error::Closed { stream });
        }
        if append.expected != found {
            return Err(Error::Conflict { stream, expected: append.expected, found });
        }
        if found.0 >= RECORDS_PER_STREAM_MAX {
            let (size, max) = (found.0 + 1, RECORDS_PER_STREAM_MAX);
            return Err(Error::TooLarge { what: "number of records of a stream", size, max });
        }
        change.after = Head { version: Version(found.0 + 1), closed: append.close.is_some() };
        Ok(())
    }

    fn snapshot(
        &mut self,
        place: usize,
        snapshot: &Snapshot,
        head: &mut impl FnMut(StreamId, Version) -> Result<Head, Error>,
    ) -> Result<(), Error> {
        let &Snapshot { stream, version, .. } = snapshot;
        let change = self.look_up(stream, version, head)?;
        let found = change.after.version;
        if version.0 == 0 || version > found {
            return Err(Error::Snapshot { stream, version, found });
        }
        change.snapshot = Some(place);
        Ok(())
    }

    fn look_up(
        &mut self,
        stream: StreamId,
        expected: Version,
        head: &mut impl FnMut(StreamId, Version) -> Result<Head, Error>,
    ) -> Result<&mut Change, Error> {
        let place = match self.places.get(&stream) {
            Some(&place) => place,
            None => {
                let before = head(stream, expected)?;
                self.changes.push(Change { stream, before, after: before, snapshot: None });
                self.places.insert(stream, self.changes.len() - 1);
                self.changes.len() - 1
            }
        };
        Ok(&mut self.changes[place])
    }
}

pub(crate) fn check_sizes(batch: &Batch) -> Result<(), Error> {
    check("number of appends of a batch", batch.appends.len(), APPENDS_PER_BATCH_MAX)?;
    check("number of snapshots of a batch", batch.snapshots.len(), APPENDS_PER_BATCH_MAX)?;
    let mut total = 0;
    for Append { record, close, .. } in &batch.appends {
        let summary = close.as_ref().map_or(0, Vec::len);
        check("record", record.len(), RECORD_BYTES_MAX)?;
        check("summary", summary, SUMMARY_BYTES_MAX)?;
        total += record.len() + summary;
    }
    for Snapshot { bytes, .. } in &batch.snapshots {
        check("snapshot", bytes.len(), SNAPSHOT_BYTES_MAX)?;
        total += bytes.len();
    }
    check("batch", total, BATCH_BYTES_MAX)
}

fn check(what: &'static str, size: usize, max: usize) -> Result<(), Error> {
    if size <= max {
        return Ok(());
    }
    Err(Error::TooLarge { what, size: size as u64, max: max as u64 })
}
