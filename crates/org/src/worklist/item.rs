//! Work items and their storage: numbered slots, found by key.
//!
//! Memory is proportional to the items: slots are in chunks that never move, and the table from
//! keys to slots holds a hash and a number. Items whose hashes collide are chained.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use legwork_model::id::{Activity, AgentId, InstanceId, Iteration, NodeId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use rustc_hash::{FxHashMap, FxHasher};

/// Stands for no slot, no holder.
pub(super) const NONE: u32 = u32::MAX;
const CHUNK: usize = 4096;
/// Once all slots are free, memory beyond this is released.
const CHUNKS_KEPT: usize = 8;

/// The key of an item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemKey {
    pub instance: InstanceId,
    pub activity: Activity,
}

/// A step that waits for a person.
#[derive(Clone, Debug)]
pub struct Item {
    pub schema: Arc<Schema>,
    pub offered_at: Timestamp,
    /// Its holder, who has claimed it; nobody else can work on it.
    pub claimed_by: Option<AgentId>,
    pub claimed_at: Option<Timestamp>,
    /// Whether the holder got it from another agent, if that is tracked.
    pub is_given: bool,
}

/// A compact key.
#[derive(Clone, Debug)]
pub(super) struct PackedKey {
    instance: [u64; 2],
    node: u32,
    iteration: Box<[u32]>,
}

/// The order of an item in every list: when it was offered, and a sequence number among equal
/// times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Age(pub(super) Timestamp, pub(super) u64);

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: PackedKey,
    /// `None` in a free slot.
    pub(super) schema: Option<Arc<Schema>>,
    pub(super) offered_at: Timestamp,
    /// Valid only with a holder.
    pub(super) claimed_at: Timestamp,
    pub(super) holder: u32,
    pub(super) is_given: bool,
    pub(super) queue: u32,
    /// The revision at which it was first offered.
    pub(super) offered: u64,
    /// The revision at which it entered its current list.
    pub(super) changed: u64,
    /// The next slot of the same hash, or the next free one.
    next: u32,
}

#[derive(Debug)]
pub(super) struct Slots {
    chunks: Vec<Vec<Slot>>,
    heads: FxHashMap<u32, u32>,
    free: u32,
    len: usize,
}

impl PackedKey {
    pub(super) fn new(key: &ItemKey) -> Self {
        let id = key.instance.0;
        Self {
            instance: [(id >> 64) as u64, id as u64],
            node: key.activity.node.0,
            iteration: key.activity.iteration.0.as_slice().into(),
        }
    }

    pub(super) fn unpack(&self) -> ItemKey {
        let [high, low] = self.instance;
        ItemKey {
            instance: InstanceId(u128::from(high) << 64 | u128::from(low)),
            activity: Activity {
                node: NodeId(self.node),
                iteration: Iteration(self.iteration.to_vec()),
            },
        }
    }

    fn is(&self, key: &ItemKey) -> bool {
        let id = key.instance.0;
        self.instance == [(id >> 64) as u64, id as u64]
            && self.node == key.activity.node.0
            && *self.iteration == *key.activity.iteration.0
    }

    fn hash(&self) -> u32 {
        hash(self.instance, self.node, &self.iteration)
    }
}

impl Slots {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), heads: FxHashMap::default(), free: NONE, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn find(&self, key: &ItemKey) -> Option<u32> {
        let id = key.instance.0;
        let instance = [(id >> 64) as u64, id as u64];
        let hash = hash(instance, key.activity.node.0, &key.activity.iteration.0);
        let mut place = *self.heads.get(&hash)?;
        while place != NONE {
            let slot = self.get(place);
            if slot.key.is(key) {
                return Some(place);
            }
            place = slot.next;
        }
        None
    }

    pub(super) fn get(&self, place: u32) -> &Slot {
        &self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }

    pub(super) fn get_mut(&mut self, place: u32) -> &mut Slot {
        &mut self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }

    /// Inserts an item with a new key.
    pub(super) fn insert(&mut self, slot: Slot) -> u32 {
        let hash = slot.key.hash();
        let place = self.place(slot);
        let next = self.heads.insert(hash, place).unwrap_or(NONE);
        self.get_mut(place).next = next;
        self.len += 1;
        place
    }

    pub(super) fn remove(&mut self, place: u32) -> PackedKey {
        let slot = self.get_mut(place);
        let vacant = PackedKey { instance: [0; 2], node: 0, iteration: Box::default() };
        let key = std::mem::replace(&mut slot.key, vacant);
        slot.schema = None;
        let next = slot.next;
        self.unchain(key.hash(), place, next);
        let free = std::mem::replace(&mut self.free, place);
        self.get_mut(place).next = free;
        self.len -= 1;
        if self.len == 0 && self.chunks.len() > CHUNKS_KEPT {
            *self = Self::new();
        }
        key
    }

    /// All used slots, oldest first.
    pub(super) fn by_age(&self) -> Vec<u32> {
        let slots = (0..).zip(self.chunks.iter().flatten());
        let mut taken: Vec<(Age, u32)> = slots
            .filter(|(_, slot)| slot.schema.is_some())
            .map(|(place, slot)| (slot.age(), place))
            .collect();
        taken.sort_unstable();
        taken.into_iter().map(|(_, place)| place).collect()
    }

    fn place(&mut self, slot: Slot) -> u32 {
        if self.free != NONE {
            let place = self.free;
            self.free = self.get(place).next;
            *self.get_mut(place) = slot;
            return place;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let chunk = self.chunks.len() - 1;
        self.chunks[chunk].push(slot);
        (chunk * CHUNK + self.chunks[chunk].len() - 1) as u32
    }

    fn unchain(&mut self, hash: u32, place: u32, next: u32) {
        let head = self.heads.get(&hash).copied().unwrap_or(NONE);
        if head == place {
            if next == NONE {
                self.heads.remove(&hash);
            } else {
                self.heads.insert(hash, next);
            }
            return;
        }
        let mut before = head;
        while before != NONE {
            let slot = self.get_mut(before);
            if slot.next == place {
                slot.next = next;
                return;
            }
            before = slot.next;
        }
    }
}

impl Slot {
    pub(super) fn new(
        key: PackedKey,
        schema: Arc<Schema>,
        queue: u32,
        revision: u64,
        at: Timestamp,
    ) -> Self {
        Self {
            key,
            schema: Some(schema),
            offered_at: at,
            claimed_at: at,
            holder: NONE,
            is_given: false,
            queue,
            offered: revision,
            changed: revision,
            next: NONE,
        }
    }

    pub(super) fn age(&self) -> Age {
        Age(self.offered_at, self.offered)
    }
}

impl Age {
    /// Before everything.
    pub(super) const MIN: Self = Self(Timestamp(i64::MIN), 0);
}

fn hash(instance: [u64; 2], node: u32, iteration: &[u32]) -> u32 {
    let mut hasher = FxHasher::default();
    (instance, node, iteration).hash(&mut hasher);
    let hash = hasher.finish();
    (hash ^ hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn key(number: u8) -> ItemKey {
        let iteration = Iteration(vec![u32::from(number % 3); usize::from(number % 2)]);
        ItemKey {
            instance: InstanceId(u128::from(number / 4) << 80 | 7),
            activity: Activity { node: NodeId(u32::from(number % 4)), iteration },
        }
    }

    fn schema() -> Arc<Schema> {
        crate::support::schema()
    }

    proptest! {
        #[test]
        fn slots_are_found_by_their_keys(
            steps in prop::collection::vec((any::<u8>(), any::<bool>()), 0..200)
        ) {
            let schema = schema();
            let mut slots = Slots::new();
            let mut plain: BTreeMap<ItemKey, u64> = BTreeMap::new();
            for (age, (number, insert)) in (1..).zip(steps) {
                let key = key(number);
                let found = slots.find(&key);
                prop_assert_eq!(found.map(|place| slots.get(place).offered), plain.get(&key).copied());
                match found {
                    None if insert => {
                        let packed = PackedKey::new(&key);
                        slots.insert(Slot::new(packed, schema.clone(), 0, age, Timestamp(0)));
                        plain.insert(key, age);
                    }
                    Some(place) if !insert => {
                        prop_assert_eq!(slots.remove(place).unpack(), key.clone());
                        plain.remove(&key);
                    }
                    None | Some(_) => {}
                }
                prop_assert_eq!(slots.len(), plain.len());
            }
            let mut ages: Vec<u64> = plain.into_values().collect();
            ages.sort_unstable();
            let by_age: Vec<u64> =
                slots.by_age().into_iter().map(|place| slots.get(place).offered).collect();
            prop_assert_eq!(by_age, ages);
        }
    }

    #[test]
    fn items_of_one_hash_do_not_hide_each_other() {
        // The table is forced to collide: three slots are chained under one hash.
        let schema = schema();
        let mut slots = Slots::new();
        let places: Vec<u32> = (0..3)
            .map(|n| {
                let slot =
                    Slot::new(PackedKey::new(&key(n)), schema.clone(), 0, n.into(), Timestamp(0));
                slots.insert(slot)
            })
            .collect();
        slots.heads.clear();
        slots.heads.insert(1, places[2]);
        slots.get_mut(places[2]).next = places[1];
        slots.get_mut(places[1]).next = places[0];
        slots.get_mut(places[0]).next = NONE;
        slots.unchain(1, places[1], places[0]);
        assert_eq!(slots.get(places[2]).next, places[0]);
        slots.unchain(1, places[2], places[0]);
        assert_eq!(slots.heads.get(&1), Some(&places[0]));
        slots.unchain(1, places[0], NONE);
        assert!(slots.heads.is_empty());
    }
}
