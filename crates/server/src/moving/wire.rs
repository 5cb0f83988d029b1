//! What the new host of a server asks the old one, and the answers.
//!
//! Invariant: an answer is bounded whatever was asked. Numbers in `#[n(…)]` are the wire format.

use legwork_model::id::StreamId;
use legwork_store::BlobId;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

/// A hash by BLAKE3.
pub(crate) type Hash = [u8; 32];

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum StoreRequest {
    /// How is it with the server that moves?
    #[n(0)]
    State {
        /// All but a little has been copied.
        #[n(0)]
        is_close: bool,
    },
    /// Which streams are there, after this one?
    #[n(1)]
    Streams {
        #[n(0)]
        after: Option<Stream>,
    },
    /// What these have, each from a number of records on.
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
    /// Which blobs are there, after this one?
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
    /// Give the server away: nothing is written there from now on, whatever becomes of the change.
    #[n(6)]
    Seal {
        /// The change that moves it.
        #[n(0)]
        change: u32,
    },
    /// The digest over all streams.
    #[n(7)]
    Digest,
    /// Give the server back, which was taken over by its lease.
    #[n(8)]
    Release,
    /// By which lease is the server held?
    #[n(9)]
    Lease,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) enum StoreReply {
    #[n(0)]
    State(#[n(0)] State),
    /// In the order of their ids; none if there are no more.
    #[n(1)]
    Streams(#[n(0)] Vec<Head>),
    /// The beginning of what was asked for: as much as fits.
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
        /// `None` if that is not known any more: all have to be compared.
        #[n(0)]
        streams: Option<Vec<Stream>>,
        /// What was written later is told by asking from here on.
        #[n(1)]
        mark: Mark,
    },
    /// In the order of their names, with their sizes; none if there are no more.
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
    /// `None` if the store is no shared one, and so can be copied.
    #[n(10)]
    Lease(#[n(0)] Option<Lease>),
}

/// By what a server in a shared database is held.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Lease {
    #[n(0)]
    pub(crate) holder: String,
    #[n(1)]
    pub(crate) epoch: u64,
}

/// How it is with a server that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct State {
    /// What is written from now on is told by asking from here on.
    #[n(0)]
    pub(crate) mark: Mark,
    /// The change that moves it has begun: nothing but the catalog is written any more.
    #[n(1)]
    pub(crate) change: Option<u32>,
    /// What the store occupies, to tell how far it is.
    #[n(2)]
    pub(crate) bytes: u64,
}

/// A moment in the life of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Mark {
    /// Another one after every start: what was remembered is forgotten with it.
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

/// How far a stream goes.
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

/// Some records of a stream, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Part {
    #[n(0)]
    pub(crate) stream: Stream,
    /// The number of the first one.
    #[n(1)]
    pub(crate) from: u64,
    #[n(2)]
    pub(crate) records: Vec<ByteVec>,
    /// These are the last ones of a stream that has ended: its summary.
    #[n(3)]
    pub(crate) summary: Option<ByteVec>,
    /// These are the last ones so far; a snapshot, after how many records.
    #[n(4)]
    pub(crate) snapshot: Option<(u64, ByteVec)>,
    /// There are more.
    #[n(5)]
    pub(crate) more: bool,
}

/// The way to the old host.
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
