//! Room that is held for a task at the expense of others, until whoever asked has all it needs.
//!
//! A case of several steps asks for one after the other. Were those who make way for the first told at once, and the
//! second refused then, they would have made way for nothing. So room is held for a while, and nobody is told; it is
//! taken when all steps have theirs. If that is not heard of, the room is given up.

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

use super::faults::Gone;
use super::message::Message;
use super::{Asked, Effect, Node};
use crate::task::{Displaces, Promise, Task, TaskId};

/// For how many delays room is held for whoever asked.
const HELD: i64 = 300;

/// For whom room is held here.
#[derive(Clone, Debug)]
pub(super) struct Room {
    asker: ServerId,
    attempt: u64,
    task: Task,
    promise: Promise,
    until: Timestamp,
}

/// What is promised for good and lost later is not only to be promised when somebody says so.
fn for_good(mut task: Task) -> Task {
    if task.displaces == Displaces::WhenTold {
        task.displaces = Displaces::AtOnce;
    }
    task
}

impl Node {
    /// The removal module: a task is promised at the expense of others, or could be when it is told so.
    pub(super) fn at_the_expense_of_others(
        &mut self,
        task: &Task,
        (asker, attempt): (ServerId, u64),
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> Option<Promise> {
        if !self.may_remove(task) || !self.spend(now, |overheads| overheads.removal) {
            return None;
        }
        // Of an earlier attempt.
        self.desk.drop_room(task.id);
        let promise = self.desk.hold_room(&for_good(task.clone()))?;
        let until = Timestamp(now.0.saturating_add(HELD * self.policy.delay_ms));
        let room = Room { asker, attempt, task: task.clone(), promise: promise.clone(), until };
        self.rooms.insert(task.id, room);
        match task.displaces {
            Displaces::WhenTold => Some(promise),
            Displaces::AtOnce | Displaces::Never => {
                self.room_taken(task.id, (asker, attempt), attempt, now, effects)
            }
        }
    }

    fn may_remove(&self, task: &Task) -> bool {
        self.policy.removes && task.priority > 0 && task.displaces != Displaces::Never
    }

    /// Whether a task that another planner asks about could be promised here at the expense of others.
    pub(super) fn could_make_room(&mut self, task: &Task, now: Timestamp) -> bool {
        self.may_remove(task)
            && self.spend(now, |overheads| overheads.removal)
            && self.desk.could_make_room(task)
    }

    /// What was promised for this task at the expense of others is to be kept: they make way now. What comes
    /// of it is told as for a new task, also if nobody had to make way.
    pub fn take_room(&mut self, id: TaskId, now: Timestamp) -> Vec<Effect> {
        self.desk.pass(now);
        let mut effects = Vec::new();
        let (before, attempt) = (self.asked.get(&id).cloned(), self.next_attempt(now));
        if let Some(Asked { task, at: Some(at), attempt: earlier, .. }) = before {
            let until = self.answer_due(now);
            let asked = Asked::new(for_good(task), until, attempt);
            self.asked.insert(id, Asked { taking: Some(at), ..asked });
            effects.push(self.say(at, Message::Take { task: id, earlier, attempt }));
            return effects;
        }
        match self.room_taken(id, (self.me, 0), 0, now, &mut effects) {
            Some(promise) => self.settle(self.me, vec![promise], &mut effects),
            None => effects.push(Effect::Refused { task: id, earliest: None }),
        }
        effects
    }

    /// What these are for goes ahead. Should one of them be lost later, less important ones make way for it at once.
    pub fn go_ahead(&mut self, tasks: impl Iterator<Item = TaskId>) {
        for id in tasks {
            if let Some(asked) = self.asked.get_mut(&id) {
                asked.task.displaces = Displaces::AtOnce;
            }
            if let Some(task) = self.desk.task(id).cloned() {
                self.desk.replace(Task { displaces: Displaces::AtOnce, ..task });
            }
        }
    }

    /// Nobody waits any more for whoever was told to take room: it may have been promised there before.
    pub(super) fn not_taken(&self, asked: &Asked, effects: &mut Vec<Effect>) {
        if let Some(at) = asked.taking.filter(|_| asked.at.is_none()) {
            let (task, attempt) = (asked.task.id, asked.attempt);
            effects.push(self.say(at, Message::Cancel { task, attempt }));
        }
    }

    /// Whoever asked has all it needs: room that is held for it is taken.
    pub(super) fn told_to_take(
        &mut self,
        from: ServerId,
        id: TaskId,
        (earlier, attempt): (u64, u64),
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        let tasks = vec![id];
        let promises = self
            .room_taken(id, (from, earlier), attempt, now, effects)
            .map(|promise| vec![promise]);
        let answer = Message::Answer { tasks, attempt, promises, earliest: None };
        effects.push(self.say(from, answer));
    }

    /// Takes room that is held for an attempt; it is promised in another from then on. What is promised without
    /// anybody making way stays promised.
    fn room_taken(
        &mut self,
        id: TaskId,
        (asker, earlier): (ServerId, u64),
        attempt: u64,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> Option<Promise> {
        let is_of = |of: (ServerId, u64)| of == (asker, earlier) || of == (asker, attempt);
        if self.held.get(&id).is_some_and(|held| is_of((held.asker, held.attempt))) {
            let task = for_good(self.desk.task(id)?.clone());
            self.hold(&task, asker, attempt, now);
            self.desk.replace(task);
            return self.desk.promise(id);
        }
        let room = self.rooms.get(&id).filter(|room| is_of((room.asker, room.attempt))).cloned()?;
        self.rooms.remove(&id);
        let (promise, removed) = self.desk.take_room(id)?;
        self.hold_for(&room.task, (asker, attempt), now, effects);
        for task in removed {
            self.take_back(task, Gone::MadeWayHere, now, effects);
        }
        Some(promise)
    }

    /// An offer for which room is held already: what is said about it.
    pub(super) fn room_known(&self, id: TaskId, asker: ServerId, attempt: u64) -> Option<Promise> {
        let room = self.rooms.get(&id)?;
        ((room.asker, room.attempt) == (asker, attempt)).then(|| room.promise.clone())
    }

    /// Whether room is held for a later attempt.
    pub(super) fn has_later_room(&self, id: TaskId, asker: ServerId, attempt: u64) -> bool {
        self.rooms.get(&id).is_some_and(|room| room.asker == asker && room.attempt > attempt)
    }

    /// Room held for a task is not needed, at least not in attempts up to this one.
    pub(super) fn drop_room(&mut self, id: TaskId, asker: ServerId, attempt: u64) {
        let is_of = |room: &Room| room.asker == asker && room.attempt <= attempt;
        if self.rooms.get(&id).is_some_and(is_of) {
            self.rooms.remove(&id);
            self.desk.drop_room(id);
        }
    }

    pub(super) fn rooms_due(&self) -> Option<Timestamp> {
        self.rooms.values().map(|room| room.until).min()
    }

    pub(super) fn drop_old_rooms(&mut self, now: Timestamp) {
        let old = self.rooms.iter().filter(|(_, room)| room.until <= now);
        for id in old.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.rooms.remove(&id);
            self.desk.drop_room(id);
        }
    }
}
