//! `legwork deadline show`: the steps of a case with a deadline, planned and actual.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use legwork_api::deadlines::{Deadline, DeadlineStep, Passed, Revoked};
use legwork_api::instances::{
    HistoryEntry, Instance, InstanceState, InstanceSummary, NodeState, Performer,
};
use legwork_model::time::Timestamp;
use serde::Serialize;

use super::{Standing, standing};
use crate::context::Context;
use crate::style::{ACTIVE, BAD, DIM, GOOD, STRONG, WARN, paint, plain};
use crate::table::{Cell, Table};
use crate::{by, history, progress, tree, when};

/// A case with its deadline, planned and actual.
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
    /// Its holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    done_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    done_by: Option<Performer>,
    /// It was not done by its due date, or is not. Steps that an aborted case left open are not late.
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
    let mut done: BTreeMap<(Arc<str>, Vec<u32>), HistoryEntry> = BTreeMap::new();
    for entry in entries.into_iter().filter(|entry| matches!(&*entry.kind, "completed" | "decided"))
    {
        if let Some(step) = entry.step.clone() {
            done.entry((step, entry.iteration.clone())).or_insert(entry);
        }
    }
    let ended_at = instance.summary.ended_at;
    let until = ended_at.unwrap_or(now);
    let is_aborted = instance.summary.state == InstanceState::Aborted;
    let step = |planned: &DeadlineStep| {
        let node = instance.nodes.iter().find(|node| node.name == planned.step);
        let now = node.map(|node| &node.activity.iteration.0);
        let state = match now.map(|now| planned.iteration.cmp(now)) {
            Some(Ordering::Equal) => node.map(|node| node.state),
            Some(Ordering::Less) => Some(NodeState::Skipped),
            Some(Ordering::Greater) => Some(NodeState::NotActivated),
            None => None,
        };
        let done = done.get(&(planned.step.clone(), planned.iteration.clone()));
        let is_skipped = state == Some(NodeState::Skipped) || planned.given_back;
        let until = done.map_or(until, |entry| entry.at);
        let is_dropped = done.is_none() && (is_skipped || is_aborted);
        ShownStep {
            planned: planned.clone(),
            state,
            holder: node
                .filter(|_| now == Some(&planned.iteration))
                .and_then(|it| it.holder.clone()),
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
    let at = summary.deadline.as_ref().map_or_else(String::new, |one| when::minute(one.at));
    let (style, word) = match standing {
        Standing::Promised => (GOOD, "✔ promised for"),
        Standing::NotPromised => (WARN, "! not promised for"),
        Standing::Revoked => (WARN, "! revoked; it was promised for"),
        Standing::InDanger => (WARN, "! in danger: what is left takes longer than the time until"),
        Standing::Late => (BAD, "✘ late: it was to be done by"),
        Standing::InTime => (GOOD, "✔ done in time for"),
        Standing::Aborted => (DIM, "– aborted; it was to be done by"),
    };
    let of = format!("{} v{} · {}", summary.process, summary.version, summary.instance);
    let mut out = format!("{of}\n{} {}\n", paint(style, word), paint(STRONG, at));
    if let Some(why) = summary.deadline.as_ref().and_then(|one| one.revoked.as_ref()) {
        let Revoked { at, step, reason } = why;
        let since = when::minute(*at);
        out.push_str(&format!("  not promised since {since}: {step}: {}\n", plain(reason)));
    }
    if let Some(passed) = summary.deadline.as_ref().and_then(passed) {
        out.push_str(&format!("  {passed}\n"));
    }
    let mut table = Table::new(&["STEP", "WHO", "PLANNED", "DUE", "SO FAR"]);
    for step in steps {
        let planned = &step.planned;
        table.row([
            Cell::from(tree::in_round(&planned.step, &planned.iteration)),
            Cell::from(by::who(planned)),
            Cell::from(by::span(planned)),
            Cell::from(when::minute(planned.due)),
            so_far(step),
        ]);
    }
    // A case that was never promised has no plan.
    if !table.is_empty() {
        out.push_str(&table.render("  "));
    }
    out
}

/// Mentions an earlier, extended deadline.
fn passed(deadline: &Deadline) -> Option<String> {
    let Passed { at, extended } = deadline.passed.filter(|passed| passed.extended > 0)?;
    let times = if extended == 1 { "once".to_owned() } else { format!("{extended} times") };
    Some(format!("extended {times}; a deadline passed on {}", when::minute(at)))
}

fn so_far(step: &ShownStep) -> Cell {
    let late = if step.late { ", late" } else { "" };
    let style = |style| if step.late { BAD } else { style };
    if let Some(at) = step.done_at.as_ref().and_then(|at| at.parse().ok()) {
        let by = match step.done_by.as_ref().map(tree::performer) {
            Some(by) if !by.is_empty() => format!(" by {by}"),
            Some(_) | None => String::new(),
        };
        return Cell::styled(style(GOOD), format!("done {}{by}{late}", when::minute(at)));
    }
    if step.planned.given_back {
        return Cell::styled(DIM, "not needed");
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
    use crate::by::tests::{at, deadline, revoked};
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
            channel: None,
            server: None,
            from: None,
            to: None,
            number: None,
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
        ✔ promised for 2026-03-02 16:00Z
          STEP   WHO           PLANNED                  DUE                SO FAR
          check  ann           2026-03-01 08:00–11:00Z  2026-03-01 14:00Z  done 2026-03-01 14:30Z by bea, late
          book   executor crm  2026-03-01 11:00Z        2026-03-01 15:00Z  open
        ");
    }

    #[test]
    fn what_is_not_promised_any_more_says_since_when_and_why() {
        let nodes = ["0||manual|check|activated", "0||automatic|book|not_activated"];
        let mut instance = instance(&nodes);
        instance.summary.deadline = Some(revoked());
        let now = at("2026-03-01T13:00:00Z");
        let standing = standing(&instance.summary, &revoked(), now);
        let steps = shown_steps(&instance, &revoked(), Vec::new(), now);
        let shown = Shown { summary: instance.summary, standing, steps };
        insta::assert_snapshot!(bare(&render_shown(&shown)), @r"
        loan v2 · inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC
        ! revoked; it was promised for 2026-03-02 16:00Z
          not promised since 2026-03-01 12:00Z: book: could not be done in time as planned
          STEP   WHO     PLANNED                  DUE                SO FAR
          check  ann     2026-03-01 08:00–11:00Z  2026-03-01 14:00Z  open
          book   nobody                           2026-03-01 15:00Z  not yet
        ");
    }

    #[test]
    fn a_deadline_that_was_extended_says_so() {
        let passed = |extended| {
            let passed = Some(Passed { at: at("2026-03-01T12:00:00Z"), extended });
            super::passed(&Deadline { passed, ..deadline() })
        };
        assert_eq!(passed(0), None);
        let once = "extended once; a deadline passed on 2026-03-01 12:00Z";
        assert_eq!(passed(1).as_deref(), Some(once));
        assert!(passed(3).is_some_and(|text| text.starts_with("extended 3 times")));
    }

    #[test]
    fn every_round_of_a_loop_has_its_own_times_and_those_not_gone_are_not_needed() {
        let planned = deadline();
        let round = |round: u32, due: &str| {
            let step = planned.steps[0].clone();
            DeadlineStep { iteration: vec![round], due: at(due), ..step }
        };
        let not_gone = round(2, "2026-03-01T18:00:00Z");
        let steps = vec![
            round(0, "2026-03-01T14:00:00Z"),
            round(1, "2026-03-01T16:00:00Z"),
            DeadlineStep { given_back: true, ..not_gone },
        ];
        let deadline = Deadline { steps, ..planned };
        let instance = instance(&["1||manual|check|activated|round 2"]);
        let first = HistoryEntry { iteration: vec![0], ..done("check", "2026-03-01T13:00:00Z") };
        let now = at("2026-03-01T17:00:00Z");
        let steps = shown_steps(&instance, &deadline, vec![first], now);
        let standing = Standing::Promised;
        let shown = Shown { summary: instance.summary, standing, steps };
        insta::assert_snapshot!(bare(&render_shown(&shown)), @r"
        loan v2 · inst_01KFZQ9Y5GB4D7T3N8XJ2M6RVC
        ✔ promised for 2026-03-02 16:00Z
          STEP     WHO  PLANNED                  DUE                SO FAR
          check:0  ann  2026-03-01 08:00–11:00Z  2026-03-01 14:00Z  done 2026-03-01 13:00Z by bea
          check:1  ann  2026-03-01 08:00–11:00Z  2026-03-01 16:00Z  open, late
          check:2  ann  2026-03-01 08:00–11:00Z  2026-03-01 18:00Z  not needed
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
        – aborted; it was to be done by 2026-03-02 16:00Z
          STEP   WHO           PLANNED                  DUE                SO FAR
          check  ann           2026-03-01 08:00–11:00Z  2026-03-01 14:00Z  done 2026-03-01 14:30Z by bea, late
          book   executor crm  2026-03-01 11:00Z        2026-03-01 15:00Z  not done
        ");
    }
}
