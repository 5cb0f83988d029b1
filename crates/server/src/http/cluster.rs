//! The cluster as a whole: its servers and their load, and how it is being changed.
//!
//! Invariant: each server speaks for itself; who cannot be reached is shown without figures.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use legwork_api::cluster::{
    Change, Changes, Cluster, ClusterServer, Copied, DryRun, EndedChange, Method, Phase,
    PrepareRequest, Prepared, ServerLoad,
};
use legwork_api::endpoints;
use legwork_api::instances::Reason;
use legwork_model::event;
use legwork_model::id::ServerId;
use legwork_placement::{Map, Rule, Topology};
use legwork_site::{Answer, ChangeView, LastChange, Reconfiguration, Request};

use super::exchange::Exchange;
use super::files;
use super::gather::{ask, pages, question};
use super::reply::{Refused, Reply, Result, strange};
use crate::moving::Progress;
use crate::peer::{Links, Unprepared};

pub(super) async fn show(x: Exchange<'_>) -> Result {
    let here = x.query.parsed("here")?.unwrap_or(false);
    x.order(Request::RequireAdmin).await?;
    let Some(links) = &x.app.links else { return Err(alone()) };
    let topology = links.topology();
    let (open, records) = x.app.status.load();
    let own = ServerLoad {
        server: links.name.clone(),
        epoch: topology.epoch,
        instances_open: open,
        records,
        copies: own_copies(links),
    };
    if here {
        return Reply::json(&own);
    }
    let (told, _) = pages(&x, own).await;
    let told: BTreeMap<Arc<str>, ServerLoad> =
        told.into_iter().map(|(_, load)| (load.server.clone(), load)).collect();
    let registrar = topology.registrar();
    let changes = match registrar {
        Some(registrar) if Some(registrar) != links.here() => {
            ask(links, registrar, question(&x, endpoints::CHANGES.target().text()))
                .await
                .ok()
                .flatten()
        }
        Some(_) | None => Some(own_changes(&x).await?),
    };
    let name = |id: ServerId| topology.server(id).map(|server| server.name.clone());
    Reply::json(&Cluster {
        epoch: topology.epoch,
        server: links.name.clone(),
        registrar: registrar.and_then(name),
        servers: servers(&topology, told),
        changes,
    })
}

pub(super) async fn changes(x: Exchange<'_>) -> Result {
    Reply::json(&own_changes(&x).await?)
}

pub(super) async fn undo(x: Exchange<'_>) -> Result {
    let Reason { reason } = x.json_or_default()?;
    let answer = x.ask(Request::Undo { why: reason }).await?;
    let Answer::Reconfiguration(now) = answer else { return strange() };
    Reply::json(&told(&x, *now))
}

pub(super) async fn prepare(x: Exchange<'_>) -> Result {
    let PrepareRequest { server, into } = x.json()?;
    x.order(Request::RequireAdmin).await?;
    let Some(links) = &x.app.links else { return Err(alone()) };
    let topology = links.topology();
    let found = |name: &str| topology.server_named(name).ok_or_else(|| no_such_server(name));
    let (moved, host) = (found(&server)?, topology.host_of(found(&into)?));
    if Some(host) != links.here() {
        let detail = format!("`{into}` is in another process; ask there");
        let mut refused = Refused::new(StatusCode::CONFLICT, "elsewhere", detail);
        refused.at = Some(host);
        return Err(refused);
    }
    if server == into {
        return Reply::json(&replaced(links, &server)?);
    }
    if topology.domain_of(moved) != topology.domain_of(host) {
        let detail = format!("`{server}` is of another domain than `{into}` and cannot move there");
        return Err(Refused::new(StatusCode::CONFLICT, "another_domain", detail));
    }
    let failed = |why| match why {
        Unprepared::NotNow(why) => {
            Refused::unavailable("not_prepared", format!("{why}; try again later"))
        }
        Unprepared::Never(why) => Refused::new(
            StatusCode::CONFLICT,
            "not_movable",
            format!("`{server}` cannot move into the process of `{into}`: {why}"),
        ),
    };
    let progress = links.host.prepare(server.clone()).await.map_err(failed)?;
    let Progress { bytes, bytes_copied, is_close: ready, reason, .. } = progress;
    Reply::json(&Prepared { ready, bytes, bytes_copied, reason })
}

/// How far a new process is that copies a server of this one to take its place.
fn replaced(links: &Links, server: &str) -> Result<Prepared> {
    let there = links.host.held(server).and_then(|there| there.app());
    let Some(app) = there else {
        return Err(Refused::unavailable("not_prepared", format!("`{server}` is not here now")));
    };
    let none_yet = "no new process has begun to copy it; start one with `legwork up --replace`";
    let (ready, reason) = match app.source.written.is_close() {
        _ if !app.source.can_be_copied() => (true, None),
        Some(is_close) => (is_close, None),
        None => (false, Some(none_yet.into())),
    };
    Ok(Prepared { ready, bytes: 0, bytes_copied: 0, reason })
}

pub(super) fn no_such_server(name: &str) -> Refused {
    let detail = format!("there is no server `{name}`; `legwork cluster show` lists them");
    Refused::new(StatusCode::NOT_FOUND, "no_such_server", detail)
}

async fn own_changes(x: &Exchange<'_>) -> Result<Changes> {
    let answer = x.ask(Request::Reconfiguration).await?;
    let Answer::Reconfiguration(now) = answer else { return strange() };
    let mut changes = told(x, *now);
    if let Some(change) = changes.under_way.as_mut().filter(|change| !change.servers.is_empty()) {
        change.estimate_ms = move_estimate(x, change).await;
    }
    Ok(changes)
}

/// What is being copied into this process, as its own server tells it.
fn own_copies(links: &Links) -> Vec<Copied> {
    let copies = links.host.copies().into_iter().filter(|_| links.name == links.host.name);
    let now = Instant::now();
    let copied = copies.map(|(server, progress)| Copied {
        server,
        bytes: progress.bytes,
        bytes_copied: progress.bytes_copied,
        left_ms: progress.left(now).map(millis),
    });
    copied.collect()
}

/// How long a change takes that moves servers: as long as the last of their stores, at the pace so
/// far. Only the process that copies one knows.
async fn move_estimate(x: &Exchange<'_>, change: &Change) -> Option<u64> {
    let links = x.app.links.as_ref()?;
    let moving = links.moving().borrow().clone().filter(|moving| moving.change == change.number)?;
    let (mut left, mut copies) = (0, BTreeMap::new());
    for server in change.missing.iter().filter(|server| change.servers.contains(server)) {
        let host = moving.next.host_of(moving.next.server_named(server)?);
        if let Entry::Vacant(unknown) = copies.entry(host) {
            let told = match Some(host) == links.here() {
                true => own_copies(links),
                false => {
                    let target = endpoints::CLUSTER.target().query("here", Some(true));
                    let load = question(x, target.text());
                    let load: ServerLoad = ask(links, host, load).await.ok()??;
                    load.copies
                }
            };
            unknown.insert(told);
        }
        let copy = copies.get(&host)?.iter().find(|copy| copy.server == *server)?;
        left = left.max(copy.left_ms?);
    }
    Some(millis(x.app.clock.now().since(change.since)).saturating_add(left))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What the site tells of a change, in the words of the API.
pub(super) fn told(x: &Exchange<'_>, now: Reconfiguration) -> Changes {
    let Reconfiguration { epoch: _, change, last, proposals } = now;
    let topology = x.app.links.as_ref().map(|links| links.topology());
    let excepted = topology.as_ref().map_or(0, |topology| exceptions(topology));
    let last = last.map(|last| ended(last, excepted));
    Changes { under_way: change.map(under_way), last, proposals }
}

/// How many instances keep their server against the newest weights.
fn exceptions(topology: &Topology) -> u64 {
    let rules = topology.domains.iter().filter_map(|domain| domain.chain.versions().next());
    let excepted = rules.map(|version| match &version.rule {
        Rule::Except(ids) => ids.len() as u64,
        Rule::Always | Rule::Since(_) => 0,
    });
    excepted.sum()
}

fn under_way(view: ChangeView) -> Change {
    let phase = match view.phase {
        legwork_site::Phase::Locking => Phase::Locking,
        legwork_site::Phase::Moving => Phase::Moving,
        legwork_site::Phase::Ending => Phase::Ending,
    };
    let method = match view.method {
        event::Method::Since => Method::Since,
        event::Method::Except => Method::Except,
    };
    Change {
        number: view.number,
        phase,
        method,
        since: view.since,
        domains: view.domains,
        servers: view.servers,
        without: view.without,
        acknowledged: view.acknowledged,
        reported: view.reported,
        missing: view.missing,
        instances_open: view.open,
        excepted: view.excepted,
        estimate_ms: view.estimate.map(millis),
    }
}

fn ended(last: LastChange, excepted: u64) -> EndedChange {
    EndedChange { number: last.number, epoch: last.epoch, undone: last.why, excepted }
}

fn servers(topology: &Topology, mut told: BTreeMap<Arc<str>, ServerLoad>) -> Vec<ClusterServer> {
    let weight_of = |domain| -> u64 {
        topology.servers_of(domain).map(|(_, server)| u64::from(server.weight)).sum()
    };
    let shown = topology.numbered().filter_map(|(_, server)| {
        let share = 1_000 * u64::from(server.weight) / weight_of(server.domain).max(1);
        let host = server.host.and_then(|host| topology.server(host));
        Some(ClusterServer {
            server: server.name.clone(),
            domain: topology.domain(server.domain)?.name.clone(),
            host: host.map(|host| host.name.clone()),
            weight: server.weight,
            share_permille: u32::try_from(share).unwrap_or(u32::MAX),
            told: told.remove(&server.name),
        })
    });
    shown.collect()
}

/// What all servers together say to what a topology would change.
pub(super) fn together(parts: impl IntoIterator<Item = DryRun>) -> DryRun {
    let mut all = DryRun::default();
    for part in parts {
        // Everybody knows what would be locked and moved.
        (all.domains, all.servers) = (part.domains, part.servers);
        all.instances_open += part.instances_open;
        all.moved += part.moved;
        all.excepted += part.excepted;
        all.bytes += part.bytes;
    }
    all
}

/// What one server says to what a topology would change. One that would move takes its store along,
/// unless that is shared.
pub(super) async fn dry_run(x: &Exchange<'_>, part: legwork_site::DryRun) -> Result<DryRun> {
    let is_own = |name: &Arc<str>| x.app.links.as_ref().is_some_and(|links| links.name == *name);
    let stored = match part.servers.iter().any(is_own) {
        true => bytes_to_copy(x).await?,
        false => 0,
    };
    Ok(DryRun {
        domains: part.domains,
        servers: part.servers,
        instances_open: part.open,
        moved: part.moved,
        excepted: part.excepted,
        bytes: part.bytes.saturating_add(stored),
        unreachable: Vec::new(),
    })
}

async fn bytes_to_copy(x: &Exchange<'_>) -> Result<u64> {
    let store = files::store(x.app)?;
    let bytes = move || store.listing().map(|_| store.bytes()).transpose();
    let bytes = tokio::task::spawn_blocking(bytes).await;
    let bytes = bytes.map_err(|error| Refused::fault(&error))?;
    Ok(bytes.map_err(|error| files::failed(&error))?.unwrap_or(0))
}

pub(super) fn alone() -> Refused {
    let detail = "this server is alone; start servers with `legwork up --cluster DIR`, where \
                  `legwork cluster init` made DIR";
    Refused::new(StatusCode::CONFLICT, "not_a_member", detail)
}
