//! The merged histories of all servers.
//!
//! Invariant: the merged history has every entry once, each after its predecessors at its server and after
//! what that server had received; it is independent of the length of pages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use legwork_model::id::InstanceId;
use legwork_site::{Answer, Frontier, HistoryEntry, Line, Part, Request, merge};

use super::Cluster;

/// The limit of one request.
const PAGE: usize = 1_000;
/// Short enough that most histories have several pages.
const SHORT_PAGE: usize = 3;

type Held = Vec<(Arc<str>, Vec<Line>)>;
type Own = (Arc<str>, Option<Arc<str>>, Vec<u32>, Arc<str>);

pub(super) fn check(cluster: &mut Cluster, instances: &BTreeSet<InstanceId>) -> Result<(), String> {
    for instance in instances {
        let held = held(cluster, *instance)?;
        let whole = read(&held, PAGE * PAGE)?;
        complete(&held, &whole).map_err(|reason| format!("{instance}: {reason}"))?;
        let mut others = held.clone();
        others.reverse();
        if read(&others, SHORT_PAGE)? != whole {
            return Err(format!("{instance}: page by page its history is another one"));
        }
    }
    Ok(())
}

fn held(cluster: &mut Cluster, instance: InstanceId) -> Result<Held, String> {
    let mut held = Vec::new();
    for place in 0..cluster.worlds.len() {
        let (name, mut lines, mut from) = (Arc::from(cluster.name(place)), Vec::new(), Some(0));
        while let Some(record) = from {
            let history = Request::History { instance, from: record, limit: PAGE };
            let Ok(answer) = cluster.worlds[place].ask_calmly(history)? else { break };
            let Answer::History { entries, next } = answer else {
                return Err("no history was answered".to_owned());
            };
            lines.extend(entries.into_iter().map(|entry| line(entry, &name)));
            from = next;
        }
        held.push((name, lines));
    }
    Ok(held)
}

fn line(entry: HistoryEntry, here: &Arc<str>) -> Line {
    let HistoryEntry { record, at, kind, step, iteration, server, from, to, number, .. } = entry;
    let server = server.unwrap_or_else(|| here.clone());
    Line { record, at, server, kind: kind.into(), step, iteration, from, to, number }
}

/// Page by page, as a server merges them.
fn read(held: &Held, limit: usize) -> Result<Vec<Line>, String> {
    let (mut frontier, mut all) = (Frontier::default(), Vec::new());
    loop {
        let part = |(server, lines): &(Arc<str>, Vec<Line>)| {
            let from = frontier.records(server);
            let is_past = |line: &&Line| {
                let is_own = line.record >= from && line.server == *server;
                is_own && frontier.is_past(server, line.at)
            };
            let past = lines.iter().find(is_past).map_or(u64::MAX, |line| line.record + 1);
            let end = from.saturating_add(limit as u64).max(past);
            let page = lines.iter().filter(|line| (from..end).contains(&line.record));
            let has_more = lines.iter().any(|line| line.record >= end);
            Part::new(server.clone(), page.cloned().collect(), has_more, Line::clone)
        };
        let parts = held.iter().map(part).collect();
        let merged = merge(parts, &mut frontier, limit, false);
        if merged.is_cut {
            return Err(format!("something that follows is nowhere: {frontier}"));
        }
        all.extend(merged.entries);
        if !merged.has_more {
            return Ok(all);
        }
        frontier = frontier.to_string().parse().map_err(|_| format!("{frontier} is not read"))?;
    }
}

fn complete(held: &Held, whole: &[Line]) -> Result<(), String> {
    let mut next: BTreeMap<&str, std::slice::Iter<'_, Line>> =
        held.iter().map(|(server, lines)| (&**server, lines.iter())).collect();
    let mut told: BTreeSet<Own> = BTreeSet::new();
    for line in whole {
        let own = next.get_mut(&*line.server).ok_or("an entry is of no server")?;
        for before in own.by_ref() {
            if before.server != line.server && !told.contains(&key(before)) {
                return Err(format!("{before:?} was not told before it came"));
            }
            if before == line {
                break;
            }
        }
        told.insert(key(line));
    }
    let own = |(server, lines): &(Arc<str>, Vec<Line>)| {
        lines.iter().filter(|line| line.server == *server).count()
    };
    let expected: usize = held.iter().map(own).sum();
    if whole.len() != expected {
        return Err(format!("it has {} entries instead of {expected}", whole.len()));
    }
    Ok(())
}

fn key(line: &Line) -> Own {
    (line.server.clone(), line.step.clone(), line.iteration.clone(), line.kind.clone())
}
