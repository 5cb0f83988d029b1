//! What can go wrong between a caller and a server.
//!
//! Invariant: every message says what to do next.

use std::sync::Arc;
use std::time::Duration;

use crate::Problem;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused, and says why.
    #[error(transparent)]
    Problem(Box<Problem>),

    #[error("`{url}` is not a usable address: {reason}")]
    BadAddress { url: String, reason: &'static str },

    #[error("the token has characters that no token has; copy it again from where it was printed")]
    BadToken,

    #[error("`{text}` is not a usable {what}; use printable ASCII characters")]
    BadArgument { what: &'static str, text: String },

    #[error(
        "cannot reach a server at {authority}: {reason}; \
         start one with `legwork up`, or name the address of another"
    )]
    Unreachable { authority: Arc<str>, reason: String },

    #[error(
        "the connection to {authority} broke: {reason}; the request may have been carried out: \
         look, or repeat it with the same idempotency key"
    )]
    Broken { authority: Arc<str>, reason: String },

    #[error(
        "no answer from {authority} within {} s; the request may have been carried out: \
         look, or repeat it with the same idempotency key", .after.as_secs()
    )]
    TimedOut { authority: Arc<str>, after: Duration },

    #[error(
        "{authority} answered {status} with something that was not understood ({detail}); \
         check that it is a Legwork server of the same version"
    )]
    Unexpected { authority: Arc<str>, status: u16, detail: String },
}

impl Error {
    /// The refusal of the server, if it is one.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Problem(problem) => Some(problem),
            Self::BadAddress { .. }
            | Self::BadToken
            | Self::BadArgument { .. }
            | Self::Unreachable { .. }
            | Self::Broken { .. }
            | Self::TimedOut { .. }
            | Self::Unexpected { .. } => None,
        }
    }

    /// The stable code of the server's refusal.
    pub fn code(&self) -> Option<&str> {
        self.problem().map(|problem| problem.code.as_str())
    }
}
