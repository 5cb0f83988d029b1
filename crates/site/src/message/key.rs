//! How a server learns whether an idempotency key was used, or a case was open, at another server of its domain.

use legwork_model::event::RecordedAt;
use legwork_model::id::StreamId;
use minicbor::{Decode, Encode};

/// About one key, or one case.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat, context_bound = "AsRef<RecordedAt>")]
pub enum Key {
    /// Was this idempotency key used there? Or was this case there, where it is over then?
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

/// A key or a case, and under how many versions of its domain's weights it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct KeyQuestion {
    /// The stream of the key or case.
    #[cbor(n(0), with = "legwork_model::id::stream_bytes")]
    pub key: StreamId,
    #[n(1)]
    pub versions: u32,
}
