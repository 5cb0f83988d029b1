//! Files: content stored apart and known by its hash.
//!
//! Invariant: the answer to an upload is, word for word, the value of a data element of type
//! `file`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A stored file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct File {
    /// The BLAKE3 hash of the content, in hexadecimal.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    pub blob: String,
    /// Bytes.
    pub size: u64,
    pub name: String,
    pub media_type: String,
}
