//! The rules by which one node's end enables or skips others.
//!
//! Edges have no storage: the signal of an edge follows from its source (`control_signal`,
//! `sync_signal`). A node leaves `NotActivated` at most once per iteration and the rules look at
//! settled sources alone, so the order in which nodes are examined does not matter.

use legwork_model::condition::Condition;
use legwork_model::id::{ElementId, NodeId, ServerId};
use legwork_model::schema::{
    Decision, Edge, LoopDecision, LoopId, Node, NodeKind, Schema, SyncEdge,
};
use legwork_model::time::Timestamp;

use crate::state::{Change, Lifecycle, NodeState, Pending, State};

/// Spreads the consequences of an event over the nodes of an instance.
///
/// `next` picks the node to examine next from those waiting; it affects only the order.
pub(crate) struct Spread<'a, N> {
    pub(crate) schema: &'a Schema,
    pub(crate) state: &'a mut State,
    pub(crate) at: Timestamp,
    pub(crate) changes: &'a mut Vec<Change>,
    /// Decisions by condition that became due.
    pub(crate) undecided: &'a mut Vec<NodeId>,
    pub(crate) next: N,
    /// The server that controlled the event; `None` for this server.
    pub(crate) server: Option<ServerId>,
    waiting: Vec<NodeId>,
}

/// The signal of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    None,
    True,
    False,
}

/// The verdict of the rules on a node that is not activated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Wait,
    Enable,
    Skip,
}

impl<'a, N: FnMut(&mut Vec<NodeId>) -> Option<NodeId>> Spread<'a, N> {
    pub(crate) fn new(
        schema: &'a Schema,
        state: &'a mut State,
        at: Timestamp,
        changes: &'a mut Vec<Change>,
        undecided: &'a mut Vec<NodeId>,
        next: N,
    ) -> Self {
        Self { schema, state, at, changes, undecided, next, server: None, waiting: Vec::new() }
    }

    /// A node completed: signals its successors, to a fixpoint.
    pub(crate) fn completed(&mut self, node: &Node) {
        self.settle(node, NodeState::Completed);
        self.run();
    }

    /// Rule Iterate: the loop repeats.
    pub(crate) fn iterate(&mut self, id: LoopId) {
        let Some(rounds) = self.state.rounds.get_mut(id.0 as usize) else { return };
        *rounds = rounds.saturating_add(1);
        let range = self.schema.loop_nodes(id);
        for node in range.clone() {
            self.state.nodes.set(node, NodeState::NotActivated);
        }
        self.state.pending.retain(|pending| !range.contains(&pending.node.0));
        for (inner, rounds) in self.schema.loops.iter().zip(&mut self.state.rounds) {
            if inner.start.0 > *range.start() && range.contains(&inner.start.0) {
                *rounds = 0;
            }
        }
        let start = self.schema.node(self.schema.loops[id.0 as usize].start);
        self.completed(start);
    }

    /// Changes the state of a node, and records the change.
    pub(crate) fn enter(&mut self, node: &Node, to: NodeState) {
        let from = self.state.nodes.get(node.id.0);
        self.state.nodes.set(node.id.0, to);
        let pending = &mut self.state.pending;
        match (from.is_pending(), to.is_pending()) {
            (false, true) => {
                let new = Pending { node: node.id, attempts: 0, since: self.at, detail: None };
                let place = pending.partition_point(|other| other.node < node.id);
                pending.reserve_exact(1);
                pending.insert(place, new);
            }
            (true, false) => pending.retain(|other| other.node != node.id),
            (true, true) | (false, false) => {}
        }
        let (from, to) = (seen_outside(node, from), seen_outside(node, to));
        if from.is_pending() || to.is_pending() {
            let activity = self.state.activity(self.schema, node.id);
            self.changes.push(Change { activity, from, to });
        }
    }

    fn run(&mut self) {
        let schema = self.schema;
        while let Some(id) = (self.next)(&mut self.waiting) {
            let node = schema.node(id);
            if self.state.nodes.get(id.0) != NodeState::NotActivated {
                continue;
            }
            match verdict(self.state, node) {
                Verdict::Wait => {}
                Verdict::Enable => self.enable(node),
                Verdict::Skip => self.settle(node, NodeState::Skipped),
            }
        }
    }

    fn enable(&mut self, node: &Node) {
        match &node.kind {
            NodeKind::Start
            | NodeKind::AndSplit { .. }
            | NodeKind::AndJoin
            | NodeKind::XorJoin
            | NodeKind::LoopStart
            | NodeKind::End => self.settle(node, NodeState::Completed),
            NodeKind::Manual { .. }
            | NodeKind::Automatic { .. }
            | NodeKind::Locate
            | NodeKind::XorSplit { .. }
            | NodeKind::LoopEnd { .. } => {
                self.enter(node, NodeState::Activated);
                if !has_outside_work(node) {
                    self.undecided.push(node.id);
                }
            }
        }
    }

    /// Completes or skips a node and examines the targets of all its edges. The instance ends with
    /// its end node, also when a strict sync edge skipped everything up to the end.
    fn settle(&mut self, node: &Node, to: NodeState) {
        self.enter(node, to);
        // Reversed, so that the usual order, last in first out, is the document order.
        self.waiting.extend(node.outgoing.iter().chain(&node.sync_out).rev());
        // With several servers, the one that controls the end records it.
        if let NodeKind::End = node.kind
            && self.state.travel.is_none()
        {
            self.state.lifecycle = Lifecycle::Completed;
        }
    }
}

/// The elements that a node needs: those it reads, and those in its conditions.
pub(crate) fn read_by(schema: &Schema, node: &Node) -> Vec<ElementId> {
    let conditions: Vec<&Condition> = match &node.kind {
        NodeKind::XorSplit { decision: Decision::Conditions(conditions), .. } => {
            conditions.iter().flatten().collect()
        }
        NodeKind::LoopEnd { decision: LoopDecision::Condition(condition), .. } => vec![condition],
        NodeKind::XorSplit { decision: Decision::Person { .. }, .. }
        | NodeKind::LoopEnd { decision: LoopDecision::Person { .. }, .. }
        | NodeKind::Start
        | NodeKind::End
        | NodeKind::Manual { .. }
        | NodeKind::Automatic { .. }
        | NodeKind::Locate
        | NodeKind::AndSplit { .. }
        | NodeKind::AndJoin
        | NodeKind::XorJoin
        | NodeKind::LoopStart => Vec::new(),
    };
    let spoken_of = conditions.into_iter().flat_map(Condition::variables);
    let spoken_of = spoken_of.filter_map(|name| schema.element_named(name));
    let mut all: Vec<ElementId> =
        node.reads.iter().map(|access| access.element).chain(spoken_of).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Whether a node is work for a person or a worker, not decided here.
pub(crate) fn has_outside_work(node: &Node) -> bool {
    match &node.kind {
        NodeKind::Manual { .. }
        | NodeKind::Automatic { .. }
        | NodeKind::XorSplit { decision: Decision::Person { .. }, .. }
        | NodeKind::LoopEnd { decision: LoopDecision::Person { .. }, .. } => true,
        NodeKind::XorSplit { decision: Decision::Conditions(_), .. }
        | NodeKind::LoopEnd { decision: LoopDecision::Condition(_), .. }
        | NodeKind::Locate
        | NodeKind::Start
        | NodeKind::End
        | NodeKind::AndSplit { .. }
        | NodeKind::AndJoin
        | NodeKind::XorJoin
        | NodeKind::LoopStart => false,
    }
}

/// A decision by condition is outside work only with an incident: otherwise it is over before it
/// could be seen outside.
fn seen_outside(node: &Node, state: NodeState) -> NodeState {
    if state == NodeState::Activated && !has_outside_work(node) {
        NodeState::NotActivated
    } else {
        state
    }
}

/// Rules Enable and Skip, with the sync guard and the strict kill.
fn verdict(state: &State, node: &Node) -> Verdict {
    let control = match node.kind {
        NodeKind::AndJoin => all_true(state, node),
        NodeKind::XorJoin
        | NodeKind::Start
        | NodeKind::End
        | NodeKind::Manual { .. }
        | NodeKind::Automatic { .. }
        | NodeKind::Locate
        | NodeKind::AndSplit { .. }
        | NodeKind::XorSplit { .. }
        | NodeKind::LoopStart
        | NodeKind::LoopEnd { .. } => one_true(state, node),
    };
    match control {
        Verdict::Enable => guarded(state, node),
        unguarded @ (Verdict::Skip | Verdict::Wait) => unguarded,
    }
}

/// A join of parallel branches: enabled if all edges are true, skipped if one is false. It waits
/// for all of them either way, so that no node before a settled node is still running.
fn all_true(state: &State, node: &Node) -> Verdict {
    let mut verdict = Verdict::Enable;
    for edge in &node.incoming {
        match control_signal(state, edge) {
            Signal::None => return Verdict::Wait,
            Signal::False => verdict = Verdict::Skip,
            Signal::True => {}
        }
    }
    verdict
}

/// A join after a choice, and with its single edge every other node: enabled by the true edge (the
/// others are or will be false), skipped if all are false.
fn one_true(state: &State, node: &Node) -> Verdict {
    let mut verdict = Verdict::Skip;
    for edge in &node.incoming {
        match control_signal(state, edge) {
            Signal::True => return Verdict::Enable,
            Signal::None => verdict = Verdict::Wait,
            Signal::False => {}
        }
    }
    verdict
}

/// The verdict of the sync edges on a node that is due: a strict one that is false skips it, one
/// without a signal makes it wait.
fn guarded(state: &State, node: &Node) -> Verdict {
    let mut verdict = Verdict::Enable;
    for edge in &node.sync_in {
        match (sync_signal(state, edge), edge.strict) {
            (Signal::False, true) => return Verdict::Skip,
            (Signal::None, true | false) => verdict = Verdict::Wait,
            (Signal::True, true | false) | (Signal::False, false) => {}
        }
    }
    verdict
}

/// What a control edge signals: true when its source completed (and, leaving a choice, its branch
/// was taken), false when the source was skipped or took another branch, nothing before.
/// The end of a loop counts as completed once the loop was left.
fn control_signal(state: &State, edge: &Edge) -> Signal {
    match (state.node_state(edge.from), edge.code) {
        (NodeState::Completed, None) => Signal::True,
        (NodeState::Completed, code @ Some(_)) if state.chosen(edge.from) == code => Signal::True,
        (NodeState::Completed, Some(_)) | (NodeState::Skipped, _) => Signal::False,
        (
            NodeState::NotActivated
            | NodeState::Activated
            | NodeState::Selected
            | NodeState::Failed,
            _,
        ) => Signal::None,
    }
}

/// What a sync edge signals: true when its source completed, false when it was skipped.
fn sync_signal(state: &State, edge: &SyncEdge) -> Signal {
    match state.node_state(edge.from) {
        NodeState::Completed => Signal::True,
        NodeState::Skipped => Signal::False,
        NodeState::NotActivated
        | NodeState::Activated
        | NodeState::Selected
        | NodeState::Failed => Signal::None,
    }
}
