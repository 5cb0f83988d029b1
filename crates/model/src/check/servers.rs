//! Rules Z4 and Z5: a server assignment refers to a step that is certainly done, and leads to the
//! same place on every path into a node.
//!
//! Whether the topology has the domains an assignment names is checked where the topology is known.

use super::facts::Facts;
use super::people::why_not_done;
use super::places::{Origin, Places};
use super::report::Report;
use crate::assignment::{Assignment, Place};
use crate::definition::{Choice, ChoiceBy, Decider, Loop, Step, Until};
use crate::finding::{Rule, Spanned};
use crate::id::NodeId;
use crate::schema::{Node, NodeKind, Schema};

pub(super) fn check(schema: &Schema, places: &Places<'_>, facts: &Facts<'_>, report: &mut Report) {
    for id in places.nodes() {
        if let Some(at) = assignment(places.origin(id)) {
            check_known(at, id, schema, places, facts, report);
        }
        check_ways(schema.node(id), schema, places, facts, report);
    }
}

fn assignment<'d>(origin: Origin<'d>) -> Option<&'d Spanned<Assignment>> {
    match origin {
        Origin::Step(Step { at, .. })
        | Origin::Choice(Choice { by: ChoiceBy::Person(Decider { at, .. }), .. })
        | Origin::Loop(Loop { until: Until::Person(Decider { at, .. }), .. }) => at.as_ref(),
        Origin::Choice(_)
        | Origin::Loop(_)
        | Origin::Start
        | Origin::Parallel(_)
        | Origin::Silent(_)
        | Origin::End => None,
    }
}

/// Z4: the referenced step is done, by a person or a worker if its actor counts.
fn check_known(
    at: &Spanned<Assignment>,
    id: NodeId,
    schema: &Schema,
    places: &Places<'_>,
    facts: &Facts<'_>,
    report: &mut Report,
) {
    let (name, of_actor) = match &at.value.place {
        Place::Domain(_) => return,
        Place::Executor if schema.node(id).job().is_some() => return,
        Place::Executor => {
            let message = format!("{} is done by a person, not by an executor", places.call(id));
            let hint = "name a domain, or write Domain(Actor(step)) for the home of its performer";
            report.error(at.span, Rule::Z4, message, hint);
            return;
        }
        Place::Server(name) => (name, false),
        Place::ActorsDomain(name) => (name, true),
    };
    let Some(step) = places.named(name) else {
        let message = format!("the place depends on `{name}`, which is no step");
        report.error(at.span, Rule::Z1, message, "write the name that stands after `step:` there");
        return;
    };
    let node = schema.node(step);
    if !node.has_entry() {
        let message = format!("{} itself is controlled nowhere", places.call(step));
        report.error(at.span, Rule::Z4, message, "name a step inside of it or before it");
    } else if of_actor && node.who().is_none() && node.job().is_none() {
        let message = format!("nobody performs {}: a condition decides", places.call(step));
        let hint = "name a step with `who` or `job`, or write Server(step)";
        report.error(at.span, Rule::Z4, message, hint);
    } else if let Some((why, hint)) = why_not_done(step, id, places, facts) {
        let message = format!(
            "where {} is controlled depends on `{name}`, which may not have been done by then: {why}",
            places.call(id)
        );
        let hint = if step == id { "name an earlier step" } else { hint };
        report.error(at.span, Rule::Z4, message, hint);
    }
}

/// Z5: on each of several incoming edges, the sender knows what the place depends on.
fn check_ways(
    node: &Node,
    schema: &Schema,
    places: &Places<'_>,
    facts: &Facts<'_>,
    report: &mut Report,
) {
    let Some(step) = node.control.depends_on() else { return };
    if node.incoming.len() + node.sync_in.len() < 2 {
        return;
    }
    let control = node.incoming.iter().map(|edge| (edge.from, edge.from));
    // The source of a sync edge may be skipped long before its turn: then only the predecessors of
    // the parallel block are certainly known.
    let syncs = node.sync_in.iter().map(|edge| {
        let parallel = places.parting(edge.from, node.id);
        (edge.from, parallel.map_or(edge.from, |(_, frame)| frame.block))
    });
    for (from, known_at) in control.chain(syncs) {
        if known_at != step && !facts.is_done(step, known_at) {
            let (what, hint) = whose_place(node, schema, places);
            let message = format!(
                "{what} depends on `{}`, which is not known at the end of {}: branches that come \
                 together must agree on the place",
                schema.known_as(step).name,
                places.call(from),
            );
            report.error(places.span(target(node, schema)), Rule::Z5, message, hint);
            return;
        }
    }
}

/// The node that cannot be placed, and the hint.
fn whose_place(node: &Node, schema: &Schema, places: &Places<'_>) -> (String, String) {
    if matches!(node.kind, NodeKind::Locate) {
        // The node that locates a step is at the place of its predecessor: the search for an
        // executor needs a place itself.
        let name = places.call(schema.known_as(node.id).id);
        let hint = format!("name a domain for {name}, or for the step before it");
        return (format!("where the executor of {name} is looked for"), hint);
    }
    let hint = "depend on a step before the branches part, or name a domain".to_owned();
    (format!("where {} is controlled", places.call(target(node, schema))), hint)
}

/// The node that the author gave the place to: a join and the start of a loop take it from the step
/// after.
fn target(node: &Node, schema: &Schema) -> NodeId {
    let next = node.outgoing.first().map(|next| schema.node(*next));
    next.filter(|next| !node.has_entry() && next.control == node.control)
        .map_or(node.id, |next| next.id)
}
