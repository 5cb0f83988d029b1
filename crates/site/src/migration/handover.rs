//! Hand-over of control: the edges over which a decision passes control to other servers.
//!
//! Invariant: for every settled node exactly one server notifies the successors: the one that controls the node or, if
//! the node is skipped, the one whose decision skipped it.

use std::collections::BTreeMap;

use legwork_engine::{NodeState, State};
use legwork_model::event::Passage;
use legwork_model::id::{Activity, NodeId, ServerId};
use legwork_model::schema::{Edge, Node, NodeKind, Schema};

use crate::cluster::seat::At;

/// The hand-overs that follow from a decision, by receiver. `before` is `None` if the decision begins the instance.
pub(crate) fn hand_overs(
    at: At<'_>,
    schema: &Schema,
    before: Option<&State>,
    after: &State,
) -> BTreeMap<ServerId, Vec<Passage>> {
    let view = View { at, schema, state: after };
    let mut found: BTreeMap<ServerId, Vec<Passage>> = BTreeMap::new();
    let mut add = |source: Activity, target: NodeId| {
        let to = at.place(schema, after, target);
        if to != at.seat.here {
            let target = after.activity(schema, target);
            found.entry(to).or_default().push(Passage { source, target });
        }
    };
    for node in &schema.nodes {
        if let Some(id) = node.ends()
            && after.rounds(id) > before.map_or(0, |before| before.rounds(id))
            && view.repeated_here(node)
        {
            add(view.last_round(node), schema.loops[id.0 as usize].start);
        }
        if !has_settled(schema, before, after, node) || view.responsible(node) != at.seat.here {
            continue;
        }
        for &next in view.successors_to_notify(node) {
            add(after.activity(schema, node.id), next);
        }
    }
    found
}

/// Whether this server has to announce the end of the instance.
pub(crate) fn ends_here(at: At<'_>, schema: &Schema, state: &State) -> bool {
    let end = schema.node(schema.end());
    has_settled(schema, None, state, end)
        && View { at, schema, state }.responsible(end) == at.seat.here
}

/// Whether a node has settled by the decision.
fn has_settled(schema: &Schema, before: Option<&State>, after: &State, node: &Node) -> bool {
    let settled = |state: &State| match state.node_state(node.id) {
        NodeState::Completed | NodeState::Skipped => true,
        NodeState::NotActivated
        | NodeState::Activated
        | NodeState::Selected
        | NodeState::Failed => false,
    };
    let same_round = |before: &&State| {
        before.activity(schema, node.id).iteration == after.activity(schema, node.id).iteration
    };
    settled(after) && !before.filter(same_round).is_some_and(settled)
}

struct View<'a> {
    at: At<'a>,
    schema: &'a Schema,
    state: &'a State,
}

impl<'a> View<'a> {
    /// The server that notifies the successors of a settled node.
    fn responsible(&self, node: &Node) -> ServerId {
        let place = |id| self.at.place(self.schema, self.state, id);
        let Some(edge) = node.incoming.first() else { return place(node.id) };
        if self.state.node_state(node.id) != NodeState::Skipped {
            return place(node.id);
        }
        let before = self.schema.node(edge.from);
        let split = self.schema.node(node.partner.unwrap_or(before.id));
        match (&node.kind, self.state.node_state(before.id)) {
            (NodeKind::AndJoin, _) if !self.is_skipped(split.id) => place(node.id),
            (NodeKind::XorJoin, _) if !self.is_skipped(split.id) => {
                // The branch that was taken was cut short.
                let code = self.state.chosen(split.id).unwrap_or(0);
                let end = node.incoming.get(code as usize).unwrap_or(edge);
                self.responsible(self.schema.node(end.from))
            }
            (NodeKind::AndJoin | NodeKind::XorJoin, _) => self.responsible(split),
            (_, NodeState::Skipped) => self.responsible(before),
            // The node was activated, and a strict sync edge skipped it.
            (_, NodeState::Completed) if self.is_taken(edge) => place(node.id),
            (_, _) => place(before.id),
        }
    }

    fn is_skipped(&self, node: NodeId) -> bool {
        self.state.node_state(node) == NodeState::Skipped
    }

    fn is_taken(&self, edge: &Edge) -> bool {
        edge.code.is_none() || self.state.chosen(edge.from) == edge.code
    }

    /// The nodes to notify that this one has settled.
    fn successors_to_notify(&self, node: &'a Node) -> impl Iterator<Item = &'a NodeId> {
        let skipped = self.is_skipped(node.id);
        let over_control = move |next: &&NodeId| {
            let target = self.schema.node(**next);
            match target.kind {
                // A join waits for all branches, including skipped ones, unless it is itself skipped.
                NodeKind::AndJoin => !target.partner.is_some_and(|split| self.is_skipped(split)),
                NodeKind::XorJoin
                | NodeKind::Start
                | NodeKind::End
                | NodeKind::Manual { .. }
                | NodeKind::Automatic { .. }
                | NodeKind::Locate
                | NodeKind::AndSplit { .. }
                | NodeKind::XorSplit { .. }
                | NodeKind::LoopStart
                | NodeKind::LoopEnd { .. } => !skipped && self.leads_to(node.id, target),
            }
        };
        let over_sync = |next: &&NodeId| !self.is_cut_off(self.schema.node(**next));
        let control = node.outgoing.iter().filter(over_control);
        control.chain(node.sync_out.iter().filter(over_sync))
    }

    /// Whether control passes from a completed node to another.
    fn leads_to(&self, from: NodeId, to: &Node) -> bool {
        to.incoming.iter().any(|edge| edge.from == from && self.is_taken(edge))
    }

    /// Whether a node is a dead path: skipped because control takes another branch. A node skipped by a strict sync
    /// edge is skipped where it is controlled.
    fn is_cut_off(&self, node: &Node) -> bool {
        let completed = |id| self.state.node_state(id) == NodeState::Completed;
        let reached = node.incoming.iter().any(|edge| completed(edge.from) && self.is_taken(edge));
        self.is_skipped(node.id) && !reached
    }

    /// Whether the decision to repeat the loop was made here.
    fn repeated_here(&self, end: &Node) -> bool {
        let last = self.last_round(end);
        let mut done = self.state.completions();
        done.any(|done| done.activity == last && done.server.is_none())
    }

    /// The end of a loop in the previous round.
    fn last_round(&self, end: &Node) -> Activity {
        let mut activity = self.state.activity(self.schema, end.id);
        if let Some(round) = activity.iteration.0.last_mut() {
            *round = round.saturating_sub(1);
        }
        activity
    }
}
