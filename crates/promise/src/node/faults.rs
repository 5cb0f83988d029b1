//! When planners are lost: what is urgent is promised by others at once, what is not waits for them.

use std::collections::BTreeSet;

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

use super::message::Message;
use super::{Asked, Effect, Node};
use crate::desk::by_urgency;
use crate::task::{Displaces, Only, ResourceId, Task, TaskId};

/// Of how many tasks a planner that is lost hears that they are not wanted of it any more when it is back.
const MOVED_MAX: usize = 10_000;

/// Why something is not promised any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    Lost,
    MadeWayHere,
    MadeWayElsewhere,
    /// Whoever has promised it goes on with it, and will be late.
    Late,
}

impl Node {
    /// What is promised for this planner is kept by its deputy as well.
    pub(super) fn have_kept(&self, task: &Task, effects: &mut Vec<Effect>) {
        if let Some(deputy) = self.deputy {
            effects.push(self.say(deputy, Message::Keep { task: Box::new(task.clone()) }));
        }
    }

    /// It need not be kept any more.
    pub(super) fn have_forgotten(&self, task: TaskId, effects: &mut Vec<Effect>) {
        if let Some(deputy) = self.deputy {
            effects.push(self.say(deputy, Message::Done { task }));
        }
    }

    /// The preprocessor: whether a task can go on, and to whom. One whose people are lost waits for them while
    /// it can; then it is their deputies'.
    pub(super) fn prepare(&mut self, task: Task, now: Timestamp) -> Option<Task> {
        let is_there = |at: ServerId| !self.lost.contains(&at);
        if self.lost.is_empty() || self.homes_of(&task.who).any(is_there) {
            return Some(task);
        }
        if self.urgent_from(&task) > now && !self.policy.comes_back {
            self.waiting.insert(task.id, task);
            return None;
        }
        // Without deputies nobody is found, and that is the answer.
        task.clone().for_deputies().or(Some(task))
    }

    /// From when on it can wait no longer.
    pub(super) fn urgent_from(&self, task: &Task) -> Timestamp {
        let needed = task.service.0.saturating_mul(1 + self.policy.urgency);
        Timestamp(task.window.deadline.0.saturating_sub(needed))
    }

    /// What can wait no longer goes on.
    pub(super) fn wake_urgent(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let due = self.waiting.values().filter(|task| self.urgent_from(task) <= now);
        let due: Vec<Task> = due.cloned().collect();
        self.go_on(due, now, effects);
    }

    /// Tasks that waited go on, the most urgent first.
    fn go_on(&mut self, tasks: Vec<Task>, now: Timestamp, effects: &mut Vec<Effect>) {
        for task in by_urgency(tasks, now) {
            self.waiting.remove(&task.id);
            effects.extend(self.submit(task, now));
        }
    }

    /// When the next task can wait no longer for a planner that is lost.
    pub(super) fn lost_due(&self) -> Option<Timestamp> {
        if self.lost.is_empty() {
            return None;
        }
        let asked = self.asked.values().filter_map(|asked| self.waits_until(asked));
        asked.chain(self.kept_for_lost().map(|task| self.urgent_from(task))).min()
    }

    /// What this planner keeps for those that are lost. They may come back with it.
    fn kept_for_lost(&self) -> impl Iterator<Item = &Task> {
        let kept = self.kept.values().filter(|(of, _)| self.lost.contains(of));
        kept.map(|(_, task)| task)
    }

    /// Until when a task can wait for whoever has promised it and is lost: it should be begun then, or is urgent.
    fn waits_until(&self, asked: &Asked) -> Option<Timestamp> {
        asked.at.filter(|at| self.lost.contains(at) && !asked.is_begun)?;
        let urgent = self.urgent_from(&asked.task);
        Some(asked.start.map_or(urgent, |start| start.min(urgent)))
    }

    /// Has promised anew what can wait no longer for a planner that is lost, the most urgent first.
    pub(super) fn move_urgent(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if self.lost.is_empty() {
            return;
        }
        let is_due = |asked: &&Asked| self.waits_until(asked).is_some_and(|until| until <= now);
        let asked = self.asked.values().filter(is_due).map(|asked| &asked.task);
        let kept = self.kept_for_lost().filter(|task| self.urgent_from(task) <= now);
        let due: Vec<Task> = asked.chain(kept).cloned().collect();
        for task in by_urgency(due, now) {
            self.kept.remove(&task.id);
            self.try_again(task, Some(Gone::Lost), now, effects);
        }
    }

    /// Another planner is lost, with all it had promised. What was asked for here, and what was kept for it, is
    /// promised anew elsewhere, the most urgent first; what can wait waits for those who come back.
    pub fn lose(&mut self, server: ServerId, now: Timestamp) -> Vec<Effect> {
        self.desk.pass(now);
        let mut effects = Vec::new();
        if !self.lost.insert(server) {
            return effects;
        }
        // Who is still asked for might be in its hands as well.
        let was_there = |at: Option<ServerId>| at == Some(server) || at.is_none();
        let can_wait = |asked: &Asked| {
            self.policy.comes_back
                && (asked.is_begun || self.waits_until(asked).is_some_and(|until| until > now))
        };
        let asked = self.asked.values().filter(|it| was_there(it.at) && !can_wait(it));
        let mut tasks: Vec<(Task, bool)> =
            asked.map(|asked| (asked.task.clone(), asked.at.is_some())).collect();
        // What can wait stays kept: whoever is lost comes back with it.
        let is_due = |task: &Task| !self.policy.comes_back || self.urgent_from(task) <= now;
        let kept = self.kept.values().filter(|(of, task)| *of == server && is_due(task));
        let kept: Vec<Task> = kept.map(|(_, task)| task.clone()).collect();
        kept.iter().for_each(|task| drop(self.kept.remove(&task.id)));
        tasks.extend(kept.into_iter().map(|task| (task, true)));
        tasks.sort_by_key(|(it, _)| (it.slack(now), std::cmp::Reverse(it.priority), it.id));
        // One part stands for all of a task.
        let mut seen = BTreeSet::new();
        tasks.retain(|(task, _)| seen.insert(TaskId { part: 0, ..task.id }));
        if !self.policy.comes_back {
            self.take_parts_back(server, now, &mut effects);
        }
        for (task, was_promised) in tasks {
            self.try_again(task, was_promised.then_some(Gone::Lost), now, &mut effects);
        }
        effects
    }

    /// Whoever had taken a task apart is lost, and nobody puts its parts together any more: they take up no time.
    fn take_parts_back(&mut self, asker: ServerId, now: Timestamp, effects: &mut Vec<Effect>) {
        let own = self.held.iter().filter(|(id, held)| id.part > 0 && held.asker == asker);
        for id in own.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(task) = self.desk.end(id) {
                self.take_back(task, Gone::Lost, now, effects);
            }
        }
    }

    /// A planner is back. What waited for it goes on, and it hears what is not wanted of it any more.
    pub fn find(&mut self, server: ServerId, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.lost.remove(&server) {
            for (task, attempt) in self.moved.remove(&server).unwrap_or_default() {
                effects.push(self.say(server, Message::Cancel { task, attempt }));
            }
            let waiting = self.waiting.values().cloned().collect();
            self.go_on(waiting, now, &mut effects);
        }
        effects
    }

    /// Somebody at home here is lost.
    pub fn lose_resource(&mut self, resource: &ResourceId, now: Timestamp) -> Vec<Effect> {
        self.desk.pass(now);
        // Whoever is at home elsewhere now can be asked there.
        if self.homes.get(resource) == Some(&self.me) {
            self.homes.remove(resource);
        }
        let mut effects = Vec::new();
        for task in self.desk.lose(resource, now) {
            self.take_back(task, Gone::Lost, now, &mut effects);
        }
        effects
    }

    /// Others can do a task now than when it was asked for here.
    pub fn revise(&mut self, id: TaskId, who: &[ResourceId], only: &[Only]) {
        let (who, only) = (who.to_vec(), only.to_vec());
        if let Some(Asked { task, .. }) = self.asked.get_mut(&id) {
            (task.who, task.only) = (who.clone(), only.clone());
        }
        let here = self.desk.task(id).filter(|_| self.asker(id) == Some(self.me)).cloned();
        if let Some(task) = here {
            self.desk.replace(Task { who, only, ..task });
        }
    }

    /// Whoever has promised a task that was asked for here cannot do it any more: it is promised anew.
    pub fn promise_anew(&mut self, id: TaskId, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.asker(id) == Some(self.me) {
            if let Some(task) = self.desk.end(id) {
                self.take_back(task, Gone::Lost, now, &mut effects);
            }
        } else if let Some(Asked { task, at: Some(at), .. }) = self.asked.get(&id).cloned() {
            // What is asked for next has a higher number, whoever hears of it first.
            let attempt = self.next_attempt(now);
            effects.push(self.say(at, Message::Cancel { task: id, attempt }));
            self.try_again(task, Some(Gone::Lost), now, &mut effects);
        }
        effects
    }

    /// What was promised here before a restart, by somebody who has no plan here now, is taken back.
    pub fn lose_promise(
        &mut self,
        task: Task,
        asker: (ServerId, u64),
        now: Timestamp,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.hold_again(&task, asker);
        self.take_back(task, Gone::Lost, now, &mut effects);
        effects
    }

    /// Time has passed in which somebody did not work, and not all they have promised can be kept: what is least
    /// important is promised by others, or whoever wanted it is told, before it is late. What is being worked on and
    /// cannot be put aside is promised by nobody else, who would wait for it in vain.
    pub fn give_up_endangered(&mut self, now: Timestamp) -> Vec<Effect> {
        self.desk.pass(now);
        let mut effects = Vec::new();
        for (whose, lane) in self.desk.endangered_lanes() {
            // One after the other: with one of them gone the others may be in time.
            while let Some(id) = self.desk.first_to_give_up(&whose, lane, now) {
                let Some((task, goes_on)) = self.desk.give_up(id) else { break };
                let gone = if goes_on { Gone::Late } else { Gone::Lost };
                self.take_back(task, gone, now, &mut effects);
            }
        }
        effects
    }

    /// Has a task promised anew; whoever wants it is told first if it had been promised: because it is lost, or
    /// because it made way.
    pub(super) fn try_again(
        &mut self,
        task: Task,
        gone: Option<Gone>,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        let (task, was_promised) = match task.id.part {
            0 => (task, true),
            _ => match self.undo_parts(task.id, effects) {
                Some(whole) => whole,
                // Another part of it was tried again before.
                None => return,
            },
        };
        self.passing.remove(&task.id);
        if let Some(asked) = self.asked.remove(&task.id) {
            let attempt = self.next_attempt(now);
            match asked.at {
                Some(at) if self.lost.contains(&at) => {
                    let moved = self.moved.entry(at).or_default();
                    moved.push_back((task.id, attempt));
                    // It may never be back. If it is, it asks about what it was not told.
                    if moved.len() > MOVED_MAX {
                        moved.pop_front();
                    }
                }
                Some(_) | None => self.not_taken(&asked, effects),
            }
        }
        match gone.filter(|_| was_promised) {
            Some(Gone::Lost | Gone::Late) => effects.push(Effect::Lost { task: task.id }),
            Some(Gone::MadeWayHere | Gone::MadeWayElsewhere) => {
                effects.push(Effect::Removed { task: task.id });
            }
            None => {}
        }
        if gone == Some(Gone::Late) {
            return effects.push(Effect::Refused { task: task.id, earliest: None });
        }
        let is_there = |at: ServerId| !self.lost.contains(&at);
        let anybody = self.homes_of(&task.who).any(is_there);
        let task = if anybody { task } else { task.clone().for_deputies().unwrap_or(task) };
        // Nobody makes way for what has made way itself: that might go on and on.
        let has_made_way = matches!(gone, Some(Gone::MadeWayHere | Gone::MadeWayElsewhere));
        let displaces = if has_made_way { Displaces::Never } else { task.displaces };
        let task = Task { displaces, ..task };
        if gone == Some(Gone::MadeWayHere) && self.count_here(&task) < 2 {
            return self.pass_on(task, now, effects);
        }
        self.promise_or_pass(task, now, effects);
    }

    /// In how many plans here a task could be.
    fn count_here(&self, task: &Task) -> usize {
        task.who.iter().map(|id| self.desk.lanes(id)).sum()
    }
}
