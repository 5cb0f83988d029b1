//! Rule Z3: a rule refers only to performers of steps that people have certainly done before.
//!
//! Whether the organisation has the roles and units a rule names is checked where the organisation
//! is known.

use std::collections::BTreeSet;

use super::data::Lack;
use super::facts::Facts;
use super::places::{Origin, Places};
use super::report::Report;
use crate::definition::{Choice, ChoiceBy, Decider, Loop, Step, Until, Work};
use crate::finding::{self, Spanned};
use crate::id::NodeId;
use crate::rule::Rule;
use crate::schema::Schema;

pub(super) fn check(schema: &Schema, places: &Places<'_>, facts: &Facts<'_>, report: &mut Report) {
    for node in places.nodes() {
        match places.origin(node) {
            Origin::Step(Step { work, undo, .. }) => {
                if let Work::Manual { who } = work {
                    check_rule(who, node, None, schema, places, facts, report);
                }
                // The step that undoes a step may also refer to the performer of that step.
                if let Some(Work::Manual { who }) = undo {
                    check_rule(who, node, Some(node), schema, places, facts, report);
                }
            }
            Origin::Choice(Choice { by: ChoiceBy::Person(Decider { who, .. }), .. })
            | Origin::Loop(Loop { until: Until::Person(Decider { who, .. }), .. }) => {
                check_rule(who, node, None, schema, places, facts, report);
            }
            Origin::Choice(_)
            | Origin::Loop(_)
            | Origin::Start
            | Origin::Parallel(_)
            | Origin::Silent(_)
            | Origin::End => {}
        }
    }
}

fn check_rule(
    who: &Spanned<Rule>,
    at: NodeId,
    done: Option<NodeId>,
    schema: &Schema,
    places: &Places<'_>,
    facts: &Facts<'_>,
    report: &mut Report,
) {
    let mut performers = BTreeSet::new();
    who.value.for_each_actors(&mut |actors| performers.extend(actors.performer_of()));
    for name in performers {
        let Some(node) = places.named(name) else {
            let message = format!("the rule speaks of `{name}`, which is no step");
            let hint = "write the name that stands after `step:` there";
            report.error(who.span, finding::Rule::Z1, message, hint);
            continue;
        };
        if schema.node(node).who().is_none() {
            let message = format!("nobody performs {}: no person works on it", places.call(node));
            let hint = "name a step with `who`, or use StartingAgent()";
            report.error(who.span, finding::Rule::Z3, message, hint);
            continue;
        }
        if done == Some(node) {
            continue;
        }
        if let Some((why, hint)) = why_not_done(node, at, places, facts) {
            let message = format!(
                "{} asks who performed `{name}`, which may not have been done by then: {why}",
                places.call(at)
            );
            report.error(who.span, finding::Rule::Z3, message, hint);
        }
    }
}

/// Why a step may not have been done when another begins, and what would mend it.
pub(super) fn why_not_done(
    node: NodeId,
    at: NodeId,
    places: &Places<'_>,
    facts: &Facts<'_>,
) -> Option<(String, &'static str)> {
    match facts.lack(places, node, at) {
        Lack::None => None,
        Lack::Itself => {
            Some(("it is this very one".to_owned(), "name an earlier step, or use StartingAgent()"))
        }
        Lack::Later => Some(("it comes only later".to_owned(), "name a step that comes before")),
        Lack::Exclusive => Some((
            "it is in another branch of the same choice".to_owned(),
            "name a step that comes before the choice",
        )),
        Lack::Parallel => Some((
            "it runs at the same time".to_owned(),
            "wait for it with `after`, or name a step that comes before",
        )),
        Lack::Branch { choice, branch } => Some((
            format!("it is done only in branch `{branch}` of {choice}"),
            "name a step that is done in any case",
        )),
        Lack::Skipped => Some((
            "it may be skipped".to_owned(),
            "wait for it with `requires` instead of `after`, or name another step",
        )),
    }
}
