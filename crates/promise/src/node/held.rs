//! What is promised here for others: nobody forgets it because a message got lost.
//!
//! Whoever holds a promise for another planner says so again until that one confirms it or does not want it,
//! and asks once more when that one can be reached again, and when its deadline has passed. So neither a lost answer
//! nor a lost cancellation leaves a reservation for ever. Whoever takes a promise back says so until the other knows.

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

use super::faults::Gone;
use super::message::{Message, Offer};
use super::{Asked, Effect, Node};
use crate::task::{Promise, Task, TaskId};

/// Of how many promises it is asked at once whether they are wanted, and how soon of the next.
const ASKED_AT_ONCE: i64 = 100;
const ASKED_EVERY_MS: i64 = 100;

/// For whom a task is promised here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) asker: ServerId,
    pub(super) attempt: u64,
    again: Again,
}

/// A promise that was taken back, until the one it was for knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Untold {
    asker: ServerId,
    attempt: u64,
    is_lost: bool,
    goes_on: bool,
    again: Again,
}

/// What a planner has to remember over a restart besides its plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// A promise was taken back, and whoever it was for has to know.
    TakenBack { task: TaskId, asker: ServerId, attempt: u64, is_lost: bool, goes_on: bool },
    /// They know.
    Told { task: TaskId },
}

/// When something is said again; each time it is waited twice as long.
#[derive(Clone, Copy, Debug)]
struct Again {
    at: Timestamp,
    wait: i64,
}

impl Again {
    fn after(moment: Timestamp, wait: i64) -> Self {
        Self { at: Timestamp(moment.0.saturating_add(wait)), wait }
    }

    /// It is said now, and then after twice the time, but not after more than so much.
    fn is_due(&mut self, now: Timestamp, wait_max: i64) -> bool {
        let is_due = self.at <= now;
        if is_due {
            *self = Self::after(now, self.wait.saturating_mul(2).min(wait_max));
        }
        is_due
    }
}

/// An answer is waited for as long as so many messages take.
const ANSWERED_WITHIN: i64 = 4;

/// Whoever still counts on what was taken back hears of it again after this at the latest.
const TAKEN_WAIT_MAX_MS: i64 = 60_000;

impl Node {
    /// Later ones have higher numbers, also after a restart.
    pub(super) fn next_attempt(&mut self, now: Timestamp) -> u64 {
        self.attempt = (self.attempt + 1).max(now.0.unsigned_abs());
        self.attempt
    }

    fn wait(&self) -> i64 {
        (ANSWERED_WITHIN * self.policy.delay_ms).max(1)
    }

    pub(super) fn hold(&mut self, task: &Task, asker: ServerId, attempt: u64, now: Timestamp) {
        let again = Again::after(now, self.wait());
        let before = self.held.insert(task.id, Held { asker, attempt, again });
        if before.is_some_and(|held| (held.asker, held.attempt) != (asker, attempt)) {
            self.desk.note_again(task.id);
        }
        if self.untold.remove(&task.id).is_some() {
            self.noted.push(Noted::Told { task: task.id });
        }
    }

    /// It was held before a restart: whether it is still wanted is asked when whoever asked can be reached, and when it
    /// should be done.
    pub(super) fn hold_again(&mut self, task: &Task, (asker, attempt): (ServerId, u64)) {
        let again = Again::after(task.window.deadline, self.wait());
        self.held.insert(task.id, Held { asker, attempt, again });
    }

    /// Nobody holds it here any more; answers for whom it was.
    pub(super) fn let_go(
        &mut self,
        id: TaskId,
        effects: &mut Vec<Effect>,
    ) -> Option<(ServerId, u64)> {
        let Held { asker, attempt, .. } = self.held.remove(&id)?;
        // Room that is taken is promised, and goes with that.
        if self.rooms.get(&id).is_some_and(|room| room.is_taken) {
            self.rooms.remove(&id);
        }
        if asker == self.me && id.part == 0 {
            self.have_forgotten(id, effects);
        }
        Some((asker, attempt))
    }

    pub(super) fn tell_promised(
        &mut self,
        (asker, attempt): (ServerId, u64),
        promises: Vec<Promise>,
        effects: &mut Vec<Effect>,
    ) {
        if asker == self.me {
            return self.settle(self.me, promises, effects);
        }
        let tasks = promises.iter().map(|promise| promise.task).collect();
        let answer = Message::Answer { tasks, attempt, promises: Some(promises), earliest: None };
        effects.push(self.say(asker, answer));
    }

    /// Whether an offer came before: what is promised already is said again, what waits for bids goes on
    /// waiting, and what was promised otherwise is forgotten.
    pub(super) fn is_known(
        &mut self,
        offer: &Offer,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Offer { tasks, asker, attempt, .. } = offer;
        if let [only] = tasks.as_slice()
            && let Some(promise) = self.room_known(only.id, *asker, *attempt)
        {
            self.tell_promised((*asker, *attempt), vec![promise], effects);
            return true;
        }
        if tasks.iter().any(|task| self.has_later_room(task.id, *asker, *attempt)) {
            return true;
        }
        tasks.iter().for_each(|task| self.drop_room(task.id, *asker, *attempt));
        let known = tasks.iter().filter(|task| self.held.contains_key(&task.id));
        let known: Vec<&Task> = known.collect();
        let is_older = |task: &&Task| {
            let held = self.held.get(&task.id).filter(|held| held.asker == *asker);
            held.is_some_and(|held| held.attempt > *attempt)
        };
        if known.iter().any(is_older) {
            return true;
        }
        if known.len() == tasks.len() && known.iter().all(|it| self.desk.is_promised_as(it)) {
            for task in known {
                self.hold(task, *asker, *attempt, now);
            }
            let promises = tasks.iter().filter_map(|task| self.desk.promise(task.id)).collect();
            self.tell_promised((*asker, *attempt), promises, effects);
            return true;
        }
        for task in known {
            self.end(task.id, effects);
        }
        tasks.iter().any(|task| {
            self.passing.get(&task.id).is_some_and(|passing| passing.is_of(*asker, *attempt))
        })
    }

    /// Another planner has promised tasks that were asked for here, or says so again.
    pub(super) fn promised_by(
        &mut self,
        from: ServerId,
        (tasks, attempt): (&[TaskId], u64),
        promises: Vec<Promise>,
        effects: &mut Vec<Effect>,
    ) {
        let is_wanted = |id: &TaskId| {
            self.asked.get(id).is_some_and(|asked| match asked.at {
                Some(at) => at == from,
                None => asked.attempt == attempt,
            })
        };
        let (wanted, unwanted): (Vec<TaskId>, Vec<TaskId>) =
            tasks.iter().partition(|id| is_wanted(id));
        let is_new = |id: &TaskId| self.asked.get(id).is_some_and(|asked| asked.at.is_none());
        let new: Vec<TaskId> = wanted.iter().filter(|id| is_new(id)).copied().collect();
        // Given up, done or promised by somebody else meanwhile.
        effects.extend(
            unwanted.into_iter().map(|task| self.say(from, Message::Cancel { task, attempt })),
        );
        // Whoever took room for it tells those who make way when it is confirmed: it has to go ahead first.
        let is_later = |id: &TaskId| self.asked.get(id).is_some_and(|it| it.is_confirmed_later);
        let (later, counted): (Vec<TaskId>, Vec<TaskId>) =
            wanted.into_iter().partition(|id| is_later(id));
        // It is decided when room is taken everywhere: whoever says so again is to wait.
        let again = later.into_iter().filter(|id| !new.contains(id));
        let wait = |task| self.say(from, Message::Take { task, earlier: attempt, attempt });
        effects.extend(again.map(wait));
        if !counted.is_empty() {
            effects.push(self.say(from, Message::Confirm { tasks: counted, attempt }));
        }
        let promises = promises.into_iter().filter(|promise| new.contains(&promise.task));
        self.settle(from, promises.collect(), effects);
    }

    /// Whoever asked counts on promises made here: those who make way hear of it. It is asked again when they should have
    /// been kept.
    pub(super) fn confirmed(
        &mut self,
        from: ServerId,
        tasks: &[TaskId],
        attempt: u64,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        let wait = self.wait();
        for id in tasks {
            let deadline = self.desk.task(*id).map_or(now, |task| task.window.deadline);
            let held = self.held.get_mut(id);
            if let Some(held) = held.filter(|it| it.asker == from && it.attempt == attempt) {
                // Each time it is still wanted behind its deadline it is waited twice as long.
                let wait = if deadline > now { wait } else { held.again.wait };
                held.again = Again::after(deadline.max(now), wait);
                self.make_way(*id, now, effects);
            }
        }
    }

    /// Whoever asked can be reached again. They may have begun anew, and not want what they had counted on; or they did
    /// not want it any more, and that was not heard. Nor may they have heard what was taken back.
    pub fn ask_again(&mut self, asker: ServerId, now: Timestamp) -> Vec<Effect> {
        let (mut effects, wait) = (Vec::new(), self.wait());
        let taken = self.untold.values_mut().filter(|taken| taken.asker == asker);
        let held = self.held.values_mut().filter(|held| held.asker == asker);
        let own = taken.map(|taken| &mut taken.again).chain(held.map(|held| &mut held.again));
        for (number, again) in (0_i64..).zip(own) {
            // Some at a time: there may be thousands.
            let at = Timestamp(now.0 + number / ASKED_AT_ONCE * ASKED_EVERY_MS);
            *again = Again { at, wait };
        }
        self.say_again(now, &mut effects);
        effects
    }

    /// Whoever asked does not want it any more, or knows that it was taken back.
    pub(super) fn cancelled(
        &mut self,
        from: ServerId,
        id: TaskId,
        attempt: u64,
        effects: &mut Vec<Effect>,
    ) {
        let is_of = |asker: ServerId, of: u64| asker == from && of <= attempt;
        if self.held.get(&id).is_some_and(|held| is_of(held.asker, held.attempt)) {
            self.end(id, effects);
        }
        self.drop_room(id, from, attempt);
        if self.untold.get(&id).is_some_and(|taken| is_of(taken.asker, taken.attempt)) {
            self.untold.remove(&id);
            self.noted.push(Noted::Told { task: id });
        }
    }

    /// What has to be remembered about promises that were taken back, since this was asked last.
    pub fn take_noted(&mut self) -> Vec<Noted> {
        std::mem::take(&mut self.noted)
    }

    /// Takes in a promise that was taken back before a restart, and of which the other may not know.
    pub fn tell_taken_back(
        &mut self,
        id: TaskId,
        (asker, attempt): (ServerId, u64),
        (is_lost, goes_on): (bool, bool),
        now: Timestamp,
    ) {
        let again = Again { at: now, wait: self.wait() };
        self.untold.insert(id, Untold { asker, attempt, is_lost, goes_on, again });
    }

    /// A promise made here is taken back. It is tried again by whoever asked for it, unless it goes on.
    pub(super) fn take_back(
        &mut self,
        task: Task,
        gone: Gone,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        // Another part of the same task was taken back before.
        let Some((asker, attempt)) = self.let_go(task.id, effects) else { return };
        if asker == self.me {
            return self.try_again(task, Some(gone), now, effects);
        }
        let (task, again) = (task.id, Again::after(now, self.wait()));
        let (is_lost, goes_on) = (gone != Gone::MadeWayHere, gone == Gone::Late);
        self.untold.insert(task, Untold { asker, attempt, is_lost, goes_on, again });
        self.noted.push(Noted::TakenBack { task, asker, attempt, is_lost, goes_on });
        effects.push(self.say(asker, Message::TakenBack { task, attempt, is_lost, goes_on }));
    }

    /// Another planner has taken back what it had promised for this one.
    pub(super) fn taken_back(
        &mut self,
        from: ServerId,
        (id, attempt): (TaskId, u64),
        gone: Gone,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(self.say(from, Message::Cancel { task: id, attempt }));
        let is_of = |asked: &Asked| asked.attempt == attempt || asked.is_restored;
        let asked = self.asked.get(&id).filter(|asked| is_of(asked));
        let Some(asked) = asked.filter(|asked| asked.at.is_none_or(|at| at == from)) else {
            return;
        };
        let (task, was_promised) = (asked.task.clone(), asked.at.is_some());
        self.try_again(task, was_promised.then_some(gone), now, effects);
    }

    /// When something has to be said again.
    pub(super) fn said_again(&self) -> impl Iterator<Item = Timestamp> {
        let held = self.held.values().filter(|held| held.asker != self.me);
        held.map(|held| held.again.at).chain(self.untold.values().map(|taken| taken.again.at))
    }

    pub(super) fn say_again(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let (me, mut messages) = (self.me, Vec::new());
        let in_suspense = self.said_in_suspense();
        for (id, held) in self.held.iter_mut().filter(|(_, held)| held.asker != me) {
            let is_taken = self.rooms.get(id).is_some_and(|room| room.is_taken);
            if held.again.is_due(now, if is_taken { in_suspense } else { i64::MAX }) {
                let (tasks, promise) = (vec![*id], self.desk.promise(*id));
                let promises = Some(promise.into_iter().collect());
                let attempt = held.attempt;
                let answer = Message::Answer { tasks, attempt, promises, earliest: None };
                messages.push((held.asker, answer));
            }
        }
        for (id, taken) in &mut self.untold {
            if taken.again.is_due(now, TAKEN_WAIT_MAX_MS) {
                let Untold { asker, attempt, is_lost, goes_on, .. } = *taken;
                let message = Message::TakenBack { task: *id, attempt, is_lost, goes_on };
                messages.push((asker, message));
            }
        }
        effects.extend(messages.into_iter().map(|(to, message)| self.say(to, message)));
    }
}
