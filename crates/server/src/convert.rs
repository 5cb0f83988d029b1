//! Converts answers of a site to wire types.
//!
//! Invariant: a translation and nothing else; the types of the site and those of the wire may
//! change independently.

use std::sync::Arc;
use std::time::Duration;

use legwork_api::deadlines::{
    Deadline, DeadlineStep, Passed, Plan, PlanKind, Revoked, Turn, TurnKind,
};
use legwork_api::definitions::{Agent, DefinitionSummary, Finding, VersionSummary};
use legwork_api::executors::{ExecutorCondition, ExecutorState, ExecutorTypeState, Regularly};
use legwork_api::instances::{
    Branch, Element, Elsewhere, Failure, History, HistoryEntry, Incident, IncidentList, Instance,
    InstanceList, InstanceState, InstanceSummary, Node, NodeState, Performer, Started,
};
use legwork_api::jobs::{Job, JobList, JobResult, JobResults};
use legwork_api::schedules::{LastStart, Schedule, Within};
use legwork_api::tokens::TokenSummary;
use legwork_api::work::{AnswerOption, Item, ItemDetail, Output, Unreachable, Worklist};
use legwork_api::{Data, Problem};
use legwork_model::event;
use legwork_model::finding;
use legwork_model::id::InstanceId;
use legwork_model::schema;
use legwork_model::time::format_duration;
use legwork_model::value::Value;
use legwork_site::{self as site, Lifecycle, Refusal, StepState};

use crate::http::reply::problem;

pub(crate) fn findings(found: &[finding::Finding]) -> Vec<Finding> {
    found.iter().map(Into::into).collect()
}

pub(crate) fn definition_summary(info: site::DefinitionInfo) -> DefinitionSummary {
    let site::DefinitionInfo { process, version, title, deployed_at } = info;
    DefinitionSummary { process, version, title, deployed_at }
}

pub(crate) fn version(info: site::VersionInfo) -> VersionSummary {
    VersionSummary { version: info.version, published_at: info.at }
}

pub(crate) fn agents(agents: Vec<site::AgentInfo>) -> Vec<Agent> {
    agents.into_iter().map(|info| Agent { agent: info.agent.0, name: info.name }).collect()
}

pub(crate) fn started(info: site::InstanceInfo, repeated: bool) -> Started {
    let state = state(info.lifecycle);
    let result = result(&info);
    let site::InstanceInfo { instance, process, version, deadline, .. } = info;
    let deadline = deadline.map(self::deadline);
    Started { instance, process, version, state, result, repeated, deadline }
}

pub(crate) fn deadline(view: site::DeadlineView) -> Deadline {
    let revoked = view.revoked.map(|it| {
        let site::Revoked { at, step, reason } = it;
        Revoked { at, step, reason }
    });
    let best_effort = view.promised && view.legs.iter().any(|leg| leg.is_best_effort);
    let steps = view.legs.into_iter().map(|leg| DeadlineStep {
        step: leg.step,
        iteration: leg.iteration.0,
        given_back: leg.is_given_back,
        by: leg.by.map(performer),
        best_effort: leg.is_best_effort,
        start: leg.start,
        end: leg.end,
        due: leg.due,
    });
    let passed = view.passed.map(|it| Passed { at: it.at, extended: it.extended });
    Deadline {
        at: view.at,
        promised: view.promised,
        best_effort,
        passed,
        in_danger_from: view.danger,
        revoked,
        steps: steps.collect(),
    }
}

pub(crate) fn schedule(info: site::ScheduleInfo) -> Schedule {
    let (cron, zone, every_ms) = match info.period {
        event::Period::Cron { text, zone } => (Some(text), Some(zone), None),
        event::Period::Every { ms } => (None, None, Some(ms)),
    };
    let deadline =
        info.within.map(|event::Within { ms, priority }| Within { within_ms: ms, priority });
    let last = info.last.map(|(at, outcome)| {
        let none = LastStart { at, instance: None, promised: None, code: None, detail: None };
        match outcome {
            event::Fired::Started { instance, promised } => {
                LastStart { instance: Some(instance), promised, ..none }
            }
            event::Fired::Missed { reason } => {
                LastStart { code: Some("missed".to_owned()), detail: Some(reason), ..none }
            }
            event::Fired::Refused { code, message } => {
                LastStart { code: Some(code), detail: Some(message), ..none }
            }
        }
    });
    Schedule {
        name: info.name,
        process: info.process,
        cron,
        zone,
        every_ms,
        data: info.data,
        agent: info.agent.map(|agent| agent.0),
        deadline,
        paused: info.is_paused,
        by: performer(info.by),
        put_at: info.put_at,
        next_at: info.next,
        last,
    }
}

pub(crate) fn plan(view: site::PlanView) -> Plan {
    let (kind, name) = match view.by {
        event::Performer::Agent(agent) => (PlanKind::Person, agent.0),
        event::Performer::Worker(name) | event::Performer::Executor(name) => {
            (PlanKind::Executor, name)
        }
        event::Performer::System => (PlanKind::Executor, "".into()),
    };
    let turns = view.turns.into_iter().map(|turn| {
        let site::PlannedTurn {
            lane,
            from,
            to,
            instance,
            step,
            iteration,
            due,
            is_regular,
            is_firm,
        } = turn;
        // An offer has no case yet.
        let known = instance.filter(|_| is_firm);
        let what = match instance {
            Some(_) if is_firm => TurnKind::Promised,
            Some(_) => TurnKind::Offered,
            None if is_regular => TurnKind::Regular,
            None => TurnKind::Other,
        };
        Turn { what, lane, from, to, instance: known, step, iteration: iteration.0, due }
    });
    Plan { name, kind, at: view.at, turns: turns.collect() }
}

pub(crate) fn instance_list(
    instances: Vec<site::InstanceInfo>,
    next: Option<InstanceId>,
) -> InstanceList {
    let next = next.map(|next| next.to_string());
    let instances = instances.into_iter().map(summary).collect();
    InstanceList { instances, next, unreachable: Vec::new() }
}

pub(crate) fn instance(view: site::InstanceView) -> Instance {
    let result = result(&view.info);
    Instance {
        summary: summary(view.info),
        title: view.title,
        started_by: performer(view.started_by),
        result,
        data: view.data.into_iter().map(element).collect(),
        nodes: view.nodes.into_iter().map(node).collect(),
        elsewhere: view.elsewhere.into_iter().map(elsewhere).collect(),
        unreachable: Vec::new(),
    }
}

fn elsewhere(view: site::ElsewhereView) -> Elsewhere {
    Elsewhere { server: view.server, waiting: view.waiting }
}

fn summary(info: site::InstanceInfo) -> InstanceSummary {
    InstanceSummary {
        instance: info.instance,
        process: info.process,
        version: info.version,
        state: state(info.lifecycle),
        incidents: info.incidents,
        started_at: info.started_at,
        ended_at: info.ended_at,
        deadline: info.deadline.map(deadline),
    }
}

fn state(lifecycle: Lifecycle) -> InstanceState {
    match lifecycle {
        Lifecycle::Running => InstanceState::Running,
        Lifecycle::Suspended => InstanceState::Suspended,
        Lifecycle::Completed => InstanceState::Completed,
        Lifecycle::Aborted => InstanceState::Aborted,
    }
}

fn result(info: &site::InstanceInfo) -> Option<Data> {
    info.ended_at.map(|_| data(&info.result))
}

fn element(view: site::DataView) -> Element {
    Element {
        element: view.element,
        kind: view.kind.name().to_owned(),
        value: view.value.as_ref().map(Value::to_json),
        versions: view.versions,
    }
}

fn branch(schema::Branch { name, title }: schema::Branch) -> Branch {
    Branch { name, title }
}

fn node(view: site::NodeView) -> Node {
    let (kind, message) = view.incident.unzip();
    Node {
        name: view.name,
        title: view.title,
        kind: view.kind.to_owned(),
        depth: view.depth,
        branch: view.branch,
        branches: view.branches.into_iter().map(branch).collect(),
        state: match view.state {
            StepState::NotActivated => NodeState::NotActivated,
            StepState::Activated => NodeState::Activated,
            StepState::Selected => NodeState::Claimed,
            StepState::Answered => NodeState::Answered,
            StepState::Running => NodeState::Running,
            StepState::Completed => NodeState::Completed,
            StepState::Skipped => NodeState::Skipped,
            StepState::Failed => NodeState::Failed,
        },
        activity: view.activity,
        holder: view.holder.map(|holder| holder.0),
        performer: view.performer.map(performer),
        attempts: view.attempts,
        retry_at: view.retry_at,
        incident: message,
        incident_kind: kind.map(str::to_owned),
        failures: failures(view.failures),
        server: view.server,
    }
}

fn failures(failures: Vec<site::Failure>) -> Vec<Failure> {
    let told = failures.into_iter().map(|failure| Failure {
        at: failure.at,
        by: performer(failure.by),
        error: failure.error,
    });
    told.collect()
}

fn performer(performer: event::Performer) -> Performer {
    match performer {
        event::Performer::System => Performer::System,
        event::Performer::Agent(agent) => Performer::Agent(agent.0),
        event::Performer::Worker(worker) => Performer::Worker(worker),
        event::Performer::Executor(executor) => Performer::Executor(executor),
    }
}

pub(crate) fn history(entries: Vec<site::HistoryEntry>, next: Option<u64>) -> History {
    let entries = entries.into_iter().map(|entry| HistoryEntry {
        record: entry.record,
        at: entry.at,
        kind: entry.kind.to_owned(),
        step: entry.step,
        iteration: entry.iteration,
        by: performer(entry.by),
        started_at: entry.started_at,
        writes: data(&entry.writes),
        detail: entry.detail,
        channel: entry.channel.map(|channel| channel.name()),
        server: entry.server,
        from: entry.from,
        to: entry.to,
        number: entry.number,
    });
    let next = next.map(|record| record.to_string());
    History { entries: entries.collect(), next, unreachable: Vec::new() }
}

pub(crate) fn incident_list(incidents: Vec<site::IncidentView>, more: bool) -> IncidentList {
    let next = incidents.last().filter(|_| more).map(|last| last.activity.instance.to_string());
    let incidents = incidents.into_iter().map(|view| Incident {
        activity: view.activity,
        process: view.process,
        kind: view.kind.to_owned(),
        message: view.message,
        at: view.at,
        failures: failures(view.failures),
    });
    IncidentList { incidents: incidents.collect(), next, unreachable: Vec::new() }
}

pub(crate) fn worklist(view: site::WorklistView) -> Worklist {
    let site::WorklistView { cursor, reset, items, removed, more, unreachable } = view;
    let items = items.into_iter().map(item).collect();
    let unreachable = unreachable
        .into_iter()
        .map(|site::Unreachable { server, since }| Unreachable { server, since });
    Worklist { cursor, reset, items, removed, more, unreachable: unreachable.collect() }
}

fn item(info: site::ItemInfo) -> Item {
    Item {
        activity: info.activity,
        process: info.process,
        title: info.title,
        offered_at: info.offered_at,
        claimed_by: info.claimed_by.map(|agent| agent.0),
        takes_ms: info.takes.map(millis),
        due: info.due,
        planned_for: info.planned_for.map(|agent| agent.0),
        on_behalf_of: info.on_behalf_of.map(|agent| agent.0),
        server: info.server,
        stale: info.stale,
    }
}

pub(crate) fn item_detail(detail: site::ItemDetail) -> ItemDetail {
    let outputs = detail.outputs.into_iter().map(|output| Output {
        element: output.element,
        kind: output.kind.name().to_owned(),
        optional: output.optional,
        title: output.title,
    });
    let answers = detail.answers.into_iter().map(|(answer, title)| AnswerOption { answer, title });
    ItemDetail {
        item: item(detail.info),
        inputs: data(&detail.inputs),
        outputs: outputs.collect(),
        answers: answers.collect(),
    }
}

pub(crate) fn jobs(jobs: Vec<site::Job>) -> JobList {
    let jobs = jobs.into_iter().map(|job| Job {
        data: data(&job.inputs),
        job: job.activity,
        kind: job.job,
        process: job.process,
        lease: job.lease,
        expires_at: job.expires_at,
        attempt: job.attempt,
    });
    JobList { jobs: jobs.collect() }
}

pub(crate) fn job_results(results: Vec<Result<(), Refusal>>) -> JobResults {
    let results = results.into_iter().map(|result| {
        let result: Result<(), Problem> = result.map_err(|refusal| *problem(&refusal));
        JobResult::from(result)
    });
    JobResults { results: results.collect() }
}

pub(crate) fn token(info: site::TokenInfo) -> TokenSummary {
    let scopes = info.scopes.iter().map(ToString::to_string).collect();
    TokenSummary { name: info.name, scopes, issued_at: info.issued_at }
}

pub(crate) fn data(values: &[(Arc<str>, Value)]) -> Data {
    values.iter().map(|(name, value)| (name.to_string(), value.to_json())).collect()
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

fn regularly(work: &event::RegularWork) -> Regularly {
    let length = |ms: u64| format_duration(Duration::from_millis(ms));
    Regularly { every: length(work.every_ms), takes: length(work.takes_ms) }
}

pub(crate) fn executor(info: &site::ExecutorInfo) -> ExecutorState {
    let one = info.registered.as_deref();
    let condition = match (info.is_silent, info.resting_until) {
        (true, _) => ExecutorCondition::Suspected,
        (false, Some(_)) => ExecutorCondition::Resting,
        (false, None) => ExecutorCondition::Ready,
    };
    let types = info.types.iter().map(|of_type| ExecutorTypeState {
        kind: of_type.job.to_string(),
        limit: of_type.limit,
        outstanding: of_type.outstanding,
        pace_ms: of_type.pace_ms,
        answers: of_type.answers,
        timeouts: of_type.timeouts,
        failures: of_type.failures,
        failing: of_type.is_failing,
    });
    ExecutorState {
        name: info.name.to_string(),
        polls: one.is_none(),
        url: one.map(|one| one.url.to_string()),
        domain: one.and_then(|one| one.domain.clone()),
        limit: one.map(|one| one.limit),
        at_once: one.and_then(|one| one.at_once),
        rate: one.and_then(|one| one.rate).map(|rate| rate.to_string()),
        weight: one.and_then(|one| one.weight),
        regularly: one.map_or_else(Vec::new, |one| one.regularly.iter().map(regularly).collect()),
        reserve: one.and_then(|one| one.reserve),
        verdicts: one.is_some_and(|one| one.verdicts),
        condition,
        unconfirmed: info.unconfirmed,
        types: types.collect(),
    }
}
