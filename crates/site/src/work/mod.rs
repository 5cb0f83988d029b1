//! Work of people: worklists, items of other servers on them, and items to offer again.

pub(crate) mod followers;
pub(crate) mod following;
pub(crate) mod items;
pub(crate) mod merged;

use std::collections::{BTreeSet, VecDeque};

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_org::Worklists;

use crate::message;
use followers::Followers;
use following::Following;
use legwork_model::id::ServerId;

#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) worklists: Worklists,
    /// Items at other servers for people who ask here.
    pub(crate) following: Following,
    /// Other servers that follow people's items here.
    pub(crate) followers: Followers,
    /// When waiting requests and followers were last served.
    pub(crate) watched_at: Timestamp,
    /// Streams are being replayed; no worklist has been read yet.
    pub(crate) recovering: bool,
    /// Instances whose items have to be offered again under a new organisation.
    pub(crate) stale: VecDeque<InstanceId>,
    /// Those of them being loaded.
    pub(crate) reoffering: BTreeSet<InstanceId>,
}

impl Work {
    pub(crate) fn new(incarnation: u64, worklists: Worklists) -> Self {
        Self {
            worklists,
            following: Following::new(incarnation),
            followers: Followers::default(),
            watched_at: Timestamp::default(),
            recovering: false,
            stale: VecDeque::new(),
            reoffering: BTreeSet::new(),
        }
    }
}

impl Work {
    pub(crate) fn on_worklist(
        &mut self,
        from: ServerId,
        message: message::Worklist,
        now: Timestamp,
    ) {
        match message {
            message::Worklist::Follow(follow) => self.on_follow(from, follow, now),
            message::Worklist::Items(items) => self.on_items(from, *items, now),
        }
    }
}
