//! The contents of a store in order, for copying it to another place.
//!
//! Invariant: every stream and every blob that existed when the listing was requested is listed
//! once. Streams only grow, so an earlier copy of a stream is a prefix of it.

use legwork_model::id::StreamId;

use crate::{BlobId, Error, Version};

/// A stream with its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub stream: StreamId,
    pub version: Version,
    /// The summary, if it is closed.
    pub summary: Option<Vec<u8>>,
}

/// A store with a listing of its contents.
pub trait Listing {
    /// At most `limit` streams with ids above `after`, the smallest id first.
    fn streams(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<Listed>, Error>;

    /// One stream, if it is there.
    fn stream(&self, stream: StreamId) -> Result<Option<Listed>, Error>;

    /// At most `limit` blobs with names above `after`, the smallest first.
    fn blobs(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<BlobId>, Error>;
}
