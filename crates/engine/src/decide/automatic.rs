//! Decisions by condition, taken as soon as they are due.
//!
//! A decision needs exactly one true condition. Anything else (none, several, an error) is an
//! incident: the engine never guesses. Each outcome is an event, so replay never evaluates
//! anything.

use std::fmt::Write;

use legwork_model::condition::{Condition, ConditionError};
use legwork_model::event::{Completed, Event, Incident, Performer};
use legwork_model::id::{Activity, NodeId};
use legwork_model::schema::{
    Branch, Decision, LOOP_LEAVE, LOOP_REPEAT, LoopDecision, Node, NodeKind,
};

use super::{Draft, TEXT_BYTES_MAX, cut};
use crate::state::{NodeState, State};

/// The most decisions of one command before a loop without outside work becomes an incident.
/// Choices alone cannot exceed the number of nodes.
pub(crate) const DECISIONS_PER_COMMAND_MAX: u32 = 1_000;

/// Takes due decisions, up to a fixpoint.
pub(super) fn decide_all(draft: &mut Draft<'_>) {
    let mut decisions = 0;
    while !draft.undecided.is_empty() {
        let id = draft.undecided.remove(0);
        if draft.state.node_state(id) != NodeState::Activated || !is_due_here(draft, id) {
            continue;
        }
        decisions += 1;
        if let Some(event) = decide(draft, id, decisions) {
            draft.record(event);
        }
    }
}

/// Whether this server takes a decision, and has everything that it depends on.
fn is_due_here(draft: &Draft<'_>, id: NodeId) -> bool {
    let Draft { here, schema, state, .. } = draft;
    here.controls(schema, state, id)
        && state.lacking(schema, &state.activity(schema, id)).is_empty()
}

/// The allowed number of iterations, if it is used up.
pub(super) fn rounds_used_up(state: &State, node: &Node) -> Option<u32> {
    let NodeKind::LoopEnd { times_max, .. } = node.kind else { return None };
    let id = node.ends()?;
    (state.round(id).saturating_add(1) >= times_max).then_some(times_max)
}

fn decide(draft: &Draft<'_>, id: NodeId, decisions: u32) -> Option<Event> {
    let node = draft.schema.node(id);
    let activity = draft.state.activity(draft.schema, id);
    let outcome = match &node.kind {
        NodeKind::Locate => return Some(locate(draft, node, activity)),
        NodeKind::XorSplit { decision: Decision::Conditions(conditions), branches } => {
            choose(draft, &activity, conditions, branches)
        }
        NodeKind::LoopEnd { decision: LoopDecision::Condition(condition), .. } => {
            leave_or_repeat(draft, &activity, node, condition, decisions)
        }
        NodeKind::XorSplit { decision: Decision::Person { .. }, .. }
        | NodeKind::LoopEnd { decision: LoopDecision::Person { .. }, .. }
        | NodeKind::Start
        | NodeKind::End
        | NodeKind::Manual { .. }
        | NodeKind::Automatic { .. }
        | NodeKind::AndSplit { .. }
        | NodeKind::AndJoin
        | NodeKind::XorJoin
        | NodeKind::LoopStart => return None,
    };
    Some(match outcome {
        Ok(code) => Event::Decided { activity, code },
        Err(incident) => Event::IncidentRaised { activity, incident },
    })
}

/// The place of the following step is recorded as the home of its actor.
fn locate(draft: &Draft<'_>, node: &Node, activity: Activity) -> Event {
    let Draft { here, schema, state, now, .. } = draft;
    let step = node.outgoing.first();
    let home = step.and_then(|step| here.home_of_executor(schema, state, *step));
    let (by, writes) = (Performer::System, Vec::new());
    let (started_at, code, request, channel) = (*now, None, None, None);
    let done = Completed { activity, by, started_at, writes, code, request, home, channel };
    Event::Completed(done)
}

/// The one branch with a true condition; `otherwise` if there is none.
fn choose(
    draft: &Draft<'_>,
    activity: &Activity,
    conditions: &[Option<Condition>],
    branches: &[Branch],
) -> Result<u32, Incident> {
    let mut holding: Vec<usize> = Vec::new();
    for (code, condition) in conditions.iter().enumerate() {
        if let Some(condition) = condition
            && holds(draft, activity, condition)?
        {
            holding.push(code);
        }
    }
    let otherwise = conditions.iter().position(Option::is_none);
    match (holding.as_slice(), otherwise) {
        (&[code], _) | (&[], Some(code)) => Ok(code as u32),
        (&[], None) => Err(Incident::NoBranchMatches {
            values: values(draft, activity, conditions.iter().flatten()),
        }),
        (several, _) => Err(Incident::SeveralBranchesMatch {
            branches: several
                .iter()
                .filter_map(|code| branches.get(*code))
                .map(|branch| branch.name.to_string())
                .collect(),
        }),
    }
}

fn leave_or_repeat(
    draft: &Draft<'_>,
    activity: &Activity,
    node: &Node,
    condition: &Condition,
    decisions: u32,
) -> Result<u32, Incident> {
    if holds(draft, activity, condition)? {
        return Ok(LOOP_LEAVE);
    }
    if let Some(limit) = rounds_used_up(&draft.state, node) {
        return Err(Incident::TooManyIterations { limit });
    }
    if decisions >= DECISIONS_PER_COMMAND_MAX {
        return Err(Incident::TooManyIterations { limit: DECISIONS_PER_COMMAND_MAX });
    }
    Ok(LOOP_REPEAT)
}

fn holds(draft: &Draft<'_>, activity: &Activity, condition: &Condition) -> Result<bool, Incident> {
    let value_of = |name: &str| {
        let element = draft.schema.element_named(name)?;
        draft.state.value_for(draft.schema, activity, element)
    };
    condition.holds(value_of).map_err(|error: ConditionError| Incident::ConditionFailed {
        condition: cut(condition.source()),
        error: cut(&error.to_string()),
    })
}

/// The values of the conditions, for the person who resolves the incident.
fn values<'a>(
    draft: &Draft<'_>,
    activity: &Activity,
    conditions: impl Iterator<Item = &'a Condition>,
) -> String {
    let mut names: Vec<_> = conditions.flat_map(Condition::variables).collect();
    names.sort();
    names.dedup();
    let mut text = String::new();
    for name in names {
        if text.len() > TEXT_BYTES_MAX {
            break;
        }
        let element = draft.schema.element_named(name);
        let value = element.and_then(|e| draft.state.value_for(draft.schema, activity, e));
        let json = value.map_or(serde_json::Value::Null, |value| value.to_json());
        let separator = if text.is_empty() { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(text, "{separator}{name} = {json}");
    }
    cut(&text)
}
