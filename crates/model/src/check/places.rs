//! The position of each node in the definition: its span and the blocks around it.
//!
//! Walks the definition in the order in which `compile` numbers the nodes; both rest on the
//! documented numbering of `schema`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::report::Report;
use crate::definition::{
    Block, Branch, Choice, ChoiceBy, Decider, Definition, Loop, Parallel, Step, Until, Use,
};
use crate::finding::{Rule, Span, Spanned};
use crate::id::NodeId;

/// The origin of a node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin<'d> {
    Start,
    Step(&'d Step),
    Parallel(&'d Parallel),
    Choice(&'d Choice),
    /// The end of a loop, where the repetition is decided.
    Loop(&'d Loop),
    /// A join, the start of a loop, or the node that locates a step: nobody does work there.
    Silent(&'d Spanned<Arc<str>>),
    End,
}

/// A block around a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    /// The split, or the start of the loop.
    pub(super) block: NodeId,
    /// Which branch of it; 0 in a loop.
    pub(super) branch: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    Parallel,
    Choice,
    Loop,
}

pub(super) struct Places<'d> {
    pub(super) definition: &'d Definition,
    origins: Vec<Origin<'d>>,
    /// The blocks around each node, outermost first.
    frames: Vec<Vec<Frame>>,
    by_name: BTreeMap<&'d str, NodeId>,
    /// The nodes of each branch: the first and the one past the last.
    branches: BTreeMap<(NodeId, usize), (NodeId, NodeId)>,
}

impl<'d> Places<'d> {
    pub(super) fn new(definition: &'d Definition) -> Self {
        let mut places = Self {
            definition,
            origins: Vec::new(),
            frames: Vec::new(),
            by_name: BTreeMap::new(),
            branches: BTreeMap::new(),
        };
        let mut around = Vec::new();
        places.add(Origin::Start, &around);
        places.sequence(&definition.steps, &mut around);
        places.add(Origin::End, &around);
        places
    }

    /// The number of the next node.
    fn next(&self) -> NodeId {
        NodeId(self.origins.len() as u32)
    }

    fn add(&mut self, origin: Origin<'d>, around: &[Frame]) -> NodeId {
        let id = self.next();
        self.origins.push(origin);
        self.frames.push(around.to_vec());
        id
    }

    fn sequence(&mut self, blocks: &'d [Block], around: &mut Vec<Frame>) {
        for block in blocks {
            let name = block.name();
            let id = match block {
                Block::Step(step) => {
                    if step.is_located() {
                        self.add(Origin::Silent(name), around);
                    }
                    self.add(Origin::Step(step), around)
                }
                Block::Parallel(parallel) => {
                    let split = self.add(Origin::Parallel(parallel), around);
                    self.branches(&parallel.branches, FrameKind::Parallel, split, around);
                    self.add(Origin::Silent(name), around);
                    split
                }
                Block::Choice(choice) => {
                    let split = self.add(Origin::Choice(choice), around);
                    self.branches(&choice.branches, FrameKind::Choice, split, around);
                    self.add(Origin::Silent(name), around);
                    split
                }
                Block::Loop(l) => {
                    let block = self.next();
                    around.push(Frame { kind: FrameKind::Loop, block, branch: 0 });
                    self.add(Origin::Silent(name), around);
                    self.sequence(&l.body, around);
                    let end = self.add(Origin::Loop(l), around);
                    around.pop();
                    end
                }
            };
            self.by_name.insert(&name.value, id);
        }
    }

    fn branches(
        &mut self,
        branches: &'d [Branch],
        kind: FrameKind,
        block: NodeId,
        around: &mut Vec<Frame>,
    ) {
        for (place, branch) in branches.iter().enumerate() {
            around.push(Frame { kind, block, branch: place });
            let first = self.next();
            self.sequence(&branch.steps, around);
            self.branches.insert((block, place), (first, self.next()));
            around.pop();
        }
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.origins.len() as u32).map(NodeId)
    }

    pub(super) fn origin(&self, node: NodeId) -> Origin<'d> {
        self.origins[node.0 as usize]
    }

    pub(super) fn frames(&self, node: NodeId) -> &[Frame] {
        &self.frames[node.0 as usize]
    }

    /// The node that a rule or a sync edge means by this name.
    pub(super) fn named(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// The innermost block that has two nodes in different branches, and its depth.
    pub(super) fn parting(&self, a: NodeId, b: NodeId) -> Option<(usize, Frame)> {
        let (a, b) = (self.frames(a), self.frames(b));
        let depth = a.iter().zip(b).take_while(|(a, b)| a == b).count();
        let (a, b) = (a.get(depth)?, b.get(depth)?);
        (a.block == b.block).then_some((depth, *a))
    }

    /// The name of a node in a finding.
    pub(super) fn call(&self, node: NodeId) -> String {
        match self.origin(node) {
            Origin::Start => "`start`".to_owned(),
            Origin::End => "`result`".to_owned(),
            Origin::Step(step) => format!("step `{}`", step.name.value),
            Origin::Parallel(parallel) => format!("parallel `{}`", parallel.name.value),
            Origin::Choice(choice) => format!("choice `{}`", choice.name.value),
            Origin::Loop(l) => format!("loop `{}`", l.name.value),
            Origin::Silent(name) => format!("`{}`", name.value),
        }
    }

    /// Where the author wrote it.
    pub(super) fn span(&self, node: NodeId) -> Span {
        match self.origin(node) {
            Origin::Start | Origin::End => Span::default(),
            Origin::Step(Step { name, .. })
            | Origin::Parallel(Parallel { name, .. })
            | Origin::Choice(Choice { name, .. })
            | Origin::Loop(Loop { name, .. })
            | Origin::Silent(name) => name.span,
        }
    }

    /// The nodes of the branch of a frame.
    pub(super) fn branch_nodes(&self, frame: Frame) -> impl Iterator<Item = NodeId> + use<> {
        let range = self.branches.get(&(frame.block, frame.branch)).copied();
        let (first, end) = range.unwrap_or_default();
        (first.0..end.0).map(NodeId)
    }

    /// The branch of a frame, as the author named it.
    pub(super) fn branch_name(&self, frame: Frame) -> &'d str {
        let branches: &[Branch] = match self.origin(frame.block) {
            Origin::Parallel(parallel) => &parallel.branches,
            Origin::Choice(choice) => &choice.branches,
            Origin::Start | Origin::Step(_) | Origin::Loop(_) | Origin::Silent(_) | Origin::End => {
                &[]
            }
        };
        branches.get(frame.branch).map_or("", |branch| &branch.name.value)
    }

    /// The reads and writes of a node by name.
    pub(super) fn uses(&self, node: NodeId) -> (&'d [Use], &'d [Use]) {
        match self.origin(node) {
            Origin::Start => (&[], &self.definition.start),
            Origin::End => (&self.definition.result, &[]),
            Origin::Step(step) => (&step.reads, &step.writes),
            Origin::Choice(Choice { by: ChoiceBy::Person(decider), .. })
            | Origin::Loop(Loop { until: Until::Person(decider), .. }) => (&decider.reads, &[]),
            Origin::Choice(_) | Origin::Loop(_) | Origin::Parallel(_) | Origin::Silent(_) => {
                (&[], &[])
            }
        }
    }
}

/// Reports names that are missing or duplicate. A definition read from YAML has none.
pub(super) fn check_names(definition: &Definition, report: &mut Report) {
    let mut elements: BTreeMap<&str, Span> = BTreeMap::new();
    for element in &definition.data {
        refuse_second(&mut elements, &element.name, "data element", report);
    }
    let mut names = Names { blocks: BTreeMap::new(), elements, report };
    names.declare(&definition.steps);
    names.uses(&definition.start);
    names.uses(&definition.result);
    names.refer(&definition.steps);
}

struct Names<'d, 'r> {
    blocks: BTreeMap<&'d str, Span>,
    elements: BTreeMap<&'d str, Span>,
    report: &'r mut Report,
}

fn refuse_second<'d>(
    names: &mut BTreeMap<&'d str, Span>,
    name: &'d Spanned<Arc<str>>,
    what: &str,
    report: &mut Report,
) {
    if names.insert(&name.value, name.span).is_some() {
        let message = format!("there are two {what}s named `{}`", name.value);
        report.error(name.span, Rule::Y2, message, "rename one of them");
    }
}

impl<'d> Names<'d, '_> {
    fn declare(&mut self, blocks: &'d [Block]) {
        for block in blocks {
            refuse_second(&mut self.blocks, block.name(), "block", self.report);
            match block {
                Block::Step(_) => {}
                Block::Parallel(Parallel { branches, .. })
                | Block::Choice(Choice { branches, .. }) => {
                    branches.iter().for_each(|branch| self.declare(&branch.steps));
                }
                Block::Loop(l) => self.declare(&l.body),
            }
        }
    }

    fn refer(&mut self, blocks: &'d [Block]) {
        for block in blocks {
            match block {
                Block::Step(step) => {
                    self.uses(&step.reads);
                    self.uses(&step.writes);
                    for sync in &step.after {
                        self.step(&sync.from);
                    }
                }
                Block::Parallel(Parallel { branches, .. }) => {
                    branches.iter().for_each(|branch| self.refer(&branch.steps));
                }
                Block::Choice(choice) => {
                    if let ChoiceBy::Person(Decider { reads, .. }) = &choice.by {
                        self.uses(reads);
                    }
                    choice.branches.iter().for_each(|branch| self.refer(&branch.steps));
                }
                Block::Loop(l) => {
                    if let Until::Person(Decider { reads, .. }) = &l.until {
                        self.uses(reads);
                    }
                    self.refer(&l.body);
                }
            }
        }
    }

    fn uses(&mut self, uses: &[Use]) {
        for Use { element, .. } in uses {
            if !self.elements.contains_key(&*element.value) {
                let message = format!("there is no data element `{}`", element.value);
                let hint = "declare it under `data:`, with its type";
                self.report.error(element.span, Rule::D1, message, hint);
            }
        }
    }

    fn step(&mut self, name: &Spanned<Arc<str>>) {
        if !self.blocks.contains_key(&*name.value) {
            let message = format!("there is no step `{}`", name.value);
            let hint = "write the name that stands after `step:` there";
            self.report.error(name.span, Rule::K4, message, hint);
        }
    }
}

pub(crate) fn for_each_step(blocks: &mut [Block], f: &mut impl FnMut(&mut Step)) {
    for block in blocks {
        match block {
            Block::Step(step) => f(step),
            Block::Parallel(Parallel { branches, .. }) | Block::Choice(Choice { branches, .. }) => {
                branches.iter_mut().for_each(|branch| for_each_step(&mut branch.steps, f));
            }
            Block::Loop(l) => for_each_step(&mut l.body, f),
        }
    }
}

/// Removes sync edges, given as the names of their ends.
pub(super) fn remove_syncs(blocks: &mut [Block], wrong: &BTreeSet<(Arc<str>, Arc<str>)>) {
    for_each_step(blocks, &mut |step| {
        let name = step.name.value.clone();
        step.after.retain(|sync| !wrong.contains(&(sync.from.value.clone(), name.clone())));
    });
}
