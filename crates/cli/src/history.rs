//! `legwork history`: the history of an instance, oldest first.
//!
//! Invariant: nothing is left out; the pages of the server are read to the end.

use std::sync::Arc;

use anyhow::Result;
use legwork_api::instances::{History, HistoryEntry};
use legwork_model::id::InstanceId;

use crate::context::{Context, PAGE};
use crate::progress;
use crate::style::{BAD, DIM, GOOD, WARN, paint, plain};
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
    context.out.answer(&history, || render(&history))
}

pub(crate) async fn read(context: &Context, id: InstanceId) -> Result<History> {
    let mut history = context.client.history(id, None, Some(PAGE)).await?;
    while let Some(from) = history.next.take() {
        let page = context.client.history(id, Some(&from), Some(PAGE)).await?;
        history.entries.extend(page.entries);
        (history.next, history.unreachable) = (page.next, page.unreachable);
    }
    Ok(history)
}

fn render(history: &History) -> String {
    // With one server only, its name is not shown.
    let with_server = history.entries.iter().any(|entry| entry.server.is_some());
    let server = with_server.then_some("SERVER");
    let names = ["WHEN", "WHAT", "STEP", "BY"].into_iter().chain(server).chain([""]);
    let mut table = Table::new(&names.collect::<Vec<_>>());
    for entry in &history.entries {
        let step = entry.step.as_deref().unwrap_or_default();
        let step = tree::in_round(step, &entry.iteration);
        let server = with_server.then(|| Cell::from(entry.server.as_deref().unwrap_or_default()));
        let cells = [
            Cell::styled(DIM, when::second(entry.at)),
            what(&entry.kind),
            Cell::from(step),
            Cell::from(by(entry)),
        ];
        table.row(cells.into_iter().chain(server).chain([Cell::from(details(entry))]));
    }
    missing(&history.unreachable) + &table.render("")
}

/// A line for each server that could not be asked.
fn missing(unreachable: &[Arc<str>]) -> String {
    let line = |server: &Arc<str>| {
        let server = plain(server);
        let words = format!("{server} cannot be reached: shown is only what others know of it");
        paint(WARN, words) + "\n"
    };
    unreachable.iter().map(line).collect()
}

fn what(kind: &str) -> Cell {
    let style = match kind {
        "completed" | "decided" => GOOD,
        "failed" | "incident_raised" | "aborted" | "deadline_passed" => BAD,
        "suspended" | "resumed" | "incident_resolved" => WARN,
        _ => anstyle::Style::new(),
    };
    Cell::styled(style, kind.replace('_', " "))
}

/// The performer, and the channel if known: `ann by mail`.
fn by(entry: &HistoryEntry) -> String {
    let by = tree::performer(&entry.by);
    entry.channel.iter().fold(by, |by, channel| format!("{by} by {channel}"))
}

fn details(entry: &HistoryEntry) -> String {
    let writes = entry.writes.iter().map(|(name, value)| format!("{name}={}", tree::value(value)));
    let detail = entry.detail.as_deref().map(when::in_text_to_second);
    detail.into_iter().chain(writes).collect::<Vec<_>>().join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use legwork_api::instances::Performer;
    use legwork_model::time::Timestamp;
    use serde_json::json;

    fn entry(kind: &str, step: Option<&str>, by: Performer) -> HistoryEntry {
        HistoryEntry {
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
            server: None,
            from: None,
            to: None,
            number: None,
        }
    }

    fn shown(entries: Vec<HistoryEntry>, unreachable: Vec<Arc<str>>) -> String {
        let history = History { entries, next: None, unreachable };
        anstream::adapter::strip_str(&render(&history)).to_string()
    }

    #[test]
    fn a_history_tells_who_did_what_with_which_result() {
        let agent = |name: &str| Performer::Agent(name.into());
        let mut created = entry("created", None, agent("ann"));
        created.writes.insert("amount".to_owned(), json!("12.50"));
        let mut decided = entry("decided", Some("route"), Performer::System);
        decided.detail = Some("small".to_owned());
        let mut failed = entry("failed", Some("pay"), Performer::Worker("w1".into()));
        failed.iteration = vec![2, 0];
        let detail = "no\nanswer; next attempt at 2026-03-01T09:31:05.123Z";
        failed.detail = Some(detail.to_owned());
        let mut approved = entry("completed", Some("approve"), agent("ben"));
        approved.channel = Some("mail".to_owned());
        let entries = vec![created, decided, failed, approved];
        insta::assert_snapshot!(shown(entries, Vec::new()), @r"
        WHEN                  WHAT       STEP     BY
        2026-03-01 09:30:05Z  created             ann          amount=12.50
        2026-03-01 09:30:05Z  decided    route                 small
        2026-03-01 09:30:05Z  failed     pay:2.0  worker w1    no answer; next attempt at 2026-03-01 09:31:05Z
        2026-03-01 09:30:05Z  completed  approve  ben by mail
        ");
    }

    #[test]
    fn every_entry_of_several_servers_names_its_own() {
        let at = |server: &str, kind: &str, step: Option<&str>| HistoryEntry {
            server: Some(server.into()),
            ..entry(kind, step, Performer::Agent("ann".into()))
        };
        let mut approved = at("north-1", "completed", Some("approve"));
        approved.writes.insert("note".to_owned(), json!("fine"));
        let mut sent = at("north-1", "sent", None);
        sent.detail = Some("control of pay to lab-1 (transfer 1)".to_owned());
        let entries = vec![approved, sent, at("lab-1", "completed", Some("pay"))];
        insta::assert_snapshot!(shown(entries, vec!["ward-1".into()]), @r"
        ward-1 cannot be reached: shown is only what others know of it
        WHEN                  WHAT       STEP     BY   SERVER
        2026-03-01 09:30:05Z  completed  approve  ann  north-1  note=fine
        2026-03-01 09:30:05Z  sent                ann  north-1  control of pay to lab-1 (transfer 1)
        2026-03-01 09:30:05Z  completed  pay      ann  lab-1
        ");
    }
}
