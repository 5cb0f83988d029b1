//! Why an executor does not start.
//!
//! Invariant: every message says what to do next.

use legwork_api::client;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the secret of executor `{executor}` has {chars} characters; give it at least {min}")]
    ShortSecret { executor: String, chars: usize, min: usize },

    #[error("executor `{executor}` does nothing; add a type of task with `on`")]
    NoTypes { executor: String },

    #[error("`{kind}` has a limit but no handler; add one with `on`")]
    NoHandler { kind: String },

    #[error("a limit of 0 lets nothing through; give at least 1")]
    NoRoom,

    #[error("`{url}` is not a usable address: {reason}")]
    BadUrl { url: String, reason: &'static str },

    #[error(
        "the executor listens at all addresses of the machine; say with `url` under which one \
         Legwork reaches it"
    )]
    NoUrl,

    #[error("the address cannot be listened at: {reason}; choose another one")]
    Listen { reason: String },

    /// The address of Legwork, or the token.
    #[error(transparent)]
    Client(#[from] client::Error),
}
