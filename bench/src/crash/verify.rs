//! Compares the final state of the server with its acknowledgements.
//!
//! Invariant: only through lists and histories of the public API; every acknowledged action must be
//! there exactly once, with its text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use legwork_api::Client;
use legwork_api::client::InstanceQuery;
use legwork_api::instances::{History, HistoryEntry, InstanceList, Performer};
use legwork_model::id::{ActivityId, InstanceId, Iteration};
use tokio::task::JoinSet;

use super::ledger::{Deed, Fault, Ledger};

/// The steps of the process, and the element each writes.
const STEPS: [(&str, &str); 3] = [("pack", "packed"), ("approve", "approved"), ("send", "sent")];
const PROCESS: &str = "crash";
const PAGE: usize = 1_000;
const PAGES_MAX: usize = 10_000;
const READERS: usize = 16;
const ENTRIES_MAX: usize = 1_000;
/// How long a restarted server may take until the others see it.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Every difference from the acknowledgements.
pub(super) async fn verify(client: &Client, ledger: &Ledger) -> Result<Vec<Fault>> {
    let mut faults = ledger.faults.clone();
    let listed = listed(client).await?;
    faults.extend(compare(ledger, &listed));
    let instances: Arc<Vec<InstanceId>> = Arc::new(ledger.cases.values().copied().collect());
    let mut readers = JoinSet::new();
    for reader in 0..READERS {
        let (client, instances) = (client.clone(), instances.clone());
        readers.spawn(async move {
            let mut histories = Vec::new();
            for instance in instances.iter().skip(reader).step_by(READERS) {
                let history = match client.history(*instance, None, Some(ENTRIES_MAX)).await {
                    Ok(history) => history,
                    // Lost altogether; judging an empty history reports that.
                    Err(error) if error.problem().is_some_and(|problem| problem.status == 404) => {
                        History { entries: Vec::new(), next: None, unreachable: Vec::new() }
                    }
                    Err(error) => return Err(error.into()),
                };
                ensure!(history.next.is_none(), "the history of {instance} has no end");
                histories.push((*instance, history.entries));
            }
            anyhow::Ok(histories)
        });
    }
    while let Some(reader) = readers.join_next().await {
        for (instance, entries) in reader.context("a reader broke down")?? {
            faults.extend(judge(ledger, instance, &entries));
        }
    }
    Ok(faults)
}

/// The number of listings of each instance, as open or as ended.
async fn listed(client: &Client) -> Result<BTreeMap<InstanceId, u32>> {
    let mut listed = BTreeMap::new();
    for ended in [false, true] {
        let process = Some(PROCESS.to_owned());
        let mut query = InstanceQuery { process, ended, limit: Some(PAGE), ..Default::default() };
        let mut pages = 0;
        loop {
            let page = whole(client, &query).await?;
            for found in page.instances {
                *listed.entry(found.instance).or_default() += 1;
            }
            pages += 1;
            ensure!(pages < PAGES_MAX, "the list of instances has no end");
            query.cursor = page.next;
            if query.cursor.is_none() {
                break;
            }
        }
    }
    Ok(listed)
}

/// A complete page of all servers: one that has just come back may not be able to answer yet.
async fn whole(client: &Client, query: &InstanceQuery) -> Result<InstanceList> {
    let since = Instant::now();
    loop {
        let page = client.instances(query).await?;
        if page.unreachable.is_empty() {
            return Ok(page);
        }
        ensure!(since.elapsed() < PATIENCE, "{:?} cannot be reached", page.unreachable);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Compares acknowledged starts and listed instances.
fn compare(ledger: &Ledger, listed: &BTreeMap<InstanceId, u32>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut started: BTreeMap<InstanceId, &str> = BTreeMap::new();
    for (key, instance) in &ledger.cases {
        if let Some(other) = started.insert(*instance, key) {
            let text = format!("starts {other} and {key} share {instance}");
            faults.push(Fault::Lost(text));
        }
        match listed.get(instance) {
            Some(1) => {}
            Some(times) => {
                faults.push(Fault::Duplicated(format!("{instance} is listed {times} times")));
            }
            None => faults.push(Fault::Lost(format!("{instance} of start {key} is not listed"))),
        }
    }
    let unasked = listed.keys().filter(|instance| !started.contains_key(instance));
    faults.extend(unasked.map(|instance| {
        Fault::Duplicated(format!("{instance} is there and was started by nobody"))
    }));
    faults
}

/// One case: started once, each step done once, by its acknowledged performer.
fn judge(ledger: &Ledger, instance: InstanceId, entries: &[HistoryEntry]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let created = entries.iter().filter(|entry| entry.kind == "created").count();
    faults.extend(exactly_once(created, || format!("the start of {instance}")));
    for (step, element) in STEPS {
        let activity = ActivityId { instance, step: step.into(), iteration: Iteration::default() };
        let of = |kind: &str| -> Vec<&HistoryEntry> {
            let fits =
                |entry: &&HistoryEntry| entry.kind == kind && entry.step.as_deref() == Some(step);
            entries.iter().filter(fits).collect()
        };
        let completed = of("completed");
        faults.extend(exactly_once(completed.len(), || format!("{activity}, completed")));
        let Some(deed) = ledger.deeds.get(&activity) else {
            faults.push(Fault::Duplicated(format!("{activity} was done by nobody")));
            continue;
        };
        let texts: Vec<&str> =
            completed.iter().filter_map(|entry| entry.writes.get(element)?.as_str()).collect();
        faults.extend(judge_texts(&activity, deed, &texts));
        faults.extend(judge_claims(&activity, deed, &of("claimed")));
    }
    faults
}

/// The history has the acknowledged text, and none without an attempt.
fn judge_texts(activity: &ActivityId, deed: &Deed, texts: &[&str]) -> Vec<Fault> {
    let mut faults = Vec::new();
    if let Some(done) = &deed.done
        && !texts.contains(&done.as_str())
    {
        let text = format!("{activity} was acknowledged with {done}, the history has {texts:?}");
        faults.push(Fault::Lost(text));
    }
    for text in texts {
        if !deed.tried.iter().any(|tried| tried == text) {
            let text = format!("{activity}: nobody tried to write {text}");
            faults.push(Fault::Duplicated(text));
        }
    }
    faults
}

fn judge_claims(activity: &ActivityId, deed: &Deed, claims: &[&HistoryEntry]) -> Vec<Fault> {
    let Some(agent) = &deed.claimed_by else {
        let unasked = claims.iter().map(|claim| {
            Fault::Duplicated(format!("{activity}: nobody heard of the claim by {:?}", claim.by))
        });
        return unasked.collect();
    };
    let mut faults = exactly_once(claims.len(), || format!("{activity}, claimed by {agent}"));
    let theirs = Performer::Agent(agent.as_str().into());
    if claims.iter().any(|claim| claim.by != theirs) {
        faults.push(Fault::Lost(format!("{activity}: the claim of {agent} went to another")));
    }
    faults
}

fn exactly_once(times: usize, what: impl Fn() -> String) -> Vec<Fault> {
    match times {
        0 => vec![Fault::Lost(format!("{} is not in the history", what()))],
        1 => Vec::new(),
        _ => vec![Fault::Duplicated(format!("{} is in the history {times} times", what()))],
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::time::Timestamp;

    use super::*;

    const CASE: InstanceId = InstanceId(7);

    /// Entries such as `approve completed ann x`: step, kind, performer, text.
    fn history(lines: &[&str]) -> Vec<HistoryEntry> {
        let entry = |line: &&str| {
            let words: Vec<&str> = line.split(' ').collect();
            let element = STEPS.iter().find(|(step, _)| *step == words[0]).map(|(_, name)| *name);
            HistoryEntry {
                record: 0,
                at: Timestamp(0),
                kind: words[1].to_owned(),
                step: Some(words[0].into()),
                iteration: Vec::new(),
                by: Performer::Agent(words[2].into()),
                started_at: None,
                writes: words
                    .get(3)
                    .map(|text| (element.unwrap_or("order").to_owned(), (*text).into()))
                    .into_iter()
                    .collect(),
                detail: None,
                channel: None,
                server: None,
                from: None,
                to: None,
                number: None,
            }
        };
        lines.iter().map(entry).collect()
    }

    fn activity(step: &str) -> ActivityId {
        ActivityId { instance: CASE, step: step.into(), iteration: Iteration::default() }
    }

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.started("key", CASE, false, 1);
        for (step, text) in [("pack", "p"), ("approve", "a"), ("send", "s")] {
            ledger.tried(&activity(step), text);
            ledger.done(&activity(step), text);
        }
        ledger.claimed(&activity("approve"), "ann");
        ledger
    }

    const GOOD: [&str; 5] = [
        "start created ann",
        "pack completed w p",
        "approve claimed ann",
        "approve completed ann a",
        "send completed w s",
    ];

    fn found(lines: &[&str]) -> Vec<String> {
        judge(&ledger(), CASE, &history(lines)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn history_as_acknowledged_has_no_fault() {
        assert!(found(&GOOD).is_empty(), "{:?}", found(&GOOD));
    }

    #[test]
    fn every_missing_line_is_a_loss() {
        for missing in 0..GOOD.len() {
            let mut lines = GOOD.to_vec();
            let line = lines.remove(missing);
            let faults = found(&lines);
            assert!(faults.iter().any(|fault| fault.starts_with("lost")), "{line}: {faults:?}");
        }
    }

    #[test]
    fn every_line_there_twice_is_a_duplicate() {
        for line in GOOD {
            let mut lines = GOOD.to_vec();
            lines.push(line);
            let faults = found(&lines);
            let duplicated = faults.iter().any(|fault| fault.starts_with("duplicated"));
            assert!(duplicated, "{line}: {faults:?}");
        }
    }

    #[test]
    fn another_text_or_another_person_than_acknowledged_is_a_loss() {
        for (line, other) in [(1, "pack completed w q"), (2, "approve claimed bob")] {
            let mut lines = GOOD.to_vec();
            lines[line] = other;
            assert!(!found(&lines).is_empty(), "{other}");
        }
    }

    #[test]
    fn lists_must_hold_each_start_once_and_nothing_else() {
        let listed = |pairs: &[(u128, u32)]| {
            let listed = pairs.iter().map(|(id, times)| (InstanceId(*id), *times)).collect();
            compare(&ledger(), &listed).iter().map(Fault::is_loss).collect::<Vec<_>>()
        };
        assert!(listed(&[(7, 1)]).is_empty());
        assert_eq!(listed(&[]), [true]);
        assert_eq!(listed(&[(7, 2)]), [false]);
        assert_eq!(listed(&[(7, 1), (8, 1)]), [false]);
    }
}
