//! The items of one person at other servers, as far as they are known here.
//!
//! Each server reports its part, in full or as changes, and the part may be stale. An item is in
//! one part only: that of the server that reported it last. As in the local lists, items are read
//! by age, and changes behind a reader by revision; removals up to the horizon are forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

use legwork_model::id::{ActivityId, ServerId};
use legwork_model::time::Timestamp;

/// How many removals are remembered for readers with a cursor.
const REMOVALS_MAX: usize = 1_000;

/// The items of a person at other servers; `T` describes one item.
#[derive(Debug)]
pub struct Elsewhere<T> {
    /// Distinguishes it from earlier and later ones of the same person.
    number: u64,
    revision: u64,
    /// Positions from before this revision are invalid.
    horizon: u64,
    /// The greatest age of any item so far.
    youngest: Aged,
    items: BTreeMap<ActivityId, Slot<T>>,
    by_age: BTreeMap<Aged, ActivityId>,
    came: BTreeMap<u64, ActivityId>,
    left: VecDeque<(u64, ActivityId)>,
    /// The number of items at each server.
    lengths: BTreeMap<ServerId, usize>,
    unreachable: BTreeMap<ServerId, Timestamp>,
    /// The revision at which a server was last found to be reachable or not.
    marked: u64,
}

#[derive(Debug)]
struct Slot<T> {
    aged: Aged,
    changed: u64,
    /// Not reported again since its server began a full report.
    in_doubt: bool,
    item: T,
}

/// The order of an item among all: when it was offered, its server, and the order of the server's
/// reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Aged(pub(super) Timestamp, pub(super) ServerId, pub(super) u64);

impl Aged {
    pub(super) const MIN: Self = Self(Timestamp(i64::MIN), ServerId(0), 0);
}

/// How far a client has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Position {
    pub(super) number: u64,
    pub(super) aged: Aged,
    pub(super) changed: u64,
}

/// An item at another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct There<'e, T> {
    pub activity: &'e ActivityId,
    pub server: ServerId,
    pub offered_at: Timestamp,
    /// Its server cannot be reached: the item may have changed.
    pub stale: bool,
    pub item: &'e T,
}

impl<T: PartialEq> Elsewhere<T> {
    /// Empty. The number must be unused in this incarnation of the site.
    pub fn new(number: u64) -> Self {
        Self {
            number,
            revision: 0,
            horizon: 0,
            youngest: Aged::MIN,
            items: BTreeMap::new(),
            by_age: BTreeMap::new(),
            came: BTreeMap::new(),
            left: VecDeque::new(),
            lengths: BTreeMap::new(),
            unreachable: BTreeMap::new(),
            marked: 0,
        }
    }

    /// The number of items at all other servers.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The number of items at a server.
    pub fn len_at(&self, server: ServerId) -> usize {
        self.lengths.get(&server).copied().unwrap_or(0)
    }

    /// The number of changes.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The server that has an item.
    pub fn server_of(&self, activity: &ActivityId) -> Option<ServerId> {
        self.items.get(activity).map(|slot| slot.aged.1)
    }

    /// The servers that cannot be reached, and since when.
    pub fn unreachable(&self) -> impl Iterator<Item = (ServerId, Timestamp)> {
        self.unreachable.iter().map(|(server, since)| (*server, *since))
    }

    pub fn is_unreachable(&self, server: ServerId) -> bool {
        self.unreachable.contains_key(&server)
    }

    /// A server begins a full report: until its end the old items are in doubt.
    pub fn begin(&mut self, server: ServerId) {
        let slots = self.items.values_mut().filter(|slot| slot.aged.1 == server);
        slots.for_each(|slot| slot.in_doubt = true);
    }

    /// A server has ended its full report: items that were not reported are gone.
    pub fn end(&mut self, server: ServerId) {
        let in_doubt = self.items.iter().filter(|(_, slot)| slot.aged.1 == server && slot.in_doubt);
        let gone: Vec<ActivityId> = in_doubt.map(|(activity, _)| activity.clone()).collect();
        gone.iter().for_each(|activity| self.remove(server, activity));
    }

    /// A server reports an item. With an unchanged time of offer the item keeps its place.
    pub fn put(&mut self, server: ServerId, activity: ActivityId, offered_at: Timestamp, item: T) {
        if let Some(slot) = self.items.get_mut(&activity)
            && (slot.aged.0, slot.aged.1) == (offered_at, server)
        {
            slot.in_doubt = false;
            if slot.item != item {
                slot.item = item;
                self.touch(&activity);
            }
            return;
        }
        self.take(&activity);
        self.revision += 1;
        let (changed, aged) = (self.revision, Aged(offered_at, server, self.revision));
        self.youngest = self.youngest.max(aged);
        self.by_age.insert(aged, activity.clone());
        self.came.insert(changed, activity.clone());
        *self.lengths.entry(server).or_default() += 1;
        self.items.insert(activity, Slot { aged, changed, in_doubt: false, item });
    }

    /// A server no longer has an item.
    pub fn remove(&mut self, server: ServerId, activity: &ActivityId) {
        // Another server may have reported it since.
        if self.server_of(activity) != Some(server) {
            return;
        }
        self.take(activity);
        self.revision += 1;
        self.left.push_back((self.revision, activity.clone()));
        if self.left.len() > REMOVALS_MAX
            && let Some((revision, _)) = self.left.pop_front()
        {
            self.horizon = revision;
        }
    }

    /// A server cannot be reached since some moment, or (`None`) has answered again.
    pub fn mark(&mut self, server: ServerId, unreachable_since: Option<Timestamp>) {
        let was = self.unreachable.get(&server).copied();
        if was.is_some() == unreachable_since.is_some() {
            return;
        }
        match unreachable_since {
            Some(since) => self.unreachable.insert(server, since),
            None => self.unreachable.remove(&server),
        };
        self.revision += 1;
        self.marked = self.revision;
        let of_it = self.items.iter().filter(|(_, slot)| slot.aged.1 == server);
        let all: Vec<ActivityId> = of_it.map(|(activity, _)| activity.clone()).collect();
        all.iter().for_each(|activity| self.touch(activity));
    }

    /// A server is no longer followed: its items are dropped.
    pub fn forget(&mut self, server: ServerId) {
        self.begin(server);
        self.end(server);
        self.mark(server, None);
        self.lengths.remove(&server);
    }

    fn touch(&mut self, activity: &ActivityId) {
        let Some(slot) = self.items.get_mut(activity) else { return };
        self.revision += 1;
        if let Some(activity) = self.came.remove(&slot.changed) {
            slot.changed = self.revision;
            self.came.insert(self.revision, activity);
        }
    }

    fn take(&mut self, activity: &ActivityId) {
        let Some(slot) = self.items.remove(activity) else { return };
        self.by_age.remove(&slot.aged);
        self.came.remove(&slot.changed);
        if let Some(length) = self.lengths.get_mut(&slot.aged.1) {
            *length -= 1;
        }
    }
}

impl<T> Elsewhere<T> {
    /// The position of a new reader.
    pub(super) fn beginning(&self) -> Position {
        Position { number: self.number, aged: Aged::MIN, changed: self.revision }
    }

    pub(super) fn fits(&self, position: &Position) -> bool {
        position.number == self.number
            && position.aged <= self.youngest
            && (self.horizon..=self.revision).contains(&position.changed)
    }

    pub(super) fn has_more(&self, position: &Position) -> bool {
        self.revision > position.changed || self.items_after(position).next().is_some()
    }

    /// The items beyond a position, by age.
    pub(super) fn items_after(&self, position: &Position) -> impl Iterator<Item = Aged> {
        self.by_age.range((Excluded(position.aged), Unbounded)).map(|(aged, _)| *aged)
    }

    /// Reads at most so many items by age.
    pub(super) fn read_items(
        &self,
        position: &mut Position,
        limit: usize,
    ) -> Vec<(Aged, There<'_, T>)> {
        let mut after = self.by_age.range((Excluded(position.aged), Unbounded));
        let taken = after.by_ref().take(limit);
        let found: Vec<_> =
            taken.filter_map(|(aged, activity)| Some((*aged, self.there(activity)?))).collect();
        position.aged = match (after.next(), found.last()) {
            (None, _) => self.youngest,
            (Some(_), Some((aged, _))) => *aged,
            (Some(_), None) => position.aged,
        };
        found
    }

    /// Reads changes of already read items, and removals; at most so many of each.
    pub(super) fn read_changes(
        &self,
        position: &mut Position,
        items_max: usize,
        removals_max: usize,
    ) -> (Vec<(Aged, There<'_, T>)>, Vec<&ActivityId>) {
        let since = position.changed;
        let mut came = self.came.range(since + 1..).peekable();
        let first = self.left.partition_point(|(revision, _)| *revision <= since);
        let mut left = self.left.range(first..).peekable();
        let (mut items, mut removed) = (Vec::new(), Vec::new());
        loop {
            let next_came = came.peek().map_or(u64::MAX, |(revision, _)| **revision);
            let next_left = left.peek().map_or(u64::MAX, |(revision, _)| *revision);
            let next = next_came.min(next_left);
            if next == u64::MAX {
                position.changed = self.revision;
                return (items, removed);
            }
            if items.len() >= items_max || removed.len() >= removals_max {
                return (items, removed);
            }
            position.changed = next;
            if next == next_left {
                let gone = left.next().map(|(_, activity)| activity);
                removed.extend(gone.filter(|activity| !self.items.contains_key(*activity)));
            } else if let Some((_, activity)) = came.next()
                && let Some(slot) = self.items.get(activity)
                && slot.aged <= position.aged
            {
                items.extend(self.there(activity).map(|there| (slot.aged, there)));
            }
        }
    }

    fn there(&self, activity: &ActivityId) -> Option<There<'_, T>> {
        let (activity, slot) = self.items.get_key_value(activity)?;
        let Aged(offered_at, server, _) = slot.aged;
        let stale = self.unreachable.contains_key(&server);
        Some(There { activity, server, offered_at, stale, item: &slot.item })
    }
}
