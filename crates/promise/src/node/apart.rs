//! Tasks that nobody can promise as a whole: their parts, each somewhere, all or none.

use std::collections::BTreeMap;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

use super::message::{Message, Offer};
use super::{Asked, Effect, Node, Strategy};
use crate::cluster::{clusters, windows};
use crate::plan::{Times, Window};
use crate::task::{Displaces, Promise, ResourceId, Task, TaskId};

/// Tasks that were taken apart here.
#[derive(Clone, Debug, Default)]
pub(super) struct Apart(BTreeMap<TaskId, Whole>);

#[derive(Clone, Debug)]
struct Whole {
    task: Task,
    open: usize,
    /// Where parts are promised.
    promised: Vec<(ServerId, Promise)>,
}

impl Apart {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

fn whole_of(part: TaskId) -> TaskId {
    TaskId { part: 0, ..part }
}

impl Node {
    /// Takes a task apart and has its parts promised; false if that cannot be.
    pub(super) fn take_apart(
        &mut self,
        task: &Task,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let places = self.places(&task.who, now);
        if places.len() < 2 || !self.spend(now, |overheads| overheads.clustering) {
            return false;
        }
        let cluster = clusters(&task.parts, places.len());
        let wait = self.policy.delay_ms;
        let release = task.window.release.max(now).0 + 2 * wait;
        let windows = windows(&task.parts, &cluster, wait, release, task.window.deadline.0);
        let Some(windows) = windows else { return false };
        let whole = Whole { task: task.clone(), open: task.parts.len(), promised: Vec::new() };
        self.apart.0.insert(task.id, whole);
        let until = Timestamp(now.0 + 4 * self.policy.delay_ms);
        let attempt = self.next_attempt(now);
        for (number, at) in places.iter().enumerate() {
            let here = (0..task.parts.len()).filter(|place| cluster[*place] == number);
            let tasks: Vec<Task> =
                here.map(|place| self.part(task, place, windows[place], *at)).collect();
            for part in &tasks {
                self.asked.insert(part.id, Asked::new(part.clone(), until, attempt));
            }
            if tasks.is_empty() {
                continue;
            }
            let (asker, next) = (self.me, Vec::new());
            let offer = Offer { tasks, asker, attempt, next, bids_until: None, earliest: None };
            if *at == self.me {
                self.offered(offer, now, effects);
            } else {
                effects.push(self.say(*at, Message::Offer(offer)));
            }
            // It was refused here: then nobody else need be asked.
            if !self.apart.0.contains_key(&task.id) {
                break;
            }
        }
        true
    }

    fn part(&self, whole: &Task, place: usize, window: (i64, i64), at: ServerId) -> Task {
        let is_there = |id: &&ResourceId| self.homes.get(*id) == Some(&at);
        let who = whole.who.iter().filter(is_there).cloned().collect();
        let window = Window { release: Timestamp(window.0), deadline: Timestamp(window.1) };
        let id = TaskId { part: place as u16 + 1, ..whole.id };
        let service = whole.parts[place].service;
        // Others would make way for nothing if another part is refused.
        let displaces = Displaces::Never;
        let (parts, deputies) = (Vec::new(), Vec::new());
        Task { id, window, service, who, parts, deputies, displaces, ..whole.clone() }
    }

    /// Those that can be asked, with the most time left first.
    fn places(&self, who: &[ResourceId], now: Timestamp) -> Vec<ServerId> {
        let asks = |at: &ServerId| *at == self.me || self.policy.strategy != Strategy::Local;
        let there = self.homes_of(who).filter(|at| !self.lost.contains(at));
        let mut places: Vec<ServerId> = there.filter(asks).collect();
        places.sort_unstable();
        places.dedup();
        let left = |at: ServerId| {
            if at == self.me { self.desk.factor() } else { self.heard_surplus(at, now) }
        };
        places.sort_by_key(|at| std::cmp::Reverse(left(*at)));
        places
    }

    /// A part is promised; with the last of them the whole is.
    pub(super) fn part_settled(
        &mut self,
        promise: Promise,
        at: ServerId,
        effects: &mut Vec<Effect>,
    ) {
        let id = whole_of(promise.task);
        let Some(whole) = self.apart.0.get_mut(&id) else {
            // Another part was refused meanwhile.
            return effects.extend(self.finish(promise.task));
        };
        whole.open = whole.open.saturating_sub(1);
        whole.promised.push((at, promise));
        if whole.open > 0 {
            return;
        }
        let task = whole.task.clone();
        let times = whole.promised.iter().map(|(_, promise)| promise.times);
        let start = times.clone().map(|times| times.start).min();
        let last = whole.promised.iter().max_by_key(|(_, promise)| promise.times.end);
        if let (Some(start), Some((at, last))) = (start, last) {
            let times = Times { start, end: last.times.end };
            let promise = Promise { task: id, by: last.by.clone(), times };
            effects.push(Effect::Promised { at: *at, promise });
        }
        self.have_kept(&task, effects);
    }

    /// A part cannot be promised: the others are given back.
    pub(super) fn part_refused(&mut self, part: TaskId, effects: &mut Vec<Effect>) {
        let id = whole_of(part);
        if self.apart.0.contains_key(&id) {
            self.end_parts(id, effects);
            effects.push(Effect::Refused { task: id, earliest: None });
        }
    }

    /// Gives back all parts of a task that was taken apart.
    pub(super) fn end_parts(&mut self, id: TaskId, effects: &mut Vec<Effect>) {
        let Some(whole) = self.apart.0.remove(&id) else { return };
        if whole.open == 0 {
            self.have_forgotten(id, effects);
        }
        for part in (1..=whole.task.parts.len()).map(|part| TaskId { part: part as u16, ..id }) {
            effects.extend(self.finish(part));
        }
    }

    /// A part is not promised any more: the whole is not either, with all its parts. Answers the whole, and
    /// whether it had been promised.
    pub(super) fn undo_parts(
        &mut self,
        part: TaskId,
        effects: &mut Vec<Effect>,
    ) -> Option<(Task, bool)> {
        let id = whole_of(part);
        let whole = self.apart.0.get(&id)?;
        let undone = (whole.task.clone(), whole.open == 0);
        self.end_parts(id, effects);
        Some(undone)
    }
}
