//! `legwork history`: what happened in an instance, oldest first.
//!
//! Invariant: nothing is left out; the pages of the server are read to the end.

use anyhow::Result;
use legwork_api::instances::{History, HistoryEntry};
use legwork_model::id::InstanceId;

use crate::context::{Context, PAGE};
use crate::progress;
use crate::style::{BAD, DIM, GOOD, WARN};
use crate::table::{Cell, Table};
use crate::tree;
use crate::when;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The instance: its id, the end of it, or `last`
    instance: String,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Result<()> {
    let id = context.instance(&args.instance).await?;
    let history = progress::waiting("reading the history", read(context, id)).await?;
    context.out.answer(&history, || render(&history.entries))
}

pub(crate) async fn read(context: &Context, id: InstanceId) -> Result<History> {
    let mut history = History { entries: Vec::new(), next: Some(0) };
    while let Some(from) = history.next {
        let page = context.client.history(id, from, Some(PAGE)).await?;
        history.entries.extend(page.entries);
        history.next = page.next;
    }
    Ok(history)
}

pub(crate) fn render(entries: &[HistoryEntry]) -> String {
    let mut table = Table::new(&["WHEN", "WHAT", "STEP", "BY", ""]);
    for entry in entries {
        let step = entry.step.as_deref().unwrap_or_default();
        let step = tree::in_round(step, &entry.iteration);
        table.row([
            Cell::styled(DIM, when::second(entry.at)),
            what(&entry.kind),
            Cell::from(step),
            Cell::from(by(entry)),
            Cell::from(details(entry)),
        ]);
    }
    table.render("")
}

fn what(kind: &str) -> Cell {
    let style = match kind {
        "completed" | "decided" => GOOD,
        "failed" | "incident_raised" | "aborted" => BAD,
        "suspended" | "resumed" | "incident_resolved" => WARN,
        _ => anstyle::Style::new(),
    };
    Cell::styled(style, kind.replace('_', " "))
}

/// Who did it, and by which way if that is told: `ann by mail`.
fn by(entry: &HistoryEntry) -> String {
    let by = tree::performer(&entry.by);
    entry.channel.iter().fold(by, |by, channel| format!("{by} by {channel}"))
}

fn details(entry: &HistoryEntry) -> String {
    let writes = entry.writes.iter().map(|(name, value)| format!("{name}={}", tree::value(value)));
    entry.detail.iter().cloned().chain(writes).collect::<Vec<_>>().join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use legwork_api::instances::Performer;
    use legwork_model::time::Timestamp;
    use serde_json::json;

    #[test]
    fn a_history_tells_who_did_what_with_which_result() {
        let entry = |kind: &str, step: Option<&str>, by| HistoryEntry {
            record: 0,
            at: Timestamp(1_772_357_405_123),
            kind: kind.to_owned(),
            step: step.map(Into::into),
            iteration: Vec::new(),
            by,
            started_at: None,
            writes: legwork_api::Data::new(),
            detail: None,
            channel: None,
        };
        let agent = |name: &str| Performer::Agent(name.into());
        let mut created = entry("created", None, agent("ann"));
        created.writes.insert("amount".to_owned(), json!("12.50"));
        let mut decided = entry("decided", Some("route"), Performer::System);
        decided.detail = Some("small".to_owned());
        let mut failed = entry("failed", Some("pay"), Performer::Worker("w1".into()));
        failed.iteration = vec![2, 0];
        failed.detail = Some("no\nanswer".to_owned());
        let mut approved = entry("completed", Some("approve"), agent("ben"));
        approved.channel = Some("mail".to_owned());
        let text = render(&[created, decided, failed, approved]);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text).to_string(), @r"
        WHEN                  WHAT       STEP     BY
        2026-03-01 09:30:05Z  created             ann          amount=12.50
        2026-03-01 09:30:05Z  decided    route                 small
        2026-03-01 09:30:05Z  failed     pay:2.0  worker w1    no answer
        2026-03-01 09:30:05Z  completed  approve  ben by mail
        ");
    }
}
