//! The instances to which a new layout of a domain does not apply: a compact set.
//!
//! Invariant: immutable. A lookup takes a few steps, whatever the size: ids are in buckets by hash,
//! about four in each.

use std::sync::Arc;

use legwork_model::id::InstanceId;

/// The most exceptions of one change.
pub const EXCEPTIONS_MAX: usize = 1_000_000;
/// The most ids in one record: it stays below 64 KiB.
pub const PORTION_MAX: usize = 4_000;

/// A set of instances. Copies share it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exceptions(Arc<Buckets>);

#[derive(Debug, Default, PartialEq, Eq)]
struct Buckets {
    /// The number of hash bits that select a bucket.
    bits: u32,
    /// Where each bucket begins among the ids, and where the last one ends.
    starts: Box<[u32]>,
    ids: Box<[InstanceId]>,
    /// The creation time of the youngest: most looked-up instances are younger.
    latest_ms: u64,
}

const PER_BUCKET: usize = 4;

impl Exceptions {
    pub fn new(ids: impl IntoIterator<Item = InstanceId>) -> Self {
        let mut ids: Vec<InstanceId> = ids.into_iter().collect();
        let bits = (ids.len() / PER_BUCKET).next_power_of_two().trailing_zeros();
        ids.sort_unstable_by_key(|id| (bucket(*id, bits), *id));
        ids.dedup();
        let latest_ms = ids.iter().map(|id| id.created_ms()).max().unwrap_or_default();
        let mut starts = Vec::with_capacity((1 << bits) + 1);
        for (place, id) in (0_u32..).zip(&ids) {
            while starts.len() <= bucket(*id, bits) {
                starts.push(place);
            }
        }
        starts.resize((1 << bits) + 1, ids.len() as u32);
        Self(Arc::new(Buckets { bits, starts: starts.into(), ids: ids.into(), latest_ms }))
    }

    pub fn contains(&self, id: InstanceId) -> bool {
        let set = &*self.0;
        if id.created_ms() > set.latest_ms {
            return false;
        }
        let bucket = bucket(id, set.bits);
        let Some([from, to]) = set.starts.get(bucket..).and_then(<[u32]>::first_chunk) else {
            return false;
        };
        let ids = set.ids.get(*from as usize..*to as usize);
        ids.is_some_and(|ids| ids.contains(&id))
    }

    pub fn len(&self) -> usize {
        self.0.ids.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.ids.is_empty()
    }

    /// In no particular order.
    pub fn iter(&self) -> impl Iterator<Item = InstanceId> {
        self.0.ids.iter().copied()
    }

    /// Keeps the instances for which `keep` is true.
    #[must_use]
    pub fn retain(&self, keep: impl Fn(InstanceId) -> bool) -> Self {
        if self.iter().all(&keep) {
            self.clone()
        } else {
            Self::new(self.iter().filter(|id| keep(*id)))
        }
    }

    /// All ids in ascending order, in portions that fit into a record each.
    pub fn portions(&self) -> Vec<Vec<InstanceId>> {
        let mut ids: Vec<InstanceId> = self.iter().collect();
        ids.sort_unstable();
        ids.chunks(PORTION_MAX).map(<[InstanceId]>::to_vec).collect()
    }
}

/// The bucket of an id, of `2^bits`. Not part of any format.
fn bucket(id: InstanceId, bits: u32) -> usize {
    let folded = (id.0 >> 64) as u64 ^ (id.0 as u64).rotate_left(32);
    let hash = folded.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash.checked_shr(u64::BITS - bits).unwrap_or(0) as usize
}
