//! The history of an instance, put together from the servers that took part in it.
//!
//! Invariant: every server that is named in what is read is asked as well. Who cannot be asked is
//! named, and stays so up to the last page.

use std::collections::BTreeSet;
use std::sync::Arc;

use legwork_api::endpoints;
use legwork_api::instances::{History, HistoryEntry};
use legwork_model::id::InstanceId;
use legwork_site::{Answer, Frontier, Line, Part, Request, merge};

use super::exchange::Exchange;
use super::gather::{Silent, ask_all};
use super::query::LIMIT_MAX;
use super::reply::{Refused, Result, strange};
use crate::convert;
use crate::peer::Links;

/// More servers than take part in one instance in practice.
const SERVERS_MAX: usize = 64;

/// What this server holds, from a record on.
pub(super) async fn own(
    x: &Exchange<'_>,
    instance: InstanceId,
    from: u64,
    limit: usize,
) -> Result<History> {
    let history = Request::History { instance, from, limit };
    let Answer::History { entries, next } = x.ask(history).await? else { return strange() };
    Ok(convert::history(entries, next))
}

/// The next page of the whole history.
pub(super) async fn gather(
    x: &Exchange<'_>,
    links: &Arc<Links>,
    instance: InstanceId,
    from: Frontier,
    limit: usize,
) -> Result<History> {
    let mut is_lost = false;
    loop {
        let mut reached = from.clone();
        let gathering = Gathering { x, links, instance, limit };
        let parts = gathering.parts(&mut reached).await?;
        let merged = merge(parts, &mut reached, limit, is_lost);
        if merged.is_cut {
            // One server was read before it had what another one had heard of it by the time it was
            // read in its turn. If it still lacks that, it has lost it.
            is_lost = true;
            continue;
        }
        let next = merged.has_more.then(|| reached.to_string());
        return Ok(History { entries: merged.entries, next, unreachable: reached.missed() });
    }
}

/// What a server holds; nothing if it has not heard of the instance.
type Answered = (Arc<str>, std::result::Result<Option<History>, Silent>);

struct Gathering<'a> {
    x: &'a Exchange<'a>,
    links: &'a Arc<Links>,
    instance: InstanceId,
    limit: usize,
}

impl Gathering<'_> {
    /// What this server holds and what all hold that are named in it, and so on.
    async fn parts(&self, reached: &mut Frontier) -> Result<Vec<Part<HistoryEntry>>> {
        let here = &self.links.name;
        let page = own(self.x, self.instance, reached.records(here), self.limit).await?;
        let mut parts = vec![self.read_on(here, page, 0, reached).await?];
        let mut asked = BTreeSet::from([here.clone()]);
        let mut named: BTreeSet<Arc<str>> = reached.servers().cloned().collect();
        named.extend(self.links.topology().server(self.instance.server()).map(|s| s.name.clone()));
        named.extend(parts.iter().flat_map(Part::named));
        loop {
            let room = SERVERS_MAX.saturating_sub(asked.len());
            let unasked = named.difference(&asked).filter(|name| !reached.is_missed(name));
            let unasked: Vec<Arc<str>> = unasked.take(room).cloned().collect();
            if unasked.is_empty() {
                break;
            }
            asked.extend(unasked.iter().cloned());
            for (server, page) in self.ask_all(unasked, reached).await {
                match page {
                    Ok(page) => {
                        // What is on its way there has not arrived.
                        let page = page.unwrap_or_else(nothing);
                        let part = self.read_on(&server, page, 0, reached).await?;
                        named.extend(part.named());
                        parts.push(part);
                    }
                    Err(Silent) => reached.miss(server),
                }
            }
        }
        if !reached.missed().is_empty() && reached.is_begun() {
            return self.read_again(reached, &asked).await;
        }
        Ok(parts)
    }

    /// Which copies were shown for the entries of a server that cannot be asked follows from what
    /// comes before the page.
    async fn read_again(
        &self,
        reached: &mut Frontier,
        servers: &BTreeSet<Arc<str>>,
    ) -> Result<Vec<Part<HistoryEntry>>> {
        let mut parts = Vec::new();
        for server in servers.iter().filter(|server| !reached.is_missed(server)) {
            let end = reached.records(server) + self.limit as u64;
            let begin = History { next: Some("0".to_owned()), ..nothing() };
            parts.push(self.read_on(server, begin, end, reached).await?);
        }
        Ok(parts)
    }

    /// Reads on up to a record, and past the last moment that was read for the pages before.
    async fn read_on(
        &self,
        server: &Arc<str>,
        page: History,
        end: u64,
        reached: &Frontier,
    ) -> Result<Part<HistoryEntry>> {
        let History { mut entries, mut next, .. } = page;
        while let Some(from) = next.as_ref().and_then(|next| next.parse::<u64>().ok()) {
            let is_past = entries.last().is_some_and(|entry| reached.is_past(server, entry.at));
            if from >= end && is_past {
                break;
            }
            let rest = usize::try_from(end.saturating_sub(from)).unwrap_or(LIMIT_MAX);
            let limit = rest.clamp(self.limit.min(LIMIT_MAX), LIMIT_MAX);
            let page = if *server == self.links.name {
                own(self.x, self.instance, from, limit).await?
            } else {
                let target = |_: &str| self.target(from, limit);
                let answers = ask_all(self.x, self.links, vec![server.clone()], target).await;
                match answers.into_iter().next() {
                    Some((_, Ok(page))) => page.unwrap_or_else(nothing),
                    Some((_, Err(Silent))) | None => return Err(gone(server)),
                }
            };
            entries.extend(page.entries);
            next = page.next;
        }
        Ok(part(server, entries, next.is_some()))
    }

    async fn ask_all(&self, servers: Vec<Arc<str>>, reached: &Frontier) -> Vec<Answered> {
        let target = |server: &str| self.target(reached.records(server), self.limit);
        ask_all(self.x, self.links, servers, target).await
    }

    fn target(&self, from: u64, limit: usize) -> String {
        let target = endpoints::HISTORY.at(&self.instance).query("here", Some(true));
        target.query("from", Some(from)).query("limit", Some(limit)).text()
    }
}

fn nothing() -> History {
    History { entries: Vec::new(), next: None, unreachable: Vec::new() }
}

fn gone(server: &str) -> Refused {
    let detail = format!("`{server}` went away between two pages; read the history again");
    Refused::unavailable("server_unreachable", detail)
}

fn part(server: &Arc<str>, entries: Vec<HistoryEntry>, has_more: bool) -> Part<HistoryEntry> {
    let line = |entry: &HistoryEntry| Line {
        record: entry.record,
        at: entry.at,
        server: entry.server.clone().unwrap_or_else(|| server.clone()),
        kind: entry.kind.as_str().into(),
        step: entry.step.clone(),
        iteration: entry.iteration.clone(),
        from: entry.from.clone(),
        to: entry.to.clone(),
        number: entry.number,
    };
    Part::new(server.clone(), entries, has_more, line)
}
