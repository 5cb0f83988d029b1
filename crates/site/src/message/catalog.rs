//! Replication of the catalog to all servers.

use legwork_model::event::RecordedAt;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use super::is_no;

/// About the records of the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat, context_bound = "AsRef<RecordedAt>")]
pub enum Catalog {
    /// Announces the number of records at the sender: a receiver with more sends them, one with fewer requests them.
    #[n(5)]
    Wanted {
        #[n(0)]
        have: u64,
        /// The receiver has to announce its own number, even if it is the same.
        #[cbor(n(1), skip_if = "is_no")]
        answer: bool,
    },
    /// Records of the catalog, as they are stored.
    #[n(6)]
    Records {
        /// The number of the first record.
        #[n(0)]
        from: u64,
        /// The checksum of all records before it: see `chain`.
        #[n(1)]
        before: u64,
        #[n(2)]
        records: Vec<ByteVec>,
    },
}
