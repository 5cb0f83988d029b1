//! Who could do a step, and when: those whom its rule names, and whoever stands in for one of them.
//!
//! Whoever stands in for somebody sees the item only while that one is away, so their time counts only then.

use std::collections::BTreeMap;
use std::time::Duration;

use legwork_engine::State;
use legwork_model::event::{ExecutorRegistered, Leg, Performer, StandsIn};
use legwork_model::id::{Activity, AgentId, InstanceId, Iteration, NodeId};
use legwork_model::rule::Rule;
use legwork_model::schema::{Node, Schema};
use legwork_model::time::Timestamp;
use legwork_org::{Performers, Resolved};
use legwork_promise::{Only, ResourceId, TaskId, Window};
use legwork_schedule::{ExecutorId, KindId};

use super::resources::{AHEAD, performer, resource};
use super::search::{Foreseen, Routing};
use super::steps::stage_of;
use super::steps_of;
use crate::Site;
use crate::message::Stage;
use crate::step::{History, agent};

/// The most people, or executors, who are asked for their time for one step.
const WHO_MAX: usize = 256;

/// The most times for which somebody who stands in for others is asked for one step.
const TIMES_MAX: usize = 8;

/// How long an executor that only fails is not asked for promises after it failed last.
const FAILING: Duration = Duration::from_mins(10);
/// So many of them are named.
const NAMED_MAX: usize = 5;

/// Those who could do a step, and who of them only at times.
#[derive(Debug, Default)]
pub(super) struct Who {
    pub(super) all: Vec<ResourceId>,
    pub(super) only: Vec<Only>,
}

impl Who {
    pub(super) fn could(&self, by: &Performer) -> bool {
        self.all.contains(&resource(by))
    }
}

/// Who did what in an instance, or is to do it.
struct AsPlanned<'a> {
    schema: &'a Schema,
    state: &'a State,
    /// For whom it is asked: what is planned for later rounds does not count for it.
    leg: &'a Leg,
}

impl Performers for AsPlanned<'_> {
    fn performer(&self, step: &str) -> Option<AgentId> {
        let Self { schema, state, leg } = *self;
        let node = schema.node_named(step)?.id;
        let done = || History { schema, state: Some(state) }.performer(step);
        let deadline = state.deadline()?;
        let mut same = deadline.legs.iter().filter(|other| other.node == node);
        let before = same.clone().filter(|other| {
            schema.activity_precedes(&activity(schema, other), &activity(schema, leg))
        });
        match before.max_by_key(|other| other.round) {
            // Of an earlier round somebody may have done it who is not to do it in this one.
            Some(before) if stage_of(schema, state, before) != Stage::Over => {
                planned_for(before).or_else(done)
            }
            Some(_) | None => done().or_else(|| planned_for(same.next_back()?)),
        }
    }

    fn starter(&self) -> Option<AgentId> {
        History { schema: self.schema, state: Some(self.state) }.starter()
    }
}

impl Site {
    /// Those who could do a step, as far as that can be foreseen.
    pub(super) fn who_could(&self, routing: &Routing, leg: usize, window: Window) -> Who {
        let node = routing.schema.node(routing.legs[leg].node);
        if let Some(job) = node.job() {
            return Who { all: self.executors_doing(job).collect(), only: Vec::new() };
        }
        let Some(rule) = node.who() else { return Who::default() };
        let Routing { schema, legs, granted, start, .. } = routing;
        let starter = start.agent.as_ref();
        let org = self.catalog.organisation();
        let resolved = org.resolve(rule, &Foreseen { schema, legs, granted, starter });
        let actors: Vec<AgentId> = resolved.actors.iter().take(WHO_MAX).cloned().collect();
        self.with_stand_ins(actors, &resolved, window)
    }

    /// The executors that are registered for a type of job, but for those of which nothing is expected just now.
    pub(super) fn executors_doing(&self, job: &str) -> impl Iterator<Item = ResourceId> {
        let kind = self.executors.registry.offered(job);
        let doing = self
            .registered_for(job)
            .filter(move |(id, _)| kind.is_none_or(|kind| !self.is_failing(*id, kind)));
        doing.map(|(_, one)| ResourceId::Executor(one.name.clone())).take(WHO_MAX)
    }

    fn registered_for(&self, job: &str) -> impl Iterator<Item = (ExecutorId, &ExecutorRegistered)> {
        let registry = &self.executors.registry;
        let doing = registry.offered(job).into_iter().flat_map(|kind| registry.offering(kind));
        doing.filter_map(|id| Some((*id, &**registry.get(*id)?)))
    }

    fn is_failing(&self, executor: ExecutorId, kind: KindId) -> bool {
        let failed_at = self.executors.book.failed_at(executor, kind);
        failed_at.is_some_and(|at| self.latest.since(at) < FAILING)
    }

    /// Why nobody can be asked to promise a step.
    pub(super) fn why_nobody(&self, node: &Node) -> String {
        let step = &node.name;
        let Some(job) = node.job() else {
            let rule = node.who().map_or_else(String::new, ToString::to_string);
            return format!("nobody in the organisation can do `{step}`, which is for `{rule}`");
        };
        let named = self.registered_for(job).map(|(_, one)| &*one.name);
        let named: Vec<&str> = named.take(NAMED_MAX).collect();
        match named.is_empty() {
            true => format!(
                "no executor is registered for jobs of type `{job}`, which `{step}` is; workers promise nothing"
            ),
            false => format!(
                "of the executors for jobs of type `{job}`, which `{step}` is, nothing is expected just now: {}; each is asked again ten minutes after it failed last, or when it has done something; see `legwork executors`",
                named.join(", ")
            ),
        }
    }

    /// A leg is promised where others are: should that be taken back, all who can do it are asked.
    pub(super) fn ask_all_next_time(
        &mut self,
        task: TaskId,
        (leg, window): (usize, Window),
        now: Timestamp,
    ) {
        let Some(routing) = self.planning.routes.get(&task.instance) else { return };
        let Who { all, only } = self.who_could(routing, leg, window);
        all.iter().for_each(|one| self.prepare(one, now));
        if let Some(node) = &mut self.planning.node {
            node.revise(task, &all, &only);
        }
    }

    /// Those who could do a step of an instance, by the organisation and the executors of today; what somebody has
    /// claimed only they and whoever stands in for them.
    pub(super) fn who_could_now(
        &self,
        id: InstanceId,
        (schema, state): (&Schema, &State),
        leg: &Leg,
    ) -> Who {
        if let Some(job) = schema.node(leg.node).job() {
            return Who { all: self.executors_doing(job).collect(), only: Vec::new() };
        }
        let resolved = self.resolved_as_planned(schema, state, leg);
        let actors = match self.holder(id, (schema, state), leg) {
            Some(holder) => vec![holder.clone()],
            None => resolved.actors.iter().take(WHO_MAX).cloned().collect(),
        };
        let window = Window { release: leg.release, deadline: leg.due };
        self.with_stand_ins(actors, &resolved, window)
    }

    /// Also a stand-in from after the window on counts: for a later date they could do it.
    fn with_stand_ins(&self, actors: Vec<AgentId>, step: &Resolved, window: Window) -> Who {
        let org = self.catalog.organisation();
        let mut times: BTreeMap<AgentId, Vec<Window>> = BTreeMap::new();
        for actor in &actors {
            let (from, to) = (window.release, window.release + AHEAD);
            let others = org.stand_ins_between(actor, step, from, to).into_iter();
            for other in others.filter(|other| actors.binary_search(&other.agent).is_err()) {
                let time = Window { release: other.from, deadline: other.to };
                times.entry(other.agent).or_default().push(time);
            }
        }
        let all = actors.into_iter().chain(times.keys().cloned());
        let all = all.map(ResourceId::Person).collect();
        let only = times.into_iter().flat_map(|(who, times)| {
            let times = joined(times).into_iter().take(TIMES_MAX);
            times.map(move |within| Only { who: ResourceId::Person(who.clone()), within })
        });
        Who { all, only: only.collect() }
    }

    /// The organisation has changed: what was promised to instances of this server by somebody who cannot do it any
    /// more. Of whoever stands in, when they do may have changed as well.
    pub(super) fn promised_in_vain(&mut self, now: Timestamp) -> Vec<TaskId> {
        let open = self.planning.stages.iter().filter(|(_, told)| told.stage != Stage::Over);
        let open: Vec<TaskId> = open.map(|(id, _)| *id).collect();
        self.in_vain(&open, now)
    }

    /// Somebody has done a step of an instance, perhaps not who was to: then others may be barred from what follows than
    /// was foreseen, and what they have promised is promised anew.
    pub(super) fn follow_performer(&mut self, id: InstanceId, now: Timestamp) {
        let open = self.planning.stages.range(steps_of(id));
        let open = open.filter(|(_, told)| told.stage != Stage::Over);
        let open: Vec<TaskId> = open.map(|(id, _)| *id).collect();
        for task in self.in_vain(&open, now) {
            self.plan(now, |node| node.promise_anew(task, now));
        }
    }

    fn in_vain(&mut self, open: &[TaskId], now: Timestamp) -> Vec<TaskId> {
        let others: Vec<TaskId> =
            open.iter().copied().filter(|id| !self.is_done_by_actor(*id)).collect();
        others.into_iter().filter(|id| self.look_again_who_could(*id, now) == Some(false)).collect()
    }

    /// Looks who could do a step by the organisation of today, for it has to be promised anew perhaps. Answers whether
    /// whoever has promised it still could, or has left it to others; `None` if that is not known here.
    pub(super) fn look_again_who_could(&mut self, id: TaskId, now: Timestamp) -> Option<bool> {
        let (schema, state, leg) = self.promised_leg(id)?;
        let planned = leg.planned.clone()?;
        let by = resource(&planned.by);
        let Who { all, only } = self.who_could_now(id.instance, (schema, state), leg);
        all.iter().for_each(|one| self.prepare(one, now));
        if let Some(node) = &mut self.planning.node {
            node.revise(id, &all, &only);
        }
        // Who stands in has to stand in then.
        let mut times =
            only.iter().filter(|only| only.who == by).map(|only| only.within).peekable();
        let is_then = times.peek().is_none()
            || times.any(|it| it.release <= planned.start && planned.end <= it.deadline);
        Some(all.contains(&by) && is_then)
    }

    /// Whether whoever is to do a step may do it at any time: nearly all.
    fn is_done_by_actor(&self, id: TaskId) -> bool {
        let Some((schema, state, leg)) = self.promised_leg(id) else { return true };
        let Some(by) = leg.planned.as_ref().and_then(|planned| agent(&planned.by)) else {
            return true;
        };
        match self.holder(id.instance, (schema, state), leg) {
            Some(holder) => *holder == by,
            None => self.resolved_as_planned(schema, state, leg).actors.contains(&by),
        }
    }

    /// What is planned for a step of an instance of this server.
    pub(super) fn promised_leg(&self, id: TaskId) -> Option<(&Schema, &State, &Leg)> {
        let (schema, state) = self.instances.state(id.instance)?;
        let deadline = state.deadline().filter(|_| state.started_elsewhere().is_none())?;
        let mut legs = deadline.legs.iter();
        let leg = legs.find(|leg| (leg.node, leg.round) == (NodeId(id.step), id.round))?;
        Some((schema, state, leg))
    }

    fn resolved_as_planned(&self, schema: &Schema, state: &State, leg: &Leg) -> Resolved {
        let org = self.catalog.organisation();
        let nobody = Rule::Any(Vec::new());
        let rule = schema.node(leg.node).who().unwrap_or(&nobody);
        org.resolve(rule, &AsPlanned { schema, state, leg })
    }
}

fn planned_for(leg: &Leg) -> Option<AgentId> {
    agent(&leg.planned.as_ref()?.by)
}

fn activity(schema: &Schema, leg: &Leg) -> Activity {
    let loops = schema.node(leg.node).loops.len();
    Activity { node: leg.node, iteration: Iteration::numbered(leg.round, loops) }
}

/// Times in their order; those between which there is no gap are one, as of whoever stands in for two people.
fn joined(mut times: Vec<Window>) -> Vec<Window> {
    times.sort_by_key(|time| (time.release, time.deadline));
    let mut joined: Vec<Window> = Vec::new();
    for time in times {
        match joined.last_mut().filter(|last| time.release <= last.deadline) {
            Some(last) => last.deadline = last.deadline.max(time.deadline),
            None => joined.push(time),
        }
    }
    joined
}

pub(super) fn stands_in(only: &Only) -> StandsIn {
    let Window { release, deadline } = only.within;
    StandsIn { who: performer(&only.who), from: release, to: deadline }
}

pub(super) fn only(stored: &StandsIn) -> Only {
    let within = Window { release: stored.from, deadline: stored.to };
    Only { who: resource(&stored.who), within }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_a_gap_between_them_are_one() {
        let window = |(from, to)| Window { release: Timestamp(from), deadline: Timestamp(to) };
        let check = |times: &[(i64, i64)], expected: &[(i64, i64)]| {
            let joined = joined(times.iter().copied().map(window).collect());
            assert_eq!(joined, expected.iter().copied().map(window).collect::<Vec<_>>());
        };
        check(&[(5, 8), (1, 3)], &[(1, 3), (5, 8)]);
        check(&[(1, 5), (5, 8), (9, 10)], &[(1, 8), (9, 10)]);
        check(&[(2, 3), (1, 6), (4, 8)], &[(1, 8)]);
    }
}
