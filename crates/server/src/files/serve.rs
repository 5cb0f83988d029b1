//! Serves contents of files to other servers.
//!
//! Invariant: read-only, with bounded memory: a content that is requested portion by portion is
//! read and cut once, as long as it is among the most recent ones.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use legwork_store::BlobId;

use super::chunks::{Chunk, Hash, PORTION_CHUNKS_MAX, cut, pack};
use super::wire::{FileReply, FileRequest};
use crate::backend::{Backend, Slot};

/// The bytes kept of recently requested contents.
const CACHE_BYTES_MAX: usize = 64 << 20;
const CACHE_FILES_MAX: usize = 64;

/// The contents that this server gives to others.
pub(crate) struct Offered {
    slot: Arc<Slot>,
    /// The most recently requested, newest last.
    cache: Mutex<VecDeque<Arc<Cut>>>,
    /// Held while a content is read: one at a time, and none twice.
    reading: Mutex<()>,
}

/// A content and its chunks.
struct Cut {
    blob: Hash,
    content: Vec<u8>,
    chunks: Vec<Chunk>,
}

impl Offered {
    pub(crate) fn new(slot: Arc<Slot>) -> Self {
        Self { slot, cache: Mutex::default(), reading: Mutex::default() }
    }

    /// Reads, cuts and compresses: not for a thread that others wait for.
    pub(crate) fn answer(&self, request: &FileRequest) -> FileReply {
        let (FileRequest::List { blob } | FileRequest::Chunks { blob, .. }) = request;
        let Some(cut) = self.cut(*blob) else { return FileReply::NotHere };
        match request {
            FileRequest::List { .. } => FileReply::List(cut.chunks.clone()),
            FileRequest::Chunks { places, .. } if places.len() <= PORTION_CHUNKS_MAX => {
                let packed = places.iter().map(|place| Some(pack(cut.piece(*place)?)));
                packed.collect::<Option<_>>().map_or(FileReply::NotHere, FileReply::Chunks)
            }
            FileRequest::Chunks { .. } => FileReply::NotHere,
        }
    }

    fn cut(&self, blob: Hash) -> Option<Arc<Cut>> {
        if let Some(found) = self.cached(blob) {
            return Some(found);
        }
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have read it meanwhile.
        if let Some(found) = self.cached(blob) {
            return Some(found);
        }
        let content = read(&*self.slot.borrow()?, blob)?;
        let cut = Arc::new(Cut { blob, chunks: cut(&content), content });
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.push_back(cut.clone());
        let sum = |cache: &VecDeque<Arc<Cut>>| -> usize {
            cache.iter().map(|cut| cut.content.len()).sum()
        };
        while cache.len() > 1 && (cache.len() > CACHE_FILES_MAX || sum(&cache) > CACHE_BYTES_MAX) {
            cache.pop_front();
        }
        Some(cut)
    }

    fn cached(&self, blob: Hash) -> Option<Arc<Cut>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let place = cache.iter().position(|cut| cut.blob == blob)?;
        let found = cache.remove(place)?;
        cache.push_back(found.clone());
        Some(found)
    }
}

impl Cut {
    fn piece(&self, place: u32) -> Option<&[u8]> {
        let before = self.chunks.get(..place as usize)?;
        let from: usize = before.iter().map(|chunk| chunk.bytes as usize).sum();
        let chunk = self.chunks.get(place as usize)?;
        self.content.get(from..from + chunk.bytes as usize)
    }
}

/// A local content; an unreadable one counts as absent.
pub(super) fn read(store: &dyn Backend, blob: Hash) -> Option<Vec<u8>> {
    match store.blob(BlobId(blob)) {
        Ok(content) => content,
        Err(error) => {
            tracing::error!(reason = %error, "a file could not be read for another server");
            None
        }
    }
}
