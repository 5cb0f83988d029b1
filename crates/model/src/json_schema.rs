//! The published JSON Schema of definitions, for editors and other programs.
//!
//! It describes the structure only: whatever it refuses `yaml::parse` refuses too, and the names,
//! fields and limits come from there. Checks that span several places (references, data flow,
//! conditions) are left to `check`.

use std::ops::RangeInclusive;

use serde_json::{Value, json};

use crate::definition::{Availability, Demand, Late, Retry};
use crate::time::format_duration;
use crate::value::ValueType;
use crate::yaml::fields::{EXPRESSION_LEN_MAX, NAME_LEN_MAX, TITLE_LEN_MAX};
use crate::yaml::{
    BRANCHES_MAX, CONDITION_WORDS, ELEMENTS_MAX, ITERATIONS_DEFAULT, ITERATIONS_MAX, JOB_FIELDS,
    RETRIES_MAX, ROUNDS_DEFAULT, ROUNDS_MAX, SIZE_MAX,
};

/// The JSON Schema (draft 2020-12) of a definition.
pub fn definition() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:legwork:schema:definition",
        "title": "Legwork process definition",
        "description": "A process: its data, its steps, and who or what does them.",
        "type": "object",
        "required": ["process", "steps"],
        "additionalProperties": false,
        "properties": {
            "process": described(
                name(),
                "The name of the process. Deploying it again makes a new version of it.",
                json!(["loan"]),
            ),
            "title": title("What people read.", "Loan with four eyes"),
            "availability": {
                "description": "Whether cases wait while their server is down, or another takes \
                                over.",
                "enum": Availability::ALL.map(Availability::word),
                "default": Availability::default().word(),
            },
            "late": late(),
            "data": data(),
            "start": uses(
                "The elements given when an instance starts; `?` makes one optional.",
                json!([["applicant", "amount", "note?"]]),
            ),
            "result": uses(
                "The elements an instance answers with when it has ended.",
                json!([["approved"]]),
            ),
            "steps": steps("What is done, one after the other."),
        },
        "$defs": {
            "block": block(),
            "step": step(),
            "parallel": parallel(),
            "choice": choice(),
            "loop": repeat(),
            "branch": branch(),
            "guarded-branch": guarded_branch(),
            "answer-branch": answer_branch(),
            "retry": retry(),
            "undo": undo(),
        },
    })
}

fn late() -> Value {
    let words = Late::WORDS.map(|(word, _)| word);
    json!({
        "description": "What is done when the deadline of a case passes. People are told in any case; \
                        `extend` makes the deadline so much later.",
        "oneOf": [
            { "enum": words },
            {
                "type": "object",
                "required": ["extend"],
                "additionalProperties": false,
                "properties": { "extend": duration("How much later the deadline becomes.", "2d") },
            },
        ],
        "default": words[0],
        "examples": ["abort", { "extend": "2d" }],
    })
}

fn data() -> Value {
    let types: Vec<&str> = ValueType::ALL.map(ValueType::name).to_vec();
    let kind = json!({
        "description": "The type of the element.",
        "enum": types,
    });
    json!({
        "description": "The data elements of the process: `name: type`, or a mapping with `type` \
                        and `title`.",
        "type": "object",
        "maxProperties": ELEMENTS_MAX,
        "propertyNames": {
            "pattern": format!("^[a-z][a-z0-9_]{{0,{}}}$", NAME_LEN_MAX - 1),
            "not": { "enum": CONDITION_WORDS },
        },
        "additionalProperties": {
            "oneOf": [
                kind,
                {
                    "type": "object",
                    "required": ["type"],
                    "additionalProperties": false,
                    "properties": {
                        "type": kind,
                        "title": title("What people read.", "Amount asked for"),
                    },
                },
            ],
        },
        "examples": [{ "applicant": "string", "amount": { "type": "decimal", "title": "Amount" } }],
    })
}

fn block() -> Value {
    let kinds = ["step", "parallel", "choice", "loop"];
    let kinds = kinds.map(|kind| json!({ "$ref": format!("#/$defs/{kind}") }));
    json!({
        "description": "A step, or a block of steps: `step`, `parallel`, `choice` or `loop`.",
        "type": "object",
        "oneOf": kinds,
    })
}

fn step() -> Value {
    let mut step = object(
        "A piece of work: for a person (`who`) or for a program (`job`).",
        &["step"],
        json!({
            "step": block_name("The name of the step.", "capture"),
            "title": title("What people read.", "Capture the application"),
            "who": who("Who may do it. Without a `job` a step is done by a person."),
            "job": described(
                name(),
                "The type of job that programs ask for. A step with a `job` is automatic.",
                json!(["credit-score"]),
            ),
            "retry": { "$ref": "#/$defs/retry" },
            "size": measure(
                "How much there is to do, in whatever unit the type of job has: a number, or an \
                 element that it reads (`int`, `decimal`, or `file` for its bytes).",
                1..=SIZE_MAX,
                json!([10, "pages"]),
            ),
            "priority": measure(
                "Which of the jobs that wait goes first, from 0 to 9: a number, or an element that \
                 it reads.",
                0..=Demand::<()>::PRIORITY_MAX,
                json!([7, "urgency"]),
            ),
            "timeout": duration(
                "How long an executor may take, once it has begun, before another one is tried.",
                "60s",
            ),
            "reads": uses("The elements it is given; `?` makes one optional.", json!([["amount"]])),
            "writes": uses(
                "The elements it answers with; `?` makes one optional.",
                json!([["risk", "note?"]]),
            ),
            "after": syncs(
                "Steps of other branches of a parallel that it waits for. If one of them is \
                 skipped, it goes ahead.",
            ),
            "requires": syncs(
                "Steps of other branches of a parallel that it waits for. If one of them is \
                 skipped, so is this step.",
            ),
            "at": at(),
            "takes": duration("How long it is expected to take.", "15m"),
            "mail": mail(),
            "undo": { "$ref": "#/$defs/undo" },
        }),
    );
    insert(&mut step, "oneOf", worker());
    step
}

/// A whole number, or the name of an element that holds one.
fn measure(description: &str, range: RangeInclusive<u32>, examples: Value) -> Value {
    let number = json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() });
    described(json!({ "oneOf": [number, name()] }), description, examples)
}

/// Exactly one of `who` and `job`; some fields only with a job.
fn worker() -> Value {
    let of_jobs = ["job"].into_iter().chain(JOB_FIELDS);
    let of_jobs: Vec<Value> = of_jobs.map(|key| json!({ "required": [key] })).collect();
    json!([
        { "required": ["who"], "not": { "anyOf": of_jobs } },
        { "required": ["job"], "not": { "anyOf": [{ "required": ["who"] }, { "required": ["mail"] }] } },
    ])
}

fn parallel() -> Value {
    object(
        "Branches that all run, at the same time.",
        &["parallel", "branches"],
        json!({
            "parallel": block_name("The name of the block.", "inspect"),
            "title": title("What people read.", "Inspect car and papers"),
            "branches": branches("branch", "The branches, at least two."),
        }),
    )
}

fn choice() -> Value {
    let mut choice = object(
        "Branches of which one is taken: by the conditions of the branches or, with `who`, by a \
         person.",
        &["choice", "branches"],
        json!({
            "choice": block_name("The name of the block.", "route"),
            "title": title("What people read.", "How much is asked for?"),
            "who": who("Who decides. Without it, the conditions of the branches do."),
            "reads": uses("The elements the person is shown.", json!([["risk"]])),
            "at": at(),
            "takes": duration("How long the decision is expected to take.", "1h"),
            "mail": mail(),
            "branches": { "description": "The branches, at least two." },
        }),
    );
    insert(&mut choice, "dependentRequired", decider_fields());
    let mut guarded = branches("guarded-branch", "The branches, each with its condition.");
    let otherwise = json!({ "type": "object", "required": ["otherwise"] });
    insert(&mut guarded, "contains", otherwise);
    insert(&mut guarded, "minContains", json!(0));
    insert(&mut guarded, "maxContains", json!(1));
    let answers = branches("answer-branch", "The branches, each named as the person answers.");
    insert(&mut choice, "if", json!({ "required": ["who"] }));
    insert(&mut choice, "then", json!({ "properties": { "branches": answers } }));
    insert(&mut choice, "else", json!({ "properties": { "branches": guarded } }));
    choice
}

fn repeat() -> Value {
    let mut body = steps("What is repeated.");
    insert(&mut body, "minItems", json!(1));
    let mut repeat = object(
        "Steps that are done at least once, and again until a condition holds or a person leaves \
         the loop.",
        &["loop", "steps"],
        json!({
            "loop": block_name("The name of the loop.", "cycle"),
            "title": title("What people read.", "Chemotherapy cycle"),
            "steps": body,
            "until": condition("The loop ends when this is true.", "cured || cycles >= 6"),
            "who": who("The person who answers `repeat` or `leave` after each round."),
            "reads": uses("The elements the person is shown.", json!([["cycles"]])),
            "at": at(),
            "takes": duration("How long the decision is expected to take.", "1h"),
            "mail": mail(),
            "max": {
                "description": "Going round more often than this is an incident.",
                "type": "integer",
                "minimum": 1,
                "maximum": ITERATIONS_MAX,
                "default": ITERATIONS_DEFAULT,
                "examples": [20],
            },
            "rounds": {
                "description": "For so many rounds time is reserved when a deadline is promised; \
                                at most as many as `max`.",
                "type": "integer",
                "minimum": 1,
                "maximum": ROUNDS_MAX,
                "default": ROUNDS_DEFAULT,
                "examples": [2],
            },
        }),
    );
    insert(&mut repeat, "dependentRequired", decider_fields());
    let one = json!([{ "required": ["until"] }, { "required": ["who"] }]);
    insert(&mut repeat, "oneOf", one);
    repeat
}

fn branch() -> Value {
    let mut branch = object("One of the branches that all run.", &[], branch_properties(&[]));
    insert(&mut branch, "examples", json!([{ "name": "car", "steps": [] }]));
    branch
}

fn guarded_branch() -> Value {
    let properties = branch_properties(&[
        ("when", condition("The branch is taken if this is true.", "amount < 1000")),
        (
            "otherwise",
            json!({
                "description": "The branch is taken if no other one's condition is true.",
                "const": true,
            }),
        ),
    ]);
    let mut branch = object("A branch with its condition.", &[], properties);
    let one = json!([{ "required": ["when"] }, { "required": ["otherwise"] }]);
    insert(&mut branch, "oneOf", one);
    insert(&mut branch, "examples", json!([{ "name": "small", "when": "amount < 1000" }]));
    branch
}

fn answer_branch() -> Value {
    let mut branch = object("A branch a person can choose.", &["name"], branch_properties(&[]));
    insert(&mut branch, "examples", json!([{ "name": "approve", "title": "Approve the loan" }]));
    branch
}

fn branch_properties(further: &[(&str, Value)]) -> Value {
    let mut properties = json!({
        "name": described(
            name(),
            "The name of the branch. Where a person decides it is the answer; elsewhere it may be \
             left out and is then its number.",
            json!(["small"]),
        ),
        "title": title("What people read.", "Approve the loan"),
        "steps": steps("What is done in this branch; nothing if left out."),
    });
    further.iter().for_each(|(key, property)| insert(&mut properties, key, property.clone()));
    properties
}

fn retry() -> Value {
    object(
        "How often, and after which pause, a failed job is repeated before it becomes an incident. \
         The pause doubles with each repetition, up to an hour.",
        &[],
        json!({
            "times": {
                "description": "How often it is repeated.",
                "type": "integer",
                "minimum": 0,
                "maximum": RETRIES_MAX,
                "default": Retry::DEFAULT.times,
                "examples": [3],
            },
            "pause": duration(
                &format!(
                    "The pause before the first repetition; {} if left out.",
                    format_duration(Retry::DEFAULT.pause)
                ),
                "10s",
            ),
        }),
    )
}

fn undo() -> Value {
    let mut undo = object(
        "The work that undoes this step.",
        &[],
        json!({
            "who": who("Who may undo it."),
            "job": described(name(), "The type of job that undoes it.", json!(["cancel-loan"])),
            "retry": { "$ref": "#/$defs/retry" },
        }),
    );
    insert(&mut undo, "oneOf", worker());
    undo
}

fn object(description: &str, required: &[&str], properties: Value) -> Value {
    json!({
        "description": description,
        "type": "object",
        "required": required,
        "additionalProperties": false,
        "properties": properties,
    })
}

fn steps(description: &str) -> Value {
    json!({
        "description": description,
        "type": "array",
        "items": { "$ref": "#/$defs/block" },
    })
}

fn branches(kind: &str, description: &str) -> Value {
    json!({
        "description": description,
        "type": "array",
        "minItems": 2,
        "maxItems": BRANCHES_MAX,
        "items": { "$ref": format!("#/$defs/{kind}") },
    })
}

fn name() -> Value {
    json!({ "type": "string", "pattern": format!("^[a-z][a-z0-9_-]{{0,{}}}$", NAME_LEN_MAX - 1) })
}

fn block_name(description: &str, example: &str) -> Value {
    let mut name = described(name(), description, json!([example]));
    insert(&mut name, "not", json!({ "enum": ["start", "end"] }));
    name
}

fn uses(description: &str, examples: Value) -> Value {
    let pattern = format!("^[a-z][a-z0-9_]{{0,{}}}\\??$", NAME_LEN_MAX - 1);
    list(description, &pattern, examples)
}

fn syncs(description: &str) -> Value {
    let pattern = format!("^[a-z][a-z0-9_-]{{0,{}}}$", NAME_LEN_MAX - 1);
    list(description, &pattern, json!([["inspect-car"]]))
}

fn list(description: &str, pattern: &str, examples: Value) -> Value {
    let list = json!({
        "type": "array",
        "uniqueItems": true,
        "items": { "type": "string", "pattern": pattern },
    });
    described(list, description, examples)
}

fn title(description: &str, example: &str) -> Value {
    let text = json!({ "type": "string", "minLength": 1, "maxLength": TITLE_LEN_MAX });
    described(text, description, json!([example]))
}

fn at() -> Value {
    let text = json!({ "type": "string", "minLength": 1, "maxLength": EXPRESSION_LEN_MAX });
    let examples = json!([
        "branch-office",
        "executor",
        "Server(capture)",
        "Domain(Actor(capture))",
        "Domain(Actor(capture)) WITH ulm = stuttgart",
    ]);
    described(text, "Where it is controlled; left out, where the step before it is.", examples)
}

fn who(description: &str) -> Value {
    let text = json!({ "type": "string", "minLength": 1, "maxLength": EXPRESSION_LEN_MAX });
    let examples = json!([
        "Role(clerk)",
        "OrgUnit(sales*) AND Ability(french)",
        "Role(manager) EXCEPT NodePerformingAgent(capture)",
    ]);
    described(text, description, examples)
}

fn condition(description: &str, example: &str) -> Value {
    let text = json!({
        "type": ["string", "boolean"],
        "minLength": 1,
        "maxLength": EXPRESSION_LEN_MAX,
    });
    described(text, description, json!([example]))
}

fn duration(description: &str, example: &str) -> Value {
    let text = json!({ "type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$" });
    described(text, description, json!([example]))
}

/// Fields that apply only to a person who decides.
fn decider_fields() -> Value {
    json!({ "reads": ["who"], "at": ["who"], "takes": ["who"], "mail": ["who"] })
}

/// The elements shown in letters.
fn mail() -> Value {
    let names = json!({ "type": "array", "items": name(), "uniqueItems": true });
    let description =
        "What of the elements that it reads a letter about it shows, and nothing else.";
    described(names, description, json!([["amount"]]))
}

fn described(mut schema: Value, description: &str, examples: Value) -> Value {
    insert(&mut schema, "description", json!(description));
    insert(&mut schema, "examples", examples);
    schema
}

fn insert(schema: &mut Value, key: &str, value: Value) {
    if let Value::Object(fields) = schema {
        fields.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::yaml::known_fields as known;

    fn properties(pointer: &str) -> BTreeSet<String> {
        let schema = definition();
        let properties = schema.pointer(&format!("{pointer}/properties")).cloned();
        let Some(Value::Object(properties)) = properties else { panic!("{pointer}") };
        properties.keys().cloned().collect()
    }

    #[test]
    fn every_field_the_reader_knows_is_described() {
        for (pointer, fields) in [
            ("", &known::PROCESS_FIELDS[..]),
            ("/properties/late/oneOf/1", &known::LATE_FIELDS),
            ("/properties/data/additionalProperties/oneOf/1", &known::ELEMENT_FIELDS),
            ("/$defs/step", &known::STEP_FIELDS),
            ("/$defs/parallel", &known::PARALLEL_FIELDS),
            ("/$defs/choice", &known::CHOICE_FIELDS),
            ("/$defs/loop", &known::LOOP_FIELDS),
            ("/$defs/guarded-branch", &known::BRANCH_FIELDS),
            ("/$defs/retry", &known::RETRY_FIELDS),
            ("/$defs/undo", &known::UNDO_FIELDS),
        ] {
            let fields: BTreeSet<String> = fields.iter().map(|&field| field.to_owned()).collect();
            assert_eq!(properties(pointer), fields, "{pointer}");
        }
    }

    #[test]
    fn every_property_says_what_it_is_for() {
        fn walk(schema: &Value, path: &str) {
            if let Some(Value::Object(properties)) = schema.get("properties") {
                for (key, property) in properties {
                    let said = property.get("description").is_some()
                        || property.get("$ref").is_some()
                        || path.contains("/then")
                        || path.contains("/else");
                    assert!(said, "{path}/{key} has no description");
                }
            }
            match schema {
                Value::Object(fields) => {
                    fields.iter().for_each(|(key, field)| walk(field, &format!("{path}/{key}")));
                }
                Value::Array(items) => items.iter().for_each(|item| walk(item, path)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        walk(&definition(), "");
    }
}
