//! Candidates for a step, and when: the agents its rule names, and their substitutes.
//!
//! A substitute sees the item only during the other person's absence, so their time counts only then.

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

/// The most people, or executors, that are asked about one step.
const WHO_MAX: usize = 256;

/// The most absences for which a substitute is asked about one step.
const TIMES_MAX: usize = 8;

pub(super) const WHY_LACKING: &str = "the planned performer may not do the step any more";

/// How long a failing executor is not asked for promises after its last failure.
const FAILING: Duration = Duration::from_mins(10);
/// How many of them are named.
const NAMED_MAX: usize = 5;

/// Performers of a case: done, or held so far.
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
        // In the latest round so far: steps are in the order in which they are done.
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

/// Performers of an instance: done, or planned.
struct AsPlanned<'a> {
    schema: &'a Schema,
    state: &'a State,
    /// The leg in question: plans of later rounds do not count for it.
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
            // Another person may have done an earlier round.
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

    /// Adds substitutes from a moment on, for the time of the absence.
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

    /// Why no performer can promise a step.
    pub(super) fn why_no_candidate(&self, node: &Node) -> String {
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
    /// The leg of a step of an instance that was started here.
    pub(super) fn promised_leg(&self, id: TaskId) -> Option<(&Schema, &State, &Leg)> {
        let (schema, state) = self.instances.state(id.instance)?;
        let deadline = state.deadline().filter(|_| state.started_elsewhere().is_none())?;
        let mut legs = deadline.legs.iter();
        let leg = legs.find(|leg| (leg.node, leg.round) == (NodeId(id.step), id.round))?;
        Some((schema, state, leg))
    }
}

impl Site {
    /// The candidates for a step of an admission, by their planners.
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
                    self.candidates_for(id, (schema, state), leg, &who, release)
                })
            }
            _ => match node.job() {
                Some(job) => Some(self.candidates_for_job(job)),
                None => node.who().map(|rule| {
                    let resolved = self.catalog.resolve_for(rule, &self.foreseen(admission, None));
                    let actors = resolved.actors.iter().take(WHO_MAX).cloned().collect();
                    self.catalog.with_stand_ins(actors, &resolved, release)
                }),
            },
        };
        let all = all.unwrap_or_default();
        if all.is_empty() {
            return Err(self.executors.why_no_candidate(node));
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
        planners.retain(|server, _| !self.planning.reach.is_presumed_dead(*server));
        Ok(planners)
    }

    fn foreseen<'a>(&self, admission: &'a Admission, state: Option<&'a State>) -> Foreseen<'a> {
        Foreseen {
            schema: &admission.schema,
            state,
            wanted: &admission.wanted,
            // Accepting an offer the last steps are found first, so the performers of earlier ones are not known.
            held: if admission.search.is_accepting() { &[] } else { admission.search.held() },
            starter: admission.starter.as_ref(),
        }
    }

    /// The candidates for a type of jobs: the registered executors or, if there are none, the workers that ask here.
    fn candidates_for_job(&self, job: &Arc<str>) -> Vec<Candidate> {
        if self.executors.registered_for(job).next().is_some() {
            return self.executors_doing(job).map(Candidate::at_any_time).collect();
        }
        let is_seen = self.executors.recent_workers.count(job, self.clock.latest) > 0;
        let workers = is_seen.then(|| ResourceId::Workers(job.clone()));
        workers.map(Candidate::at_any_time).into_iter().collect()
    }

    /// The executors registered for a type of jobs, except failing ones.
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

    /// The candidates for a step of a running case, by the present organisation and executors; for a claimed step only
    /// its holder and their substitutes.
    fn candidates_for(
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
                None => self.candidates_for_job(job),
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

    /// Whether the planned performer of a step cannot do it any more.
    pub(super) fn lacks_performer(&self, id: TaskId) -> bool {
        let Some((schema, state, leg)) = self.cases.promised_leg(id) else { return false };
        let Some(planned) = &leg.planned else { return false };
        let by = self.executors.resource(&planned.by);
        // Its planner notifies when no worker asks any more.
        if matches!(by, ResourceId::Workers(_)) {
            return false;
        }
        let who = AsPlanned { schema, state, leg };
        let all = self.candidates_for(id.instance, (schema, state), leg, &who, leg.release);
        let own = all.into_iter().find(|candidate| candidate.who == by);
        own.is_none_or(|own| {
            // A substitute has to be one at that time.
            let is_then = |it: &Window| it.release <= planned.start && planned.end <= it.due;
            !own.within.is_empty() && !own.within.iter().any(is_then)
        })
    }

    /// Whether a step is planned for an executor that is gone or failing.
    pub(super) fn is_failed(&self, id: TaskId) -> bool {
        let planned = self.cases.promised_leg(id).and_then(|(_, _, leg)| leg.planned.as_ref());
        planned.is_some_and(|planned| planned.by.program().is_some()) && self.lacks_performer(id)
    }

    /// The organisation has changed: steps whose planned performers cannot do them any more.
    pub(super) fn steps_lacking_performer(&self) -> Vec<TaskId> {
        let open =
            self.planning.stages.iter().filter(|(_, reported)| reported.stage != Stage::Over);
        open.map(|(id, _)| *id).filter(|id| self.lacks_performer(*id)).collect()
    }

    /// A step of a case was done, perhaps not as planned, so that other performers than foreseen may be barred from
    /// later steps.
    pub(super) fn follow_performer(&mut self, id: InstanceId, now: Timestamp) {
        let open = self.planning.stages.range(steps_of(id));
        let open = open.filter(|(_, reported)| reported.stage != Stage::Over).map(|(id, _)| *id);
        let lacking: Vec<TaskId> = open.filter(|task| self.lacks_performer(*task)).collect();
        for task in lacking {
            let is_fault = self.is_failed(task);
            self.replan_step(task, WHY_LACKING, is_fault, now);
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

/// The union of intervals in order, as for a substitute of two people.
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
