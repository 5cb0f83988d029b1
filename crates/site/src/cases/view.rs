//! Views of instances: the tree with its states, the history, the incidents.

use std::sync::Arc;

use legwork_engine::{NodeState, Peer, Rejection, State};
use legwork_model::event::{
    Completed, Event, Incident, Orders, Parcel, Performer, Planned, Received, Record, Replanned,
};
use legwork_model::id::{
    Activity, ActivityId, DomainId, ElementId, InstanceId, Iteration, ServerId,
};
use legwork_model::schema::{Node, NodeKind, Schema};
use legwork_model::time::Timestamp;
use legwork_model::value::Value;

use crate::answer::{
    Answer, DataView, ElsewhereView, HistoryEntry, IncidentView, InstanceInfo, InstanceView,
    NodeView, StepState,
};
use crate::cases::Page;
use crate::cases::step::{broken, no_instance};
use crate::catalog::Catalog;
use crate::cluster::seat::Seat;
use crate::planning::{describe_deadline, is_by_workers};
use crate::refusal::Refusal;

/// The most bytes of records on a page of a history, unless a single record has more.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// The whole instance, as far as known here.
pub(crate) fn instance(
    seat: Option<&Seat>,
    schema: &Schema,
    state: &State,
    info: InstanceInfo,
) -> InstanceView {
    let data = (0..schema.elements.len() as u32)
        .map(|number| {
            let element = schema.element(ElementId(number));
            let (versions, value) = state.written(ElementId(number));
            DataView {
                element: element.name.clone(),
                kind: element.kind,
                value: value.cloned(),
                versions: versions as u32,
            }
        })
        .collect();
    let id = info.instance;
    let mut depth = 0;
    let mut nodes = Vec::new();
    for node in &schema.nodes {
        match &node.kind {
            NodeKind::AndJoin | NodeKind::XorJoin | NodeKind::LoopEnd { .. } => depth -= 1,
            NodeKind::Start | NodeKind::End | NodeKind::Locate => {}
            NodeKind::Manual { .. } | NodeKind::Automatic { .. } => {
                nodes.push(node_view(seat, schema, state, id, (node, node), depth));
            }
            NodeKind::AndSplit { .. } | NodeKind::XorSplit { .. } => {
                nodes.push(node_view(seat, schema, state, id, (node, node), depth));
                depth += 1;
            }
            NodeKind::LoopStart => {
                let end = node.partner.map_or(node, |end| schema.node(end));
                nodes.push(node_view(seat, schema, state, id, (node, end), depth));
                depth += 1;
            }
        }
    }
    InstanceView {
        title: schema.title.clone(),
        started_by: state.starter().clone(),
        data,
        nodes,
        elsewhere: seat.map(|seat| elsewhere(seat, state)).unwrap_or_default(),
        info,
    }
}

/// The servers control was handed over to or received from, and the number of transfers in progress.
fn elsewhere(seat: &Seat, state: &State) -> Vec<ElsewhereView> {
    let view = |peer: &Peer| {
        let server = seat.topology.server(peer.server)?.name.clone();
        Some(ElsewhereView { server, waiting: peer.waiting.len() })
    };
    state.peers().iter().filter_map(view).collect()
}

/// One line of the tree: `entry` is the first node of the block, `node` the one with the decision.
fn node_view(
    seat: Option<&Seat>,
    schema: &Schema,
    state: &State,
    instance: InstanceId,
    (entry, node): (&Node, &Node),
    depth: u32,
) -> NodeView {
    let activity = state.activity(schema, node.id);
    let open = state.open_at(schema, node.id);
    let (open, answered) = (open.as_ref(), state.answer(node.id));
    NodeView {
        name: node.name.clone(),
        title: node.title.clone(),
        kind: kind(node),
        depth,
        branch: branch(schema, entry),
        branches: entry.branches().to_vec(),
        state: step_state(state, entry, node),
        activity: activity_id(schema, instance, &activity),
        holder: open.and_then(|open| open.claimed_by).cloned(),
        performer: answered.map(|answer| &answer.by).or(state.performer(node.id)).cloned(),
        attempts: open.map_or(0, |open| open.attempts),
        retry_at: open.and_then(|open| open.retry_at),
        incident: open.and_then(|open| open.incident).map(incident),
        failures: open.map_or(&[][..], |open| open.failures).to_vec(),
        server: seat.and_then(|seat| seat.at(instance).controller(schema, state, node.id)),
    }
}

/// The state of a step is its own. A block is running from its first node to its last, unless it is itself the pending
/// decision.
fn step_state(state: &State, entry: &Node, node: &Node) -> StepState {
    let own = match state.answer(node.id) {
        Some(_) => StepState::Answered,
        None => StepState::from(state.node_state(node.id)),
    };
    let Some(exit) = entry.partner else { return own };
    if state.node_state(node.id).is_pending() {
        return own;
    }
    let (began, ended) = (state.node_state(entry.id), state.node_state(exit));
    if matches!(ended, NodeState::Completed | NodeState::Skipped) {
        return ended.into();
    }
    if began == NodeState::Completed { StepState::Running } else { began.into() }
}

fn branch(schema: &Schema, node: &Node) -> Option<Arc<str>> {
    let before = schema.node(node.incoming.first()?.from);
    // A node that finds the place of the first step begins the branch.
    if let NodeKind::Locate = before.kind {
        return branch(schema, before);
    }
    let place = before.outgoing.iter().position(|to| *to == node.id)?;
    before.branches().get(place).map(|branch| branch.name.clone())
}

fn kind(node: &Node) -> &'static str {
    match node.kind {
        NodeKind::Start => "start",
        NodeKind::End => "end",
        NodeKind::Manual { .. } => "manual",
        NodeKind::Automatic { .. } | NodeKind::Locate => "automatic",
        NodeKind::AndSplit { .. } | NodeKind::AndJoin => "parallel",
        NodeKind::XorSplit { .. } | NodeKind::XorJoin => "choice",
        NodeKind::LoopStart | NodeKind::LoopEnd { .. } => "loop",
    }
}

pub(crate) fn activity_id(
    schema: &Schema,
    instance: InstanceId,
    activity: &Activity,
) -> ActivityId {
    let step = schema.node(activity.node).name.clone();
    ActivityId { instance, step, iteration: activity.iteration.clone() }
}

/// Values with the names of their elements.
pub(crate) fn named<'a>(
    schema: &Schema,
    values: impl IntoIterator<Item = (ElementId, &'a Value)>,
) -> Vec<(Arc<str>, Value)> {
    values
        .into_iter()
        .map(|(element, value)| (schema.element(element).name.clone(), value.clone()))
        .collect()
}

/// The answers at a decision, with their titles.
pub(crate) fn answers(node: &Node) -> Vec<(Arc<str>, Arc<str>)> {
    if let NodeKind::XorSplit { branches, .. } = &node.kind {
        return branches.iter().map(|branch| (branch.name.clone(), branch.title.clone())).collect();
    }
    let answers = node.answers().into_iter();
    answers.map(|answer| (Arc::from(answer), Arc::from(answer))).collect()
}

/// The selection code of an answer.
pub(crate) fn code_of(node: &Node, answer: &str) -> Result<u32, Refusal> {
    let (step, answers) = (node.name.to_string(), node.answers());
    if let Some(code) = answers.iter().position(|known| *known == answer) {
        return Ok(code as u32);
    }
    Err(Refusal::from(&if answers.is_empty() {
        Rejection::AnswerUnexpected { step }
    } else {
        let answers = answers.into_iter().map(str::to_owned).collect();
        Rejection::AnswerUnknown { step, answers }
    }))
}

pub(crate) fn incidents(schema: &Schema, state: &State, instance: InstanceId) -> Vec<IncidentView> {
    state
        .open(schema)
        .filter_map(|open| {
            let (kind, message) = incident(open.incident?);
            Some(IncidentView {
                activity: activity_id(schema, instance, &open.activity),
                process: schema.process.clone(),
                kind,
                message,
                at: open.since,
                failures: open.failures.to_vec(),
            })
        })
        .collect()
}

/// The stable code of an incident, and its description.
pub(crate) fn incident(incident: &Incident) -> (&'static str, String) {
    match incident {
        Incident::NobodyCanDoIt { rule } => {
            ("nobody_can_do_it", format!("nobody in the organisation fits the rule `{rule}`"))
        }
        Incident::NoBranchMatches { values } => {
            ("no_branch_matches", format!("no branch's condition is true for {values}"))
        }
        Incident::SeveralBranchesMatch { branches } => (
            "several_branches_match",
            format!("the conditions of several branches are true: {}", branches.join(", ")),
        ),
        Incident::ConditionFailed { condition, error } => {
            ("condition_failed", format!("the condition `{condition}` fails: {error}"))
        }
        Incident::RetriesExhausted { attempts, error } => {
            ("retries_exhausted", format!("failed {attempts} times, at last with: {error}"))
        }
        Incident::TooManyIterations { limit } => (
            "too_many_iterations",
            format!("the loop was repeated {limit} times, the most allowed"),
        ),
    }
}

/// A page of the execution history, from stored records.
pub(crate) fn history(
    catalog: &Catalog,
    instance: InstanceId,
    first: Option<&[u8]>,
    records: &[Vec<u8>],
    page: Page,
    seat: Option<&Seat>,
) -> Result<Answer, Refusal> {
    let names = Names(seat);
    let read = |bytes: &[u8]| {
        Record::<Event>::from_bytes(bytes).map_err(|error| broken(instance, &error.to_string()))
    };
    let first = read(first.ok_or_else(|| no_instance(instance))?)?;
    let Some(created) = first.events.first().and_then(Event::beginning) else {
        return Err(broken(instance, "its history does not begin with its start"));
    };
    let deployed = catalog
        .find(&created.process, Some(created.version))
        .ok_or_else(|| broken(instance, "its definition is not known here"))?;
    let schema = deployed.schema().map_err(|reason| broken(instance, reason))?;
    let (mut entries, mut next, mut bytes_read) = (Vec::new(), page.from, 0);
    for bytes in records.iter().take(page.limit) {
        bytes_read += bytes.len();
        if bytes_read > PAGE_BYTES_MAX && next > page.from {
            break;
        }
        let (record, number) = (read(bytes)?, next);
        next += 1;
        for event in &record.events {
            if let Event::Received(received) = event {
                let brought = received.entries.iter();
                entries.extend(brought.map(|brought| HistoryEntry {
                    record: number,
                    server: Some(names.server(brought.server)),
                    ..entry(schema, names, &brought.event, brought.at)
                }));
            }
            let entry = entry(schema, names, event, record.at);
            let server = seat.map(|seat| names.server(seat.here));
            entries.push(HistoryEntry { record: number, server, ..entry });
        }
    }
    let next = Some(next).filter(|next| next - page.from < records.len() as u64);
    Ok(Answer::History { entries, next })
}

/// Names of servers and domains, as far as known here.
#[derive(Clone, Copy)]
struct Names<'t>(Option<&'t Seat>);

impl Names<'_> {
    fn server(self, id: ServerId) -> Arc<str> {
        let server = self.0.and_then(|seat| seat.topology.server(id));
        server.map_or_else(|| format!("server {}", id.0).into(), |server| server.name.clone())
    }

    fn domain(self, id: DomainId) -> String {
        let domain = self.0.and_then(|seat| seat.topology.domain(id));
        domain.map_or_else(|| format!("domain {}", id.0), |domain| domain.name.to_string())
    }
}

/// An entry with only the event and its activity.
fn blank(
    schema: &Schema,
    at: Timestamp,
    kind: &'static str,
    activity: Option<&Activity>,
    by: &Performer,
) -> HistoryEntry {
    HistoryEntry {
        record: 0,
        at,
        kind,
        step: activity.map(|activity| schema.known_as(activity.node).name.clone()),
        iteration: activity.map(|activity| activity.iteration.0.clone()).unwrap_or_default(),
        by: by.clone(),
        started_at: None,
        writes: Vec::new(),
        detail: None,
        channel: None,
        server: None,
        from: None,
        to: None,
        number: None,
    }
}

fn entry(schema: &Schema, names: Names<'_>, event: &Event, at: Timestamp) -> HistoryEntry {
    let blank =
        |kind, activity: Option<&Activity>, by: &Performer| blank(schema, at, kind, activity, by);
    let agent = |agent: &legwork_model::id::AgentId| Performer::Agent(agent.clone());
    let system = Performer::System;
    let writes = |writes: &[(ElementId, Value)]| {
        named(schema, writes.iter().map(|(element, value)| (*element, value)))
    };
    match event {
        Event::Created(created) => {
            HistoryEntry { writes: writes(&created.inputs), ..blank("created", None, &created.by) }
        }
        Event::Claimed { activity, by } => blank("claimed", Some(activity), &agent(by)),
        Event::Released { activity, by } => blank("released", Some(activity), &agent(by)),
        Event::Delegated { activity, by, to } => HistoryEntry {
            detail: Some(format!("to {to}")),
            ..blank("delegated", Some(activity), &agent(by))
        },
        Event::Completed(done) => completed(schema, names, done, at),
        Event::Answered(done) => HistoryEntry {
            started_at: Some(done.started_at),
            writes: writes(&done.writes),
            ..blank("answered", Some(&done.activity), &done.by)
        },
        Event::Assigned(to) => {
            let detail = Some(format!("to {}; {}", to.to, to.why));
            HistoryEntry { detail, ..blank("assigned", Some(&to.activity), &system) }
        }
        Event::Replanned(plan) => replanned(schema, plan, at),
        Event::DeadlinePassed { at: due, then } => HistoryEntry {
            detail: Some(describe_deadline(*due, *then)),
            ..blank("deadline_passed", None, &system)
        },
        Event::Decided { activity, code } => HistoryEntry {
            detail: Some(answer_of(schema, activity, *code)),
            ..blank("decided", Some(activity), &system)
        },
        Event::Failed { activity, by, error, retry_at } => HistoryEntry {
            detail: Some(failure(error, *retry_at)),
            ..blank("failed", Some(activity), by)
        },
        Event::IncidentRaised { activity, incident: raised } => HistoryEntry {
            detail: Some(incident(raised).1),
            ..blank("incident_raised", Some(activity), &system)
        },
        Event::IncidentResolved { activity, by } => blank("incident_resolved", Some(activity), by),
        Event::Suspended { by, reason } => {
            HistoryEntry { detail: reason.clone(), ..blank("suspended", None, by) }
        }
        Event::Resumed { by, reason } => {
            HistoryEntry { detail: reason.clone(), ..blank("resumed", None, by) }
        }
        Event::Aborted { by, reason } => HistoryEntry {
            detail: (!reason.is_empty()).then(|| reason.clone()),
            ..blank("aborted", None, by)
        },
        Event::Sent { .. }
        | Event::Delivered { .. }
        | Event::Received(_)
        | Event::Redirected { .. } => {
            transferred(schema, names, event, |kind| blank(kind, None, &system))
        }
        Event::Fetched { values } => HistoryEntry {
            writes: named(schema, values.iter().map(|value| (value.element, &value.value))),
            ..blank("fetched", None, &system)
        },
        Event::Finished => blank("finished", None, &system),
    }
}

fn completed(schema: &Schema, names: Names<'_>, done: &Completed, at: Timestamp) -> HistoryEntry {
    if is_place(schema, done) {
        return located(schema, names, done, at);
    }
    HistoryEntry {
        started_at: Some(done.started_at),
        writes: named(schema, done.writes.iter().map(|(element, value)| (*element, value))),
        detail: done.code.map(|code| answer_of(schema, &done.activity, code)),
        channel: done.channel,
        ..blank(schema, at, "completed", Some(&done.activity), &done.by)
    }
}

fn is_place(schema: &Schema, done: &Completed) -> bool {
    matches!(schema.node(done.activity.node).kind, NodeKind::Locate)
}

/// Where the executor is that is expected to be best for the step. Sending the case there is an entry of its own.
fn located(schema: &Schema, names: Names<'_>, done: &Completed, at: Timestamp) -> HistoryEntry {
    let elsewhere = |home| format!("with an executor in {}", names.domain(home));
    let place = done.home.map_or_else(|| "stays here".to_owned(), elsewhere);
    let blank = blank(schema, at, "located", Some(&done.activity), &Performer::System);
    HistoryEntry { detail: Some(place), ..blank }
}

fn name_of_performer(performer: &Performer) -> &str {
    match performer {
        Performer::System => "the system",
        Performer::Agent(agent) => agent.as_str(),
        Performer::Worker(name) | Performer::Executor(name) => name,
    }
}

/// The new performers of planned steps, and the reason of the change.
fn replanned(schema: &Schema, plan: &Replanned, at: Timestamp) -> HistoryEntry {
    let legs = plan.legs.iter().map(|leg| {
        let node = schema.nodes.get(leg.node.0 as usize);
        let step = node.map_or("?".to_owned(), |node| {
            match Iteration::numbered(leg.round, node.loops.len()) {
                iteration if iteration.0.is_empty() => node.name.to_string(),
                iteration => format!("{}:{iteration}", node.name),
            }
        });
        match &leg.planned {
            Some(Planned { by, end, .. }) if node.is_some_and(|node| is_by_workers(node, by)) => {
                format!("{step} by workers for {} (best effort) until {end}", name_of_performer(by))
            }
            Some(Planned { by, end, .. }) => {
                format!("{step} by {} until {end}", name_of_performer(by))
            }
            None => format!("{step} is not promised any more"),
        }
    });
    let legs: Vec<String> = legs.collect();
    let detail = Some(format!("{}; {}", plan.reason, legs.join(", ")));
    HistoryEntry { detail, ..blank(schema, at, "replanned", None, &Performer::System) }
}

fn failure(error: &str, retry_at: Option<Timestamp>) -> String {
    match retry_at {
        Some(moment) => format!("{error}; next attempt at {moment}"),
        None => error.to_owned(),
    }
}

/// Entries about transfers between servers.
fn transferred(
    schema: &Schema,
    names: Names<'_>,
    event: &Event,
    blank: impl FnOnce(&'static str) -> HistoryEntry,
) -> HistoryEntry {
    let name = |id: &ServerId| Some(names.server(*id));
    if let Event::Sent { to, number, parcel } = event {
        let to_server = format!("to {}", names.server(*to));
        let detail = Some(match parcel {
            Parcel::Finished { .. } => format!("{to_server}: {}", contents(schema, parcel)),
            Parcel::Control { .. } | Parcel::Order(_) => {
                format!("{} {to_server} (transfer {number})", contents(schema, parcel))
            }
        });
        HistoryEntry { detail, to: name(to), number: Some(*number), ..blank("sent") }
    } else if let Event::Delivered { to, number } = event {
        let detail = Some(format!("{} has it (transfer {number})", names.server(*to)));
        HistoryEntry { detail, to: name(to), number: Some(*number), ..blank("delivered") }
    } else if let Event::Redirected { from, to } = event {
        let what = format!("transfers to {}", names.server(*from));
        let becomes = to.map_or_else(
            || format!("{what} are dropped"),
            |to| format!("{what} go to {}", names.server(to)),
        );
        let to = to.as_ref().and_then(name);
        HistoryEntry { detail: Some(becomes), from: name(from), to, ..blank("redirected") }
    } else if let Event::Received(received) = event {
        let Received { from, number, parcel, .. } = &**received;
        let from_server = format!("from {}", names.server(*from));
        let detail = Some(match parcel {
            Parcel::Finished { .. } => format!("{from_server}: {}", contents(schema, parcel)),
            Parcel::Control { .. } | Parcel::Order(_) => {
                format!("{} {from_server}", contents(schema, parcel))
            }
        });
        // A part is recorded under the number before that of its transfer: the transfer is yet to come.
        let number = number.saturating_add(u32::from(parcel.is_part()));
        HistoryEntry { detail, from: name(from), number: Some(number), ..blank("received") }
    } else {
        blank("")
    }
}

/// The content of a transfer in words.
fn contents(schema: &Schema, parcel: &Parcel) -> String {
    match parcel {
        Parcel::Control { passages, .. } => {
            let name = |node| &*schema.known_as(node).name;
            let targets = passages.iter().map(|passage| name(passage.target.node));
            format!("control of {}", targets.collect::<Vec<_>>().join(", "))
        }
        Parcel::Order(order) => match order.what {
            Orders::Suspend => "the order to suspend".to_owned(),
            Orders::Resume => "the order to resume".to_owned(),
            Orders::Abort => "the order to abort".to_owned(),
        },
        Parcel::Finished { .. } => "the case has ended".to_owned(),
    }
}

fn answer_of(schema: &Schema, activity: &Activity, code: u32) -> String {
    let answers = schema.node(activity.node).answers();
    answers.get(code as usize).map_or_else(|| code.to_string(), |&answer| answer.to_owned())
}
