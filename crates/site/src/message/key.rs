//! Whether an idempotency key was used, or a case was open, at another server of the domain.

use legwork_model::event::RecordedAt;
use legwork_model::id::StreamId;
use minicbor::{Decode, Encode};

/// About one key, or one case.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat, context_bound = "AsRef<RecordedAt>")]
pub enum Key {
    /// Asks whether this idempotency key was used at the receiver, or whether this case was there and is over.
    #[n(11)]
    Wanted(#[n(0)] KeyQuestion),
    #[n(12)]
    Used {
        #[n(0)]
        question: KeyQuestion,
        #[n(1)]
        is_used: bool,
    },
}

/// A key or a case, and the number of divisions of its domain under which it is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct KeyQuestion {
    /// The stream of the key or case.
    #[cbor(n(0), with = "legwork_model::id::stream_bytes")]
    pub key: StreamId,
    #[n(1)]
    pub versions: u32,
}
