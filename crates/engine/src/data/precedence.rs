//! The activities before a reader.
//!
//! All activities on paths of control and sync edges to the reader, and all in earlier iterations
//! of the loops around both. Not every edge orders, though: a skipped node did not wait for its
//! sync edges, so its successors may run in parallel to the sources of those edges. Activities
//! before a pending activity are settled, hence the values it reads do not change while it is
//! worked on.

use legwork_model::id::{Activity, NodeId};
use legwork_model::schema::{Node, Schema};

use crate::state::{NodeState, State};

/// The activities before one reader.
pub(crate) struct Before<'a> {
    schema: &'a Schema,
    reader: &'a Activity,
    /// The nodes on ordering paths, if these are fewer than those of the schema.
    ordered: Option<Vec<bool>>,
}

impl<'a> Before<'a> {
    pub(crate) fn new(schema: &'a Schema, state: &State, reader: &'a Activity) -> Self {
        let node = schema.nodes.get(reader.node.0 as usize);
        // Which nodes were skipped in earlier iterations is no longer known.
        let present = node.filter(|node| state.compare_iteration(node, &reader.iteration).is_eq());
        let waived = |other: &Node| {
            other.id != reader.node
                && waives(state, other)
                && schema.precedes(other.id, reader.node)
        };
        let ordered = present
            .filter(|_| schema.nodes.iter().any(waived))
            .map(|reader| ordered_before(schema, state, reader));
        Self { schema, reader, ordered }
    }

    pub(crate) fn contains(&self, writer: &Activity) -> bool {
        let known = (writer.node.max(self.reader.node).0 as usize) < self.schema.nodes.len();
        if !known || !self.schema.activity_precedes(writer, self.reader) {
            return false;
        }
        match &self.ordered {
            None => true,
            Some(ordered) => {
                ordered.get(writer.node.0 as usize) == Some(&true) || self.in_earlier_round(writer)
            }
        }
    }

    /// Whether a loop around both has repeated in between.
    fn in_earlier_round(&self, writer: &Activity) -> bool {
        let loops = |activity: &Activity| &self.schema.node(activity.node).loops;
        let shared = loops(writer).iter().zip(loops(self.reader)).take_while(|(a, b)| a == b);
        let rounds = writer.iteration.0.iter().zip(&self.reader.iteration.0);
        shared.zip(rounds).any(|(_, (earlier, later))| earlier < later)
    }
}

/// Whether a node was skipped without waiting for its sync edges.
fn waives(state: &State, node: &Node) -> bool {
    !node.sync_in.is_empty() && state.node_state(node.id) == NodeState::Skipped
}

fn ordered_before(schema: &Schema, state: &State, reader: &Node) -> Vec<bool> {
    let mut ordered = vec![false; schema.nodes.len()];
    let mut waiting = vec![reader];
    while let Some(node) = waiting.pop() {
        let sync: &[_] = if waives(state, node) { &[] } else { &node.sync_in };
        let control = node.incoming.iter().map(|edge| edge.from);
        for NodeId(from) in control.chain(sync.iter().map(|edge| edge.from)) {
            if !std::mem::replace(&mut ordered[from as usize], true) {
                waiting.push(&schema.nodes[from as usize]);
            }
        }
    }
    ordered
}
