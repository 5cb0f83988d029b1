//! The store in memory: for the simulator and for tests.
//!
//! Invariant: same contract as on disk. It outlives the site that uses it when shared by an `Arc`;
//! uncommitted data never existed, as after a crash.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Mutex, MutexGuard, PoisonError};

use legwork_model::id::StreamId;

use crate::admit::{Head, admit, check_blob};
use crate::{
    Batch, BlobId, ClosedStream, Error, EventStore, Listed, Listing, OpenStream, Snapshot, Version,
};

#[derive(Debug, Default)]
pub struct Memory {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    streams: BTreeMap<StreamId, Stream>,
    blobs: BTreeMap<BlobId, Vec<u8>>,
}

#[derive(Debug, Default)]
struct Stream {
    records: Vec<Vec<u8>>,
    snapshot: Option<Snapshot>,
    summary: Option<Vec<u8>>,
}

impl EventStore for Memory {
    fn commit(&self, batch: Batch) -> Result<(), Error> {
        let mut state = self.lock();
        admit(&batch, |stream, _| Ok(state.streams.get(&stream).map_or(Head::NEW, Stream::head)))?;
        for append in batch.appends {
            let stream = state.streams.entry(append.stream).or_default();
            stream.records.push(append.record);
            stream.summary = append.close;
        }
        for snapshot in batch.snapshots {
            if let Some(stream) = state.streams.get_mut(&snapshot.stream) {
                stream.snapshot = Some(snapshot);
            }
        }
        Ok(())
    }

    fn read(&self, stream: StreamId, from: Version, limit: usize) -> Result<Vec<Vec<u8>>, Error> {
        let state = self.lock();
        let records = state.streams.get(&stream).map_or(&[][..], |stream| stream.since(from));
        Ok(records.iter().take(limit).cloned().collect())
    }

    fn snapshot(&self, stream: StreamId) -> Result<Option<Snapshot>, Error> {
        let state = self.lock();
        let open = state.streams.get(&stream).filter(|stream| stream.summary.is_none());
        Ok(open.and_then(|stream| stream.snapshot.clone()))
    }

    fn open_streams(
        &self,
        after: Option<StreamId>,
        visit: &mut dyn FnMut(OpenStream) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        // The visitor runs without the lock: it may read the store.
        let open: Vec<_> = {
            let state = self.lock();
            let above = after.map_or(Bound::Unbounded, Bound::Excluded);
            let streams = state.streams.range((above, Bound::Unbounded));
            let open = streams.filter(|(_, stream)| stream.summary.is_none());
            open.map(|(&id, stream)| stream.open(id)).collect()
        };
        let _ = open.into_iter().try_for_each(visit);
        Ok(())
    }

    fn closed_streams(
        &self,
        before: Option<StreamId>,
        limit: usize,
    ) -> Result<Vec<ClosedStream>, Error> {
        let below = before.map_or(Bound::Unbounded, Bound::Excluded);
        let state = self.lock();
        let streams = state.streams.range((Bound::Unbounded, below)).rev();
        let closed = streams.filter_map(|(&stream, Stream { summary, .. })| {
            summary.clone().map(|summary| ClosedStream { stream, summary })
        });
        Ok(closed.take(limit).collect())
    }

    fn put_blob(&self, content: &[u8]) -> Result<BlobId, Error> {
        check_blob(content)?;
        let id = BlobId::of(content);
        self.lock().blobs.entry(id).or_insert_with(|| content.to_vec());
        Ok(id)
    }

    fn blob(&self, id: BlobId) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.lock().blobs.get(&id).cloned())
    }

    fn blob_size(&self, id: BlobId) -> Result<Option<u64>, Error> {
        Ok(self.lock().blobs.get(&id).map(|content| content.len() as u64))
    }
}

impl Listing for Memory {
    fn streams(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<Listed>, Error> {
        let above = after.map_or(Bound::Unbounded, Bound::Excluded);
        let state = self.lock();
        let streams = state.streams.range((above, Bound::Unbounded)).take(limit);
        Ok(streams.map(|(id, stream)| stream.listed(*id)).collect())
    }

    fn stream(&self, stream: StreamId) -> Result<Option<Listed>, Error> {
        Ok(self.lock().streams.get(&stream).map(|found| found.listed(stream)))
    }

    fn blobs(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<BlobId>, Error> {
        let above = after.map_or(Bound::Unbounded, Bound::Excluded);
        let state = self.lock();
        Ok(state.blobs.range((above, Bound::Unbounded)).take(limit).map(|(id, _)| *id).collect())
    }
}

impl Memory {
    /// Nothing can panic while the lock is held, so a poisoned lock still guards a consistent
    /// state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    fn head(&self) -> Head {
        Head { version: Version(self.records.len() as u64), closed: self.summary.is_some() }
    }

    fn listed(&self, stream: StreamId) -> Listed {
        Listed { stream, version: self.head().version, summary: self.summary.clone() }
    }

    fn since(&self, from: Version) -> &[Vec<u8>] {
        let from = usize::try_from(from.0).unwrap_or(usize::MAX);
        self.records.get(from..).unwrap_or_default()
    }

    fn open(&self, stream: StreamId) -> OpenStream {
        let from = self.snapshot.as_ref().map_or(Version(0), |snapshot| snapshot.version);
        OpenStream { stream, snapshot: self.snapshot.clone(), records: self.since(from).to_vec() }
    }
}
