//! Rules K1, K3 and K6 as far as the blocks alone tell: branches, guards, empty bodies.
//!
//! Blocks nest by construction; only missing parts can be wrong.

use std::collections::BTreeSet;

use super::report::Report;
use crate::definition::{Block, Branch, Choice, ChoiceBy, Definition, Guard, Loop, Parallel};
use crate::finding::{Rule, Span};

pub(super) fn check(definition: &Definition, report: &mut Report) {
    check_sequence(&definition.steps, report);
}

fn check_sequence(blocks: &[Block], report: &mut Report) {
    for block in blocks {
        match block {
            Block::Step(_) => {}
            Block::Parallel(parallel) => check_parallel(parallel, report),
            Block::Choice(choice) => check_choice(choice, report),
            Block::Loop(l) => check_loop(l, report),
        }
    }
}

fn check_parallel(parallel: &Parallel, report: &mut Report) {
    let name = &parallel.name.value;
    require_branches(&format!("parallel `{name}`"), parallel.name.span, &parallel.branches, report);
    for branch in &parallel.branches {
        if branch.steps.is_empty() {
            let message =
                format!("branch `{}` of parallel `{name}` does nothing", branch.name.value);
            report.warning(branch.name.span, Rule::K3, message, "give it steps, or remove it");
        }
        if !matches!(branch.guard, Guard::None) {
            let message =
                format!("branch `{}` of parallel `{name}` has a condition", branch.name.value);
            let hint = "all branches of a parallel run; use a `choice`";
            report.error(branch.name.span, Rule::K6, message, hint);
        }
        check_sequence(&branch.steps, report);
    }
}

fn check_choice(choice: &Choice, report: &mut Report) {
    let name = &choice.name.value;
    require_branches(&format!("choice `{name}`"), choice.name.span, &choice.branches, report);
    let mut names = BTreeSet::new();
    let mut others = 0;
    for branch in &choice.branches {
        let (branch_name, span) = (&branch.name.value, branch.name.span);
        if !names.insert(branch_name) {
            let message = format!("two branches of choice `{name}` are named `{branch_name}`");
            report.error(span, Rule::K6, message, "rename one of them");
        }
        match (&choice.by, &branch.guard) {
            (ChoiceBy::Conditions, Guard::When(_)) | (ChoiceBy::Person(_), Guard::None) => {}
            (ChoiceBy::Conditions, Guard::Otherwise(span)) => {
                others += 1;
                if others > 1 {
                    let message = format!("choice `{name}` has more than one `otherwise`");
                    let hint = "write `when:` with a condition instead";
                    report.error(*span, Rule::K6, message, hint);
                }
            }
            (ChoiceBy::Conditions, Guard::None) => {
                let message = format!("nothing says when branch `{branch_name}` is taken");
                let hint = "write `when:` with a condition, or `otherwise: true`";
                report.error(span, Rule::K6, message, hint);
            }
            (ChoiceBy::Person(_), Guard::When(_) | Guard::Otherwise(_)) => {
                let message = format!("branch `{branch_name}` has a condition");
                let hint = "here a person decides; leave the condition out";
                report.error(span, Rule::K6, message, hint);
            }
        }
        check_sequence(&branch.steps, report);
    }
}

fn check_loop(l: &Loop, report: &mut Report) {
    let name = &l.name.value;
    if l.body.is_empty() {
        let message = format!("loop `{name}` repeats nothing");
        report.error(l.name.span, Rule::K3, message, "write at least one step");
    }
    if l.times_max == 0 {
        let message = format!("loop `{name}` may go round no time at all");
        report.error(l.name.span, Rule::K5, message, "write `max:` with a number above 0");
    }
    check_sequence(&l.body, report);
}

fn require_branches(what: &str, span: Span, branches: &[Branch], report: &mut Report) {
    if branches.len() < 2 {
        let message = format!("{what} has fewer than two branches");
        let hint = "add a branch (it may be without steps), or write the steps without it";
        report.error(span, Rule::K1, message, hint);
    }
}
