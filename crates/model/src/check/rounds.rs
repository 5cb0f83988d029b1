//! Rule K5 for planned deadlines: how many loop iterations a definition plans.
//!
//! Every step is promised once per iteration, so nested loops soon have too many.

use super::report::Report;
use crate::definition::{Block, ChoiceBy, Definition, Loop, Until};
use crate::finding::Rule;
use crate::id::Iteration;

/// The most steps that planned iterations add: one for each iteration of each step after the first.
const MORE_MAX: u64 = 500;

/// The contents of some blocks.
#[derive(Clone, Copy, Default)]
struct Weight<'d> {
    /// Steps with work, and how many more there are in all planned iterations.
    steps: u64,
    more: u64,
    /// The depth of nested loops, those around included.
    depth: usize,
    /// The loop that adds most.
    most: Option<(u64, &'d Loop)>,
}

impl<'d> Weight<'d> {
    fn plus(self, other: Self) -> Self {
        let most = match (self.most, other.most) {
            (Some(one), Some(two)) if two.0 > one.0 => Some(two),
            (one, two) => one.or(two),
        };
        Self {
            steps: self.steps.saturating_add(other.steps),
            more: self.more.saturating_add(other.more),
            depth: self.depth.max(other.depth),
            most,
        }
    }

    /// The same, repeated as often as planned.
    fn in_rounds_of(self, l: &'d Loop) -> Self {
        let all = self.steps.saturating_add(self.more).saturating_mul(u64::from(l.rounds));
        let more = all.saturating_sub(self.steps);
        let most = if l.rounds > 1 { Some((more, l)) } else { self.most };
        Self { more, most, ..self }
    }
}

pub(super) fn check(definition: &Definition, report: &mut Report) {
    let Weight { more, most, .. } = weigh(&definition.steps, 0, report);
    if let Some((_, l)) = most.filter(|_| more > MORE_MAX) {
        let message = format!(
            "the planned rounds of the loops are {more} steps more to promise; {MORE_MAX} are allowed"
        );
        let hint = "lower `rounds:`, first of this loop or of those within it";
        report.error(l.name.span, Rule::K5, message, hint);
    }
}

fn weigh<'d>(blocks: &'d [Block], around: usize, report: &mut Report) -> Weight<'d> {
    let one = |is_work: bool| Weight { steps: u64::from(is_work), ..Weight::default() };
    let mut all = Weight { depth: around, ..Weight::default() };
    for block in blocks {
        let (own, branches) = match block {
            Block::Step(_) => (one(true), &[][..]),
            Block::Parallel(parallel) => (one(false), &parallel.branches[..]),
            Block::Choice(choice) => {
                (one(matches!(choice.by, ChoiceBy::Person(_))), &choice.branches[..])
            }
            Block::Loop(l) => {
                check_rounds(l, report);
                let decision = one(matches!(l.until, Until::Person(_)));
                let inside = weigh(&l.body, around + 1, report).plus(decision);
                check_depth(l, inside.depth, report);
                (inside.in_rounds_of(l), &[][..])
            }
        };
        all = all.plus(own);
        for branch in branches {
            all = all.plus(weigh(&branch.steps, around, report));
        }
    }
    all
}

fn check_rounds(l: &Loop, report: &mut Report) {
    let Loop { rounds, times_max, .. } = *l;
    let (name, span) = (&l.name.value, l.name.span);
    if rounds == 0 {
        let message = format!("loop `{name}` is planned for no round at all");
        report.error(span, Rule::K5, message, "write `rounds:` with a number above 0");
    }
    if rounds > times_max && times_max > 0 {
        let message = format!(
            "loop `{name}` is planned for {rounds} rounds, but goes round {times_max} times at most"
        );
        report.error(span, Rule::K5, message, "lower `rounds:`, or raise `max:`");
    }
}

fn check_depth(l: &Loop, depth: usize, report: &mut Report) {
    const MOST: usize = Iteration::NUMBERED_MAX;
    if l.rounds > 1 && depth > MOST {
        let (name, rounds) = (&l.name.value, l.rounds);
        let message = format!(
            "loop `{name}` is planned for {rounds} rounds, but is one of {depth} loops inside each other"
        );
        let hint = format!("leave `rounds:` out, or nest at most {MOST} loops");
        report.error(l.name.span, Rule::K5, message, hint);
    }
}
