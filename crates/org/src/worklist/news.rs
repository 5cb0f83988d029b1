//! Which items have changed, for somebody who looks at all of them: whoever writes letters about them.
//!
//! Invariant: an item that was offered, taken or given back since it was last taken out is among the
//! news, once. Nothing is kept unless it is wanted.

use std::collections::BTreeSet;

use super::{ItemKey, Worklists};

pub(super) type News = BTreeSet<ItemKey>;

impl Worklists {
    /// From here on changes are kept; all items there are count as changed.
    pub fn keep_news(&mut self) {
        self.news = Some(News::new());
        self.note_all();
    }

    /// Some item that has changed; it may be gone.
    pub fn take_news(&mut self) -> Option<ItemKey> {
        self.news.as_mut()?.pop_first()
    }

    /// All items are looked at again: others see them now.
    pub fn note_all(&mut self) {
        if self.news.is_some() {
            let keys =
                self.slots.by_age().into_iter().map(|place| self.slots.get(place).key.unpack());
            self.news = Some(keys.collect());
        }
    }

    pub(super) fn note(&mut self, key: &ItemKey) {
        if let Some(news) = &mut self.news {
            news.insert(key.clone());
        }
    }
}
