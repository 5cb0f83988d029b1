//! The names that a definition declares, and the names that it refers to.
//!
//! Names of broken blocks are declared too, so that one mistake does not make every reference to
//! the block another.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fields::quote;
use super::nearest::nearest;
use super::report::Report;
use crate::finding::{Rule, Span, Spanned};
use crate::rule;

/// The start and the end node carry these.
const RESERVED: [&str; 2] = ["start", "end"];

#[derive(Default)]
pub(super) struct Names {
    elements: BTreeMap<Arc<str>, Span>,
    blocks: BTreeMap<Arc<str>, (Span, BlockKind)>,
    references: Vec<(Spanned<Arc<str>>, Reference)>,
    /// Elements could not be read: references to them cannot be checked.
    pub(super) elements_unknown: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockKind {
    Step,
    Parallel,
    Choice,
    Loop,
}

#[derive(Clone, Copy)]
enum Reference {
    Element,
    /// In `after` or `requires`.
    Step,
    /// In `NodePerformingAgent`.
    Performer,
}

impl BlockKind {
    pub(super) const ALL: [Self; 4] = [Self::Step, Self::Parallel, Self::Choice, Self::Loop];

    /// The key that makes a mapping a block of this kind.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Parallel => "parallel",
            Self::Choice => "choice",
            Self::Loop => "loop",
        }
    }
}

impl Names {
    pub(super) fn declare_element(&mut self, name: &Spanned<Arc<str>>, report: &mut Report) {
        if let Some(before) = self.elements.insert(name.value.clone(), name.span) {
            let message = format!("there are two elements `{}`, the first at {before}", name.value);
            report.error(name.span, Rule::Y2, message, "rename one of them");
            report.mark_incomplete();
        }
    }

    pub(super) fn declare_block(
        &mut self,
        name: &Spanned<Arc<str>>,
        kind: BlockKind,
        report: &mut Report,
    ) {
        if RESERVED.contains(&&*name.value) {
            let message = format!("`{}` is the name of the process's own node", name.value);
            report.error(name.span, Rule::Y2, message, "choose another name");
            report.mark_incomplete();
        }
        if let Some((before, other)) = self.blocks.get(&name.value) {
            let message = format!("the {} at {before} is named `{}` too", other.key(), name.value);
            let hint = "rename one of them: steps, parallels, choices and loops share their names";
            report.error(name.span, Rule::Y2, message, hint);
            report.mark_incomplete();
            return;
        }
        self.blocks.insert(name.value.clone(), (name.span, kind));
    }

    pub(super) fn refer_to_element(&mut self, name: &Spanned<Arc<str>>) {
        self.references.push((name.clone(), Reference::Element));
    }

    pub(super) fn refer_to_step(&mut self, name: &Spanned<Arc<str>>) {
        self.references.push((name.clone(), Reference::Step));
    }

    /// Records a reference to a step that a place depends on; a choice or a loop counts as its
    /// decision.
    pub(super) fn refer_to_performer(&mut self, name: &Spanned<Arc<str>>) {
        self.references.push((name.clone(), Reference::Performer));
    }

    /// Records the steps whose performers a rule refers to.
    pub(super) fn refer_to_performers(&mut self, rule: &rule::Rule, span: Span) {
        rule.for_each_actors(&mut |actors| {
            let step = actors.performer_of().cloned();
            let name = step.map(|step| Spanned::new(step, span));
            self.references.extend(name.map(|name| (name, Reference::Performer)));
        });
    }

    /// Reports all unresolved references.
    pub(super) fn resolve(&self, report: &mut Report) {
        for (name, reference) in &self.references {
            match reference {
                Reference::Element => self.resolve_element(name, report),
                Reference::Step => self.resolve_step(name, report),
                Reference::Performer => self.resolve_performer(name, report),
            }
        }
    }

    fn resolve_element(&self, name: &Spanned<Arc<str>>, report: &mut Report) {
        if self.elements_unknown || self.elements.contains_key(&name.value) {
            return;
        }
        let known = self.elements.keys().map(|name| &**name);
        let hint = match nearest(&name.value, known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "declare it under `data:`, with its type".to_owned(),
        };
        let message = format!("there is no data element {}", quote(&name.value));
        report.error(name.span, Rule::D1, message, hint);
        report.mark_incomplete();
    }

    fn resolve_step(&self, name: &Spanned<Arc<str>>, report: &mut Report) {
        let kind = self.blocks.get(&name.value).map(|(_, kind)| *kind);
        let (message, hint) = match kind {
            Some(BlockKind::Step) => return,
            Some(kind) => (
                format!("`{}` is a {}, not a step", name.value, kind.key()),
                "name a step inside of it".to_owned(),
            ),
            None => (
                format!("there is no step {}", quote(&name.value)),
                self.near_block(&name.value, |kind| kind == BlockKind::Step),
            ),
        };
        report.error(name.span, Rule::K4, message, hint);
        report.mark_incomplete();
    }

    fn resolve_performer(&self, name: &Spanned<Arc<str>>, report: &mut Report) {
        if self.blocks.contains_key(&name.value) {
            return;
        }
        let message = format!("the rule speaks of {}, which is no step", quote(&name.value));
        let hint = self.near_block(&name.value, |kind| kind != BlockKind::Parallel);
        report.error(name.span, Rule::Z1, message, hint);
        report.mark_incomplete();
    }

    fn near_block(&self, name: &str, fits: impl Fn(BlockKind) -> bool) -> String {
        let known = self.blocks.iter().filter(|(_, (_, kind))| fits(*kind));
        match nearest(name, known.map(|(name, _)| &**name)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "write the name that stands after `step:` there".to_owned(),
        }
    }
}
