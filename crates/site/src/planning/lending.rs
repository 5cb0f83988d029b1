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

use super::busy::Turn;
use super::lent::{Lent, LentTurns};
use super::steps::stage_of;
use super::task_id;
use super::word::News;
use crate::Site;
use crate::jobs::JobKey;
use crate::message::{Message, Name, Stage, TurnOf};
use crate::output::Output;

/// How often a question is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// For how long a question counts, and leave of which nothing is heard.
const WANTED: Duration = Duration::from_secs(10);
/// For how long leave is used: it is given back before whoever gave it takes it to be forgotten.
const USED: Duration = Duration::from_secs(5);
/// How long one executor is asked for alone, where others could do a job as well.
const ALONE: Duration = Duration::from_secs(6);
#[derive(Debug, Default)]
pub(super) struct Lending {
    /// What was asked of planners.
    pub(super) asked: BTreeMap<TaskKey, Asked>,
    /// What others have asked here.
    wanted: BTreeMap<TaskKey, Wanted>,
    /// What others work on with executors whose plans are here.
    pub(super) lent: LentTurns,
    /// Plans have changed since it was looked which executors have promised something.
    pub(super) has_other_plans: bool,
}

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) key: JobKey,
    pub(super) executor: ExecutorId,
    pub(super) turn: TurnOf,
    pub(super) planner: ServerId,
    pub(super) since: Timestamp,
    /// When it was asked last, or allowed.
    pub(super) at: Timestamp,
    pub(super) leave: Leave,
}

/// Whether a job may be given to an executor that another server keeps. Leave counts once: what has failed has to be asked for
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    Asked,
    Given,
    /// The executor has got the job.
    Used,
}

#[derive(Debug)]
struct Wanted {
    from: ServerId,
    turn: TurnOf,
    until: Timestamp,
}

impl Site {
    /// If nobody else has room for a job: an executor that another server keeps, and allows to have it. Of what was promised only
    /// that one knows it with whom it is planned.
    pub(super) fn borrowed_turn(
        &mut self,
        key: &JobKey,
        task: &Task,
        (but, only): (&BTreeSet<ExecutorId>, Option<ServerId>),
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
        let planner = |id: ExecutorId| match only {
            None => self.kept_elsewhere(id, now),
            Some(only) => {
                let name = executors.registry.get(id)?.name.clone();
                let is_it = self.planner_of(&ResourceId::Executor(name)) == only;
                (is_it && only != self.server_here()).then_some(only)
            }
        };
        let mut there: Vec<(ExecutorId, ServerId)> =
            there.filter_map(|id| Some((id, planner(id)?))).collect();
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
        if asked.leave == Leave::Given || now.since(asked.since) < ALONE || there.len() < 2 {
            return Some(before);
        }
        let turn = asked.turn.clone();
        let place = there.iter().position(|one| *one == before)?;
        self.give_turn_back(before.1, turn);
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
            return asked.leave == Leave::Given;
        }
        let Some(executor) = self.executors.registry.get(id).map(|one| one.name.clone()) else {
            return false;
        };
        let Some((schema, state)) = self.instances.state(key.instance) else { return false };
        let takes_ms = self.takes(schema, state, key, (id, task)).ms().unsigned_abs();
        let turn = TurnOf { task: of, executor, takes_ms, stage: Stage::Waiting, ago_ms: 0 };
        self.say_turn(planner, turn.clone());
        let (key, executor) = (key.clone(), id);
        let (since, at, leave) = (now, now, Leave::Asked);
        let asked = Asked { key, executor, turn, planner, since, at, leave };
        let before = self.planning.lending.asked.insert(of, asked);
        if let Some(Asked { planner, turn, .. }) = before {
            self.give_turn_back(planner, turn);
        }
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
        self.note_begun(now);
        self.note_opened(now);
        self.note_busy(now);
        self.settle_begun(now);
        self.allow_turns(now);
        self.forget_kept(now);
        let (mut over, mut again, mut is_long) = (Vec::new(), Vec::new(), false);
        for (of, asked) in &mut self.planning.lending.asked {
            let gift = self.executors.given.get(&asked.key);
            let is_at_work = gift.is_some_and(|gift| gift.executor == asked.executor);
            let waits = gift.is_none() && self.jobs.contains(&asked.key);
            let is_over = match asked.leave {
                Leave::Asked => !waits,
                Leave::Given => !waits || now.since(asked.at) >= USED,
                Leave::Used => !is_at_work,
            };
            if is_over {
                over.push(*of);
            } else if asked.leave == Leave::Asked && now.since(asked.at) >= AGAIN {
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

    /// What planners have allowed and nobody has been given yet.
    pub(crate) fn allowed_turns(&self) -> Vec<JobKey> {
        self.unused_turns().map(|asked| asked.key.clone()).collect()
    }

    fn unused_turns(&self) -> impl Iterator<Item = &Asked> {
        let asked = self.planning.lending.asked.values();
        asked.filter(|asked| asked.leave == Leave::Given)
    }

    /// An executor has got a job: leave for it is used up.
    pub(crate) fn use_turn(&mut self, key: &JobKey, executor: ExecutorId) {
        let asked = self.planning.lending.asked.get_mut(&task_key(key));
        if let Some(asked) = asked.filter(|asked| asked.executor == executor) {
            asked.leave = Leave::Used;
        }
    }

    /// Whether something was promised and waits to be begun.
    fn waits(&self, task: TaskKey) -> bool {
        let Some((schema, state)) = self.instances.state(task.instance) else { return false };
        let legs = state.deadline().map(|deadline| &deadline.legs).into_iter().flatten();
        let mut own = legs.filter(|leg| (leg.node, leg.round) == (task.node, task.round));
        let is_open = own.any(|leg| stage_of(schema, state, leg) == Stage::Waiting);
        let activity = state.activity(schema, task.node);
        let key = JobKey { instance: task.instance, activity };
        is_open && self.executors.given.get(&key).is_none()
    }

    /// A planner hears that something is not done, or not any more. If it was promised it hears as well how far it is: what
    /// waits has its time again, and of what is over everybody is told anyway.
    fn give_turn_back(&mut self, planner: ServerId, turn: TurnOf) {
        let task = turn.task;
        self.say_turn(planner, TurnOf { stage: Stage::Over, ..turn });
        if self.waits(task) {
            let waits = News::new(Stage::Waiting, self.latest);
            self.tell_step(task_id(task), waits, [Some(planner), None], self.latest);
        }
    }

    /// When something is asked again, or forgotten.
    pub(super) fn next_turn(&self) -> Option<Timestamp> {
        let Lending { asked, lent, .. } = &self.planning.lending;
        let asked = asked.values().filter(|asked| asked.leave == Leave::Asked);
        let again = asked.map(|asked| asked.at + AGAIN);
        let unused = self.unused_turns().map(|asked| asked.at + USED);
        again.chain(unused).chain(self.planning.kept.next_due()).chain(lent.next_look()).min()
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
            Stage::Over => self.turn_over(from, &turn),
        }
        self.executors.plans_changed();
    }

    /// Another server asks for a turn. What was promised and allowed long before is not begun then: the answer was lost, or that
    /// it was given back. What was allowed just now was asked for before that was heard.
    fn turn_wanted(&mut self, from: ServerId, turn: TurnOf, now: Timestamp) {
        let lent = self.planning.lending.lent.get(turn.task, &turn.executor);
        if lent.is_some_and(|lent| lent.to == from && now.since(lent.at) < AGAIN) {
            return self.say_turn(from, TurnOf { stage: Stage::Begun, ..turn });
        }
        let (task, by) = (task_id(turn.task), ResourceId::Executor(turn.executor.clone()));
        let desk = self.planning.node.as_ref().map(|node| &node.desk);
        if desk.is_some_and(|desk| desk.promised_by(task) == Some(&by) && desk.is_begun(task)) {
            self.planning.lending.lent.remove(turn.task);
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

    /// Another server tells what it has given to an executor, with leave or without.
    fn turn_told(&mut self, from: ServerId, turn: TurnOf, now: Timestamp) {
        let takes_ms = i64::try_from(turn.takes_ms).unwrap_or(i64::MAX);
        let ago_ms = i64::try_from(turn.ago_ms).unwrap_or(i64::MAX);
        let at = Timestamp(now.0.saturating_sub(ago_ms));
        let (to, executor, heard) = (from, turn.executor, now);
        let lent = Lent { to, executor, at, takes_ms, begun: None, lane: None, heard };
        self.planning.lending.lent.told(turn.task, lent);
    }

    /// Whoever asked has not got it, or not any more. How far it is if it was promised is told apart.
    fn turn_over(&mut self, from: ServerId, turn: &TurnOf) {
        let lending = &mut self.planning.lending;
        let wanted = lending.wanted.get(&turn.task);
        let is_it = |of: ServerId, executor: &Arc<str>| of == from && *executor == turn.executor;
        if wanted.is_some_and(|wanted| is_it(wanted.from, &wanted.turn.executor)) {
            lending.wanted.remove(&turn.task);
        }
        if lending.lent.get(turn.task, &turn.executor).is_some_and(|lent| lent.to == from) {
            lending.lent.remove(turn.task);
        }
    }

    fn turn_allowed(&mut self, from: ServerId, turn: TurnOf, now: Timestamp) {
        let asked = self.planning.lending.asked.get_mut(&turn.task);
        let asked =
            asked.filter(|asked| asked.planner == from && asked.turn.executor == turn.executor);
        match (turn.stage, asked) {
            // Said again, and used by now.
            (Stage::Begun, Some(Asked { leave: Leave::Used, .. })) => {}
            (Stage::Begun, Some(asked)) => {
                (asked.leave, asked.at) = (Leave::Given, now);
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
        let forgotten = lending.lent.forget(now);
        self.turns_ended(&forgotten, now);
        if self.planning.lending.wanted.is_empty() {
            return;
        }
        self.wake_planner(now);
        let Some(node) = &self.planning.node else { return };
        let due = |task: &TaskKey| node.desk.task(task_id(*task)).map(|task| task.window.deadline);
        let mut wanted: Vec<(bool, Option<Timestamp>, TaskKey)> = Vec::new();
        for (task, Wanted { turn, .. }) in &self.planning.lending.wanted {
            let by = ResourceId::Executor(turn.executor.clone());
            // Whoever had promised it may have failed at it: somebody else does it if there is time.
            let is_promised = node.desk.promised_by(task_id(*task)) == Some(&by);
            let due = if is_promised { due(task) } else { None };
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
        let task = task_id(turn.task);
        let is_open = self.is_open(&turn.executor, now);
        let Some(node) = self.planning.node.as_mut().filter(|_| is_open) else { return false };
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
        self.planning.lending.lent.put(turn.task, lent);
    }

    /// Whether an executor has time for something besides what it has promised; it is taken then.
    fn lend(&mut self, to: ServerId, turn: &TurnOf, now: Timestamp) -> bool {
        if self.planning.lending.lent.get(turn.task, &turn.executor).is_some() {
            return true;
        }
        let by = ResourceId::Executor(turn.executor.clone());
        let takes_ms = i64::try_from(turn.takes_ms).unwrap_or(i64::MAX);
        let desk = self.planning.node.as_ref().map(|node| &node.desk);
        // By somebody who failed at it.
        let is_promised = desk.is_some_and(|desk| desk.task(task_id(turn.task)).is_some());
        if is_promised {
            self.prepare(&by, now);
            self.are_open(std::slice::from_ref(&by), now);
        }
        self.note_busy(now);
        let is_open = self.is_open(&turn.executor, now);
        let Some(node) = &mut self.planning.node else { return false };
        let lane = if is_open { node.desk.turn_for(&by, Work(takes_ms), now) } else { None };
        // Where nothing is promised it may queue, unless it was promised itself.
        if lane.is_none() && (is_promised || node.desk.has_promised(&by)) {
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
        let over = self.planning.lending.lent.take_out(|task, lent| {
            let is_told = lent.to == from && names.contains(&lent.executor);
            is_told && !has.contains(&task) && now.since(lent.at) >= WANTED
        });
        self.turns_ended(&over, now);
    }

    /// Whoever had these does not work on them; if they were done that would have been said. What was promised waits again.
    fn turns_ended(&mut self, over: &[TaskKey], now: Timestamp) {
        if over.is_empty() {
            return;
        }
        self.executors.plans_changed();
        self.plan(now, |node| {
            over.iter().for_each(|task| node.desk.leave(task_id(*task)));
            Vec::new()
        });
        self.give_up_endangered(now);
    }

    /// Plans have changed: those who wait may have their turn, and others are told who is kept.
    pub(super) fn note_plans_changed(&mut self) {
        self.planning.lending.has_other_plans = true;
        self.executors.plans_changed();
    }
}

pub(super) fn task_key(key: &JobKey) -> TaskKey {
    let round = key.activity.iteration.number();
    TaskKey { instance: key.instance, node: key.activity.node, round, part: 0 }
}
