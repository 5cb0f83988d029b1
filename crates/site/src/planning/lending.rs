//! Jobs for executors whose plans other servers keep: whoever gives them out asks the planner first.
//!
//! A planner tells all servers which executors it keeps (`opening`). What such an executor has promised, and anything
//! else for it, is given to it by another server only with its planner's leave; the planner has it in the plan from
//! then on. What was given out before that was known is told to the planner.
//!
//! Invariant: nothing here is stored. A question is asked again until it is answered or not wanted any more, and
//! what was allowed and is never heard of again is taken to be over after a while.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::TaskKey;
use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_promise::{ResourceId, Work};
use legwork_schedule::{ExecutorId, Task};

use super::busy::{Turn, millis};
use super::task_id;
use crate::Site;
use crate::jobs::JobKey;
use crate::message::{Message, Name, Stage, TurnOf};
use crate::output::Output;

/// How often a question is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// For how long a question counts, and leave that is not used.
const WANTED: Duration = Duration::from_secs(10);
/// How long one executor is asked for alone, where others could do a job as well.
const ALONE: Duration = Duration::from_secs(6);
/// How long is believed what a planner has told.
const KEPT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct Lending {
    /// Which executors are kept, by who keeps their plans, and when that was told.
    kept: BTreeMap<ServerId, (BTreeSet<Arc<str>>, Timestamp)>,
    /// What was asked of planners.
    asked: BTreeMap<TaskKey, Asked>,
    /// What others have asked here.
    wanted: BTreeMap<TaskKey, Wanted>,
    /// What others work on with executors whose plans are here.
    pub(super) lent: BTreeMap<TaskKey, Lent>,
    /// Plans have changed since it was looked which executors have promised something.
    pub(super) has_other_plans: bool,
}

#[derive(Debug)]
struct Asked {
    key: JobKey,
    executor: ExecutorId,
    turn: TurnOf,
    planner: ServerId,
    since: Timestamp,
    /// When it was asked last, or allowed.
    at: Timestamp,
    is_allowed: bool,
}

#[derive(Debug)]
struct Wanted {
    from: ServerId,
    turn: TurnOf,
    until: Timestamp,
}

/// A job of another server that an executor works on.
#[derive(Clone, Debug)]
pub(super) struct Lent {
    to: ServerId,
    pub(super) executor: Arc<str>,
    pub(super) at: Timestamp,
    pub(super) takes_ms: i64,
    pub(super) begun: Option<Timestamp>,
    pub(super) lane: Option<usize>,
    /// When whoever has it said so last.
    heard: Timestamp,
}

impl Lent {
    /// Whoever has it has not been heard of for too long.
    fn is_forgotten(&self, now: Timestamp) -> bool {
        self.forgotten_at() <= now
    }

    fn forgotten_at(&self) -> Timestamp {
        let longest = self.takes_ms.saturating_mul(2).saturating_add(millis(KEPT));
        Timestamp(self.heard.0.saturating_add(longest))
    }
}

impl Site {
    /// Who keeps an executor, if that is another server.
    fn kept_elsewhere(&self, id: ExecutorId, now: Timestamp) -> Option<ServerId> {
        if self.planning.lending.kept.is_empty() {
            return None;
        }
        let name = &self.executors.registry.get(id)?.name;
        let planner = self.planner_of(&ResourceId::Executor(name.clone()));
        let (kept, at) = self.planning.lending.kept.get(&planner)?;
        let is_kept = planner != self.server_here() && kept.contains(name);
        (is_kept && now.since(*at) < KEPT).then_some(planner)
    }

    /// Whether anything is known of executors that others keep.
    pub(super) fn knows_kept(&self) -> bool {
        !self.planning.lending.kept.is_empty()
    }

    pub(super) fn is_kept_elsewhere(&self, id: ExecutorId, now: Timestamp) -> bool {
        self.kept_elsewhere(id, now).is_some()
    }

    /// If nobody else has room for a job: an executor that another server keeps, and allows to have it.
    pub(super) fn borrowed_turn(
        &mut self,
        key: &JobKey,
        task: &Task,
        but: &BTreeSet<ExecutorId>,
        now: Timestamp,
    ) -> Option<Turn> {
        let executors = &self.executors;
        let offering = executors.registry.offering(task.kind);
        let has_room = |id: &ExecutorId| executors.has_room(*id, task.kind);
        if offering.iter().any(|id| !but.contains(id) && has_room(id)) {
            return None;
        }
        let is_there = |id: &ExecutorId| has_room(id) && !executors.is_resting(*id, task.kind);
        let there = but.iter().copied().filter(is_there);
        let mut there: Vec<(ExecutorId, ServerId)> =
            there.filter_map(|id| Some((id, self.kept_elsewhere(id, now)?))).collect();
        // Who has failed at it, or of whom nothing is expected, comes last.
        there.sort_by_key(|(id, _)| !executors.is_awaited(key, *id, task.kind, now));
        let (id, planner) = self.next_to_ask(key, &there, now)?;
        self.is_allowed(key, (id, task), planner, now).then_some(Turn::Of(id))
    }

    /// Whoever is asked for, or the one behind it if that takes too long.
    fn next_to_ask(
        &mut self,
        key: &JobKey,
        there: &[(ExecutorId, ServerId)],
        now: Timestamp,
    ) -> Option<(ExecutorId, ServerId)> {
        let asked = self.planning.lending.asked.get(&task_key(key));
        let asked = asked.filter(|asked| there.contains(&(asked.executor, asked.planner)));
        let Some(asked) = asked else { return there.first().copied() };
        let before = (asked.executor, asked.planner);
        if asked.is_allowed || now.since(asked.since) < ALONE || there.len() < 2 {
            return Some(before);
        }
        let turn = asked.turn.clone();
        let place = there.iter().position(|one| *one == before)?;
        self.say_turn(before.1, TurnOf { stage: Stage::Over, ..turn });
        there.get((place + 1) % there.len()).copied()
    }

    /// Whether a planner allows that a job is given to an executor now; asks if that is not known.
    pub(super) fn is_allowed(
        &mut self,
        key: &JobKey,
        (id, task): (ExecutorId, &Task),
        planner: ServerId,
        now: Timestamp,
    ) -> bool {
        let of = task_key(key);
        if let Some(asked) = self.planning.lending.asked.get(&of)
            && (asked.executor, asked.planner) == (id, planner)
        {
            return asked.is_allowed;
        }
        let Some(executor) = self.executors.registry.get(id).map(|one| one.name.clone()) else {
            return false;
        };
        let Some((schema, state)) = self.instances.state(key.instance) else { return false };
        let takes_ms = self.takes(schema, state, key, (id, task)).ms().unsigned_abs();
        let turn = TurnOf { task: of, executor, takes_ms, stage: Stage::Waiting };
        self.say_turn(planner, turn.clone());
        let (key, executor) = (key.clone(), id);
        let asked = Asked { key, executor, turn, planner, since: now, at: now, is_allowed: false };
        self.planning.lending.asked.insert(of, asked);
        false
    }

    fn say_turn(&mut self, to: ServerId, turn: TurnOf) {
        self.out.push(Output::Send { to, message: Message::Turn(Box::new(turn)) });
    }

    /// Asks again, and tells what is over. Before jobs are given out.
    pub(crate) fn settle_turns(&mut self, now: Timestamp) {
        // After a restart nothing is given out before it is known what was promised.
        if self.planning.is_asleep() {
            self.wake_planner(now);
        }
        self.note_opened(now);
        self.note_busy(now);
        self.allow_turns(now);
        self.forget_kept(now);
        let (mut over, mut again, mut is_long) = (Vec::new(), Vec::new(), false);
        for (of, asked) in &mut self.planning.lending.asked {
            let gift = self.executors.given.get(&asked.key);
            let is_at_work = gift.is_some_and(|gift| gift.executor == asked.executor);
            let waits = gift.is_none() && self.jobs.contains(&asked.key);
            let is_unused = asked.is_allowed && now.since(asked.at) >= WANTED;
            if is_at_work && asked.is_allowed {
                continue;
            }
            if !waits || is_unused {
                over.push(*of);
            } else if !asked.is_allowed && now.since(asked.at) >= AGAIN {
                asked.at = now;
                is_long |= now.since(asked.since) >= ALONE;
                again.push((asked.planner, asked.turn.clone()));
            }
        }
        if is_long {
            // It is looked whether somebody else could do it.
            self.executors.plans_changed();
        }
        again.into_iter().for_each(|(planner, turn)| self.say_turn(planner, turn));
        for of in over {
            if let Some(Asked { planner, turn, .. }) = self.planning.lending.asked.remove(&of) {
                self.give_turn_back(planner, turn);
                // Others of its type have waited behind it.
                self.executors.plans_changed();
            }
        }
    }

    /// A planner hears that something is not done, or not any more. If it was promised it hears as well how far it is: what
    /// waits has its time again, and of what is over everybody is told anyway.
    fn give_turn_back(&mut self, planner: ServerId, turn: TurnOf) {
        let task = turn.task;
        self.say_turn(planner, TurnOf { stage: Stage::Over, ..turn });
        let told = self.planning.stages.get(&task_id(task));
        if told.is_some_and(|told| told.stage == Stage::Waiting) {
            let message = Message::Step { task, stage: Stage::Waiting, took_ms: None };
            self.out.push(Output::Send { to: planner, message });
        }
    }

    /// What a planner has told long ago does not count any more: whoever waited for its leave goes on.
    fn forget_kept(&mut self, now: Timestamp) {
        let kept = &mut self.planning.lending.kept;
        let before = kept.len();
        kept.retain(|_, (_, at)| now.since(*at) < KEPT);
        if kept.len() < before {
            self.executors.plans_changed();
        }
    }

    /// When something is asked again, or forgotten.
    pub(super) fn next_turn(&self) -> Option<Timestamp> {
        let Lending { kept, asked, lent, .. } = &self.planning.lending;
        let asked = asked.values().filter(|asked| !asked.is_allowed);
        let again = asked.map(|asked| asked.at + AGAIN);
        let kept = kept.values().map(|(_, at)| *at + KEPT);
        again.chain(kept).chain(lent.values().map(Lent::forgotten_at)).min()
    }

    /// Another server asks for a turn, tells what it has, or allows something.
    pub(crate) fn hear_turn(&mut self, from: ServerId, turn: TurnOf, now: Timestamp) {
        let planner = self.planner_of(&ResourceId::Executor(turn.executor.clone()));
        if planner != self.server_here() {
            return self.turn_allowed(from, turn, now);
        }
        match turn.stage {
            Stage::Waiting => self.turn_wanted(from, turn, now),
            Stage::Begun => self.turn_told(from, turn, now),
            Stage::Over => self.turn_over(&turn),
        }
        self.planning.busy_until = now;
        self.executors.plans_changed();
    }

    /// Another server asks for a turn. What was promised and allowed before is not begun then: the answer was lost, or that it
    /// was given back.
    fn turn_wanted(&mut self, from: ServerId, turn: TurnOf, now: Timestamp) {
        let (task, by) = (task_id(turn.task), ResourceId::Executor(turn.executor.clone()));
        let desk = self.planning.node.as_ref().map(|node| &node.desk);
        if desk.is_some_and(|desk| desk.promised_by(task) == Some(&by) && desk.is_begun(task)) {
            self.planning.lending.lent.remove(&turn.task);
            self.plan(now, |node| {
                node.leave(task);
                Vec::new()
            });
            // There may not be time enough any more: what is allowed again counts as begun.
            self.give_up_endangered(now);
        }
        let until = now + WANTED;
        self.planning.lending.wanted.insert(turn.task, Wanted { from, turn, until });
    }

    /// Another server tells what it has given to an executor, with leave or without; if that is promised it is begun.
    fn turn_told(&mut self, from: ServerId, turn: TurnOf, now: Timestamp) {
        let takes_ms = i64::try_from(turn.takes_ms).unwrap_or(i64::MAX);
        let (task, by) = (task_id(turn.task), ResourceId::Executor(turn.executor.clone()));
        let (to, executor, at, heard) = (from, turn.executor, now, now);
        let lent = Lent { to, executor, at, takes_ms, begun: None, lane: None, heard };
        self.planning.lending.lent.entry(turn.task).or_insert(lent).heard = now;
        let desk = self.planning.node.as_ref().map(|node| &node.desk);
        if desk.is_some_and(|desk| desk.promised_by(task) == Some(&by) && !desk.is_begun(task)) {
            self.plan(now, |node| {
                node.desk.begin(task);
                Vec::new()
            });
        }
    }

    /// Whoever asked has not got it, or not any more. How far it is if it was promised is told apart.
    fn turn_over(&mut self, turn: &TurnOf) {
        let lending = &mut self.planning.lending;
        let is_it = |executor: &Arc<str>| *executor == turn.executor;
        if lending.wanted.get(&turn.task).is_some_and(|it| is_it(&it.turn.executor)) {
            lending.wanted.remove(&turn.task);
        }
        if lending.lent.get(&turn.task).is_some_and(|lent| is_it(&lent.executor)) {
            lending.lent.remove(&turn.task);
        }
    }

    fn turn_allowed(&mut self, from: ServerId, turn: TurnOf, now: Timestamp) {
        let asked = self.planning.lending.asked.get_mut(&turn.task);
        let asked =
            asked.filter(|asked| asked.planner == from && asked.turn.executor == turn.executor);
        match (turn.stage, asked) {
            (Stage::Begun, Some(asked)) => {
                (asked.is_allowed, asked.at) = (true, now);
                self.executors.plans_changed();
            }
            (Stage::Begun, None) => self.give_turn_back(from, turn),
            // Of whom these ask, another keeps the plan by now: they will hear of that.
            (Stage::Waiting | Stage::Over, _) => {}
        }
    }

    /// Allows what others want, as far as plans have room for it, that first which is promised.
    fn allow_turns(&mut self, now: Timestamp) {
        let lending = &mut self.planning.lending;
        lending.wanted.retain(|_, wanted| wanted.until > now);
        let before = lending.lent.len();
        lending.lent.retain(|_, lent| !lent.is_forgotten(now));
        if lending.lent.len() < before {
            self.planning.busy_until = now;
            self.executors.plans_changed();
        }
        let lending = &self.planning.lending;
        if lending.wanted.is_empty() {
            return;
        }
        self.wake_planner(now);
        let Some(node) = &self.planning.node else { return };
        let due = |task: &TaskKey| node.desk.task(task_id(*task)).map(|task| task.window.deadline);
        let mut wanted: Vec<(bool, Option<Timestamp>, TaskKey)> = Vec::new();
        for task in self.planning.lending.wanted.keys() {
            let due = due(task);
            wanted.push((due.is_none(), due, *task));
        }
        wanted.sort_unstable();
        for (is_unpromised, _, task) in wanted {
            let Some(Wanted { from, turn, .. }) = self.planning.lending.wanted.get(&task) else {
                continue;
            };
            let (from, turn) = (*from, turn.clone());
            let is_allowed = match is_unpromised {
                true => self.lend(from, &turn, now),
                false => self.begin_lent(from, &turn, now),
            };
            if is_allowed {
                self.planning.lending.wanted.remove(&task);
                self.say_turn(from, TurnOf { stage: Stage::Begun, ..turn });
            }
        }
    }

    /// Whether what an executor has promised can begin now; it has begun then.
    fn begin_lent(&mut self, to: ServerId, turn: &TurnOf, now: Timestamp) -> bool {
        self.note_busy(now);
        let (task, by) = (task_id(turn.task), ResourceId::Executor(turn.executor.clone()));
        let is_open = self.is_open(&turn.executor, now);
        let Some(node) = self.planning.node.as_mut().filter(|_| is_open) else { return false };
        // Whoever asks for another one has to hear of a new plan first.
        if node.desk.promised_by(task) != Some(&by) {
            return false;
        }
        let Some(lane) = node.desk.turn_of(task, now) else { return false };
        self.plan(now, |node| {
            node.desk.begin(task);
            Vec::new()
        });
        self.note_lent(to, turn, Some(lane), now);
        true
    }

    fn note_lent(&mut self, to: ServerId, turn: &TurnOf, lane: Option<usize>, now: Timestamp) {
        let takes_ms = i64::try_from(turn.takes_ms).unwrap_or(i64::MAX);
        let (executor, at, begun, heard) = (turn.executor.clone(), now, Some(now), now);
        let lent = Lent { to, executor, at, takes_ms, begun, lane, heard };
        self.planning.lending.lent.insert(turn.task, lent);
        self.planning.busy_until = now;
    }

    /// Whether an executor has time for something besides what it has promised; it is taken then.
    fn lend(&mut self, to: ServerId, turn: &TurnOf, now: Timestamp) -> bool {
        let lent = self.planning.lending.lent.get(&turn.task);
        if lent.is_some_and(|lent| lent.executor == turn.executor) {
            return true;
        }
        self.note_busy(now);
        let by = ResourceId::Executor(turn.executor.clone());
        let takes_ms = i64::try_from(turn.takes_ms).unwrap_or(i64::MAX);
        let is_open = self.is_open(&turn.executor, now);
        let Some(node) = &mut self.planning.node else { return false };
        let lane = if is_open { node.desk.turn_for(&by, Work(takes_ms), now) } else { None };
        // Where nothing is promised it may queue.
        if lane.is_none() && node.desk.has_promised(&by) {
            return false;
        }
        self.note_lent(to, turn, lane, now);
        true
    }

    /// A server has told all that executors have from it: what it was allowed and does not have is over, unless
    /// that was just now.
    pub(super) fn compare_lent(
        &mut self,
        from: ServerId,
        executors: &[Name],
        busy: &[TurnOf],
        now: Timestamp,
    ) {
        let names: BTreeSet<&Arc<str>> = executors.iter().map(|name| &name.0).collect();
        let has: BTreeSet<TaskKey> = busy.iter().map(|turn| turn.task).collect();
        let before = self.planning.lending.lent.len();
        self.planning.lending.lent.retain(|task, lent| {
            let is_told = lent.to == from && names.contains(&lent.executor);
            !is_told || has.contains(task) || now.since(lent.at) < WANTED
        });
        if self.planning.lending.lent.len() < before {
            self.planning.busy_until = now;
            self.executors.plans_changed();
        }
    }

    /// Plans have changed: those who wait may have their turn, and others are told who is kept.
    pub(super) fn note_plans_changed(&mut self) {
        self.planning.lending.has_other_plans = true;
        self.executors.plans_changed();
    }

    /// A planner tells which executors it keeps: it is told what they have from here without its leave.
    pub(crate) fn hear_kept(&mut self, from: ServerId, executors: Vec<Name>, now: Timestamp) {
        let mut busy = Vec::new();
        for Name(name) in &executors {
            let Some((id, _)) = self.executors.registry.named(name) else { continue };
            for (key, gift) in self.executors.given.at(id) {
                let task = task_key(&key);
                // Nobody knows here whether it was begun: it may queue behind what others have given.
                let (executor, takes_ms) = (name.clone(), gift.takes_ms.unsigned_abs());
                let turn = TurnOf { task, executor, takes_ms, stage: Stage::Begun };
                busy.push(turn.clone());
                let (executor, planner, is_allowed) = (id, from, true);
                let asked = Asked { key, executor, turn, planner, since: now, at: now, is_allowed };
                self.planning.lending.asked.entry(task).or_insert(asked);
            }
        }
        let kept: BTreeSet<Arc<str>> = executors.iter().map(|name| name.0.clone()).collect();
        match kept.is_empty() {
            true => drop(self.planning.lending.kept.remove(&from)),
            false => drop(self.planning.lending.kept.insert(from, (kept, now))),
        }
        self.out.push(Output::Send { to: from, message: Message::Heard { executors, busy } });
    }
}

pub(super) fn task_key(key: &JobKey) -> TaskKey {
    let round = key.activity.iteration.number();
    TaskKey { instance: key.instance, node: key.activity.node, round, part: 0 }
}
