//! Rules K6 and K3: exactly one branch of a choice matches, and every branch and loop end can.
//!
//! Decided exactly where conditions compare elements with literals, by evaluating the conditions
//! themselves; elsewhere the author is warned of the behaviour at run time.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::data::conditions;
use super::facts::Facts;
use super::places::{Origin, Places};
use super::report::Report;
use super::samples::{Point, Samples, Undecidable};
use crate::condition::Condition;
use crate::definition::{Choice, ChoiceBy, Guard, Loop, Until};
use crate::finding::{Rule, Spanned};
use crate::id::NodeId;
use crate::schema::Schema;
use crate::value::ValueType;

/// The most work for all choices and loops of a definition: bytes of conditions evaluated. About
/// a second.
const WORK_MAX: u64 = 40_000_000;

pub(super) fn check(schema: &Schema, places: &Places<'_>, facts: &Facts<'_>, report: &mut Report) {
    let mut checks = Checks { schema, facts, work_left: WORK_MAX };
    for node in places.nodes() {
        if !conditions(places.origin(node)).iter().all(|condition| checks.is_sound(condition)) {
            continue;
        }
        match places.origin(node) {
            Origin::Choice(choice) if matches!(choice.by, ChoiceBy::Conditions) => {
                checks.check_choice(node, choice, report);
            }
            Origin::Loop(l) => {
                checks.check_changes(node, l, report);
                if let Until::Condition(until) = &l.until {
                    checks.check_until(node, l, until, report);
                }
            }
            Origin::Choice(_)
            | Origin::Start
            | Origin::Step(_)
            | Origin::Parallel(_)
            | Origin::Silent(_)
            | Origin::End => {}
        }
    }
}

struct Checks<'c> {
    schema: &'c Schema,
    facts: &'c Facts<'c>,
    work_left: u64,
}

/// A branch with a condition.
#[derive(Clone, Copy)]
struct Case<'d> {
    name: &'d str,
    condition: &'d Spanned<Condition>,
}

/// The result of evaluating all points so far.
struct Outcome {
    /// For each case, whether any point satisfies it.
    taken: Vec<bool>,
    /// Whether any point satisfies none.
    otherwise: bool,
    /// Pairs of cases already reported as overlapping.
    overlaps: BTreeSet<(usize, usize)>,
    /// Cases already reported as failing.
    failing: BTreeSet<usize>,
}

impl Checks<'_> {
    /// Whether rule D3 had no finding about a condition.
    fn is_sound(&self, condition: &Spanned<Condition>) -> bool {
        condition.value.problems(|name| self.kind_of(name)).is_empty()
    }

    fn kind_of(&self, name: &str) -> Option<ValueType> {
        self.schema.element_named(name).map(|id| self.schema.element(id).kind)
    }

    fn check_choice(&mut self, node: NodeId, choice: &Choice, report: &mut Report) {
        let cases: Vec<Case<'_>> = choice
            .branches
            .iter()
            .filter_map(|branch| match &branch.guard {
                Guard::When(condition) => Some(Case { name: &branch.name.value, condition }),
                Guard::None | Guard::Otherwise(_) => None,
            })
            .collect();
        let otherwise = choice.branches.iter().find_map(|branch| match branch.guard {
            Guard::Otherwise(span) => Some((&*branch.name.value, span)),
            Guard::None | Guard::When(_) => None,
        });
        let samples = match self.samples(node, cases.iter().map(|case| &case.condition.value)) {
            Ok(samples) => samples,
            // One condition and `otherwise` always cover everything without overlap.
            Err(_) if cases.len() == 1 && otherwise.is_some() => return,
            Err(why) => return warn_unproven(choice, &why, report),
        };
        let outcome = try_all(choice, &cases, otherwise.is_some(), &samples, report);
        if !outcome.failing.is_empty() {
            return;
        }
        for (case, taken) in cases.iter().zip(&outcome.taken) {
            if !taken {
                let message = format!("branch `{}` is never taken", case.name);
                let hint = "its condition cannot be true; change or remove it";
                report.warning(case.condition.span, Rule::K3, message, hint);
            }
        }
        if let Some((name, span)) = otherwise
            && !outcome.otherwise
        {
            let message = format!("branch `{name}` is never taken");
            let hint = "the other branches cover everything; remove it";
            report.warning(span, Rule::K3, message, hint);
        }
    }

    fn samples<'d>(
        &mut self,
        node: NodeId,
        conditions: impl Iterator<Item = &'d Condition> + Clone,
    ) -> Result<Samples, Undecidable> {
        let element = |name: &str| self.schema.element_named(name);
        // An element that is not compared with null has a value here, by rule D1.
        let tested = |name: &str| {
            conditions.clone().any(|c| c.null_tested().iter().any(|tested| **tested == *name))
        };
        let may_be_absent = |name: &str| {
            tested(name) && element(name).is_some_and(|id| !self.facts.has_value(id, node))
        };
        let samples = Samples::new(conditions.clone(), &|name| self.kind_of(name), &may_be_absent)?;
        let bytes: u64 = conditions.map(|condition| condition.source().len() as u64).sum();
        let work = samples.count().saturating_mul(bytes);
        self.work_left = self.work_left.checked_sub(work).ok_or(Undecidable::TooManyPoints)?;
        Ok(samples)
    }

    fn check_until(
        &mut self,
        node: NodeId,
        l: &Loop,
        until: &Spanned<Condition>,
        report: &mut Report,
    ) {
        let Ok(samples) = self.samples(node, std::iter::once(&until.value)) else { return };
        let (mut ends, mut repeats) = (false, false);
        for point in samples.points() {
            match until.value.holds(|name| point.value(name)) {
                Ok(true) => ends = true,
                Ok(false) => repeats = true,
                Err(_) if is_missing_read(&until.value, &point) => return,
                Err(error) => {
                    let at = point.describe(&[&until.value]);
                    let message =
                        format!("`until` of loop `{}` fails with {at}: {error}", l.name.value);
                    report.error(until.span, Rule::D1, message, NULL_HINT);
                    return;
                }
            }
        }
        let name = &l.name.value;
        if !ends {
            let message = format!("loop `{name}` never ends by its condition");
            let hint = "the condition cannot be true; only `max` ends the loop, with an incident";
            report.warning(until.span, Rule::K3, message, hint);
        } else if !repeats {
            let message = format!("loop `{name}` never goes round a second time");
            let hint = "the condition is always true; change it, or write the steps without a loop";
            report.warning(until.span, Rule::K3, message, hint);
        }
    }

    /// Whether a step in the loop changes what its end depends on.
    fn check_changes(&self, node: NodeId, l: &Loop, report: &mut Report) {
        let Until::Condition(until) = &l.until else { return };
        let Some(start) = self.schema.node(node).partner else { return };
        let names = until.value.variables();
        let written = |name: &str| {
            let Some(element) = self.schema.element_named(name) else { return true };
            let inside = &self.schema.nodes[start.0 as usize..=node.0 as usize];
            inside.iter().any(|node| node.writes.iter().any(|write| write.element == element))
        };
        if !names.is_empty() && !names.iter().any(|name| written(name)) {
            let message = format!(
                "no step of loop `{}` writes {}, so that its condition never changes",
                l.name.value,
                names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
            );
            let hint = "let a step of the loop write it";
            report.warning(until.span, Rule::K3, message, hint);
        }
    }
}

const NULL_HINT: &str = "ask for a value first: `x != null && …`";

fn try_all(
    choice: &Choice,
    cases: &[Case<'_>],
    has_otherwise: bool,
    samples: &Samples,
    report: &mut Report,
) -> Outcome {
    let mut outcome = Outcome {
        taken: vec![false; cases.len()],
        otherwise: false,
        overlaps: BTreeSet::new(),
        failing: BTreeSet::new(),
    };
    let all: Vec<&Condition> = cases.iter().map(|case| &case.condition.value).collect();
    for point in samples.points() {
        let mut matching: Option<usize> = None;
        let mut failed = false;
        for (place, case) in cases.iter().enumerate() {
            match case.condition.value.holds(|name| point.value(name)) {
                Ok(false) => {}
                Ok(true) => {
                    outcome.taken[place] = true;
                    if let Some(first) =
                        matching.filter(|first| outcome.overlaps.insert((*first, place)))
                    {
                        let both = [cases[first], *case];
                        let at = point.describe(&both.map(|case| &case.condition.value));
                        tell_overlap(both, &at, report);
                    }
                    matching = matching.or(Some(place));
                }
                Err(error) => {
                    failed = true;
                    let told = is_missing_read(&case.condition.value, &point);
                    if outcome.failing.insert(place) && !told {
                        let at = point.describe(&[&case.condition.value]);
                        let message =
                            format!("`when` of branch `{}` fails with {at}: {error}", case.name);
                        report.error(case.condition.span, Rule::D1, message, NULL_HINT);
                    }
                }
            }
        }
        if matching.is_none() && !failed && !outcome.otherwise {
            outcome.otherwise = true;
            if !has_otherwise {
                let (name, at) = (&choice.name.value, point.describe(&all));
                let message = format!("no branch of choice `{name}` matches {at}");
                let hint = "add a branch with `otherwise: true`, or widen a condition";
                report.error(choice.name.span, Rule::K6, message, hint);
            }
        }
    }
    outcome
}

/// Whether a condition reads an element without a value at this point, without a test for `null`:
/// D1 has reported that already.
fn is_missing_read(condition: &Condition, point: &Point<'_>) -> bool {
    let asks = |name: &Arc<str>| condition.null_tested().contains(name);
    condition.variables().iter().any(|name| point.value(name).is_none() && !asks(name))
}

fn tell_overlap(both: [Case<'_>; 2], at: &str, report: &mut Report) {
    let [first, second] = both;
    let message = format!("{at} satisfies both `{}` and `{}`", first.name, second.name);
    let hint = "narrow one of the two conditions, so that one branch matches only";
    report.error(second.condition.span, Rule::K6, message, hint);
}

fn warn_unproven(choice: &Choice, why: &Undecidable, report: &mut Report) {
    let why = match why {
        Undecidable::Condition(source) => {
            format!("`{source}` does more than compare elements with literals")
        }
        Undecidable::TooManyPoints => "there are too many combinations to try".to_owned(),
    };
    let message = format!(
        "that exactly one branch of choice `{}` matches cannot be proven: {why}",
        choice.name.value
    );
    let hint = "where none or several match, the case stops with an incident; a single `when` \
                beside `otherwise: true` is always safe";
    report.warning(choice.name.span, Rule::K6, message, hint);
}
