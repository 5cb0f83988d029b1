//! Rules K1 to K5 as invariants of the compiled graph: a second check of `compile`.
//!
//! A definition cannot break these, only a mistake in the program could. They are checked once more
//! before a schema is stored for good.

use std::collections::BTreeSet;

use crate::id::NodeId;
use crate::schema::{Decision, LoopId, Node, NodeKind, Schema};

/// All violations of a graph; empty for every graph that `compile` draws.
pub fn graph(schema: &Schema) -> Vec<String> {
    let mut broken = Vec::new();
    if !check_numbers(schema, &mut broken) {
        return broken;
    }
    for node in &schema.nodes {
        check_pair(schema, node, &mut broken);
        check_edges(schema, node, &mut broken);
        check_syncs(schema, node, &mut broken);
        check_loops(schema, node, &mut broken);
    }
    check_reachable(schema, &mut broken);
    broken
}

/// Numbers are indices; without that no other check is possible.
fn check_numbers(schema: &Schema, broken: &mut Vec<String>) -> bool {
    let count = schema.nodes.len() as u32;
    let known = |id: &NodeId| id.0 < count;
    for (place, node) in schema.nodes.iter().enumerate() {
        let incoming = node.incoming.iter().map(|edge| &edge.from);
        let syncs = node.sync_in.iter().map(|edge| &edge.from);
        let others = incoming.chain(syncs).chain(&node.outgoing).chain(&node.sync_out);
        let elements = node.reads.iter().chain(&node.writes).map(|access| access.element.0);
        if node.id.0 as usize != place
            || !others.chain(&node.partner).all(known)
            || !elements.into_iter().all(|element| (element as usize) < schema.elements.len())
            || !node.loops.iter().all(|id| (id.0 as usize) < schema.loops.len())
        {
            broken.push(format!("node {place} `{}` names what does not exist", node.name));
        }
    }
    if !schema.loops.iter().all(|l| known(&l.start) && known(&l.end)) {
        broken.push("a loop names a node that does not exist".to_owned());
    }
    let ends = (schema.nodes.first(), schema.nodes.last());
    let (Some(first), Some(last)) = ends else {
        broken.push("there are no nodes".to_owned());
        return false;
    };
    if !matches!((&first.kind, &last.kind), (NodeKind::Start, NodeKind::End)) {
        broken.push("it does not begin with the start and end with the end".to_owned());
    }
    broken.is_empty()
}

/// K1
fn check_pair(schema: &Schema, node: &Node, broken: &mut Vec<String>) {
    let partner = node.partner.map(|id| schema.node(id));
    let fits = match (&node.kind, partner.map(|partner| &partner.kind)) {
        (NodeKind::Manual { .. } | NodeKind::Automatic { .. } | NodeKind::Locate, partner) => {
            partner.is_none()
        }
        (NodeKind::Start, Some(NodeKind::End))
        | (NodeKind::End, Some(NodeKind::Start))
        | (NodeKind::AndSplit { .. }, Some(NodeKind::AndJoin))
        | (NodeKind::AndJoin, Some(NodeKind::AndSplit { .. }))
        | (NodeKind::XorSplit { .. }, Some(NodeKind::XorJoin))
        | (NodeKind::XorJoin, Some(NodeKind::XorSplit { .. }))
        | (NodeKind::LoopStart, Some(NodeKind::LoopEnd { .. }))
        | (NodeKind::LoopEnd { .. }, Some(NodeKind::LoopStart)) => {
            partner.is_some_and(|partner| partner.partner == Some(node.id))
        }
        (_, _) => false,
    };
    if !fits {
        broken.push(format!("K1: `{}` has no matching partner", node.name));
    }
}

/// K2 and the selection codes of K6
fn check_edges(schema: &Schema, node: &Node, broken: &mut Vec<String>) {
    let (incoming, outgoing) = (node.incoming.len(), node.outgoing.len());
    let fits = match &node.kind {
        NodeKind::Start => incoming == 0 && outgoing == 1,
        NodeKind::End => incoming == 1 && outgoing == 0,
        NodeKind::Manual { .. }
        | NodeKind::Automatic { .. }
        | NodeKind::Locate
        | NodeKind::LoopStart
        | NodeKind::LoopEnd { .. } => incoming == 1 && outgoing == 1,
        NodeKind::AndSplit { .. } => incoming == 1 && outgoing >= 1,
        NodeKind::XorSplit { decision, branches } => {
            let conditions = match decision {
                Decision::Conditions(conditions) => conditions.len() == outgoing,
                Decision::Person { .. } => true,
            };
            incoming == 1 && outgoing >= 1 && branches.len() == outgoing && conditions
        }
        NodeKind::AndJoin | NodeKind::XorJoin => incoming >= 1 && outgoing == 1,
    };
    if !fits {
        let name = &node.name;
        broken.push(format!("K2: `{name}` has {incoming} edges in and {outgoing} out"));
    }
    let targets: BTreeSet<NodeId> = node.outgoing.iter().copied().collect();
    let arriving = |next: &NodeId| schema.node(*next).incoming.iter();
    let edges = targets.iter().flat_map(arriving).filter(|edge| edge.from == node.id);
    let mut codes: Vec<Option<u32>> = edges.map(|edge| edge.code).collect();
    codes.sort_unstable();
    let is_choice = matches!(node.kind, NodeKind::XorSplit { .. });
    let expected = (0..outgoing as u32).map(|code| is_choice.then_some(code));
    if !codes.into_iter().eq(expected) {
        broken.push(format!("K6: the edges out of `{}` do not carry one code each", node.name));
    }
    if targets.iter().any(|next| *next <= node.id) {
        broken.push(format!("`{}` has a control edge that leads back", node.name));
    }
    for edge in &node.incoming {
        if !schema.node(edge.from).outgoing.contains(&node.id) {
            broken.push(format!("K2: an edge into `{}` leaves nowhere", node.name));
        }
    }
}

/// K4
fn check_syncs(schema: &Schema, node: &Node, broken: &mut Vec<String>) {
    for edge in &node.sync_in {
        let from = schema.node(edge.from);
        let ordered = schema.precedes(edge.from, node.id) && !schema.precedes(node.id, edge.from);
        if !from.sync_out.contains(&node.id) || !ordered || from.loops != node.loops {
            broken.push(format!("K4: `{}` cannot wait for `{}`", node.name, from.name));
        }
    }
    if schema.precedes(node.id, node.id) {
        broken.push(format!("K4: `{}` waits for itself", node.name));
    }
}

/// K5
fn check_loops(schema: &Schema, node: &Node, broken: &mut Vec<String>) {
    let around = |id: &LoopId| schema.loop_nodes(*id).contains(&node.id.0);
    let all = (0..schema.loops.len() as u32).map(LoopId);
    let expected: Vec<LoopId> = all.filter(around).collect();
    if node.loops != expected {
        broken.push(format!("K5: `{}` is not in the loops around it", node.name));
    }
    let pairs = |l: &crate::schema::Loop| l.start == node.id && Some(l.end) == node.partner;
    let starts = schema.loops.iter().filter(|l| pairs(l)).count();
    if starts != usize::from(matches!(node.kind, NodeKind::LoopStart)) {
        broken.push(format!("K5: `{}` starts {starts} loops", node.name));
    }
}

/// K3
fn check_reachable(schema: &Schema, broken: &mut Vec<String>) {
    let all = |from: NodeId, next: &dyn Fn(&Node) -> Vec<NodeId>| {
        let mut seen = BTreeSet::from([from]);
        let mut waiting = vec![from];
        while let Some(id) = waiting.pop() {
            waiting.extend(next(schema.node(id)).into_iter().filter(|id| seen.insert(*id)));
        }
        seen
    };
    let forward = all(Schema::START, &|node| node.outgoing.clone());
    let back = all(schema.end(), &|node| node.incoming.iter().map(|edge| edge.from).collect());
    for node in &schema.nodes {
        if !forward.contains(&node.id) || !back.contains(&node.id) {
            broken.push(format!("K3: `{}` is on no path from start to end", node.name));
        }
    }
}
