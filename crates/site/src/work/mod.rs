//! Work of people: worklists, what other servers add to them, and what is offered anew.

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
    /// What other servers have to do for people who ask here.
    pub(crate) following: Following,
    /// Other servers whose people have something to do here.
    pub(crate) followers: Followers,
    /// When those who follow worklists were served last.
    pub(crate) watched_at: Timestamp,
    /// Streams are being read; nobody has looked at the worklists yet.
    pub(crate) recovering: bool,
    /// Instances whose items are to be offered anew because the organisation has changed.
    pub(crate) stale: VecDeque<InstanceId>,
    /// Those of them being loaded.
    pub(crate) reoffering: BTreeSet<InstanceId>,
}

impl Work {
    pub(crate) fn new(life: u64, worklists: Worklists) -> Self {
        Self {
            worklists,
            following: Following::new(life),
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
