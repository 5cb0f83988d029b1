//! One list of items and its recent removals: read from any position by age and by revision.
//!
//! `items` holds every item by age, so that the oldest come first however often they were claimed
//! and released. `moved` holds items that entered behind a reader who may have read past their age,
//! by the revision of the move. Removals after `kept_since` are all in the log, older ones are
//! forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use legwork_model::schema::Schema;

use super::item::{Age, PackedKey};
use crate::resolve::Resolved;

/// How many removals are remembered for clients with a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// A list remembers as many removals as it has items, but at least and at most this many:
    /// beyond its own length a client reads the list in full with less effort.
    pub removals_min: usize,
    pub removals_max: usize,
    /// How many empty lists are kept for their removals.
    pub idle_lists_max: usize,
}

#[derive(Debug, Default)]
pub(super) struct List {
    items: BTreeMap<Age, u32>,
    moved: BTreeMap<u64, u32>,
    removals: VecDeque<Removal>,
    kept_since: u64,
}

/// A removed item, and the agents who could see it: only they are told.
#[derive(Debug)]
pub(super) struct Removal {
    pub(super) revision: u64,
    pub(super) key: PackedKey,
    pub(super) schema: Option<Arc<Schema>>,
    /// Shared with the queue it was in.
    pub(super) resolved: Arc<Resolved>,
    pub(super) holder: u32,
}

pub(super) enum Change<'l> {
    Came(u32),
    Left(&'l Removal),
}

impl Default for Retention {
    fn default() -> Self {
        Self { removals_min: 64, removals_max: 10_000, idle_lists_max: 10_000 }
    }
}

impl List {
    /// Adds an item; at a revision, if a reader may have read past its age.
    pub(super) fn enter(&mut self, place: u32, age: Age, moved_at: Option<u64>) {
        self.items.insert(age, place);
        self.moved.extend(moved_at.map(|revision| (revision, place)));
    }

    pub(super) fn leave(&mut self, age: Age, changed: u64) {
        self.items.remove(&age);
        self.moved.remove(&changed);
    }

    pub(super) fn remember(&mut self, removal: Removal, retention: Retention) {
        self.removals.push_back(removal);
        let Retention { removals_min, removals_max, .. } = retention;
        let most = self.items.len().max(removals_min).min(removals_max);
        while self.removals.len() > most
            && let Some(oldest) = self.removals.pop_front()
        {
            self.kept_since = oldest.revision;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Removals up to this revision may be forgotten.
    pub(super) fn kept_since(&self) -> u64 {
        self.kept_since
    }

    /// The revision of the last removal.
    pub(super) fn left_last(&self) -> u64 {
        self.removals.back().map_or(self.kept_since, |removal| removal.revision)
    }

    /// Drops what only readers with a cursor need.
    pub(super) fn forget(&mut self) {
        self.moved.clear();
        self.kept_since = self.left_last();
        self.removals.clear();
    }

    /// Whether there are younger items.
    pub(super) fn has_items_after(&self, age: Age) -> bool {
        self.items.last_key_value().is_some_and(|(&last, _)| last > age)
    }

    /// Whether items were moved or removed after that revision.
    pub(super) fn has_changes_after(&self, revision: u64) -> bool {
        self.moved.last_key_value().is_some_and(|(&last, _)| last > revision)
            || self.left_last() > revision
    }

    /// Younger items, oldest first.
    pub(super) fn items_after(&self, age: Age) -> impl Iterator<Item = (Age, u32)> {
        self.items.range((Excluded(age), Unbounded)).map(|(&age, &place)| (age, place))
    }

    /// Items that entered after a revision, other than by a new offer.
    pub(super) fn moved_after(&self, revision: u64) -> impl Iterator<Item = (u64, Change<'_>)> {
        let moved = self.moved.range((Excluded(revision), Unbounded));
        moved.map(|(&revision, &place)| (revision, Change::Came(place)))
    }

    /// Items removed after a revision.
    pub(super) fn removed_after(&self, revision: u64) -> impl Iterator<Item = (u64, Change<'_>)> {
        let known = self.removals.partition_point(|removal| removal.revision <= revision);
        self.removals.range(known..).map(|left| (left.revision, Change::Left(left)))
    }
}
