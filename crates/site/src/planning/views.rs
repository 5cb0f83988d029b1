//! Views of plans and deadlines.

use std::sync::Arc;

use legwork_engine::State;
use legwork_model::event::{Deadline, Leg, Performer};
use legwork_model::id::{Iteration, ServerId};
use legwork_model::schema::{Node, Schema};
use legwork_model::time::Timestamp;
use legwork_plan::{Kind, ResourceId, TaskId};

use super::resources::performer;
use super::steps::is_given_back;
use crate::Site;
use crate::answer::{Answer, DeadlineView, LegView, PlanView, PlannedTurn, Revoked};
use crate::cases::instances::Instances;
use crate::catalog::access::Caller;
use crate::refusal::Refusal;

impl DeadlineView {
    /// As planned; for a running case including steps that are not needed any more.
    pub(crate) fn of(schema: &Schema, deadline: &Deadline, state: Option<&State>) -> Self {
        let node = |leg: &Leg| schema.nodes.get(leg.node.0 as usize);
        let is_revoked = !deadline.is_unpromised && !deadline.is_promised();
        let turned = deadline.turned.as_ref().filter(|_| is_revoked);
        let revoked = turned.map(|turned| {
            let node = schema.nodes.get(turned.node.0 as usize);
            let step = node.map_or_else(|| "?".into(), |node| node.name.clone());
            Revoked { at: turned.at, step, reason: turned.reason.clone() }
        });
        let legs = deadline.legs.iter().map(|leg| LegView {
            step: node(leg).map_or_else(|| "?".into(), |node| node.name.clone()),
            iteration: Iteration::numbered(leg.round, node(leg).map_or(0, |it| it.loops.len())),
            due: leg.due,
            is_given_back: state.is_some_and(|state| is_given_back(schema, state, leg)),
            by: leg.planned.as_ref().map(|planned| planned.by.clone()),
            is_best_effort: node(leg)
                .zip(leg.planned.as_ref())
                .is_some_and(|(node, planned)| is_by_workers(node, &planned.by)),
            start: leg.planned.as_ref().map(|planned| planned.start),
            end: leg.planned.as_ref().map(|planned| planned.end),
        });
        let (at, promised, passed) = (deadline.at, deadline.is_promised(), deadline.passed);
        Self { at, promised, passed, danger: None, revoked, legs: legs.collect() }
    }
}

impl Site {
    /// The plan of a person or an executor.
    pub(crate) fn plan_of(
        &mut self,
        caller: &Caller,
        resource: ResourceId,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        match &resource {
            ResourceId::Person(agent) => caller.require_work_as(agent)?,
            // The plan of an executor names cases, so it is for callers who may look at cases, and for programs.
            ResourceId::Executor(_) | ResourceId::Workers(_) => caller
                .require_start()
                .or_else(|refusal| caller.require_worker().map_err(|_| refusal))?,
        }
        let is_known = match &resource {
            ResourceId::Person(agent) => self.catalog.organisation().contains(agent),
            ResourceId::Executor(name) => self.executors.registry.named(name).is_some(),
            ResourceId::Workers(_) => false,
        };
        if !is_known {
            return Err(Refusal::not_found(
                "no_such_resource",
                format!(
                    "person or executor `{resource}`; see `legwork organisation` and `legwork executors`"
                ),
            ));
        }
        self.require_planner_here(&resource)?;
        self.restore_plans_once(now);
        self.ensure_planned(&resource, now);
        self.note_occupied(now);
        let instances = &self.cases.instances;
        let planner = &mut self.planning.planner;
        planner.pass(now);
        // Work that continues the next day is shown by day.
        let working_time = match &resource {
            ResourceId::Person(agent) => self.catalog.organisation().working_time(agent),
            ResourceId::Executor(_) | ResourceId::Workers(_) => None,
        };
        let stretches = |from: Timestamp, to: Timestamp| match &working_time {
            None => vec![(from, to)],
            Some(time) => {
                let spans = time.spans_between_appointments(from, to);
                spans.map(|span| (span.from, span.to)).collect()
            }
        };
        let mut turns = Vec::new();
        let mut lane = 0;
        while let Some(all) = planner.turns(&resource, lane) {
            for (turn, task) in all {
                let promised = task.and_then(|task| planner.reservation(task));
                let named = promised.map(|own| own.step.clone()).filter(|it| !it.is_empty());
                let (known, iteration) = task.and_then(|it| activity(instances, it)).unzip();
                // A reservation from before steps were named in it may be known here.
                let step = named.or(known);
                let iteration = iteration.unwrap_or_default();
                let due = promised.map(|own| own.window.due);
                let instance = task.map(|task| task.instance);
                let is_regular = turn.kind == Kind::Regular;
                let is_firm = task.is_some_and(|task| planner.is_firm(task));
                turns.extend(stretches(turn.from, turn.to).into_iter().map(|(from, to)| {
                    let (step, iteration) = (step.clone(), iteration.clone());
                    PlannedTurn {
                        lane,
                        from,
                        to,
                        instance,
                        step,
                        iteration,
                        due,
                        is_regular,
                        is_firm,
                    }
                }));
            }
            lane += 1;
        }
        let by = performer(&resource);
        Ok(Answer::Plan(Box::new(PlanView { by, at: now, turns })))
    }

    fn require_planner_here(&self, resource: &ResourceId) -> Result<(), Refusal> {
        let planner: ServerId = self.planner_of(resource);
        if planner == self.cluster.server_here() {
            return Ok(());
        }
        let message = "the plan is kept by another server; send the request there";
        Err(Refusal::new(crate::refusal::Kind::Conflict, "elsewhere", message).at(Some(planner)))
    }
}

/// Whether workers have promised a step, and not an executor that an earlier version stored as a worker.
pub(crate) fn is_by_workers(node: &Node, by: &Performer) -> bool {
    matches!((node.job(), by), (Some(job), Performer::Worker(name)) if job == name)
}

/// The step of a task, with its round, if the case is known here.
fn activity(instances: &Instances, task: TaskId) -> Option<(Arc<str>, Iteration)> {
    let node = instances.get(task.instance)?.schema.nodes.get(task.step as usize)?;
    Some((node.name.clone(), Iteration::numbered(task.round, node.loops.len())))
}
