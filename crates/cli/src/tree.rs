//! An instance as a tree: its blocks and steps with their states.
//!
//! Invariant: every node is on exactly one line; nodes keep the order of the definition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use legwork_api::instances::{
    Failure, HistoryEntry, Instance, InstanceState, InstanceSummary, Node, NodeState, Performer,
};

use crate::incidents::way_out;
use crate::style::{ACTIVE, BAD, DIM, GOOD, STRONG, WARN, paint, plain, shorten};
use crate::table::{Cell, Table};
use crate::when;

/// The shown length of a value.
const VALUE_CHARS: usize = 100;
/// The shown length of a failure's reason.
const ERROR_CHARS: usize = 160;

/// Everything about an instance, as text.
pub(crate) fn render(instance: &Instance, taken: &Taken) -> String {
    let summary = &instance.summary;
    let title = paint(STRONG, plain(&instance.title));
    let process = format!("{} v{}", summary.process, summary.version);
    let mut out = format!("{title} · {process} · {}\n", summary.instance);
    out.push_str(&format!("{}\n", lifetime(summary, &instance.started_by)));
    out.push_str(&deadline(summary));
    out.push('\n');
    out.push_str(&nodes(&instance.nodes, taken));
    out.push_str(&on_their_way(instance));
    out.push_str(&data(instance));
    out.push_str(&incidents(&instance.nodes));
    out
}

/// The taken branch of choices, by name and iteration.
#[derive(Debug, Default)]
pub(crate) struct Taken(BTreeMap<(Arc<str>, Vec<u32>), String>);

impl Taken {
    pub(crate) fn of(entries: Vec<HistoryEntry>) -> Self {
        let decisions = entries.into_iter().filter_map(|entry| match entry.kind.as_str() {
            "completed" | "decided" => Some(((entry.step?, entry.iteration), entry.detail?)),
            _ => None,
        });
        Self(decisions.collect())
    }

    fn at(&self, choice: &Node) -> Option<&str> {
        let place = (choice.name.clone(), choice.activity.iteration.0.clone());
        self.0.get(&place).filter(|_| choice.kind == "choice").map(String::as_str)
    }
}

pub(crate) fn state(state: InstanceState) -> Cell {
    let style = match state {
        InstanceState::Running => ACTIVE,
        InstanceState::Suspended => WARN,
        InstanceState::Completed => GOOD,
        InstanceState::Aborted => BAD,
    };
    Cell::styled(style, state_name(state))
}

pub(crate) fn state_name(state: InstanceState) -> &'static str {
    match state {
        InstanceState::Running => "running",
        InstanceState::Suspended => "suspended",
        InstanceState::Completed => "completed",
        InstanceState::Aborted => "aborted",
    }
}

/// The system has no name.
pub(crate) fn performer(performer: &Performer) -> String {
    match performer {
        Performer::System => String::new(),
        Performer::Agent(agent) => plain(agent),
        Performer::Worker(worker) => format!("worker {}", plain(worker)),
        Performer::Executor(executor) => format!("executor {}", plain(executor)),
    }
}

/// A step in an iteration, as in the ids of activities.
pub(crate) fn in_round(step: &str, iteration: &[u32]) -> String {
    let rounds: Vec<String> = iteration.iter().map(u32::to_string).collect();
    match rounds.is_empty() {
        true => step.to_owned(),
        false => format!("{step}:{}", rounds.join(".")),
    }
}

fn deadline(summary: &InstanceSummary) -> String {
    let Some(deadline) = &summary.deadline else { return String::new() };
    let is_late = deadline.passed.is_some_and(|passed| passed.at >= deadline.at);
    let (style, word) = match deadline.promised {
        _ if is_late => (BAD, "late"),
        true => (GOOD, "promised"),
        false => (WARN, "not promised"),
    };
    let more = format!("see `legwork deadline show {}`", summary.instance);
    format!("{} for {} · {}\n", paint(style, word), when::minute(deadline.at), paint(DIM, more))
}

fn lifetime(summary: &InstanceSummary, by: &Performer) -> String {
    let word = state_name(summary.state);
    let style = match summary.state {
        InstanceState::Running => ACTIVE,
        InstanceState::Suspended => WARN,
        InstanceState::Completed => GOOD,
        InstanceState::Aborted => BAD,
    };
    let by = match performer(by) {
        by if by.is_empty() => by,
        by => format!(" by {by}"),
    };
    let started = format!("started {}{by}", when::minute(summary.started_at));
    let ended = match summary.ended_at {
        Some(ended) => format!(" · ended {}", when::minute(ended)),
        None => String::new(),
    };
    format!("{} · {started}{ended}", paint(style, word))
}

fn nodes(nodes: &[Node], taken: &Taken) -> String {
    let mut lines = Vec::new();
    let mut rest = nodes;
    while let Some((first, _)) = rest.split_first() {
        rest = siblings(rest, first.depth, "", true, &mut lines);
    }
    let servers: BTreeSet<_> = nodes.iter().filter_map(|node| node.server.as_deref()).collect();
    // With one place only, it is not shown.
    let spread = servers.len() > 1;
    let mut table = Table::bare();
    lines.iter().for_each(|line| table.row(line.cells(taken, spread)));
    table.render("")
}

struct Line<'n> {
    /// The branches of the tree before it, and before its continued lines.
    lead: [String; 2],
    what: What<'n>,
    name: String,
    title: String,
}

enum What<'n> {
    Node(&'n Node),
    /// With a remark.
    Branch(&'static str),
}

/// Lines for all nodes of `depth` up to the end of the block or branch; returns the rest.
fn siblings<'n>(
    nodes: &'n [Node],
    depth: u32,
    prefix: &str,
    outermost: bool,
    lines: &mut Vec<Line<'n>>,
) -> &'n [Node] {
    let mut rest = nodes;
    while let Some((node, after)) = rest.split_first().filter(|(node, _)| node.depth >= depth) {
        let inner = after.iter().take_while(|inner| inner.depth > depth).count();
        let (children, next) = after.split_at(inner);
        let continues = |next: &[Node]| {
            next.first().is_some_and(|next| next.depth == depth && next.branch.is_none())
        };
        let last = !continues(next);
        let (knot, below) = match (outermost, last) {
            (true, _) => (String::new(), String::new()),
            (false, true) => (format!("{prefix}└─ "), format!("{prefix}   ")),
            (false, false) => (format!("{prefix}├─ "), format!("{prefix}│  ")),
        };
        let title = if node.title == node.name { String::new() } else { plain(&node.title) };
        let name = plain(&node.name);
        lines.push(Line { lead: [knot, below.clone()], what: What::Node(node), name, title });
        branches(node, children, &below, lines);
        rest = next;
        if last && !outermost {
            break;
        }
    }
    rest
}

/// The inside of a block: its branches with their names, or the steps of a loop.
fn branches<'n>(block: &'n Node, inside: &'n [Node], prefix: &str, lines: &mut Vec<Line<'n>>) {
    let depth = block.depth + 1;
    let mut rest = inside;
    while block.branches.is_empty() && !rest.is_empty() {
        rest = siblings(rest, depth, prefix, false, lines);
    }
    for (place, branch) in block.branches.iter().enumerate() {
        let begins = |node: &Node| node.depth == depth && node.branch.is_some();
        let is_empty = rest.first().is_none_or(|first| first.branch.as_ref() != Some(&branch.name));
        let own = match is_empty {
            true => 0,
            false => 1 + rest[1..].iter().take_while(|node| !begins(node)).count(),
        };
        let (steps, others) = rest.split_at(own);
        let is_last = place + 1 == block.branches.len();
        let (knot, below) = match is_last {
            true => (format!("{prefix}└─ "), format!("{prefix}   ")),
            false => (format!("{prefix}├─ "), format!("{prefix}│  ")),
        };
        let title = if branch.title == branch.name { String::new() } else { plain(&branch.title) };
        let remark = if is_empty { "nothing to do" } else { "" };
        let name = plain(&branch.name);
        lines.push(Line { lead: [knot, below.clone()], what: What::Branch(remark), name, title });
        siblings(steps, depth, &below, false, lines);
        rest = others;
    }
}

impl Line<'_> {
    fn cells(&self, taken: &Taken, spread: bool) -> Vec<Cell> {
        let [first, others] = &self.lead;
        let node = match self.what {
            What::Node(node) => node,
            What::Branch(remark) => {
                let name = Cell::styled(DIM, &self.name).led(first, others);
                return vec![name, Cell::styled(DIM, &self.title), Cell::styled(DIM, remark)];
            }
        };
        let (mark, style) = mark(node);
        let name = Cell::styled(style, format!("{mark} {}", self.name));
        let remark = Cell::styled(style, remark(node, taken, spread));
        vec![name.led(first, format!("{others}  ")), Cell::from(&self.title), remark]
    }
}

fn mark(node: &Node) -> (char, anstyle::Style) {
    match node.state {
        NodeState::NotActivated => ('○', DIM),
        NodeState::Activated if node.attempts > 0 => ('↻', WARN),
        NodeState::Activated => ('●', ACTIVE),
        NodeState::Claimed | NodeState::Answered | NodeState::Running => ('▶', ACTIVE),
        NodeState::Completed => ('✔', GOOD),
        NodeState::Skipped => ('–', DIM),
        NodeState::Failed => ('✘', BAD),
    }
}

fn remark(node: &Node, taken: &Taken, spread: bool) -> String {
    let is_step = matches!(node.kind.as_str(), "manual" | "automatic");
    let by = node.performer.as_ref().filter(|by| **by != Performer::System).map(performer);
    let iteration = match node.activity.iteration.0.last() {
        Some(round) if node.kind == "loop" && node.state != NodeState::NotActivated => {
            format!("round {}", u64::from(*round) + 1)
        }
        Some(_) | None => String::new(),
    };
    let words = match node.state {
        NodeState::NotActivated => String::new(),
        NodeState::Skipped => "skipped".to_owned(),
        NodeState::Failed => "incident".to_owned(),
        NodeState::Completed => by.map(|by| format!("by {by}")).unwrap_or_default(),
        NodeState::Answered => {
            let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
            format!("answered{by}, not confirmed yet")
        }
        NodeState::Activated | NodeState::Claimed | NodeState::Running => {
            match (&node.holder, node.retry_at) {
                (Some(holder), _) => format!("claimed by {}", plain(holder)),
                (None, Some(retry)) => {
                    format!("failed {}×, again at {}", node.attempts, when::second(retry))
                }
                (None, None) if node.kind == "automatic" => {
                    "waits for a worker or an executor to do it".to_owned()
                }
                (None, None) if is_step || node.state == NodeState::Activated => {
                    "offered".to_owned()
                }
                (None, None) => String::new(),
            }
        }
    };
    let branch = taken.at(node).map(|branch| format!("took {}", plain(branch)));
    let server = node.server.as_ref().filter(|_| spread && node.state != NodeState::Skipped);
    let server = server.map(|server| format!("at {}", plain(server)));
    [iteration, branch.unwrap_or_default(), words, server.unwrap_or_default()]
        .into_iter()
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Unacknowledged transfers to other servers, and servers that could not be asked.
fn on_their_way(instance: &Instance) -> String {
    let waiting = instance.elsewhere.iter().filter(|elsewhere| elsewhere.waiting > 0);
    let lines = waiting.map(|elsewhere| {
        let count = elsewhere.waiting;
        let parcels = if count == 1 { "1 parcel".to_owned() } else { format!("{count} parcels") };
        paint(WARN, format!("{parcels} on the way to {}", plain(&elsewhere.server))) + "\n"
    });
    let lines = lines.collect::<String>() + &unreachable(&instance.unreachable);
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// A line for each server that could not be asked.
pub(crate) fn unreachable(servers: &[Arc<str>]) -> String {
    let line = |server: &Arc<str>| {
        let server = plain(server);
        let words = format!("{server} cannot be reached: what happened there since is not shown");
        paint(WARN, words) + "\n"
    };
    servers.iter().map(line).collect()
}

fn data(instance: &Instance) -> String {
    let mut table = Table::bare();
    for element in instance.data.iter().filter(|element| element.value.is_some()) {
        let value = element.value.as_ref().map(value).unwrap_or_default();
        let versions = match element.versions {
            0 | 1 => String::new(),
            versions => format!("(version {versions})"),
        };
        table.row([
            Cell::from(&element.element),
            Cell::styled(DIM, &element.kind),
            Cell::from(value),
            Cell::styled(DIM, versions),
        ]);
    }
    if table.is_empty() { String::new() } else { format!("\nData\n{}", table.render("  ")) }
}

/// A value on one line.
pub(crate) fn value(value: &serde_json::Value) -> String {
    let text = match value.as_object().filter(|object| object.contains_key("blob")) {
        Some(file) => {
            let name = file.get("name").and_then(|name| name.as_str()).unwrap_or("file");
            let size = file.get("size").and_then(|size| size.as_u64()).unwrap_or(0);
            format!("{name} ({size} bytes)")
        }
        None => match value.as_str() {
            Some(text) if !text.contains(char::is_control) => text.to_owned(),
            Some(_) | None => value.to_string(),
        },
    };
    shorten(&plain(&text), VALUE_CHARS)
}

fn incidents(nodes: &[Node]) -> String {
    let mut out = String::new();
    for node in nodes {
        let Some(incident) = &node.incident else { continue };
        let activity = paint(STRONG, &node.activity);
        out.push_str(&format!("  {} {activity}\n    {}\n", paint(BAD, "✘"), plain(incident)));
        out.push_str(&failures(&node.failures));
        out.extend(node.incident_kind.as_deref().map(way_out));
    }
    if out.is_empty() {
        return out;
    }
    format!("\nIncidents (`legwork resolve ACTIVITY` with a way out)\n{out}")
}

/// The attempts before an incident, a line for each.
pub(crate) fn failures(failures: &[Failure]) -> String {
    let line = |failure: &Failure| {
        let (at, by) = (when::second(failure.at), performer(&failure.by));
        let error = shorten(&plain(&failure.error), ERROR_CHARS);
        let by = if by.is_empty() { by } else { format!("{by}: ") };
        format!("      {} {by}{error}\n", paint(DIM, at))
    };
    failures.iter().map(line).collect()
}

#[cfg(test)]
pub(crate) mod tests;
