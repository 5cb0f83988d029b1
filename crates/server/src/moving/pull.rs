//! The new host of a server: copies the store from the old one.
//!
//! Invariant: the local copy of a stream is always a prefix of the original, byte for byte, so that
//! an interrupted copy continues from there. The copy is complete only when the old host has given
//! the server away and both have the same digest over all streams.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use legwork_model::id::StreamId;
use legwork_store::{Append, Batch, BlobId, Snapshot, Version};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::digest::Sums;
use super::source::PORTION_STREAMS;
use super::wire::{
    Blob, Hash, Head, Mark, Origin, Part, State, StoreReply, StoreRequest, Stream, Unanswered,
    Wanted,
};
use crate::backend::Backend;

/// When so few streams were written to meanwhile, the rest is left for the freeze.
const FEW: usize = 256;
/// How many rounds of catching up precede that: a faster writer is not waited for.
const ROUNDS_MAX: usize = 16;
/// Streams of the copy listed at a time.
const PAGE: usize = 16_384;

/// Why a copy is incomplete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotCopied {
    #[error("the old host does not answer: {0}")]
    Unanswered(#[from] Unanswered),
    #[error("the old host cannot answer now: {0}")]
    NotNow(String),
    #[error("what the old host answers makes no sense: {0}")]
    Senseless(&'static str),
    #[error("a portion came other than it was sent")]
    Damaged,
    #[error("what is here is not a part of what is there: {0}")]
    Differs(&'static str),
    #[error(transparent)]
    Store(#[from] legwork_store::Error),
    #[error("{0}")]
    Broken(String),
}

/// The estimated freeze of a server whose store is copied except for the rest.
const MOMENT: Duration = Duration::from_secs(1);

/// The progress of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// When the old host first answered.
    pub(crate) begun: Option<Instant>,
    /// The size of the original store, as first reported.
    pub(crate) bytes: u64,
    pub(crate) bytes_copied: u64,
    pub(crate) streams_copied: u64,
    /// Little is left; the rest is copied during the freeze.
    pub(crate) is_close: bool,
    /// Why the last attempt failed, until the next one makes progress.
    pub(crate) reason: Option<Arc<str>>,
}

impl Progress {
    /// The estimated remaining time at the pace so far.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        if self.is_close {
            return Some(MOMENT);
        }
        let spent = now.saturating_duration_since(self.begun?).as_millis();
        let rest = u128::from(self.bytes.saturating_sub(self.bytes_copied));
        let millis = (spent * rest).checked_div(u128::from(self.bytes_copied))?;
        Some(Duration::from_millis(u64::try_from(millis).ok()?).saturating_add(MOMENT))
    }
}

/// A copy in progress.
pub(crate) struct Pull<O> {
    origin: O,
    store: Arc<dyn Backend>,
    sums: Sums,
    mark: Mark,
    progress: watch::Sender<Progress>,
}

impl<O: Origin> Pull<O> {
    pub(crate) fn new(
        origin: O,
        store: Arc<dyn Backend>,
        progress: watch::Sender<Progress>,
    ) -> Self {
        Self { origin, store, sums: Sums::default(), mark: Mark::default(), progress }
    }

    /// Copies while the server works at its old host, until little is left.
    pub(crate) async fn bulk(&mut self) -> Result<(), NotCopied> {
        let State { mark, bytes, .. } = self.state(false).await?;
        self.mark = mark;
        self.progress.send_modify(|progress| {
            progress.bytes = bytes;
            progress.begun.get_or_insert_with(Instant::now);
            progress.reason = None;
        });
        self.compare().await?;
        self.blobs().await?;
        for _ in 0..ROUNDS_MAX {
            if self.catch_up().await? <= FEW {
                break;
            }
        }
        // Both sides hash the unchanged part now.
        self.digest().await?;
        self.origin.ask(StoreRequest::Digest).await?;
        self.catch_up().await?;
        self.progress.send_modify(|progress| progress.is_close = true);
        Ok(())
    }

    /// The change that has frozen the server, if any.
    pub(crate) async fn frozen_by(&mut self) -> Result<Option<u32>, NotCopied> {
        Ok(self.state(true).await?.change)
    }

    /// Copies the rest of a frozen server; returns the digest of the store.
    pub(crate) async fn finish(&mut self, change: u32) -> Result<Hash, NotCopied> {
        match self.origin.ask(StoreRequest::Seal { change }).await? {
            StoreReply::Sealed => {}
            StoreReply::NotNow(reason) => return Err(NotCopied::NotNow(reason)),
            StoreReply::State(_)
            | StoreReply::Streams(_)
            | StoreReply::Records { .. }
            | StoreReply::Written { .. }
            | StoreReply::Blobs(_)
            | StoreReply::Content(_)
            | StoreReply::Released
            | StoreReply::Lease(_)
            | StoreReply::Digest(_) => return Err(NotCopied::Senseless("not sealed")),
        }
        self.catch_up().await?;
        // The catalog may grow without local writes.
        self.bring([StreamId::SITE].map(|stream| (stream, None)).into()).await?;
        self.blobs().await?;
        let StoreReply::Digest(theirs) = self.origin.ask(StoreRequest::Digest).await? else {
            return Err(NotCopied::Senseless("no digest"));
        };
        if self.digest().await? != theirs {
            return Err(NotCopied::Differs("the digests are not the same"));
        }
        Ok(theirs)
    }

    async fn state(&mut self, is_close: bool) -> Result<State, NotCopied> {
        match self.origin.ask(StoreRequest::State { is_close }).await? {
            StoreReply::State(state) => Ok(state),
            StoreReply::NotNow(reason) => Err(NotCopied::NotNow(reason)),
            StoreReply::Streams(_)
            | StoreReply::Records { .. }
            | StoreReply::Written { .. }
            | StoreReply::Blobs(_)
            | StoreReply::Content(_)
            | StoreReply::Sealed
            | StoreReply::Released
            | StoreReply::Lease(_)
            | StoreReply::Digest(_) => Err(NotCopied::Senseless("no state")),
        }
    }

    /// Compares all remote streams with the local ones, and copies what is missing.
    async fn compare(&mut self) -> Result<(), NotCopied> {
        let mut after = None;
        loop {
            let StoreReply::Streams(heads) =
                self.origin.ask(StoreRequest::Streams { after }).await?
            else {
                return Err(NotCopied::Senseless("no streams"));
            };
            let Some(last) = heads.last().map(|head| head.stream) else { return Ok(()) };
            if after.is_some_and(|after| last <= after) {
                return Err(NotCopied::Senseless("streams are not in order"));
            }
            let have = self.have(after.map(|Stream(id)| id), last.0).await?;
            let mut lacking = BTreeMap::new();
            for Head { stream: Stream(stream), version, is_closed } in heads {
                let (own, own_closed) = have.get(&stream).copied().unwrap_or_default();
                if own > version || own_closed && !is_closed {
                    return Err(NotCopied::Differs("a stream has more here than there"));
                }
                if (own, own_closed) != (version, is_closed) {
                    lacking.insert(stream, Some(own));
                }
            }
            self.bring(lacking).await?;
            after = Some(last);
        }
    }

    /// The lengths of the local streams between two others.
    async fn have(
        &self,
        after: Option<StreamId>,
        last: StreamId,
    ) -> Result<BTreeMap<StreamId, (u64, bool)>, NotCopied> {
        let store = self.store.clone();
        let list = move || -> Result<_, legwork_store::Error> {
            let (mut have, mut after) = (BTreeMap::new(), after);
            let Some(listing) = store.listing() else { return Ok(have) };
            loop {
                let page = listing.streams(after, PAGE)?;
                let Some(end) = page.last().map(|listed| listed.stream) else { return Ok(have) };
                have.extend(
                    page.into_iter()
                        .filter(|listed| listed.stream <= last)
                        .map(|one| (one.stream, (one.version.0, one.summary.is_some()))),
                );
                if end >= last {
                    return Ok(have);
                }
                after = Some(end);
            }
        };
        Ok(spawn_blocking(list).await.map_err(broken)??)
    }

    /// Copies what was written meanwhile; returns the number of streams.
    pub(crate) async fn catch_up(&mut self) -> Result<usize, NotCopied> {
        let StoreReply::Written { streams, mark } =
            self.origin.ask(StoreRequest::Written { since: self.mark }).await?
        else {
            return Err(NotCopied::Senseless("not told what was written"));
        };
        let count = match streams {
            Some(streams) => {
                let count = streams.len();
                self.bring(streams.into_iter().map(|Stream(id)| (id, None)).collect()).await?;
                count
            }
            // The old host was restarted, or has more writes than it tracks.
            None => {
                self.mark = self.state(false).await?.mark;
                self.compare().await?;
                return Ok(usize::MAX);
            }
        };
        self.mark = mark;
        Ok(count)
    }

    /// Copies these streams, each from its local end on.
    async fn bring(
        &mut self,
        mut lacking: BTreeMap<StreamId, Option<u64>>,
    ) -> Result<(), NotCopied> {
        while !lacking.is_empty() {
            let next = lacking.iter().take(PORTION_STREAMS);
            let wanted = self.wanted_from(next.map(|(id, have)| (*id, *have)).collect()).await?;
            let expected: BTreeMap<StreamId, u64> =
                wanted.iter().map(|wanted| (wanted.stream.0, wanted.from)).collect();
            let StoreReply::Records { portion, hash } =
                self.origin.ask(StoreRequest::Records { wanted }).await?
            else {
                return Err(NotCopied::Senseless("no records"));
            };
            if blake3::hash(&portion) != hash {
                return Err(NotCopied::Damaged);
            }
            let parts: Vec<Part> = minicbor::decode(&portion)
                .map_err(|_| NotCopied::Senseless("a portion cannot be read"))?;
            if parts.is_empty() {
                return Err(NotCopied::Senseless("an empty portion"));
            }
            for part in &parts {
                let Stream(stream) = part.stream;
                if expected.get(&stream) != Some(&part.from) {
                    return Err(NotCopied::Senseless("what was not asked for"));
                }
                if part.more && part.records.is_empty() {
                    return Err(NotCopied::Senseless("nothing, and more of it"));
                }
                if part.more {
                    lacking.insert(stream, Some(part.from + part.records.len() as u64));
                } else {
                    lacking.remove(&stream);
                }
            }
            self.store_parts(parts).await?;
        }
        Ok(())
    }

    /// The first missing record of streams: the local end is looked up, unless it is known.
    async fn wanted_from(
        &self,
        lacking: Vec<(StreamId, Option<u64>)>,
    ) -> Result<Vec<Wanted>, NotCopied> {
        let store = self.store.clone();
        let look = move || {
            let length = |stream| {
                let own = store.listing().map(|listing| listing.stream(stream)).transpose()?;
                Ok::<_, legwork_store::Error>(own.flatten().map_or(0, |own| own.version.0))
            };
            let wanted = lacking.into_iter().map(|(stream, have)| {
                let from = have.map_or_else(|| length(stream), Ok)?;
                Ok(Wanted { stream: Stream(stream), from })
            });
            wanted.collect::<Result<_, legwork_store::Error>>()
        };
        Ok(spawn_blocking(look).await.map_err(broken)??)
    }

    async fn store_parts(&mut self, parts: Vec<Part>) -> Result<(), NotCopied> {
        let (mut batch, mut bytes) = (Batch::default(), 0);
        let streams = parts.iter().filter(|part| !part.more).count() as u64;
        for Part { stream: Stream(stream), from, records, mut summary, snapshot, .. } in parts {
            let count = records.len() as u64;
            for (number, record) in (0..).zip(records) {
                bytes += record.len() as u64;
                let is_last = number + 1 == count;
                let close = if is_last { summary.take().map(Vec::from) } else { None };
                let expected = Version(from + number);
                batch.appends.push(Append { stream, expected, record: record.into(), close });
            }
            // A snapshot of an earlier version, or of a closed stream, would be refused.
            if let Some((version, snapshot)) = snapshot.filter(|_| count > 0) {
                let version = Version(version);
                batch.snapshots.push(Snapshot { stream, version, bytes: snapshot.into() });
            }
        }
        let store = self.store.clone();
        spawn_blocking(move || store.commit(batch)).await.map_err(broken)??;
        self.progress.send_modify(|progress| {
            progress.bytes_copied += bytes;
            progress.streams_copied += streams;
        });
        Ok(())
    }

    /// Copies the missing blobs.
    async fn blobs(&mut self) -> Result<(), NotCopied> {
        let mut after: Option<Blob> = None;
        loop {
            let StoreReply::Blobs(blobs) = self.origin.ask(StoreRequest::Blobs { after }).await?
            else {
                return Err(NotCopied::Senseless("no blobs"));
            };
            let Some((last, _)) = blobs.last().copied() else { return Ok(()) };
            if after.is_some_and(|after| last <= after) {
                return Err(NotCopied::Senseless("blobs are not in order"));
            }
            for (blob, size) in blobs {
                let (store, name) = (self.store.clone(), BlobId::from(blob));
                let own = spawn_blocking(move || store.blob_size(name)).await.map_err(broken)??;
                if own != Some(size) {
                    self.blob(blob, size).await?;
                }
            }
            after = Some(last);
        }
    }

    async fn blob(&mut self, blob: Blob, size: u64) -> Result<(), NotCopied> {
        if size > legwork_store::BLOB_BYTES_MAX as u64 {
            return Err(NotCopied::Senseless("a blob is larger than any can be"));
        }
        let mut content: Vec<u8> = Vec::new();
        while (content.len() as u64) < size {
            let from = content.len() as u64;
            let StoreReply::Content(piece) =
                self.origin.ask(StoreRequest::Content { blob, from }).await?
            else {
                return Err(NotCopied::Senseless("no content"));
            };
            if piece.is_empty() {
                return Err(NotCopied::Senseless("a content ends too early"));
            }
            content.extend_from_slice(&piece);
        }
        let bytes = content.len() as u64;
        if BlobId::of(&content) != BlobId::from(blob) {
            return Err(NotCopied::Damaged);
        }
        let store = self.store.clone();
        spawn_blocking(move || store.put_blob(&content)).await.map_err(broken)??;
        self.progress.send_modify(|progress| progress.bytes_copied += bytes);
        Ok(())
    }

    async fn digest(&mut self) -> Result<Hash, NotCopied> {
        let (store, mut sums) = (self.store.clone(), std::mem::take(&mut self.sums));
        let made = spawn_blocking(move || (sums.digest(&*store), sums)).await.map_err(broken)?;
        self.sums = made.1;
        Ok(made.0?)
    }
}

fn broken(error: tokio::task::JoinError) -> NotCopied {
    NotCopied::Broken(error.to_string())
}
