//! YAML as a tree of nodes with their places.
//!
//! Reads one document of bounded size and depth; anchors, aliases and tags are refused, so a tree is
//! never larger than its text. Built on an explicit stack: no input can exhaust the thread's stack.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};

use super::report::Report;
use crate::finding::{Rule, Span};

/// The most bytes a document may have.
pub const SOURCE_BYTES_MAX: usize = 1024 * 1024;
/// The greatest depth of lists and mappings. A block inside a block takes four levels.
pub const YAML_DEPTH_MAX: usize = 160;
/// The most values (texts, lists and mappings, keys included) a document may hold.
pub const YAML_NODES_MAX: usize = 300_000;

/// Definitions and organisations share this reader.
const SMALLER: &str = "split a process into several; in an organisation, leave out what no rule \
                       speaks of and give roles to positions instead of everybody";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub span: Span,
    pub content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    Scalar(Scalar),
    List(Vec<Node>),
    /// In the order of the text; keys may repeat.
    Mapping(Vec<(Node, Node)>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    pub text: String,
    pub kind: ScalarKind,
    /// The columns between the place of the node and the first character of its text, if that text
    /// stands in one line as it is.
    pub offset: Option<u32>,
}

/// The interpretation of a scalar by the core schema of YAML 1.2; quoted scalars are text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarKind {
    Null,
    Bool,
    Int,
    Float,
    Text,
}

/// Reads the one document of a text. `None` if it cannot be read; the report then says why.
pub fn read(source: &str, report: &mut Report) -> Option<Node> {
    if source.len() > SOURCE_BYTES_MAX {
        report.error(
            Span::default(),
            Rule::Y3,
            format!("the file has more than {} MiB", SOURCE_BYTES_MAX >> 20),
            SMALLER,
        );
        return None;
    }
    let mut builder = Builder { open: Vec::new(), root: None, documents: 0, nodes: 0 };
    for event in Parser::new_from_str(source) {
        let (event, span) = match event {
            Ok((event, span)) => (event, place(&span.start)),
            Err(error) => {
                unreadable(&error, source, report);
                return None;
            }
        };
        builder.take(event, span, report)?;
    }
    if builder.root.is_none() {
        let hint = "begin it with `process: NAME`, `organisation: NAME` or `topology: NAME`";
        report.error(Span { line: 1, column: 1 }, Rule::Y2, "the file is empty", hint);
    }
    builder.root
}

struct Builder {
    /// The lists and mappings around the current place, outermost first.
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    nodes: usize,
}

enum Open {
    List(Span, Vec<Node>),
    /// A key waits for its value.
    Mapping(Span, Vec<(Node, Node)>, Option<Node>),
}

impl Builder {
    /// Processes one event; `None` stops the reading.
    fn take(&mut self, event: Event<'_>, span: Span, report: &mut Report) -> Option<()> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Some(()),
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents == 1 {
                    return Some(());
                }
                let hint = "keep one document and move the others into files of their own";
                report.error(span, Rule::Y2, "a second document begins here", hint);
                None
            }
            Event::Alias(_) => {
                refuse_anchor(span, report);
                None
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.admit(anchor, tag.is_some(), span, report)?;
                let node = Node { span, content: Content::Scalar(scalar(&text, style)) };
                self.put(node)
            }
            Event::SequenceStart(anchor, tag) => {
                self.admit(anchor, tag.is_some(), span, report)?;
                self.open(Open::List(span, Vec::new()), span, report)
            }
            Event::MappingStart(anchor, tag) => {
                self.admit(anchor, tag.is_some(), span, report)?;
                self.open(Open::Mapping(span, Vec::new(), None), span, report)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let node = match self.open.pop()? {
                    Open::List(span, items) => Node { span, content: Content::List(items) },
                    Open::Mapping(span, entries, _) => {
                        Node { span, content: Content::Mapping(entries) }
                    }
                };
                self.put(node)
            }
        }
    }

    /// Whether a node is allowed.
    fn admit(
        &mut self,
        anchor: usize,
        tagged: bool,
        span: Span,
        report: &mut Report,
    ) -> Option<()> {
        self.nodes += 1;
        if self.nodes > YAML_NODES_MAX {
            let message = format!("the file holds more than {YAML_NODES_MAX} values");
            report.error(span, Rule::Y3, message, SMALLER);
            return None;
        }
        if anchor != 0 {
            refuse_anchor(span, report);
            return None;
        }
        if tagged {
            let hint = "leave the tag (`!…`) out; the field itself says what it holds";
            report.error(span, Rule::Y2, "tags are not read", hint);
            return None;
        }
        Some(())
    }

    fn open(&mut self, node: Open, span: Span, report: &mut Report) -> Option<()> {
        if self.open.len() == YAML_DEPTH_MAX {
            too_deep(span, report);
            return None;
        }
        self.open.push(node);
        Some(())
    }

    fn put(&mut self, mut node: Node) -> Option<()> {
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open::List(_, items)) => items.push(node),
            Some(Open::Mapping(_, entries, key)) => match key.take() {
                None => *key = Some(node),
                Some(key) => {
                    // The parser places a missing value at the token after it.
                    if node.is_absent() {
                        node.span = key.span;
                    }
                    entries.push((key, node));
                }
            },
        }
        Some(())
    }
}

impl Node {
    /// The kind of the node, in words for messages.
    pub fn what(&self) -> &'static str {
        match &self.content {
            Content::List(_) => "a list",
            Content::Mapping(_) => "a mapping",
            Content::Scalar(scalar) => match scalar.kind {
                ScalarKind::Null => "nothing",
                ScalarKind::Bool => "true or false",
                ScalarKind::Int | ScalarKind::Float => "a number",
                ScalarKind::Text => "text",
            },
        }
    }

    /// The text of a scalar of any kind.
    pub fn scalar(&self) -> Option<&Scalar> {
        match &self.content {
            Content::Scalar(scalar) => Some(scalar),
            Content::List(_) | Content::Mapping(_) => None,
        }
    }

    fn is_absent(&self) -> bool {
        self.scalar()
            .is_some_and(|scalar| scalar.text.is_empty() && scalar.kind == ScalarKind::Null)
    }
}

/// Anchors would allow documents that contain themselves, or that explode when read.
fn refuse_anchor(span: Span, report: &mut Report) {
    let hint = "write the content out at each place; quote text that begins with `&` or `*`";
    report.error(span, Rule::Y3, "anchors (`&name`) and aliases (`*name`) are not read", hint);
}

fn too_deep(span: Span, report: &mut Report) {
    let message = format!("nested deeper than {YAML_DEPTH_MAX} levels");
    report.error(span, Rule::Y3, message, "flatten it; a process can be split into several");
}

fn unreadable(error: &ScanError, source: &str, report: &mut Report) {
    let span = place(error.marker());
    if let Some(tab) = indenting_tab(error.info(), source, span.line) {
        let message = "this line is indented with a tab, which YAML does not allow";
        report.error(tab, Rule::Y1, message, "replace each tab with spaces");
        return;
    }
    match error.info() {
        // The scanner looks ahead and may meet its own limit before ours.
        "recursion limit exceeded" => too_deep(span, report),
        "while parsing node, found unknown anchor" => refuse_anchor(span, report),
        info => report.error(
            span,
            Rule::Y1,
            format!("this is not YAML: {info}"),
            "look for a missing quote, a tab, a missing space after `:` or a line that is not \
             indented like its neighbours",
        ),
    }
}

/// The tab in an indentation that the scanner stopped at. Other tabs are legal, such as those in text.
fn indenting_tab(info: &str, source: &str, line: u32) -> Option<Span> {
    let mut lines = (1..).zip(source.lines());
    let (line, text) = match info {
        "tabs disallowed within this context (block indentation)"
        | "tab cannot be used as indentation" => lines.find(|(at, _)| *at == line)?,
        // The error is placed at the `|` or `>` of the line before.
        "a block scalar content cannot start with a tab" => {
            lines.find(|(at, _)| *at == line.saturating_add(1))?
        }
        // The error is placed at the start of the scalar. Lines without text may hold tabs.
        "while scanning a plain scalar, found a tab" => {
            let has_text = |text: &str| !text.is_empty() && !text.starts_with('#');
            lines.find(|(at, text)| {
                *at > line && tab_column(text).is_some() && has_text(text.trim_start())
            })?
        }
        _ => return None,
    };
    Some(Span { line, column: tab_column(text)? })
}

/// The first tab in the indentation of a line.
fn tab_column(text: &str) -> Option<u32> {
    let indent = text.chars().take_while(|character| character.is_whitespace());
    (1..).zip(indent).find(|(_, character)| *character == '\t').map(|(column, _)| column)
}

fn scalar(text: &str, style: ScalarStyle) -> Scalar {
    let one_line = !text.contains('\n');
    let (kind, offset) = match style {
        ScalarStyle::Plain => (resolve(text), one_line.then_some(0)),
        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => {
            let verbatim = one_line && !text.contains(['\'', '"', '\\']);
            (ScalarKind::Text, verbatim.then_some(1))
        }
        ScalarStyle::Literal | ScalarStyle::Folded => (ScalarKind::Text, None),
    };
    Scalar { text: text.to_owned(), kind, offset }
}

/// The interpretation of a plain scalar.
pub(super) fn resolve(text: &str) -> ScalarKind {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => ScalarKind::Null,
        "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => ScalarKind::Bool,
        _ if is_int(text) => ScalarKind::Int,
        _ if is_float(text) => ScalarKind::Float,
        _ => ScalarKind::Text,
    }
}

fn is_int(text: &str) -> bool {
    let digits = |text: &str, radix| !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    if let Some(octal) = text.strip_prefix("0o") {
        return digits(octal, 8);
    }
    if let Some(hexadecimal) = text.strip_prefix("0x") {
        return digits(hexadecimal, 16);
    }
    digits(text.strip_prefix(['-', '+']).unwrap_or(text), 10)
}

fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.contains(|c: char| c.is_ascii_digit())
        && unsigned.parse::<f64>().is_ok()
}

fn place(mark: &Marker) -> Span {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Span { line: number(mark.line()), column: number(mark.col() + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_are_what_the_core_schema_says() {
        for (kind, texts) in [
            (ScalarKind::Null, &["", "~", "null"][..]),
            (ScalarKind::Bool, &["true", "False"]),
            (ScalarKind::Int, &["0", "-7", "+12", "0x1F", "0o17"]),
            (ScalarKind::Float, &["1.5", "-.5", "1e3", "6.", ".inf", "-.INF", ".nan"]),
            (ScalarKind::Text, &["yes", "15m", "1.2.3", "inf", "nan", "0x", "-", ".", "e3", "1_0"]),
        ] {
            for text in texts {
                assert_eq!(resolve(text), kind, "{text}");
            }
        }
    }

    #[test]
    fn nodes_know_their_places() {
        let mut report = Report::default();
        let source = "a: 1\nb:\n  - x: \"y\"\n    z:\nc: [p, q]\n";
        let root = read(source, &mut report).unwrap();
        let mut seen = Vec::new();
        walk(&root, &mut seen);
        assert_eq!(
            seen.join(" "),
            "{1:1 a@1:1 1@1:4 b@2:1 [3:3 {3:5 x@3:5 y@3:8 z@4:5 @4:5 } ] c@5:1 [5:4 p@5:5 q@5:8 ] }"
        );
    }

    fn walk(node: &Node, seen: &mut Vec<String>) {
        match &node.content {
            Content::Scalar(scalar) => seen.push(format!("{}@{}", scalar.text, node.span)),
            Content::List(items) => {
                seen.push(format!("[{}", node.span));
                items.iter().for_each(|item| walk(item, seen));
                seen.push("]".to_owned());
            }
            Content::Mapping(entries) => {
                seen.push(format!("{{{}", node.span));
                for (key, value) in entries {
                    walk(key, seen);
                    walk(value, seen);
                }
                seen.push("}".to_owned());
            }
        }
    }
}
