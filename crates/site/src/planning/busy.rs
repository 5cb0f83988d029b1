//! What executors do besides what they have promised, and who may begin a job now.
//!
//! A job that nobody promised takes a hand of its executor like one that was, for as long as it is expected to
//! take; the plans know it as long as it runs, and nobody else does. What is known of it is what the
//! dispatcher knows, so nothing of it is stored: after a restart jobs are given out anew.
//!
//! Invariant: an executor with promises is given nothing that would make one of them late, if it takes as long as is
//! expected of it.

use std::collections::BTreeSet;
use std::time::Duration;

use legwork_engine::State;
use legwork_model::event::Performer;
use legwork_model::id::{InstanceId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_promise::{ResourceId, TaskId, WHOLE, Work};
use legwork_schedule::{ExecutorId, KindId, Task};

use super::regular::share;
use super::resources::hands;
use super::steps::{leg_of, promised_for, task_of};
use crate::Site;
use crate::demand::{Demanded, demanded};
use crate::jobs::JobKey;

/// How long a job is expected to take of which nothing is known.
pub(super) const USUAL: Duration = Duration::from_secs(60);

/// Who may begin a job now.
#[derive(Debug)]
pub(crate) enum Turn {
    /// The one that has promised it.
    Of(ExecutorId),
    /// The one that has promised it, later.
    After(ExecutorId),
    /// Anybody but those that need their time for what they have promised.
    Any { but: BTreeSet<ExecutorId>, is_promised: bool },
}

/// How long a job is expected to take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Takes {
    /// What the definition says.
    pub(crate) said: Option<Duration>,
    expected_ms: i64,
}

impl Takes {
    pub(crate) fn ms(self) -> i64 {
        self.expected_ms
    }

    fn work(self) -> Work {
        Work(self.expected_ms)
    }
}

impl Site {
    /// Whose turn it is to begin a job.
    pub(crate) fn turn_of(&mut self, key: &JobKey, task: &Task, now: Timestamp) -> Turn {
        let promised = self.promised(key);
        if let Some((_, by, planner)) = promised
            && self.executors.is_awaited(key, by, task.kind, now)
        {
            let is_here = planner == self.server_here();
            let is_turn = self.executors.has_room(by, task.kind)
                && match is_here {
                    true => self.may_begin(key, (by, task), now),
                    false => {
                        self.is_allowed(key, (by, task), planner, now)
                            || self.is_asked_in_vain(key, by, now)
                    }
                };
            return if is_turn { Turn::Of(by) } else { Turn::After(by) };
        }
        let holds = self.planning.node.as_ref().is_some_and(|node| !node.desk.is_empty());
        // Whoever has promised it has failed at it: others do it whose time is known where it is planned, as long as somebody plans it.
        let planner = promised.filter(|(_, by, planner)| {
            *planner == self.server_here() || self.kept_elsewhere(*by, now).is_some()
        });
        let planner = planner.map(|(_, _, planner)| planner);
        let offering = if holds || self.knows_kept() || planner.is_some() {
            self.executors.registry.offering(task.kind)
        } else {
            &[]
        };
        let mut but: BTreeSet<ExecutorId> = offering.iter().copied().collect();
        but.retain(|id| match planner {
            None => self.may_be_kept_elsewhere(*id, now) || !self.may_begin(key, (*id, task), now),
            Some(_) => !self.would_begin(key, (*id, task), now),
        });
        if let Some(turn) = self.borrowed_turn(key, task, (&but, planner), now) {
            return turn;
        }
        Turn::Any { but, is_promised: self.jobs.is_promised(key) == Some(true) }
    }

    /// Who has promised a job, if they are known here.
    pub(super) fn promised(&self, key: &JobKey) -> Option<(TaskId, ExecutorId, ServerId)> {
        let (schema, state) = self.instances.state(key.instance)?;
        let leg = leg_of(schema, state, &key.activity)?;
        let planned = leg.planned.as_ref()?;
        match &planned.by {
            Performer::Worker(name) | Performer::Executor(name) => {
                let (id, _) = self.executors.registry.named(name)?;
                Some((task_of(key.instance, leg), id, planned.planner))
            }
            Performer::Agent(_) | Performer::System => None,
        }
    }

    /// Whether an executor can begin a job now, for all that it has promised here.
    fn may_begin(&mut self, key: &JobKey, (id, task): (ExecutorId, &Task), now: Timestamp) -> bool {
        let Some(name) = self.executors.registry.get(id).map(|one| one.name.clone()) else {
            return false;
        };
        let resource = ResourceId::Executor(name);
        let desk = self.planning.node.as_ref().map(|node| &node.desk);
        if desk.is_none_or(|desk| !desk.has_promised(&resource)) {
            return true;
        }
        self.lane_for(key, (id, task), now).is_some() || self.has_hand_beside(id, task.kind)
    }

    /// In which of its plans an executor can begin a job now.
    pub(crate) fn lane_for(
        &mut self,
        key: &JobKey,
        (id, task): (ExecutorId, &Task),
        now: Timestamp,
    ) -> Option<usize> {
        self.planning.node.as_ref()?;
        self.note_busy(now);
        let name = self.executors.registry.get(id)?.name.clone();
        // What others have given to it may be in the way.
        if !self.is_open(&name, now) {
            return None;
        }
        let resource = ResourceId::Executor(name);
        let promised = self.promised(key).map(|(task, _, _)| task);
        let (schema, state) = self.instances.state(key.instance)?;
        let takes = self.takes(schema, state, key, (id, task));
        let desk = &mut self.planning.node.as_mut()?.desk;
        match promised.filter(|task| desk.promised_by(*task) == Some(&resource)) {
            Some(promised) => desk.turn_of(promised, now),
            None => desk.turn_for(&resource, takes.work(), now),
        }
    }

    /// Whether it is known here that an executor would begin a job at once. What was promised, and whoever had promised it has failed
    /// at, does not queue with somebody else: as long as it waits it is seen if there is not time enough for it.
    fn would_begin(
        &mut self,
        key: &JobKey,
        (id, task): (ExecutorId, &Task),
        now: Timestamp,
    ) -> bool {
        let Some(name) = self.executors.registry.get(id).map(|one| one.name.clone()) else {
            return false;
        };
        let resource = ResourceId::Executor(name);
        if self.planner_of(&resource) != self.server_here() {
            return false;
        }
        self.prepare(&resource, now);
        self.are_open(std::slice::from_ref(&resource), now)
            && self.lane_for(key, (id, task), now).is_some()
    }

    /// Whether an executor works on more than it is planned for, and has a hand free of those that nobody plans. Of
    /// a type with a limit of its own it has none.
    fn has_hand_beside(&self, id: ExecutorId, kind: KindId) -> bool {
        let Some((lanes, beside)) = self.hands_of(id) else { return false };
        let Some(name) = self.executors.registry.get(id).map(|one| &one.name) else { return false };
        let (of_kind, in_all) = self.executors.registry.room(id, kind);
        let given = self.executors.given.at(id);
        let given = given.iter().filter(|(_, gift)| gift.lane.is_none()).count();
        let lent = self.planning.lending.lent.at(name).filter(|(_, lent)| lent.lane.is_none());
        let others = given + lent.count();
        of_kind >= in_all && lanes > 0 && others < beside
    }

    /// How many tasks an executor is planned for at a time, and how many it does besides.
    pub(super) fn hands_of(&self, id: ExecutorId) -> Option<(usize, usize)> {
        let one = self.executors.registry.get(id)?;
        let resource = ResourceId::Executor(one.name.clone());
        let lanes = self.planning.node.as_ref()?.desk.lanes(&resource);
        Some((lanes, (hands(one) as usize).saturating_sub(lanes)))
    }

    /// How long a job is expected to take: what was promised for it, what its definition says, what was seen of its
    /// executor, or as long as it may take.
    pub(crate) fn takes(
        &self,
        schema: &Schema,
        state: &State,
        key: &JobKey,
        (id, task): (ExecutorId, &Task),
    ) -> Takes {
        let said = schema.node(key.activity.node).takes;
        let promised = leg_of(schema, state, &key.activity);
        let promised = promised.map(|leg| i64::try_from(leg.takes_ms).unwrap_or(i64::MAX));
        let seen = || self.paced_ms(id, task.kind, task.size);
        let Demanded { timeout, .. } = demanded(schema, state, &key.activity);
        let expected = promised.or_else(|| said.map(millis)).or_else(seen);
        let expected_ms = expected.unwrap_or_else(|| millis(timeout.unwrap_or(USUAL))).max(1);
        Takes { said, expected_ms }
    }

    /// How long so much of a type takes an executor, by what was seen of it.
    pub(super) fn paced_ms(&self, id: ExecutorId, kind: KindId, size: f64) -> Option<i64> {
        let pace_ms = self.executors.book.seen(id, kind).pace_ms?;
        // That is by the clock, with what it does regularly.
        let part = f64::from(share(self.executors.registry.get(id)?)) / f64::from(WHOLE);
        Some((pace_ms * size * part) as i64)
    }

    /// Brings the places of jobs that wait in line with who has promised them.
    pub(super) fn rank_jobs(&mut self, id: InstanceId) {
        let Some((schema, state)) = self.instances.state(id) else { return };
        let Some(deadline) = state.deadline() else { return };
        let mut anew = Vec::new();
        for leg in deadline.legs.iter().filter(|leg| (leg.node.0 as usize) < schema.nodes.len()) {
            let activity = state.activity(schema, leg.node);
            let promised = promised_for(schema, state, &activity);
            let key = JobKey { instance: id, activity };
            let is_other = self.jobs.is_promised(&key).is_some_and(|was| was != promised.is_some());
            if is_other {
                let since = state.open_at(schema, leg.node).map(|open| open.since);
                let Demanded { priority, .. } = demanded(schema, state, &key.activity);
                anew.push((key, promised, (since.unwrap_or(self.latest), priority)));
            }
        }
        for (key, promised, waited) in anew {
            self.jobs.rank_anew(&key, promised, waited);
        }
    }
}

pub(super) fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}
