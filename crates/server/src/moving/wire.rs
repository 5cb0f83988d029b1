//! The protocol between the new host of a server and the old one.
//!
//! Invariant: an answer is bounded, whatever the request. Numbers in `#[n(…)]` are the wire format.

use legwork_model::id::StreamId;
use legwork_store::BlobId;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// A BLAKE3 hash.
pub(crate) type Hash = [u8; 32];

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum StoreRequest {
    /// The state of the server that moves?
    #[n(0)]
    State {
        /// Almost everything has been copied.
        #[n(0)]
        is_close: bool,
    },
    /// Which streams exist, after this one?
    #[n(1)]
    Streams {
        #[n(0)]
        after: Option<Stream>,
    },
    /// The records of these, each from an index on.
    #[n(2)]
    Records {
        #[n(0)]
        wanted: Vec<Wanted>,
    },
    /// Which streams were written to since?
    #[n(3)]
    Written {
        #[n(0)]
        since: Mark,
    },
    /// Which blobs exist, after this one?
    #[n(4)]
    Blobs {
        #[n(0)]
        after: Option<Blob>,
    },
    /// A blob, from a byte on.
    #[n(5)]
    Content {
        #[n(0)]
        blob: Blob,
        #[n(1)]
        from: u64,
    },
    /// Give the server away: nothing is written there from now on, whatever the outcome of the
    /// change.
    #[n(6)]
    Seal {
        /// The change that moves it.
        #[n(0)]
        change: u32,
    },
    /// The digest over all streams.
    #[n(7)]
    Digest,
    /// Give back a server that was taken over by its lease.
    #[n(8)]
    Release,
    /// Which lease holds the server?
    #[n(9)]
    Lease,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum StoreReply {
    #[n(0)]
    State(#[n(0)] State),
    /// In the order of their ids; empty at the end.
    #[n(1)]
    Streams(#[n(0)] Vec<Head>),
    /// The beginning of the requested records: as much as fits.
    #[n(2)]
    Records {
        /// An encoded `Vec<Part>`.
        #[n(0)]
        portion: ByteVec,
        /// Of the portion.
        #[cbor(n(1), with = "minicbor::bytes")]
        hash: Hash,
    },
    #[n(3)]
    Written {
        /// `None` if that is no longer tracked: everything has to be compared.
        #[n(0)]
        streams: Option<Vec<Stream>>,
        /// Later writes are requested from this mark on.
        #[n(1)]
        mark: Mark,
    },
    /// In the order of their names, with their sizes; empty at the end.
    #[n(4)]
    Blobs(#[n(0)] Vec<(Blob, u64)>),
    #[n(5)]
    Content(#[n(0)] ByteVec),
    #[n(6)]
    Sealed,
    #[n(7)]
    Digest(#[cbor(n(0), with = "minicbor::bytes")] Hash),
    /// It cannot be answered now; ask again later.
    #[n(8)]
    NotNow(#[n(0)] String),
    /// The lease is free.
    #[n(9)]
    Released,
    /// `None` if the store is not shared, and so can be copied.
    #[n(10)]
    Lease(#[n(0)] Option<Lease>),
}

/// The lease of a server in a shared database.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Lease {
    #[n(0)]
    pub(crate) holder: String,
    #[n(1)]
    pub(crate) epoch: u64,
}

/// The state of a server that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct State {
    /// Later writes are requested from this mark on.
    #[n(0)]
    pub(crate) mark: Mark,
    /// The change that moves it has begun: only the catalog is still written.
    #[n(1)]
    pub(crate) change: Option<u32>,
    /// The size of the store, for the progress.
    #[n(2)]
    pub(crate) bytes: u64,
}

/// A position in the tracked writes of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Mark {
    /// Another one after every start: tracked writes are lost with the process.
    #[n(0)]
    pub(crate) life: u64,
    #[n(1)]
    pub(crate) number: u64,
}

/// A stream on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub(crate) struct Stream(
    #[cbor(n(0), with = "legwork_model::id::stream_bytes")] pub(crate) StreamId,
);

/// A blob on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
#[cbor(transparent)]
pub(crate) struct Blob(#[cbor(n(0), with = "minicbor::bytes")] pub(crate) Hash);

/// The length of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Head {
    #[n(0)]
    pub(crate) stream: Stream,
    #[n(1)]
    pub(crate) version: u64,
    #[n(2)]
    pub(crate) is_closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Wanted {
    #[n(0)]
    pub(crate) stream: Stream,
    #[n(1)]
    pub(crate) from: u64,
}

/// Consecutive records of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Part {
    #[n(0)]
    pub(crate) stream: Stream,
    /// The index of the first one.
    #[n(1)]
    pub(crate) from: u64,
    #[n(2)]
    pub(crate) records: Vec<ByteVec>,
    /// The summary of a closed stream, with its last records.
    #[n(3)]
    pub(crate) summary: Option<ByteVec>,
    /// A snapshot with the number of its records, after the last records so far.
    #[n(4)]
    pub(crate) snapshot: Option<(u64, ByteVec)>,
    /// There are more.
    #[n(5)]
    pub(crate) more: bool,
}

/// The connection to the old host.
pub(crate) trait Origin: Send {
    fn ask(
        &mut self,
        request: StoreRequest,
    ) -> impl Future<Output = Result<StoreReply, Unanswered>> + Send;
}

/// The old host did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unanswered(pub(crate) String);

impl From<Blob> for BlobId {
    fn from(Blob(hash): Blob) -> Self {
        Self(hash)
    }
}

impl From<BlobId> for Blob {
    fn from(BlobId(hash): BlobId) -> Self {
        Self(hash)
    }
}
