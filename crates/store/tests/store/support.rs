//! Short notation for the tests: streams and batches, and the whole content of a store as a value.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use legwork_model::id::StreamId;
use legwork_store::{Append, Batch, BlobId, EventStore, Snapshot, Version};
use tempfile::TempDir;

pub(crate) const A: StreamId = StreamId(0xA << 100);
pub(crate) const B: StreamId = StreamId(0xB << 100);
pub(crate) const C: StreamId = StreamId(0xC << 100);
pub(crate) const D: StreamId = StreamId(0xD << 100);

/// A directory for one test, in memory if possible: these tests sync a lot, and do not depend on
/// the disk.
pub(crate) fn scratch() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

pub(crate) fn append(stream: StreamId, expected: u64, record: &str) -> Append {
    Append { stream, expected: Version(expected), record: record.into(), close: None }
}

pub(crate) fn close(stream: StreamId, expected: u64, record: &str, summary: &str) -> Append {
    Append { close: Some(summary.into()), ..append(stream, expected, record) }
}

pub(crate) fn snapshot(stream: StreamId, version: u64, bytes: &str) -> Snapshot {
    Snapshot { stream, version: Version(version), bytes: bytes.into() }
}

pub(crate) fn batch(appends: impl Into<Vec<Append>>) -> Batch {
    Batch { appends: appends.into(), snapshots: Vec::new() }
}

pub(crate) fn snapshots(snapshots: impl Into<Vec<Snapshot>>) -> Batch {
    Batch { appends: Vec::new(), snapshots: snapshots.into() }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The whole content of a store through its contract.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub open: Vec<(StreamId, Option<Snapshot>, Vec<Vec<u8>>)>,
    pub closed: Vec<(StreamId, Vec<u8>, Vec<Vec<u8>>)>,
    pub blobs: Vec<Option<Vec<u8>>>,
}

pub(crate) fn content(
    store: &dyn EventStore,
    blobs: &[BlobId],
) -> Result<Content, legwork_store::Error> {
    let mut content = Content::default();
    let mut ids = Vec::new();
    store.open_streams(None, &mut |open| {
        assert!(open.snapshot.is_some() || !open.records.is_empty());
        ids.push((open.stream, open.snapshot, open.records));
        ControlFlow::Continue(())
    })?;
    for (stream, snapshot, since) in ids {
        assert_eq!(store.snapshot(stream)?, snapshot, "the scan and the lookup agree");
        let from = snapshot.as_ref().map_or(Version(0), |snapshot| snapshot.version);
        assert_eq!(store.read(stream, from, usize::MAX)?, since, "the scan and the read agree");
        content.open.push((stream, snapshot, store.read(stream, Version(0), usize::MAX)?));
    }
    for closed in store.closed_streams(None, usize::MAX)? {
        let records = store.read(closed.stream, Version(0), usize::MAX)?;
        content.closed.push((closed.stream, closed.summary, records));
    }
    content.blobs = blobs.iter().map(|&id| store.blob(id)).collect::<Result<_, _>>()?;
    Ok(content)
}

/// Every file of a directory with its bytes, except the lock.
pub(crate) fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    collect(dir, Path::new(""), &mut found);
    found.remove(Path::new("LOCK"));
    found
}

pub(crate) fn write_files(dir: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) {
    for (path, bytes) in files {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn collect(root: &Path, below: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path = below.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            collect(root, &path, found);
        } else {
            found.insert(path.clone(), fs::read(root.join(path)).unwrap());
        }
    }
}

/// Pseudorandom numbers, the same in every run.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
