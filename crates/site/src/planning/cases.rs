//! Replanning of running cases with a deadline that were started here.
//!
//! The dates of steps are advice. If one cannot be kept, another performer is sought who can do the step between the
//! steps before and after it; if there is none, planners are asked for new dates of all remaining steps. Only if these
//! do not fit before the deadline is the promise revoked, and the starter notified. A revoked promise is tried again
//! with back-off.
//!
//! Invariant: a case is here only if it runs, was started here and is or was promised.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use legwork_engine::{NodeState, State};
use legwork_model::event::{Leg, Performer, Planned, Replanned};
use legwork_model::id::{InstanceId, Iteration, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_org::Performers;
use legwork_plan::{Leg as PlanLeg, Search, Step, TaskId, Work, legs};

use super::admission::{Admission, Outcome, Purpose, Wanted};
use super::reserving::{Attempt, Reserving, Why};
use super::starts::{is_anywhere, promised};
use super::steps::{is_now, task_of};
use crate::Site;
use crate::cases::Cases;
use crate::cases::step::History;
use crate::message::Stage;
use crate::planning::Planning;
use crate::retries::{Backoff, Retries};

/// Back-off of attempts to renew a revoked promise.
const BACKOFF: Backoff = Backoff::new(Duration::from_mins(1), Duration::from_mins(16));
/// How many cases are replanned at a time, and the least time between two rounds: new admissions need planners as well.
const AT_ONCE: usize = 64;
const EVERY: Duration = Duration::from_secs(1);
/// A younger reservation may not be firm yet.
const SETTLED: Duration = Duration::from_secs(10);

const WHY_AGAIN: &str = "it can be done in time again";
const WHY_ELSE: &str = "it is planned otherwise now";
const WHY_EXTENDED: &str = "its deadline was extended";

/// Cases to replan, with their due times.
#[derive(Debug)]
pub(super) struct Replans {
    cases: Retries<InstanceId, Case>,
    tried_at: Timestamp,
}

impl Default for Replans {
    fn default() -> Self {
        Self { cases: Retries::new(BACKOFF), tried_at: Timestamp::default() }
    }
}

#[derive(Debug)]
struct Case {
    /// Number of failed attempts.
    attempts: u32,
    reason: String,
    /// A performer or a planner has failed: reserves may be used until the case is promised again.
    after_fault: bool,
    /// The steps that cannot be done as planned; empty if all steps are to get new dates.
    infeasible: BTreeSet<TaskId>,
    /// It is being replanned, and this entry is the retry if that fails; nothing else has happened since.
    is_retry: bool,
}

impl Replans {
    pub(super) fn concerns(&self, id: InstanceId) -> bool {
        self.cases.contains(&id)
    }

    /// Replans a case at a moment, or earlier if it is due before.
    fn add(&mut self, id: InstanceId, at: Timestamp, reason: &str, infeasible: Option<TaskId>) {
        let (reason, infeasible) = (reason.to_owned(), infeasible.into_iter().collect());
        let mut case =
            Case { attempts: 0, reason, after_fault: false, infeasible, is_retry: false };
        let at = self.cases.due(&id).map_or(at, |before| at.min(before));
        if let Some(before) = self.cases.remove(&id) {
            case.attempts = before.attempts;
            case.after_fault = before.after_fault;
            // All steps get new dates anyway, unless this entry is the retry of an attempt in progress.
            let is_whole = case.infeasible.is_empty() || before.infeasible.is_empty();
            case.infeasible.extend(before.infeasible);
            if is_whole && !before.is_retry {
                case.infeasible.clear();
            }
        }
        self.cases.insert(id, case, at);
    }

    /// A case is replanned now, and again after the back-off if that fails.
    fn retry_later(&mut self, id: InstanceId, now: Timestamp, case: &Case) {
        let (reason, infeasible) = (WHY_AGAIN.to_owned(), BTreeSet::new());
        let (attempts, after_fault) = (case.attempts + 1, case.after_fault);
        let again = Case { attempts, reason, after_fault, infeasible, is_retry: true };
        self.cases.insert(id, again, now.plus(BACKOFF.after(case.attempts)));
    }

    /// A case was replanned; what has happened meanwhile is handled next.
    fn done(&mut self, id: InstanceId) {
        if self.cases.get(&id).is_some_and(|case| case.is_retry) {
            self.cases.remove(&id);
        }
    }

    /// Performers may have more time: makes all due, with short pauses again.
    fn hurry(&mut self, now: Timestamp) {
        self.cases.hurry(now);
        self.cases.values_mut().for_each(|case| case.attempts = 0);
    }

    /// A step of a case was done: the case may be in time after all.
    pub(super) fn hurry_case(&mut self, id: InstanceId, now: Timestamp) {
        let at = self.cases.due(&id).map_or(now, |before| now.min(before));
        if let Some(case) = self.cases.remove(&id) {
            self.cases.insert(id, Case { attempts: 0, ..case }, at);
        }
    }

    fn next_due(&self) -> Option<Timestamp> {
        self.cases.next_due().map(|at| at.max(self.tried_at + EVERY))
    }
}

impl Planning {
    /// After a restart: tries a revoked promise again.
    pub(super) fn replan_revoked(&mut self, id: InstanceId) {
        self.replans.add(id, Timestamp::default(), WHY_AGAIN, None);
    }

    /// Performers may have more time than before: tries revoked promises again.
    pub(crate) fn hurry_revoked(&mut self, now: Timestamp) {
        self.replans.hurry(now);
    }

    pub(super) fn next_replanning(&self) -> Option<Timestamp> {
        self.replans.next_due()
    }

    /// The remaining steps of a case, with the steps they wait for, and those that are begun.
    fn remaining(
        &self,
        id: InstanceId,
        (schema, state): (&Schema, &State),
        now: Timestamp,
    ) -> (Vec<Step>, Vec<Wanted>, BTreeSet<TaskId>) {
        let (mut steps, mut wanted, mut begun) = (Vec::new(), Vec::new(), BTreeSet::new());
        let Some(deadline) = state.deadline() else { return (steps, wanted, begun) };
        let order: Vec<PlanLeg> = legs(schema);
        // Positions of remaining steps, by their positions among all steps.
        let mut places: BTreeMap<usize, usize> = BTreeMap::new();
        for (number, one) in order.iter().enumerate() {
            let round = one.iteration.number();
            let mut all = deadline.legs.iter();
            let Some(leg) = all.find(|leg| (leg.node, leg.round) == (one.node, round)) else {
                continue;
            };
            let stage = self.stage_known(id, (schema, state), leg);
            if stage == Stage::Over {
                continue;
            }
            if stage == Stage::Begun {
                begun.insert(task_of(id, leg));
            }
            let after = one.after.iter().filter_map(|before| places.get(before)).copied().collect();
            let cost = Work(i64::try_from(leg.takes_ms).unwrap_or(i64::MAX));
            places.insert(number, steps.len());
            steps.push(Step { after, cost, not_before: now });
            wanted.push(Wanted {
                node: leg.node,
                iteration: one.iteration.clone(),
                name: schema.node(leg.node).name.clone(),
                cost,
                is_anywhere: is_anywhere(schema, leg.node),
            });
        }
        (steps, wanted, begun)
    }

    /// Whether all reservations of a case should be firm by now.
    fn is_settled(&self, id: InstanceId, now: Timestamp) -> bool {
        let planned_at = self.planned_at.get(&id);
        planned_at.is_none_or(|at| now.since(*at) >= SETTLED)
    }
}

impl Cases {
    fn can_be_replanned(&self, id: InstanceId, now: Timestamp) -> bool {
        let Some((schema, state)) = self.instances.state(id) else { return false };
        let is_here = state.started_elsewhere().is_none() && !state.lifecycle().has_ended();
        let deadline = state.deadline().filter(|it| !it.is_unpromised && it.at > now);
        // If a loop is repeated more often than planned, the remaining steps are unknown.
        let is_beyond = |leg: &Leg| {
            let node = schema.nodes.get(leg.node.0 as usize);
            let planned = node.is_some_and(|node| {
                let rounds = node.loops.iter().map(|id| schema.loops[id.0 as usize].rounds);
                let at = Iteration::numbered(leg.round, node.loops.len());
                at.0.iter().zip(rounds).all(|(at, all)| *at < all)
            });
            !planned
        };
        is_here && deadline.is_some_and(|it| !it.legs.iter().any(is_beyond))
    }
}

impl Site {
    /// A step cannot be done as planned: seeks another performer, or new dates for all remaining steps.
    pub(super) fn replan_step(
        &mut self,
        task: TaskId,
        reason: &str,
        after_fault: bool,
        now: Timestamp,
    ) {
        let id = task.instance;
        if self.cases.can_be_replanned(id, now) {
            let is_promised = self.cases.is_promised(id);
            self.planning.replans.add(id, now, reason, Some(task).filter(|_| is_promised));
            self.planning.replans.tried_at = Timestamp::default();
            if let Some(case) = self.planning.replans.cases.get_mut(&id) {
                case.after_fault |= after_fault;
            }
        }
    }

    /// The deadline of a promised case was extended: seeks new dates for all remaining steps.
    pub(super) fn replan_extended(&mut self, id: InstanceId, now: Timestamp) {
        if self.cases.can_be_replanned(id, now) {
            self.planning.replans.add(id, now, WHY_EXTENDED, None);
            self.planning.replans.tried_at = Timestamp::default();
        }
    }

    /// A case is over, or not here any more.
    pub(super) fn forget_case(&mut self, id: InstanceId, now: Timestamp) {
        self.planning.replans.cases.remove(&id);
        if let Some(admission) = self.planning.admissions.remove(&id) {
            self.release_all(admission.held(), now);
        }
    }

    /// Replans cases that are due, the most urgent first.
    pub(super) fn replan_due(&mut self, now: Timestamp) {
        if self.planning.replans.next_due().is_none_or(|due| due > now) {
            return;
        }
        self.planning.replans.tried_at = now;
        let due: Vec<InstanceId> = self.planning.replans.cases.all_due(now).copied().collect();
        let mut urgent: Vec<(Timestamp, InstanceId)> = Vec::new();
        for id in due {
            let state = self.cases.instances.state(id).and_then(|(_, state)| state.deadline());
            match state.filter(|_| self.cases.can_be_replanned(id, now)) {
                Some(deadline) => urgent.push((deadline.at, id)),
                None => drop(self.planning.replans.cases.remove(&id)),
            }
        }
        urgent.sort_unstable();
        for (_, id) in urgent.into_iter().take(AT_ONCE) {
            self.replan(id, now);
        }
    }

    fn replan(&mut self, id: InstanceId, now: Timestamp) {
        // One admission at a time: later events are handled after it.
        if self.planning.admissions.contains_key(&id) {
            return;
        }
        let Some(case) = self.planning.replans.cases.remove(&id) else { return };
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let Some(deadline) = state.deadline() else { return };
        let (mut steps, mut wanted, is_begun) = self.planning.remaining(id, (schema, state), now);
        if wanted.is_empty() {
            return self.all_done(id, now);
        }
        let priority = deadline.priority();
        let mut at = deadline.at;
        let is_one = case.infeasible.len() == 1;
        if let Some(task) = case.infeasible.first().filter(|_| is_one) {
            // Between the steps before and after it, which keep their dates.
            let own = wanted.iter().position(|one| one.is(*task));
            let Some(own) = own else { return };
            let behind = steps.iter().zip(&wanted).filter(|(step, _)| step.after.contains(&own));
            let behind = behind.filter_map(|(_, one)| one.leg(deadline).map(|leg| leg.release));
            at = behind.min().unwrap_or(at);
            let release = wanted[own].leg(deadline).map_or(now, |leg| leg.release.max(now));
            steps = vec![Step { after: Vec::new(), not_before: release, ..steps[own].clone() }];
            wanted = vec![wanted[own].clone()];
        }
        let own = deadline.legs.iter().filter_map(|leg| {
            let planned = leg.planned.as_ref()?;
            Some((task_of(id, leg), planned.planner))
        });
        // A step that is begun stays in its plan until it is replaced.
        let own = own.filter(|(task, _)| !is_begun.contains(task));
        let held: Vec<(TaskId, ServerId)> =
            own.filter(|(task, _)| wanted.iter().any(|one| one.is(*task))).collect();
        let starter = History { schema, state: Some(state) }.starter();
        let Some(schema) = self.cases.instances.get(id).map(|slot| slot.schema.clone()) else {
            return;
        };
        let purpose = Purpose::Running { reason: case.reason.clone(), is_one };
        let search = Search::new(steps, now, at);
        let mut admission = Admission::new(search, wanted, (schema, starter), priority, purpose);
        admission.after_fault = case.after_fault;
        let attempt = self.planning.next_attempt(now);
        let held = held.into_iter().map(|(task, at)| (at, Attempt { task, attempt }));
        self.release_all(held.collect(), now);
        self.planning.replans.retry_later(id, now, &case);
        self.planning.admissions.insert(id, admission);
        self.continue_admission(id, now);
    }

    /// No remaining step needs a promise: a case whose promise was revoked is promised again.
    fn all_done(&mut self, id: InstanceId, now: Timestamp) {
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let Some(deadline) = state.deadline().filter(|it| !it.is_promised()) else { return };
        let done = deadline.legs.iter().filter(|leg| leg.planned.is_none());
        let done = done.map(|leg| Self::as_done(schema, state, leg, now)).collect();
        let reason = "all that is left was done in time all the same".to_owned();
        self.record_plan(id, Replanned { legs: done, reason }, now);
    }

    /// New dates were found for a case, or there are none before its deadline.
    pub(super) fn replan_decided(
        &mut self,
        id: InstanceId,
        admission: Admission,
        what: Outcome,
        now: Timestamp,
    ) {
        let held = admission.held();
        let Some((schema, state)) = self.cases.instances.state(id) else {
            return self.release_all(held, now);
        };
        let Some(deadline) = state.deadline() else { return self.release_all(held, now) };
        let was_promised = deadline.is_promised();
        let Purpose::Running { reason, is_one } = &admission.purpose else { return };
        let (reason, is_one) = (reason.clone(), *is_one);
        match what {
            Outcome::Promised => {
                let mut legs = promised(&admission).legs;
                let is_wanted = |leg: &&Leg| !legs.iter().any(|it| same_step(it, leg));
                let done = deadline.legs.iter().filter(is_wanted);
                let done = done.filter(|leg| leg.planned.is_none());
                let done: Vec<Leg> =
                    done.map(|leg| Self::as_done(schema, state, leg, now)).collect();
                legs.extend(done);
                self.planning.replans.done(id);
                let reason = match was_promised {
                    true => format!("{reason}; {WHY_ELSE}"),
                    false => WHY_AGAIN.to_owned(),
                };
                // Releases the previous reservations of steps that moved to another planner.
                let attempt = (self.planning.attempt + 1).max(now.0.unsigned_abs());
                let other = legs.iter().filter_map(|leg| {
                    let before = deadline.legs.iter().find(|it| same_step(it, leg))?;
                    let before = before.planned.as_ref()?.planner;
                    let is_other = leg.planned.as_ref().is_some_and(|it| it.planner != before);
                    is_other.then(|| (before, Attempt { task: task_of(id, leg), attempt }))
                });
                let other: Vec<(ServerId, Attempt)> = other.collect();
                let held = match self.record_plan(id, Replanned { legs, reason }, now) {
                    true => other,
                    false => held,
                };
                self.release_all(held, now);
                self.follow_plan(id, now);
            }
            // No other performer can do it then: seeks new dates for all remaining steps.
            Outcome::Refused { .. } if is_one => {
                self.release_all(held, now);
                self.planning.replans.cases.remove(&id);
                self.planning.replans.add(id, now, &reason, None);
                if let Some(case) = self.planning.replans.cases.get_mut(&id) {
                    case.after_fault = admission.after_fault;
                }
                self.replan(id, now);
            }
            Outcome::Refused { .. } => {
                let left = deadline.legs.iter().filter(|leg| {
                    leg.planned.is_some()
                        && self.planning.stage_known(id, (schema, state), leg) != Stage::Over
                });
                let legs: Vec<Leg> = left.map(|leg| Leg { planned: None, ..leg.clone() }).collect();
                let reserved = self.reserved(id, &legs, now);
                self.release_all(held, now);
                // The reason goes into letters: the reported one, since the reason of the search may name people. A
                // revocation that cannot be recorded now is tried again.
                if was_promised
                    && !legs.is_empty()
                    && self.record_plan(id, Replanned { legs, reason }, now)
                {
                    self.release_all(reserved, now);
                    self.count_revoked(id, now);
                }
            }
        }
        self.follow_displaced(now);
    }

    /// The reservations of these steps of a case.
    fn reserved(&self, id: InstanceId, legs: &[Leg], now: Timestamp) -> Vec<(ServerId, Attempt)> {
        // Higher than the numbers of earlier questions.
        let attempt = (self.planning.attempt + 1).max(now.0.unsigned_abs());
        let Some(deadline) = self.cases.instances.state(id).and_then(|(_, state)| state.deadline())
        else {
            return Vec::new();
        };
        let planned = deadline.legs.iter().filter(|leg| legs.iter().any(|it| same_step(it, leg)));
        let planned = planned.filter_map(|leg| {
            let at = leg.planned.as_ref()?.planner;
            Some((at, Attempt { task: task_of(id, leg), attempt }))
        });
        planned.collect()
    }

    /// A step that is over needs no promise: it is planned as it was done.
    fn as_done(schema: &Schema, state: &State, leg: &Leg, now: Timestamp) -> Leg {
        let is_last = is_now(schema, state, leg);
        let by = state.performer(leg.node).filter(|_| is_last).cloned();
        let is_skipped = state.node_state(leg.node) == NodeState::Skipped;
        let at = state.completed_at(leg.node).filter(|_| is_last && !is_skipped).unwrap_or(now);
        let by = by.unwrap_or(Performer::System);
        let planner = ServerId::default();
        Leg { planned: Some(Planned { by, start: at, end: at, planner }), ..leg.clone() }
    }

    /// A planner revokes a reservation.
    pub(super) fn on_taken_back(
        &mut self,
        from: ServerId,
        task: Attempt,
        why: Why,
        now: Timestamp,
    ) {
        let id = task.task.instance;
        if let Some(admission) = self.planning.admissions.get_mut(&id) {
            let is_in_admission = admission.lose_reservation(task);
            self.planning.displaced.insert(id);
            // While one step is replanned the reservation of another one is revoked.
            if !is_in_admission && self.is_planned_at(task.task, from) {
                self.replan_step(task.task, why.text(), why != Why::Displaced, now);
            }
        } else if self.planning.granted.contains_key(&id) {
            // The case has not started: the grant expires, and the start is decided again.
            if let Some(granted) = self.planning.granted.get_mut(&id) {
                granted.until = self.clock.latest;
            }
        } else if self.cases.unread.contains(&id) {
            // The planner resends it.
        } else if self.is_planned_at(task.task, from) {
            let is_fault = match why {
                Why::Gone | Why::Unseen => true,
                Why::Late => self.is_failed(task.task),
                Why::Displaced => false,
            };
            self.replan_step(task.task, why.text(), is_fault, now);
        } else if from != self.cluster.server_here() {
            self.send_reserving(from, Reserving::Release { tasks: vec![task] });
        }
    }

    /// Continues admissions whose reservations were displaced.
    pub(super) fn follow_displaced(&mut self, now: Timestamp) {
        for id in std::mem::take(&mut self.planning.displaced) {
            self.continue_admission(id, now);
        }
    }

    pub(super) fn is_planned_at(&self, task: TaskId, at: ServerId) -> bool {
        self.cases.promised_leg(task).is_some_and(|(schema, state, leg)| {
            leg.planned.as_ref().is_some_and(|planned| planned.planner == at)
                && self.planning.stage_known(task.instance, (schema, state), leg) != Stage::Over
        })
    }

    /// Compares the reservations of the planner here: a crash may have come between a release and its replacement.
    pub(super) fn compare_own(&mut self, now: Timestamp) {
        let here = self.cluster.server_here();
        let own = self.planning.planner.firm().filter(|own| own.asker == here);
        let own = own.map(|own| Attempt { task: own.task, attempt: own.attempt });
        let own: Vec<Attempt> = own.collect();
        self.on_held(here, (None, None), &own, now);
    }

    /// A planner sends all its firm reservations for cases of this server, between two tasks. Unwanted ones are
    /// released, and steps without a reservation are replanned.
    pub(super) fn on_held(
        &mut self,
        from: ServerId,
        (after, up_to): (Option<TaskId>, Option<TaskId>),
        held: &[Attempt],
        now: Timestamp,
    ) {
        let is_unwanted = |it: &&Attempt| {
            let id = it.task.instance;
            let is_coming = self.planning.granted.contains_key(&id)
                || self.planning.admissions.contains_key(&id)
                || self.cases.unread.contains(&id)
                // Its state is not in memory at the moment.
                || (self.cases.instances.get(id).is_some() && self.cases.instances.state(id).is_none());
            !is_coming && !self.is_planned_at(it.task, from)
        };
        let unwanted: Vec<Attempt> = held.iter().filter(is_unwanted).copied().collect();
        if !unwanted.is_empty() {
            self.release_all(unwanted.into_iter().map(|task| (from, task)).collect(), now);
        }
        let within = |task: &TaskId| {
            after.is_none_or(|after| *task > after) && up_to.is_none_or(|up_to| *task <= up_to)
        };
        let held: BTreeSet<TaskId> = held.iter().map(|it| it.task).collect();
        let own = self.planning.stages.iter().filter(|(task, reported)| {
            reported.planner == Some(from)
                && reported.stage != Stage::Over
                && within(task)
                && !held.contains(task)
                && !self.planning.admissions.contains_key(&task.instance)
                && !self.planning.replans.concerns(task.instance)
                && self.planning.is_settled(task.instance, now)
        });
        let missing = own.map(|(task, _)| *task).filter(|task| self.is_planned_at(*task, from));
        for task in missing.collect::<Vec<_>>() {
            self.replan_step(task, Why::Gone.text(), true, now);
        }
    }

    /// Replans steps that should have begun and whose planners are presumed dead.
    pub(super) fn replan_unreached(&mut self, now: Timestamp) {
        let open = self.planning.stages.iter();
        let waiting = open.filter(|(_, reported)| {
            reported.stage == Stage::Waiting
                && reported
                    .planner
                    .is_some_and(|planner| self.planning.reach.is_presumed_dead(planner))
        });
        let waiting: Vec<TaskId> = waiting.map(|(task, _)| *task).collect();
        for task in waiting {
            let Some((schema, state, leg)) = self.cases.promised_leg(task) else { continue };
            let stage = self.planning.stage_known(task.instance, (schema, state), leg);
            let is_waiting = stage == Stage::Waiting;
            let is_due =
                is_waiting && leg.planned.as_ref().is_some_and(|planned| planned.start <= now);
            if is_due && !self.planning.replans.concerns(task.instance) {
                self.replan_step(task, "the server that plans it cannot be reached", true, now);
            }
        }
    }
}

fn same_step(one: &Leg, other: &Leg) -> bool {
    (one.node, one.round) == (other.node, other.round)
}

/// All steps of an instance.
pub(super) fn steps_of(instance: InstanceId) -> RangeInclusive<TaskId> {
    let first = TaskId { instance, step: 0, round: 0 };
    first..=TaskId { instance, step: u32::MAX, round: u64::MAX }
}
