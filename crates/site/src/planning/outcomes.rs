//! Outcomes of promises: kept, broken and where, revoked; and durations of steps.

use std::sync::Arc;

use legwork_engine::{Lifecycle, NodeState, State};
use legwork_model::event::{Deadline, Leg, Performer};
use legwork_model::id::{AgentId, InstanceId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_placement::Map;
use legwork_plan::{Span, Supply, WHOLE};

use super::regular::share;
use super::steps::{ReportedStep, is_now, is_past, stage_of, task_of};
use crate::Site;
use crate::executors::Executors;
use crate::message::Stage;
use crate::planning::Planning;

/// Where a promise was broken: the first step that was late, and the executor or the domain that had promised it. A
/// person is not named here, since these figures are shown to everybody who monitors the server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BrokenAt {
    pub process: Arc<str>,
    pub step: Arc<str>,
    /// Empty for a single server.
    pub domain: Arc<str>,
    /// Empty if it was a person.
    pub executor: Arc<str>,
}

/// The most places that are counted separately.
const PLACES_MAX: usize = 100;
const OTHERS: &str = "others";

impl Planning {
    /// The deadline of a case has passed; `None` for a case that was never promised.
    pub(super) fn count_broken(&mut self, place: Option<BrokenAt>) {
        self.counts.broken += 1;
        let Some(place) = place else { return };
        let broken = &mut self.broken;
        let is_one_more = broken.len() >= PLACES_MAX && !broken.contains_key(&place);
        let none: Arc<str> = "".into();
        let others = || BrokenAt {
            process: OTHERS.into(),
            step: none.clone(),
            domain: none.clone(),
            executor: none.clone(),
        };
        *broken.entry(if is_one_more { others() } else { place }).or_default() += 1;
    }

    /// An agent has completed a step of any case.
    pub(crate) fn note_done(&mut self, by: AgentId, now: Timestamp) {
        self.done_at.insert(by, now);
    }
}

impl Executors {
    /// The working time of a performer in an interval, without regular work of executors.
    fn worked_by(&self, by: &Performer, from: Timestamp, to: Timestamp) -> u64 {
        let passed = u64::try_from(to.since(from).as_millis()).unwrap_or(u64::MAX);
        let Some(name) = by.program() else { return passed };
        let known = self.registry.named(name).map(|(_, one)| share(one));
        passed.saturating_mul(u64::from(known.unwrap_or(WHOLE))) / u64::from(WHOLE)
    }
}

impl Site {
    /// Where promises were broken, and how often, since the server was started.
    pub fn broken(&self) -> impl Iterator<Item = (&BrokenAt, u64)> {
        self.planning.broken.iter().map(|(place, count)| (place, *count))
    }

    /// An instance has just ended: the server that started it counts whether its deadline was kept.
    pub(crate) fn count_end(&mut self, id: InstanceId) {
        let Some(slot) = self.cases.instances.get(id) else { return };
        let Some(state) = slot.state.as_deref() else { return };
        if state.lifecycle() != Lifecycle::Completed || state.started_elsewhere().is_some() {
            return;
        }
        let Some(deadline) = state.deadline() else { return };
        // A deadline that passed before was already counted, unless the case may have ended at another server.
        let uncounted = self.planning.uncounted.get(&id).copied();
        let Some(by) = uncounted.or(deadline.passed.is_none().then_some(deadline.at)) else {
            return;
        };
        if slot.ended_at <= Some(by) {
            self.planning.counts.kept += 1;
            return;
        }
        // It has ended at another server, and the notice came before the deadline was found to have passed.
        let place = self.broken_at(id, (&slot.schema, state), deadline);
        self.planning.count_broken(place);
    }

    pub(super) fn broken_at(
        &self,
        id: InstanceId,
        (schema, state): (&Schema, &State),
        deadline: &Deadline,
    ) -> Option<BrokenAt> {
        if deadline.legs.is_empty() {
            return None;
        }
        // The state knows the last round of a step; the end of earlier rounds is known from reports.
        let over = |leg: &Leg| {
            let reported = self.planning.stages.get(&task_of(id, leg))?;
            (is_past(schema, state, leg) && reported.stage == Stage::Over).then_some(reported.since)
        };
        let is_late = |leg: &&Leg| {
            if stage_of(schema, state, leg) != Stage::Over {
                return leg.due <= deadline.at;
            }
            let done = match is_now(schema, state, leg) {
                true => state.completed_at(leg.node),
                false => over(leg),
            };
            done.is_some_and(|at| at > leg.due)
        };
        let late = deadline.legs.iter().filter(is_late).min_by_key(|leg| leg.due);
        let node = late.and_then(|leg| schema.nodes.get(leg.node.0 as usize));
        let planned = late.and_then(|leg| leg.planned.as_ref());
        let planner = planned.map(|planned| planned.planner);
        let executor = planned.and_then(|planned| planned.by.program().cloned());
        let domain =
            self.cluster.seat.as_ref().zip(planner).and_then(|(seat, planner)| {
                seat.topology.domain(seat.topology.domain_of(planner)?)
            });
        Some(BrokenAt {
            process: schema.process.clone(),
            step: node.map_or_else(|| "".into(), |node| node.name.clone()),
            domain: domain.map_or_else(|| "".into(), |domain| domain.name.clone()),
            executor: executor.unwrap_or_else(|| "".into()),
        })
    }

    /// The promise of a case was revoked before its deadline; counted once for each case.
    pub(super) fn count_revoked(&mut self, id: InstanceId, now: Timestamp) {
        let deadline = self.cases.instances.state(id).and_then(|(_, state)| state.deadline());
        let is_before = |deadline: &Deadline| {
            let turned = deadline.turned.as_ref().filter(|_| !deadline.is_promised());
            turned.map_or(now, |turned| turned.at) <= deadline.at
        };
        if deadline.is_some_and(is_before) {
            self.planning.counts.revoked += u64::from(self.planning.revoked.insert(id));
        }
    }

    /// The time spent on a completed step in milliseconds: working time of people, time since the assignment of
    /// executors. A person who has claimed several steps does one after the other.
    pub(super) fn took_since(
        &self,
        state: &State,
        leg: &Leg,
        before: &ReportedStep,
        now: Timestamp,
    ) -> Option<u64> {
        if before.stage != Stage::Begun {
            return None;
        }
        let by = match state.node_state(leg.node) {
            NodeState::Completed => state.performer(leg.node)?,
            // Answered by an executor, and not confirmed yet.
            NodeState::Selected if state.answer(leg.node).is_some() => {
                return Some(self.executors.worked_by(
                    &leg.planned.as_ref()?.by,
                    before.since,
                    now,
                ));
            }
            NodeState::NotActivated
            | NodeState::Activated
            | NodeState::Selected
            | NodeState::Failed
            | NodeState::Skipped => return None,
        };
        match by {
            Performer::Agent(by) => {
                let last = self.planning.done_at.get(by).copied();
                let from = last.map_or(before.since, |last| last.max(before.since));
                let time = self.catalog.organisation().working_time(by)?;
                let spans = time.spans_between_appointments(from, now);
                let spans =
                    spans.map(|it| Span { from: it.from, to: it.to, share: it.share.min(WHOLE) });
                Some(Supply::new(spans).until(now).0.unsigned_abs())
            }
            Performer::Worker(_) | Performer::Executor(_) => {
                Some(self.executors.worked_by(by, before.since, now))
            }
            Performer::System => None,
        }
    }
}
