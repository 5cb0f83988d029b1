//! Rule K4: sync edges order steps of different branches of a parallel, and nothing else.
//!
//! `check` returns the edges to leave out; without them the graph has no cycle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::facts::Facts;
use super::places::{FrameKind, Origin, Places};
use super::report::Report;
use crate::definition::{Step, Sync};
use crate::finding::Rule;
use crate::id::NodeId;
use crate::schema::Schema;

/// The most steps of a cycle that are named.
const CYCLE_NAMED_MAX: usize = 12;
/// The most cycles that are told.
const CYCLES_TOLD_MAX: usize = 10;

/// A sync edge as it was written.
#[derive(Clone, Copy)]
struct Edge<'d> {
    from: NodeId,
    to: NodeId,
    sync: &'d Sync,
    step: &'d Step,
    /// Whether the same edge is written before.
    is_repeated: bool,
}

/// Reports forbidden sync edges; returns them by the names of their ends.
pub(super) fn check(
    sequence: &Schema,
    places: &Places<'_>,
    report: &mut Report,
) -> BTreeSet<(Arc<str>, Arc<str>)> {
    let mut sound = Vec::new();
    let mut wrong = BTreeSet::new();
    for edge in edges(places) {
        match misplaced(&edge, sequence, places) {
            None => sound.push(edge),
            Some((message, hint)) => {
                report.error(edge.sync.from.span, Rule::K4, message, hint);
                wrong.insert(edge.names());
            }
        }
    }
    wrong.extend(check_cycles(sequence, places, &sound, report));
    wrong
}

/// Reports sync edges that have no effect, or more effect than an author would expect.
pub(super) fn check_effects(
    schema: &Schema,
    places: &Places<'_>,
    facts: &Facts<'_>,
    report: &mut Report,
) {
    for node in &schema.nodes {
        let Origin::Step(step) = places.origin(node.id) else { continue };
        let node = schema.entry_of(node);
        let source = |sync: &'_ Sync| places.named(&sync.from.value);
        let written: BTreeMap<NodeId, &Sync> =
            step.after.iter().filter_map(|sync| Some((source(sync)?, sync))).collect();
        let implied = facts.implied_syncs(node.id);
        for (edge, implied) in node.sync_in.iter().zip(implied) {
            let Some(sync) = written.get(&edge.from) else { continue };
            let (from, to) = (&sync.from.value, &step.name.value);
            if sync.strict && facts.may_be_skipped(edge.from, node.id) {
                let message = format!(
                    "when `{from}` is skipped, `{to}` is skipped too, and with it everything that \
                     follows up to the end of the process"
                );
                let hint =
                    format!("write `after: [{from}]` if `{to}` shall go ahead without `{from}`");
                report.warning(sync.from.span, Rule::K4, message, hint);
            }
            if !sync.strict && implied {
                let message = format!("`{to}` comes after `{from}` in any case");
                let hint = format!("remove `{from}` from `after`");
                report.warning(sync.from.span, Rule::K4, message, hint);
            }
        }
    }
}

impl Edge<'_> {
    fn names(&self) -> (Arc<str>, Arc<str>) {
        (self.sync.from.value.clone(), self.step.name.value.clone())
    }
}

fn edges<'d>(places: &Places<'d>) -> Vec<Edge<'d>> {
    let mut edges = Vec::new();
    for to in places.nodes() {
        let Origin::Step(step) = places.origin(to) else { continue };
        let mut sources = BTreeSet::new();
        for sync in &step.after {
            if let Some(from) = places.named(&sync.from.value) {
                let is_repeated = !sources.insert(from);
                edges.push(Edge { from, to, sync, step, is_repeated });
            }
        }
    }
    edges
}

/// Why an edge is not allowed here, and the hint.
fn misplaced(edge: &Edge<'_>, sequence: &Schema, places: &Places<'_>) -> Option<(String, String)> {
    let (from, to) = (&edge.sync.from.value, &edge.step.name.value);
    if edge.from == edge.to {
        return Some((format!("`{to}` waits for itself"), "remove it".to_owned()));
    }
    if !matches!(places.origin(edge.from), Origin::Step(_)) {
        let message = format!("`{from}` is not a step");
        return Some((message, "name a step inside of it".to_owned()));
    }
    match places.parting(edge.from, edge.to) {
        None => {
            let message =
                format!("`{to}` and `{from}` are not in different branches of a parallel");
            let hint = match sequence.precedes(edge.from, edge.to) {
                true => "remove it: one comes after the other anyway",
                false => "move the step: the order of the steps cannot be turned round",
            };
            return Some((message, hint.to_owned()));
        }
        Some((_, frame)) if frame.kind == FrameKind::Choice => {
            let choice = places.call(frame.block);
            let message = format!("`{to}` and `{from}` are in different branches of {choice}");
            let hint = "only one of the two will run; remove it";
            return Some((message, hint.to_owned()));
        }
        Some(_) => {}
    }
    if sequence.node(edge.from).loops != sequence.node(edge.to).loops {
        let inside = if sequence.node(edge.from).loops.len() > sequence.node(edge.to).loops.len() {
            from
        } else {
            to
        };
        let message = format!("`{to}` waits for `{from}` across the border of a loop");
        let hint = format!("`{inside}` may run several times; let the two be in the same loop");
        return Some((message, hint));
    }
    if edge.is_repeated {
        let message = format!("`{to}` waits for `{from}` twice");
        return Some((message, "keep one of them".to_owned()));
    }
    None
}

/// Reports each cycle once; returns the sync edges to leave out, at least those on cycles.
fn check_cycles(
    sequence: &Schema,
    places: &Places<'_>,
    edges: &[Edge<'_>],
    report: &mut Report,
) -> Vec<(Arc<str>, Arc<str>)> {
    let mut syncs: Vec<Vec<NodeId>> = vec![Vec::new(); sequence.nodes.len()];
    for edge in edges {
        syncs[edge.from.0 as usize].push(edge.to);
    }
    let stuck = stuck(sequence, &syncs);
    let is_stuck = |edge: &&Edge<'_>| stuck.contains(&edge.from) && stuck.contains(&edge.to);
    let mut told: BTreeSet<(NodeId, NodeId)> = BTreeSet::new();
    let mut cycles = 0;
    for edge in edges.iter().filter(is_stuck) {
        if cycles == CYCLES_TOLD_MAX || told.contains(&(edge.from, edge.to)) {
            continue;
        }
        let Some(path) = shortest_path(sequence, &syncs, edge.to, edge.from) else { continue };
        cycles += 1;
        told.insert((edge.from, edge.to));
        told.extend(path.windows(2).map(|pair| (pair[0], pair[1])));
        let names: Vec<&str> = std::iter::once(edge.from)
            .chain(path)
            .filter(|node| matches!(places.origin(*node), Origin::Step(_)))
            .map(|node| &*sequence.node(node).name)
            .collect();
        let (from, to) = (&edge.sync.from.value, &edge.step.name.value);
        let message = format!("steps wait for each other: {}", shorten(&names));
        let hint = format!("remove `{from}` from what `{to}` waits for");
        report.error(edge.sync.from.span, Rule::K4, message, hint);
    }
    edges.iter().filter(is_stuck).map(Edge::names).collect()
}

/// The nodes on cycles, and those between two cycles.
fn stuck(sequence: &Schema, syncs: &[Vec<NodeId>]) -> BTreeSet<NodeId> {
    let edges = || {
        let outgoing = |node: &'_ crate::schema::Node| {
            let next = node.outgoing.iter().chain(&syncs[node.id.0 as usize]).copied();
            next.map(|to| (node.id, to)).collect::<Vec<_>>()
        };
        sequence.nodes.iter().flat_map(outgoing)
    };
    let forward = without_order(sequence.nodes.len(), edges());
    let back = without_order(sequence.nodes.len(), edges().map(|(from, to)| (to, from)));
    forward.intersection(&back).copied().collect()
}

/// The nodes without a topological order: those on cycles and those behind.
fn without_order(nodes: usize, edges: impl Iterator<Item = (NodeId, NodeId)>) -> BTreeSet<NodeId> {
    let mut next: Vec<Vec<NodeId>> = vec![Vec::new(); nodes];
    let mut waiting = vec![0_usize; nodes];
    for (from, to) in edges {
        next[from.0 as usize].push(to);
        waiting[to.0 as usize] += 1;
    }
    let all = (0..nodes as u32).map(NodeId);
    let mut ready: Vec<NodeId> = all.clone().filter(|id| waiting[id.0 as usize] == 0).collect();
    while let Some(id) = ready.pop() {
        for &to in &next[id.0 as usize] {
            waiting[to.0 as usize] -= 1;
            if waiting[to.0 as usize] == 0 {
                ready.push(to);
            }
        }
    }
    all.filter(|id| waiting[id.0 as usize] > 0).collect()
}

fn shorten(names: &[&str]) -> String {
    let shown = &names[..names.len().min(CYCLE_NAMED_MAX)];
    let rest = match names.last() {
        Some(last) if names.len() > CYCLE_NAMED_MAX => format!(" -> … -> {last}"),
        Some(_) | None => String::new(),
    };
    shown.join(" -> ") + &rest
}

fn shortest_path(
    sequence: &Schema,
    syncs: &[Vec<NodeId>],
    from: NodeId,
    to: NodeId,
) -> Option<Vec<NodeId>> {
    let mut before: Vec<Option<NodeId>> = vec![None; sequence.nodes.len()];
    let mut queue = VecDeque::from([from]);
    while let Some(node) = queue.pop_front() {
        if node == to {
            let mut path = vec![to];
            path.extend(std::iter::successors(before[to.0 as usize], |node| {
                before[node.0 as usize].filter(|_| *node != from)
            }));
            path.reverse();
            return Some(path);
        }
        for &next in sequence.node(node).outgoing.iter().chain(&syncs[node.0 as usize]) {
            if next != from && before[next.0 as usize].is_none() {
                before[next.0 as usize] = Some(node);
                queue.push_back(next);
            }
        }
    }
    None
}
