//! Reads an agent's list: in full, in pages, or as changes since a cursor.
//!
//! A list is read along two dimensions at once: items by age, and moves and removals by revision. A cursor
//! holds the position in both, so a change behind the reader is reported with the next page, and nothing
//! is lost or reported twice. An agent sees exactly the items they may act on.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use legwork_model::id::AgentId;
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use rustc_hash::FxHasher;

use super::Worklists;
use super::cursor::Cursor;
use super::item::{Age, Item, ItemKey, NONE, Slot};
use super::list::{Change, List};
use crate::absence::Standing;
use crate::organisation::Organisation;
use crate::resolve::Resolved;

/// The most items, and the most removals, of one page.
pub const PAGE_MAX: usize = 1_000;
/// The bound on visited entries for one page, including those that the agent must not see.
const SCANNED_MAX: usize = 10_000;

/// Instructions for a client's copy of the list: clear it if `reset`, remove `removed`, insert or replace
/// `items`, and read on from the cursor, at once if there is `more`.
#[derive(Clone, Debug)]
pub struct Delta {
    pub cursor: Cursor,
    pub reset: bool,
    /// Oldest first.
    pub items: Vec<ItemView>,
    /// Items that could be seen on the list and are gone; the client need not have had them.
    pub removed: Vec<Removed>,
    pub more: bool,
}

/// An item that has left the list. Its instance may have ended and be forgotten, so it comes with the
/// schema that knows the name of its step.
#[derive(Clone, Debug)]
pub struct Removed {
    pub key: ItemKey,
    pub schema: Arc<Schema>,
}

/// An item as one agent sees it.
#[derive(Clone, Debug)]
pub struct ItemView {
    pub key: ItemKey,
    pub item: Item,
    /// The absent agent, if the item is seen only as their substitute.
    pub on_behalf_of: Option<AgentId>,
}

/// A reader: an agent of the organisation with those they stand in for.
pub(super) struct Reader<'w> {
    /// `NONE` for an agent who is not in the organisation and sees nothing.
    number: u32,
    stands_in_for: Vec<Standing>,
    fingerprint: u64,
    lists: Vec<&'w List>,
    /// Removals up to this revision may be forgotten.
    kept_since: u64,
}

impl Worklists {
    /// The agent's list since the cursor, at most `limit` items; from the beginning without a cursor or
    /// with one that no longer fits.
    pub fn list(
        &self,
        organisation: &Organisation,
        agent: &AgentId,
        now: Timestamp,
        since: Option<Cursor>,
        limit: usize,
    ) -> Delta {
        let reader = self.reader(organisation, agent, now);
        let fitting = since.filter(|cursor| self.fits(cursor, &reader));
        self.page(&reader, fitting, limit.clamp(1, PAGE_MAX), |_| 0)
    }

    /// The reader's list since a cursor that fits. `ahead` gives the number of remote items before an item
    /// of some moment; they take places on the page as well.
    pub(super) fn page(
        &self,
        reader: &Reader<'_>,
        fitting: Option<Cursor>,
        limit: usize,
        ahead: impl FnMut(Timestamp) -> usize,
    ) -> Delta {
        let mut delta = Delta {
            cursor: fitting.unwrap_or(Cursor {
                epoch: self.epoch,
                fingerprint: reader.fingerprint,
                aged: Age::MIN,
                changed: self.revision,
            }),
            reset: fitting.is_none(),
            items: Vec::new(),
            removed: Vec::new(),
            more: false,
        };
        let mut found = Vec::new();
        // Half a page at most, so that reading makes progress under constant change.
        self.read_changes(reader, &mut delta, &mut found, limit);
        self.read_items(reader, &mut delta.cursor, &mut found, limit, ahead);
        found.sort_unstable();
        let view = |(_, place)| self.view(self.slots.get(place), reader);
        delta.items = found.into_iter().filter_map(view).collect();
        delta.more = reader.has_more(&delta.cursor);
        delta
    }

    /// Whether `list` may have news since the cursor. False positives are possible, false negatives are
    /// not.
    pub fn changed_since(
        &self,
        organisation: &Organisation,
        agent: &AgentId,
        now: Timestamp,
        cursor: Cursor,
    ) -> bool {
        let reader = self.reader(organisation, agent, now);
        !self.fits(&cursor, &reader) || reader.has_more(&cursor)
    }

    /// Whether the item concerns the agent: as a potential actor, as its holder, or as a substitute for
    /// one. Whether another agent holds it is checked by the engine.
    pub fn may_work_on(
        &self,
        organisation: &Organisation,
        agent: &AgentId,
        key: &ItemKey,
        now: Timestamp,
    ) -> bool {
        let Some(place) = self.slots.find(key) else { return false };
        let slot = self.slots.get(place);
        let reader = self.reader(organisation, agent, now);
        let Some(resolved) = self.audiences.resolved(slot.queue) else { return false };
        let concerns = |person: u32| slot.holder == person || resolved.actors.has(person);
        reader.number != NONE
            && (concerns(reader.number) || reader.in_place_of(resolved, concerns).is_some())
    }

    /// The absent agent for whom the item is on the agent's list.
    pub fn on_behalf_of(
        &self,
        organisation: &Organisation,
        agent: &AgentId,
        key: &ItemKey,
        now: Timestamp,
    ) -> Option<AgentId> {
        let place = self.slots.find(key)?;
        let reader = self.reader(organisation, agent, now);
        let absent = self.sight(self.slots.get(place), &reader)??;
        Some(self.audiences.name(absent).clone())
    }

    /// Whether the item is on the agent's list, that is, whether they may act on it now: claim it if it is
    /// free, complete or release it otherwise.
    pub fn sees(
        &self,
        organisation: &Organisation,
        agent: &AgentId,
        key: &ItemKey,
        now: Timestamp,
    ) -> bool {
        let Some(place) = self.slots.find(key) else { return false };
        let reader = self.reader(organisation, agent, now);
        self.sight(self.slots.get(place), &reader).is_some()
    }

    /// Whether the item may be delegated to the agent: a member of the organisation whom the rule does not
    /// exclude.
    pub fn may_be_given(&self, agent: &AgentId, key: &ItemKey) -> bool {
        let number = self.audiences.roster.number(agent);
        let resolved = self.resolved(key);
        number.zip(resolved).is_some_and(|(number, resolved)| !resolved.bars_number(number))
    }

    pub(super) fn reader(
        &self,
        organisation: &Organisation,
        agent: &AgentId,
        now: Timestamp,
    ) -> Reader<'_> {
        let roster = &self.audiences.roster;
        let mut hasher = FxHasher::default();
        agent.hash(&mut hasher);
        let number = roster.number(agent).unwrap_or(NONE);
        let mut stands_in_for = Vec::new();
        for Standing { absent, before } in organisation.standing(agent, now) {
            let named = |number: u32| organisation.roster.agent(number);
            named(absent).hash(&mut hasher);
            before.iter().for_each(|&number| named(number).hash(&mut hasher));
            before.len().hash(&mut hasher);
            let known = |number: u32| roster.number(named(number));
            let before: Option<Vec<u32>> = before.into_iter().map(known).collect();
            let standing = known(absent).zip(before);
            stands_in_for.extend(standing.map(|(absent, before)| Standing { absent, before }));
        }
        let mut numbers = BTreeSet::new();
        let mut kept_since = self.horizon;
        let own = (number != NONE).then_some((number, true));
        let others = stands_in_for.iter().map(|to| (to.absent, to.before.is_empty()));
        for (person, is_first) in others.chain(own) {
            let (lists, horizon) = self.audiences.lists_of(person);
            // Later substitutes see nothing where nobody is barred.
            numbers.extend(lists.filter(|&list| is_first || self.audiences.bars(list)));
            kept_since = kept_since.max(horizon);
        }
        let lists: Vec<&List> =
            numbers.into_iter().filter_map(|number| self.audiences.list(number)).collect();
        let kept_since =
            lists.iter().map(|list| list.kept_since()).fold(kept_since, |a, b| a.max(b));
        Reader { number, stands_in_for, fingerprint: hasher.finish(), lists, kept_since }
    }

    pub(super) fn fits(&self, cursor: &Cursor, reader: &Reader<'_>) -> bool {
        let Cursor { epoch, fingerprint, aged, changed } = *cursor;
        epoch == self.epoch
            && fingerprint == reader.fingerprint
            && aged <= self.youngest
            && (reader.kept_since..=self.revision).contains(&changed)
    }

    /// Reads moves and removals. A move is reported only for items that were read already: the others are
    /// still to come by age.
    fn read_changes(
        &self,
        reader: &Reader<'_>,
        delta: &mut Delta,
        found: &mut Vec<(Age, u32)>,
        limit: usize,
    ) {
        let since = delta.cursor.changed;
        let changed = reader.lists.iter().filter(|list| list.has_changes_after(since));
        let streams = changed.flat_map(|list| {
            let moved: Stream<'_, u64, Change<'_>> = Box::new(list.moved_after(since));
            [moved, Box::new(list.removed_after(since))]
        });
        let mut merged = Merged::new(streams.collect());
        let mut scanned = 0;
        while let Some(revision) = merged.peek() {
            // The effects of one change are read as a whole: a claim removes from one list and adds to
            // another under one revision.
            let full = found.len() >= limit.div_ceil(2) || delta.removed.len() >= limit;
            if revision > delta.cursor.changed && (full || scanned >= SCANNED_MAX) {
                return;
            }
            scanned += 1;
            delta.cursor.changed = revision;
            match merged.next() {
                Some(Change::Came(place)) => {
                    let slot = self.slots.get(place);
                    if slot.age() <= delta.cursor.aged && self.sight(slot, reader).is_some() {
                        found.push((slot.age(), place));
                    }
                }
                Some(Change::Left(removal)) => {
                    let key = removal.key.unpack();
                    let place = self.slots.find(&key);
                    let slot = place.map(|place| self.slots.get(place));
                    // An agent who could not see the item must not learn that it existed.
                    if reader.sight(&removal.resolved, removal.holder).is_some()
                        && slot.is_none_or(|slot| self.sight(slot, reader).is_none())
                        && let Some(schema) = removal.schema.clone()
                    {
                        delta.removed.push(Removed { key, schema });
                    }
                }
                None => {}
            }
        }
        delta.cursor.changed = self.revision;
    }

    fn read_items(
        &self,
        reader: &Reader<'_>,
        cursor: &mut Cursor,
        found: &mut Vec<(Age, u32)>,
        limit: usize,
        mut ahead: impl FnMut(Timestamp) -> usize,
    ) {
        let since = cursor.aged;
        let lists = reader.lists.iter().filter(|list| list.has_items_after(since));
        let streams =
            lists.map(|list| -> Stream<'_, Age, u32> { Box::new(list.items_after(since)) });
        let mut merged = Merged::new(streams.collect());
        let mut scanned = 0;
        while let Some(age) = merged.peek() {
            if found.len() + ahead(age.0) >= limit || scanned >= SCANNED_MAX {
                return;
            }
            scanned += 1;
            cursor.aged = age;
            if let Some(place) = merged.next()
                && self.sight(self.slots.get(place), reader).is_some()
            {
                found.push((age, place));
            }
        }
        cursor.aged = self.youngest;
    }

    /// Whether the reader sees an item, and for whom.
    fn sight(&self, slot: &Slot, reader: &Reader<'_>) -> Option<Option<u32>> {
        reader.sight(self.audiences.resolved(slot.queue)?, slot.holder)
    }

    fn view(&self, slot: &Slot, reader: &Reader<'_>) -> Option<ItemView> {
        let absent = self.sight(slot, reader)?;
        let holder = (slot.holder != NONE).then(|| self.audiences.name(slot.holder));
        Some(ItemView {
            key: slot.key.unpack(),
            item: super::item_of(slot, holder)?,
            on_behalf_of: absent.map(|absent| self.audiences.name(absent).clone()),
        })
    }
}

impl Reader<'_> {
    /// Whether an item with these actors and this holder is seen, and for whom.
    fn sight(&self, resolved: &Resolved, holder: u32) -> Option<Option<u32>> {
        let concerns = |person: u32| match holder {
            NONE => resolved.actors.has(person),
            holder => holder == person,
        };
        if self.number == NONE {
            return None;
        }
        if concerns(self.number) {
            return Some(None);
        }
        self.in_place_of(resolved, concerns).map(Some)
    }

    /// The first absent agent whom an item concerns and for whom the reader is the current substitute.
    fn in_place_of(&self, resolved: &Resolved, concerns: impl Fn(u32) -> bool) -> Option<u32> {
        let is_turn = |standing: &&Standing| {
            concerns(standing.absent)
                && standing.before.iter().all(|&other| resolved.bars_number(other))
        };
        let standing = self.stands_in_for.iter().find(is_turn)?;
        (!resolved.bars_number(self.number)).then_some(standing.absent)
    }

    fn has_more(&self, cursor: &Cursor) -> bool {
        self.lists
            .iter()
            .any(|list| list.has_items_after(cursor.aged) || list.has_changes_after(cursor.changed))
    }
}

type Stream<'l, N, T> = Box<dyn Iterator<Item = (N, T)> + 'l>;

/// Merges several ascending streams.
struct Merged<'l, N, T> {
    streams: Vec<Stream<'l, N, T>>,
    /// The next of every stream, by number, with the index of the stream.
    heads: BinaryHeap<Reverse<(N, usize)>>,
    values: Vec<Option<T>>,
}

impl<'l, N: Ord + Copy, T> Merged<'l, N, T> {
    fn new(streams: Vec<Stream<'l, N, T>>) -> Self {
        let count = streams.len();
        let values = (0..count).map(|_| None).collect();
        let mut merged = Self { streams, heads: BinaryHeap::with_capacity(count), values };
        (0..count).for_each(|stream| merged.pull(stream));
        merged
    }

    fn peek(&self) -> Option<N> {
        self.heads.peek().map(|Reverse((number, _))| *number)
    }

    fn next(&mut self) -> Option<T> {
        let Reverse((_, stream)) = self.heads.pop()?;
        let value = self.values[stream].take();
        self.pull(stream);
        value
    }

    fn pull(&mut self, stream: usize) {
        if let Some((number, value)) = self.streams[stream].next() {
            self.heads.push(Reverse((number, stream)));
            self.values[stream] = Some(value);
        }
    }
}
