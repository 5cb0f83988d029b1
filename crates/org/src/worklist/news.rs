//! Which items have changed, for somebody who looks at all of them: whoever writes letters about them.
//!
//! Invariant: an item that was offered, taken or given back since it was last taken out is among the
//! news, once. Nothing is kept unless it is wanted.

use std::collections::BTreeSet;

use super::item::NONE;
use super::{ItemKey, Worklists};

#[derive(Debug, Default)]
pub(super) struct News {
    changed: BTreeSet<ItemKey>,
    /// Those of which it is not known yet whether their holder was given them.
    held: Vec<ItemKey>,
}

impl Worklists {
    /// From here on changes are kept; all items there are count as changed.
    pub fn keep_news(&mut self) {
        let slots = self.slots.by_age().into_iter().map(|place| self.slots.get(place));
        let held = slots.filter(|slot| slot.holder != NONE).map(|slot| slot.key.unpack());
        self.news = Some(News { held: held.collect(), ..News::default() });
        self.note_all();
    }

    /// Some item that has changed; it may be gone.
    pub fn take_news(&mut self) -> Option<ItemKey> {
        self.news.as_mut()?.changed.pop_first()
    }

    /// All items are looked at again: others see them now.
    pub fn note_all(&mut self) {
        if let Some(news) = &mut self.news {
            let places = self.slots.by_age().into_iter();
            news.changed = places.map(|place| self.slots.get(place).key.unpack()).collect();
        }
    }

    /// Looks at the items that somebody has come to hold since this was called last, whether they were given
    /// them: only the history of the case knows.
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
