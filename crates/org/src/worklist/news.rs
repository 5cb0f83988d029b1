//! Changed items, for a reader of all items: the mailing.
//!
//! Invariant: an item that was offered, claimed or released since it was last taken is in the news, once.
//! Nothing is tracked unless it is enabled.

use std::collections::BTreeSet;

use super::item::NONE;
use super::{ItemKey, Worklists};

#[derive(Debug, Default)]
pub(super) struct News {
    changed: BTreeSet<ItemKey>,
    /// Items that have a new holder, which may have been delegated.
    held: Vec<ItemKey>,
}

impl Worklists {
    /// Starts tracking; all existing items count as changed.
    pub fn keep_news(&mut self) {
        let slots = self.slots.by_age().into_iter().map(|place| self.slots.get(place));
        let held = slots.filter(|slot| slot.holder != NONE).map(|slot| slot.key.unpack());
        self.news = Some(News { held: held.collect(), ..News::default() });
        self.note_all();
    }

    /// A changed item; it may be gone.
    pub fn take_news(&mut self) -> Option<ItemKey> {
        self.news.as_mut()?.changed.pop_first()
    }

    /// All items count as changed: other agents may see them now.
    pub fn note_all(&mut self) {
        if let Some(news) = &mut self.news {
            let places = self.slots.by_age().into_iter();
            news.changed = places.map(|place| self.slots.get(place).key.unpack()).collect();
        }
    }

    /// Decides of the items with a new holder since the last call whether they were delegated: only the
    /// history of the case knows.
    pub fn note_given(&mut self, is_given: impl Fn(&ItemKey) -> bool) {
        let Some(news) = &mut self.news else { return };
        for key in std::mem::take(&mut news.held) {
            if let Some(place) = self.slots.find(&key) {
                self.slots.get_mut(place).is_given = is_given(&key);
            }
        }
    }

    pub(super) fn note(&mut self, key: &ItemKey) {
        if let Some(news) = &mut self.news {
            news.changed.insert(key.clone());
        }
    }

    pub(super) fn note_held(&mut self, key: &ItemKey) {
        if let Some(news) = &mut self.news {
            news.held.push(key.clone());
        }
    }
}
