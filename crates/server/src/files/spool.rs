//! Chunks of incomplete contents on disk: a transfer survives the process.
//!
//! Invariant: only a cache. A chunk with a wrong hash is not used, and a chunk that cannot be
//! written or read is fetched again. The total size is bounded.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;
use legwork_store::BlobId;

use super::chunks::{CHUNK_BYTES_MAX, Hash, Have};

const FOLDER: &str = "transfers";
/// Four of the largest files.
const BYTES_MAX: u64 = 256 << 20;
const HASH_BYTES: usize = 32;
const LENGTH_BYTES: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Spool {
    /// `None` for a store without a folder: then nothing is kept.
    folder: Option<PathBuf>,
}

impl Spool {
    /// Next to the store, in a folder.
    pub(crate) fn beside(store: Option<&Path>) -> Self {
        Self { folder: store.map(|store| store.join(FOLDER)) }
    }

    /// The received chunks of a content.
    pub(super) fn read(&self, blob: Hash) -> Have {
        let Some(file) = self.file(blob) else { return Have::new() };
        let Ok(bytes) = fs::read(&file).map(Bytes::from) else { return Have::new() };
        let (have, whole) = chunks(&bytes);
        if whole < bytes.len() {
            // A crash may have truncated the last one: new chunks must not follow it.
            let cut = fs::OpenOptions::new().write(true).open(&file);
            if cut.and_then(|file| file.set_len(whole as u64)).is_err() {
                self.remove(blob);
            }
        }
        have
    }

    /// Appends chunks of a content.
    pub(super) fn add<'c>(&self, blob: Hash, chunks: impl Iterator<Item = (&'c Hash, &'c Bytes)>) {
        let Some(file) = self.file(blob) else { return };
        if let Err(error) = self.append(&file, chunks) {
            tracing::debug!(file = %file.display(), reason = %error, "chunks are not kept");
        }
    }

    fn append<'c>(
        &self,
        file: &Path,
        chunks: impl Iterator<Item = (&'c Hash, &'c Bytes)>,
    ) -> io::Result<()> {
        if !file.exists() {
            self.make_room()?;
        }
        let mut bytes = Vec::new();
        for (hash, chunk) in chunks {
            bytes.extend_from_slice(hash);
            bytes.extend_from_slice(&(chunk.len() as u32).to_le_bytes());
            bytes.extend_from_slice(chunk);
        }
        fs::OpenOptions::new().create(true).append(true).open(file)?.write_all(&bytes)
    }

    /// The content is complete.
    pub(super) fn remove(&self, blob: Hash) {
        if let Some(file) = self.file(blob) {
            // A remaining file is removed for others some day.
            drop(fs::remove_file(file));
        }
    }

    /// Removes the oldest.
    fn make_room(&self) -> io::Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        fs::create_dir_all(folder)?;
        let mut kept: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let found = entry.metadata()?;
            kept.push((found.modified()?, found.len(), entry.path()));
        }
        kept.sort();
        let mut bytes: u64 = kept.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, size, file) in kept {
            if bytes <= BYTES_MAX {
                break;
            }
            fs::remove_file(file)?;
            bytes -= size;
        }
        Ok(())
    }

    fn file(&self, blob: Hash) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(BlobId(blob).to_string()))
    }
}

/// The complete chunks, and their bytes with framing.
fn chunks(bytes: &Bytes) -> (Have, usize) {
    let (mut have, mut rest) = (Have::new(), bytes.clone());
    while let Some((head, length)) = head(&rest) {
        let body = rest.slice(HASH_BYTES + LENGTH_BYTES..);
        if length > CHUNK_BYTES_MAX || body.len() < length {
            break;
        }
        let chunk = body.slice(..length);
        if blake3::hash(&chunk) == head {
            have.insert(head, chunk);
        }
        rest = body.slice(length..);
    }
    (have, bytes.len() - rest.len())
}

fn head(bytes: &[u8]) -> Option<(Hash, usize)> {
    let (hash, rest) = bytes.split_first_chunk::<HASH_BYTES>()?;
    let length = rest.first_chunk::<LENGTH_BYTES>()?;
    Some((*hash, u32::from_le_bytes(*length) as usize))
}
