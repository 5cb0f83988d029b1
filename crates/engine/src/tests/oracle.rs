//! Invariants, computed independently of the engine.
//!
//! Markings are checked against equations instead of being propagated; data is tracked by the
//! knowledge of each activity, instead of by positions in the schema.

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::event::{Completed, Event};
use legwork_model::id::{Activity, ElementId, NodeId};
use legwork_model::schema::{LOOP_REPEAT, Node, NodeKind, Schema};
use legwork_model::value::Value;

use crate::{NodeState, State};

/// Checks that every node is in the state that its sources imply: the rules are at a fixpoint, and
/// no node was enabled or skipped without a reason.
pub(super) fn check_marking(schema: &Schema, state: &State) {
    for node in &schema.nodes[1..] {
        let found = state.node_state(node.id);
        let right = match expected(state, node) {
            Expected::Waiting => found == NodeState::NotActivated,
            Expected::Skipped => found == NodeState::Skipped,
            Expected::Reached => {
                found == NodeState::Completed || found.is_pending() && may_be_pending(node)
            }
        };
        assert!(right, "`{}` is {found:?}", node.name);
    }
}

/// Checks that an ended instance has ended properly.
pub(super) fn check_end(schema: &Schema, state: &State) {
    for node in &schema.nodes {
        let found = state.node_state(node.id);
        let settled = matches!(found, NodeState::Completed | NodeState::Skipped);
        assert!(settled, "`{}` is {found:?} at the end", node.name);
    }
}

enum Expected {
    Waiting,
    Reached,
    Skipped,
}

fn expected(state: &State, node: &Node) -> Expected {
    let is = |id: NodeId, wanted: NodeState| state.node_state(id) == wanted;
    // Per control edge: `None` before its source is settled.
    let edges: Vec<Option<bool>> = node
        .incoming
        .iter()
        .map(|edge| {
            let taken = edge.code.is_none() || edge.code == state.chosen(edge.from);
            match (is(edge.from, NodeState::Completed), is(edge.from, NodeState::Skipped)) {
                (true, _) => Some(taken),
                (_, true) => Some(false),
                (false, false) => None,
            }
        })
        .collect();
    let unsettled = edges.contains(&None);
    let (trues, falses) = (
        edges.iter().filter(|edge| **edge == Some(true)).count(),
        edges.iter().filter(|edge| **edge == Some(false)).count(),
    );
    if unsettled {
        // Also at a join after a choice: when one branch is done, the others are dead paths.
        return Expected::Waiting;
    }
    let joins = matches!(node.kind, NodeKind::AndJoin);
    if !(if joins { falses == 0 } else { trues == 1 }) {
        assert!(trues <= 1 || joins, "`{}`", node.name);
        return Expected::Skipped;
    }
    let killed = node.sync_in.iter().any(|edge| edge.strict && is(edge.from, NodeState::Skipped));
    let waits = node
        .sync_in
        .iter()
        .any(|edge| !is(edge.from, NodeState::Skipped) && !is(edge.from, NodeState::Completed));
    match (killed, waits) {
        (true, _) => Expected::Skipped,
        (false, true) => Expected::Waiting,
        (false, false) => Expected::Reached,
    }
}

fn may_be_pending(node: &Node) -> bool {
    matches!(
        node.kind,
        NodeKind::Manual { .. }
            | NodeKind::Automatic { .. }
            | NodeKind::Locate
            | NodeKind::XorSplit { .. }
            | NodeKind::LoopEnd { .. }
    )
}

/// The writes that each activity knows, from its predecessors.
pub(super) struct Knowledge<'a> {
    schema: &'a Schema,
    /// The whole history of writes.
    writes: Vec<(ElementId, Value)>,
    /// Per node, those of its current iteration.
    own: BTreeMap<NodeId, Vec<usize>>,
    /// Per loop start, what was known at the last repetition.
    carried: BTreeMap<NodeId, BTreeSet<usize>>,
}

impl<'a> Knowledge<'a> {
    pub(super) fn new(schema: &'a Schema) -> Self {
        let (writes, own, carried) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { schema, writes, own, carried }
    }

    /// Processes an event; `before` is the state that it was applied to.
    pub(super) fn learn(&mut self, before: Option<&State>, event: &Event) {
        match event {
            Event::Created(created) => self.wrote(Schema::START, &created.inputs),
            Event::Completed(Completed { activity, writes, code, .. }) => {
                self.wrote(activity.node, writes);
                self.decided(before.unwrap(), activity, *code);
            }
            Event::Decided { activity, code } => {
                self.decided(before.unwrap(), activity, Some(*code));
            }
            Event::Claimed { .. }
            | Event::Released { .. }
            | Event::Delegated { .. }
            | Event::Failed { .. }
            | Event::IncidentRaised { .. }
            | Event::IncidentResolved { .. }
            | Event::Suspended { .. }
            | Event::Resumed { .. }
            | Event::Aborted { .. }
            | Event::Sent { .. }
            | Event::Delivered { .. }
            | Event::Received(_)
            | Event::Fetched { .. }
            | Event::Finished
            | Event::Redirected { .. }
            | Event::Answered(_)
            | Event::Assigned(_)
            | Event::Replanned(_)
            | Event::DeadlinePassed { .. } => {}
        }
    }

    /// The value that a pending node, or the end, must read.
    pub(super) fn value(
        &self,
        state: &State,
        reader: NodeId,
        element: ElementId,
    ) -> Option<&Value> {
        let known = self.known(state, reader, &mut BTreeMap::new());
        let newest = known.iter().rev().find(|place| self.writes[**place].0 == element)?;
        Some(&self.writes[*newest].1)
    }

    fn wrote(&mut self, node: NodeId, writes: &[(ElementId, Value)]) {
        let places = self.writes.len()..self.writes.len() + writes.len();
        self.writes.extend(writes.iter().cloned());
        self.own.insert(node, places.collect());
    }

    fn decided(&mut self, before: &State, activity: &Activity, code: Option<u32>) {
        let node = self.schema.node(activity.node);
        let (NodeKind::LoopEnd { .. }, Some(LOOP_REPEAT)) = (&node.kind, code) else { return };
        let known = self.known(before, node.id, &mut BTreeMap::new());
        let start = node.partner.unwrap();
        let inside = start..=node.id;
        self.own.retain(|writer, _| !inside.contains(writer));
        self.carried.retain(|start, _| !inside.contains(start));
        self.carried.insert(start, known);
    }

    fn known(
        &self,
        state: &State,
        id: NodeId,
        memory: &mut BTreeMap<NodeId, BTreeSet<usize>>,
    ) -> BTreeSet<usize> {
        if let Some(known) = self.carried.get(&id).or_else(|| memory.get(&id)) {
            return known.clone();
        }
        let node = self.schema.node(id);
        let mut sources: Vec<NodeId> = node.incoming.iter().map(|edge| edge.from).collect();
        // A skipped node did not wait for its sync edges.
        if state.node_state(id) != NodeState::Skipped {
            sources.extend(node.sync_in.iter().map(|edge| edge.from));
        }
        let mut known = BTreeSet::new();
        for source in sources {
            known.extend(self.known(state, source, memory));
            known.extend(self.own.get(&source).into_iter().flatten());
        }
        memory.insert(id, known.clone());
        known
    }
}
