//! A digest over all streams of a store, to verify a copy.
//!
//! Invariant: two stores have the same digest if and only if they have the same records in the same
//! streams, closed alike. The catalog is left out: it grows at both ends while a server moves, and
//! has its own checksums. An unchanged stream is not hashed again.

use std::collections::BTreeMap;

use legwork_model::id::StreamId;
use legwork_store::{Error, Listed, Version};

use super::wire::Hash;
use crate::backend::Backend;

/// Streams listed at a time.
const PAGE: usize = 4_096;
/// Records of one stream held at a time.
const RECORDS: usize = 256;
/// The most cached sums: the others are computed each time.
const SUMS_MAX: usize = 8 << 20;

/// Sums computed before.
#[derive(Debug, Default)]
pub(crate) struct Sums(BTreeMap<StreamId, Sum>);

#[derive(Clone, Copy, Debug)]
struct Sum {
    version: Version,
    is_closed: bool,
    hash: Hash,
}

impl Sums {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The digest of the current store. Reads everything that has grown since the last call.
    pub(crate) fn digest(&mut self, store: &dyn Backend) -> Result<Hash, Error> {
        let Some(listing) = store.listing() else { return Ok(Hash::default()) };
        let mut all = blake3::Hasher::new();
        let mut after = Some(StreamId::SITE);
        loop {
            let page = listing.streams(after, PAGE)?;
            let Some(last) = page.last() else { break };
            after = Some(last.stream);
            for listed in &page {
                let hash = self.of(store, listed)?;
                all.update(&listed.stream.0.to_be_bytes());
                all.update(&listed.version.0.to_be_bytes());
                all.update(&hash);
            }
        }
        Ok(*all.finalize().as_bytes())
    }

    fn of(&mut self, store: &dyn Backend, listed: &Listed) -> Result<Hash, Error> {
        let Listed { stream, version, summary } = listed;
        let is_closed = summary.is_some();
        let known = self.0.get(stream);
        if let Some(sum) = known.filter(|sum| (sum.version, sum.is_closed) == (*version, is_closed))
        {
            return Ok(sum.hash);
        }
        let mut hasher = blake3::Hasher::new();
        let mut framed = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        };
        let mut from = 0;
        while from < version.0 {
            let left = usize::try_from(version.0 - from).unwrap_or(RECORDS);
            let records = store.read(*stream, Version(from), left.min(RECORDS))?;
            if records.is_empty() {
                break;
            }
            from += records.len() as u64;
            records.iter().for_each(|record| framed(record));
        }
        if let Some(summary) = summary {
            framed(summary);
        }
        let hash = *hasher.finalize().as_bytes();
        if self.0.len() < SUMS_MAX || self.0.contains_key(stream) {
            self.0.insert(*stream, Sum { version: *version, is_closed, hash });
        }
        Ok(hash)
    }
}

#[cfg(test)]
mod tests {
    use legwork_store::memory::Memory;
    use legwork_store::{Append, Batch, EventStore};

    use super::*;

    fn append(store: &Memory, stream: u128, expected: u64, record: &str, close: Option<&str>) {
        let append = Append {
            stream: StreamId(stream),
            expected: Version(expected),
            record: record.into(),
            close: close.map(Into::into),
        };
        store.commit(Batch { appends: vec![append], snapshots: Vec::new() }).unwrap();
    }

    #[test]
    fn stores_with_the_same_records_have_the_same_digest_and_others_do_not() {
        let digest = |store: &Memory| Sums::default().digest(store).unwrap();
        let (one, other) = (Memory::default(), Memory::default());
        let empty = digest(&one);
        append(&one, 0, 0, "catalog", None);
        assert_eq!(digest(&one), empty);
        append(&one, 5, 0, "a", None);
        append(&one, 5, 1, "bc", None);
        append(&other, 5, 0, "ab", None);
        append(&other, 5, 1, "c", None);
        assert_ne!(digest(&one), digest(&other));
        let other = Memory::default();
        append(&other, 5, 0, "a", None);
        let mut sums = Sums::default();
        let before = sums.digest(&other).unwrap();
        append(&other, 5, 1, "bc", None);
        assert_ne!(sums.digest(&other).unwrap(), before);
        assert_eq!(sums.digest(&other).unwrap(), digest(&one));
        append(&one, 6, 0, "x", Some("over"));
        append(&other, 6, 0, "x", None);
        assert_ne!(sums.digest(&other).unwrap(), digest(&one));
    }
}
