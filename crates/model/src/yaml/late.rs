//! Reads the reaction to a passed deadline: `late: tell`, `late: abort` or `late: { extend: 2d }`.

use super::blocks::Blocks;
use super::fields::{Fields, quote};
use super::tree::{Content, Node, ScalarKind};
use crate::definition::Late;
use crate::finding::{Rule, Spanned};

pub(crate) const LATE_FIELDS: [&str; 1] = ["extend"];

const HINT: &str = "write `tell`, `abort` or `{ extend: 2d }`";

impl Blocks<'_> {
    pub(super) fn late(&mut self, node: &Node) -> Option<Spanned<Late>> {
        let late = match &node.content {
            Content::Mapping(_) => self.extend(node),
            Content::Scalar(scalar) if scalar.kind == ScalarKind::Text => {
                let known = Late::WORDS.iter().find(|(word, _)| *word == scalar.text);
                if known.is_none() {
                    let message = format!("`late` cannot be {}", quote(&scalar.text));
                    self.report.error(node.span, Rule::Y2, message, HINT);
                }
                known.map(|(_, late)| *late)
            }
            Content::Scalar(_) | Content::List(_) => {
                let message = format!("`late` cannot be {}", node.what());
                self.report.error(node.span, Rule::Y2, message, HINT);
                None
            }
        };
        if late.is_none() {
            self.report.mark_incomplete();
        }
        late.map(|late| Spanned::new(late, node.span))
    }

    fn extend(&mut self, node: &Node) -> Option<Late> {
        let fields = Fields::of(node, "`late`", self.report)?;
        fields.refuse_unknown(&LATE_FIELDS, self.report);
        let extend = fields.required("extend", HINT, self.report)?;
        let by = self.duration(&fields, "extend")?;
        if by.is_zero() {
            let message = "`extend` of `late` has no length";
            let hint = "write how much later the deadline becomes, such as 2d; or `late: tell`";
            self.report.error(extend.span, Rule::Y2, message, hint);
            return None;
        }
        Some(Late::Extend(by))
    }
}
