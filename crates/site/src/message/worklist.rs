//! How a server shows the items that other servers have for its people.

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
    /// Please tell what there is to do for a person, and what changes.
    #[n(7)]
    Follow(#[n(0)] Follow),
    /// What there is to do for a person, or what has changed of it.
    #[n(8)]
    Items(#[n(0)] Box<Items>),
}

/// Answered at once, and from then on whenever something has changed, for some time.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Follow {
    #[n(0)]
    pub agent: AgentId,
    /// Comes back with every answer; each question has its own.
    #[n(1)]
    pub question: u64,
    /// How far the follower has read; from the beginning without it.
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
    /// Counts the answers to one question, from 0 on: one that is lost is missed.
    #[n(2)]
    pub number: u32,
    /// How far it was told before this; `None` if the list begins anew.
    #[n(3)]
    pub after: Option<Mark>,
    /// How far it is told with this.
    #[n(4)]
    pub cursor: Mark,
    /// The rest comes when it is asked for.
    #[n(5)]
    pub more: bool,
    #[cbor(n(6), skip_if = "Vec::is_empty")]
    pub items: Vec<Item>,
    #[cbor(n(7), skip_if = "Vec::is_empty")]
    pub removed: Vec<Named>,
}

/// How far a list was read; a matter of the server that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(transparent)]
pub struct Mark(#[n(0)] pub [u64; 5]);

/// An item with all there is to show of it: the receiver need not know its definition.
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
    /// What is to be shown of it.
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
