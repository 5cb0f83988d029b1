//! A bounded cache of stream heads, so that most appends are checked without a lookup.
//!
//! Invariant: an entry is always true; other streams must be looked up. It has at most two
//! generations of streams and drops the older one as a whole.

use std::mem;

use legwork_model::id::StreamId;
use rustc_hash::FxHashMap;

use crate::Version;

/// A stream takes about 40 bytes: both generations together stay below 6 MiB.
const GENERATION_MAX: usize = 65_536;

/// The versions of recently used open streams.
#[derive(Debug, Default)]
pub(crate) struct Heads {
    young: FxHashMap<[u64; 2], u32>,
    old: FxHashMap<[u64; 2], u32>,
}

impl Heads {
    pub(crate) fn get(&self, stream: StreamId) -> Option<Version> {
        let key = key(stream);
        let version = self.young.get(&key).or_else(|| self.old.get(&key));
        version.map(|&version| Version(version.into()))
    }

    pub(crate) fn insert(&mut self, stream: StreamId, version: Version) {
        let Ok(version) = u32::try_from(version.0) else { return self.remove(stream) };
        if self.young.len() >= GENERATION_MAX {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key(stream), version);
    }

    pub(crate) fn remove(&mut self, stream: StreamId) {
        let key = key(stream);
        self.young.remove(&key);
        self.old.remove(&key);
    }
}

/// Two words instead of one of 128 bits, whose alignment would cost 8 bytes for each stream.
fn key(stream: StreamId) -> [u64; 2] {
    [(stream.0 >> 64) as u64, stream.0 as u64]
}
