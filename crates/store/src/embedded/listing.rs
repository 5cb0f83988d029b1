//! All streams and blobs in order, for copying the store.
//!
//! Invariant: one view per answer. Open and closed streams are two tables in the same order, merged
//! as they are read; the length of a stream follows from its last record.

use std::ops::Bound;

use fjall::Readable;
use legwork_model::id::StreamId;

use super::{Embedded, View, keys};
use crate::listing::{Listed, Listing};
use crate::{BlobId, Error, Version};

impl Listing for Embedded {
    fn streams(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<Listed>, Error> {
        let view = self.view();
        let above = match after {
            Some(after) => Bound::Excluded(keys::stream(after)),
            None => Bound::Included(keys::STREAMS.start),
        };
        let range = (above, Bound::Unbounded);
        let open = view.range::<[u8; 16], _>(&self.open, range).map(|item| {
            let key = item.key().map_err(|error| self.failed(error))?;
            Ok((self.parse_stream(&key)?, None))
        });
        let closed = view.range::<[u8; 16], _>(&self.closed, range).map(|item| {
            let (key, summary) = item.into_inner().map_err(|error| self.failed(error))?;
            Ok((self.parse_stream(&key)?, Some(summary.to_vec())))
        });
        let (mut open, mut closed) = (open.peekable(), closed.peekable());
        let mut listed = Vec::new();
        while listed.len() < limit {
            let open_is_next = match (open.peek(), closed.peek()) {
                (Some(Ok((open, _))), Some(Ok((closed, _)))) => open < closed,
                (Some(_), None) | (Some(Err(_)), Some(_)) => true,
                (Some(Ok(_)) | None, Some(_)) | (None, None) => false,
            };
            let next = if open_is_next { open.next() } else { closed.next() };
            let Some(next) = next else { break };
            let (stream, summary): (StreamId, Option<Vec<u8>>) = next?;
            let version = self.length(&view, stream)?;
            listed.push(Listed { stream, version, summary });
        }
        Ok(listed)
    }

    /// A point lookup, not the first of a range: in the table of open streams a range would pass
    /// over all tombstones of ended streams, up to the next open one.
    fn stream(&self, stream: StreamId) -> Result<Option<Listed>, Error> {
        let (view, key) = (self.view(), keys::stream(stream));
        let summary = view.get(&self.closed, key).map_err(|error| self.failed(error))?;
        let is_open = || view.contains_key(&self.open, key).map_err(|error| self.failed(error));
        if summary.is_none() && !is_open()? {
            return Ok(None);
        }
        let version = self.length(&view, stream)?;
        Ok(Some(Listed { stream, version, summary: summary.map(|summary| summary.to_vec()) }))
    }

    fn blobs(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<BlobId>, Error> {
        self.blobs.list_after(after, limit)
    }
}

impl Embedded {
    fn length(&self, view: &View, stream: StreamId) -> Result<Version, Error> {
        let all = keys::record(stream, Version(0))..=keys::record(stream, Version(u64::MAX));
        let last = view.range(&self.records, all).next_back();
        let last = last.map(fjall::Guard::key).transpose().map_err(|error| self.failed(error))?;
        let last = last.as_deref().and_then(keys::parse_record);
        let (_, Version(last)) =
            last.ok_or_else(|| self.damaged(format!("{stream:?} is listed, but has no records")))?;
        Ok(Version(last + 1))
    }
}
