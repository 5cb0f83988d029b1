//! Worklists: the items that wait for people, folded from the events of instances.
//!
//! Every change has its own revision. An item is either offered to all its potential actors or held by
//! exactly one of them, and is in exactly one list. Nothing is decided here: the engine decides, and the
//! worklists follow.

mod audience;
mod concerned;
mod cursor;
mod elsewhere;
mod item;
mod list;
mod merged;
mod news;
mod read;

use std::sync::Arc;

use legwork_model::id::AgentId;
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;

pub use cursor::Cursor;
pub use elsewhere::{Elsewhere, There};
pub use item::{Item, ItemKey};
pub use list::Retention;
pub use merged::{MergedCursor, MergedDelta, MergedItem, MergedRead};
pub use read::{Delta, ItemView, PAGE_MAX, Removed};

use self::audience::{Audiences, ListNo};
use self::item::{Age, NONE, PackedKey, Slot, Slots};
use self::list::Removal;
use self::news::News;
use crate::organisation::Organisation;
use crate::resolve::Resolved;

#[derive(Debug)]
pub struct Worklists {
    epoch: u64,
    revision: u64,
    /// Cursors from before this revision start over.
    horizon: u64,
    /// The age of the youngest item so far.
    youngest: Age,
    slots: Slots,
    claimed: usize,
    audiences: Audiences,
    /// Changed items, if they are tracked.
    news: Option<News>,
}

/// Items that need a decision after the organisation has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reoffered {
    /// Unclaimed items that nobody can do any more.
    pub without_actors: Vec<ItemKey>,
    /// Items held by agents who left the organisation; nobody sees them until they are released.
    pub without_holder: Vec<ItemKey>,
}

impl Worklists {
    /// Empty lists. The epoch must differ from that of every earlier incarnation of the site, so that old
    /// cursors are not valid.
    pub fn new(epoch: u64, organisation: &Organisation) -> Self {
        Self::with_retention(epoch, organisation, Retention::default())
    }

    pub fn with_retention(epoch: u64, organisation: &Organisation, retention: Retention) -> Self {
        Self {
            epoch,
            revision: 0,
            horizon: 0,
            youngest: Age::MIN,
            slots: Slots::new(),
            claimed: 0,
            audiences: Audiences::new(organisation.roster.clone(), retention),
            news: None,
        }
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of claimed items.
    pub fn claimed(&self) -> usize {
        self.claimed
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn item(&self, key: &ItemKey) -> Option<Item> {
        self.slots.find(key).and_then(|place| self.item_at(place))
    }

    /// The agents who may do an item, by the rule of its step.
    pub fn resolved(&self, key: &ItemKey) -> Option<&Resolved> {
        let place = self.slots.find(key)?;
        self.audiences.resolved(self.slots.get(place).queue).map(|resolved| &**resolved)
    }

    /// Offers an item to all its actors. An existing item is offered again, to the new actors, whether
    /// claimed or not; with the same time of offer it keeps its place.
    pub fn offer(
        &mut self,
        key: &ItemKey,
        schema: &Arc<Schema>,
        resolved: &Resolved,
        at: Timestamp,
    ) {
        let first = self.slots.find(key).map(|place| self.slots.get(place).offered);
        self.withdraw(key);
        self.revision += 1;
        let queue = self.audiences.join(resolved);
        let mut slot = Slot::new(PackedKey::new(key), schema.clone(), queue, self.revision, at);
        slot.offered = first.unwrap_or(self.revision);
        let place = self.slots.insert(slot);
        self.enter(place);
        self.note(key);
    }

    /// Moves an item from all its actors to its new holder. Returns whether the item exists.
    pub fn claim(&mut self, key: &ItemKey, by: &AgentId, at: Timestamp) -> bool {
        let Some(place) = self.slots.find(key) else { return false };
        let holder = self.audiences.person(by);
        self.move_to(place, holder, at);
        self.note(key);
        self.note_held(key);
        true
    }

    /// Hands an item to another holder, whether it was claimed or not.
    pub fn delegate(&mut self, key: &ItemKey, to: &AgentId, at: Timestamp) -> bool {
        self.claim(key, to, at)
    }

    /// An item has changed in a way that its readers see, while its readers and its holder stay. Returns
    /// whether the item exists.
    pub fn touch(&mut self, key: &ItemKey) -> bool {
        let Some(place) = self.slots.find(key) else { return false };
        self.revision += 1;
        self.leave(place);
        self.slots.get_mut(place).changed = self.revision;
        self.enter(place);
        true
    }

    /// Offers an item to all its actors again; it keeps its age.
    pub fn release(&mut self, key: &ItemKey) -> bool {
        let Some(place) = self.slots.find(key) else { return false };
        let at = self.slots.get(place).offered_at;
        self.move_to(place, NONE, at);
        self.note(key);
        true
    }

    /// Removes an item: it was completed, or is no longer to be done.
    pub fn withdraw(&mut self, key: &ItemKey) -> bool {
        let Some(place) = self.slots.find(key) else { return false };
        self.revision += 1;
        let (list, removal) = (self.leave(place), self.removal(place));
        let Slot { queue, holder, .. } = *self.slots.get(place);
        self.claimed -= usize::from(holder != NONE);
        self.slots.remove(place);
        self.remember(list, removal);
        self.audiences.part(queue);
        true
    }

    /// Switches to a new organisation: the potential actors of every item are computed again. Items keep
    /// their age and their holder; all older cursors start over.
    pub fn reoffer(
        &mut self,
        organisation: &Organisation,
        resolve: impl Fn(&ItemKey, &Item) -> Resolved,
    ) -> Reoffered {
        self.revision += 1;
        self.horizon = self.revision;
        let fresh = Audiences::new(organisation.roster.clone(), self.audiences.retention());
        let mut reoffered = Reoffered::default();
        self.note_all();
        let places = self.slots.by_age();
        let before = std::mem::replace(&mut self.audiences, fresh);
        for place in places {
            let slot = self.slots.get(place);
            let holder = (slot.holder != NONE).then(|| before.name(slot.holder));
            let key = slot.key.unpack();
            let Some(item) = item_of(slot, holder) else { continue };
            let resolved = resolve(&key, &item);
            let queue = self.audiences.join(&resolved);
            let holder = holder.map(|agent| self.audiences.person(agent));
            match holder {
                Some(holder) if self.audiences.is_stranger(holder) => {
                    reoffered.without_holder.push(key);
                }
                None if resolved.actors.is_empty() => reoffered.without_actors.push(key),
                Some(_) | None => {}
            }
            let slot = self.slots.get_mut(place);
            slot.queue = queue;
            slot.holder = holder.unwrap_or(NONE);
            slot.changed = self.revision;
            let list = self.list_at(self.slots.get(place));
            if let Some(list) = self.audiences.list_mut(list) {
                list.enter(place, self.slots.get(place).age(), None);
            }
        }
        reoffered
    }

    /// Drops what is remembered for the cursors handed out so far; they all start over. Useful after a
    /// recovery, which offers in any order while there are no cursors yet.
    pub fn start_afresh(&mut self) {
        self.revision += 1;
        self.horizon = self.revision;
        self.audiences.forget();
    }

    fn move_to(&mut self, place: u32, holder: u32, at: Timestamp) {
        let before = self.slots.get(place).holder;
        if before == holder {
            return;
        }
        self.revision += 1;
        let (list, removal) = (self.leave(place), self.removal(place));
        self.remember(list, removal);
        let slot = self.slots.get_mut(place);
        slot.holder = holder;
        slot.claimed_at = at;
        slot.is_given = false;
        slot.changed = self.revision;
        self.enter(place);
        self.claimed += usize::from(before == NONE);
        self.claimed -= usize::from(holder == NONE);
    }

    fn list_at(&self, slot: &Slot) -> ListNo {
        if slot.holder == NONE {
            self.audiences.list_of_queue(slot.queue)
        } else {
            ListNo::Held(slot.holder)
        }
    }

    fn enter(&mut self, place: u32) {
        let slot = self.slots.get(place);
        let (number, age) = (self.list_at(slot), slot.age());
        // Readers reach an item that is younger than all others by age; other items have to be reported as
        // moved.
        let moved_at = (age <= self.youngest).then_some(slot.changed);
        self.youngest = self.youngest.max(age);
        if let Some(list) = self.audiences.list_mut(number) {
            list.enter(place, age, moved_at);
        }
    }

    fn leave(&mut self, place: u32) -> ListNo {
        let slot = self.slots.get(place);
        let number = self.list_at(slot);
        if let Some(list) = self.audiences.list_mut(number) {
            list.leave(slot.age(), slot.changed);
        }
        number
    }

    /// What is remembered of an item that leaves its list now.
    fn removal(&self, place: u32) -> Option<Removal> {
        let slot = self.slots.get(place);
        let resolved = self.audiences.resolved(slot.queue)?.clone();
        let (key, schema, holder) = (slot.key.clone(), slot.schema.clone(), slot.holder);
        Some(Removal { revision: self.revision, key, schema, resolved, holder })
    }

    fn remember(&mut self, number: ListNo, removal: Option<Removal>) {
        let retention = self.audiences.retention();
        if let Some((list, removal)) = self.audiences.list_mut(number).zip(removal) {
            list.remember(removal, retention);
        }
        self.audiences.rest(number);
    }

    fn item_at(&self, place: u32) -> Option<Item> {
        let slot = self.slots.get(place);
        item_of(slot, (slot.holder != NONE).then(|| self.audiences.name(slot.holder)))
    }
}

fn item_of(slot: &Slot, holder: Option<&AgentId>) -> Option<Item> {
    Some(Item {
        schema: slot.schema.clone()?,
        offered_at: slot.offered_at,
        claimed_by: holder.cloned(),
        claimed_at: holder.map(|_| slot.claimed_at),
        is_given: slot.is_given,
    })
}
