//! Room that is held for a task at the expense of others, until whoever asked has all it needs.
//!
//! A case of several steps asks for one after the other. Were those who make way for the first told at once, and the
//! second refused then, they would have made way for nothing. So room is held for a while, and nobody is told; it is
//! taken when all steps have theirs (`suspense`). If that is not heard of, the room is given up.

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

use super::{Effect, Node};
use crate::task::{Displaces, Promise, Task, TaskId};

/// For how many delays room is held for whoever asked.
const HELD: i64 = 300;

/// For whom room is held here.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) asker: ServerId,
    pub(super) attempt: u64,
    pub(super) task: Task,
    promise: Promise,
    /// When it is given up; if it is taken, when those who make way are told.
    pub(super) until: Timestamp,
    /// Whether it is taken, and since when that or the other is so.
    pub(super) is_taken: bool,
    pub(super) since: Timestamp,
    /// Somebody works on the task already.
    pub(super) is_begun: bool,
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
        let promise = self.desk.hold_room(task)?;
        let until = Timestamp(now.0.saturating_add(HELD * self.policy.delay_ms));
        let (task, id, promised) = (task.clone(), task.id, promise.clone());
        let displaces = task.displaces;
        let (is_taken, is_begun) = (false, false);
        let room = Room { asker, attempt, task, promise, until, is_taken, since: now, is_begun };
        self.rooms.insert(id, room);
        if displaces == Displaces::WhenTold {
            return Some(promised);
        }
        let promise = self.room_taken(id, (asker, attempt), attempt, now)?;
        self.keep_taken(id, effects);
        self.make_way(id, now, effects);
        // It may be that it is taken back at once.
        self.held.contains_key(&id).then_some(promise)
    }

    /// Room of an earlier attempt is not needed, held or taken: that attempt does not count any more.
    pub(super) fn drop_earlier_room(&mut self, id: TaskId, effects: &mut Vec<Effect>) {
        if self.desk.is_in_room(id) {
            self.end(id, effects);
        }
        if self.rooms.remove(&id).is_some() {
            self.desk.drop_room(id);
        }
    }

    /// The deputy keeps what room was taken for here.
    pub(super) fn keep_taken(&self, id: TaskId, effects: &mut Vec<Effect>) {
        if let Some(task) = self.desk.task(id).filter(|_| self.asker(id) == Some(self.me)) {
            self.have_kept(task, effects);
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

    /// An offer for which room is held already: what is said about it.
    pub(super) fn room_known(&self, id: TaskId, asker: ServerId, attempt: u64) -> Option<Promise> {
        let room = self.rooms.get(&id)?;
        (!room.is_taken && (room.asker, room.attempt) == (asker, attempt))
            .then(|| room.promise.clone())
    }

    /// Whether room is held for a later attempt.
    pub(super) fn has_later_room(&self, id: TaskId, asker: ServerId, attempt: u64) -> bool {
        self.rooms.get(&id).is_some_and(|room| room.asker == asker && room.attempt > attempt)
    }

    /// Room held for a task is not needed, at least not in attempts up to this one.
    pub(super) fn drop_room(&mut self, id: TaskId, asker: ServerId, attempt: u64) {
        // What is taken is promised, and ends as such.
        let is_of = |room: &Room| !room.is_taken && room.asker == asker && room.attempt <= attempt;
        if self.rooms.get(&id).is_some_and(is_of) {
            self.rooms.remove(&id);
            self.desk.drop_room(id);
        }
    }

    pub(super) fn rooms_due(&self) -> Option<Timestamp> {
        let due = self.rooms.iter().map(|(id, room)| {
            let is_lost = room.is_taken && self.desk.has_lost_room(*id);
            if is_lost { room.since } else { room.until }
        });
        due.filter(|due| due.0 < i64::MAX).min()
    }

    /// Nobody has said what becomes of room.
    pub(super) fn settle_old_rooms(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        self.yield_rooms(now, effects);
        let old = self.rooms.iter().filter(|(_, room)| room.until <= now);
        for (id, is_taken) in old.map(|(id, room)| (*id, room.is_taken)).collect::<Vec<_>>() {
            if is_taken {
                self.make_way(id, now, effects);
            } else {
                self.rooms.remove(&id);
                self.desk.drop_room(id);
            }
        }
    }
}
