//! What a store holds, told in order: for whoever copies it to another place.
//!
//! Invariant: every stream and every blob that was there when the listing was asked for is told of
//! once. Streams only grow, so that a copy of one that was made before is a beginning of it.

use legwork_model::id::StreamId;

use crate::{BlobId, Error, Version};

/// A stream, and how far it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub stream: StreamId,
    pub version: Version,
    /// If it has ended: the summary given then.
    pub summary: Option<Vec<u8>>,
}

/// A store whose contents can be listed.
pub trait Listing {
    /// At most `limit` streams with ids above `after`, the smallest id first.
    fn streams(&self, after: Option<StreamId>, limit: usize) -> Result<Vec<Listed>, Error>;

    /// One stream, if it is there.
    fn stream(&self, stream: StreamId) -> Result<Option<Listed>, Error>;

    /// At most `limit` blobs with names above `after`, the smallest first.
    fn blobs(&self, after: Option<BlobId>, limit: usize) -> Result<Vec<BlobId>, Error>;
}
