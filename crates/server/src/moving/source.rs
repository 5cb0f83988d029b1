//! The old host of a server that moves: serves its store to the new one.
//!
//! Invariant: an answer changes nothing but the tracked writes. A portion has as much as was
//! requested and fits; the rest of a stream is requested again.

use std::sync::Arc;

use legwork_model::id::StreamId;
use legwork_store::{BlobId, Error, Listed, Version};
use minicbor::bytes::ByteVec;

use super::wire::{Blob, Head, Lease, Part, State, StoreReply, StoreRequest, Stream, Wanted};
use super::written::Written;
use crate::backend::{Backend, Slot};
use crate::ids::draw_life;

/// The most bytes of one answer, unless one record alone is larger.
const PORTION_BYTES: usize = 2 << 20;
const PORTION_RECORDS: usize = 8_192;
pub(crate) const PORTION_STREAMS: usize = 512;
const CONTENT_BYTES: usize = 1 << 20;
/// Records read at a time.
const READ_RECORDS: usize = 64;
const HEADS: usize = 16_384;
const BLOBS: usize = 4_096;

/// The data source of answers.
pub(crate) struct Source {
    slot: Arc<Slot>,
    pub(crate) written: Arc<Written>,
}

impl Source {
    pub(crate) fn new(slot: Arc<Slot>, written: Arc<Written>) -> Self {
        Self { slot, written }
    }

    /// Whether the store must be copied: a shared store stays where it is.
    pub(crate) fn can_be_copied(&self) -> bool {
        self.slot.borrow().is_some_and(|store| store.listing().is_some())
    }

    /// Reads: not for a thread that others wait for. `change` is the one that has frozen the
    /// server.
    pub(crate) fn answer(&self, request: StoreRequest, change: Option<u32>) -> StoreReply {
        self.written.touch();
        let Some(store) = self.slot.borrow() else {
            return StoreReply::NotNow("the store is being opened again".to_owned());
        };
        match self.answer_from(&*store, request, change) {
            Ok(reply) => reply,
            Err(error) => {
                tracing::error!(reason = %error, "a store could not be read for its new host");
                StoreReply::NotNow(error.to_string())
            }
        }
    }

    fn answer_from(
        &self,
        store: &dyn Backend,
        request: StoreRequest,
        change: Option<u32>,
    ) -> Result<StoreReply, Error> {
        if request == StoreRequest::Lease {
            let lease = store.lease();
            let lease = lease.map(|(holder, epoch)| Lease { holder: holder.to_owned(), epoch });
            return Ok(StoreReply::Lease(lease));
        }
        let Some(listing) = store.listing() else {
            return Ok(StoreReply::NotNow("a shared store is not copied".to_owned()));
        };
        Ok(match request {
            StoreRequest::State { is_close } => {
                let Ok(life) = draw_life() else {
                    return Ok(StoreReply::NotNow("there are no random numbers".to_owned()));
                };
                let mark = self.written.begin(life, is_close);
                StoreReply::State(State { mark, change, bytes: store.bytes()? })
            }
            StoreRequest::Streams { after } => {
                let listed = listing.streams(after.map(|Stream(id)| id), HEADS)?;
                StoreReply::Streams(listed.iter().map(head).collect())
            }
            StoreRequest::Records { wanted } => portion(store, &wanted)?,
            StoreRequest::Written { since } => {
                let (streams, mark) = self.written.since(since);
                let streams = streams.map(|streams| streams.into_iter().map(Stream).collect());
                StoreReply::Written { streams, mark }
            }
            StoreRequest::Blobs { after } => {
                let names = listing.blobs(after.map(BlobId::from), BLOBS)?;
                let sized = names
                    .into_iter()
                    .map(|name| Ok((Blob::from(name), store.blob_size(name)?.unwrap_or_default())));
                StoreReply::Blobs(sized.collect::<Result<_, Error>>()?)
            }
            StoreRequest::Content { blob, from } => {
                let read = || Ok::<_, Error>(store.blob(blob.into())?.unwrap_or_default());
                let from = usize::try_from(from).unwrap_or(usize::MAX);
                let piece = self.written.piece(blob.into(), from, CONTENT_BYTES, read)?;
                StoreReply::Content(piece.into())
            }
            StoreRequest::Digest => StoreReply::Digest(self.written.sums().digest(store)?),
            // Answered above, or by the driver of the server.
            StoreRequest::Lease | StoreRequest::Seal { .. } | StoreRequest::Release => {
                StoreReply::NotNow("it is not asked for here".to_owned())
            }
        })
    }
}

fn head(listed: &Listed) -> Head {
    Head {
        stream: Stream(listed.stream),
        version: listed.version.0,
        is_closed: listed.summary.is_some(),
    }
}

/// The beginning of the requested records.
fn portion(store: &dyn Backend, wanted: &[Wanted]) -> Result<StoreReply, Error> {
    let mut parts = Vec::new();
    let (mut bytes, mut records) = (0, 0);
    for Wanted { stream: Stream(stream), from } in wanted.iter().take(PORTION_STREAMS) {
        if bytes >= PORTION_BYTES || records >= PORTION_RECORDS {
            break;
        }
        let part = part(store, *stream, *from, PORTION_RECORDS - records, PORTION_BYTES - bytes)?;
        records += part.records.len();
        bytes += part.records.iter().map(|record| record.len()).sum::<usize>();
        bytes += part.snapshot.as_ref().map_or(0, |(_, snapshot)| snapshot.len());
        parts.push(part);
    }
    // Writing to memory cannot fail.
    let portion = minicbor::to_vec(&parts).unwrap_or_default();
    let hash = *blake3::hash(&portion).as_bytes();
    Ok(StoreReply::Records { portion: portion.into(), hash })
}

/// The records of a stream from an index on: at least one, if there is one.
fn part(
    store: &dyn Backend,
    stream: StreamId,
    from: u64,
    records_max: usize,
    bytes_max: usize,
) -> Result<Part, Error> {
    let (mut records, mut bytes) = (Vec::new(), 0);
    let is_full = |records: &[ByteVec], bytes| records.len() >= records_max || bytes >= bytes_max;
    loop {
        let next = Version(from + records.len() as u64);
        let read = store.read(stream, next, READ_RECORDS)?;
        let is_end = read.len() < READ_RECORDS;
        for record in read {
            if !records.is_empty() && is_full(&records, bytes) {
                break;
            }
            bytes += record.len();
            records.push(ByteVec::from(record));
        }
        if is_end || is_full(&records, bytes) {
            break;
        }
    }
    let end = from + records.len() as u64;
    let listed = store.listing().map(|listing| listing.stream(stream)).transpose()?.flatten();
    // It goes on, or has grown meanwhile.
    let listed = listed.filter(|listed| listed.version.0 == end);
    let more = listed.is_none();
    let summary = listed.and_then(|listed| listed.summary).map(ByteVec::from);
    let snapshot = if more || summary.is_some() { None } else { store.snapshot(stream)? };
    let snapshot = snapshot.filter(|snapshot| snapshot.version.0 <= end);
    let snapshot = snapshot.map(|snapshot| (snapshot.version.0, snapshot.bytes.into()));
    Ok(Part { stream: Stream(stream), from, records, summary, snapshot, more })
}
