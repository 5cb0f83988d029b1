//! When an unpromised deadline is in danger: the remaining work takes longer than the remaining time, by the clock.
//!
//! Invariant: it follows from the case alone, as far as it is known here, and changes only with the case. A claimed
//! step counts from its claim; a job counts as a whole until it is done.

use legwork_engine::{NodeState, State};
use legwork_model::event::Deadline;
use legwork_model::id::NodeId;
use legwork_model::schema::{LoopId, Node, Schema};
use legwork_model::time::Timestamp;

use super::occupancy::millis;

/// From when on a case is in danger if nothing happens in it; `None` if not before its deadline.
pub(crate) fn in_danger_from(schema: &Schema, state: &State) -> Option<Timestamp> {
    let is_ahead = |it: &&Deadline| !it.is_promised() && !it.is_late();
    let deadline = state.deadline().filter(is_ahead).filter(|_| !state.lifecycle().has_ended())?;
    let order = order(schema);
    let left = schema.nodes.iter().map(|node| match state.node_state(node.id) {
        NodeState::Completed | NodeState::Skipped => 0,
        NodeState::Selected if state.answer(node.id).is_some() => 0,
        NodeState::NotActivated
        | NodeState::Activated
        | NodeState::Selected
        | NodeState::Failed => {
            let gone = node.ends().map_or(0, |id| state.rounds(id));
            takes_ms(node).saturating_add(repeats_ms(schema, &order, node, gone))
        }
    });
    let left: Vec<i64> = left.collect();
    let tails = tails(schema, &order, &left);
    let from = schema.nodes.iter().zip(&left).zip(&tails).filter_map(|((node, left), tail)| {
        let until = |ms: i64| Timestamp(deadline.at.0.saturating_sub(ms));
        let open = state.open_at(schema, node.id);
        match open.and_then(|open| open.claimed_at) {
            // The holder is expected to be done after `takes`, and at any moment after that.
            Some(since) => Some(until(*tail).min(late_from(since, *left, until(*tail)))),
            None => (*left > 0).then(|| until(left.saturating_add(*tail))),
        }
    });
    from.min().filter(|from| *from < deadline.at)
}

/// A step claimed too late to be done by a moment is in danger since its claim.
fn late_from(since: Timestamp, takes_ms: i64, by: Timestamp) -> Timestamp {
    if since.0.saturating_add(takes_ms) > by.0 { since } else { by }
}

fn takes_ms(node: &Node) -> i64 {
    node.takes.map_or(0, millis)
}

/// The duration of the remaining planned rounds of a loop, at its end.
fn repeats_ms(schema: &Schema, order: &[NodeId], end: &Node, gone: u32) -> i64 {
    let Some(id) = end.ends() else { return 0 };
    let known = schema.loops[id.0 as usize];
    let more = i64::from(known.rounds.saturating_sub(1).saturating_sub(gone));
    if more == 0 { 0 } else { round_ms(schema, order, id).saturating_mul(more) }
}

/// The duration of a whole round of a loop, with loops inside it as often as planned.
fn round_ms(schema: &Schema, order: &[NodeId], id: LoopId) -> i64 {
    let weights = schema.nodes.iter().map(|node| {
        let within = node.loops.contains(&id);
        let repeats =
            if within && node.ends() != Some(id) { repeats_ms(schema, order, node, 0) } else { 0 };
        if within { takes_ms(node).saturating_add(repeats) } else { 0 }
    });
    let weights: Vec<i64> = weights.collect();
    let start = schema.loops[id.0 as usize].start.0 as usize;
    weights[start].saturating_add(tails(schema, order, &weights)[start])
}

/// The remaining duration after each node, along the longest path.
fn tails(schema: &Schema, order: &[NodeId], weights: &[i64]) -> Vec<i64> {
    let mut tails = vec![0_i64; schema.nodes.len()];
    for id in order.iter().rev() {
        let node = schema.node(*id);
        let next = node.outgoing.iter().chain(&node.sync_out).map(|next| next.0 as usize);
        let longest = next.map(|next| weights[next].saturating_add(tails[next])).max();
        tails[id.0 as usize] = longest.unwrap_or(0);
    }
    tails
}

/// The nodes in topological order.
fn order(schema: &Schema) -> Vec<NodeId> {
    let mut waits: Vec<usize> =
        schema.nodes.iter().map(|node| node.incoming.len() + node.sync_in.len()).collect();
    let mut ready: Vec<NodeId> = vec![Schema::START];
    let mut order = Vec::with_capacity(schema.nodes.len());
    while let Some(id) = ready.pop() {
        order.push(id);
        let node = schema.node(id);
        for next in node.outgoing.iter().chain(&node.sync_out) {
            let waits = &mut waits[next.0 as usize];
            *waits = waits.saturating_sub(1);
            if *waits == 0 {
                ready.push(*next);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use legwork_engine::{Command, create, decide};
    use legwork_model::compile::compile;
    use legwork_model::event::{Created, Performer};
    use legwork_model::id::Activity;
    use legwork_model::yaml;

    use super::*;

    const HOUR: i64 = 3_600_000;

    fn case(steps: &str) -> (Schema, State) {
        let (definition, findings) = yaml::parse(&format!("process: p\nsteps:\n{steps}"));
        let definition = definition.unwrap_or_else(|| panic!("{findings:?}"));
        let schema = compile(&definition, 1).unwrap();
        let deadline = Deadline { is_unpromised: true, ..Deadline::new(Timestamp(100 * HOUR), 5) };
        let (process, by) = (schema.process.clone(), Performer::System);
        let deadline = Some(Box::new(deadline));
        let created = Created { process, version: 1, by, inputs: Vec::new(), deadline };
        let state = create(&schema, created, Timestamp(0)).unwrap().state;
        (schema, state)
    }

    /// In hours.
    fn from((schema, state): &(Schema, State)) -> Option<i64> {
        in_danger_from(schema, state).map(|from| from.0 / HOUR)
    }

    #[test]
    fn the_longest_path_counts_and_a_loop_as_often_as_it_is_planned() {
        let step = |name: &str, takes: &str| {
            let takes = if takes.is_empty() { String::new() } else { format!(", takes: {takes}") };
            format!("{{ step: {name}, who: Role(clerk){takes} }}")
        };
        assert_eq!(from(&case(&format!("  - {}\n", step("a", "")))), None);
        assert_eq!(
            from(&case(&format!("  - {}\n  - {}\n", step("a", "3h"), step("b", "4h")))),
            Some(93)
        );
        let both = format!(
            "  - parallel: both\n    branches:\n      - {{ name: x, steps: [{}] }}\n      - {{ name: y, \
             steps: [{}] }}\n  - {}\n",
            step("a", "3h"),
            step("b", "9h"),
            step("c", "1h")
        );
        assert_eq!(from(&case(&both)), Some(90));
        let repeat = format!(
            "  - loop: again\n    rounds: 3\n    steps: [{}]\n    who: Role(clerk)\n",
            step("a", "3h")
        );
        assert_eq!(from(&case(&repeat)), Some(91));
    }

    #[test]
    fn a_claimed_step_counts_from_its_claim() {
        let steps = "  - { step: a, who: Role(clerk), takes: 10h }\n  - { step: b, who: Role(clerk), takes: 5h }\n";
        let (schema, state) = case(steps);
        assert_eq!(from(&(schema.clone(), state.clone())), Some(85));
        let a = Activity::once(schema.node_named("a").unwrap().id);
        let claimed = |hour: i64| {
            let claim = Command::Claim { activity: a.clone(), by: "ann".into() };
            let now = Timestamp(0) + Duration::from_secs(3_600) * hour as u32;
            (schema.clone(), decide(&schema, &state, claim, now).unwrap().state)
        };
        assert_eq!(from(&claimed(20)), Some(95), "only the second is left then");
        assert_eq!(from(&claimed(88)), Some(88), "it cannot be done any more");
    }
}
