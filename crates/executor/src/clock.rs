//! The clock: the only place where an executor reads the time of day, for signatures.
//!
//! Invariant: no duration is measured with it; it may be set back at any time.

use std::time::{SystemTime, UNIX_EPOCH};

use legwork_model::time::Timestamp;

#[expect(clippy::disallowed_methods, reason = "the clock")]
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
