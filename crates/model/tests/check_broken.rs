//! Inconsistent definitions that no file could have: they are reported, and never panic.

use std::sync::Arc;

use legwork_model::arbitrary::{Options, cases, definition};
use legwork_model::check;
use legwork_model::compile::compile;
use legwork_model::condition::Condition;
use legwork_model::definition::{
    Block, Branch, Choice, ChoiceBy, Definition, Guard, Loop, Parallel, Step, Sync, Until, Use,
};
use legwork_model::finding::{Severity, Span, Spanned};
use legwork_model::value::ValueType;
use proptest::prelude::*;

/// One change somewhere in a definition.
#[derive(Clone, Debug)]
struct Change {
    /// The index of its block, in the order of the text.
    block: usize,
    kind: u8,
    name: String,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let names = prop_oneof!["s[1-9]", "[pcl][1-9]", "flag|count|e2|e3|nothing", "start|end"];
    let change =
        (0_usize..20, 0_u8..12, names).prop_map(|(block, kind, name)| Change { block, kind, name });
    proptest::collection::vec(change, 1..5)
}

fn name(text: &str) -> Spanned<Arc<str>> {
    Spanned::nowhere(Arc::from(text))
}

fn used(text: &str) -> Use {
    Use { element: name(text), optional: false }
}

impl Change {
    fn apply(&self, definition: &mut Definition) {
        match self.kind {
            0 => definition.result.push(used(&self.name)),
            1 => definition.data.truncate(self.block),
            2 => definition.data.iter_mut().for_each(|element| element.kind = ValueType::String),
            _ => {
                let mut left = self.block;
                self.apply_in(&mut definition.steps, &mut left);
            }
        }
    }

    fn apply_in(&self, blocks: &mut Vec<Block>, left: &mut usize) {
        let mut place = 0;
        while let Some(block) = blocks.get_mut(place) {
            if *left == 0 {
                *left = usize::MAX;
                match self.kind {
                    3 => drop(blocks.remove(place)),
                    4 => blocks.insert(place, blocks[place].clone()),
                    _ => self.apply_to(block),
                }
                return;
            }
            *left = left.saturating_sub(1);
            match block {
                Block::Step(_) => {}
                Block::Parallel(Parallel { branches, .. })
                | Block::Choice(Choice { branches, .. }) => {
                    branches.iter_mut().for_each(|branch| self.apply_in(&mut branch.steps, left));
                }
                Block::Loop(l) => self.apply_in(&mut l.body, left),
            }
            place += 1;
        }
    }

    fn apply_to(&self, block: &mut Block) {
        match block {
            Block::Step(step) => self.apply_to_step(step),
            Block::Parallel(Parallel { name: own, branches, .. }) => {
                self.apply_to_branches(own, branches);
            }
            Block::Choice(Choice { name: own, by, branches, .. }) => {
                if self.kind == 11 {
                    *by = ChoiceBy::Conditions;
                }
                self.apply_to_branches(own, branches);
            }
            Block::Loop(l) => self.apply_to_loop(l),
        }
    }

    fn apply_to_step(&self, step: &mut Step) {
        match self.kind {
            5 => step.name = name(&self.name),
            6 => step.reads.push(used(&self.name)),
            7 => step.writes.push(used(&self.name)),
            _ => step.after.push(Sync { from: name(&self.name), strict: self.kind == 8 }),
        }
    }

    fn apply_to_branches(&self, own: &mut Spanned<Arc<str>>, branches: &mut Vec<Branch>) {
        match (self.kind, branches.first_mut()) {
            (5, _) => *own = name(&self.name),
            (6, _) => branches.truncate(1),
            (7, _) => branches.clear(),
            (8, Some(branch)) => branch.guard = Guard::None,
            (9, Some(branch)) => branch.guard = Guard::Otherwise(Span::default()),
            (_, Some(branch)) => branch.name = name("2"),
            (_, None) => {}
        }
    }

    fn apply_to_loop(&self, l: &mut Loop) {
        match self.kind {
            5 => l.name = name(&self.name),
            6 => l.body.clear(),
            7 => l.times_max = 0,
            8 => l.rounds = 1_000_000,
            _ => {
                if let Ok(condition) = Condition::parse(&self.name) {
                    l.until = Until::Condition(Spanned::nowhere(condition));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn what_does_not_hold_together_is_told(
        definition in definition(Options { blocks_max: 12, elements: 4, ..Options::default() }),
        changes in changes(),
    ) {
        let mut broken = definition;
        changes.iter().for_each(|change| change.apply(&mut broken));
        let findings = check::check(&broken);
        if findings.iter().all(|finding| finding.severity == Severity::Warning) {
            let schema = compile(&broken, 1);
            prop_assert!(schema.is_ok(), "{:?}", schema.err());
            let graph = schema.map(|schema| check::graph(&schema));
            prop_assert_eq!(graph, Ok(Vec::new()));
        }
    }
}
