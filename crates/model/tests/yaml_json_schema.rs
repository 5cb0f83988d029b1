//! The published JSON Schema accepts what is correct; what it refuses the reader refuses too.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a wrong assumption is a failed test")]

use jsonschema::Validator;
use legwork_model::arbitrary::{Options, cases, definition};
use legwork_model::json_schema;
use legwork_model::yaml;
use legwork_model::yaml::report::Report;
use legwork_model::yaml::tree::{self, Content, Node, ScalarKind};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

fn validator() -> Validator {
    jsonschema::draft202012::new(&json_schema::definition()).unwrap()
}

/// YAML as the JSON that editors validate.
fn to_json(source: &str) -> Value {
    let mut report = Report::default();
    let root = tree::read(source, &mut report);
    json_of(&root.unwrap_or_else(|| panic!("{source}: {report:?}")))
}

fn json_of(node: &Node) -> Value {
    match &node.content {
        Content::List(items) => items.iter().map(json_of).collect(),
        Content::Mapping(entries) => {
            let key = |node: &Node| node.scalar().map(|key| key.text.clone()).unwrap_or_default();
            let entries = entries.iter().map(|(name, value)| (key(name), json_of(value)));
            Value::Object(entries.collect::<Map<_, _>>())
        }
        Content::Scalar(scalar) => match scalar.kind {
            ScalarKind::Null => Value::Null,
            ScalarKind::Bool => json!(scalar.text.eq_ignore_ascii_case("true")),
            ScalarKind::Int => json!(scalar.text.parse::<i64>().unwrap()),
            ScalarKind::Float => json!(scalar.text.parse::<f64>().unwrap()),
            ScalarKind::Text => json!(scalar.text),
        },
    }
}

#[test]
fn the_schema_is_one_of_draft_2020_12() {
    let schema = json_schema::definition();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    jsonschema::meta::validate(&schema).unwrap();
}

#[test]
fn examples_are_valid() {
    let validator = validator();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path().join("process.yaml");
        if let Ok(source) = std::fs::read_to_string(&path) {
            let errors: Vec<String> =
                validator.iter_errors(&to_json(&source)).map(|error| error.to_string()).collect();
            assert_eq!(errors, Vec::<String>::new(), "{}", path.display());
        }
    }
}

/// The examples in the schema are offered by editors: each must be valid at its place.
#[test]
fn examples_inside_the_schema_are_valid() {
    fn walk(schema: &Value, root: &Value) {
        if let Some(Value::Array(examples)) = schema.get("examples") {
            let mut alone = schema.clone();
            alone["$defs"] = root["$defs"].clone();
            let validator = jsonschema::draft202012::new(&alone).unwrap();
            for example in examples {
                assert!(validator.is_valid(example), "{example} in {schema}");
            }
        }
        match schema {
            Value::Object(fields) => fields.values().for_each(|field| walk(field, root)),
            Value::Array(items) => items.iter().for_each(|item| walk(item, root)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let schema = json_schema::definition();
    walk(&schema, &schema);
}

/// Refused by the schema, and by the reader.
const REFUSED: &[&str] = &[
    // The head.
    "[]",
    "{}",
    "just text",
    "{ process: p }",
    "{ steps: [] }",
    "{ process: P, steps: [] }",
    "{ process: 1, steps: [] }",
    "{ process: p/q, steps: [] }",
    "{ process: p, steps: }",
    "{ process: p, steps: {} }",
    "{ process: p, steps: [], stesp: [] }",
    "{ process: p, title: 7, steps: [] }",
    "{ process: p, title: '', steps: [] }",
    // Data.
    "{ process: p, steps: [], data: [a] }",
    "{ process: p, steps: [], data: { a: integer } }",
    "{ process: p, steps: [], data: { a: } }",
    "{ process: p, steps: [], data: { A: int } }",
    "{ process: p, steps: [], data: { a-b: int } }",
    "{ process: p, steps: [], data: { in: int } }",
    "{ process: p, steps: [], data: { a: { title: A } } }",
    "{ process: p, steps: [], data: { a: { type: int, unit: m } } }",
    "{ process: p, steps: [], data: { a: int }, start: a }",
    "{ process: p, steps: [], data: { a: int }, start: [a, a] }",
    "{ process: p, steps: [], data: { a: int }, start: ['a??'] }",
    "{ process: p, steps: [], data: { a: int }, start: [1] }",
    // Blocks.
    "{ process: p, steps: [x] }",
    "{ process: p, steps: [{}] }",
    "{ process: p, steps: [{ name: s, job: j }] }",
    "{ process: p, steps: [{ step: s, loop: l, job: j }] }",
    // Steps.
    "{ process: p, steps: [{ step: s }] }",
    "{ process: p, steps: [{ step: start, job: j }] }",
    "{ process: p, steps: [{ step: s.t, job: j }] }",
    "{ process: p, steps: [{ step: s, job: j, who: Agent() }] }",
    "{ process: p, steps: [{ step: s, job: J }] }",
    "{ process: p, steps: [{ step: s, who: 7 }] }",
    "{ process: p, steps: [{ step: s, who: Agent(), retry: { times: 1 } }] }",
    "{ process: p, steps: [{ step: s, job: j, retry: 3 }] }",
    "{ process: p, steps: [{ step: s, job: j, retry: { times: -1 } }] }",
    "{ process: p, steps: [{ step: s, job: j, retry: { times: 1.5 } }] }",
    "{ process: p, steps: [{ step: s, job: j, retry: { pause: 10 } }] }",
    "{ process: p, steps: [{ step: s, job: j, retry: { pauses: 10s } }] }",
    "{ process: p, steps: [{ step: s, job: j, size: 0 }] }",
    "{ process: p, steps: [{ step: s, job: j, size: 2000000000 }] }",
    "{ process: p, steps: [{ step: s, job: j, priority: 10 }] }",
    "{ process: p, steps: [{ step: s, job: j, takes: soon }] }",
    "{ process: p, steps: [{ step: s, job: j, takes: 15 }] }",
    "{ process: p, steps: [{ step: s, job: j, at: 15 }] }",
    "{ process: p, steps: [{ step: s, job: j, undo: j }] }",
    "{ process: p, steps: [{ step: s, job: j, undo: {} }] }",
    "{ process: p, steps: [{ step: s, job: j, undo: { job: j, who: Agent() } }] }",
    "{ process: p, steps: [{ step: s, job: j, after: t }] }",
    "{ process: p, steps: [{ step: s, job: j, when: true }] }",
    // Parallels.
    "{ process: p, steps: [{ parallel: a }] }",
    "{ process: p, steps: [{ parallel: a, branches: {} }] }",
    "{ process: p, steps: [{ parallel: a, branches: [] }] }",
    "{ process: p, steps: [{ parallel: a, branches: [{}] }] }",
    "{ process: p, steps: [{ parallel: a, branches: [{}, x] }] }",
    "{ process: p, steps: [{ parallel: a, branches: [{}, { when: true }] }] }",
    "{ process: p, steps: [{ parallel: a, branches: [{}, { name: X }] }] }",
    "{ process: p, steps: [{ parallel: a, branches: [{}, {}], who: Agent() }] }",
    // Choices.
    "{ process: p, steps: [{ choice: a, branches: [{ when: true }] }] }",
    "{ process: p, steps: [{ choice: a, branches: [{ when: true }, {}] }] }",
    "{ process: p, steps: [{ choice: a, branches: [{ when: true }, { when: 7 }] }] }",
    "{ process: p, steps: [{ choice: a, branches: [{ when: true }, { otherwise: false }] }] }",
    "{ process: p, steps: [{ choice: a, branches: [{ otherwise: true }, { otherwise: true }] }] }",
    "{ process: p, steps: [{ choice: a, branches: [{ when: true }, { when: true, otherwise: true }] }] }",
    "{ process: p, steps: [{ choice: a, takes: 1h, branches: [{ when: true }, { otherwise: true }] }] }",
    "{ process: p, steps: [{ choice: a, who: Agent(), branches: [{ name: x }, {}] }] }",
    "{ process: p, steps: [{ choice: a, who: Agent(), branches: [{ name: x }, { name: y, when: true }] }] }",
    // Loops.
    "{ process: p, steps: [{ loop: a, until: true }] }",
    "{ process: p, steps: [{ loop: a, until: true, steps: [] }] }",
    "{ process: p, steps: [{ loop: a, steps: [{ step: s, job: j }] }] }",
    "{ process: p, steps: [{ loop: a, until: true, who: Agent(), steps: [{ step: s, job: j }] }] }",
    "{ process: p, steps: [{ loop: a, until: true, max: 0, steps: [{ step: s, job: j }] }] }",
    "{ process: p, steps: [{ loop: a, until: true, max: many, steps: [{ step: s, job: j }] }] }",
    "{ process: p, steps: [{ loop: a, until: true, rounds: 0, steps: [{ step: s, job: j }] }] }",
    "{ process: p, steps: [{ loop: a, until: true, rounds: 101, steps: [{ step: s, job: j }] }] }",
    "{ process: p, steps: [{ loop: a, until: true, at: x, steps: [{ step: s, job: j }] }] }",
    // Deep inside.
    "{ process: p, steps: [{ parallel: a, branches: [{}, { steps: [{ loop: b, until: true, steps: [{ step: S, job: j }] }] }] }] }",
];

#[test]
fn what_the_schema_refuses_the_reader_refuses() {
    let validator = validator();
    for source in REFUSED {
        assert!(!validator.is_valid(&to_json(source)), "the schema accepts {source}");
        assert!(!yaml::parse(source).1.is_empty(), "the reader accepts {source}");
    }
}

/// Accepted by the schema and by the reader.
const ACCEPTED: &[&str] = &[
    "{ process: p, steps: [] }",
    "{ process: p, title: T, data: { a: int, b: { type: file, title: B } }, start: [a, b?], result: [a], steps: [] }",
    "{ process: p, steps: [{ step: s, who: Agent(), takes: 2d, at: x, undo: { job: j, retry: { times: 0, pause: 1ms } } }] }",
    "{ process: p, steps: [{ parallel: a, branches: [{}, { name: x, title: X, steps: [] }] }] }",
    "{ process: p, data: { b: bool }, start: [b], steps: [{ choice: a, branches: [{ when: b }, { otherwise: true }] }] }",
    "{ process: p, steps: [{ choice: a, who: Agent(), takes: 1h, branches: [{ name: x }, { name: y }] }] }",
    "{ process: p, steps: [{ loop: a, until: true, max: 3, rounds: 3, steps: [{ step: s, job: j }] }] }",
    "{ process: p, steps: [{ loop: a, who: Agent(), at: x, steps: [{ step: s, job: j }] }] }",
];

#[test]
fn what_the_reader_accepts_the_schema_accepts() {
    let validator = validator();
    for source in ACCEPTED {
        assert_eq!(yaml::parse(source).1, vec![], "{source}");
        let errors: Vec<String> =
            validator.iter_errors(&to_json(source)).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new(), "{source}");
    }
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn random_definitions_are_valid(
        definition in definition(Options { details: true, ..Options::default() })
    ) {
        let text = yaml::write(&definition);
        prop_assert!(validator().is_valid(&to_json(&text)), "{}", text);
    }
}
