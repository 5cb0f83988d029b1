//! When the sender can prove what the receiver lacks.
//!
//! A question costs two messages. It is saved if no other server can have sent the receiver any of
//! the missing entries: then the receiver knows only what it controlled itself, and what it was sent
//! from here. Invariant: on the safe side. A proof that is not found costs a question; a wrong proof
//! would send an entry twice. Processes with sync edges are never proven: a sync edge tells a server
//! of entries without leaving a trace.

use legwork_model::event::Passage;
use legwork_model::id::{Activity, NodeId, ServerId};
use legwork_model::schema::{Node, Schema};

use crate::history::{Known, is_part, present};
use crate::place::{Map, place};

/// Control goes over edges of the graph to another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub to: ServerId,
    pub passages: Vec<Passage>,
}

/// Whether no other server can have sent the target of a transfer any of the missing entries.
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
        // A node without an entry that the target controls leaves no trace of what the target knows.
        let is_traceless = !node.has_entry();
        let activity = present(self.schema, self.known, node.id);
        let before = last_before(&activity).filter(|_| is_traceless);
        if before.is_some_and(|before| self.follows(earliest, &before))
            && self.may_have_been_at_target(node)
        {
            return false;
        }
        if !self.may_be_at_target(node.id) {
            return true;
        }
        let is_past = self.is_before_move(&activity);
        if is_traceless && is_past && self.follows(earliest, &activity) {
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

    /// Whether the target may control a node or have controlled it in a completed iteration: its
    /// place may be another one each time if it depends on a step in the same loop.
    fn may_have_been_at_target(&self, node: &Node) -> bool {
        let outermost = node.loops.first();
        let changes = node.control.depends_on().is_some_and(|of| {
            outermost.is_some_and(|outermost| self.schema.node(of).loops.contains(outermost))
        });
        changes || self.may_be_at_target(node.id)
    }

    fn may_be_at_target(&self, node: NodeId) -> bool {
        place(self.schema, self.known, self.map, node).is_none_or(|at| at == self.movement.to)
    }

    fn follows(&self, earliest: &[&Activity], activity: &Activity) -> bool {
        earliest.iter().any(|entry| is_part(self.schema, entry, activity))
    }

    /// It is a source of the transfer or precedes one.
    fn is_before_move(&self, activity: &Activity) -> bool {
        let mut passages = self.movement.passages.iter();
        passages.any(|passage| is_part(self.schema, activity, &passage.source))
    }

    /// It cannot complete before the transfer has arrived.
    fn is_after_move(&self, activity: &Activity) -> bool {
        let mut passages = self.movement.passages.iter();
        passages.any(|passage| is_part(self.schema, &passage.target, activity))
    }

    fn is_this_move(&self, from: &Activity, to: NodeId) -> bool {
        let mut passages = self.movement.passages.iter();
        passages.any(|passage| passage.source == *from && passage.target.node == to)
    }
}

/// The same node in the last iteration before, if there was one. The number of repetitions of its
/// inner loops does not matter.
fn last_before(activity: &Activity) -> Option<Activity> {
    let mut before = activity.clone();
    let rounds = &mut before.iteration.0;
    let place = rounds.iter().rposition(|round| *round > 0)?;
    rounds[place] -= 1;
    rounds[place + 1..].fill(u32::MAX);
    Some(before)
}

/// The activities that no other one precedes.
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
