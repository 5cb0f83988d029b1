//! Which activities come before a reader.
//!
//! Everything on a path of control and sync edges to it, and everything in earlier iterations of
//! the loops around both. Not every edge orders, though: a skipped node did not wait for its sync
//! edges, so whoever follows it may run beside their sources. Of rounds that are over it is not known
//! any more what was skipped in them: there no sync edge counts, for only what is certain does. What
//! is before a pending activity is settled, hence the values it reads do not change while somebody
//! works on it.

use legwork_model::id::{Activity, NodeId};
use legwork_model::schema::{Node, Schema};

use crate::state::{NodeState, State};

/// The activities before one reader.
pub(crate) struct Before<'a> {
    schema: &'a Schema,
    reader: &'a Activity,
    /// The nodes on paths that order, where these are fewer than those of the schema.
    ordered: Option<Vec<bool>>,
}

impl<'a> Before<'a> {
    pub(crate) fn new(schema: &'a Schema, state: &State, reader: &'a Activity) -> Self {
        let waivers = schema.nodes.get(reader.node.0 as usize).map(|node| Waivers {
            schema,
            state,
            reader,
            node,
        });
        let ordered = waivers.filter(Waivers::concern_the_reader).map(|waivers| waivers.ordered());
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

    /// Whether a loop around both has gone round in between.
    fn in_earlier_round(&self, writer: &Activity) -> bool {
        let loops = |activity: &Activity| &self.schema.node(activity.node).loops;
        let shared = loops(writer).iter().zip(loops(self.reader)).take_while(|(a, b)| a == b);
        let rounds = writer.iteration.0.iter().zip(&self.reader.iteration.0);
        shared.zip(rounds).any(|(_, (earlier, later))| earlier < later)
    }
}

/// The nodes that did not wait for their sync edges.
struct Waivers<'a> {
    schema: &'a Schema,
    state: &'a State,
    reader: &'a Activity,
    node: &'a Node,
}

impl Waivers<'_> {
    /// Whether some of them lie on the way to the reader.
    fn concern_the_reader(&self) -> bool {
        self.schema.nodes.iter().any(|other| {
            other.id != self.node.id
                && self.contain(other)
                && self.schema.precedes(other.id, self.node.id)
        })
    }

    fn contain(&self, node: &Node) -> bool {
        !node.sync_in.is_empty()
            && (self.state.node_state(node.id) == NodeState::Skipped || !self.is_present(node))
    }

    /// Whether the state of a node is the one it had in the round of the reader.
    fn is_present(&self, node: &Node) -> bool {
        let shared = node.loops.iter().zip(&self.node.loops).take_while(|(a, b)| a == b);
        shared.zip(&self.reader.iteration.0).all(|((id, _), round)| self.state.round(*id) == *round)
    }

    /// Every node on a path that orders.
    fn ordered(&self) -> Vec<bool> {
        let mut ordered = vec![false; self.schema.nodes.len()];
        let mut waiting = vec![self.node];
        while let Some(node) = waiting.pop() {
            let sync: &[_] = if self.contain(node) { &[] } else { &node.sync_in };
            let control = node.incoming.iter().map(|edge| edge.from);
            for NodeId(from) in control.chain(sync.iter().map(|edge| edge.from)) {
                if !std::mem::replace(&mut ordered[from as usize], true) {
                    waiting.push(&self.schema.nodes[from as usize]);
                }
            }
        }
        ordered
    }
}
