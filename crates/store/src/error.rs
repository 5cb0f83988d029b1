//! Why a store refuses or fails.
//!
//! Invariant: each message says what is wrong, where, and what to do next.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use legwork_model::id::{StreamId, StreamKind};

use crate::Version;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "version conflict on {}: expected {expected}, found {found}; \
         read the stream again and decide anew", name(.stream)
    )]
    Conflict { stream: StreamId, expected: Version, found: Version },

    #[error("{} is closed; append to another stream", name(.stream))]
    Closed { stream: StreamId },

    #[error("{what} of {size} exceeds the limit of {max}; nothing was stored, store less at once")]
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

    #[error("{place} cannot be a store: {reason}")]
    Unsuitable { place: String, reason: String },

    #[error(
        "{action} {place} failed: {reason}; see that PostgreSQL runs, can be reached from here and \
         lets this user in, then try again"
    )]
    Database { action: &'static str, place: String, reason: String },

    #[error(
        "server {server} is held by {holder} for another {} s unless that goes on; stop that one, or \
         wait until its lease runs out", seconds(.left)
    )]
    LeaseHeld { server: String, holder: String, left: Duration },

    #[error(
        "server {server} was taken over by another holder; nothing more can be stored from here, \
         take the lease again before going on"
    )]
    Fenced { server: String },

    #[error(
        "the lease of server {server} was not renewed in time; nothing is answered until it is had \
         again, see that PostgreSQL answers quickly"
    )]
    LeaseOver { server: String },

    #[error("{action} {} failed: {error}; {}", .path.display(), remedy(.error.kind()))]
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
        StreamKind::Plans => "the stream of plans".to_owned(),
        StreamKind::Instance(id) => format!("stream {id}"),
        StreamKind::Mail => "the stream of mail".to_owned(),
        StreamKind::Executors => "the stream of learned speeds of executors".to_owned(),
        StreamKind::Schedules => "the stream of periodic starts".to_owned(),
        StreamKind::Key => format!("the stream of key {:032x}", stream.0),
    }
}

fn seconds(left: &Duration) -> String {
    format!("{:.1}", left.as_secs_f64())
}

/// The remedy for an error of the operating system.
fn remedy(kind: io::ErrorKind) -> &'static str {
    use io::ErrorKind as Kind;

    const REMEDIES: [(&[Kind], &str); 4] = [
        (
            &[Kind::PermissionDenied],
            "let this user read and write there, or name another directory",
        ),
        (
            &[Kind::StorageFull, Kind::QuotaExceeded, Kind::FileTooLarge],
            "free space there, or name a directory on a larger disk",
        ),
        (&[Kind::ReadOnlyFilesystem], "name a directory on a disk that can be written"),
        (
            &[Kind::NotFound, Kind::NotADirectory],
            "check the path, or name a directory on a disk that can be written",
        ),
    ];
    let found = REMEDIES.iter().find(|(kinds, _)| kinds.contains(&kind));
    found.map_or("check the disk and the rights of this user, then try again", |(_, next)| next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each; a new kind of error does not compile until it is listed.
    fn all() -> Vec<Error> {
        let path = PathBuf::from("d");
        let stream = StreamId(7);
        let (version, found) = (Version(1), Version(2));
        let mut errors = vec![
            Error::Stopped { cause: "no space".to_owned() },
            Error::Conflict { stream, expected: version, found },
            Error::Closed { stream },
            Error::TooLarge { what: "record", size: 2, max: 1 },
            Error::Snapshot { stream, version, found },
            Error::Locked { path: path.clone() },
            Error::NewerFormat { path: path.clone(), found: 2, known: 1 },
            Error::NotAStore { path: path.clone(), reason: "it is a file".to_owned() },
            Error::damaged(&path, "torn"),
            Error::NotEmpty { path: path.clone() },
            Error::BadBackup { detail: "torn".to_owned() },
            Error::Unsuitable { place: "p".to_owned(), reason: "no; use another".to_owned() },
            Error::Database { action: "asking", place: "p".to_owned(), reason: "no".to_owned() },
            Error::LeaseHeld {
                server: "s".to_owned(),
                holder: "h".to_owned(),
                left: Duration::from_secs(1),
            },
            Error::Fenced { server: "s".to_owned() },
            Error::LeaseOver { server: "s".to_owned() },
        ];
        let kinds = [
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::StorageFull,
            io::ErrorKind::ReadOnlyFilesystem,
            io::ErrorKind::NotFound,
            io::ErrorKind::TimedOut,
        ];
        errors.extend(kinds.map(|kind| Error::io("reading", &path)(kind.into())));
        errors
    }

    /// Makes the compiler check that `all` is complete.
    fn is_listed(error: &Error) {
        match error {
            Error::Conflict { .. }
            | Error::Closed { .. }
            | Error::TooLarge { .. }
            | Error::Snapshot { .. }
            | Error::Locked { .. }
            | Error::NewerFormat { .. }
            | Error::NotAStore { .. }
            | Error::Damaged { .. }
            | Error::Stopped { .. }
            | Error::NotEmpty { .. }
            | Error::BadBackup { .. }
            | Error::Unsuitable { .. }
            | Error::Database { .. }
            | Error::LeaseHeld { .. }
            | Error::Fenced { .. }
            | Error::LeaseOver { .. }
            | Error::Io { .. } => {}
        }
    }

    #[test]
    fn every_error_says_what_to_do_next() {
        for error in all() {
            is_listed(&error);
            let text = error.to_string();
            let next = text.split_once("; ").map(|(_, next)| next);
            assert!(next.is_some_and(|next| next.contains(' ')), "{text}");
        }
    }
}
