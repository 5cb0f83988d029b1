//! Random runs of random processes.
//!
//! A run is a list of commands with their results; all choices come from the dice, so that a
//! failure shrinks.

use legwork_model::arbitrary::{Options, definition};
use legwork_model::compile::compile;
use legwork_model::event::{Created, Event, Incident, Performer, Record, RequestDigest};
use legwork_model::id::{Activity, AgentId, ElementId, Iteration, NodeId};
use legwork_model::schema::{Access, Node, Schema};
use legwork_model::time::Timestamp;
use legwork_model::value::{Value, ValueType};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

use super::travel::move_on;
use crate::{Change, Command, Decision, Lifecycle, NodeState, Open, Resolution, State};
use crate::{create, decide};

/// One command that was accepted.
#[derive(Debug)]
pub(super) struct Moment {
    pub(super) record: Record<Event>,
    pub(super) changes: Vec<Change>,
    /// The state after it.
    pub(super) state: State,
}

pub(super) fn schemas() -> impl Strategy<Value = Schema> {
    let options = Options { details: true, ..Options::default() };
    definition(options).prop_map(|definition| compile(&definition, 1).unwrap())
}

pub(super) fn dice(commands_max: usize) -> impl Strategy<Value = Vec<u64>> {
    vec(any::<u64>(), 1..=commands_max)
}

/// Acts as people and workers do, failures and corrections included.
pub(super) fn lively(schema: &Schema, dice: &[u64]) -> Vec<Moment> {
    play(schema, dice, |state, dice| act(schema, state, dice))
}

/// The same, with transfers to other servers.
pub(super) fn travelling(schema: &Schema, dice: &[u64]) -> Vec<Moment> {
    play(schema, dice, |state, dice| match dice.roll(2) {
        0 => act(schema, state, dice),
        _ => Some(move_on(state, dice)),
    })
}

/// Completes and resolves open activities, until the instance has ended or the dice are used up.
pub(super) fn steady(schema: &Schema, dice: &[u64]) -> Vec<Moment> {
    play(schema, dice, |state, dice| {
        let open: Vec<Open<'_>> = state.open(schema).collect();
        let open = &open[dice.roll(open.len())];
        Some(match open.state {
            NodeState::Failed => resolve(schema, open, dice),
            NodeState::Activated
            | NodeState::Selected
            | NodeState::NotActivated
            | NodeState::Completed
            | NodeState::Skipped => complete(schema, open, dice),
        })
    })
}

fn play(
    schema: &Schema,
    dice: &[u64],
    mut next: impl FnMut(&State, &mut Dice) -> Option<Command>,
) -> Vec<Moment> {
    let mut dice = dice.iter().map(|dice| Dice(*dice));
    let mut first = dice.next().unwrap();
    let mut now = Timestamp(first.roll(1_000) as i64);
    let inputs = values(schema, schema.node(Schema::START), &mut first);
    let (process, by) = (schema.process.clone(), Performer::Agent("ann".into()));
    let created = Created { process, version: 1, by, inputs, deadline: None };
    let decision = create(schema, created, now).unwrap();
    let moment = |Decision { events, state, changes }, at| Moment {
        record: Record { at, events },
        changes,
        state,
    };
    let mut moments = vec![moment(decision, now)];
    for mut dice in dice {
        let state = &moments[moments.len() - 1].state;
        if state.lifecycle().has_ended() {
            break;
        }
        now = Timestamp(now.0 + dice.roll(5_000) as i64);
        let Some(command) = next(state, &mut dice) else { continue };
        if let Ok(decision) = decide(schema, state, command, now) {
            moments.push(moment(decision, now));
        }
    }
    moments
}

/// A sensible command.
fn act(schema: &Schema, state: &State, dice: &mut Dice) -> Option<Command> {
    let by = || Performer::Agent("root".into());
    match (state.lifecycle(), dice.roll(30)) {
        (Lifecycle::Suspended, 0..12) => return Some(Command::Resume { by: by(), reason: None }),
        (Lifecycle::Running, 0) => return Some(Command::Suspend { by: by(), reason: None }),
        (Lifecycle::Running | Lifecycle::Suspended, 29) if dice.roll(10) == 0 => {
            return Some(Command::Abort { by: by(), reason: "enough".to_owned() });
        }
        (_, _) => {}
    }
    let open: Vec<Open<'_>> = state.open(schema).collect();
    let open = open.get(dice.roll(open.len()))?;
    let activity = open.activity.clone();
    if open.state == NodeState::Failed {
        return Some(resolve(schema, open, dice));
    }
    let holder = open.claimed_by.cloned().unwrap_or_else(|| agent(dice));
    let manual = schema.node(activity.node).who().is_some();
    Some(match (manual, dice.roll(10)) {
        (true, 0 | 1) => Command::Claim { activity, by: agent(dice) },
        (true, 2) => Command::Release { activity, by: holder },
        (true, 3) if dice.roll(2) == 0 => Command::TakeOver { activity, by: agent(dice) },
        (true, 3) => Command::Delegate { activity, by: holder, to: agent(dice) },
        (true, 4) => {
            let incident = Incident::NobodyCanDoIt { rule: "Role(none)".to_owned() };
            Command::Raise { activity, incident }
        }
        (false, _) if state.answer(activity.node).is_some() => Command::Confirm { activity },
        (false, 2 | 3) => {
            let outputs = values(schema, schema.node(activity.node), dice);
            let (by, started_at) = (Performer::Worker("w1".into()), Timestamp(0));
            Command::Answer { activity, by, started_at, outputs, lease: 1 }
        }
        (false, 0 | 1) => {
            let (by, retry) = (Performer::Worker("w1".into()), dice.roll(3) > 0);
            Command::Fail { activity, by, error: "no paper".to_owned(), retry }
        }
        (_, _) => complete(schema, open, dice),
    })
}

/// Any command, mostly nonsense.
pub(super) fn wild(schema: &Schema, dice: &mut Dice) -> Command {
    let node = NodeId(dice.roll(schema.nodes.len() + 2) as u32);
    let depth = schema.nodes.get(node.0 as usize).map_or(0, |node| node.loops.len());
    let depth = (depth + dice.roll(2)).saturating_sub(dice.roll(2));
    let counts = (0..depth).map(|_| dice.roll(3) as u32).collect();
    let activity = Activity { node, iteration: Iteration(counts) };
    let performer =
        [Performer::System, Performer::Agent(agent(dice)), Performer::Worker("w1".into())];
    let by = performer[dice.roll(3)].clone();
    let any_value = |dice: &mut Dice| value(ValueType::ALL[dice.roll(7)], dice);
    let elements = schema.elements.len() + 1;
    let mut outputs: Vec<(ElementId, Value)> = (0..dice.roll(3))
        .map(|_| (ElementId(dice.roll(elements) as u32), any_value(dice)))
        .collect();
    if let (Some(node), 0 | 1) = (schema.nodes.get(node.0 as usize), dice.roll(3)) {
        outputs = values(schema, node, dice);
    }
    let code = dice.roll(4) as u32;
    match dice.roll(10) {
        0 => Command::Claim { activity, by: agent(dice) },
        1 => Command::Release { activity, by: agent(dice) },
        2 if dice.roll(2) == 0 => Command::TakeOver { activity, by: agent(dice) },
        2 => Command::Delegate { activity, by: agent(dice), to: agent(dice) },
        3 => Command::Complete {
            activity,
            by,
            started_at: Timestamp(0),
            outputs,
            answer: (dice.roll(2) == 0).then_some(code),
            request: (dice.roll(2) == 0).then_some(RequestDigest::new(1, code)),
            channel: None,
        },
        4 if dice.roll(3) == 0 => Command::Confirm { activity },
        4 if dice.roll(2) == 0 => {
            Command::Answer { activity, by, started_at: Timestamp(0), outputs, lease: 2 }
        }
        4 => Command::Fail { activity, by, error: "ä".repeat(5_000), retry: dice.roll(2) == 0 },
        5 => Command::Raise { activity, incident: Incident::TooManyIterations { limit: code } },
        6 | 7 => {
            let resolutions =
                [Resolution::Retry, Resolution::Choose(code), Resolution::Complete(outputs)];
            let resolution = resolutions[dice.roll(3)].clone();
            Command::Resolve { activity, by, resolution }
        }
        8 if dice.roll(2) == 0 => Command::Suspend { by, reason: None },
        8 => Command::Resume { by, reason: None },
        _ => Command::Abort { by, reason: "ä".repeat(5_000) },
    }
}

fn complete(schema: &Schema, open: &Open<'_>, dice: &mut Dice) -> Command {
    let node = schema.node(open.activity.node);
    let by = match node.who() {
        Some(_) => Performer::Agent(open.claimed_by.cloned().unwrap_or_else(|| agent(dice))),
        None => Performer::Worker("w1".into()),
    };
    let answers = node.answers().len();
    Command::Complete {
        activity: open.activity.clone(),
        by,
        started_at: open.claimed_at.unwrap_or(open.since),
        outputs: values(schema, node, dice),
        answer: (answers > 0).then(|| dice.roll(answers) as u32),
        request: (dice.roll(2) == 0).then_some(RequestDigest(7)),
        channel: None,
    }
}

fn resolve(schema: &Schema, open: &Open<'_>, dice: &mut Dice) -> Command {
    let node = schema.node(open.activity.node);
    let answers = node.answers().len();
    let resolution = match (dice.roll(3), answers) {
        (0, _) => Resolution::Retry,
        (_, 0) => Resolution::Complete(values(schema, node, dice)),
        (_, answers) => Resolution::Choose(dice.roll(answers) as u32),
    };
    let by = Performer::Agent("root".into());
    Command::Resolve { activity: open.activity.clone(), by, resolution }
}

fn agent(dice: &mut Dice) -> AgentId {
    AgentId::from(["ann", "bob", "eve"][dice.roll(3)])
}

fn values(schema: &Schema, node: &Node, dice: &mut Dice) -> Vec<(ElementId, Value)> {
    let given = |access: &&Access, dice: &mut Dice| !access.optional || dice.roll(2) == 0;
    let mut values = Vec::new();
    for access in &node.writes {
        if given(&access, dice) {
            values.push((access.element, value(schema.element(access.element).kind, dice)));
        }
    }
    values
}

fn value(kind: ValueType, dice: &mut Dice) -> Value {
    let number = dice.roll(4);
    let json = match kind {
        ValueType::Bool => json!(number < 2),
        ValueType::Int => json!(number),
        ValueType::Decimal => json!(format!("{number}.50")),
        ValueType::String => json!(format!("text {number}")),
        ValueType::DateTime => json!(format!("2026-03-0{}T09:30:00Z", number + 1)),
        ValueType::Json => json!({ "list": [number, null] }),
        ValueType::File => json!({ "blob": "ab".repeat(32), "size": number }),
    };
    Value::from_json(kind, &json).unwrap()
}

/// A source of choices in one number; when used up, it starts over with a hash of the number.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % sides.max(1) as u64) as usize
    }
}
