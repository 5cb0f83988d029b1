//! The random inputs of a run: a definition, an organisation, values.
//!
//! Invariant: the same dice give the same material.

use legwork_model::arbitrary::{self, Options, ROLES};
use legwork_model::id::StreamId;
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_model::value::ValueType;
use legwork_site::Data;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value as Json, json};

use crate::dice::Dice;

pub(crate) const AGENTS: [&str; 5] = ["ann", "ben", "cleo", "dan", "eve"];

/// A random definition, from the generator of the property tests.
pub(crate) fn definition(dice: &mut Dice) -> legwork_model::definition::Definition {
    let mut runner = runner(dice);
    let strategy = arbitrary::definition(Options { blocks_max: 14, ..Options::default() });
    draw(&strategy, &mut runner)
}

/// The possible domains of steps.
pub(crate) const DOMAINS: [&str; 9] =
    ["aalen", "bonn", "celle", "dresden", "essen", "fulda", "gera", "hof", "iserlohn"];

/// A random definition whose steps are spread over some of the domains.
pub(crate) fn placed_definition(
    dice: &mut Dice,
    domains: usize,
) -> legwork_model::definition::Definition {
    let mut runner = runner(dice);
    let domains = &DOMAINS[..domains.min(DOMAINS.len())];
    let options = Options { blocks_max: 12, ..Options::default() };
    draw(&arbitrary::placed_definition(options, domains), &mut runner)
}

fn runner(dice: &mut Dice) -> TestRunner {
    let mut seed = [0_u8; 32];
    for chunk in seed.chunks_mut(8) {
        chunk.copy_from_slice(&dice.roll().to_le_bytes());
    }
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    TestRunner::new_with_rng(Config::default(), rng)
}

fn draw<S: Strategy>(strategy: &S, runner: &mut TestRunner) -> S::Value {
    loop {
        if let Ok(tree) = strategy.new_tree(runner) {
            return tree.current();
        }
    }
}

/// Five people with random roles, at least one for every role, some of them absent.
pub(crate) fn organisation(dice: &mut Dice) -> String {
    let mut text = format!("organisation: simulated-{}\nagents:\n", dice.below(1_000));
    for (place, agent) in AGENTS.into_iter().enumerate() {
        let own = ROLES[place % ROLES.len()];
        let more = ROLES[dice.below(ROLES.len())];
        let roles = if own == more { own.to_owned() } else { format!("{own}, {more}") };
        let substitute = AGENTS[(place + 1 + dice.below(3)) % AGENTS.len()];
        text += &format!("  {agent}:\n    name: {agent}\n    roles: [{roles}]\n");
        text += &format!("    substitutes: [{substitute}]\n");
        if dice.chance(30) {
            let from = Timestamp(1_000_000 + dice.below(100_000) as i64);
            let to = Timestamp(from.0 + 1 + dice.below(100_000) as i64);
            text += &format!("    absent:\n      - {{ from: \"{from}\", to: \"{to}\" }}\n");
        }
    }
    text
}

/// Values for all writes of a step; sometimes one is missing or wrong.
pub(crate) fn outputs(schema: &Schema, step: &str, dice: &mut Dice) -> Data {
    let node = schema.node_named(step);
    let writes = node.map(|node| node.writes.as_slice()).unwrap_or_default();
    let mut data = Data::new();
    for access in writes {
        if access.optional && dice.chance(50) {
            continue;
        }
        let element = schema.element(access.element);
        data.insert(element.name.to_string(), value(element.kind, dice));
    }
    if dice.chance(3) {
        data.insert("nonsense".to_owned(), json!(1));
    }
    data
}

pub(crate) fn value(kind: ValueType, dice: &mut Dice) -> Json {
    match kind {
        ValueType::Bool => json!(dice.chance(50)),
        ValueType::Int => json!(dice.below(9)),
        ValueType::Decimal => json!(format!("{}.5", dice.below(9))),
        ValueType::String => json!(format!("text {}", dice.below(9))),
        ValueType::DateTime => json!(Timestamp(dice.below(1_000_000) as i64).to_string()),
        ValueType::Json => json!({ "n": dice.below(9) }),
        ValueType::File => {
            let blob: String = (0..4).map(|_| format!("{:016x}", dice.roll())).collect();
            json!({ "blob": blob, "size": 1 + dice.below(1 << 20), "name": "f" })
        }
    }
}

/// The hashes of keys have no order.
pub(crate) fn key_stream(key: u64) -> StreamId {
    StreamId::of_key(u128::from(Dice::new(key).roll()) << 64)
}
