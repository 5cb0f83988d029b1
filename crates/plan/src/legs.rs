//! The steps of a process that need a reservation, in the order in which they are planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use legwork_model::id::{Activity, Iteration, NodeId};
use legwork_model::schema::{Node, Schema};

/// A step with work of its own, in one of its planned iterations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    pub node: NodeId,
    pub iteration: Iteration,
    /// Its direct predecessors, by index.
    pub after: Vec<usize>,
    pub takes: Option<Duration>,
}

/// The steps of a process in topological order. A loop counts as often as it is planned to repeat. All branches of
/// a choice count as taken: whichever branch is taken, there is time for it.
pub fn legs(schema: &Schema) -> Vec<Leg> {
    let is_work = |node: &&Node| node.who().is_some() || node.job().is_some();
    let nodes = schema.nodes.iter().filter(is_work);
    let all: Vec<Activity> = nodes.flat_map(|node| planned(schema, node)).collect();
    let before = |one: &Activity| {
        let sooner = all.iter().enumerate();
        let sooner = sooner.filter(|(_, other)| schema.activity_precedes(other, one));
        sooner.map(|(number, _)| number).collect::<Vec<usize>>()
    };
    let mut order: Vec<_> = all.iter().map(before).zip(&all).enumerate().collect();
    // A successor has more predecessors than each of its predecessors, as it has all of theirs.
    order.sort_by_key(|(_, (before, one))| (before.len(), *one));
    let mut places = vec![0; all.len()];
    for (place, (number, _)) in order.iter().enumerate() {
        places[*number] = place;
    }
    let legs = order.into_iter().map(|(_, (before, one))| Leg {
        node: one.node,
        iteration: one.iteration.clone(),
        after: before.into_iter().map(|number| places[number]).collect(),
        takes: schema.node(one.node).takes,
    });
    legs.collect()
}

/// The time from the end of each leg until all legs are done, without waiting.
pub(crate) fn tails(legs: &[Leg], takes_ms: &[i64]) -> Vec<i64> {
    let mut tails = vec![0; legs.len()];
    for (place, leg) in legs.iter().enumerate().rev() {
        for sooner in &leg.after {
            tails[*sooner] = tails[*sooner].max(tails[place] + takes_ms[place]);
        }
    }
    tails
}

/// The same legs, still in topological order, by longest remaining path first: a resource that several branches
/// need does not delay the longest branch.
pub fn longest_first(legs: Vec<Leg>, takes_ms: &[i64]) -> Vec<Leg> {
    let tails = tails(&legs, takes_ms);
    let urgency = |leg: usize| (tails[leg] + takes_ms[leg], Reverse(leg));
    let mut waits: Vec<usize> = legs.iter().map(|leg| leg.after.len()).collect();
    let mut behind: Vec<Vec<usize>> = vec![Vec::new(); legs.len()];
    for (place, leg) in legs.iter().enumerate() {
        leg.after.iter().for_each(|sooner| behind[*sooner].push(place));
    }
    let ready = (0..legs.len()).filter(|leg| waits[*leg] == 0);
    let mut ready: BinaryHeap<_> = ready.map(urgency).collect();
    let (mut order, mut places) = (Vec::with_capacity(legs.len()), vec![0; legs.len()]);
    while let Some((_, Reverse(next))) = ready.pop() {
        places[next] = order.len();
        order.push(next);
        for leg in &behind[next] {
            waits[*leg] -= 1;
            if waits[*leg] == 0 {
                ready.push(urgency(*leg));
            }
        }
    }
    let moved = |leg: usize| {
        let mut after: Vec<usize> = legs[leg].after.iter().map(|it| places[*it]).collect();
        after.sort_unstable();
        Leg { after, ..legs[leg].clone() }
    };
    order.into_iter().map(moved).collect()
}

/// A step in each planned iteration of the loops around it.
fn planned(schema: &Schema, node: &Node) -> Vec<Activity> {
    let mut rounds = vec![Vec::new()];
    for id in &node.loops {
        let more = schema.loops[id.0 as usize].rounds;
        let longer = |around: &Vec<u32>| {
            let around = around.clone();
            (0..more).map(move |round| [&around[..], &[round]].concat())
        };
        rounds = rounds.iter().flat_map(longer).collect();
    }
    let one = |round| Activity { node: node.id, iteration: Iteration(round) };
    rounds.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use legwork_model::compile::compile;
    use legwork_model::yaml;

    use super::*;

    fn schema(text: &str) -> Schema {
        let (definition, findings) = yaml::parse(text);
        compile(&definition.unwrap_or_else(|| panic!("{findings:?}")), 1).unwrap()
    }

    #[test]
    fn branches_go_beside_each_other_and_what_waits_comes_later() {
        let schema = schema(
            "process: p\nsteps:\n  - { step: a, job: a, takes: 1h }\n  - parallel: both\n    branches:\n      \
             - { name: left, steps: [{ step: b, job: b, after: [c] }] }\n      \
             - { name: right, steps: [{ step: c, job: c }] }\n  \
             - { step: d, job: d }\n",
        );
        let legs = legs(&schema);
        let names: Vec<&str> = legs.iter().map(|leg| &*schema.node(leg.node).name).collect();
        assert_eq!(names, ["a", "c", "b", "d"]);
        let after: Vec<&[usize]> = legs.iter().map(|leg| &*leg.after).collect();
        assert_eq!(after, [&[][..], &[0], &[0, 1], &[0, 2, 1]]);
        assert_eq!(legs[0].takes, Some(Duration::from_secs(3_600)));
    }

    /// Steps in order, with their iterations and direct predecessors.
    fn told(schema: &Schema) -> Vec<String> {
        let legs = legs(schema);
        let name = |leg: &Leg| {
            let rounds: Vec<String> = leg.iteration.0.iter().map(u32::to_string).collect();
            format!("{}{}", schema.node(leg.node).name, rounds.join("."))
        };
        let told = legs.iter().map(|leg| {
            let is_last =
                |place: &&usize| !leg.after.iter().any(|other| legs[*other].after.contains(*place));
            let after: Vec<String> =
                leg.after.iter().filter(is_last).map(|place| name(&legs[*place])).collect();
            format!("{} after {}", name(leg), after.join("+"))
        });
        told.collect()
    }

    #[test]
    fn each_round_comes_after_the_one_before_as_a_whole_and_what_follows_after_the_last() {
        let one = schema(
            "process: p\nsteps:\n  - { step: a, job: a }\n  - loop: l\n    rounds: 3\n    who: Role(c)\n    steps:\n      \
             - { step: b, job: b }\n  - { step: c, job: c }\n",
        );
        assert_eq!(
            told(&one),
            [
                "a after ",
                "b0 after a",
                "l0 after b0",
                "b1 after l0",
                "l1 after b1",
                "b2 after l1",
                "l2 after b2",
                "c after l2"
            ]
        );
    }

    #[test]
    fn rounds_of_a_loop_within_a_loop_are_told_apart() {
        let nested = schema(
            "process: p\ndata: { n: int }\nstart: [n]\nsteps:\n  - loop: outer\n    rounds: 2\n    until: n > 3\n    steps:\n      \
             - { step: a, job: a, writes: [n] }\n      \
             - loop: inner\n        rounds: 2\n        until: n > 4\n        steps:\n          \
             - { step: b, job: b, writes: [n] }\n      \
             - { step: c, job: c }\n",
        );
        assert_eq!(
            told(&nested),
            [
                "a0 after ",
                "b0.0 after a0",
                "b0.1 after b0.0",
                "c0 after b0.1",
                "a1 after c0",
                "b1.0 after a1",
                "b1.1 after b1.0",
                "c1 after b1.1",
            ]
        );
        let mut numbers: Vec<(NodeId, u64)> =
            legs(&nested).iter().map(|leg| (leg.node, leg.iteration.number())).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 8);
    }
}
