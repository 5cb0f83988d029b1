//! Items of people at other servers.

use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::RecordedAt;
use legwork_model::id::{ActivityId, AgentId};
use legwork_model::time::Timestamp;
use legwork_org::Cursor;
use minicbor::{Decode, Encode};

use super::Named;
use crate::answer::ItemInfo;

/// About the worklist of one person.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(flat, context_bound = "AsRef<RecordedAt>")]
pub enum Worklist {
    /// Asks to follow the items of a person.
    #[n(7)]
    Follow(#[n(0)] Follow),
    /// The items of a person, or their changes.
    #[n(8)]
    Items(#[n(0)] Box<Items>),
}

/// Answered at once, and then after each change for some time.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Follow {
    #[n(0)]
    pub agent: AgentId,
    /// Repeated in every answer; each question has its own.
    #[n(1)]
    pub question: u64,
    /// The cursor of the follower; `None` for all items.
    #[n(2)]
    pub since: Option<Mark>,
    /// For how long; 0 ends it.
    #[n(3)]
    pub seconds: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(context_bound = "AsRef<RecordedAt>")]
pub struct Items {
    #[n(0)]
    pub agent: AgentId,
    #[n(1)]
    pub question: u64,
    /// Counts the answers to one question from 0, so that a lost one is detected.
    #[n(2)]
    pub number: u32,
    /// The cursor before this answer; `None` if the list begins anew.
    #[n(3)]
    pub after: Option<Mark>,
    /// The cursor after this answer.
    #[n(4)]
    pub cursor: Mark,
    /// The rest is sent on request.
    #[n(5)]
    pub more: bool,
    #[cbor(n(6), skip_if = "Vec::is_empty")]
    pub items: Vec<Item>,
    #[cbor(n(7), skip_if = "Vec::is_empty")]
    pub removed: Vec<Named>,
}

/// A cursor, opaque to all but the server that issued it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Mark(#[n(0)] pub [u64; 5]);

/// An item with everything to show of it: the receiver need not know its definition.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(context_bound = "AsRef<RecordedAt>")]
pub struct Item {
    #[n(0)]
    pub activity: Named,
    #[cbor(n(1), with = "legwork_model::id::shared_text")]
    pub process: Arc<str>,
    #[cbor(n(2), with = "legwork_model::id::shared_text")]
    pub title: Arc<str>,
    #[cbor(n(3), with = "legwork_model::event::relative")]
    pub offered_at: Timestamp,
    #[n(4)]
    pub claimed_by: Option<AgentId>,
    #[n(5)]
    pub takes_ms: Option<u64>,
    #[n(6)]
    pub on_behalf_of: Option<AgentId>,
    #[n(7)]
    pub due: Option<Timestamp>,
    #[n(8)]
    pub planned_for: Option<AgentId>,
}

impl Item {
    /// The view of the item.
    pub(crate) fn info(
        &self,
        activity: &ActivityId,
        server: Option<Arc<str>>,
        stale: bool,
    ) -> ItemInfo {
        ItemInfo {
            activity: activity.clone(),
            process: self.process.clone(),
            title: self.title.clone(),
            offered_at: self.offered_at,
            claimed_by: self.claimed_by.clone(),
            takes: self.takes_ms.map(Duration::from_millis),
            due: self.due,
            planned_for: self.planned_for.clone(),
            on_behalf_of: self.on_behalf_of.clone(),
            server,
            stale,
        }
    }
}

impl From<ItemInfo> for Item {
    fn from(info: ItemInfo) -> Self {
        Self {
            activity: info.activity.into(),
            process: info.process,
            title: info.title,
            offered_at: info.offered_at,
            claimed_by: info.claimed_by,
            takes_ms: info.takes.map(|takes| takes.as_millis() as u64),
            on_behalf_of: info.on_behalf_of,
            due: info.due,
            planned_for: info.planned_for,
        }
    }
}

impl From<Cursor> for Mark {
    fn from(cursor: Cursor) -> Self {
        Self(cursor.numbers())
    }
}

impl From<Mark> for Cursor {
    fn from(Mark(numbers): Mark) -> Self {
        Self::from_numbers(numbers)
    }
}
