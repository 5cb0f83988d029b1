//! Reads a definition: its head, its data elements, and the blocks through `blocks`.
//!
//! Reading goes on after a mistake. A definition is returned only if nothing was left out, so that
//! further checks refer only to the author's text.

use std::sync::Arc;

use super::blocks::Blocks;
use super::fields::{self, Fields, quote};
use super::nearest::nearest;
use super::report::Report;
use super::tree::{self, Content, Node};
use crate::definition::{Availability, Definition, Element};
use crate::finding::{Finding, Rule, Spanned};
use crate::value::ValueType;

/// The most data elements a process may have.
pub const ELEMENTS_MAX: usize = 500;

pub(crate) const PROCESS_FIELDS: [&str; 8] =
    ["process", "title", "availability", "late", "data", "start", "result", "steps"];
pub(crate) const ELEMENT_FIELDS: [&str; 2] = ["type", "title"];

/// Words of the condition language that cannot name an element.
pub(crate) const CONDITION_WORDS: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Names of our types in other languages.
const SYNONYMS: [(&str, &str); 8] = [
    ("boolean", "bool"),
    ("integer", "int"),
    ("number", "decimal"),
    ("float", "decimal"),
    ("money", "decimal"),
    ("text", "string"),
    ("date", "date-time"),
    ("timestamp", "date-time"),
];

/// Reads a definition and reports all mistakes, in the order of the text.
///
/// Without an error among the findings there is a definition, and it compiles unless its sync
/// edges form a cycle, which `check` finds.
pub fn parse(source: &str) -> (Option<Definition>, Vec<Finding>) {
    let mut report = Report::default();
    let definition = tree::read(source, &mut report).and_then(|root| process(&root, &mut report));
    let whole = definition.filter(|_| !report.is_incomplete());
    (whole, report.into_findings())
}

fn process(root: &Node, report: &mut Report) -> Option<Definition> {
    let mut fields = Fields::of(root, "a definition", report)?;
    let name = fields
        .required("process", "begin the file with `process: ` and a name", report)
        .and_then(|node| fields::name(node, "the name of the process", report));
    if let Some(name) = &name {
        fields.describe(format!("process `{}`", name.value));
    }
    fields.refuse_unknown(&PROCESS_FIELDS, report);
    let title = fields.value("title").and_then(|node| fields::title(node, "the title", report));
    let availability = fields.value("availability").and_then(|node| availability(node, report));
    let mut blocks = Blocks::new(report);
    let late = fields.value("late").and_then(|node| blocks.late(node));
    let data = fields.value("data").map_or_else(Vec::new, |node| elements(node, &mut blocks));
    let start = blocks.uses(&fields, "start");
    let result = blocks.uses(&fields, "result");
    let hint = "write `steps:` and, below, a list of `- step: …`";
    let steps = fields
        .required("steps", hint, blocks.report)
        .map(|node| blocks.sequence(node, "`steps` of the process"));
    blocks.names.resolve(blocks.report);
    let process = name?;
    Some(Definition { process, title, availability, late, start, result, data, steps: steps? })
}

fn availability(node: &Node, report: &mut Report) -> Option<Spanned<Availability>> {
    let text = fields::text(node, "`availability`", fields::NAME_LEN_MAX, report)?;
    let known = Availability::ALL.into_iter().find(|each| each.word() == text.value);
    if known.is_none() {
        let message = format!("`availability` cannot be {}", quote(text.value));
        let hint =
            format!("write one of {}", fields::list(&Availability::ALL.map(Availability::word)));
        report.error(text.span, Rule::Y2, message, hint);
    }
    known.map(|known| Spanned::new(known, text.span))
}

fn elements(node: &Node, blocks: &mut Blocks<'_>) -> Vec<Element> {
    let Some(fields) = Fields::of(node, "`data`", blocks.report) else {
        blocks.names.elements_unknown = true;
        blocks.report.mark_incomplete();
        return Vec::new();
    };
    let mut elements = Vec::new();
    for (place, (key, value)) in fields.iter().enumerate() {
        if place == ELEMENTS_MAX {
            let message = format!("there are more than {ELEMENTS_MAX} data elements");
            let hint = "put what belongs together into one element of type `json`";
            blocks.report.error(key.span, Rule::Y3, message, hint);
            blocks.report.mark_incomplete();
            blocks.names.elements_unknown = true;
            break;
        }
        let what = format!("element {}", quote(key.value));
        let read = element_type(value, &what, blocks.report);
        let Some(name) = element_name(key, blocks.report) else {
            blocks.report.mark_incomplete();
            continue;
        };
        blocks.names.declare_element(&name, blocks.report);
        match read {
            Some((kind, title)) => elements.push(Element { name, kind, title }),
            None => blocks.report.mark_incomplete(),
        }
    }
    elements
}

/// An element's name must also be valid in conditions, where `-` is minus.
fn element_name(key: Spanned<&str>, report: &mut Report) -> Option<Spanned<Arc<str>>> {
    let name = fields::name_text(key, "the name of a data element", report)?;
    if name.value.contains('-') {
        let message = format!("the name of a data element cannot be `{}`", name.value);
        let hint =
            format!("write `{}`: in a condition `-` would be minus", name.value.replace('-', "_"));
        report.error(name.span, Rule::Y2, message, hint);
        return None;
    }
    if CONDITION_WORDS.contains(&&*name.value) {
        let message = format!("`{}` is a word of the condition language", name.value);
        report.error(name.span, Rule::Y2, message, "choose another name");
        return None;
    }
    Some(name)
}

/// Either the type itself, or a mapping with `type` and `title`.
fn element_type(
    node: &Node,
    what: &str,
    report: &mut Report,
) -> Option<(ValueType, Option<String>)> {
    match &node.content {
        Content::Scalar(_) => Some((value_type(node, what, report)?, None)),
        Content::Mapping(_) => {
            let fields = Fields::of(node, what, report)?;
            fields.refuse_unknown(&ELEMENT_FIELDS, report);
            let title = fields
                .value("title")
                .and_then(|node| fields::title(node, &format!("the title of {what}"), report));
            let node = fields.required("type", &type_hint(), report)?;
            Some((value_type(node, what, report)?, title))
        }
        Content::List(_) => {
            let message = format!("{what} must have a type, not a list");
            report.error(node.span, Rule::D3, message, type_hint());
            None
        }
    }
}

fn value_type(node: &Node, what: &str, report: &mut Report) -> Option<ValueType> {
    let text = node.scalar().map_or("", |scalar| &scalar.text);
    let kind = ValueType::named(text);
    if kind.is_none() {
        let names = ValueType::ALL.map(ValueType::name);
        let synonym = SYNONYMS.iter().find(|(word, _)| *word == text).map(|(_, name)| *name);
        let hint = match synonym.or_else(|| nearest(text, names.into_iter())) {
            Some(near) => format!("did you mean `{near}`?"),
            None => type_hint(),
        };
        let message = match text {
            "" => format!("{what} needs a type"),
            text => format!("{what}: there is no type {}", quote(text)),
        };
        report.error(node.span, Rule::D3, message, hint);
    }
    kind
}

fn type_hint() -> String {
    format!("types are {}", fields::list(&ValueType::ALL.map(ValueType::name)))
}
