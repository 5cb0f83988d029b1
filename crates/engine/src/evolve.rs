//! Folds events into a state.
//!
//! An event is a fact: it is applied, never questioned. The new state depends only on the schema,
//! the state before and the event. Facts about nodes that the schema does not have are skipped, so
//! that not even a foreign history can stop the server.

mod travel;

use legwork_model::event::{
    Answered, Completed, Created, Entry, Event, Performer, Received, Record, RequestDigest, Then,
};
use legwork_model::id::{Activity, AgentId, DomainId, ElementId, NodeId, ServerId};
use legwork_model::schema::{LOOP_REPEAT, Node, Schema};
use legwork_model::time::Timestamp;

use legwork_model::value::Value;

use crate::data::versions::Written;
use crate::failure::{self, Failure};
use crate::marking::Spread;
use crate::state::{
    Answer, Change, Counted, Detail, Done, Lifecycle, NodeState, State, Whereabouts,
};
use crate::travel::Travel;

/// Folds one event into the state, and returns the changes that matter outside.
pub fn evolve(
    schema: &Schema,
    state: &mut State,
    event: &Event,
    at: Timestamp,
    changes: &mut Vec<Change>,
) {
    apply(schema, state, event, at, changes, &mut Vec::new(), Vec::pop);
}

/// Rebuilds a state from its whole history. `None` if the history does not begin with a `Created`,
/// here or at another server.
pub fn replay<'a>(
    schema: &Schema,
    records: impl Iterator<Item = &'a Record<Event>>,
) -> Option<State> {
    let mut state = None;
    let mut changes = Vec::new();
    for record in records {
        for event in &record.events {
            if let Some(state) = &mut state {
                evolve(schema, state, event, record.at, &mut changes);
            } else if let Event::Created(created) = event {
                let (first, undecided) = (&mut changes, &mut Vec::new());
                state = Some(begin(schema, created, record.at, first, undecided, Vec::pop));
            } else if let Event::Received(received) = event {
                let mut first = begin_elsewhere(schema, received)?;
                evolve(schema, &mut first, event, record.at, &mut changes);
                state = Some(first);
            } else {
                return None;
            }
            changes.clear();
        }
    }
    state
}

/// The state right after creation: the start node completed, its successors enabled.
pub(crate) fn begin(
    schema: &Schema,
    created: &Created,
    at: Timestamp,
    changes: &mut Vec<Change>,
    undecided: &mut Vec<NodeId>,
    next: impl FnMut(&mut Vec<NodeId>) -> Option<NodeId>,
) -> State {
    let mut state = State::fresh(schema, created.by.clone(), at);
    state.deadline.clone_from(&created.deadline);
    let start = Activity::once(Schema::START);
    write(&mut state, &created.inputs, &start, at, None);
    if let Some(start) = schema.nodes.first() {
        Spread::new(schema, &mut state, at, changes, undecided, next).completed(start);
    }
    state
}

/// The state of an instance that was started elsewhere, before anything of it is known here. `None`
/// if the received entries do not begin with its start.
pub(crate) fn begin_elsewhere(schema: &Schema, received: &Received) -> Option<State> {
    let Entry { event: Event::Created(created), at, server, .. } = received.entries.first()? else {
        return None;
    };
    let mut state = State::fresh(schema, created.by.clone(), *at);
    state.deadline.clone_from(&created.deadline);
    let travel = Travel { started_at: Some(*server), ..Travel::default() };
    state.travel = Some(Box::new(travel));
    Some(state)
}

/// `evolve`, with the order of examination as an argument, and with the decisions by condition that
/// became due in `undecided`.
pub(crate) fn apply(
    schema: &Schema,
    state: &mut State,
    event: &Event,
    at: Timestamp,
    changes: &mut Vec<Change>,
    undecided: &mut Vec<NodeId>,
    next: impl FnMut(&mut Vec<NodeId>) -> Option<NodeId>,
) {
    state.latest = at;
    let mut spread = Spread::new(schema, state, at, changes, undecided, next);
    let node = |activity: &Activity| schema.nodes.get(activity.node.0 as usize);
    match event {
        // The first event made the state; there is no second one. Assignments are recorded for
        // readers only.
        Event::Created(_) | Event::Assigned(_) => {}
        Event::Claimed { activity, by } => {
            tell(&mut spread, node(activity), NodeState::Selected, Some(held(by, by, at)));
        }
        Event::Released { activity, .. } => {
            tell(&mut spread, node(activity), NodeState::Activated, None);
        }
        Event::Delegated { activity, by, to } => {
            tell(&mut spread, node(activity), NodeState::Selected, Some(held(to, by, at)));
        }
        Event::Answered(done) => {
            let detail = Some(answered((**done).clone()));
            tell(&mut spread, node(&done.activity), NodeState::Selected, detail);
        }
        Event::Completed(done) => {
            if let Some(node) = node(&done.activity) {
                completed(&mut spread, node, done);
            }
        }
        Event::Decided { activity, code } => {
            if let Some(node) = node(activity) {
                decided(&mut spread, node, *code);
            }
        }
        Event::Failed { activity, by, error, retry_at } => {
            let mut failures = take_failures(spread.state, activity);
            failure::add(&mut failures, at, by, error);
            // Without a repetition an incident follows, which is the change.
            if retry_at.is_some() {
                tell(&mut spread, node(activity), NodeState::Activated, None);
            }
            if let Some(pending) = spread.state.pending_mut(activity.node) {
                pending.attempts = pending.attempts.saturating_add(1);
                let detail = Detail::Failed { retry_at: *retry_at, failures };
                pending.detail = Some(Box::new(detail));
            }
        }
        Event::IncidentRaised { activity, incident } => {
            let failures = take_failures(spread.state, activity);
            let detail = Detail::Incident { incident: incident.clone(), failures };
            tell(&mut spread, node(activity), NodeState::Failed, Some(detail));
        }
        Event::IncidentResolved { activity, .. } => {
            tell(&mut spread, node(activity), NodeState::Activated, None);
            if let Some(pending) = spread.state.pending_mut(activity.node) {
                pending.attempts = 0;
            }
        }
        Event::Suspended { .. } => state.lifecycle = Lifecycle::Suspended,
        Event::Resumed { .. } => state.lifecycle = Lifecycle::Running,
        Event::Aborted { .. } => aborted(&mut spread),
        Event::Sent { to, number, parcel } => state.travel_mut().sent(*to, *number, parcel),
        Event::Delivered { to, number } => state.travel_mut().delivered(schema, *to, *number),
        Event::Received(received) => travel::take(&mut spread, received),
        Event::Fetched { values } => {
            let state = &mut *spread.state;
            values.iter().for_each(|value| state.versions.fetched(value.clone()));
            // Decisions that waited for values can be taken now.
            spread.undecided.extend(state.pending.iter().map(|pending| pending.node));
        }
        Event::Finished => state.lifecycle = Lifecycle::Completed,
        Event::Redirected { from, to } => state.travel_mut().redirected(*from, *to),
        Event::Replanned(replanned) => {
            state.deadline.iter_mut().for_each(|deadline| deadline.replan(replanned, at));
        }
        Event::DeadlinePassed { at, then } => pass_deadline(schema, state, *at, *then),
    }
    note_end(state, at);
}

fn pass_deadline(schema: &Schema, state: &mut State, at: Timestamp, then: Then) {
    let Some(mut deadline) = state.deadline.take() else { return };
    deadline.pass(at, then, |leg| {
        let is_now = state.activity(schema, leg.node).iteration.number() == leg.round;
        is_now && state.node_state(leg.node) != NodeState::NotActivated
    });
    state.deadline = Some(deadline);
}

/// Other servers are told of the end, and values arrive, after it: so its moment is stored
/// separately.
fn note_end(state: &mut State, at: Timestamp) {
    if let Some(travel) = state.travel.as_mut().filter(|_| state.lifecycle.has_ended()) {
        travel.ended_at.get_or_insert(at);
    }
}

fn answered(Answered { by, started_at, writes, lease, .. }: Answered) -> Detail {
    Detail::Answered(Box::new(Answer { by, started_at, writes, lease }))
}

/// The holder of an item, and where they got it from. A person who claims it, or takes it over, has
/// it from themselves.
fn held(by: &AgentId, from: &AgentId, at: Timestamp) -> Detail {
    let given_by = Some(from).filter(|from| *from != by).cloned();
    Detail::Claimed { by: by.clone(), at, given_by }
}

/// Takes the failures of an activity, which are part of its next detail.
fn take_failures(state: &mut State, activity: &Activity) -> Vec<Failure> {
    let detail = state.pending_mut(activity.node).and_then(|pending| pending.detail.as_deref_mut());
    match detail {
        Some(Detail::Failed { failures, .. } | Detail::Incident { failures, .. }) => {
            std::mem::take(failures)
        }
        Some(Detail::Claimed { .. } | Detail::Answered(_)) | None => Vec::new(),
    }
}

/// Changes the state of a pending node that stays pending.
fn tell<N: FnMut(&mut Vec<NodeId>) -> Option<NodeId>>(
    spread: &mut Spread<'_, N>,
    node: Option<&Node>,
    to: NodeState,
    detail: Option<Detail>,
) {
    let Some(node) = node else { return };
    spread.enter(node, to);
    if let Some(pending) = spread.state.pending_mut(node.id) {
        pending.detail = detail.map(Box::new);
    }
}

fn write(
    state: &mut State,
    values: &[(ElementId, Value)],
    writer: &Activity,
    at: Timestamp,
    server: Option<ServerId>,
) {
    for (element, value) in values {
        let (element, value) = (*element, Some(value.clone()));
        state.versions.write(Written { element, value, writer, at, server });
    }
}

fn completed<N: FnMut(&mut Vec<NodeId>) -> Option<NodeId>>(
    spread: &mut Spread<'_, N>,
    node: &Node,
    done: &Completed,
) {
    write(spread.state, &done.writes, &done.activity, spread.at, spread.server);
    let (by, code, request, home) = (done.by.clone(), done.code, done.request, done.home);
    finish(spread, node, End { by, code, request, home });
}

fn decided<N: FnMut(&mut Vec<NodeId>) -> Option<NodeId>>(
    spread: &mut Spread<'_, N>,
    node: &Node,
    code: u32,
) {
    let (by, code) = (Performer::System, Some(code));
    finish(spread, node, End { by, code, request: None, home: None });
}

/// The end of an activity.
struct End {
    by: Performer,
    code: Option<u32>,
    request: Option<RequestDigest>,
    home: Option<DomainId>,
}

fn finish<N: FnMut(&mut Vec<NodeId>) -> Option<NodeId>>(
    spread: &mut Spread<'_, N>,
    node: &Node,
    End { by, code, request, home }: End,
) {
    let iteration = spread.state.activity(spread.schema, node.id).iteration;
    let earlier = earlier(spread.state.done(node.id));
    let whereabouts = Whereabouts { iteration, server: spread.server, home, earlier };
    let whereabouts = (whereabouts != Whereabouts::default()).then(|| Box::new(whereabouts));
    let done = Done { node: node.id, code, by, at: spread.at, request, whereabouts };
    let all = &mut spread.state.done;
    match all.binary_search_by_key(&node.id, |done| done.node) {
        Ok(place) => all[place] = done,
        Err(place) => {
            all.reserve_exact(1);
            all.insert(place, done);
        }
    }
    match node.ends() {
        Some(id) if code == Some(LOOP_REPEAT) => {
            spread.enter(node, NodeState::Completed);
            spread.iterate(id);
        }
        Some(_) | None => spread.completed(node),
    }
}

/// The accepted results of executors up to the last completion of a node.
fn earlier(last: Option<&Done>) -> Counted {
    let Some(last) = last else { return Counted::default() };
    let earlier = last.whereabouts.as_ref().map(|whereabouts| whereabouts.earlier.clone());
    let mut earlier = earlier.unwrap_or_default();
    if let (Some(_), Some(request)) = (last.by.program(), last.request) {
        earlier.push(last.by.clone(), request);
    }
    earlier
}

/// Withdraws all open activities.
fn aborted<N: FnMut(&mut Vec<NodeId>) -> Option<NodeId>>(spread: &mut Spread<'_, N>) {
    let open: Vec<NodeId> = spread.state.pending.iter().map(|pending| pending.node).collect();
    for id in open {
        if let Some(node) = spread.schema.nodes.get(id.0 as usize) {
            spread.enter(node, NodeState::NotActivated);
        }
    }
    spread.state.lifecycle = Lifecycle::Aborted;
}
