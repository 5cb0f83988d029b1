//! When the sender can tell by itself what the receiver lacks.
//!
//! Asking costs two messages. They can be saved where nobody else can have told the receiver any
//! of the missing entries: then what it controlled itself, and what it was told from here, is all
//! it knows. Invariant: on the safe side. A proof that is not found costs a question; a wrong one
//! would send an entry twice. Of a process with sync edges nothing is proven: they tell a server of
//! entries without leaving a trace.

use std::cmp::Ordering;

use legwork_model::event::Passage;
use legwork_model::id::{Activity, NodeId, ServerId};
use legwork_model::schema::{Node, Schema};

use crate::history::{Known, compare, is_part, present};
use crate::place::{Map, place};

/// Control goes over edges of the graph to another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub to: ServerId,
    pub passages: Vec<Passage>,
}

/// Whether nobody else can have told the target of a move any of the missing entries.
pub fn is_proven(
    schema: &Schema,
    known: &impl Known,
    map: &impl Map,
    movement: &Move,
    missing: &[Activity],
) -> bool {
    let proof = Proof { schema, known, map, movement };
    let earliest = minimal(schema, missing);
    schema.nodes.iter().all(|node| node.sync_in.is_empty() && proof.tells_nothing(node, &earliest))
}

struct Proof<'a, K, M> {
    schema: &'a Schema,
    known: &'a K,
    map: &'a M,
    movement: &'a Move,
}

impl<K: Known, M: Map> Proof<'_, K, M> {
    /// Whether the target cannot have learnt a missing entry over the edges into this node.
    fn tells_nothing(&self, node: &Node, earliest: &[&Activity]) -> bool {
        if !self.may_be_at_target(node.id) {
            return true;
        }
        let activity = present(self.schema, self.known, node.id);
        let is_past = self.is_before_move(&activity);
        // What the target controls without an entry of its own leaves no trace of what it knows.
        if !node.has_entry()
            && (earliest.iter().any(|entry| self.was_in_loop_of(node, entry))
                || is_past && self.follows(earliest, &activity))
        {
            return false;
        }
        if is_past || self.known.is_skipped(node.id) {
            return true;
        }
        let into = node.incoming.iter().map(|edge| present(self.schema, self.known, edge.from));
        into.into_iter().all(|from| {
            self.is_this_move(&from, node.id)
                || self.known.is_skipped(from.node)
                || self.is_after_move(&from)
                || !self.follows(earliest, &from)
        })
    }

    /// Whether an entry is of an iteration that is over, of a loop around the node.
    fn was_in_loop_of(&self, node: &Node, entry: &Activity) -> bool {
        let outermost = self.schema.node(entry.node).loops.first();
        compare(self.schema, self.known, entry) == Ordering::Less
            && outermost.is_some_and(|outermost| node.loops.contains(outermost))
    }

    fn may_be_at_target(&self, node: NodeId) -> bool {
        place(self.schema, self.known, self.map, node).is_none_or(|at| at == self.movement.to)
    }

    fn follows(&self, earliest: &[&Activity], activity: &Activity) -> bool {
        earliest.iter().any(|entry| is_part(self.schema, entry, activity))
    }

    /// It is a source of the move or precedes one.
    fn is_before_move(&self, activity: &Activity) -> bool {
        let mut passages = self.movement.passages.iter();
        passages.any(|passage| is_part(self.schema, activity, &passage.source))
    }

    /// It cannot come about before the move has arrived.
    fn is_after_move(&self, activity: &Activity) -> bool {
        let mut passages = self.movement.passages.iter();
        passages.any(|passage| is_part(self.schema, &passage.target, activity))
    }

    fn is_this_move(&self, from: &Activity, to: NodeId) -> bool {
        let mut passages = self.movement.passages.iter();
        passages.any(|passage| passage.source == *from && passage.target.node == to)
    }
}

/// Those that no other one precedes.
fn minimal<'a>(schema: &Schema, activities: &'a [Activity]) -> Vec<&'a Activity> {
    let mut minimal: Vec<&Activity> = Vec::new();
    for activity in activities {
        if minimal.iter().any(|other| schema.activity_precedes(other, activity)) {
            continue;
        }
        minimal.retain(|other| !schema.activity_precedes(activity, other));
        minimal.push(activity);
    }
    minimal
}
