//! Promises that were withdrawn: tried again until somebody has the time after all.
//!
//! What is to be tried stands in the cases themselves: steps that nobody has promised, and that are neither over nor due. They
//! are tried one after the other, that which is due first at first, and nobody makes way for them. What is over needs no
//! promise any more, whenever it was done; so when a step that is late by its own date is done, the rest may be promised.
//!
//! Invariant: a case is here only if it runs, was started here and has such a step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use legwork_engine::{Here, NodeState, State};
use legwork_model::event::{Leg, Performer, Planned};
use legwork_model::id::{InstanceId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_promise::{Displaces, Leg as PlannedLeg, Promise, Task, TaskId, Window, Work, legs};

use super::resources::performer;
use super::steps::{is_now, stage_of, task_of};
use super::who::Who;
use crate::Site;
use crate::jobs::JobKey;
use crate::message::Stage;

/// How long is waited before a case is tried again: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_secs(60);
const PAUSE_MAX: Duration = Duration::from_secs(16 * 60);
/// How many are tried at a time, and how soon the next: others want something promised as well.
const TRIED_AT_ONCE: usize = 16;
const TRIED_EVERY: Duration = Duration::from_secs(1);

const WHY_TIME: &str = "somebody has the time for it again";
const WHY_DONE: &str = "it was done in time all the same";
const WHY_DONE_LATE: &str = "it was done, and what follows can be in time all the same";

#[derive(Debug, Default)]
pub(super) struct Again {
    cases: BTreeMap<InstanceId, Case>,
    /// Those that wait, in the order in which they are tried.
    line: BTreeSet<(Timestamp, InstanceId)>,
    tried_at: Timestamp,
}

#[derive(Debug)]
struct Case {
    at: Timestamp,
    pause: Duration,
    /// What is asked for now.
    trying: Option<TaskId>,
}

/// What becomes of a case that is not promised any more.
enum Next {
    Try(Leg),
    /// The step was done.
    Done(Leg),
    /// It is late by its own date and has to be done first, or an executor may have been given it without a promise.
    Wait(Leg),
}

impl Again {
    pub(super) fn concerns(&self, id: InstanceId) -> bool {
        self.cases.contains_key(&id)
    }

    pub(super) fn is_trying(&self, task: TaskId) -> bool {
        self.cases.get(&task.instance).is_some_and(|case| case.trying == Some(task))
    }

    /// A case is not promised any more, or was not before a restart.
    pub(super) fn add(&mut self, id: InstanceId, at: Timestamp) {
        if !self.concerns(id) {
            self.line.insert((at, id));
            self.cases.insert(id, Case { at, pause: PAUSE_MIN, trying: None });
        }
    }

    /// Answers what is still asked for.
    pub(super) fn forget(&mut self, id: InstanceId) -> Option<TaskId> {
        let case = self.cases.remove(&id)?;
        self.line.remove(&(case.at, id));
        case.trying
    }

    /// There may be more time than before: all are tried as soon as can be.
    pub(super) fn hurry(&mut self, now: Timestamp) {
        let all: Vec<InstanceId> = self.cases.keys().copied().collect();
        all.into_iter().for_each(|id| self.hurry_case(id, now));
    }

    /// The same of one, of which something was done.
    pub(super) fn hurry_case(&mut self, id: InstanceId, now: Timestamp) {
        if let Some(case) = self.cases.get_mut(&id).filter(|case| case.trying.is_none()) {
            self.line.remove(&(case.at, id));
            (case.at, case.pause) = (case.at.min(now), PAUSE_MIN);
            self.line.insert((case.at, id));
        }
    }

    fn trying(&mut self, task: TaskId) {
        if let Some(case) = self.cases.get_mut(&task.instance) {
            self.line.remove(&(case.at, task.instance));
            case.trying = Some(task);
        }
    }

    /// Nobody has the time: later perhaps.
    fn refused(&mut self, id: InstanceId, now: Timestamp) {
        if let Some(case) = self.cases.get_mut(&id) {
            self.line.remove(&(case.at, id));
            case.trying = None;
            case.at = now + case.pause;
            case.pause = (case.pause * 2).min(PAUSE_MAX);
            self.line.insert((case.at, id));
        }
    }
}

impl Site {
    /// Nobody promises a step any more; sooner or later somebody may.
    pub(super) fn try_later(&mut self, id: InstanceId, now: Timestamp) {
        self.planning.again.add(id, now + PAUSE_MIN);
    }

    /// Tries cases again that are not promised any more, the most urgent first.
    pub(super) fn try_withdrawn(&mut self, now: Timestamp) {
        if self.next_try().is_none_or(|due| due > now) {
            return;
        }
        self.planning.again.tried_at = now;
        let line = self.planning.again.line.iter().take_while(|(at, _)| *at <= now);
        let waiting: Vec<InstanceId> = line.map(|(_, id)| *id).collect();
        let mut urgent = Vec::new();
        for id in waiting {
            match self.next_withdrawn(id, now) {
                Some(Next::Try(leg) | Next::Done(leg) | Next::Wait(leg)) => {
                    urgent.push((leg.due, id));
                }
                None => drop(self.planning.again.forget(id)),
            }
        }
        urgent.sort_unstable();
        for (_, id) in urgent.into_iter().take(TRIED_AT_ONCE) {
            self.try_next(id, now);
        }
    }

    /// When a case is tried again.
    pub(super) fn next_try(&self) -> Option<Timestamp> {
        let again = &self.planning.again;
        again.line.first().map(|(at, _)| (*at).max(again.tried_at + TRIED_EVERY))
    }

    /// The step of a case that has to be promised next; `None` if the case cannot be promised again, or is.
    fn next_withdrawn(&self, id: InstanceId, now: Timestamp) -> Option<Next> {
        let (schema, state) = self.instances.state(id)?;
        if state.lifecycle().has_ended() || state.started_elsewhere().is_some() {
            return None;
        }
        let deadline = state.deadline().filter(|it| !it.is_unpromised && it.at > now)?;
        let withdrawn = deadline.legs.iter().filter(|leg| leg.planned.is_none());
        if withdrawn.clone().any(|leg| !is_planned(schema, leg)) {
            return None;
        }
        let is_over = |leg: &&Leg| stage_of(schema, state, leg) == Stage::Over;
        if let Some(leg) = withdrawn.clone().find(is_over) {
            return Some(Next::Done(leg.clone()));
        }
        let leg = withdrawn.min_by_key(|leg| (leg.due, leg.round, leg.node))?;
        if leg.due <= now {
            return Some(Next::Wait(leg.clone()));
        }
        if schema.node(leg.node).job().is_none() {
            return Some(Next::Try(leg.clone()));
        }
        // Only whoever controls a job knows whether an executor has it: another one would promise what it is not given.
        let activity = state.activity(schema, leg.node);
        let is_given =
            is_now(schema, state, leg) && self.jobs.is_leased(&JobKey { instance: id, activity });
        let is_known = self.standing(id).controls(schema, state, leg.node);
        Some(match is_known && !is_given {
            true => Next::Try(leg.clone()),
            false => Next::Wait(leg.clone()),
        })
    }

    fn try_next(&mut self, id: InstanceId, now: Timestamp) {
        match self.next_withdrawn(id, now) {
            Some(Next::Try(leg)) => self.try_leg(id, &leg, now),
            Some(Next::Done(leg)) => self.was_done(id, &leg, now),
            Some(Next::Wait(_)) => self.planning.again.refused(id, now),
            None => drop(self.planning.again.forget(id)),
        }
    }

    fn try_leg(&mut self, id: InstanceId, leg: &Leg, now: Timestamp) {
        let Some((schema, state)) = self.instances.state(id) else { return };
        let Some(deadline) = state.deadline() else { return };
        let window = Window { release: leg.release, deadline: leg.due };
        let service = Work(i64::try_from(leg.takes_ms).unwrap_or(i64::MAX));
        let Who { all, only } = self.who_could_now(id, (schema, state), leg);
        let priority = deadline.priority();
        let task = Task::new(task_of(id, leg), window, service, all);
        let (may_abort, displaces) = (true, Displaces::Never);
        let step = schema.node(leg.node).name.clone();
        let task = Task { only, priority, may_abort, displaces, step, ..task };
        self.planning.again.trying(task.id);
        self.wake_planner(now);
        task.who.iter().for_each(|one| self.prepare(one, now));
        self.submit_when_open(task, now);
    }

    /// A step that nobody had promised was done: what follows may be promised all the same.
    fn was_done(&mut self, id: InstanceId, leg: &Leg, now: Timestamp) {
        let Some((schema, state)) = self.instances.state(id) else { return };
        let why = if was_in_time(schema, state, leg, now) { WHY_DONE } else { WHY_DONE_LATE };
        let by = state.performer(leg.node).cloned().unwrap_or(Performer::System);
        let at = state.completed_at(leg.node).unwrap_or(now);
        let planned = Planned { by, start: at, end: at, planner: self.server_here() };
        if self.replan(task_of(id, leg), Some(planned), why, now) {
            self.try_next(id, now);
        } else {
            self.planning.again.refused(id, now);
        }
    }

    /// Somebody promises a step again that nobody did any more.
    pub(super) fn promised_again(&mut self, at: ServerId, promise: Promise, now: Timestamp) {
        let Promise { task, by, times } = promise;
        let (start, end) = (times.start, times.end);
        let planned = Planned { by: performer(&by), start, end, planner: at };
        self.planning.again.refused(task.instance, now);
        if self.replan(task, Some(planned), WHY_TIME, now) {
            self.try_next(task.instance, now);
        } else {
            // It is over meanwhile, or cannot be written down.
            self.plan(now, |node| node.finish(task));
        }
    }

    /// There is still nobody who has the time for a step. Whoever wanted it knows.
    pub(super) fn refused_again(&mut self, task: TaskId, now: Timestamp) {
        self.planning.again.refused(task.instance, now);
    }

    /// A case is over, or not here any more.
    pub(super) fn try_no_more(&mut self, id: InstanceId, now: Timestamp) {
        if let Some(task) = self.planning.again.forget(id) {
            self.plan(now, |node| node.finish(task));
        }
    }
}

/// Whether it was planned from the beginning. Where a loop goes round more often, nobody knows what is still to come.
fn is_planned(schema: &Schema, leg: &Leg) -> bool {
    let node = schema.nodes.get(leg.node.0 as usize);
    let is_looped = node.is_some_and(|node| !node.loops.is_empty());
    let is_it = |it: &PlannedLeg| (it.node, it.iteration.number()) == (leg.node, leg.round);
    !is_looped || legs(schema).iter().any(is_it)
}

/// Whether a step that is over was done by when it was due. Of a round before it is known only that it is over.
fn was_in_time(schema: &Schema, state: &State, leg: &Leg, now: Timestamp) -> bool {
    let done = state.completed_at(leg.node).filter(|_| is_now(schema, state, leg));
    let is_skipped = is_now(schema, state, leg) && state.node_state(leg.node) == NodeState::Skipped;
    is_skipped || done.unwrap_or(now) <= leg.due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_stands_in_line_once_however_often_it_has_to_wait() {
        let mut again = Again::default();
        let id = InstanceId(7);
        again.add(id, Timestamp(0));
        for second in 1..4 {
            again.refused(id, Timestamp(1_000 * second));
            assert_eq!(again.line.len(), 1);
        }
        assert_eq!(again.line.first(), Some(&(Timestamp(3_000) + PAUSE_MIN * 4, id)));
        again.forget(id);
        assert!(again.line.is_empty());
    }
}
