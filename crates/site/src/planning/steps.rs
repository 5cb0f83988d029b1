//! What becomes of promised steps: begun, over, revoked, promised anew.

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
use super::word::News;
use super::{key, task_id};
use crate::Site;
use crate::cases::Cases;
use crate::jobs::JobKey;
use crate::message::Stage;
use crate::planning::Planning;

/// How far a step is, as it was told last.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) stage: Stage,
    pub(super) since: Timestamp,
    /// Who has claimed it.
    pub(super) holder: Option<AgentId>,
    /// The planner of the step, which was told; `None` if it is not planned any more.
    pub(super) planner: Option<ServerId>,
}

/// What has changed in an instance since its plan was followed last.
struct Moved {
    /// Who has started it, if that is another server.
    starter: Option<ServerId>,
    /// How far steps are, and how long those took that are done.
    told: Vec<(TaskId, Told, Option<u64>)>,
    /// Steps that are not planned any more.
    left: Vec<TaskId>,
    /// Steps that are done once more than was planned.
    again: BTreeSet<(NodeId, u64)>,
}

impl Planning {
    /// How far a step of a case is, by its history or by word of the server that controls it.
    pub(super) fn stage_known(
        &self,
        id: InstanceId,
        (schema, state): (&Schema, &State),
        leg: &Leg,
    ) -> Stage {
        match (stage_of(schema, state, leg), self.word.stage(task_of(id, leg))) {
            (Stage::Over, _) | (_, Some(Stage::Over)) => Stage::Over,
            (Stage::Waiting | Stage::Begun, Some(told)) => told,
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
    /// Brings the plans in line with where an instance stands. Cheap for those without a deadline, which are
    /// nearly all.
    pub(crate) fn follow_plan(&mut self, id: InstanceId, now: Timestamp) {
        let Some(Moved { starter, told, left, again }) = self.plan_news(id, now) else { return };
        for task in left {
            if let Some(told) = self.planning.stages.get_mut(&task) {
                told.planner = None;
            }
        }
        for (node, round) in again {
            let task = TaskId { instance: id, step: node.0, round };
            let waits = Told { stage: Stage::Waiting, since: now, holder: None, planner: None };
            if self.planning.stages.insert(task, waits).is_none() {
                self.tell_step(task, News::new(Stage::Begun, now), [None, starter], now);
                self.goes_round(task, now);
            }
        }
        let is_done = told.iter().any(|(_, news, _)| news.stage == Stage::Over);
        for (task, news, took_ms) in told {
            let Told { stage, since, holder, planner } = news.clone();
            let before = self.planning.stages.insert(task, news);
            let is_held_as_before =
                before.as_ref().map_or(holder.is_none(), |before| before.holder == holder);
            // That a step waits is news only if somebody had begun.
            let had_begun = before.is_some_and(|before| before.stage != Stage::Waiting);
            if stage != Stage::Waiting || had_begun || !is_held_as_before {
                let news = News { took_ms, holder, ..News::new(stage, since) };
                self.tell_step(task, news, [planner, starter], now);
                self.step_told(key(task), (stage, since), now);
            }
            if starter.is_none() {
                self.took(key(task), took_ms, now);
                self.follow_holder(task, !is_held_as_before, now);
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

    /// What has changed in the steps of an instance that are planned; `None` if it has no deadline.
    fn plan_news(&self, id: InstanceId, now: Timestamp) -> Option<Moved> {
        let (schema, state) = self.cases.instances.state(id)?;
        let deadline = state.deadline()?;
        let starter = state.started_elsewhere();
        let (mut told, mut left) = (Vec::new(), Vec::new());
        for leg in &deadline.legs {
            let task = task_of(id, leg);
            let stage = stage_of(schema, state, leg);
            let planner = leg.planned.as_ref().map(|planned| planned.planner);
            if planner.is_none() {
                left.push(task);
                // The starter has to know who has claimed it when it has it replanned.
                let is_a_persons = || schema.node(leg.node).who().is_some();
                if stage == Stage::Over || starter.is_none() || !is_a_persons() {
                    continue;
                }
            }
            let is_now = is_now(schema, state, leg);
            // No server controls what is skipped, nor a round that is not gone: any that knows it says so.
            let is_skipped = stage == Stage::Over
                && !(is_now && state.node_state(leg.node) != NodeState::Skipped);
            let controls = || self.standing(id).controls(schema, state, leg.node);
            if starter.is_some() && !is_skipped && !controls() {
                continue;
            }
            let before = self.planning.stages.get(&task);
            // A job that was given to somebody is still open.
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
            // A new planner does not know how far it is, and after a restart it is not known which planners do.
            let claimed = || state.open_at(schema, leg.node).and_then(|open| open.claimed_at);
            let claimed = if stage == Stage::Begun { claimed() } else { None };
            let since = same.map_or(claimed.unwrap_or(now), |same| same.since);
            // Of what nobody had promised when it was done it is not known when that was noticed.
            let took = before.filter(|it| same.is_none() && is_now && it.planner.is_some());
            let took = took.and_then(|before| self.took_since(state, leg, before, now));
            told.push((task, Told { stage, since, holder, planner }, took));
        }
        let again = rounds_again(schema, state, deadline);
        Some(Moved { starter, told, left, again })
    }

    /// Takes in what was promised for an instance before the server went down.
    pub(crate) fn expect_promises(&mut self, id: InstanceId) {
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let Some(deadline) = state.deadline() else { return };
        self.planning.word.recover(id);
        if state.started_elsewhere().is_some() {
            return;
        }
        self.planning.updates.recover(id, state);
        let turned = deadline.turned.is_some();
        // That it was revoked has been counted.
        let is_revoked =
            !state.lifecycle().has_ended() && !deadline.is_unpromised && !deadline.is_promised();
        let open = deadline.legs.iter().filter(|leg| stage_of(schema, state, leg) != Stage::Over);
        // Its state stays in memory, so that it can be told what becomes of them. How far they are is told again.
        let (stage, since) = (Stage::Waiting, state.started_at());
        let told = |planner| Told { stage, since, holder: None, planner: Some(planner) };
        let stages: Vec<(TaskId, Told)> = open
            .filter_map(|leg| Some((task_of(id, leg), told(leg.planned.as_ref()?.planner))))
            .collect();
        let here = self.cluster.server_here();
        let planners = stages.iter().filter_map(|(_, told)| told.planner);
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

    /// Somebody has been given a job: if it was promised, they work on it now.
    pub(crate) fn begin_promised(&mut self, job: &JobKey, now: Timestamp) {
        let Some((schema, state)) = self.cases.instances.state(job.instance) else { return };
        let Some(leg) = leg_of(schema, state, &job.activity) else { return };
        let Some(planner) = leg.planned.as_ref().map(|planned| planned.planner) else { return };
        let (task, starter) = (task_of(job.instance, leg), state.started_elsewhere());
        let (stage, since) = (Stage::Begun, now);
        let begun = Told { stage, since, holder: None, planner: Some(planner) };
        self.planning.stages.insert(task, begun);
        self.tell_step(task, News::new(Stage::Begun, now), [Some(planner), starter], now);
        self.step_told(key(task), (Stage::Begun, now), now);
    }

    /// A loop goes round once more than was planned: what follows is not promised any more, and that is told.
    fn goes_round(&mut self, task: TaskId, now: Timestamp) {
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
        self.put_plan(task.instance, Replanned { legs: vec![leg], reason }, now);
    }

    /// How far a step is that was promised or asked for here.
    pub(super) fn step_told(
        &mut self,
        task: TaskKey,
        (stage, since): (Stage, Timestamp),
        now: Timestamp,
    ) {
        let task = task_id(task);
        if task.round > 0 && stage == Stage::Begun {
            self.goes_round(task, now);
        }
        self.wake_planner(now);
        self.note_occupied(now);
        let planner = &mut self.planning.planner;
        planner.pass(now);
        match stage {
            Stage::Over => drop(planner.end(task)),
            Stage::Begun => planner.begin(task, since.min(now)),
            Stage::Waiting => planner.leave(task),
        }
        self.keep_plans(now);
        if stage == Stage::Over && !self.cases.is_promised(task.instance) {
            self.planning.anew.hurry_case(task.instance, now);
        }
    }

    /// Steps are planned otherwise from now on: here, and where others have to do with the instance. Answers whether that could
    /// be recorded.
    pub(super) fn put_plan(
        &mut self,
        id: InstanceId,
        replanned: Replanned,
        now: Timestamp,
    ) -> bool {
        let is_put = self.command(id, Command::Replan(Box::new(replanned.clone())), now).is_ok();
        if is_put {
            self.planning.planned_at.insert(id, now);
            self.tell_plan(id, &replanned, now);
            self.show_plan(id, &replanned.legs);
            self.note_promise(id);
        }
        is_put
    }

    /// Those who follow a list see for whom its items are planned now.
    pub(super) fn show_plan(&mut self, id: InstanceId, legs: &[Leg]) {
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        let known = legs.iter().filter(|leg| (leg.node.0 as usize) < schema.nodes.len());
        let items: Vec<Activity> = known.map(|leg| state.activity(schema, leg.node)).collect();
        for activity in items {
            self.work.worklists.touch(&ItemKey { instance: id, activity });
        }
    }
}

/// By when a job is due that is planned.
pub(crate) fn promised_for(
    schema: &Schema,
    state: &State,
    activity: &Activity,
) -> Option<Timestamp> {
    let leg = leg_of(schema, state, activity)?;
    leg.planned.as_ref().map(|_| leg.due)
}

/// What is planned for an activity, if its instance has a deadline.
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

/// Steps that are open in a round for which nothing was planned.
fn rounds_again(schema: &Schema, state: &State, deadline: &Deadline) -> BTreeSet<(NodeId, u64)> {
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

/// Whether a leg is of the round in which its step is now.
pub(super) fn is_now(schema: &Schema, state: &State, leg: &Leg) -> bool {
    let known = (leg.node.0 as usize) < schema.nodes.len();
    known && state.activity(schema, leg.node).iteration.number() == leg.round
}

/// Whether a leg is of a round before that in which its step is now.
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
        // The executor that has given the result has nothing left to do but to learn that it counts.
        _ if state.answer(leg.node).is_some() => Stage::Over,
        NodeState::NotActivated | NodeState::Activated | NodeState::Failed => Stage::Waiting,
        NodeState::Selected => Stage::Begun,
        NodeState::Completed | NodeState::Skipped => Stage::Over,
    }
}

/// Whether a leg is of a later round and the loop is left that would have to go round for it.
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
