//! Blobs as files named by their content: `blobs/<first byte>/<the other 31 bytes>`, in hex.
//!
//! Invariant: a file under its final name is whole and durable. Its content is verified by its
//! name whenever it is read, and written anew when the same content is put over a damaged file.
//!
//! Files and not the log-structured tables: a blob of 100 MB would otherwise go through the
//! journal, the memory of the tables and each of their compactions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::files::{names, occupied, occupied_by, sync_dir, write_atomic};
use crate::admit::check_blob;
use crate::{BlobId, Error};

#[derive(Debug)]
pub(super) struct Blobs {
    dir: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    /// The folders whose names are known to be durable. A folder that was left by a crash between
    /// a rename and the sync of its directory must be synced before its blobs are acknowledged.
    synced: [bool; 256],
    /// The disk use of all blobs: counted on the first request, maintained from then on.
    occupied: Option<u64>,
}

/// Overwritten by each put: at most one unfinished file is ever left behind.
const INCOMING: &str = "incoming";

impl Blobs {
    pub(super) fn open(dir: PathBuf) -> Self {
        Self { dir, known: Mutex::new(Known { synced: [false; 256], occupied: None }) }
    }

    pub(super) fn create(dir: &Path) -> Result<(), Error> {
        fs::create_dir_all(dir).map_err(Error::io("creating", dir))
    }

    pub(super) fn put(&self, content: &[u8]) -> Result<BlobId, Error> {
        check_blob(content)?;
        let id = BlobId::of(content);
        let (folder, path) = self.place(id);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let Known { synced, occupied } = &mut *known;
        let synced = &mut synced[usize::from(id.0[0])];
        let present = match fs::read(&path) {
            Ok(found) => found == content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(Error::io("reading", &path)(error)),
        };
        if present && *synced {
            return Ok(id);
        }
        if present {
            sync_dir(&folder)?;
        } else {
            fs::create_dir_all(&folder).map_err(Error::io("creating", &folder))?;
            let before = occupied_by(&path)?;
            write_atomic(&path, &self.dir.join(INCOMING), content)?;
            if let Some(bytes) = occupied {
                *bytes = (*bytes + occupied_by(&path)?).saturating_sub(before);
            }
        }
        if !*synced {
            sync_dir(&self.dir)?;
        }
        *synced = true;
        Ok(id)
    }

    pub(super) fn get(&self, id: BlobId) -> Result<Option<Vec<u8>>, Error> {
        let (_, path) = self.place(id);
        let content = match fs::read(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("reading", &path)(error)),
        };
        if BlobId::of(&content) != id {
            return Err(Error::damaged(&path, "its content does not fit its name"));
        }
        Ok(Some(content))
    }

    /// The length of a content, from its file.
    pub(super) fn size(&self, id: BlobId) -> Result<Option<u64>, Error> {
        let (_, path) = self.place(id);
        match fs::metadata(&path) {
            Ok(found) => Ok(Some(found.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("reading", &path)(error)),
        }
    }

    /// The disk use of all blobs. The first call visits all files, possibly millions.
    pub(super) fn occupied(&self) -> Result<u64, Error> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known.occupied {
            return Ok(bytes);
        }
        let bytes = occupied(&self.dir)?;
        known.occupied = Some(bytes);
        Ok(bytes)
    }

    /// All blobs, in the order of their ids.
    pub(super) fn list(&self) -> Result<Vec<BlobId>, Error> {
        self.list_after(None, usize::MAX)
    }

    /// At most `limit` blobs after this one, in the order of their ids. Only the folders that these
    /// are in are read.
    pub(super) fn list_after(
        &self,
        after: Option<BlobId>,
        limit: usize,
    ) -> Result<Vec<BlobId>, Error> {
        let mut ids = Vec::new();
        let first = after.map(|after| after.to_string());
        let first = first.as_deref().and_then(|name| name.get(..2)).unwrap_or_default();
        for folder in names(&self.dir)?.into_iter().filter(|name| name != INCOMING) {
            if folder.as_str() < first {
                continue;
            }
            if ids.len() >= limit {
                break;
            }
            for file in names(&self.dir.join(&folder))? {
                let id = parse(&folder, &file).ok_or_else(|| {
                    Error::damaged(&self.dir.join(&folder).join(&file), "its name is not a hash")
                })?;
                if after.is_none_or(|after| id > after) {
                    ids.push(id);
                }
            }
        }
        ids.truncate(limit);
        Ok(ids)
    }

    fn place(&self, id: BlobId) -> (PathBuf, PathBuf) {
        let name = id.to_string();
        let (folder, file) = name.split_at(2);
        let folder = self.dir.join(folder);
        let path = folder.join(file);
        (folder, path)
    }
}

fn parse(folder: &str, file: &str) -> Option<BlobId> {
    let hash = blake3::Hash::from_hex(format!("{folder}{file}")).ok()?;
    Some(BlobId(*hash.as_bytes()))
}
