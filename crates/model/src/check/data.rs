//! Rules D1 to D5: every value that is read exists, and no value is overwritten by chance.
//!
//! The elements a condition names are mandatory reads of its choice or loop, except those that the
//! condition itself compares with `null`: they handle the missing value.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::facts::{Facts, Set};
use super::places::{FrameKind, Origin, Places};
use super::report::Report;
use crate::condition::{Condition, ConditionError};
use crate::definition::{Block, ChoiceBy, Definition, Guard, Until};
use crate::finding::{Rule, Span, Spanned};
use crate::id::{ElementId, NodeId};
use crate::schema::Schema;
use crate::value::ValueType;
use crate::yaml::nearest;

/// How many later writers of an element are checked for one that certainly overwrites it.
const OVERWRITERS_MAX: usize = 8;

/// D3: reports conditions whose types do not go together.
pub(super) fn check_types(definition: &Definition, report: &mut Report) {
    let kinds: BTreeMap<&str, ValueType> =
        definition.data.iter().map(|element| (&*element.name.value, element.kind)).collect();
    for_each_condition(&definition.steps, &mut |condition| {
        for problem in condition.value.problems(|name| kinds.get(name).copied()) {
            let source = condition.value.source();
            let (rule, message, hint) = if let ConditionError::UnknownName { name } = &problem {
                let hint = match nearest(name, kinds.keys().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "declare it under `data:`, with its type".to_owned(),
                };
                (Rule::D1, problem.to_string(), hint)
            } else {
                let hint = describe_types(&condition.value, &kinds);
                (Rule::D3, format!("in `{source}`: {problem}"), hint)
            };
            report.error(condition.span, rule, message, hint);
        }
    });
}

fn describe_types(condition: &Condition, kinds: &BTreeMap<&str, ValueType>) -> String {
    let kind = |name: &Arc<str>| Some(format!("`{name}` is {}", kinds.get(&**name)?));
    let known: Vec<String> = condition.variables().iter().filter_map(kind).collect();
    if known.is_empty() { "name data elements in it".to_owned() } else { known.join(", ") }
}

fn for_each_condition(blocks: &[Block], f: &mut impl FnMut(&Spanned<Condition>)) {
    for block in blocks {
        match block {
            Block::Step(_) => {}
            Block::Parallel(parallel) => {
                parallel.branches.iter().for_each(|branch| for_each_condition(&branch.steps, f));
            }
            Block::Choice(choice) => {
                for branch in &choice.branches {
                    if let Guard::When(condition) = &branch.guard {
                        f(condition);
                    }
                    for_each_condition(&branch.steps, f);
                }
            }
            Block::Loop(l) => {
                for_each_condition(&l.body, f);
                if let Until::Condition(condition) = &l.until {
                    f(condition);
                }
            }
        }
    }
}

/// The conditions a node decides by.
pub(super) fn conditions<'d>(origin: Origin<'d>) -> Vec<&'d Spanned<Condition>> {
    match origin {
        Origin::Choice(choice) if matches!(choice.by, ChoiceBy::Conditions) => choice
            .branches
            .iter()
            .filter_map(|branch| match &branch.guard {
                Guard::When(condition) => Some(condition),
                Guard::None | Guard::Otherwise(_) => None,
            })
            .collect(),
        Origin::Loop(l) => match &l.until {
            Until::Condition(condition) => vec![condition],
            Until::Person(_) => Vec::new(),
        },
        Origin::Start
        | Origin::Step(_)
        | Origin::Parallel(_)
        | Origin::Choice(_)
        | Origin::Silent(_)
        | Origin::End => Vec::new(),
    }
}

/// A read or a write of an element, with its place in the text.
#[derive(Clone, Copy)]
struct Access {
    node: NodeId,
    optional: bool,
    span: Span,
}

/// The readers and the writers of one element, in the order of the text.
#[derive(Default)]
struct Traffic {
    reads: Vec<Access>,
    writes: Vec<Access>,
}

pub(super) fn check(schema: &Schema, places: &Places<'_>, facts: &Facts<'_>, report: &mut Report) {
    let traffic = traffic(schema, places);
    let conflicts = conflicts(schema, places, facts);
    for (place, traffic) in traffic.iter().enumerate() {
        let element = Checked {
            id: ElementId(place as u32),
            name: &schema.elements[place].name,
            traffic,
            schema,
            places,
            facts,
        };
        element.check_supplied(report);
        element.check_parallel_writes(&conflicts, report);
        element.check_overwritten(report);
        element.check_used(report);
    }
}

fn traffic(schema: &Schema, places: &Places<'_>) -> Vec<Traffic> {
    let mut traffic: Vec<Traffic> = schema.elements.iter().map(|_| Traffic::default()).collect();
    let numbers: BTreeMap<&str, usize> =
        schema.elements.iter().enumerate().map(|(place, e)| (&*e.name, place)).collect();
    let element = |name: &Arc<str>| numbers.get(&**name).copied();
    for node in places.nodes() {
        let (reads, writes) = places.uses(node);
        for u in reads {
            let Some(place) = element(&u.element.value) else { continue };
            let access = Access { node, optional: u.optional, span: u.element.span };
            traffic[place].reads.push(access);
        }
        for u in writes {
            let Some(place) = element(&u.element.value) else { continue };
            let access = Access { node, optional: u.optional, span: u.element.span };
            traffic[place].writes.push(access);
        }
        for condition in conditions(places.origin(node)) {
            for name in condition.value.variables() {
                let Some(place) = element(name) else { continue };
                let optional = condition.value.null_tested().contains(name);
                traffic[place].reads.push(Access { node, optional, span: condition.span });
            }
        }
    }
    traffic
}

/// For each node that writes in a branch of a parallel: the other such nodes that may run at the
/// same time.
fn conflicts(schema: &Schema, places: &Places<'_>, facts: &Facts<'_>) -> Vec<Set> {
    let mut conflicts = vec![Set::new(schema.nodes.len()); schema.nodes.len()];
    let writes_in_parallel = |node: &NodeId| {
        let parallel = |frame: &super::places::Frame| frame.kind == FrameKind::Parallel;
        !schema.node(*node).writes.is_empty() && places.frames(*node).iter().any(parallel)
    };
    let writers: Vec<NodeId> = places.nodes().filter(writes_in_parallel).collect();
    for (place, &a) in writers.iter().enumerate() {
        for &b in &writers[place + 1..] {
            let parallel =
                places.parting(a, b).is_some_and(|(_, frame)| frame.kind == FrameKind::Parallel);
            if parallel && !facts.is_settled(a, b) && !facts.is_settled(b, a) {
                conflicts[a.0 as usize].insert(b.0 as usize);
            }
        }
    }
    conflicts
}

struct Checked<'c> {
    id: ElementId,
    name: &'c str,
    traffic: &'c Traffic,
    schema: &'c Schema,
    places: &'c Places<'c>,
    facts: &'c Facts<'c>,
}

impl Checked<'_> {
    /// D1
    fn check_supplied(&self, report: &mut Report) {
        for read in self.traffic.reads.iter().filter(|read| !read.optional) {
            if self.facts.has_value(self.id, read.node) {
                continue;
            }
            let (reader, name) = (self.places.call(read.node), self.name);
            let (why, hint) = if report.errors_are_full() {
                Default::default()
            } else {
                self.why_missing(read.node)
            };
            let verb = match self.places.origin(read.node) {
                Origin::Choice(_) | Origin::Loop(_) => "depends on",
                Origin::Start
                | Origin::Step(_)
                | Origin::Parallel(_)
                | Origin::Silent(_)
                | Origin::End => "reads",
            };
            let message = format!("{reader} {verb} `{name}`, which may have no value: {why}");
            report.error(read.span, Rule::D1, message, hint);
        }
    }

    /// Why an element may have no value at a node, and what to do about it.
    fn why_missing(&self, reader: NodeId) -> (String, String) {
        let name = self.name;
        let optional = self.optional_hint(reader);
        let lacks = self.traffic.writes.iter().map(|write| {
            let writer = self.places.call(write.node);
            match self.facts.lack(self.places, write.node, reader) {
                Lack::Itself => (
                    5,
                    format!("{writer} itself is what writes it"),
                    format!("let an earlier step write `{name}`, or {optional}"),
                ),
                Lack::None if write.optional => (
                    0,
                    format!("{writer} need not write it"),
                    format!("write `{name}` without `?` there, or {optional}"),
                ),
                Lack::Branch { choice, branch } => (
                    1,
                    format!("{writer} writes it only in branch `{branch}` of {choice}"),
                    format!("write it in every branch, or before, or {optional}"),
                ),
                Lack::Skipped => (
                    2,
                    format!("{writer} may be skipped"),
                    format!("let the step wait with `requires` instead of `after`, or {optional}"),
                ),
                Lack::Parallel => (
                    3,
                    format!("{writer} writes it at the same time"),
                    format!("wait for it with `after`, or {optional}"),
                ),
                Lack::None | Lack::Later | Lack::Exclusive => (
                    4,
                    format!("{writer} writes it only later"),
                    format!("let an earlier step write `{name}`, or {optional}"),
                ),
            }
        });
        let nothing = || {
            let hint =
                format!("add `{name}` to `start`, let an earlier step write it, or {optional}");
            (6, "nothing writes it".to_owned(), hint)
        };
        let (_, why, hint) = lacks.min().unwrap_or_else(nothing);
        (why, hint)
    }

    /// The hint for the case that a missing value is acceptable.
    fn optional_hint(&self, reader: NodeId) -> String {
        let name = self.name;
        if conditions(self.places.origin(reader)).is_empty() {
            format!("read `{name}?`")
        } else {
            format!("ask for `{name} == null` in the condition")
        }
    }

    /// D2
    fn check_parallel_writes(&self, conflicts: &[Set], report: &mut Report) {
        let writes = &self.traffic.writes;
        for (place, first) in writes.iter().enumerate() {
            let clash = |second: &&Access| {
                conflicts[first.node.0 as usize].contains(second.node.0 as usize)
            };
            let Some(second) = writes[place + 1..].iter().find(clash) else { continue };
            let (a, b) = (self.places.call(first.node), self.places.call(second.node));
            let Some((_, frame)) = self.places.parting(first.node, second.node) else { continue };
            let parallel = self.places.call(frame.block);
            let synced = self.facts.precedes(first.node, second.node)
                || self.facts.precedes(second.node, first.node);
            let why = if synced {
                "; what they wait for may be skipped, and then nothing orders them"
            } else {
                ""
            };
            let message = format!(
                "{a} and {b} of {parallel} may write `{}` at the same time{why}",
                self.name
            );
            let hint = "let one wait for the other with `after`, or write different elements";
            report.error(second.span, Rule::D2, message, hint);
        }
    }

    /// D5: only where it is certain that the value is never read.
    fn check_overwritten(&self, report: &mut Report) {
        let nodes = self.schema.nodes.len();
        let mut readers = Set::new(nodes);
        self.traffic.reads.iter().for_each(|read| readers.insert(read.node.0 as usize));
        for (place, first) in self.traffic.writes.iter().enumerate() {
            let mut later = self.traffic.writes[place + 1..].iter().take(OVERWRITERS_MAX);
            let overwrites = |second: &&Access| {
                !second.optional
                    && self.facts.is_settled(first.node, second.node)
                    && self.certainly_follows(first.node, second.node)
                    && readers
                        .within_is_in(self.facts.after(first.node), self.facts.after(second.node))
            };
            if let Some(second) = later.find(overwrites) {
                let (a, b) = (self.places.call(first.node), self.places.call(second.node));
                let message =
                    format!("`{}` of {a} is overwritten by {b} before anybody reads it", self.name);
                let hint = "remove one of the two writes, or write another element";
                report.warning(first.span, Rule::D5, message, hint);
            }
        }
    }

    /// Whether, once the first ran, the second runs too, as often as the first.
    fn certainly_follows(&self, first: NodeId, second: NodeId) -> bool {
        let around = self.places.frames(first);
        let same_loops = self.schema.node(first).loops == self.schema.node(second).loops;
        let no_choice = self
            .places
            .frames(second)
            .iter()
            .all(|frame| frame.kind != FrameKind::Choice || around.contains(frame));
        same_loops && no_choice && !self.facts.may_be_killed_between(first, second)
    }

    /// D4 and D5: elements that are never written or never used.
    fn check_used(&self, report: &mut Report) {
        let Some(element) = self.places.definition.data.get(self.id.0 as usize) else { return };
        let span = element.name.span;
        let Traffic { reads, writes } = self.traffic;
        if reads.is_empty() && writes.is_empty() {
            let message = format!("`{}` is never used", self.name);
            report.warning(span, Rule::D5, message, "remove it from `data`");
        } else if writes.is_empty() && reads.iter().all(|read| read.optional) {
            let message = format!("`{}` is read, but nothing ever writes it", self.name);
            report.warning(span, Rule::D4, message, "let `start` or a step write it");
        }
    }
}

/// Why something that happens at one node is not certain at another.
pub(super) enum Lack {
    /// It is certain.
    None,
    Itself,
    Later,
    /// In another branch of a choice.
    Exclusive,
    /// In another branch of a parallel, without an order.
    Parallel,
    /// Before, but only in a branch of a choice.
    Branch {
        choice: String,
        branch: String,
    },
    /// Before, but waited for by a soft sync edge only.
    Skipped,
}

impl Facts<'_> {
    pub(super) fn lack(&self, places: &Places<'_>, what: NodeId, at: NodeId) -> Lack {
        if what == at {
            return Lack::Itself;
        }
        if self.is_done(what, at) {
            return Lack::None;
        }
        if self.precedes(at, what) {
            return Lack::Later;
        }
        if !self.precedes(what, at) {
            return match places.parting(what, at) {
                Some((_, frame)) if frame.kind == FrameKind::Parallel => Lack::Parallel,
                Some(_) | None => Lack::Exclusive,
            };
        }
        let around = places.frames(at);
        let unshared = |frame: &&super::places::Frame| {
            frame.kind == FrameKind::Choice && !around.contains(frame)
        };
        match places.frames(what).iter().find(unshared) {
            Some(frame) => Lack::Branch {
                choice: places.call(frame.block),
                branch: places.branch_name(*frame).to_owned(),
            },
            None => Lack::Skipped,
        }
    }
}
