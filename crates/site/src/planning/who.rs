//! Who could do a step, and when: those whom its rule names, and their substitutes.
//!
//! A substitute sees the item only while the other person is away, so their time counts only then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use legwork_engine::State;
use legwork_model::event::{ExecutorRegistered, Leg};
use legwork_model::id::{Activity, AgentId, InstanceId, Iteration, NodeId, ServerId};
use legwork_model::rule::Rule;
use legwork_model::schema::{Node, Schema};
use legwork_model::time::Timestamp;
use legwork_org::{Performers, Resolved};
use legwork_plan::{Candidate, Grant, ResourceId, TaskId, Window};
use legwork_schedule::{ExecutorId, KindId};

use super::admission::{Admission, Purpose, Wanted};
use super::cases::steps_of;
use super::resources::AHEAD;
use super::steps::stage_of;
use crate::Site;
use crate::cases::Cases;
use crate::cases::step::{History, agent};
use crate::catalog::Catalog;
use crate::executors::Executors;
use crate::message::Stage;

/// The most people, or executors, who are asked for their time for one step.
const WHO_MAX: usize = 256;

/// The most times for which somebody who stands in for others is asked for one step.
const TIMES_MAX: usize = 8;

pub(super) const WHY_NOT: &str = "who was to do it may not do it any more";

/// How long an executor that only fails is not asked for promises after it failed last.
const FAILING: Duration = Duration::from_mins(10);
/// So many of them are named.
const NAMED_MAX: usize = 5;

/// Who did what in a case, or is to do it by what is held so far.
struct Foreseen<'a> {
    schema: &'a Schema,
    state: Option<&'a State>,
    wanted: &'a [Wanted],
    held: &'a [(ServerId, Grant)],
    starter: Option<&'a AgentId>,
}

impl Performers for Foreseen<'_> {
    fn performer(&self, step: &str) -> Option<AgentId> {
        let node = self.schema.node_named(step)?.id;
        // In the latest round so far: steps stand in the order in which they are done.
        let own = self.wanted.iter().rev().filter(|wanted| wanted.node == node);
        let grant = |wanted: &Wanted| self.held.iter().find(|(_, it)| wanted.is(it.task));
        let mut held = own.filter_map(grant);
        match held.next().map(|(_, grant)| &grant.by) {
            Some(ResourceId::Person(agent)) => Some(agent.clone()),
            Some(ResourceId::Executor(_) | ResourceId::Workers(_)) => None,
            None => History { schema: self.schema, state: self.state }.performer(step),
        }
    }

    fn starter(&self) -> Option<AgentId> {
        let done = || History { schema: self.schema, state: self.state }.starter();
        self.starter.cloned().or_else(done)
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

impl Catalog {
    fn resolve_for(&self, rule: &Rule, who: &impl Performers) -> Resolved {
        self.organisation().resolve(rule, who)
    }

    /// Also substitutes from a moment on, for the time of their absence.
    fn with_stand_ins(
        &self,
        actors: Vec<AgentId>,
        step: &Resolved,
        release: Timestamp,
    ) -> Vec<Candidate> {
        let org = self.organisation();
        let mut times: BTreeMap<AgentId, Vec<Window>> = BTreeMap::new();
        for actor in &actors {
            let others = org.stand_ins_between(actor, step, release, release + AHEAD).into_iter();
            for other in others.filter(|other| actors.binary_search(&other.agent).is_err()) {
                let time = Window { release: other.from, due: other.to };
                times.entry(other.agent).or_default().push(time);
            }
        }
        let own = actors.into_iter().map(|it| Candidate::at_any_time(ResourceId::Person(it)));
        let others = times.into_iter().map(|(who, times)| {
            let within = joined(times).into_iter().take(TIMES_MAX).collect();
            Candidate { who: ResourceId::Person(who), within }
        });
        own.chain(others).collect()
    }
}

impl Executors {
    fn registered_for(&self, job: &str) -> impl Iterator<Item = (ExecutorId, &ExecutorRegistered)> {
        let registry = &self.registry;
        let doing = registry.offered(job).into_iter().flat_map(|kind| registry.offering(kind));
        doing.filter_map(|id| Some((*id, &**registry.get(*id)?)))
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
                "no executor is registered for jobs of type `{job}`, which `{step}` is, and no worker has asked for any here in the last ten minutes"
            ),
            false => format!(
                "of the executors for jobs of type `{job}`, which `{step}` is, all have failed of late: {}; each is asked again ten minutes after it failed last, or when it has done something; see `legwork executors`",
                named.join(", ")
            ),
        }
    }
}

impl Cases {
    /// What is planned for a step of an instance of this server.
    pub(super) fn promised_leg(&self, id: TaskId) -> Option<(&Schema, &State, &Leg)> {
        let (schema, state) = self.instances.state(id.instance)?;
        let deadline = state.deadline().filter(|_| state.started_elsewhere().is_none())?;
        let mut legs = deadline.legs.iter();
        let leg = legs.find(|leg| (leg.node, leg.round) == (NodeId(id.step), id.round))?;
        Some((schema, state, leg))
    }
}

impl Site {
    /// Those who could do a step of an admission, by the servers that plan for them.
    pub(super) fn candidates(
        &self,
        id: InstanceId,
        admission: &Admission,
        step: usize,
        release: Timestamp,
    ) -> Result<BTreeMap<ServerId, Vec<Candidate>>, String> {
        let Admission { schema, wanted, .. } = admission;
        let node = schema.node(wanted[step].node);
        let all = match (&admission.purpose, self.cases.instances.state(id)) {
            (Purpose::Running { .. }, Some((schema, state))) => {
                let round = wanted[step].iteration.number();
                let mut legs = state.deadline().into_iter().flat_map(|deadline| &deadline.legs);
                let leg = legs.find(|leg| (leg.node, leg.round) == (node.id, round));
                leg.map(|leg| {
                    let who = self.foreseen(admission, Some(state));
                    self.who_could(id, (schema, state), leg, &who, release)
                })
            }
            _ => match node.job() {
                Some(job) => Some(self.doing(job)),
                None => node.who().map(|rule| {
                    let resolved = self.catalog.resolve_for(rule, &self.foreseen(admission, None));
                    let actors = resolved.actors.iter().take(WHO_MAX).cloned().collect();
                    self.catalog.with_stand_ins(actors, &resolved, release)
                }),
            },
        };
        let all = all.unwrap_or_default();
        if all.is_empty() {
            return Err(self.executors.why_nobody(node));
        }
        let mut planners: BTreeMap<ServerId, Vec<Candidate>> = BTreeMap::new();
        for candidate in all {
            planners.entry(self.planner_of(&candidate.who)).or_default().push(candidate);
        }
        let servers: BTreeSet<ServerId> = planners.keys().copied().collect();
        if let Some(server) = self.unreached(&servers) {
            let step = &node.name;
            return Err(format!(
                "those who can do `{step}` are planned by {server}, which cannot be reached; try again later"
            ));
        }
        planners.retain(|server, _| !self.planning.reach.is_lost(*server));
        Ok(planners)
    }

    fn foreseen<'a>(&self, admission: &'a Admission, state: Option<&'a State>) -> Foreseen<'a> {
        Foreseen {
            schema: &admission.schema,
            state,
            wanted: &admission.wanted,
            // Of an offer the last steps are known first: who does those before them is not.
            held: if admission.search.is_accepting() { &[] } else { admission.search.held() },
            starter: admission.starter.as_ref(),
        }
    }

    /// Those who do jobs of a type: the executors that are registered for it, or, if there are none, the workers that ask for
    /// such jobs here.
    fn doing(&self, job: &Arc<str>) -> Vec<Candidate> {
        if self.executors.registered_for(job).next().is_some() {
            return self.executors_doing(job).map(Candidate::at_any_time).collect();
        }
        let is_seen = self.executors.recent_workers.count(job, self.clock.latest) > 0;
        let workers = is_seen.then(|| ResourceId::Workers(job.clone()));
        workers.map(Candidate::at_any_time).into_iter().collect()
    }

    /// The executors that are registered for a type of job, but for those of which nothing is expected just now.
    fn executors_doing(&self, job: &str) -> impl Iterator<Item = ResourceId> {
        let kind = self.executors.registry.offered(job);
        let doing = self
            .executors
            .registered_for(job)
            .filter(move |(id, _)| kind.is_none_or(|kind| !self.is_failing(*id, kind)));
        doing.map(|(_, one)| ResourceId::Executor(one.name.clone())).take(WHO_MAX)
    }

    fn is_failing(&self, executor: ExecutorId, kind: KindId) -> bool {
        let failed_at = self.executors.book.failed_at(executor, kind);
        failed_at.is_some_and(|at| self.clock.latest.since(at) < FAILING)
    }

    /// Those who could do a step of a running case, by the organisation and the executors of today; what somebody has claimed
    /// only they and their substitutes.
    fn who_could(
        &self,
        id: InstanceId,
        (schema, state): (&Schema, &State),
        leg: &Leg,
        who: &impl Performers,
        release: Timestamp,
    ) -> Vec<Candidate> {
        if let Some(job) = schema.node(leg.node).job() {
            let planned = leg.planned.as_ref().map(|planned| self.executors.resource(&planned.by));
            let is_begun = self.planning.stage_known(id, (schema, state), leg) == Stage::Begun;
            let is_there = |resource: &ResourceId| match resource {
                ResourceId::Executor(name) => self.executors.registry.named(name).is_some(),
                ResourceId::Person(_) | ResourceId::Workers(_) => true,
            };
            return match planned.filter(|planned| is_begun && is_there(planned)) {
                // An executor finishes what it has begun.
                Some(planned) => vec![Candidate::at_any_time(planned)],
                None => self.doing(job),
            };
        }
        let nobody = Rule::Any(Vec::new());
        let rule = schema.node(leg.node).who().unwrap_or(&nobody);
        let resolved = self.catalog.resolve_for(rule, who);
        let actors = match self.planning.holder(id, (schema, state), leg) {
            Some(holder) => vec![holder.clone()],
            None => resolved.actors.iter().take(WHO_MAX).cloned().collect(),
        };
        self.catalog.with_stand_ins(actors, &resolved, release)
    }

    /// Whether somebody is to do a step who could not do it any more.
    pub(super) fn is_in_vain(&self, id: TaskId) -> bool {
        let Some((schema, state, leg)) = self.cases.promised_leg(id) else { return false };
        let Some(planned) = &leg.planned else { return false };
        let by = self.executors.resource(&planned.by);
        // Its planner tells when no worker asks any more.
        if matches!(by, ResourceId::Workers(_)) {
            return false;
        }
        let who = AsPlanned { schema, state, leg };
        let all = self.who_could(id.instance, (schema, state), leg, &who, leg.release);
        let own = all.into_iter().find(|candidate| candidate.who == by);
        own.is_none_or(|own| {
            // A substitute has to be one then.
            let is_then = |it: &Window| it.release <= planned.start && planned.end <= it.due;
            !own.within.is_empty() && !own.within.iter().any(is_then)
        })
    }

    /// Whether a step is for an executor that is gone, or that only fails.
    pub(super) fn is_failed(&self, id: TaskId) -> bool {
        let planned = self.cases.promised_leg(id).and_then(|(_, _, leg)| leg.planned.as_ref());
        planned.is_some_and(|planned| planned.by.program().is_some()) && self.is_in_vain(id)
    }

    /// The organisation has changed: steps of cases for somebody who cannot do them any more.
    pub(super) fn steps_in_vain(&self) -> Vec<TaskId> {
        let open = self.planning.stages.iter().filter(|(_, told)| told.stage != Stage::Over);
        open.map(|(id, _)| *id).filter(|id| self.is_in_vain(*id)).collect()
    }

    /// Somebody has done a step of a case, perhaps not as planned: others may be barred from what follows than was foreseen.
    pub(super) fn follow_performer(&mut self, id: InstanceId, now: Timestamp) {
        let open = self.planning.stages.range(steps_of(id));
        let open = open.filter(|(_, told)| told.stage != Stage::Over).map(|(id, _)| *id);
        let in_vain: Vec<TaskId> = open.filter(|task| self.is_in_vain(*task)).collect();
        for task in in_vain {
            let is_fault = self.is_failed(task);
            self.replan_step(task, WHY_NOT, is_fault, now);
        }
    }
}

fn planned_for(leg: &Leg) -> Option<AgentId> {
    agent(&leg.planned.as_ref()?.by)
}

fn activity(schema: &Schema, leg: &Leg) -> Activity {
    let loops = schema.node(leg.node).loops.len();
    Activity { node: leg.node, iteration: Iteration::numbered(leg.round, loops) }
}

/// Times in their order; those between which there is no gap are one, as of a substitute of two people.
fn joined(mut times: Vec<Window>) -> Vec<Window> {
    times.sort_by_key(|time| (time.release, time.due));
    let mut joined: Vec<Window> = Vec::new();
    for time in times {
        match joined.last_mut().filter(|last| time.release <= last.due) {
            Some(last) => last.due = last.due.max(time.due),
            None => joined.push(time),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_a_gap_between_them_are_one() {
        let window = |(from, to)| Window { release: Timestamp(from), due: Timestamp(to) };
        let check = |times: &[(i64, i64)], expected: &[(i64, i64)]| {
            let joined = joined(times.iter().copied().map(window).collect());
            assert_eq!(joined, expected.iter().copied().map(window).collect::<Vec<_>>());
        };
        check(&[(5, 8), (1, 3)], &[(1, 3), (5, 8)]);
        check(&[(1, 5), (5, 8), (9, 10)], &[(1, 8), (9, 10)]);
        check(&[(2, 3), (1, 6), (4, 8)], &[(1, 8)]);
    }
}
