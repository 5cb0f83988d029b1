//! A mistake in a short text, such as hours or a timetable, with its position.

use legwork_model::finding::{Rule, Span};
use legwork_model::yaml::report::Report;
use legwork_model::yaml::tree::Node;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// In characters from the beginning of the text.
    pub(super) at: usize,
    pub(super) message: String,
    hint: String,
    rule: Rule,
}

impl Mistake {
    pub(super) fn new(at: usize, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { at, message: message.into(), hint: hint.into(), rule: Rule::Y2 }
    }

    /// A correct text that exceeds a limit.
    pub(super) fn limit(at: usize, message: String, hint: &str) -> Self {
        Self { rule: Rule::Y3, ..Self::new(at, message, hint) }
    }

    /// The message for a text that stands alone.
    pub(super) fn told(&self) -> String {
        format!("column {}: {}; {}", self.at + 1, self.message, self.hint)
    }

    /// Reports it, at its exact column if the text is in one line as it is.
    pub(crate) fn tell(self, node: &Node, what: &str, report: &mut Report) {
        let offset = node.scalar().and_then(|scalar| scalar.offset);
        self.tell_at(node.span, offset, what, report);
    }

    /// The same for a text that begins `offset` columns after the place, if that is known.
    pub(crate) fn tell_at(self, place: Span, offset: Option<u32>, what: &str, report: &mut Report) {
        let columns = offset.map_or(0, |offset| offset.saturating_add(self.at as u32));
        let span = Span { column: place.column.saturating_add(columns), ..place };
        report.error(span, self.rule, format!("{what}: {}", self.message), self.hint);
    }
}
