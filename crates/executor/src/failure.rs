//! How a handler reports that a task failed.
//!
//! Invariant: a failure is either retried or not, and its reason fits into a history.

/// The longest reason, in bytes; a longer one is cut.
const REASON_BYTES_MAX: usize = 4_000;

/// Any error becomes a retriable failure, so `?` works in handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub(crate) reason: String,
    pub(crate) retry: bool,
}

impl Failure {
    /// Retriable: the task may succeed another time, or elsewhere.
    pub fn again(reason: impl Into<String>) -> Self {
        Self { reason: cut(reason.into()), retry: true }
    }

    /// Not retriable: a person has to look at it.
    pub fn forever(reason: impl Into<String>) -> Self {
        Self { reason: cut(reason.into()), retry: false }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::again(error.to_string())
    }
}

fn cut(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let failure = Failure::forever("ü".repeat(REASON_BYTES_MAX));
        assert_eq!(failure.reason.len(), REASON_BYTES_MAX);
        let failure = Failure::again(format!("a{}", "ü".repeat(REASON_BYTES_MAX)));
        assert_eq!(failure.reason.len(), REASON_BYTES_MAX - 1);
    }

    #[test]
    fn errors_are_failures_that_may_pass() {
        let fail = || -> Result<(), Failure> { Ok("x".parse::<u32>().map(|_| ())?) };
        assert!(fail().unwrap_err().retry);
    }
}
