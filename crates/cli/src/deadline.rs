//! `legwork deadline`: whether something can be promised, what was, and what somebody is to do when.
//!
//! Invariant: nothing here reserves or changes anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use legwork_api::client::InstanceQuery;
use legwork_api::deadlines::{Deadline, DeadlineRequest, DeadlineStep, PlanKind};
use legwork_api::instances::{
    HistoryEntry, Instance, InstanceState, InstanceSummary, Node, NodeState, Performer,
};
use legwork_model::time::Timestamp;
use serde::Serialize;

use crate::abbreviate::short;
use crate::by::{self, By};
use crate::context::Context;
use crate::deployed::named;
use crate::output::remark;
use crate::start::CaseArgs;
use crate::style::{ACTIVE, BAD, DIM, GOOD, STRONG, WARN, paint};
use crate::table::{Cell, Table};
use crate::{gantt, history, progress, tree};

/// Where the output is no terminal.
const WIDTH: usize = 100;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Ask whether a case could be promised, without starting it
    Ask(AskArgs),
    /// List cases with a deadline: promised or not, what is next and by whom
    List(ListArgs),
    /// Show the steps on the way to a deadline, as planned and as they went
    Show {
        /// The instance: its id, the end of it, or `last`
        instance: String,
    },
    /// Draw what a person or an executor is to do when
    Plan(PlanArgs),
}

#[derive(Debug, clap::Args)]
struct AskArgs {
    #[command(flatten)]
    case: CaseArgs,
    /// By when: a moment with its zone, or a time from now such as 3d
    #[arg(long, value_name = "WHEN")]
    by: By,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only instances of this process
    #[arg(long, value_name = "PROCESS")]
    process: Option<String>,
    /// Those that have ended, instead of those that have not
    #[arg(long)]
    ended: bool,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

#[derive(Debug, clap::Args)]
struct PlanArgs {
    /// The person or the executor
    name: String,
    /// The executor, where a person has the same name
    #[arg(long)]
    executor: bool,
    /// How wide the chart may be [default: as wide as the terminal]
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(40..))]
    width: Option<u16>,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Result<()> {
    match &args.command {
        Command::Ask(args) => ask(context, args).await,
        Command::List(args) => list(context, args).await,
        Command::Show { instance } => show(context, instance).await,
        Command::Plan(args) => plan(context, args).await,
    }
}

async fn ask(context: &Context, args: &AskArgs) -> Result<()> {
    let mut request = args.case.request(context).await?;
    let at = args.by.moment(legwork_server::now());
    request.deadline = Some(DeadlineRequest::new(at));
    let deadline = match context.client.ask_deadline(&request).await {
        Ok(deadline) => deadline,
        Err(error) => return Err(named(context, error, &args.case.process).await.into()),
    };
    context.out.answer(&deadline, || asked(&args.case.process, &deadline))
}

fn asked(process: &str, deadline: &Deadline) -> String {
    let (mark, at) = (paint(GOOD, "✔"), paint(STRONG, tree::moment(deadline.at)));
    let start = format!("legwork start {process} --by {}", deadline.at);
    let next = format!("nothing is reserved yet; `{start}` with the same values does");
    format!("{mark} can be promised for {at}\n{}{}\n", by::steps(deadline), paint(DIM, next))
}

/// A case with a deadline, as it is listed.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    summary: InstanceSummary,
    standing: Standing,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<DeadlineStep>,
}

/// How it stands with a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Standing {
    Promised,
    NotPromised,
    /// The deadline is over, and the case is not or was not then.
    Late,
    /// It was done by then.
    InTime,
    Aborted,
}

#[derive(Debug, Serialize)]
struct Rows {
    deadlines: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreachable: Vec<Arc<str>>,
}

async fn list(context: &Context, args: &ListArgs) -> Result<()> {
    let (process, ended) = (args.process.clone(), args.ended);
    let query = InstanceQuery { process, ended, deadline: true, ..InstanceQuery::default() };
    let most = args.limit as usize;
    let reading = async {
        // One more than asked for tells whether there are more.
        let mut list = context.instances(&query, most.saturating_add(1)).await?;
        let more = list.instances.len() > most;
        list.instances.truncate(most);
        let mut rows = Rows { deadlines: Vec::new(), unreachable: list.unreachable };
        for summary in list.instances {
            rows.deadlines.extend(row(context, summary).await?);
        }
        rows.deadlines.sort_by_key(|row| row.summary.deadline.as_ref().map(|deadline| deadline.at));
        anyhow::Ok((rows, more))
    };
    let (rows, more) = progress::waiting("reading the list", reading).await?;
    context
        .out
        .answer(&rows, || render(&rows.deadlines) + &tree::unreachable(&rows.unreachable))?;
    if more && !context.out.json {
        remark(&paint(DIM, "there are more; see them with a larger --limit"));
    }
    Ok(())
}

async fn row(context: &Context, summary: InstanceSummary) -> Result<Option<Row>> {
    let Some(deadline) = &summary.deadline else { return Ok(None) };
    let standing = standing(&summary, deadline, legwork_server::now());
    let next = match summary.ended_at {
        Some(_) => None,
        None => next(&context.client.instance(summary.instance, Duration::ZERO).await?),
    };
    Ok(Some(Row { summary, standing, next }))
}

fn standing(summary: &InstanceSummary, deadline: &Deadline, now: Timestamp) -> Standing {
    match (summary.state, summary.ended_at) {
        (InstanceState::Aborted, _) => Standing::Aborted,
        (InstanceState::Completed, Some(ended)) if ended <= deadline.at => Standing::InTime,
        (InstanceState::Completed, _) => Standing::Late,
        (InstanceState::Running | InstanceState::Suspended, _) if now > deadline.at => {
            Standing::Late
        }
        (InstanceState::Running | InstanceState::Suspended, _) if deadline.promised => {
            Standing::Promised
        }
        (InstanceState::Running | InstanceState::Suspended, _) => Standing::NotPromised,
    }
}

/// The first step that is planned and not over.
fn next(instance: &Instance) -> Option<DeadlineStep> {
    let steps = &instance.summary.deadline.as_ref()?.steps;
    let is_open = |step: &&DeadlineStep| {
        instance.nodes.iter().any(|node| node.name == step.step && !is_over(node))
    };
    steps.iter().filter(is_open).min_by_key(|step| step.due).cloned()
}

fn is_over(node: &Node) -> bool {
    match node.state {
        NodeState::Completed | NodeState::Skipped => true,
        NodeState::NotActivated
        | NodeState::Activated
        | NodeState::Claimed
        | NodeState::Answered
        | NodeState::Running
        | NodeState::Failed => false,
    }
}

fn render(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "no such instance has a deadline; give one with `legwork start PROCESS --by WHEN`\n"
            .to_owned();
    }
    let mut table = Table::new(&["INSTANCE", "PROCESS", "DEADLINE", "STANDING", "NEXT"]);
    for Row { summary, standing, next } in rows {
        let at = summary.deadline.as_ref().map_or_else(String::new, |one| tree::moment(one.at));
        let (style, word) = match standing {
            Standing::Promised => (GOOD, "promised"),
            Standing::NotPromised => (WARN, "not promised"),
            Standing::Late => (BAD, "late"),
            Standing::InTime => (GOOD, "in time"),
            Standing::Aborted => (DIM, "aborted"),
        };
        table.row([
            Cell::styled(STRONG, short(&summary.instance.to_string())),
            Cell::from(format!("{} v{}", summary.process, summary.version)),
            Cell::from(at),
            Cell::styled(style, word),
            Cell::from(next.as_ref().map_or_else(String::new, next_words)),
        ]);
    }
    table.render("")
}

/// `check by ann, due 2026-03-01 14:00:00Z`: when exactly it is done may still change, this does not.
fn next_words(step: &DeadlineStep) -> String {
    let by = step.by.as_ref().map_or_else(|| "nobody".to_owned(), tree::performer);
    format!("{} by {by}, due {}", step.step, tree::moment(step.due))
}

/// A case with its deadline, as planned and as it went.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    summary: InstanceSummary,
    standing: Standing,
    steps: Vec<ShownStep>,
}

#[derive(Debug, Serialize)]
struct ShownStep {
    #[serde(flatten)]
    planned: DeadlineStep,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<NodeState>,
    /// Who has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    done_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    done_by: Option<Performer>,
    /// It was not done when others needed it, or is not.
    late: bool,
}

async fn show(context: &Context, text: &str) -> Result<()> {
    let id = context.instance(text).await?;
    let mut instance = context.client.instance(id, Duration::ZERO).await?;
    let Some(deadline) = instance.summary.deadline.take() else {
        bail!("{id} has no deadline; look at it with `legwork show {id}`")
    };
    let history = progress::waiting("reading the history", history::read(context, id)).await?;
    let now = legwork_server::now();
    let steps = shown_steps(&instance, &deadline, history.entries, now);
    let standing = standing(&instance.summary, &deadline, now);
    let bare = Deadline { steps: Vec::new(), ..deadline };
    let summary = InstanceSummary { deadline: Some(bare), ..instance.summary };
    let shown = Shown { summary, standing, steps };
    context.out.answer(&shown, || render_shown(&shown))
}

fn shown_steps(
    instance: &Instance,
    deadline: &Deadline,
    entries: Vec<HistoryEntry>,
    now: Timestamp,
) -> Vec<ShownStep> {
    // Of a step that was done several times the first one counts: loops are planned for one round.
    let mut done: BTreeMap<Arc<str>, HistoryEntry> = BTreeMap::new();
    for entry in entries.into_iter().filter(|entry| matches!(&*entry.kind, "completed" | "decided"))
    {
        if let Some(step) = entry.step.clone() {
            done.entry(step).or_insert(entry);
        }
    }
    let step = |planned: &DeadlineStep| {
        let node = instance.nodes.iter().find(|node| node.name == planned.step);
        let done = done.get(&planned.step);
        let is_skipped = node.is_some_and(|node| node.state == NodeState::Skipped);
        let until = done.map_or(now, |entry| entry.at);
        ShownStep {
            planned: planned.clone(),
            state: node.map(|node| node.state),
            holder: node.and_then(|node| node.holder.clone()),
            done_at: done.map(|entry| entry.at.to_string()),
            done_by: done.map(|entry| entry.by.clone()),
            late: !is_skipped && until > planned.due,
        }
    };
    deadline.steps.iter().map(step).collect()
}

fn render_shown(shown: &Shown) -> String {
    let Shown { summary, standing, steps } = shown;
    let at = summary.deadline.as_ref().map_or_else(String::new, |one| tree::moment(one.at));
    let (style, word) = match standing {
        Standing::Promised => (GOOD, "✔ promised for"),
        Standing::NotPromised => (WARN, "! not promised for"),
        Standing::Late => (BAD, "✘ late: it was to be done by"),
        Standing::InTime => (GOOD, "✔ done in time for"),
        Standing::Aborted => (DIM, "– aborted; it was to be done by"),
    };
    let of = format!("{} v{} · {}", summary.process, summary.version, summary.instance);
    let mut out = format!("{of}\n{} {}\n", paint(style, word), paint(STRONG, at));
    let mut table = Table::new(&["STEP", "WHO", "FROM", "UNTIL", "DUE", "SO FAR"]);
    let moment =
        |moment: Option<Timestamp>| Cell::from(moment.map_or_else(String::new, tree::moment));
    for step in steps {
        let planned = &step.planned;
        let who = planned.by.as_ref().map_or_else(|| "nobody".to_owned(), tree::performer);
        table.row([
            Cell::from(&planned.step),
            Cell::from(who),
            moment(planned.start),
            moment(planned.end),
            Cell::from(tree::moment(planned.due)),
            so_far(step),
        ]);
    }
    // Of what was never promised nothing is planned.
    if !table.is_empty() {
        out.push_str(&table.render("  "));
    }
    out
}

fn so_far(step: &ShownStep) -> Cell {
    let late = if step.late { ", late" } else { "" };
    let style = |style| if step.late { BAD } else { style };
    if let Some(at) = step.done_at.as_ref().and_then(|at| at.parse().ok()) {
        let by = match step.done_by.as_ref().map(tree::performer) {
            Some(by) if !by.is_empty() => format!(" by {by}"),
            Some(_) | None => String::new(),
        };
        return Cell::styled(style(GOOD), format!("done {}{by}{late}", tree::moment(at)));
    }
    match (step.state, &step.holder) {
        (Some(NodeState::Skipped), _) => Cell::styled(DIM, "skipped"),
        (Some(NodeState::Failed), _) => Cell::styled(BAD, format!("incident{late}")),
        (Some(NodeState::Claimed), Some(holder)) => {
            Cell::styled(style(ACTIVE), format!("{holder} has it{late}"))
        }
        (Some(NodeState::NotActivated) | None, _) => {
            Cell::styled(style(DIM), format!("not yet{late}"))
        }
        (
            Some(
                NodeState::Activated
                | NodeState::Claimed
                | NodeState::Answered
                | NodeState::Running
                | NodeState::Completed,
            ),
            _,
        ) => Cell::styled(style(ACTIVE), format!("open{late}")),
    }
}

async fn plan(context: &Context, args: &PlanArgs) -> Result<()> {
    let kind = args.executor.then_some(PlanKind::Executor);
    let plan = context.client.plan(&args.name, kind).await?;
    let terminal = || terminal_size::terminal_size().map(|(width, _)| width.0);
    let width = args.width.or_else(terminal).map_or(WIDTH, usize::from);
    context.out.answer(&plan, || gantt::render(&plan, width))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by::tests::{at, deadline};
    use crate::tree::tests::{node, summary};

    fn with_deadline(state: InstanceState) -> InstanceSummary {
        InstanceSummary { deadline: Some(deadline()), ..summary(state) }
    }

    fn instance(nodes: &[&str]) -> Instance {
        Instance {
            summary: with_deadline(InstanceState::Running),
            title: "Loan".into(),
            started_by: Performer::System,
            result: None,
            data: Vec::new(),
            nodes: nodes.iter().map(|text| node(text)).collect(),
            elsewhere: Vec::new(),
            unreachable: Vec::new(),
        }
    }

    fn bare(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn a_list_tells_how_it_stands_and_what_is_next() {
        let row = |summary: InstanceSummary, now: &str, nodes: &[&str]| {
            let deadline = summary.deadline.clone().unwrap();
            let next = summary.ended_at.is_none().then(|| next(&instance(nodes))).flatten();
            Row { standing: standing(&summary, &deadline, at(now)), summary, next }
        };
        let open = || with_deadline(InstanceState::Running);
        let (early, after) = ("2026-03-01T09:00:00Z", "2026-03-03T09:00:00Z");
        let nodes = ["0||manual|check|completed|by ann", "0||automatic|book|activated"];
        let mut unpromised = open();
        unpromised.deadline = Some(Deadline { promised: false, ..deadline() });
        let done = |ended: &str| InstanceSummary {
            ended_at: Some(at(ended)),
            ..with_deadline(InstanceState::Completed)
        };
        let rows = [
            row(
                open(),
                early,
                &["0||manual|check|claimed|held ann", "0||automatic|book|not_activated"],
            ),
            row(unpromised, early, &nodes),
            row(open(), after, &nodes),
            row(done(early), after, &[]),
            row(done(after), after, &[]),
        ];
        insta::assert_snapshot!(bare(&render(&rows)), @r"
        INSTANCE  PROCESS  DEADLINE              STANDING      NEXT
        2M6RVC    loan v2  2026-03-02 16:00:00Z  promised      check by ann, due 2026-03-01 14:00:00Z
        2M6RVC    loan v2  2026-03-02 16:00:00Z  not promised  book by worker crm, due 2026-03-01 15:00:00Z
        2M6RVC    loan v2  2026-03-02 16:00:00Z  late          book by worker crm, due 2026-03-01 15:00:00Z
        2M6RVC    loan v2  2026-03-02 16:00:00Z  in time
        2M6RVC    loan v2  2026-03-02 16:00:00Z  late
        ");
        assert!(render(&[]).contains("--by WHEN"));
    }

    #[test]
    fn what_was_planned_is_shown_beside_what_was_done() {
        let nodes = ["0||manual|check|completed|by ann", "0||automatic|book|activated"];
        let entry = HistoryEntry {
            record: 1,
            at: at("2026-03-01T14:30:00Z"),
            kind: "completed".to_owned(),
            step: Some("check".into()),
            iteration: Vec::new(),
            by: Performer::Agent("bea".into()),
            started_at: None,
            writes: legwork_api::Data::new(),
            detail: None,
        };
        let (instance, now) = (instance(&nodes), at("2026-03-01T14:40:00Z"));
        let steps = shown_steps(&instance, &deadline(), vec![entry], now);
        let standing = standing(&instance.summary, &deadline(), now);
        let shown = Shown { summary: instance.summary, standing, steps };
        insta::assert_snapshot!(bare(&render_shown(&shown)), @r"
        loan v2 · inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC
        ✔ promised for 2026-03-02 16:00:00Z
          STEP   WHO         FROM                  UNTIL                 DUE                   SO FAR
          check  ann         2026-03-01 08:00:00Z  2026-03-01 11:00:00Z  2026-03-01 14:00:00Z  done 2026-03-01 14:30:00Z by bea, late
          book   worker crm  2026-03-01 11:00:00Z  2026-03-01 11:00:30Z  2026-03-01 15:00:00Z  open
        ");
    }

    #[test]
    fn whoever_asks_is_told_how_to_go_on() {
        insta::assert_snapshot!(bare(&asked("loan", &deadline())), @r"
        ✔ can be promised for 2026-03-02 16:00:00Z
          STEP   WHO         FROM                  UNTIL
          check  ann         2026-03-01 08:00:00Z  2026-03-01 11:00:00Z
          book   worker crm  2026-03-01 11:00:00Z  2026-03-01 11:00:30Z
        nothing is reserved yet; `legwork start loan --by 2026-03-02T16:00:00.000Z` with the same values does
        ");
    }
}
