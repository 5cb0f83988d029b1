//! Reads nested steps, parallels, choices and loops.
//!
//! Recursion follows the nesting of the blocks, which is bounded; so is the number of nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::fields::{self, Fields, quote};
use super::names::{BlockKind, Names};
use super::nearest::nearest;
use super::report::Report;
use super::tree::{Node, ScalarKind};
use crate::definition::{Block, Branch, Choice, ChoiceBy, Guard, Loop, Parallel, Step, Until};
use crate::finding::{Rule, Span, Spanned};

/// The greatest depth of blocks.
pub const BLOCK_DEPTH_MAX: usize = 32;
/// The most nodes a process may have: one for a step, two for every other block.
pub const NODES_MAX: usize = 2_000;
/// The most branches of one parallel or choice.
pub const BRANCHES_MAX: usize = 200;
/// The default maximum of loop iterations.
pub const ITERATIONS_DEFAULT: u32 = 1_000;
/// The highest `max` of a loop.
pub const ITERATIONS_MAX: u32 = 1_000_000;
/// The most iterations of a loop that a deadline is planned for.
pub const ROUNDS_MAX: u32 = 100;
/// The default number of planned iterations.
pub(crate) const ROUNDS_DEFAULT: u32 = 1;

pub(crate) const STEP_FIELDS: [&str; 16] = [
    "step", "title", "who", "job", "retry", "size", "priority", "timeout", "reads", "writes",
    "after", "requires", "at", "takes", "mail", "undo",
];
pub(crate) const PARALLEL_FIELDS: [&str; 3] = ["parallel", "title", "branches"];
pub(crate) const CHOICE_FIELDS: [&str; 8] =
    ["choice", "title", "who", "reads", "at", "takes", "mail", "branches"];
pub(crate) const LOOP_FIELDS: [&str; 11] =
    ["loop", "title", "steps", "until", "who", "reads", "at", "takes", "mail", "max", "rounds"];
pub(crate) const BRANCH_FIELDS: [&str; 5] = ["name", "title", "when", "otherwise", "steps"];

const BRANCH_HINT: &str = "write a list: `- name: …` with `steps:` below";

/// The reading of the blocks of one definition.
pub(super) struct Blocks<'r> {
    pub(super) report: &'r mut Report,
    pub(super) names: Names,
    nodes: usize,
    depth: usize,
}

/// The owner of the branches being read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Branching {
    Parallel,
    ByCondition,
    ByPerson,
}

impl<'r> Blocks<'r> {
    pub(super) fn new(report: &'r mut Report) -> Self {
        // The start and the end.
        Self { report, names: Names::default(), nodes: 2, depth: 0 }
    }

    /// The blocks of a `steps` list.
    pub(super) fn sequence(&mut self, node: &Node, what: &str) -> Vec<Block> {
        let hint = "write a list of `- step: …`, or `[]` for nothing to do";
        let Some(items) = fields::items(node, what, hint, self.report) else {
            self.report.mark_incomplete();
            return Vec::new();
        };
        if self.depth == BLOCK_DEPTH_MAX && !items.is_empty() {
            let message = format!("blocks nest deeper than {BLOCK_DEPTH_MAX} levels");
            let hint = "flatten the process, or split it into several";
            self.report.error(node.span, Rule::Y3, message, hint);
            self.report.mark_incomplete();
            return Vec::new();
        }
        self.depth += 1;
        let mut blocks = Vec::new();
        for item in items {
            if self.nodes > NODES_MAX {
                break;
            }
            match self.block(item) {
                Some(block) => blocks.push(block),
                None => self.report.mark_incomplete(),
            }
        }
        self.depth -= 1;
        blocks
    }

    fn block(&mut self, node: &Node) -> Option<Block> {
        let mut fields = Fields::of(node, "a block", self.report)?;
        let kind = self.kind(&fields)?;
        self.nodes += if kind == BlockKind::Step { 1 } else { 2 };
        if self.nodes > NODES_MAX {
            let message = format!("the process has more than {NODES_MAX} nodes");
            self.report.error(node.span, Rule::Y3, message, "split it into several processes");
            return None;
        }
        let name = self.name(&mut fields, kind);
        match kind {
            BlockKind::Step => self.step(&fields, name),
            BlockKind::Parallel => self.parallel(&fields, name),
            BlockKind::Choice => self.choice(&fields, name),
            BlockKind::Loop => self.repeat(&fields, name),
        }
    }

    /// The kind of block that the fields describe: its key is among them.
    fn kind(&mut self, fields: &Fields<'_>) -> Option<BlockKind> {
        let kinds: Vec<BlockKind> =
            BlockKind::ALL.into_iter().filter(|kind| fields.value(kind.key()).is_some()).collect();
        let keys = BlockKind::ALL.map(BlockKind::key);
        match kinds[..] {
            [kind] => Some(kind),
            [] => {
                let near = fields.iter().find_map(|(key, _)| nearest(key.value, keys.into_iter()));
                let hint = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "begin it with `step:`, `parallel:`, `choice:` or `loop:`".to_owned(),
                };
                let message = "this is neither a step nor a parallel, a choice or a loop";
                self.report.error(fields.span(), Rule::Y2, message, hint);
                None
            }
            [first, second, ..] => {
                let message = format!("a block cannot be `{}` and `{}`", first.key(), second.key());
                let hint = "make them two blocks, each with its own `-`";
                self.report.error(fields.span(), Rule::Y2, message, hint);
                None
            }
        }
    }

    fn name(&mut self, fields: &mut Fields<'_>, kind: BlockKind) -> Option<Spanned<Arc<str>>> {
        let node = fields.value(kind.key())?;
        let what = format!("the name of a {}", kind.key());
        fields.describe(format!("this {}", kind.key()));
        let name = fields::name(node, &what, self.report)?;
        fields.describe(format!("{} `{}`", kind.key(), name.value));
        self.names.declare_block(&name, kind, self.report);
        Some(name)
    }

    fn step(&mut self, fields: &Fields<'_>, name: Option<Spanned<Arc<str>>>) -> Option<Block> {
        fields.refuse_unknown(&STEP_FIELDS, self.report);
        let title = self.title(fields);
        let work = self.work(fields);
        let reads = self.uses(fields, "reads");
        let writes = self.uses(fields, "writes");
        let mut after = self.syncs(fields, "after", false);
        after.extend(self.syncs(fields, "requires", true));
        self.refuse_repeated_syncs(fields, &after);
        let at = self.at(fields);
        let takes = self.duration(fields, "takes");
        let mail = self.mail(fields);
        let undo = self.undo(fields);
        let (name, work, undo) = (name?, work?, undo?);
        Some(Block::Step(Step { name, title, work, reads, writes, after, at, takes, mail, undo }))
    }

    fn parallel(&mut self, fields: &Fields<'_>, name: Option<Spanned<Arc<str>>>) -> Option<Block> {
        fields.refuse_unknown(&PARALLEL_FIELDS, self.report);
        let title = self.title(fields);
        let branches = self.branches(fields, Branching::Parallel)?;
        Some(Block::Parallel(Parallel { name: name?, title, branches }))
    }

    fn choice(&mut self, fields: &Fields<'_>, name: Option<Spanned<Arc<str>>>) -> Option<Block> {
        fields.refuse_unknown(&CHOICE_FIELDS, self.report);
        let title = self.title(fields);
        let (by, branching) = match fields.value("who") {
            None => {
                self.refuse_decider_fields(fields);
                (Some(ChoiceBy::Conditions), Branching::ByCondition)
            }
            Some(_) => (self.decider(fields).map(ChoiceBy::Person), Branching::ByPerson),
        };
        let branches = self.branches(fields, branching)?;
        if branching == Branching::ByCondition {
            self.refuse_second_otherwise(&branches);
        }
        Some(Block::Choice(Choice { name: name?, title, by: by?, branches }))
    }

    fn repeat(&mut self, fields: &Fields<'_>, name: Option<Spanned<Arc<str>>>) -> Option<Block> {
        fields.refuse_unknown(&LOOP_FIELDS, self.report);
        let title = self.title(fields);
        let hint = "write `steps:` and, below, what is repeated";
        let body = fields.required("steps", hint, self.report);
        let what = format!("`steps` of {}", fields.what());
        let body = body.map(|node| (node, self.sequence(node, &what)));
        if let Some((node, _)) = &body
            && fields::is_empty_list(node)
        {
            let message = format!("{} repeats nothing", fields.what());
            self.report.error(node.span, Rule::Y2, message, "write at least one step");
            self.report.mark_incomplete();
        }
        let until = self.until(fields);
        let times_max = self.times(fields, "max", ITERATIONS_DEFAULT, ITERATIONS_MAX);
        let rounds = self.times(fields, "rounds", ROUNDS_DEFAULT, ROUNDS_MAX);
        let (_, body) = body?;
        let (name, until, times_max, rounds) = (name?, until?, times_max?, rounds?);
        Some(Block::Loop(Loop { name, title, body, until, times_max, rounds }))
    }

    fn times(&mut self, fields: &Fields<'_>, key: &str, default: u32, most: u32) -> Option<u32> {
        let Some(node) = fields.value(key) else { return Some(default) };
        fields::number(node, &format!("`{key}` of {}", fields.what()), 1..=most, self.report)
    }

    fn until(&mut self, fields: &Fields<'_>) -> Option<Until> {
        let hint = "write `until:` with a condition, or `who:` if a person decides";
        match (fields.value("until"), fields.value("who")) {
            (Some(node), None) => {
                self.refuse_decider_fields(fields);
                let what = format!("`until` of {}", fields.what());
                self.condition(node, &what, Rule::K5).map(Until::Condition)
            }
            (None, Some(_)) => self.decider(fields).map(Until::Person),
            (None, None) => {
                let message = format!("nothing says when {} ends", fields.what());
                self.report.error(fields.span(), Rule::K5, message, hint);
                None
            }
            (Some(_), Some(who)) => {
                let message = format!("{} has both `until` and `who`", fields.what());
                self.report.error(who.span, Rule::K5, message, "keep one of them");
                None
            }
        }
    }

    fn branches(&mut self, fields: &Fields<'_>, branching: Branching) -> Option<Vec<Branch>> {
        let Some(node) = fields.value("branches") else {
            let message = format!("{} has no branches", fields.what());
            let hint = "write `branches:` with at least two branches";
            self.report.error(fields.span(), Rule::K1, message, hint);
            return None;
        };
        let what = format!("`branches` of {}", fields.what());
        let items = fields::items(node, &what, BRANCH_HINT, self.report)?;
        if items.len() < 2 {
            let message = match items.len() {
                0 => format!("{} has no branches", fields.what()),
                _ => format!("{} has only one branch", fields.what()),
            };
            let hint = "add a branch (it may be without steps), or write the steps without it";
            self.report.error(node.span, Rule::K1, message, hint);
            self.report.mark_incomplete();
        }
        if items.len() > BRANCHES_MAX {
            let message = format!("{what} has more than {BRANCHES_MAX} entries");
            let hint = "nest a block into one of the branches";
            self.report.error(node.span, Rule::Y3, message, hint);
            return None;
        }
        let branches: Vec<Option<Branch>> = items
            .iter()
            .enumerate()
            .map(|(place, item)| self.branch(item, place + 1, fields.what(), branching))
            .collect();
        let branches: Vec<Branch> = branches.into_iter().collect::<Option<_>>()?;
        self.refuse_equal_names(&branches, fields.what());
        Some(branches)
    }

    fn branch(
        &mut self,
        node: &Node,
        number: usize,
        of: &str,
        branching: Branching,
    ) -> Option<Branch> {
        let mut fields = Fields::of(node, format!("branch {number} of {of}"), self.report)?;
        let name = match fields.value("name") {
            Some(node) => {
                let what = format!("the name of {}", fields.what());
                let name = fields::name(node, &what, self.report);
                if let Some(name) = &name {
                    fields.describe(format!("branch `{}` of {of}", name.value));
                }
                name
            }
            None if branching == Branching::ByPerson => {
                let message = format!("{} has no name", fields.what());
                let hint = "write `name:`; it is what the person answers";
                self.report.error(fields.span(), Rule::K6, message, hint);
                None
            }
            None => Some(Spanned::new(Arc::from(number.to_string()), fields.span())),
        };
        fields.refuse_unknown(&BRANCH_FIELDS, self.report);
        let title = self.title(&fields);
        let guard = match branching {
            Branching::ByCondition => self.guard(&fields),
            Branching::Parallel => {
                self.refuse_guard(&fields, "all branches of a parallel run; use a `choice`")
            }
            Branching::ByPerson => {
                self.refuse_guard(&fields, "here a person decides; leave the condition out")
            }
        };
        let what = format!("`steps` of {}", fields.what());
        let steps = fields.value("steps").map_or_else(Vec::new, |node| self.sequence(node, &what));
        Some(Branch { name: name?, title, guard: guard?, steps })
    }

    fn guard(&mut self, fields: &Fields<'_>) -> Option<Guard> {
        let what = fields.what();
        match (fields.value("when"), fields.value("otherwise")) {
            (Some(node), None) => {
                let what = format!("`when` of {what}");
                self.condition(node, &what, Rule::K6).map(Guard::When)
            }
            (None, Some(node)) => {
                let scalar = node.scalar().filter(|scalar| scalar.kind == ScalarKind::Bool);
                if scalar.is_none_or(|scalar| !scalar.text.eq_ignore_ascii_case("true")) {
                    let message = format!("`otherwise` of {what} can only be true");
                    let hint = "write `otherwise: true`, or a condition after `when:`";
                    self.report.error(node.span, Rule::Y2, message, hint);
                    return None;
                }
                Some(Guard::Otherwise(node.span))
            }
            (None, None) => {
                let message = format!("nothing says when {what} is taken");
                let hint = "write `when:` with a condition, or `otherwise: true`; if a person \
                            decides, write `who:` at the choice";
                self.report.error(fields.span(), Rule::K6, message, hint);
                None
            }
            (Some(_), Some(otherwise)) => {
                let message = format!("{what} has both `when` and `otherwise`");
                self.report.error(otherwise.span, Rule::K6, message, "keep one of them");
                None
            }
        }
    }

    fn refuse_guard(&mut self, fields: &Fields<'_>, hint: &str) -> Option<Guard> {
        for key in ["when", "otherwise"] {
            if let Some((span, _)) = fields.get(key) {
                let message = format!("{} cannot have `{key}`", fields.what());
                self.report.error(span, Rule::K6, message, hint);
                self.report.mark_incomplete();
            }
        }
        Some(Guard::None)
    }

    fn refuse_second_otherwise(&mut self, branches: &[Branch]) {
        let others = branches.iter().filter_map(|branch| match branch.guard {
            Guard::Otherwise(span) => Some(span),
            Guard::None | Guard::When(_) => None,
        });
        for span in others.skip(1) {
            let message = "a choice can have one `otherwise` only";
            self.report.error(span, Rule::K6, message, "write `when:` with a condition instead");
            self.report.mark_incomplete();
        }
    }

    fn refuse_equal_names(&mut self, branches: &[Branch], of: &str) {
        let mut seen: BTreeMap<&str, Span> = BTreeMap::new();
        for branch in branches {
            let Spanned { value, span } = &branch.name;
            if let Some(before) = seen.insert(value, *span) {
                let name = quote(value);
                let message = format!("two branches of {of} are named {name}, one at {before}");
                self.report.error(*span, Rule::K6, message, "rename one of them");
                self.report.mark_incomplete();
            }
        }
    }

    pub(super) fn title(&mut self, fields: &Fields<'_>) -> Option<String> {
        let what = format!("the title of {}", fields.what());
        fields.value("title").and_then(|node| fields::title(node, &what, self.report))
    }
}
