//! Properties of every definition: correct ones pass, and those that pass are correct in every run.
//!
//! Runs are made by a separate interpreter, which follows the rules of execution in their plainest
//! form, takes branches at random and ends steps in any order.

use std::collections::BTreeSet;

use legwork_model::arbitrary::{Options, cases, definition};
use legwork_model::check;
use legwork_model::compile::compile;
use legwork_model::definition::Definition;
use legwork_model::finding::{Finding, Severity};
use legwork_model::id::{Activity, ElementId, Iteration, NodeId};
use legwork_model::rule::{Actors, Rule};
use legwork_model::schema::{NodeKind, Schema};
use legwork_model::yaml;
use proptest::prelude::*;

fn errors(definition: &Definition) -> Vec<Finding> {
    let findings = check::check(definition);
    findings.into_iter().filter(|finding| finding.severity == Severity::Error).collect()
}

/// Random data accesses, so that all rules about data are broken somewhere.
const CARELESS: Options = Options {
    blocks_max: 16,
    depth_max: 3,
    elements: 4,
    loops: true,
    people: true,
    soft_syncs: true,
    strict_syncs: true,
    data_rules: false,
    details: false,
};

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn correct_definitions_have_no_errors(definition in definition(Options::default())) {
        prop_assert_eq!(errors(&definition), Vec::new());
    }

    #[test]
    fn every_graph_keeps_its_invariants(definition in definition(Options::default())) {
        let schema = compile(&definition, 1).unwrap();
        prop_assert_eq!(check::graph(&schema), Vec::<String>::new());
    }

    #[test]
    fn whatever_goes_wrong_in_a_run_was_told_before(
        definition in definition(CARELESS),
        seeds in proptest::collection::vec(any::<u64>(), 8),
    ) {
        let told: BTreeSet<String> =
            errors(&definition).into_iter().map(|finding| finding.message).collect();
        let schema = compile(&definition, 1).unwrap();
        for seed in seeds {
            for wrong in Run::new(&schema, seed).wrongs() {
                let expected = told.iter().any(|message| wrong.iter().all(|w| message.contains(w)));
                prop_assert!(expected, "{wrong:?} was not told:\n{told:#?}\n{}", yaml::write(&definition));
            }
        }
    }

    #[test]
    fn mutated_definitions_are_checked_without_panic(
        definition in definition(CARELESS),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..4_u8), 1..6),
    ) {
        let mut lines: Vec<String> =
            yaml::write(&definition).lines().map(str::to_owned).collect();
        for (one, other, edit) in edits {
            let (one, other) = (one.index(lines.len()), other.index(lines.len()));
            match edit {
                0 => lines.swap(one, other),
                1 => drop(lines.remove(one)),
                2 => lines[one] = lines[other].clone(),
                _ => {
                    // The value of another line.
                    let value = lines[other].split_once(": ").map(|(_, value)| value.to_owned());
                    if let (Some(value), Some((key, _))) = (value, lines[one].split_once(": ")) {
                        lines[one] = format!("{key}: {value}");
                    }
                }
            }
            if lines.is_empty() {
                break;
            }
        }
        if let (Some(mutated), _) = yaml::parse(&lines.join("\n")) {
            let wrong = errors(&mutated);
            if wrong.is_empty() {
                let schema = compile(&mutated, 1).unwrap();
                prop_assert_eq!(check::graph(&schema), Vec::<String>::new());
            }
        }
    }
}

#[test]
fn the_interpreter_sees_what_goes_wrong() {
    let text = "process: p\ndata: { x: int }\nsteps:\n\
        - choice: c\n  who: Agent()\n  branches:\n  - { name: a, steps: [{ step: s1, who: Agent() }] }\n  \
        - { name: b }\n\
        - parallel: p\n  branches:\n  - steps: [{ step: s2, job: j, reads: [x], writes: [x] }]\n  \
        - steps: [{ step: s3, who: NodePerformingAgent(s1), writes: [x] }]\n";
    let (definition, findings) = yaml::parse(text);
    assert_eq!(findings, []);
    let definition = definition.unwrap();
    let schema = compile(&definition, 1).unwrap();
    let wrongs: BTreeSet<String> =
        (1..50).flat_map(|seed| Run::new(&schema, seed).wrongs()).map(|w| w.join(" ")).collect();
    let expected = [
        "`s2` `x`, which may have no value",
        "`s3` asks who performed `s1`",
        "may write `x` at the same time step `s2`",
    ];
    assert_eq!(wrongs, expected.map(str::to_owned).into());
    assert_eq!(errors(&definition).len(), 3);
}

/// One run of a process, by the plain rules.
struct Run<'s> {
    schema: &'s Schema,
    seed: u64,
    states: Vec<NodeState>,
    /// The branch taken at each choice.
    chosen: Vec<usize>,
    rounds: Vec<u32>,
    written: Vec<(ElementId, Activity)>,
    performed: BTreeSet<NodeId>,
    /// What went wrong, as words that must be in a finding.
    wrongs: BTreeSet<Vec<String>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeState {
    Waiting,
    Active,
    Done,
    Skipped,
}

impl<'s> Run<'s> {
    fn new(schema: &'s Schema, seed: u64) -> Self {
        let nodes = schema.nodes.len();
        Self {
            schema,
            seed: seed | 1,
            states: vec![NodeState::Waiting; nodes],
            chosen: vec![0; nodes],
            rounds: vec![0; schema.loops.len()],
            written: Vec::new(),
            performed: BTreeSet::new(),
            wrongs: BTreeSet::new(),
        }
    }

    /// Runs to the end, or until nothing can go on.
    fn wrongs(mut self) -> BTreeSet<Vec<String>> {
        for _ in 0..500 {
            self.settle();
            let active: Vec<NodeId> = self.in_state(NodeState::Active);
            self.find_parallel_writes(&active);
            let Some(&node) = active.get(self.roll(active.len())) else { break };
            self.end(node);
        }
        self.wrongs
    }

    fn roll(&mut self, sides: usize) -> usize {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 8) as usize % sides.max(1)
    }

    fn state(&self, node: NodeId) -> NodeState {
        self.states[node.0 as usize]
    }

    fn in_state(&self, state: NodeState) -> Vec<NodeId> {
        let all = (0..self.states.len() as u32).map(NodeId);
        all.filter(|node| self.state(*node) == state).collect()
    }

    /// Activates and skips up to a fixpoint.
    fn settle(&mut self) {
        let mut changed = true;
        while changed {
            changed = false;
            for node in self.in_state(NodeState::Waiting) {
                let next = self.rule(node);
                if next != NodeState::Waiting {
                    self.states[node.0 as usize] = next;
                    changed = true;
                    if next == NodeState::Active {
                        self.find_missing(node);
                    }
                }
            }
        }
    }

    fn rule(&self, node: NodeId) -> NodeState {
        let node = self.schema.node(node);
        let signals: Vec<NodeState> = node
            .incoming
            .iter()
            .map(|edge| match (self.state(edge.from), edge.code) {
                (NodeState::Done, Some(code))
                    if self.chosen[edge.from.0 as usize] != code as usize =>
                {
                    NodeState::Skipped
                }
                (state, _) => state,
            })
            .collect();
        let (any, all) = (
            |state| signals.contains(&state),
            |state| signals.iter().all(|signal| *signal == state),
        );
        let killed = |edge: &legwork_model::schema::SyncEdge| {
            edge.strict && self.state(edge.from) == NodeState::Skipped
        };
        let waits = |edge: &legwork_model::schema::SyncEdge| {
            !matches!(self.state(edge.from), NodeState::Done | NodeState::Skipped)
        };
        let is_join = matches!(node.kind, NodeKind::XorJoin);
        let dead = if is_join { all(NodeState::Skipped) } else { any(NodeState::Skipped) };
        let ready = if is_join { any(NodeState::Done) } else { all(NodeState::Done) };
        if node.sync_in.iter().any(killed) || (dead && !signals.is_empty()) {
            NodeState::Skipped
        } else if ready && !node.sync_in.iter().any(waits) {
            NodeState::Active
        } else {
            NodeState::Waiting
        }
    }

    fn end(&mut self, id: NodeId) {
        let node = self.schema.node(id);
        let activity = self.activity(id);
        for write in &node.writes {
            if !write.optional || self.roll(2) == 0 {
                self.written.push((write.element, activity.clone()));
            }
        }
        if node.who().is_some() {
            self.performed.insert(id);
        }
        self.states[id.0 as usize] = NodeState::Done;
        self.chosen[id.0 as usize] = self.roll(node.outgoing.len());
        let repeats = matches!(node.kind, NodeKind::LoopEnd { .. }) && self.roll(3) == 0;
        if let (true, Some(&this)) = (repeats, node.loops.last()) {
            self.rounds[this.0 as usize] += 1;
            let range = self.schema.loop_nodes(this);
            for inside in range.clone() {
                self.states[inside as usize] = NodeState::Waiting;
            }
            for (inner, l) in self.schema.loops.iter().enumerate() {
                if l.start.0 > *range.start() && range.contains(&l.start.0) {
                    self.rounds[inner] = 0;
                }
            }
        }
    }

    fn activity(&self, node: NodeId) -> Activity {
        let loops = &self.schema.node(node).loops;
        let counts = loops.iter().map(|id| self.rounds[id.0 as usize]).collect();
        Activity { node, iteration: Iteration(counts) }
    }

    /// D1 and Z3
    fn find_missing(&mut self, id: NodeId) {
        let node = self.schema.node(id);
        let activity = self.activity(id);
        let mandatory = node.reads.iter().filter(|read| !read.optional).map(|read| read.element);
        let named = conditions(&node.kind).into_iter().flat_map(|condition| {
            let names = condition.variables().to_vec();
            names.into_iter().filter_map(|name| self.schema.element_named(&name))
        });
        for element in mandatory.chain(named) {
            let supplies = |(written, by): &(ElementId, Activity)| {
                *written == element && self.schema.activity_precedes(by, &activity)
            };
            if !self.written.iter().any(supplies) {
                let reader = if id == self.schema.end() { "result" } else { &node.name };
                let element = &self.schema.element(element).name;
                self.wrongs.insert(vec![
                    format!("`{reader}`"),
                    format!("`{element}`, which may have no value"),
                ]);
            }
        }
        for step in node.who().map(performers).unwrap_or_default() {
            let performer = self.schema.node_named(&step).map(|node| node.id);
            if performer.is_none_or(|performer| !self.performed.contains(&performer)) {
                self.wrongs.insert(vec![format!("`{}` asks who performed `{step}`", node.name)]);
            }
        }
    }

    /// D2
    fn find_parallel_writes(&mut self, active: &[NodeId]) {
        for (place, one) in active.iter().enumerate() {
            for other in &active[place + 1..] {
                let (one, other) = (self.schema.node(*one), self.schema.node(*other));
                for write in &one.writes {
                    if other.writes.iter().any(|w| w.element == write.element) {
                        let element = &self.schema.element(write.element).name;
                        // Of several conflicts of one step the first is reported.
                        self.wrongs.insert(vec![
                            format!("may write `{element}` at the same time"),
                            format!("step `{}`", one.name),
                        ]);
                    }
                }
            }
        }
    }
}

fn conditions(kind: &NodeKind) -> Vec<&legwork_model::condition::Condition> {
    use legwork_model::schema::{Decision, LoopDecision};
    match kind {
        NodeKind::XorSplit { decision: Decision::Conditions(conditions), .. } => {
            conditions.iter().flatten().collect()
        }
        NodeKind::LoopEnd { decision: LoopDecision::Condition(condition), .. } => vec![condition],
        NodeKind::Start
        | NodeKind::End
        | NodeKind::Manual { .. }
        | NodeKind::Automatic { .. }
        | NodeKind::Locate
        | NodeKind::AndSplit { .. }
        | NodeKind::AndJoin
        | NodeKind::XorSplit { .. }
        | NodeKind::XorJoin
        | NodeKind::LoopStart
        | NodeKind::LoopEnd { .. } => Vec::new(),
    }
}

/// The steps whose performers a rule refers to.
fn performers(rule: &Rule) -> Vec<String> {
    match rule {
        Rule::Any(rules) | Rule::All(rules) => rules.iter().flat_map(performers).collect(),
        Rule::Except(from, without) => [performers(from), performers(without)].concat(),
        Rule::Are(
            Actors::Performer(step)
            | Actors::UnitOfPerformer(step)
            | Actors::ManagerOfPerformer(step),
        ) => vec![step.to_string()],
        Rule::Are(
            Actors::Agent(_)
            | Actors::Role(_)
            | Actors::OrgUnit(..)
            | Actors::OrgPosition(_)
            | Actors::Ability(_)
            | Actors::Starter,
        ) => Vec::new(),
    }
}
