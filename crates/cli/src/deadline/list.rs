//! `legwork deadline list`: cases with a deadline, their state and their next step.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use legwork_api::client::InstanceQuery;
use legwork_api::deadlines::{Deadline, DeadlineStep};
use legwork_api::instances::{Instance, InstanceState, InstanceSummary, Node, NodeState};
use legwork_model::time::Timestamp;
use serde::Serialize;

use super::{Standing, standing};
use crate::abbreviate::short;
use crate::context::Context;
use crate::output::remark;
use crate::style::{BAD, DIM, GOOD, STRONG, WARN, paint};
use crate::table::{Cell, Table};
use crate::{by, progress, tree, when};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only instances of this process
    #[arg(long, value_name = "PROCESS")]
    process: Option<String>,
    /// Those that were started last and have ended, instead of those that have not
    #[arg(long)]
    ended: bool,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

/// A listed case.
#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    summary: InstanceSummary,
    standing: Standing,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<DeadlineStep>,
    /// Open steps, if there is no plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    open: Vec<OpenStep>,
}

#[derive(Debug, Serialize)]
struct OpenStep {
    step: Arc<str>,
    /// Its iteration: counters of the loops around it, outermost first, from 0.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    iteration: Vec<u32>,
    state: NodeState,
    /// Its holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Arc<str>>,
}

#[derive(Debug, Serialize)]
struct Rows {
    deadlines: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreachable: Vec<Arc<str>>,
}

pub(super) async fn list(context: &Context, args: &Args) -> Result<()> {
    let (process, ended) = (args.process.clone(), args.ended);
    let query = InstanceQuery { process, ended, deadline: true, ..InstanceQuery::default() };
    let most = args.limit as usize;
    // Lists have the last started case first. The one due first may be anywhere among running cases;
    // ended cases accumulate, and one more than requested suffices to know that there are more.
    let read = if ended { most.saturating_add(1) } else { usize::MAX };
    let reading = async {
        let list = context.instances(&query, read).await?;
        let more = list.instances.len() > most;
        let mut rows = Rows { deadlines: Vec::new(), unreachable: list.unreachable };
        for summary in first_due(list.instances, most, ended) {
            rows.deadlines.extend(row(context, summary).await?);
        }
        anyhow::Ok((rows, more))
    };
    let (rows, more) = progress::waiting("reading the list", reading).await?;
    context
        .out
        .answer(&rows, || render(&rows.deadlines, ended) + &tree::unreachable(&rows.unreachable))?;
    if more && !context.out.json {
        remark(&paint(DIM, "there are more; see them with a larger --limit"));
    }
    Ok(())
}

/// The cases by deadline: the first due; of ended cases the first of the list.
fn first_due(mut all: Vec<InstanceSummary>, most: usize, ended: bool) -> Vec<InstanceSummary> {
    if ended {
        all.truncate(most);
    }
    all.sort_by_key(|summary| summary.deadline.as_ref().map(|deadline| deadline.at));
    all.truncate(most);
    all
}

async fn row(context: &Context, summary: InstanceSummary) -> Result<Option<Row>> {
    let whole = match summary.ended_at {
        Some(_) => None,
        None => Some(context.client.instance(summary.instance, Duration::ZERO).await?),
    };
    Ok(listed(summary, whole.as_ref(), legwork_server::now()))
}

fn listed(mut summary: InstanceSummary, whole: Option<&Instance>, now: Timestamp) -> Option<Row> {
    // A revocation is only shown by the single case.
    if let Some(deadline) = whole.and_then(|whole| whole.summary.deadline.clone()) {
        summary.deadline = Some(Deadline { steps: Vec::new(), ..deadline });
    }
    let standing = standing(&summary, summary.deadline.as_ref()?, now);
    let (next, open) = whole.map(ahead).unwrap_or_default();
    Some(Row { summary, standing, next, open })
}

/// The next planned step; without a plan the open steps.
fn ahead(instance: &Instance) -> (Option<DeadlineStep>, Vec<OpenStep>) {
    let next = next(instance);
    let open = match next {
        Some(_) => Vec::new(),
        None => instance.nodes.iter().filter(|node| is_open(node)).map(open_step).collect(),
    };
    (next, open)
}

/// The first planned step that is not over, in its current iteration.
fn next(instance: &Instance) -> Option<DeadlineStep> {
    let steps = &instance.summary.deadline.as_ref()?.steps;
    let is_ahead =
        |step: &DeadlineStep, node: &Node| match step.iteration.cmp(&node.activity.iteration.0) {
            Ordering::Less => false,
            Ordering::Equal => !is_over(node),
            Ordering::Greater => true,
        };
    let is_ahead = |step: &&DeadlineStep| {
        let mut nodes = instance.nodes.iter().filter(|node| node.name == step.step);
        !step.given_back && nodes.any(|node| is_ahead(step, node))
    };
    steps.iter().filter(is_ahead).min_by_key(|step| step.due).cloned()
}

fn open_step(node: &Node) -> OpenStep {
    OpenStep {
        step: node.name.clone(),
        iteration: node.activity.iteration.0.clone(),
        state: node.state,
        holder: node.holder.clone(),
    }
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

/// Whether it needs outside work; blocks go on by themselves.
fn is_open(node: &Node) -> bool {
    match node.state {
        NodeState::Activated | NodeState::Claimed | NodeState::Answered | NodeState::Failed => true,
        NodeState::NotActivated
        | NodeState::Running
        | NodeState::Completed
        | NodeState::Skipped => false,
    }
}

fn render(rows: &[Row], ended: bool) -> String {
    if rows.is_empty() {
        let none = match ended {
            true => "no instance with a deadline has ended\n",
            false => {
                "no instance that runs has a deadline; give one with `legwork start PROCESS --by WHEN`\n"
            }
        };
        return none.to_owned();
    }
    let mut table = Table::new(&["INSTANCE", "PROCESS", "DEADLINE", "STANDING", "NEXT"]);
    for Row { summary, standing, next, open } in rows {
        let at = summary.deadline.as_ref().map_or_else(String::new, |one| when::minute(one.at));
        let (style, word) = match standing {
            Standing::Promised => (GOOD, "promised"),
            Standing::NotPromised => (WARN, "not promised"),
            Standing::Revoked => (WARN, "revoked"),
            Standing::InDanger if is_revoked(summary) => (WARN, "revoked, in danger"),
            Standing::InDanger => (WARN, "in danger"),
            Standing::Late => (BAD, "late"),
            Standing::InTime => (GOOD, "in time"),
            Standing::Aborted => (DIM, "aborted"),
        };
        table.row([
            Cell::styled(STRONG, short(&summary.instance.to_string())),
            Cell::from(format!("{} v{}", summary.process, summary.version)),
            Cell::from(at),
            Cell::styled(style, word),
            Cell::from(next_of(summary, next.as_ref(), open)),
        ]);
    }
    table.render("")
}

fn is_revoked(summary: &InstanceSummary) -> bool {
    summary.deadline.as_ref().is_some_and(|deadline| deadline.revoked.is_some())
}

/// The next step, and obstacles.
fn next_of(summary: &InstanceSummary, next: Option<&DeadlineStep>, open: &[OpenStep]) -> String {
    let ahead = next.map_or_else(|| open_words(open), next_words);
    let incident = (next.is_some() && summary.incidents > 0).then_some("incident");
    let suspended = (summary.state == InstanceState::Suspended).then_some("suspended");
    let words = [Some(ahead.as_str()).filter(|ahead| !ahead.is_empty()), incident, suspended];
    words.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// `check by ann, due 2026-03-01 14:00Z`. The date is advice: it changes with each planning.
fn next_words(step: &DeadlineStep) -> String {
    let by = by::who(step);
    let name = tree::in_round(&step.step, &step.iteration);
    format!("{name} by {by}, due {}", when::minute(step.due))
}

/// `check, ann has it; book, open`.
fn open_words(open: &[OpenStep]) -> String {
    let words = open.iter().map(|OpenStep { step, iteration, state, holder }| {
        let name = tree::in_round(step, iteration);
        match holder {
            Some(holder) => format!("{name}, {holder} has it"),
            None if *state == NodeState::Failed => format!("{name}, incident"),
            None => format!("{name}, open"),
        }
    });
    words.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use legwork_api::instances::Performer;

    use super::*;
    use crate::by::tests::{at, deadline, revoked};
    use crate::deadline::tests::{bare, instance, with_deadline};

    #[test]
    fn a_list_tells_how_it_stands_and_what_is_next() {
        let row = |summary: InstanceSummary, now: &str, nodes: &[&str]| {
            let whole = Instance { summary: summary.clone(), ..instance(nodes) };
            let has_ended = summary.ended_at.is_some();
            // As in lists.
            let bare = summary.deadline.clone().map(|deadline| Deadline {
                revoked: None,
                steps: Vec::new(),
                ..deadline
            });
            let summary = InstanceSummary { deadline: bare, ..summary };
            listed(summary, (!has_ended).then_some(&whole), at(now)).unwrap()
        };
        let open = || with_deadline(InstanceState::Running);
        let (early, after) = ("2026-03-01T09:00:00Z", "2026-03-03T09:00:00Z");
        let nodes = ["0||manual|check|completed|by ann", "0||automatic|book|activated"];
        let mut lost = open();
        lost.deadline = Some(revoked());
        let mut never = open();
        never.deadline = Some(Deadline { promised: false, steps: Vec::new(), ..deadline() });
        let mut in_danger = never.clone();
        in_danger.deadline.as_mut().unwrap().in_danger_from = Some(at(early));
        let both = [
            "0||parallel|both|running",
            "1||manual|check|claimed|held ann",
            "1||automatic|book|activated",
            "0||manual|file|not_activated",
        ];
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
            row(lost.clone(), early, &nodes),
            row(in_danger, early, &nodes),
            row(lost, after, &nodes),
            row(never.clone(), early, &both),
            row(never, early, &["0||automatic|book|failed"]),
            row(open(), after, &nodes),
            row(done(early), after, &[]),
            row(done(after), after, &[]),
        ];
        insta::assert_snapshot!(bare(&render(&rows, false)), @r"
        INSTANCE  PROCESS  DEADLINE           STANDING      NEXT
        8XJ2M6    loan v2  2026-03-02 16:00Z  promised      check by ann, due 2026-03-01 14:00Z
        8XJ2M6    loan v2  2026-03-02 16:00Z  revoked       book by nobody, due 2026-03-01 15:00Z
        8XJ2M6    loan v2  2026-03-02 16:00Z  in danger     book, open
        8XJ2M6    loan v2  2026-03-02 16:00Z  late          book by nobody, due 2026-03-01 15:00Z
        8XJ2M6    loan v2  2026-03-02 16:00Z  not promised  check, ann has it; book, open
        8XJ2M6    loan v2  2026-03-02 16:00Z  not promised  book, incident
        8XJ2M6    loan v2  2026-03-02 16:00Z  late          book by executor crm, due 2026-03-01 15:00Z
        8XJ2M6    loan v2  2026-03-02 16:00Z  in time
        8XJ2M6    loan v2  2026-03-02 16:00Z  late
        ");
        let json = serde_json::to_value(&rows[1]).unwrap();
        assert_eq!(
            (&json["standing"], &json["deadline"]["revoked"]["step"]),
            (&"revoked".into(), &"book".into())
        );
        assert!(render(&[], false).contains("--by WHEN"));
        assert!(!render(&[], true).contains("--by WHEN"));
        let held = InstanceSummary { incidents: 1, ..with_deadline(InstanceState::Suspended) };
        let next = row(held, early, &nodes);
        let words = next_of(&next.summary, next.next.as_ref(), &next.open);
        assert!(words.ends_with("15:00Z; incident; suspended"), "{words}");
    }

    #[test]
    fn next_is_what_is_planned_for_the_round_of_a_loop_and_not_for_one_before() {
        let planned = deadline();
        let round = |round: u32, by: &str, due: &str| DeadlineStep {
            iteration: vec![round],
            by: Some(Performer::Agent(by.into())),
            due: at(due),
            ..planned.steps[0].clone()
        };
        let (first, second) =
            (round(0, "ann", "2026-03-01T14:00:00Z"), round(1, "bob", "2026-03-01T16:00:00Z"));
        let file = DeadlineStep {
            step: "file".into(),
            due: at("2026-03-01T18:00:00Z"),
            ..planned.steps[1].clone()
        };
        let row = |steps: &[&DeadlineStep], nodes: &[&str]| {
            let mut shown = instance(nodes);
            let steps = steps.iter().map(|step| (*step).clone()).collect();
            shown.summary.deadline = Some(Deadline { steps, ..planned.clone() });
            let (next, open) = ahead(&shown);
            Row { summary: shown.summary, standing: Standing::Promised, next, open }
        };
        let in_round = |state: &str, round: u32| format!("1||manual|check|{state}|round {round}");
        let file_waits = "0||manual|file|not_activated";
        let left = DeadlineStep { given_back: true, ..second.clone() };
        let all = [&first, &second, &file];
        let rows = [
            row(&all, &[&in_round("activated", 1), file_waits]),
            row(&all, &[&in_round("completed", 1), file_waits]),
            row(&all, &[&in_round("activated", 2), file_waits]),
            row(&all, &[&in_round("completed", 2), file_waits]),
            row(&[&first, &left, &file], &[&in_round("completed", 1), file_waits]),
            row(&[], &[&in_round("activated", 2), file_waits]),
        ];
        insta::assert_snapshot!(bare(&render(&rows, false)), @r"
        INSTANCE  PROCESS  DEADLINE           STANDING  NEXT
        8XJ2M6    loan v2  2026-03-02 16:00Z  promised  check:0 by ann, due 2026-03-01 14:00Z
        8XJ2M6    loan v2  2026-03-02 16:00Z  promised  check:1 by bob, due 2026-03-01 16:00Z
        8XJ2M6    loan v2  2026-03-02 16:00Z  promised  check:1 by bob, due 2026-03-01 16:00Z
        8XJ2M6    loan v2  2026-03-02 16:00Z  promised  file by executor crm, due 2026-03-01 18:00Z
        8XJ2M6    loan v2  2026-03-02 16:00Z  promised  file by executor crm, due 2026-03-01 18:00Z
        8XJ2M6    loan v2  2026-03-02 16:00Z  promised  check:1, open
        ");
        let json = serde_json::to_value(&rows[2]).unwrap();
        assert_eq!(json["next"]["iteration"], serde_json::json!([1]), "{json}");
        let json = serde_json::to_value(&rows[5]).unwrap();
        assert_eq!(json["open"][0]["iteration"], serde_json::json!([1]), "{json}");
    }

    #[test]
    fn the_first_due_are_listed_however_old_they_are() {
        let due = |process: &str, when: &str| {
            let mut summary = with_deadline(InstanceState::Running);
            summary.process = process.into();
            summary.deadline = Some(Deadline { at: at(when), ..deadline() });
            summary
        };
        // As listed by the server: last started first.
        let all = vec![
            due("newest", "2026-03-09T00:00:00Z"),
            due("newer", "2026-03-05T00:00:00Z"),
            due("oldest", "2026-03-01T00:00:00Z"),
        ];
        let names = |all: Vec<InstanceSummary>| {
            all.iter().map(|one| one.process.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(first_due(all.clone(), 2, false)), "oldest newer");
        assert_eq!(names(first_due(all.clone(), 2, true)), "newer newest");
        assert_eq!(names(first_due(all, 9, false)), "oldest newer newest");
    }
}
