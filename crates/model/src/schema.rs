//! A process as the engine runs it: a graph of numbered nodes.
//!
//! Nodes are numbered in document order, so a block is a contiguous range of numbers and control
//! edges always lead to higher ones. The numbers stand in stored histories: the numbering of a
//! given definition must never change.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::condition::Condition;
use crate::definition::{Demand, Late, Retry, Work};
use crate::id::{Activity, ElementId, NodeId};
use crate::rule::Rule;
use crate::value::ValueType;

#[derive(Clone, Debug)]
pub struct Schema {
    pub process: Arc<str>,
    pub version: u32,
    pub title: Arc<str>,
    /// What happens when the deadline of a case passes.
    pub late: Late,
    pub nodes: Vec<Node>,
    pub elements: Vec<Element>,
    pub loops: Vec<Loop>,
    /// For every node the set of nodes that precede it over control and sync edges.
    pub(crate) predecessors: Vec<BitSet>,
    /// The same over control edges alone.
    pub(crate) control_predecessors: Vec<BitSet>,
}

#[derive(Clone, Debug)]
pub struct Element {
    pub name: Arc<str>,
    pub kind: ValueType,
    pub title: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub id: NodeId,
    /// Unique in the process. Nodes without a name of their own: `SPLIT/join` for the join of a split,
    /// `LOOP/start` for the start of a loop, `STEP.place` for the node that locates a step. The end of
    /// a loop has the name of the loop.
    pub name: Arc<str>,
    pub title: Arc<str>,
    pub kind: NodeKind,
    /// Control edges in.
    pub incoming: Vec<Edge>,
    /// Control edges out, in the order of the branches.
    pub outgoing: Vec<NodeId>,
    pub sync_in: Vec<SyncEdge>,
    pub sync_out: Vec<NodeId>,
    /// The matching split or join, loop start or loop end, process start or end.
    pub partner: Option<NodeId>,
    /// The loops around it, outermost first; a loop's own start and end count as inside.
    pub loops: Vec<LoopId>,
    pub reads: Vec<Access>,
    pub writes: Vec<Access>,
    /// Where it is controlled.
    pub control: Arc<Control>,
    pub takes: Option<Duration>,
    /// Which of its inputs a letter about it shows.
    pub mail: Vec<ElementId>,
    pub undo: Option<Work>,
}

/// Where a node is controlled. A node without `at` inherits it:
///
/// - The start is where the instance was started.
/// - A join or the start of a loop is where the step after it is, if that has an `at`.
/// - A join without such a step is where its split is.
/// - Any other node is where the node before it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Where the instance was started.
    Start,
    Domain(Arc<str>),
    /// Where another node was controlled in its latest iteration, but for the exceptions.
    Server {
        of: NodeId,
        exceptions: BTreeMap<Arc<str>, Arc<str>>,
    },
    /// The home of the person or executor that did the node in its latest iteration, but for the exceptions.
    ActorsDomain {
        of: NodeId,
        exceptions: BTreeMap<Arc<str>, Arc<str>>,
    },
}

#[derive(Clone, Debug)]
pub enum NodeKind {
    Start,
    End,
    Manual {
        who: Rule,
    },
    Automatic {
        job: Arc<str>,
        retry: Retry,
        demand: Demand<ElementId>,
    },
    /// Locates the step after it: at the home of the executor that is expected to do it best.
    Locate,
    AndSplit {
        branches: Vec<Branch>,
    },
    AndJoin,
    XorSplit {
        decision: Decision,
        branches: Vec<Branch>,
    },
    XorJoin,
    LoopStart,
    LoopEnd {
        decision: LoopDecision,
        times_max: u32,
    },
}

#[derive(Clone, Debug)]
pub enum Decision {
    /// One per branch, in order; `None` is `otherwise`.
    Conditions(Vec<Option<Condition>>),
    Person {
        who: Rule,
    },
}

#[derive(Clone, Debug)]
pub enum LoopDecision {
    /// Leaves the loop when true.
    Condition(Condition),
    Person {
        who: Rule,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    pub name: Arc<str>,
    pub title: Arc<str>,
}

/// A control edge, seen from its target. `code` is set when it leaves a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    pub from: NodeId,
    pub code: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncEdge {
    pub from: NodeId,
    pub strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub element: ElementId,
    pub optional: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LoopId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    pub start: NodeId,
    pub end: NodeId,
    /// The number of iterations planned for a deadline.
    pub rounds: u32,
}

/// Codes of the decision at the end of a loop.
pub const LOOP_REPEAT: u32 = 0;
pub const LOOP_LEAVE: u32 = 1;
/// What a person answers at the end of a loop, in the order of the codes.
pub const LOOP_ANSWERS: [&str; 2] = ["repeat", "leave"];

impl Schema {
    pub const START: NodeId = NodeId(0);

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub fn end(&self) -> NodeId {
        NodeId(self.nodes.len() as u32 - 1)
    }

    pub fn element(&self, id: ElementId) -> &Element {
        &self.elements[id.0 as usize]
    }

    /// The node that is entered first for a step: the one that locates it if there is one, else the step.
    pub fn entry_of<'s>(&'s self, step: &'s Node) -> &'s Node {
        let before = step.incoming.first().map(|edge| self.node(edge.from));
        before.filter(|node| matches!(node.kind, NodeKind::Locate)).unwrap_or(step)
    }

    /// The node whose name people see for this one. A node that locates a step is shown as that step.
    pub fn known_as(&self, id: NodeId) -> &Node {
        let node = self.node(id);
        let step = node.outgoing.first().filter(|_| matches!(node.kind, NodeKind::Locate));
        step.map_or(node, |step| self.node(*step))
    }

    pub fn node_named(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| &*node.name == name)
    }

    pub fn element_named(&self, name: &str) -> Option<ElementId> {
        let place = self.elements.iter().position(|element| &*element.name == name)?;
        Some(ElementId(place as u32))
    }

    /// The nodes of a loop, its start and end included.
    pub fn loop_nodes(&self, id: LoopId) -> RangeInclusive<u32> {
        let Loop { start, end, .. } = self.loops[id.0 as usize];
        start.0..=end.0
    }

    /// Whether `a` is before `b` on a path of control and sync edges, within one iteration.
    pub fn precedes(&self, a: NodeId, b: NodeId) -> bool {
        self.predecessors[b.0 as usize].contains(a.0)
    }

    /// Whether activity `a` precedes activity `b`, iterations taken into account: an earlier
    /// iteration of a loop around both precedes a later one as a whole.
    pub fn activity_precedes(&self, a: &Activity, b: &Activity) -> bool {
        self.comes_before(a, b, &self.predecessors)
    }

    /// Whether every server that knows activity `b` is sure to know `a`, on every path through the instance.
    /// Only control edges count: a skipped step does not wait for its sync edges.
    pub fn certainly_precedes(&self, a: &Activity, b: &Activity) -> bool {
        self.comes_before(a, b, &self.control_predecessors)
    }

    fn comes_before(&self, a: &Activity, b: &Activity, predecessors: &[BitSet]) -> bool {
        let (node_a, node_b) = (self.node(a.node), self.node(b.node));
        let shared = node_a.loops.iter().zip(&node_b.loops).take_while(|(x, y)| x == y).count();
        let ours = a.iteration.0.iter().take(shared);
        match ours.cmp(b.iteration.0.iter().take(shared)) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => predecessors[b.node.0 as usize].contains(a.node.0),
            std::cmp::Ordering::Greater => false,
        }
    }
}

impl Control {
    /// The node it depends on.
    pub fn depends_on(&self) -> Option<NodeId> {
        match self {
            Self::Start | Self::Domain(_) => None,
            Self::Server { of, .. } | Self::ActorsDomain { of, .. } => Some(*of),
        }
    }
}

impl Node {
    /// Whether a person works on it: a manual step or a decision by a person.
    pub fn who(&self) -> Option<&Rule> {
        match &self.kind {
            NodeKind::Manual { who }
            | NodeKind::XorSplit { decision: Decision::Person { who }, .. }
            | NodeKind::LoopEnd { decision: LoopDecision::Person { who }, .. } => Some(who),
            NodeKind::Start
            | NodeKind::End
            | NodeKind::Automatic { .. }
            | NodeKind::Locate
            | NodeKind::AndSplit { .. }
            | NodeKind::AndJoin
            | NodeKind::XorSplit { .. }
            | NodeKind::XorJoin
            | NodeKind::LoopStart
            | NodeKind::LoopEnd { .. } => None,
        }
    }

    /// Whether its completion is an entry of the history; those of other nodes follow from entries.
    pub fn has_entry(&self) -> bool {
        match self.kind {
            NodeKind::Start
            | NodeKind::Manual { .. }
            | NodeKind::Automatic { .. }
            | NodeKind::Locate
            | NodeKind::XorSplit { .. }
            | NodeKind::LoopEnd { .. } => true,
            NodeKind::End
            | NodeKind::AndSplit { .. }
            | NodeKind::AndJoin
            | NodeKind::XorJoin
            | NodeKind::LoopStart => false,
        }
    }

    /// The job type of an automatic step.
    pub fn job(&self) -> Option<&Arc<str>> {
        if let NodeKind::Automatic { job, .. } = &self.kind { Some(job) } else { None }
    }

    /// The demands of an automatic step on its worker or executor.
    pub fn demand(&self) -> Option<&Demand<ElementId>> {
        if let NodeKind::Automatic { demand, .. } = &self.kind { Some(demand) } else { None }
    }

    /// Whether it is a decision, by a person or by conditions.
    pub fn is_decision(&self) -> bool {
        match self.kind {
            NodeKind::XorSplit { .. } | NodeKind::LoopEnd { .. } => true,
            NodeKind::Start
            | NodeKind::End
            | NodeKind::Manual { .. }
            | NodeKind::Automatic { .. }
            | NodeKind::Locate
            | NodeKind::AndSplit { .. }
            | NodeKind::AndJoin
            | NodeKind::XorJoin
            | NodeKind::LoopStart => false,
        }
    }

    /// The loop that ends here.
    pub fn ends(&self) -> Option<LoopId> {
        if let NodeKind::LoopEnd { .. } = self.kind { self.loops.last().copied() } else { None }
    }

    /// The branches of a block that begins here, including empty ones.
    pub fn branches(&self) -> &[Branch] {
        match &self.kind {
            NodeKind::AndSplit { branches } | NodeKind::XorSplit { branches, .. } => branches,
            NodeKind::Start
            | NodeKind::End
            | NodeKind::Manual { .. }
            | NodeKind::Automatic { .. }
            | NodeKind::Locate
            | NodeKind::AndJoin
            | NodeKind::XorJoin
            | NodeKind::LoopStart
            | NodeKind::LoopEnd { .. } => &[],
        }
    }

    /// The possible answers of a person here, in the order of their codes.
    pub fn answers(&self) -> Vec<&str> {
        match &self.kind {
            NodeKind::XorSplit { branches, .. } => branches.iter().map(|b| &*b.name).collect(),
            NodeKind::LoopEnd { .. } => LOOP_ANSWERS.to_vec(),
            NodeKind::Start
            | NodeKind::End
            | NodeKind::Manual { .. }
            | NodeKind::Automatic { .. }
            | NodeKind::Locate
            | NodeKind::AndSplit { .. }
            | NodeKind::AndJoin
            | NodeKind::XorJoin
            | NodeKind::LoopStart => Vec::new(),
        }
    }
}

/// A set of small numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BitSet(Vec<u64>);

impl BitSet {
    pub(crate) fn insert(&mut self, number: u32) {
        let word = number as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (number % 64);
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word & 1 << (number % 64) != 0)
    }

    pub(crate) fn union(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }
}
