//! Reads the fields of a mapping: which exist, which are missing, and their kinds.
//!
//! Every function reports mistakes at their places and returns `None`, so that the caller can go on
//! with the next field.

use std::sync::Arc;

use super::nearest::nearest;
use super::report::Report;
use super::tree::{Content, Node, Scalar, ScalarKind};
use crate::finding::{Rule, Span, Spanned};

/// The longest name, in characters.
pub const NAME_LEN_MAX: usize = 64;
/// The longest title, in characters.
pub const TITLE_LEN_MAX: usize = 500;
/// The longest condition or assignment rule, in characters.
pub const EXPRESSION_LEN_MAX: usize = 2_000;

/// The fields of one mapping, by key.
pub struct Fields<'t> {
    /// What the mapping describes, for messages: "step `capture`".
    what: String,
    span: Span,
    entries: Vec<Field<'t>>,
}

struct Field<'t> {
    key: &'t str,
    span: Span,
    value: &'t Node,
}

impl<'t> Fields<'t> {
    /// The fields of a node, which must be a mapping. Keys that are not text or are repeated are
    /// reported.
    pub fn of(node: &'t Node, what: impl Into<String>, report: &mut Report) -> Option<Self> {
        let what = what.into();
        let Content::Mapping(entries) = &node.content else {
            let message = format!("{what} must be a mapping of fields, not {}", node.what());
            report.error(node.span, Rule::Y2, message, "write `field: value`, one on each line");
            return None;
        };
        let mut fields = Self { what, span: node.span, entries: Vec::with_capacity(entries.len()) };
        for (key, value) in entries {
            let Some(name) = key.scalar().filter(|scalar| scalar.kind == ScalarKind::Text) else {
                let message = format!("{} is not the name of a field", key.what());
                report.error(key.span, Rule::Y2, message, "write `field: value`");
                continue;
            };
            fields.entries.push(Field { key: &name.text, span: key.span, value });
        }
        fields.refuse_repeated(report);
        Some(fields)
    }

    fn refuse_repeated(&mut self, report: &mut Report) {
        let mut first = std::collections::BTreeMap::new();
        self.entries.retain(|field| match first.get(field.key) {
            None => {
                first.insert(field.key, field.span);
                true
            }
            Some(before) => {
                let message = format!("{} is written twice, first at {before}", quote(field.key));
                report.error(field.span, Rule::Y2, message, "keep one of them");
                false
            }
        });
    }

    /// Reports all keys but the known ones.
    pub fn refuse_unknown(&self, known: &[&str], report: &mut Report) {
        for field in self.entries.iter().filter(|field| !known.contains(&field.key)) {
            let hint = match nearest(field.key, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("fields of {} are {}", self.what, list(known)),
            };
            let message = format!("{} has no field {}", self.what, quote(field.key));
            report.error(field.span, Rule::Y2, message, hint);
        }
    }

    pub fn what(&self) -> &str {
        &self.what
    }

    /// Sets a better description, once the name is known.
    pub fn describe(&mut self, what: String) {
        self.what = what;
    }

    pub fn span(&self) -> Span {
        self.span
    }

    /// The value of a field and the place of its key.
    pub fn get(&self, key: &str) -> Option<(Span, &'t Node)> {
        self.entries.iter().find(|field| field.key == key).map(|field| (field.span, field.value))
    }

    pub fn value(&self, key: &str) -> Option<&'t Node> {
        self.get(key).map(|(_, value)| value)
    }

    /// The value of a required field.
    pub fn required(&self, key: &str, hint: &str, report: &mut Report) -> Option<&'t Node> {
        let value = self.value(key);
        if value.is_none() && !self.misspells(key) {
            let message = format!("{} needs `{key}`", self.what);
            report.error(self.span, Rule::Y2, message, hint);
        }
        value
    }

    /// Whether a present field was probably meant to be this one. It is reported as unknown
    /// already; a report that this one is missing would add nothing.
    pub fn misspells(&self, key: &str) -> bool {
        self.entries.iter().any(|field| nearest(field.key, [key].into_iter()).is_some())
    }

    /// Keys and values, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = (Spanned<&'t str>, &'t Node)> + '_ {
        self.entries.iter().map(|field| (Spanned::new(field.key, field.span), field.value))
    }
}

/// A text; numbers and booleans must be quoted.
pub fn text<'t>(
    node: &'t Node,
    what: &str,
    len_max: usize,
    report: &mut Report,
) -> Option<Spanned<&'t str>> {
    let scalar = text_scalar(node, what, report)?;
    bounded(scalar, node.span, what, len_max, report)
}

/// A condition: any text, also one that YAML takes for a boolean.
pub fn expression<'t>(node: &'t Node, what: &str, report: &mut Report) -> Option<Spanned<&'t str>> {
    let scalar = match node.scalar() {
        Some(scalar) if scalar.kind == ScalarKind::Bool => scalar,
        Some(_) | None => text_scalar(node, what, report)?,
    };
    bounded(scalar, node.span, what, EXPRESSION_LEN_MAX, report)
}

/// A line of text for people.
pub fn title(node: &Node, what: &str, report: &mut Report) -> Option<String> {
    let text = text(node, what, TITLE_LEN_MAX, report)?;
    if text.value.contains(char::is_control) {
        let message = format!("{what} holds control characters");
        report.error(text.span, Rule::Y2, message, "write it as one line of plain text");
        return None;
    }
    Some(text.value.to_owned())
}

/// A whole number within bounds.
pub fn number(
    node: &Node,
    what: &str,
    range: std::ops::RangeInclusive<u32>,
    report: &mut Report,
) -> Option<u32> {
    let (least, most) = (range.start(), range.end());
    let hint = format!("write a whole number from {least} to {most}");
    let scalar = node.scalar().filter(|scalar| scalar.kind == ScalarKind::Int);
    let Some(scalar) = scalar else {
        let message = format!("{what} must be a whole number, not {}", node.what());
        report.error(node.span, Rule::Y2, message, hint);
        return None;
    };
    let number = scalar.text.parse().ok().filter(|number| range.contains(number));
    if number.is_none() {
        let message = format!("{what} cannot be {}", quote(&scalar.text));
        report.error(node.span, Rule::Y3, message, hint);
    }
    number
}

pub fn items<'t>(
    node: &'t Node,
    what: &str,
    hint: &str,
    report: &mut Report,
) -> Option<&'t [Node]> {
    if let Content::List(items) = &node.content {
        return Some(items);
    }
    let message = format!("{what} must be a list, not {}", node.what());
    report.error(node.span, Rule::Y2, message, hint);
    None
}

pub fn is_empty_list(node: &Node) -> bool {
    matches!(&node.content, Content::List(items) if items.is_empty())
}

/// A name: `[a-z][a-z0-9_-]*`, at most 64 characters.
pub fn name(node: &Node, what: &str, report: &mut Report) -> Option<Spanned<Arc<str>>> {
    let scalar = text_scalar(node, what, report)?;
    name_text(Spanned::new(&scalar.text, node.span), what, report)
}

pub fn name_text(
    text: Spanned<&str>,
    what: &str,
    report: &mut Report,
) -> Option<Spanned<Arc<str>>> {
    let Spanned { value, span } = text;
    if value.chars().count() > NAME_LEN_MAX {
        let message = format!("{what} is longer than {NAME_LEN_MAX} characters");
        report.error(span, Rule::Y3, message, "choose a shorter name and tell the rest in `title`");
        return None;
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    if value.starts_with(|c: char| c.is_ascii_lowercase()) && value.chars().all(plain) {
        return Some(Spanned::new(Arc::from(value), span));
    }
    let message = format!("{what} cannot be {}", quote(value));
    let hint = "a name begins with a letter a-z and goes on with a-z, 0-9, `-` and `_`";
    report.error(span, Rule::Y2, message, hint);
    None
}

/// Text of the document for a message: in one line, and shortened.
pub fn quote(text: &str) -> String {
    const SHOWN_MAX: usize = 64;
    let mut shown: String = text
        .chars()
        .take(SHOWN_MAX)
        .map(|c| if c.is_control() || c == '`' { ' ' } else { c })
        .collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

/// Words for a message: `a`, `b` and `c`.
pub fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

fn text_scalar<'t>(node: &'t Node, what: &str, report: &mut Report) -> Option<&'t Scalar> {
    let hint = match node.scalar() {
        Some(Scalar { kind: ScalarKind::Text, .. }) => return node.scalar(),
        Some(Scalar { kind: ScalarKind::Null, .. }) => {
            "write a text after the `:`, or leave the field out".to_owned()
        }
        Some(scalar) => format!("put it into quotes: \"{}\"", scalar.text),
        None => "write a text".to_owned(),
    };
    let message = format!("{what} must be text, not {}", node.what());
    report.error(node.span, Rule::Y2, message, hint);
    None
}

fn bounded<'t>(
    scalar: &'t Scalar,
    span: Span,
    what: &str,
    len_max: usize,
    report: &mut Report,
) -> Option<Spanned<&'t str>> {
    let text = scalar.text.trim();
    if text.is_empty() {
        let hint = "write something, or leave the field out";
        report.error(span, Rule::Y2, format!("{what} is empty"), hint);
        return None;
    }
    if text.chars().count() > len_max {
        let message = format!("{what} is longer than {len_max} characters");
        report.error(span, Rule::Y3, message, "make it shorter");
        return None;
    }
    Some(Spanned::new(text, span))
}
