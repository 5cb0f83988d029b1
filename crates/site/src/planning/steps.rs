//! Promised steps: begun, over, revoked, promised again.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use legwork_engine::{Command, Here, NodeState, State};
use legwork_model::event::{Deadline, Leg, Replanned, TaskKey};
use legwork_model::id::{Activity, AgentId, InstanceId, Iteration, NodeId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_org::ItemKey;
use legwork_plan::TaskId;

use super::holders::claimed_by;
use super::step_reports::StepReport;
use super::{key, task_id};
use crate::Site;
use crate::cases::Cases;
use crate::jobs::JobKey;
use crate::message::Stage;
use crate::planning::Planning;

/// The stage of a step as last reported.
#[derive(Clone, Debug)]
pub(super) struct ReportedStep {
    pub(super) stage: Stage,
    pub(super) since: Timestamp,
    /// Who has claimed it.
    pub(super) holder: Option<AgentId>,
    /// The planner the report was sent to; `None` if the step is not planned any more.
    pub(super) planner: Option<ServerId>,
}

/// The changes in an instance since its plan was last followed.
struct PlanChanges {
    /// The server that started it, if it is another one.
    starter: Option<ServerId>,
    /// New stages of steps, with the durations of those that are done.
    reported: Vec<(TaskId, ReportedStep, Option<u64>)>,
    /// Steps that are not planned any more.
    unplanned: Vec<TaskId>,
    /// Steps that are done more often than planned.
    extra_rounds: BTreeSet<(NodeId, u64)>,
}

impl Planning {
    /// The stage of a step of a case, by its history or by the report of the server that controls it.
    pub(super) fn stage_known(
        &self,
        id: InstanceId,
        (schema, state): (&Schema, &State),
        leg: &Leg,
    ) -> Stage {
        match (stage_of(schema, state, leg), self.step_reports.stage(task_of(id, leg))) {
            (Stage::Over, _) | (_, Some(Stage::Over)) => Stage::Over,
            (Stage::Waiting | Stage::Begun, Some(reported)) => reported,
            (own @ (Stage::Waiting | Stage::Begun), None) => own,
        }
    }
}

impl Cases {
    pub(super) fn is_promised(&self, id: InstanceId) -> bool {
        let deadline = self.instances.state(id).and_then(|(_, state)| state.deadline());
        deadline.is_none_or(Deadline::is_promised)
    }
}

impl Site {
    /// Updates the plans after a change of an instance. Cheap for instances without a deadline, which are nearly all.
    pub(crate) fn follow_plan(&mut self, id: InstanceId, now: Timestamp) {
        let Some(PlanChanges { starter, reported, unplanned, extra_rounds }) =
            self.plan_changes(id, now)
        else {
            return;
        };
        for task in unplanned {
            if let Some(reported) = self.planning.stages.get_mut(&task) {
                reported.planner = None;
            }
        }
        for (node, round) in extra_rounds {
            let task = TaskId { instance: id, step: node.0, round };
            let waits =
                ReportedStep { stage: Stage::Waiting, since: now, holder: None, planner: None };
            if self.planning.stages.insert(task, waits).is_none() {
                self.report_step(task, StepReport::new(Stage::Begun, now), [None, starter], now);
                self.on_extra_round(task, now);
            }
        }
        let is_done = reported.iter().any(|(_, report, _)| report.stage == Stage::Over);
        for (task, report, took_ms) in reported {
            let ReportedStep { stage, since, holder, planner } = report.clone();
            let before = self.planning.stages.insert(task, report);
            let is_held_as_before =
                before.as_ref().map_or(holder.is_none(), |before| before.holder == holder);
            // A waiting step is reported only if it had begun before.
            let had_begun = before.is_some_and(|before| before.stage != Stage::Waiting);
            if stage != Stage::Waiting || had_begun || !is_held_as_before {
                let report = StepReport { took_ms, holder, ..StepReport::new(stage, since) };
                self.report_step(task, report, [planner, starter], now);
                self.on_stage(key(task), (stage, since), now);
            }
            if starter.is_none() {
                self.note_duration(key(task), took_ms, now);
                self.replan_for_holder(task, !is_held_as_before, now);
            }
        }
        if is_done && starter.is_none() {
            self.follow_performer(id, now);
        }
        self.rank_jobs(id);
        if self.cases.instances.get(id).is_none_or(|slot| slot.has_ended()) {
            self.forget_case(id, now);
            self.planning.forget(id);
            self.mailings.forget(id);
        }
    }

    /// The changes of the planned steps of an instance; `None` if it has no deadline.
    fn plan_changes(&self, id: InstanceId, now: Timestamp) -> Option<PlanChanges> {
        let (schema, state) = self.cases.instances.state(id)?;
        let deadline = state.deadline()?;
        let starter = state.started_elsewhere();
        let (mut reported, mut unplanned) = (Vec::new(), Vec::new());
        for leg in &deadline.legs {
            let task = task_of(id, leg);
            let stage = stage_of(schema, state, leg);
            let planner = leg.planned.as_ref().map(|planned| planned.planner);
            if planner.is_none() {
                unplanned.push(task);
                // The starter has to know the holder when it replans the step.
                let is_a_persons = || schema.node(leg.node).who().is_some();
                if stage == Stage::Over || starter.is_none() || !is_a_persons() {
                    continue;
                }
            }
            let is_now = is_now(schema, state, leg);
            // No server controls a skipped step, or a round that is not done: any server that knows of it reports it.
            let is_skipped = stage == Stage::Over
                && !(is_now && state.node_state(leg.node) != NodeState::Skipped);
            let controls = || self.standing(id).controls(schema, state, leg.node);
            if starter.is_some() && !is_skipped && !controls() {
                continue;
            }
            let before = self.planning.stages.get(&task);
            // A job that is leased is still open.
            let is_given = || {
                let activity = state.activity(schema, leg.node);
                is_now && self.jobs.is_leased(&JobKey { instance: id, activity })
            };
            let stage = match stage {
                Stage::Waiting if is_given() => Stage::Begun,
                Stage::Begun if self.is_left_to_others(id, leg, now) => Stage::Waiting,
                Stage::Waiting | Stage::Begun | Stage::Over => stage,
            };
            let holder = claimed_by(schema, state, leg).filter(|_| stage != Stage::Over).cloned();
            let same = before.filter(|before| before.stage == stage && before.holder == holder);
            if same.is_some_and(|same| same.planner == planner) {
                continue;
            }
            // A new planner does not know the stage, and after a restart it is unknown which planners do.
            let claimed = || state.open_at(schema, leg.node).and_then(|open| open.claimed_at);
            let claimed = if stage == Stage::Begun { claimed() } else { None };
            let since = same.map_or(claimed.unwrap_or(now), |same| same.since);
            // The duration of a step that nobody had promised when it was done is unknown.
            let took = before.filter(|it| same.is_none() && is_now && it.planner.is_some());
            let took = took.and_then(|before| self.took_since(state, leg, before, now));
            reported.push((task, ReportedStep { stage, since, holder, planner }, took));
        }
        let extra_rounds = extra_rounds(schema, state, deadline);
        Some(PlanChanges { starter, reported, unplanned, extra_rounds })
    }

    /// Replays the promises of an instance after a restart.
    pub(crate) fn recover_promises(&mut self, id: InstanceId) {
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let Some(deadline) = state.deadline() else { return };
        self.planning.step_reports.recover(id);
        if state.started_elsewhere().is_some() {
            return;
        }
        self.planning.updates.recover(id, state);
        let turned = deadline.turned.is_some();
        // Its revocation was counted before.
        let is_revoked =
            !state.lifecycle().has_ended() && !deadline.is_unpromised && !deadline.is_promised();
        let open = deadline.legs.iter().filter(|leg| stage_of(schema, state, leg) != Stage::Over);
        // Its state stays in memory, so that outcomes of its steps can be recorded. Their stages are reported again.
        let (stage, since) = (Stage::Waiting, state.started_at());
        let reported =
            |planner| ReportedStep { stage, since, holder: None, planner: Some(planner) };
        let stages: Vec<(TaskId, ReportedStep)> = open
            .filter_map(|leg| Some((task_of(id, leg), reported(leg.planned.as_ref()?.planner))))
            .collect();
        let here = self.cluster.server_here();
        let planners = stages.iter().filter_map(|(_, reported)| reported.planner);
        for planner in planners.filter(|planner| *planner != here) {
            self.planning.reach.needs(planner, self.clock.latest);
        }
        self.planning.stages.extend(stages);
        if is_revoked {
            self.planning.revoked.insert(id);
            self.planning.replan_revoked(id);
        }
        if turned {
            self.note_promise(id);
        }
    }

    /// A job is leased: if it was promised, its step has begun.
    pub(crate) fn begin_promised(&mut self, job: &JobKey, now: Timestamp) {
        let Some((schema, state)) = self.cases.instances.state(job.instance) else { return };
        let Some(leg) = leg_of(schema, state, &job.activity) else { return };
        let Some(planner) = leg.planned.as_ref().map(|planned| planned.planner) else { return };
        let (task, starter) = (task_of(job.instance, leg), state.started_elsewhere());
        let (stage, since) = (Stage::Begun, now);
        let begun = ReportedStep { stage, since, holder: None, planner: Some(planner) };
        self.planning.stages.insert(task, begun);
        self.report_step(task, StepReport::new(Stage::Begun, now), [Some(planner), starter], now);
        self.on_stage(key(task), (Stage::Begun, now), now);
    }

    /// A loop is repeated more often than planned: revokes the promise of what follows.
    fn on_extra_round(&mut self, task: TaskId, now: Timestamp) {
        let Some((schema, state)) = self.cases.instances.state(task.instance) else { return };
        let Some(deadline) = state.deadline().filter(|deadline| deadline.is_promised()) else {
            return;
        };
        let node = NodeId(task.step);
        let last = deadline.legs.iter().rfind(|leg| leg.node == node);
        let Some(last) = last.filter(|_| state.started_elsewhere().is_none()) else { return };
        if deadline.legs.iter().any(|leg| (leg.node, leg.round) == (node, task.round)) {
            return;
        }
        let leg = Leg { round: task.round, planned: None, ..last.clone() };
        let reason = format!("`{}` is done once more than was planned", schema.node(node).name);
        self.count_revoked(task.instance, now);
        self.record_plan(task.instance, Replanned { legs: vec![leg], reason }, now);
    }

    /// The stage of a step that was promised or requested here has changed.
    pub(super) fn on_stage(
        &mut self,
        task: TaskKey,
        (stage, since): (Stage, Timestamp),
        now: Timestamp,
    ) {
        let task = task_id(task);
        if task.round > 0 && stage == Stage::Begun {
            self.on_extra_round(task, now);
        }
        self.restore_plans_once(now);
        self.note_occupied(now);
        let planner = &mut self.planning.planner;
        planner.pass(now);
        match stage {
            Stage::Over => drop(planner.end(task)),
            Stage::Begun => planner.begin(task, since.min(now)),
            Stage::Waiting => planner.leave(task),
        }
        self.record_plan_changes(now);
        if stage == Stage::Over && !self.cases.is_promised(task.instance) {
            self.planning.replans.hurry_case(task.instance, now);
        }
    }

    /// Records a change of the plan of an instance, and sends it to the other servers involved. Returns whether it
    /// could be recorded.
    pub(super) fn record_plan(
        &mut self,
        id: InstanceId,
        replanned: Replanned,
        now: Timestamp,
    ) -> bool {
        let is_put = self.command(id, Command::Replan(Box::new(replanned.clone())), now).is_ok();
        if is_put {
            self.planning.planned_at.insert(id, now);
            self.send_plan(id, &replanned, now);
            self.touch_items(id, &replanned.legs);
            self.note_promise(id);
        }
        is_put
    }

    /// Items of changed steps are sent again to readers of worklists, since they show the planned performer.
    pub(super) fn touch_items(&mut self, id: InstanceId, legs: &[Leg]) {
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let known = legs.iter().filter(|leg| (leg.node.0 as usize) < schema.nodes.len());
        let items: Vec<Activity> = known.map(|leg| state.activity(schema, leg.node)).collect();
        for activity in items {
            self.work.worklists.touch(&ItemKey { instance: id, activity });
        }
    }
}

/// By when a planned job is due.
pub(crate) fn promised_for(
    schema: &Schema,
    state: &State,
    activity: &Activity,
) -> Option<Timestamp> {
    let leg = leg_of(schema, state, activity)?;
    leg.planned.as_ref().map(|_| leg.due)
}

/// The plan of an activity, if its instance has a deadline.
pub(crate) fn leg_of<'s>(
    schema: &Schema,
    state: &'s State,
    activity: &Activity,
) -> Option<&'s Leg> {
    let deadline = state.deadline()?;
    let round = activity.iteration.number();
    let known = (activity.node.0 as usize) < schema.nodes.len();
    deadline.legs.iter().find(|leg| known && (leg.node, leg.round) == (activity.node, round))
}

/// Steps that are open in a round without a plan.
fn extra_rounds(schema: &Schema, state: &State, deadline: &Deadline) -> BTreeSet<(NodeId, u64)> {
    if !deadline.is_promised() {
        return BTreeSet::new();
    }
    let looped = deadline.legs.iter().filter(|leg| {
        let node = schema.nodes.get(leg.node.0 as usize);
        node.is_some_and(|node| !node.loops.is_empty())
    });
    let open = looped.filter_map(|leg| {
        let activity = state.activity(schema, leg.node);
        let is_open = matches!(
            state.node_state(leg.node),
            NodeState::Activated | NodeState::Selected | NodeState::Failed
        );
        let is_planned = || leg_of(schema, state, &activity).is_some();
        (is_open && !is_planned()).then(|| (leg.node, activity.iteration.number()))
    });
    open.collect()
}

pub(super) fn task_of(instance: InstanceId, leg: &Leg) -> TaskId {
    TaskId { instance, step: leg.node.0, round: leg.round }
}

/// Whether a leg is of the present round of its step.
pub(super) fn is_now(schema: &Schema, state: &State, leg: &Leg) -> bool {
    let known = (leg.node.0 as usize) < schema.nodes.len();
    known && state.activity(schema, leg.node).iteration.number() == leg.round
}

/// Whether a leg is of an earlier round of its step.
pub(super) fn is_past(schema: &Schema, state: &State, leg: &Leg) -> bool {
    let known = (leg.node.0 as usize) < schema.nodes.len();
    known && leg.round < state.activity(schema, leg.node).iteration.number()
}

pub(super) fn stage_of(schema: &Schema, state: &State, leg: &Leg) -> Stage {
    if state.lifecycle().has_ended() || leg.node.0 as usize >= schema.nodes.len() {
        return Stage::Over;
    }
    let now = state.activity(schema, leg.node).iteration.number();
    match leg.round.cmp(&now) {
        Ordering::Less => return Stage::Over,
        Ordering::Greater if is_given_back(schema, state, leg) => return Stage::Over,
        Ordering::Greater => return Stage::Waiting,
        Ordering::Equal => {}
    }
    match state.node_state(leg.node) {
        // The executor has given its result, and only waits for the verdict.
        _ if state.answer(leg.node).is_some() => Stage::Over,
        NodeState::NotActivated | NodeState::Activated | NodeState::Failed => Stage::Waiting,
        NodeState::Selected => Stage::Begun,
        NodeState::Completed | NodeState::Skipped => Stage::Over,
    }
}

/// Whether a leg is of a later round that will not come, since its loop was left.
pub(super) fn is_given_back(schema: &Schema, state: &State, leg: &Leg) -> bool {
    let Some(node) = schema.nodes.get(leg.node.0 as usize) else { return false };
    let now = state.activity(schema, leg.node).iteration;
    let planned = Iteration::numbered(leg.round, node.loops.len());
    let rounds = node.loops.iter().zip(planned.0.iter().zip(&now.0));
    let other = rounds.into_iter().find(|(_, (planned, now))| planned != now);
    other.is_some_and(|(id, (planned, now))| {
        let end = state.node_state(schema.loops[id.0 as usize].end);
        planned > now && matches!(end, NodeState::Completed | NodeState::Skipped)
    })
}
