//! The result of a case at one server: the reference for several servers.
//!
//! The outputs of a step, and the decisions of people, depend on the case and the activity alone,
//! so the performer, place and time do not matter.

use std::collections::{BTreeMap, BTreeSet};

use legwork_engine::{self as engine, Command, NodeState, Resolution, State};
use legwork_model::event::{Created, Event, Performer};
use legwork_model::id::{Activity, ActivityId, ElementId, InstanceId};
use legwork_model::schema::{LOOP_LEAVE, Node, NodeKind, Schema};
use legwork_model::time::Timestamp;
use legwork_model::value::Value;
use legwork_site::Data;
use serde_json::Value as Json;

use crate::dice::Dice;
use crate::material::value;

/// More steps than any simulated case takes.
const STEPS_MAX: u32 = 5_000;

/// The result of a case.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) results: BTreeMap<String, Json>,
    /// Every completed or decided activity.
    pub(crate) done: BTreeSet<Activity>,
}

/// The outputs of an activity.
pub(crate) fn data(schema: &Schema, case: InstanceId, activity: &ActivityId) -> Data {
    let mut dice = dice(case, activity);
    let writes = schema.node_named(&activity.step).map(|node| node.writes.as_slice());
    let mut data = Data::new();
    for access in writes.unwrap_or_default() {
        if access.optional && dice.chance(50) {
            continue;
        }
        let element = schema.element(access.element);
        data.insert(element.name.to_string(), value(element.kind, &mut dice));
    }
    data
}

/// The decision of a person.
pub(crate) fn answer(schema: &Schema, case: InstanceId, activity: &ActivityId) -> Option<u32> {
    let node = schema.node_named(&activity.step)?;
    let mut dice = dice(case, activity);
    match &node.kind {
        NodeKind::XorSplit { branches, .. } if node.who().is_some() => {
            Some(dice.below(branches.len()) as u32)
        }
        NodeKind::LoopEnd { .. } if node.who().is_some() => {
            let again = activity.iteration.0.last() == Some(&0) && dice.chance(40);
            Some(if again { 0 } else { LOOP_LEAVE })
        }
        NodeKind::XorSplit { .. }
        | NodeKind::LoopEnd { .. }
        | NodeKind::Start
        | NodeKind::End
        | NodeKind::Manual { .. }
        | NodeKind::Automatic { .. }
        | NodeKind::Locate
        | NodeKind::AndSplit { .. }
        | NodeKind::AndJoin
        | NodeKind::XorJoin
        | NodeKind::LoopStart => None,
    }
}

/// The resolution of a decision's incident: the last branch, out of the loop.
pub(crate) fn way_out(node: &Node) -> u32 {
    node.answers().len().saturating_sub(1) as u32
}

/// The start data of a case.
pub(crate) fn start_data(schema: &Schema, case: InstanceId) -> Data {
    let start = ActivityId { instance: case, step: "start".into(), iteration: Default::default() };
    data(schema, case, &start)
}

pub(crate) fn outcome(schema: &Schema, case: InstanceId) -> Result<Outcome, String> {
    let typed = |node, data: &Data| {
        engine::data::typed(schema, node, data).map_err(|rejection| rejection.to_string())
    };
    let inputs = typed(Schema::START, &start_data(schema, case))?;
    let (process, version) = (schema.process.clone(), schema.version);
    let created = Created { process, version, by: Performer::System, inputs, deadline: None };
    let begun = engine::create(schema, created, Timestamp(0)).map_err(|r| r.to_string())?;
    let (mut state, mut events) = (begun.state, begun.events);
    for _ in 0..STEPS_MAX {
        let Some(open) = state.open(schema).next() else { break };
        let (activity, is_failed) = (open.activity.clone(), open.state == NodeState::Failed);
        let node = schema.node(activity.node);
        let id = named(schema, case, &activity);
        let by = Performer::Agent("ann".into());
        let command = if is_failed {
            let resolution = Resolution::Choose(way_out(node));
            Command::Resolve { activity, by, resolution }
        } else {
            let outputs: Vec<(ElementId, Value)> = typed(node.id, &data(schema, case, &id))?;
            let answer = answer(schema, case, &id);
            let started_at = Timestamp(0);
            let (request, channel) = (None, None);
            Command::Complete { activity, by, started_at, outputs, answer, request, channel }
        };
        let decision = engine::decide(schema, &state, command, Timestamp(0));
        let decision = decision.map_err(|rejection| format!("{id}: {rejection}"))?;
        state = decision.state;
        events.extend(decision.events);
    }
    if !state.lifecycle().has_ended() {
        return Err(format!("{case} does not end at one server: {:?}", state.lifecycle()));
    }
    let done = events.iter().filter_map(Event::ends).collect();
    Ok(Outcome { results: results(schema, &state), done })
}

fn results(schema: &Schema, state: &State) -> BTreeMap<String, Json> {
    let named = |(element, value): (ElementId, &Value)| {
        (schema.element(element).name.to_string(), value.to_json())
    };
    state.results(schema).into_iter().map(named).collect()
}

pub(crate) fn named(schema: &Schema, instance: InstanceId, activity: &Activity) -> ActivityId {
    let step = schema.node(activity.node).name.clone();
    ActivityId { instance, step, iteration: activity.iteration.clone() }
}

fn dice(case: InstanceId, activity: &ActivityId) -> Dice {
    let text = format!("{}:{}", activity.step, activity.iteration);
    let hash = text.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    Dice::new(hash ^ (case.0 as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
