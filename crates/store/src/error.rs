//! Why a store refuses or fails.
//!
//! Invariant: each message names what is wrong, where, and what to do next.

use std::io;
use std::path::{Path, PathBuf};

use legwork_model::id::{StreamId, StreamKind};

use crate::Version;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "version conflict on {}: expected {expected}, found {found}; \
         read the stream again and decide anew", name(.stream)
    )]
    Conflict { stream: StreamId, expected: Version, found: Version },

    #[error("{} is closed: nothing can be appended to it", name(.stream))]
    Closed { stream: StreamId },

    #[error("{what} of {size} exceeds the limit of {max}")]
    TooLarge { what: &'static str, size: u64, max: u64 },

    #[error(
        "snapshot of {} after {version} records, but the stream has {found}; \
         snapshot only what is committed", name(.stream)
    )]
    Snapshot { stream: StreamId, version: Version, found: Version },

    #[error(
        "the store at {} is in use by another process; stop that server, \
         or start this one on another directory", .path.display()
    )]
    Locked { path: PathBuf },

    #[error(
        "the store at {} has format {found}, this program knows formats up to {known}; \
         use a newer legwork; nothing was changed", .path.display()
    )]
    NewerFormat { path: PathBuf, found: u32, known: u32 },

    #[error(
        "{} is not a store: {reason}; \
         choose an empty or a new directory", .path.display()
    )]
    NotAStore { path: PathBuf, reason: String },

    #[error(
        "{} is damaged: {detail}; the files were left as they are: \
         check the disk and restore the last backup into a new directory", .path.display()
    )]
    Damaged { path: PathBuf, detail: String },

    #[error(
        "the store has stopped after a failure ({cause}); free space or repair, then reopen it"
    )]
    Stopped { cause: String },

    #[error("cannot restore into {}: it is not empty; name a new directory", .path.display())]
    NotEmpty { path: PathBuf },

    #[error("this is not a usable backup: {detail}; nothing was restored, use another backup file")]
    BadBackup { detail: String },

    #[error("{action} {} failed: {error}", .path.display())]
    Io { action: &'static str, path: PathBuf, error: io::Error },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_path_buf();
        move |error| Self::Io { action, path, error }
    }

    pub(crate) fn damaged(path: &Path, detail: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_path_buf(), detail: detail.into() }
    }
}

fn name(stream: &StreamId) -> String {
    match stream.kind() {
        StreamKind::Site => "the site's stream".to_owned(),
        StreamKind::Instance(id) => format!("stream {id}"),
        StreamKind::Key => format!("the stream of key {:032x}", stream.0),
    }
}
