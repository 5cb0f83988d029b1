//! From blocks to the graph: numbers the nodes and draws the edges.
//!
//! Works on any definition whose names are known and unique and whose sync edges form no cycle, which
//! `check` ensures; the numbering depends on the order of the blocks alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::assignment::{Assignment, Place};
use crate::definition::{
    self, Block, Choice, ChoiceBy, Decider, Definition, Guard, Late, Loop, Parallel, Step, Until,
    Use, Work,
};
use crate::finding::Spanned;
use crate::id::{ElementId, NodeId};
use crate::schema::{
    Access, BitSet, Branch, Control, Decision, Edge, Element, LoopDecision, LoopId, Node, NodeKind,
    Schema, SyncEdge,
};

/// A name the definition uses and does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    #[error("there is no {what} `{name}`")]
    Unknown { what: &'static str, name: Arc<str> },
    #[error("`{name}` waits for itself over sync edges")]
    Cycle { name: Arc<str> },
}

/// Draws the graph of a definition.
pub fn compile(definition: &Definition, version: u32) -> Result<Schema, CompileError> {
    let process = definition.process.value.clone();
    let title = definition.title.as_deref().map_or_else(|| process.clone(), Arc::from);
    let elements = definition
        .data
        .iter()
        .map(|e| Element { name: e.name.value.clone(), kind: e.kind, title: e.title.clone() })
        .collect();
    let mut drawing = Drawing {
        schema: Schema {
            process,
            version,
            title,
            late: definition.late.as_ref().map_or_else(Late::default, |late| late.value),
            nodes: Vec::new(),
            elements,
            loops: Vec::new(),
            predecessors: Vec::new(),
            control_predecessors: Vec::new(),
        },
        loops: Vec::new(),
        syncs: Vec::new(),
        assignments: BTreeMap::new(),
    };
    drawing.process(definition)?;
    drawing.connect_syncs()?;
    drawing.place()?;
    drawing.close_predecessors()?;
    Ok(drawing.schema)
}

struct Drawing {
    schema: Schema,
    /// The loops around the place being drawn.
    loops: Vec<LoopId>,
    /// Sync edges to draw once all nodes have numbers.
    syncs: Vec<(NodeId, Arc<str>, bool)>,
    /// The assignments after `at:`.
    assignments: BTreeMap<NodeId, Assignment>,
}

impl Drawing {
    fn process(&mut self, definition: &Definition) -> Result<(), CompileError> {
        let start = self.node("start", None, NodeKind::Start);
        self.schema.nodes[start.0 as usize].writes = self.accesses(&definition.start)?;
        let last = self.sequence(&definition.steps, vec![Edge { from: start, code: None }])?;
        let end = self.node("end", None, NodeKind::End);
        self.schema.nodes[end.0 as usize].reads = self.accesses(&definition.result)?;
        self.enter(end, last);
        self.pair(start, end);
        Ok(())
    }

    /// Draws blocks in sequence; returns the open ends of the last.
    fn sequence(
        &mut self,
        blocks: &[Block],
        mut ends: Vec<Edge>,
    ) -> Result<Vec<Edge>, CompileError> {
        for block in blocks {
            let last = match block {
                Block::Step(step) => self.step(step, ends)?,
                Block::Parallel(parallel) => self.parallel(parallel, ends)?,
                Block::Choice(choice) => self.choice(choice, ends)?,
                Block::Loop(l) => self.repeat(l, ends)?,
            };
            ends = vec![Edge { from: last, code: None }];
        }
        Ok(ends)
    }

    fn step(&mut self, step: &Step, from: Vec<Edge>) -> Result<NodeId, CompileError> {
        let kind = match &step.work {
            Work::Manual { who } => NodeKind::Manual { who: who.value.clone() },
            Work::Automatic { job, retry, demand } => {
                let (job, retry) = (job.value.clone(), *retry);
                let demand = demand.clone().map(|element| self.element(&element.value))?;
                NodeKind::Automatic { job, retry, demand }
            }
        };
        let (entry, from) = self.located(step, from);
        let id = self.node(&step.name.value, step.title.as_deref(), kind);
        self.enter(id, from);
        let (reads, writes) = (self.accesses(&step.reads)?, self.accesses(&step.writes)?);
        let mail = self.elements(&step.mail)?;
        let node = &mut self.schema.nodes[id.0 as usize];
        node.reads = reads;
        node.writes = writes;
        node.takes = step.takes;
        node.mail = mail;
        node.undo = step.undo.clone();
        self.assignments.extend(step.at.as_ref().map(|at| (id, at.value.clone())));
        // A predecessor of a located step does not know its place yet.
        let entry = entry.unwrap_or(id);
        let syncs = step.after.iter().map(|sync| (entry, sync.from.value.clone(), sync.strict));
        self.syncs.extend(syncs);
        Ok(id)
    }

    /// Draws the node that locates a step controlled at its executor's home; returns the node, and
    /// the edges into the step.
    fn located(&mut self, step: &Step, from: Vec<Edge>) -> (Option<NodeId>, Vec<Edge>) {
        if !step.is_located() {
            return (None, from);
        }
        // No step has this name: names contain no dots.
        let name = format!("{}.place", step.name.value);
        let id = self.node(&name, None, NodeKind::Locate);
        self.enter(id, from);
        (Some(id), vec![Edge { from: id, code: None }])
    }

    fn parallel(&mut self, parallel: &Parallel, from: Vec<Edge>) -> Result<NodeId, CompileError> {
        let name = &parallel.name.value;
        let kind = NodeKind::AndSplit { branches: branches(&parallel.branches) };
        let split = self.node(name, parallel.title.as_deref(), kind);
        self.enter(split, from);
        let (mut firsts, mut ends) = (Vec::new(), Vec::new());
        for branch in &parallel.branches {
            firsts.push(self.next_id());
            ends.extend(self.sequence(&branch.steps, vec![Edge { from: split, code: None }])?);
        }
        let join = self.node(&format!("{name}/join"), parallel.title.as_deref(), NodeKind::AndJoin);
        self.join(split, join, firsts, ends);
        Ok(join)
    }

    fn choice(&mut self, choice: &Choice, from: Vec<Edge>) -> Result<NodeId, CompileError> {
        let name = &choice.name.value;
        let decision = match &choice.by {
            ChoiceBy::Conditions => Decision::Conditions(
                choice
                    .branches
                    .iter()
                    .map(|branch| match &branch.guard {
                        Guard::When(condition) => Some(condition.value.clone()),
                        Guard::None | Guard::Otherwise(_) => None,
                    })
                    .collect(),
            ),
            ChoiceBy::Person(decider) => Decision::Person { who: decider.who.value.clone() },
        };
        let kind = NodeKind::XorSplit { decision, branches: branches(&choice.branches) };
        let split = self.node(name, choice.title.as_deref(), kind);
        self.enter(split, from);
        if let ChoiceBy::Person(decider) = &choice.by {
            self.decider(split, decider)?;
        }
        let (mut firsts, mut ends) = (Vec::new(), Vec::new());
        for (code, branch) in choice.branches.iter().enumerate() {
            firsts.push(self.next_id());
            let edge = Edge { from: split, code: Some(code as u32) };
            ends.extend(self.sequence(&branch.steps, vec![edge])?);
        }
        let join = self.node(&format!("{name}/join"), choice.title.as_deref(), NodeKind::XorJoin);
        self.join(split, join, firsts, ends);
        Ok(join)
    }

    fn repeat(&mut self, l: &Loop, from: Vec<Edge>) -> Result<NodeId, CompileError> {
        let name = &l.name.value;
        let id = LoopId(self.schema.loops.len() as u32);
        self.loops.push(id);
        let start = self.node(&format!("{name}/start"), l.title.as_deref(), NodeKind::LoopStart);
        self.schema.loops.push(crate::schema::Loop { start, end: start, rounds: l.rounds });
        self.enter(start, from);
        let ends = self.sequence(&l.body, vec![Edge { from: start, code: None }])?;
        let decision = match &l.until {
            Until::Condition(condition) => LoopDecision::Condition(condition.value.clone()),
            Until::Person(decider) => LoopDecision::Person { who: decider.who.value.clone() },
        };
        let kind = NodeKind::LoopEnd { decision, times_max: l.times_max };
        let end = self.node(name, l.title.as_deref(), kind);
        self.enter(end, ends);
        if let Until::Person(decider) = &l.until {
            self.decider(end, decider)?;
        }
        self.schema.loops[id.0 as usize].end = end;
        self.loops.pop();
        self.pair(start, end);
        Ok(end)
    }

    fn decider(&mut self, id: NodeId, decider: &Decider) -> Result<(), CompileError> {
        let reads = self.accesses(&decider.reads)?;
        let mail = self.elements(&decider.mail)?;
        let node = &mut self.schema.nodes[id.0 as usize];
        node.reads = reads;
        node.takes = decider.takes;
        node.mail = mail;
        self.assignments.extend(decider.at.as_ref().map(|at| (id, at.value.clone())));
        Ok(())
    }

    fn node(&mut self, name: &str, title: Option<&str>, kind: NodeKind) -> NodeId {
        let id = self.next_id();
        let name: Arc<str> = Arc::from(name);
        self.schema.nodes.push(Node {
            id,
            title: title.map_or_else(|| name.clone(), Arc::from),
            name,
            kind,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            sync_in: Vec::new(),
            sync_out: Vec::new(),
            partner: None,
            loops: self.loops.clone(),
            reads: Vec::new(),
            writes: Vec::new(),
            control: Arc::new(Control::Start),
            takes: None,
            mail: Vec::new(),
            undo: None,
        });
        id
    }

    fn enter(&mut self, to: NodeId, edges: Vec<Edge>) {
        for edge in &edges {
            self.schema.nodes[edge.from.0 as usize].outgoing.push(to);
        }
        self.schema.nodes[to.0 as usize].incoming = edges;
    }

    /// Closes a block. `firsts` are the nodes after the split, one per branch; after an empty branch
    /// it is the first node of the next one, where the join is meant.
    fn join(&mut self, split: NodeId, join: NodeId, firsts: Vec<NodeId>, ends: Vec<Edge>) {
        let begins = firsts.iter().zip(firsts.iter().skip(1).chain([&join]));
        let outgoing = begins.map(|(&first, &next)| if first == next { join } else { first });
        self.schema.nodes[split.0 as usize].outgoing = outgoing.collect();
        for edge in ends.iter().filter(|edge| edge.from != split) {
            self.schema.nodes[edge.from.0 as usize].outgoing.push(join);
        }
        self.schema.nodes[join.0 as usize].incoming = ends;
        self.pair(split, join);
    }

    fn next_id(&self) -> NodeId {
        NodeId(self.schema.nodes.len() as u32)
    }

    fn pair(&mut self, a: NodeId, b: NodeId) {
        self.schema.nodes[a.0 as usize].partner = Some(b);
        self.schema.nodes[b.0 as usize].partner = Some(a);
    }

    fn elements(&self, names: &[Spanned<Arc<str>>]) -> Result<Vec<ElementId>, CompileError> {
        names.iter().map(|name| self.element(&name.value)).collect()
    }

    fn accesses(&self, uses: &[Use]) -> Result<Vec<Access>, CompileError> {
        uses.iter()
            .map(|Use { element, optional }| {
                Ok(Access { element: self.element(&element.value)?, optional: *optional })
            })
            .collect()
    }

    fn element(&self, name: &Arc<str>) -> Result<ElementId, CompileError> {
        let unknown = || CompileError::Unknown { what: "data element", name: name.clone() };
        self.schema.element_named(name).ok_or_else(unknown)
    }

    fn connect_syncs(&mut self) -> Result<(), CompileError> {
        let numbers: BTreeMap<Arc<str>, NodeId> =
            self.schema.nodes.iter().map(|node| (node.name.clone(), node.id)).collect();
        for (to, name, strict) in std::mem::take(&mut self.syncs) {
            let unknown = || CompileError::Unknown { what: "step", name: name.clone() };
            let from = *numbers.get(&name).ok_or_else(unknown)?;
            self.schema.nodes[from.0 as usize].sync_out.push(to);
            self.schema.nodes[to.0 as usize].sync_in.push(SyncEdge { from, strict });
        }
        Ok(())
    }

    /// Sets the place of every node, in the order of the numbers: what a node inherits from comes
    /// before it.
    fn place(&mut self) -> Result<(), CompileError> {
        let mut own = BTreeMap::new();
        for (&id, assignment) in &self.assignments {
            own.insert(id, Arc::new(self.control(id, assignment)?));
        }
        for place in 0..self.schema.nodes.len() {
            let node = &self.schema.nodes[place];
            let before = match node.kind {
                NodeKind::AndJoin | NodeKind::XorJoin => node.partner,
                NodeKind::Start
                | NodeKind::End
                | NodeKind::Manual { .. }
                | NodeKind::Automatic { .. }
                | NodeKind::Locate
                | NodeKind::AndSplit { .. }
                | NodeKind::XorSplit { .. }
                | NodeKind::LoopStart
                | NodeKind::LoopEnd { .. } => node.incoming.first().map(|edge| edge.from),
            };
            // Joining paths join at the place where they go on, not in between.
            let gathers = node.incoming.len() > 1 || matches!(node.kind, NodeKind::LoopStart);
            let next = node.outgoing.first().filter(|_| gathers);
            let written = own.get(&node.id).or_else(|| own.get(next?));
            let inherited = || before.map(|before| &self.schema.node(before).control);
            if let Some(control) = written.or_else(inherited) {
                self.schema.nodes[place].control = control.clone();
            }
        }
        Ok(())
    }

    fn control(&self, id: NodeId, assignment: &Assignment) -> Result<Control, CompileError> {
        let step = |name: &Arc<str>| {
            let unknown = || CompileError::Unknown { what: "step", name: name.clone() };
            self.schema.node_named(name).map(|node| node.id).ok_or_else(unknown)
        };
        let exceptions = assignment.exceptions.clone();
        Ok(match &assignment.place {
            Place::Domain(domain) => Control::Domain(domain.clone()),
            Place::Executor => match self.schema.node(id).incoming.first() {
                Some(Edge { from, .. }) => Control::ActorsDomain { of: *from, exceptions },
                None => Control::Start,
            },
            Place::Server(name) => Control::Server { of: step(name)?, exceptions },
            Place::ActorsDomain(name) => Control::ActorsDomain { of: step(name)?, exceptions },
        })
    }

    /// Fills the predecessor sets in an order that respects control and sync edges.
    fn close_predecessors(&mut self) -> Result<(), CompileError> {
        let nodes = &self.schema.nodes;
        let mut waiting: Vec<usize> =
            nodes.iter().map(|node| node.incoming.len() + node.sync_in.len()).collect();
        let mut ready = vec![Schema::START];
        let mut sets = vec![BitSet::default(); nodes.len()];
        let mut over_control = sets.clone();
        let mut done = 0;
        while let Some(id) = ready.pop() {
            done += 1;
            let node = &nodes[id.0 as usize];
            let mut set = BitSet::default();
            let from = node.incoming.iter().map(|edge| edge.from);
            for from in from.chain(node.sync_in.iter().map(|edge| edge.from)) {
                set.union(&sets[from.0 as usize]);
                set.insert(from.0);
            }
            sets[id.0 as usize] = set;
            let mut set = BitSet::default();
            for edge in &node.incoming {
                set.union(&over_control[edge.from.0 as usize]);
                set.insert(edge.from.0);
            }
            over_control[id.0 as usize] = set;
            for &next in node.outgoing.iter().chain(&node.sync_out) {
                waiting[next.0 as usize] -= 1;
                if waiting[next.0 as usize] == 0 {
                    ready.push(next);
                }
            }
        }
        if done < nodes.len() {
            let stuck = nodes.iter().find(|node| waiting[node.id.0 as usize] > 0);
            let name = stuck.map_or_else(|| Arc::from("?"), |node| node.name.clone());
            return Err(CompileError::Cycle { name });
        }
        self.schema.predecessors = sets;
        self.schema.control_predecessors = over_control;
        Ok(())
    }
}

fn branches(written: &[definition::Branch]) -> Vec<Branch> {
    let branch = |branch: &definition::Branch| {
        let name = branch.name.value.clone();
        Branch { title: branch.title.as_deref().map_or_else(|| name.clone(), Arc::from), name }
    };
    written.iter().map(branch).collect()
}
