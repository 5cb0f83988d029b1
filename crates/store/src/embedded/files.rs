//! Durable operations on files and directories.
//!
//! Invariant: when a function here returns `Ok`, what it did survives a power cut.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::Error;

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Path) -> Result<(), Error> {
    let opened = File::open(dir).map_err(Error::io("opening", dir))?;
    opened.sync_all().map_err(Error::io("syncing", dir))
}

/// Makes the name of a new directory durable, if its parent can be opened.
pub(super) fn sync_parent(dir: &Path) -> Result<(), Error> {
    match dir.parent().map(File::open) {
        Some(Ok(parent)) => parent.sync_all().map_err(Error::io("syncing the parent of", dir)),
        Some(Err(_)) | None => Ok(()),
    }
}

/// Reads a file that belongs to the store.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(Error::damaged(path, "it is missing"))
        }
        other => other.map_err(Error::io("reading", path)),
    }
}

/// Puts a file in place at once: it has this content or does not exist (or is as it was before).
pub(super) fn write_atomic(path: &Path, through: &Path, content: &[u8]) -> Result<(), Error> {
    let mut file = File::create(through).map_err(Error::io("creating", through))?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // Leaves no partial file on a disk that may be full; the error of the write is the one to
        // report.
        let _ = fs::remove_file(through);
        return Err(Error::io("writing", through)(error));
    }
    fs::rename(through, path).map_err(Error::io("renaming", through))?;
    sync_parent(path)
}

/// The names in a directory; none if it does not exist.
pub(super) fn names(dir: &Path) -> Result<Vec<String>, Error> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("listing", dir)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::io("listing", dir))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// The bytes that the files below a directory occupy on disk: a journal is allocated in advance
/// and occupies only what has been written. Files that vanish meanwhile count nothing.
pub(super) fn occupied(dir: &Path) -> Result<u64, Error> {
    let mut bytes = 0;
    for name in names(dir)? {
        let path = dir.join(name);
        let is_dir = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir());
        bytes += if is_dir { occupied(&path)? } else { occupied_by(&path)? };
    }
    Ok(bytes)
}

/// The bytes that one file occupies on disk; none if it is not there.
pub(super) fn occupied_by(path: &Path) -> Result<u64, Error> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(metadata.blocks() * 512),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(Error::io("inspecting", path)(error)),
    }
}
