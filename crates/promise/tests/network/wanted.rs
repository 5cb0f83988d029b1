//! What whoever wants a task knows of it.

use std::collections::BTreeSet;

use legwork_model::id::ServerId;
use legwork_promise::{Displaces, ResourceId, Task};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Asked,
    Promised,
    Refused,
    Done,
}

pub(super) struct Wanted {
    pub(super) task: Task,
    pub(super) owner: usize,
    pub(super) state: State,
    pub(super) at: Option<ServerId>,
    /// Whoever has promised it, or had.
    pub(super) by: BTreeSet<ResourceId>,
    /// Somebody is gone, or has said that the promise is taken back: that is on its way.
    pub(super) is_excused: bool,
    pub(super) parts_done: BTreeSet<u16>,
    /// It is done, and its owner, who was gone then, does not know.
    pub(super) is_unheard: bool,
    /// When its owner says whether it takes the room that is held for it; that it has said so.
    pub(super) decides: Option<i64>,
    pub(super) has_decided: bool,
    /// When its case goes ahead or is given up, if its room was taken; that it has gone ahead.
    pub(super) goes_ahead: Option<i64>,
    pub(super) has_gone_ahead: bool,
    /// For how long others had not made way yet for which it has taken room.
    pub(super) waited: i64,
    /// What was said for it until it was answered, and the most for one answer.
    pub(super) messages: usize,
    pub(super) messages_max: usize,
}

impl Wanted {
    pub(super) fn new(task: Task, owner: usize) -> Self {
        Self {
            owner,
            state: State::Asked,
            at: None,
            by: BTreeSet::new(),
            is_excused: false,
            parts_done: BTreeSet::new(),
            is_unheard: false,
            decides: None,
            has_decided: task.displaces != Displaces::WhenTold,
            goes_ahead: None,
            has_gone_ahead: task.displaces != Displaces::WhenTold,
            waited: 0,
            messages: 0,
            messages_max: 0,
            task,
        }
    }

    /// It is tried again: what is said from now on is for another answer.
    pub(super) fn begin_round(&mut self) {
        self.messages_max = self.messages_max.max(self.messages);
        self.messages = 0;
    }
}
