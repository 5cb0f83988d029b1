//! What is certain when a node starts: which steps are done and which elements have a value.
//!
//! All facts assume that the node does run. They follow the blocks: a sequence and a parallel add
//! up, a choice keeps what all its branches agree on, a loop runs its body at least once. Sync
//! edges add what they guarantee: a strict one that its source was done, a soft one only that its
//! source is settled, done or skipped.

use super::places::{Frame, FrameKind, Places};
use crate::id::{ElementId, NodeId};
use crate::schema::{Node, NodeKind, Schema, SyncEdge};

pub(super) struct Facts<'s> {
    schema: &'s Schema,
    places: &'s Places<'s>,
    /// Over control and sync edges.
    before: Vec<Set>,
    after: Vec<Set>,
    /// Steps done and elements written when the node starts.
    certain: Vec<Set>,
    /// Nodes that are done or skipped for good when the node starts.
    settled: Vec<Set>,
    /// Nodes that a strict sync edge may skip although their branch runs.
    killable: Vec<NodeId>,
}

impl<'s> Facts<'s> {
    pub(super) fn new(schema: &'s Schema, places: &'s Places<'s>) -> Self {
        let (nodes, elements) = (schema.nodes.len(), schema.elements.len());
        let mut facts = Self {
            schema,
            places,
            before: vec![Set::new(nodes); nodes],
            after: vec![Set::new(nodes); nodes],
            certain: vec![Set::new(nodes + elements); nodes],
            settled: vec![Set::new(nodes); nodes],
            killable: Vec::new(),
        };
        for id in order(schema) {
            let node = schema.node(id);
            if node.sync_in.iter().any(|sync| sync.strict && facts.may_be_skipped(sync.from, id)) {
                facts.killable.push(id);
            }
            facts.before[id.0 as usize] = facts.before_start(node);
            facts.certain[id.0 as usize] = facts.certain_at(node);
            facts.settled[id.0 as usize] = facts.settled_at(node);
        }
        for id in 0..nodes {
            for earlier in facts.before[id].iter() {
                facts.after[earlier].insert(id);
            }
        }
        facts
    }

    /// Whether `a` lies before `b` on a path of control and sync edges.
    pub(super) fn precedes(&self, a: NodeId, b: NodeId) -> bool {
        self.before[b.0 as usize].contains(a.0 as usize)
    }

    /// All nodes on paths of control and sync edges from this one.
    pub(super) fn after(&self, node: NodeId) -> &Set {
        &self.after[node.0 as usize]
    }

    /// Whether the element certainly has a value when the node starts.
    pub(super) fn has_value(&self, element: ElementId, at: NodeId) -> bool {
        self.certain[at.0 as usize].contains(self.schema.nodes.len() + element.0 as usize)
    }

    /// Whether a node is certainly done when another starts.
    pub(super) fn is_done(&self, node: NodeId, at: NodeId) -> bool {
        self.certain[at.0 as usize].contains(node.0 as usize)
    }

    /// Whether a node is certainly done, or skipped for good, when another starts.
    pub(super) fn is_settled(&self, node: NodeId, at: NodeId) -> bool {
        self.settled[at.0 as usize].contains(node.0 as usize)
    }

    /// For each sync edge into a node, whether the node would wait for its source without it, too.
    pub(super) fn implied_syncs(&self, node: NodeId) -> Vec<bool> {
        let node = self.schema.node(node);
        let over: Vec<Set> =
            node.sync_in.iter().map(|edge| self.settled_over(edge, node.id)).collect();
        // What the edges behind each one settle, last first.
        let mut behind = vec![Set::new(self.schema.nodes.len())];
        for set in over.iter().rev() {
            let mut all = behind.last().cloned().unwrap_or_else(|| set.clone());
            all.union(set);
            behind.push(all);
        }
        behind.reverse();
        let mut others = self.settled_by_control(node);
        let mut implied = Vec::with_capacity(over.len());
        for ((edge, set), behind) in node.sync_in.iter().zip(&over).zip(&behind[1..]) {
            let from = edge.from.0 as usize;
            implied.push(others.contains(from) || behind.contains(from));
            others.union(set);
        }
        implied
    }

    /// Whether `node` may be skipped although `other`, in another branch of a parallel, runs.
    pub(super) fn may_be_skipped(&self, node: NodeId, other: NodeId) -> bool {
        let Some((depth, _)) = self.places.parting(node, other) else { return true };
        self.choices_inside(node, depth).next().is_some() || self.may_be_killed(node, depth)
    }

    /// The branches of choices around a node, below the given depth.
    fn choices_inside(&self, node: NodeId, depth: usize) -> impl Iterator<Item = Frame> + use<'_> {
        let inside = self.places.frames(node).iter().skip(depth + 1);
        inside.copied().filter(|frame| frame.kind == FrameKind::Choice)
    }

    /// Whether a strict sync edge may skip the node, or one before it in the branch at that depth.
    fn may_be_killed(&self, node: NodeId, depth: usize) -> bool {
        let branch = &self.places.frames(node)[..=depth];
        let in_branch =
            |other: NodeId| self.places.frames(other).get(..=depth).is_some_and(|f| f == branch);
        let reaches = |other: NodeId| other == node || self.precedes(other, node);
        self.killable.iter().any(|other| in_branch(*other) && reaches(*other))
    }

    /// Whether a strict sync edge may skip `second` although `first`, before it, has run.
    pub(super) fn may_be_killed_between(&self, first: NodeId, second: NodeId) -> bool {
        let may_stop = |other: NodeId| {
            (other == second || self.precedes(other, second))
                && other != first
                && !self.precedes(other, first)
        };
        self.killable.iter().any(|other| may_stop(*other))
    }

    fn before_start(&self, node: &Node) -> Set {
        let mut set = Set::new(self.schema.nodes.len());
        let syncs = node.sync_in.iter().map(|edge| edge.from);
        for from in node.incoming.iter().map(|edge| edge.from).chain(syncs) {
            set.union(&self.before[from.0 as usize]);
            set.insert(from.0 as usize);
        }
        set
    }

    fn certain_at(&self, node: &Node) -> Set {
        let ends = node.incoming.iter().map(|edge| self.certain_after(edge.from));
        let mut set = self.join(node, ends, self.schema.nodes.len() + self.schema.elements.len());
        for edge in &node.sync_in {
            if edge.strict || !self.may_be_skipped(edge.from, node.id) {
                set.union(&self.certain_after(edge.from));
            }
        }
        set
    }

    fn certain_after(&self, id: NodeId) -> Set {
        let mut set = self.certain[id.0 as usize].clone();
        set.insert(id.0 as usize);
        for write in self.schema.node(id).writes.iter().filter(|write| !write.optional) {
            set.insert(self.schema.nodes.len() + write.element.0 as usize);
        }
        set
    }

    fn settled_at(&self, node: &Node) -> Set {
        let mut set = self.settled_by_control(node);
        for edge in &node.sync_in {
            set.union(&self.settled_over(edge, node.id));
        }
        set
    }

    fn settled_by_control(&self, node: &Node) -> Set {
        let ends = node.incoming.iter().map(|edge| self.settled_after(edge.from));
        let mut set = self.join(node, ends, self.schema.nodes.len());
        if let (NodeKind::XorJoin, Some(split)) = (&node.kind, node.partner) {
            // One branch was done, the others were skipped.
            (split.0..node.id.0).for_each(|inside| set.insert(inside as usize));
        }
        set
    }

    fn settled_after(&self, id: NodeId) -> Set {
        let mut set = self.settled[id.0 as usize].clone();
        set.insert(id.0 as usize);
        set
    }

    /// What is settled once a sync edge releases its target: everything settled both when the
    /// source was done and whenever it may have been skipped instead. A branch not taken is skipped
    /// as a whole when the choice is made, without waiting for the predecessors of its steps.
    fn settled_over(&self, edge: &SyncEdge, to: NodeId) -> Set {
        let mut set = self.settled_after(edge.from);
        let Some((depth, _)) = self.places.parting(edge.from, to) else { return set };
        if edge.strict {
            return set;
        }
        for frame in self.choices_inside(edge.from, depth) {
            let mut skipped = self.settled_after(frame.block);
            let nodes = self.places.branch_nodes(frame);
            nodes.for_each(|inside| skipped.insert(inside.0 as usize));
            set.intersect(&skipped);
        }
        if self.may_be_killed(edge.from, depth) {
            set = Set::new(self.schema.nodes.len());
        }
        set.insert(edge.from.0 as usize);
        set
    }

    fn join(&self, node: &Node, ends: impl Iterator<Item = Set>, size: usize) -> Set {
        let keeps_common = matches!(node.kind, NodeKind::XorJoin);
        ends.reduce(|mut set, other| {
            if keeps_common {
                set.intersect(&other);
            } else {
                set.union(&other);
            }
            set
        })
        .unwrap_or_else(|| Set::new(size))
    }
}

/// All nodes in topological order.
fn order(schema: &Schema) -> Vec<NodeId> {
    let waits = |node: &Node| node.incoming.len() + node.sync_in.len();
    let mut waiting: Vec<usize> = schema.nodes.iter().map(waits).collect();
    let mut order = Vec::with_capacity(schema.nodes.len());
    let mut ready = vec![Schema::START];
    while let Some(id) = ready.pop() {
        order.push(id);
        let node = schema.node(id);
        for &next in node.outgoing.iter().chain(&node.sync_out) {
            let left = &mut waiting[next.0 as usize];
            *left = left.saturating_sub(1);
            if *left == 0 {
                ready.push(next);
            }
        }
    }
    order
}

/// A set of small numbers below a fixed limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Set(Vec<u64>);

impl Set {
    pub(super) fn new(limit: usize) -> Self {
        Self(vec![0; limit.div_ceil(64)])
    }

    pub(super) fn insert(&mut self, number: usize) {
        if let Some(word) = self.0.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }

    pub(super) fn contains(&self, number: usize) -> bool {
        self.0.get(number / 64).is_some_and(|word| word & (1 << (number % 64)) != 0)
    }

    pub(super) fn union(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }

    pub(super) fn intersect(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine &= theirs);
    }

    /// Whether all numbers that are in both this set and `within` are in `other` too.
    pub(super) fn within_is_in(&self, within: &Self, other: &Self) -> bool {
        let words = self.0.iter().zip(&within.0).zip(&other.0);
        words.into_iter().all(|((mine, within), other)| mine & within & !other == 0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + use<'_> {
        let bits = |(place, word): (usize, &u64)| {
            let word = *word;
            (0..64).filter(move |bit| word & (1 << bit) != 0).map(move |bit| place * 64 + bit)
        };
        self.0.iter().enumerate().flat_map(bits)
    }
}
