//! Room that is taken, until the case it is for goes ahead: only then those who make way are told.
//!
//! A case takes its room place by place. One of these may not have it any more, or nobody wants the case when all have:
//! then nobody has made way. Whoever asked confirms what was taken when it goes ahead, and not when it hears of it. If
//! neither that nor a cancellation is heard for a while, those who make way are told all the same: something is broken
//! then, and to hear of it late is worse. An asker that still takes room elsewhere says so each time it hears of it again.
//!
//! Invariant: where nothing breaks, nobody is told to have made way for what does not go ahead.

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

use super::faults::Gone;
use super::message::Message;
use super::{Asked, Effect, Node};
use crate::task::{Displaces, Promise, Task, TaskId};

/// For how many delays it is waited to hear whether it goes ahead.
const SUSPENSE: i64 = 100;

impl Node {
    /// What was promised for this task at the expense of others is to be kept. What comes of it is told as for a new
    /// task, also if nobody has to make way. Those who do are told when it goes ahead.
    pub fn take_room(&mut self, id: TaskId, now: Timestamp) -> Vec<Effect> {
        self.desk.pass(now);
        let mut effects = Vec::new();
        let (before, attempt) = (self.asked.get(&id).cloned(), self.next_attempt(now));
        if let Some(Asked { task, at: Some(at), attempt: earlier, .. }) = before {
            let until = self.answer_due(now);
            let asked = Asked::new(task, until, attempt);
            self.asked.insert(id, Asked { taking: Some(at), is_confirmed_later: true, ..asked });
            effects.push(self.say(at, Message::Take { task: id, earlier, attempt }));
            return effects;
        }
        match self.room_taken(id, (self.me, 0), 0, now) {
            Some(promise) => {
                self.keep_taken(id, &mut effects);
                self.settle(self.me, vec![promise], &mut effects);
            }
            None => effects.push(Effect::Refused { task: id, earliest: None }),
        }
        effects
    }

    /// What these are for goes ahead: those who make way for them hear of it. Should one of them be lost later, less
    /// important ones make way for it at once.
    pub fn go_ahead(&mut self, tasks: impl Iterator<Item = TaskId>, now: Timestamp) -> Vec<Effect> {
        self.desk.pass(now);
        let mut effects = Vec::new();
        for id in tasks {
            if let Some(asked) = self.asked.get_mut(&id) {
                asked.task.displaces = Displaces::AtOnce;
                let is_due = std::mem::take(&mut asked.is_confirmed_later);
                let (at, attempt) = (asked.at.filter(|_| is_due), asked.attempt);
                let confirm =
                    at.map(|at| self.say(at, Message::Confirm { tasks: vec![id], attempt }));
                effects.extend(confirm);
            }
            if let Some(task) = self.desk.task(id).cloned() {
                self.desk.replace(Task { displaces: Displaces::AtOnce, ..task });
            }
            self.make_way(id, now, &mut effects);
        }
        effects
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
        let promise = self.room_taken(id, (from, earlier), attempt, now);
        let (tasks, promises) = (vec![id], promise.map(|promise| vec![promise]));
        let answer = Message::Answer { tasks, attempt, promises, earliest: None };
        effects.push(self.say(from, answer));
    }

    /// Takes room that is held for an attempt; it is promised in another from then on. What is promised without
    /// anybody making way stays promised.
    pub(super) fn room_taken(
        &mut self,
        id: TaskId,
        (asker, earlier): (ServerId, u64),
        attempt: u64,
        now: Timestamp,
    ) -> Option<Promise> {
        let is_of = |of: (ServerId, u64)| of == (asker, earlier) || of == (asker, attempt);
        if self.held.get(&id).is_some_and(|held| is_of((held.asker, held.attempt))) {
            let task = self.desk.task(id)?.clone();
            self.hold(&task, asker, attempt, now);
            return self.desk.promise(id);
        }
        let until = self.suspense_ends(asker, now);
        let room = self.rooms.get_mut(&id).filter(|room| is_of((room.asker, room.attempt)))?;
        let Some(promise) = self.desk.take_room(id) else {
            self.rooms.remove(&id);
            return None;
        };
        (room.attempt, room.is_taken, room.since) = (attempt, true, now);
        room.until = until;
        let task = room.task.clone();
        self.hold(&task, asker, attempt, now);
        Some(promise)
    }

    /// When it is not waited any longer to hear whether it goes ahead; of what is asked for here that is known.
    fn suspense_ends(&self, asker: ServerId, now: Timestamp) -> Timestamp {
        match asker == self.me {
            true => Timestamp(i64::MAX),
            false => Timestamp(now.0.saturating_add(SUSPENSE * self.policy.delay_ms)),
        }
    }

    /// Whoever asked has not decided yet, and knows that room is taken: it is waited for longer, and nothing said, since this
    /// answers what was said again.
    pub(super) fn is_being_decided(&mut self, id: TaskId, of: (ServerId, u64), now: Timestamp) {
        let until = self.suspense_ends(of.0, now);
        let room = self.rooms.get_mut(&id).filter(|it| it.is_taken && !it.is_begun);
        if let Some(room) = room.filter(|room| (room.asker, room.attempt) == of) {
            room.until = room.until.max(until);
        }
    }

    /// After how long that room is taken is said again at the latest: before it is not waited for any longer, also if
    /// one message gets lost.
    pub(super) fn said_in_suspense(&self) -> i64 {
        SUSPENSE / 3 * self.policy.delay_ms
    }

    /// It goes ahead, and so does the rest of its case that has taken room in the same plan: those who make way hear of
    /// it now.
    pub(super) fn make_way(&mut self, id: TaskId, now: Timestamp, effects: &mut Vec<Effect>) {
        let Some(room) = self.rooms.get(&id).filter(|room| room.is_taken) else { return };
        let made_way = match room.is_begun {
            true => Some(Ok(self.desk.make_way_for_begun(id))),
            false => self.desk.make_way(id),
        };
        let taken = self.rooms.iter().filter(|(_, room)| room.is_taken);
        let made: Vec<(TaskId, bool)> = taken
            .filter(|(id, _)| !self.desk.is_in_room(**id))
            .map(|(id, room)| (*id, room.is_begun))
            .collect();
        for (id, is_begun) in made {
            self.rooms.remove(&id);
            if is_begun {
                self.desk.begin(id);
            }
        }
        match made_way {
            Some(Ok(removed)) => {
                for task in removed {
                    self.take_back(task, Gone::MadeWayHere, now, effects);
                }
            }
            Some(Err(task)) => self.take_back(task, Gone::Lost, now, effects),
            None => {}
        }
    }

    /// Somebody works on a task for which others have not made way yet: so it went ahead. They are told next.
    pub(super) fn begin_in_room(&mut self, id: TaskId) {
        if let Some(room) = self.rooms.get_mut(&id).filter(|room| room.is_taken) {
            (room.is_begun, room.until) = (true, room.since);
        }
    }

    /// Room that is taken is there no more, since somebody has begun what was to make way: so the task does, unless somebody
    /// works on it as well.
    pub(super) fn yield_rooms(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let taken = self.rooms.iter().filter(|(_, room)| room.is_taken && !room.is_begun);
        let lost = taken.map(|(id, _)| *id).filter(|id| self.desk.has_lost_room(*id));
        for id in lost.collect::<Vec<_>>() {
            if let Some(task) = self.desk.end(id) {
                self.take_back(task, Gone::Lost, now, effects);
            }
        }
    }
}
