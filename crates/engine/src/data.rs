//! The outputs of a step, checked against its declared writes.
//!
//! Invariant: accepted data has the declared types, each element once and every mandatory one;
//! anything else is refused before it can reach a history.

pub(crate) mod precedence;
pub(crate) mod versions;

use std::collections::BTreeMap;

use legwork_model::id::{ElementId, NodeId};
use legwork_model::schema::{Node, Schema};
use legwork_model::value::{Mismatch, Value};

use crate::rejection::Rejection;

/// Reads the outputs of a step from JSON.
pub fn typed(
    schema: &Schema,
    node: NodeId,
    outputs: &BTreeMap<String, serde_json::Value>,
) -> Result<Vec<(ElementId, Value)>, Rejection> {
    let node = schema.nodes.get(node.0 as usize).ok_or(Rejection::NoSuchActivity)?;
    let mut read = Vec::with_capacity(outputs.len());
    for (name, json) in outputs {
        let Some(element) = schema.element_named(name) else {
            return Err(Rejection::UnknownElement {
                element: name.clone(),
                step: node.name.to_string(),
                writes: writes(schema, node),
            });
        };
        writable(schema, node, element)?;
        let kind = schema.element(element).kind;
        let value = Value::from_json(kind, json).map_err(|mismatch| Rejection::WrongType {
            element: name.clone(),
            kind,
            mismatch,
        })?;
        read.push((element, value));
    }
    complete(schema, node, &read)?;
    Ok(read)
}

/// Reads the inputs of a new instance from JSON.
pub fn inputs_typed(
    schema: &Schema,
    inputs: &BTreeMap<String, serde_json::Value>,
) -> Result<Vec<(ElementId, Value)>, Rejection> {
    typed(schema, Schema::START, inputs)
}

/// The code of an answer given by its name, at a decision.
pub fn answer(schema: &Schema, node: NodeId, answer: &str) -> Result<u32, Rejection> {
    let node = schema.nodes.get(node.0 as usize).ok_or(Rejection::NoSuchActivity)?;
    let answers = node.answers();
    if answers.is_empty() {
        return Err(Rejection::AnswerUnexpected { step: node.name.to_string() });
    }
    match answers.iter().position(|known| *known == answer) {
        Some(code) => Ok(code as u32),
        None => Err(answer_unknown(node)),
    }
}

/// Refuses outputs that a node may not write, lacks, or that have a wrong type.
pub(crate) fn check(
    schema: &Schema,
    node: &Node,
    outputs: &[(ElementId, Value)],
) -> Result<(), Rejection> {
    for (place, (element, value)) in outputs.iter().enumerate() {
        writable(schema, node, *element)?;
        let declared = schema.element(*element);
        if value.kind() != declared.kind {
            return Err(Rejection::WrongType {
                element: declared.name.to_string(),
                kind: declared.kind,
                mismatch: Mismatch::Type {
                    expected: declared.kind.name(),
                    found: value.kind().name().to_owned(),
                },
            });
        }
        if outputs[..place].iter().any(|(earlier, _)| earlier == element) {
            return Err(Rejection::GivenTwice { element: declared.name.to_string() });
        }
    }
    complete(schema, node, outputs)
}

pub(crate) fn answer_unknown(node: &Node) -> Rejection {
    Rejection::AnswerUnknown { step: node.name.to_string(), answers: answers(node) }
}

pub(crate) fn answers(node: &Node) -> Vec<String> {
    node.answers().into_iter().map(str::to_owned).collect()
}

fn writable(schema: &Schema, node: &Node, element: ElementId) -> Result<(), Rejection> {
    if node.writes.iter().any(|access| access.element == element) {
        return Ok(());
    }
    let (step, writes) = (node.name.to_string(), writes(schema, node));
    Err(match schema.elements.get(element.0 as usize) {
        Some(known) => Rejection::NotWritten { element: known.name.to_string(), step, writes },
        None => {
            Rejection::UnknownElement { element: format!("number {}", element.0), step, writes }
        }
    })
}

fn complete(schema: &Schema, node: &Node, outputs: &[(ElementId, Value)]) -> Result<(), Rejection> {
    let given = |element| outputs.iter().any(|(given, _)| *given == element);
    let missing = node.writes.iter().find(|access| !access.optional && !given(access.element));
    match missing {
        None => Ok(()),
        Some(access) => {
            let element = schema.element(access.element).name.to_string();
            Err(if node.id == Schema::START {
                Rejection::MissingInput { element }
            } else {
                Rejection::MissingOutput { element, step: node.name.to_string() }
            })
        }
    }
}

fn writes(schema: &Schema, node: &Node) -> Vec<String> {
    node.writes.iter().map(|access| schema.element(access.element).name.to_string()).collect()
}
