//! `legwork deadline show`: the steps on the way to a deadline, as planned and as they went.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use legwork_api::deadlines::{Deadline, DeadlineStep};
use legwork_api::instances::{
    HistoryEntry, Instance, InstanceState, InstanceSummary, NodeState, Performer,
};
use legwork_model::time::Timestamp;
use serde::Serialize;

use super::{Standing, standing};
use crate::context::Context;
use crate::style::{ACTIVE, BAD, DIM, GOOD, STRONG, WARN, paint};
use crate::table::{Cell, Table};
use crate::{history, progress, tree};

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
    /// It was not done when others needed it, or is not. What an aborted case left undone nobody needs.
    late: bool,
    /// The case has ended.
    #[serde(skip)]
    over: bool,
}

pub(super) async fn show(context: &Context, text: &str) -> Result<()> {
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
    let ended_at = instance.summary.ended_at;
    let until = ended_at.unwrap_or(now);
    let is_aborted = instance.summary.state == InstanceState::Aborted;
    let step = |planned: &DeadlineStep| {
        let node = instance.nodes.iter().find(|node| node.name == planned.step);
        let done = done.get(&planned.step);
        let is_skipped = node.is_some_and(|node| node.state == NodeState::Skipped);
        let until = done.map_or(until, |entry| entry.at);
        let is_dropped = done.is_none() && (is_skipped || is_aborted);
        ShownStep {
            planned: planned.clone(),
            state: node.map(|node| node.state),
            holder: node.and_then(|node| node.holder.clone()),
            done_at: done.map(|entry| entry.at.to_string()),
            done_by: done.map(|entry| entry.by.clone()),
            late: !is_dropped && until > planned.due,
            over: ended_at.is_some(),
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
            let word = if step.over { "not done" } else { "not yet" };
            Cell::styled(style(DIM), format!("{word}{late}"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by::tests::{at, deadline};
    use crate::deadline::tests::{bare, instance};

    fn done(step: &str, when: &str) -> HistoryEntry {
        HistoryEntry {
            record: 1,
            at: at(when),
            kind: "completed".to_owned(),
            step: Some(step.into()),
            iteration: Vec::new(),
            by: Performer::Agent("bea".into()),
            started_at: None,
            writes: legwork_api::Data::new(),
            detail: None,
        }
    }

    fn shown(instance: Instance, entries: Vec<HistoryEntry>, now: &str) -> String {
        let now = at(now);
        let steps = shown_steps(&instance, &deadline(), entries, now);
        let standing = standing(&instance.summary, &deadline(), now);
        bare(&render_shown(&Shown { summary: instance.summary, standing, steps }))
    }

    #[test]
    fn what_was_planned_is_shown_beside_what_was_done() {
        let nodes = ["0||manual|check|completed|by ann", "0||automatic|book|activated"];
        let entries = vec![done("check", "2026-03-01T14:30:00Z")];
        insta::assert_snapshot!(shown(instance(&nodes), entries, "2026-03-01T14:40:00Z"), @r"
        loan v2 · inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC
        ✔ promised for 2026-03-02 16:00:00Z
          STEP   WHO         FROM                  UNTIL                 DUE                   SO FAR
          check  ann         2026-03-01 08:00:00Z  2026-03-01 11:00:00Z  2026-03-01 14:00:00Z  done 2026-03-01 14:30:00Z by bea, late
          book   worker crm  2026-03-01 11:00:00Z  2026-03-01 11:00:30Z  2026-03-01 15:00:00Z  open
        ");
    }

    #[test]
    fn what_an_aborted_case_left_undone_is_not_late() {
        let nodes = ["0||manual|check|completed|by ann", "0||automatic|book|not_activated"];
        let mut aborted = instance(&nodes);
        aborted.summary.state = InstanceState::Aborted;
        aborted.summary.ended_at = Some(at("2026-03-01T14:35:00Z"));
        let entries = vec![done("check", "2026-03-01T14:30:00Z")];
        insta::assert_snapshot!(shown(aborted, entries, "2026-04-01T00:00:00Z"), @r"
        loan v2 · inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC
        – aborted; it was to be done by 2026-03-02 16:00:00Z
          STEP   WHO         FROM                  UNTIL                 DUE                   SO FAR
          check  ann         2026-03-01 08:00:00Z  2026-03-01 11:00:00Z  2026-03-01 14:00:00Z  done 2026-03-01 14:30:00Z by bea, late
          book   worker crm  2026-03-01 11:00:00Z  2026-03-01 11:00:30Z  2026-03-01 15:00:00Z  not done
        ");
    }
}
