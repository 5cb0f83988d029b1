//! How the catalog gets to all servers.

use legwork_model::event::RecordedAt;
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Encode};

use super::is_no;

/// About the records of the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat, context_bound = "AsRef<RecordedAt>")]
pub enum Catalog {
    /// The catalog has so many records here: who has more sends them, who has fewer asks for them.
    #[n(5)]
    Wanted {
        #[n(0)]
        have: u64,
        /// Please say how much is there, even if it is just as much.
        #[cbor(n(1), skip_if = "is_no")]
        answer: bool,
    },
    /// Records of the catalog, as they are stored.
    #[n(6)]
    Records {
        /// The number of the first one.
        #[n(0)]
        from: u64,
        /// What all records before it come to: see `chain`.
        #[n(1)]
        before: u64,
        #[n(2)]
        records: Vec<ByteVec>,
    },
}
