//! Coordinating a change of the topology: reports of locked servers, and how the registrar ends the change.
//!
//! Invariant: a change ends only when every server of each locked domain has reported all it has, or was declared down,
//! and every moved server is at its new host. Reports are volatile: after a crash of the registrar they are resent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use legwork_model::event::{Method, SiteEvent, Validity};
use legwork_model::id::{DomainId, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_placement::{Change, EXCEPTIONS_MAX, Exceptions, Map, PORTION_MAX, Rule, Topology};

use crate::Site;
use crate::cases::Cases;
use crate::catalog::Catalog;
use crate::catalog::access::Caller;
use crate::catalog::changes::{Pending, SKEW_MS};
use crate::cluster::Cluster;
use crate::message::{self, Instance, Message, Report};
use crate::output::Output;
use crate::retries::Backoff;

/// How long to wait for servers that need not report, while they can be reached.
const GRACE: Duration = Duration::from_secs(2);
/// If a required report is missing after this time, the change is undone.
const REPORTS_MAX: Duration = Duration::from_secs(30);
/// If a server has not moved after this time, the change is undone.
const MOVES_MAX: Duration = Duration::from_secs(600);
/// Back-off before a report is resent.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(8));
/// How often servers that have not acknowledged a change are notified.
const NOTIFY_EVERY: Duration = Duration::from_secs(1);

/// Reports of this server, resent until the change is over.
#[derive(Debug, Default)]
pub(crate) struct Reporting {
    change: u32,
    due: Timestamp,
    attempts: u32,
    /// Servers whose stores have arrived at this host, with the number of the change.
    moved: BTreeMap<ServerId, u32>,
}

/// Reports received by the registrar about the change under way.
#[derive(Debug, Default)]
pub(crate) struct Coordination {
    since: Timestamp,
    /// Servers that have to report before the change can end.
    reporters: Vec<ServerId>,
    reports: BTreeMap<ServerId, Gathered>,
    moved: BTreeSet<ServerId>,
    /// When to notify servers that have not acknowledged the change.
    notify_due: Timestamp,
}

/// What a server has reported so far.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    latest_ms: u64,
    open: u64,
    ids: BTreeSet<InstanceId>,
    /// All ids up to this one are reported.
    upto: Option<InstanceId>,
    is_whole: bool,
}

impl Coordination {
    pub(crate) fn reporters(&self) -> &[ServerId] {
        &self.reporters
    }

    fn silent(&self) -> impl Iterator<Item = ServerId> {
        self.reporters.iter().copied().filter(|id| !self.has_reported(*id))
    }

    pub(crate) fn has_reported(&self, server: ServerId) -> bool {
        self.reports.get(&server).is_some_and(|gathered| gathered.is_whole)
    }

    pub(crate) fn has_moved(&self, server: ServerId) -> bool {
        self.moved.contains(&server)
    }

    /// The number of open instances reported, and how many of them are exceptions.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let open = self.reports.values().map(|gathered| gathered.open).sum();
        let ids = self.reports.values().map(|gathered| gathered.ids.len() as u64).sum();
        (open, ids)
    }
}

impl Cluster {
    /// Servers whose stores have arrived at this host in this change.
    fn moved_here(&self, pending: &Pending) -> impl Iterator<Item = ServerId> {
        let number = pending.number;
        let all = self.reporting.moved.iter();
        all.filter(move |(_, change)| **change == number).map(|(id, _)| *id)
    }

    /// Whether a server may report for another one: it may for all of its domain.
    fn speaks_for(&self, from: ServerId, server: ServerId) -> bool {
        let domain = |id| self.seat().and_then(|seat| seat.topology.domain_of(id));
        from == server || domain(from) == domain(server)
    }

    /// The servers without which the change cannot end.
    pub(crate) fn missing(&self, pending: &Pending) -> Vec<ServerId> {
        let mut missing: Vec<ServerId> = self.coordination.silent().collect();
        let moved = pending.change.servers.iter();
        missing.extend(moved.filter(|id| !self.coordination.has_moved(**id)));
        missing
    }

    /// When the change needs attention even if no report arrives.
    fn next_deadline(&self, pending: &Pending) -> Timestamp {
        let since = self.coordination.since;
        let has_silent = self.coordination.silent().next().is_some();
        match (has_silent, self.missing(pending).is_empty()) {
            (true, _) => since.plus(REPORTS_MAX),
            (false, false) => since.plus(MOVES_MAX),
            (false, true) => since.plus(GRACE),
        }
    }

    pub(crate) fn names(&self, servers: &[ServerId]) -> String {
        let topology = self.seat().map(|seat| &seat.topology);
        let name = |id: &ServerId| {
            let server = topology.and_then(|topology| topology.server(*id));
            server.map_or_else(|| format!("server {}", id.0), |server| format!("`{}`", server.name))
        };
        servers.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}

impl Cases {
    /// All instances here that are not over, in whatever state.
    pub(crate) fn known_ids(&self) -> impl Iterator<Item = InstanceId> {
        let open = self.instances.ids();
        open.chain(self.instances.broken_ids()).chain(self.unread.iter().copied())
    }
}

impl Catalog {
    /// Whether a change is under way. If not, the sender has not received its end.
    fn is_pending(&self, change: u32) -> bool {
        self.changes().pending().is_some_and(|pending| pending.number == change)
    }
}

impl Site {
    /// A change begins, or is continued after a restart.
    pub(crate) fn change_begun(&mut self, now: Timestamp) {
        let Some(pending) = self.catalog.changes().pending() else { return };
        let change = pending.number;
        // After a restart no acknowledgement is known.
        let notify_due = if pending.begun_at == now { now.plus(NOTIFY_EVERY) } else { now };
        let reporters = self.reporters(&pending.change, &pending.next, &pending.without);
        self.cluster.coordination =
            Coordination { since: now, notify_due, reporters, ..Coordination::default() };
        let moved = std::mem::take(&mut self.cluster.reporting.moved);
        self.cluster.reporting = Reporting { change, due: now, attempts: 0, moved };
        self.report(now);
    }

    /// The servers that have to report before a change can end.
    pub(crate) fn reporters(
        &self,
        change: &Change,
        next: &Topology,
        without: &BTreeSet<ServerId>,
    ) -> Vec<ServerId> {
        let Some(seat) = self.cluster.seat() else { return Vec::new() };
        let topology = &seat.topology;
        let mut all = Vec::new();
        for domain in &change.domains {
            // A server that never had a part of the domain has nothing to report, but must be running to get a part.
            let divisions = self.catalog.changes().divisions(*domain);
            let has_part = |id: &ServerId| {
                let gets_one = next.server(*id).is_some_and(|server| server.weight > 0);
                gets_one || divisions.iter().any(|division| division.layout.has_part(*id))
            };
            all.extend(topology.servers_of(*domain).map(|(id, _)| id).filter(has_part));
        }
        all.retain(|id| !without.contains(id));
        all
    }

    /// Sends the reports of this server to the registrar if they are due.
    pub(crate) fn report(&mut self, now: Timestamp) {
        let Some(pending) = self.catalog.changes().pending() else { return };
        if self.cluster.reporting.change != pending.number || self.cluster.reporting.due > now {
            return;
        }
        let messages = self.reports(pending);
        if messages.is_empty() {
            return;
        }
        let reporting = &mut self.cluster.reporting;
        reporting.due = now.plus(BACKOFF.after(reporting.attempts));
        reporting.attempts += 1;
        for message in messages {
            self.send_to_registrar(message, now);
        }
    }

    /// The registrar can be reached again and may have missed earlier reports: resends them at once.
    pub(crate) fn report_at_once(&mut self, now: Timestamp) {
        (self.cluster.reporting.due, self.cluster.reporting.attempts) = (now, 0);
        self.report(now);
    }

    /// All reports of this server about a change.
    fn reports(&self, pending: &Pending) -> Vec<message::Registrar> {
        let is_locked = self.cluster.domain_here().is_some_and(|domain| pending.locks(domain));
        let parts = if is_locked { self.parts(pending) } else { Vec::new() };
        let parts = parts.into_iter().map(message::Registrar::Report);
        let change = pending.number;
        let moved = self
            .cluster
            .moved_here(pending)
            .map(|server| message::Registrar::Moved { change, server });
        parts.chain(moved).collect()
    }

    /// The store of a server has arrived at this host: reports that to the registrar.
    pub(crate) fn report_moved(&mut self, change: u32, server: ServerId, now: Timestamp) {
        self.cluster.reporting.moved.insert(server, change);
        self.cluster.reporting.due = now;
        self.report(now);
    }

    fn send_to_registrar(&mut self, message: message::Registrar, now: Timestamp) {
        let Some(here) = self.cluster.seat.as_ref().map(|seat| seat.here) else { return };
        match self.cluster.registrar() {
            Some(registrar) if registrar == here => self.on_registrar(here, message, now),
            Some(to) => self.out.push(Output::Send { to, message: Message::Registrar(message) }),
            None => {}
        }
    }

    pub(crate) fn next_report(&self) -> Option<Timestamp> {
        let pending = self.catalog.changes().pending()?;
        let here = self.cluster.seat.as_ref()?.here;
        let reports = self.cluster.domain_here().is_some_and(|domain| pending.locks(domain))
            || self.cluster.moved_here(pending).next().is_some();
        let report = (reports && self.cluster.reporting.change == pending.number)
            .then_some(self.cluster.reporting.due);
        let is_registrar =
            self.cluster.registrar() == Some(here) && !self.cluster.is_given_away(pending.number);
        let deadline =
            self.cluster.next_deadline(pending).min(self.cluster.coordination.notify_due);
        [report, is_registrar.then_some(deadline)].into_iter().flatten().min()
    }

    /// The parts of this server's report.
    fn parts(&self, pending: &Pending) -> Vec<Report> {
        let ids = match pending.method {
            Method::Since => BTreeSet::new(),
            Method::Except => self.affected(&pending.next),
        };
        let clock = u64::try_from(self.clock.latest.0).unwrap_or_default();
        let (open, youngest) = self.cases.known_ids().fold((0, 0), |(open, youngest), id| {
            let created: u64 = id.created_ms();
            (open + 1, created.max(youngest))
        });
        let part = |after, ids: &[InstanceId], more| Report {
            change: pending.number,
            latest_ms: clock.max(youngest),
            after,
            ids: ids.to_vec(),
            more,
            open,
        };
        let ids: Vec<InstanceId> = ids.into_iter().collect();
        let mut parts = Vec::new();
        let mut after = None;
        let mut chunks = ids.chunks(PORTION_MAX).peekable();
        while let Some(chunk) = chunks.next() {
            parts.push(part(after, chunk, chunks.peek().is_some()));
            after = chunk.last().map(|last| Instance(*last));
        }
        if parts.is_empty() {
            parts.push(part(None, &[], false));
        }
        parts
    }

    /// The instances here that another topology would assign to another server.
    pub(crate) fn affected(&self, next: &Topology) -> BTreeSet<InstanceId> {
        let (Some(seat), Some(domain)) = (&self.cluster.seat, self.cluster.domain_here()) else {
            return BTreeSet::new();
        };
        let Some(next) = next.domain(domain) else { return BTreeSet::new() };
        let goes = |id: &InstanceId| next.chain.newest().server(id.spread()) != seat.here;
        let is_here = |id: &InstanceId| seat.topology.server_in(domain, *id) == Some(seat.here);
        self.cases.known_ids().filter(goes).filter(is_here).collect()
    }

    /// A server reports its instances.
    pub(crate) fn on_report(&mut self, from: ServerId, report: &Report, now: Timestamp) {
        if !self.catalog.is_pending(report.change) {
            return self.send_newer_records(from);
        }
        self.cluster.coordination.reports.entry(from).or_default().add(report);
        self.coordinate(now);
    }

    /// The store of a server has arrived at its new host.
    pub(crate) fn on_moved(
        &mut self,
        from: ServerId,
        change: u32,
        server: ServerId,
        now: Timestamp,
    ) {
        if !self.catalog.is_pending(change) || !self.cluster.speaks_for(from, server) {
            return self.send_newer_records(from);
        }
        self.cluster.coordination.moved.insert(server);
        self.coordinate(now);
    }

    /// Ends the change under way if possible, or undoes it if it takes too long.
    pub(crate) fn coordinate(&mut self, now: Timestamp) {
        let Some(pending) = self.catalog.changes().pending() else { return };
        let Some(seat) = self.cluster.seat.as_ref() else { return };
        if seat.topology.registrar() != Some(seat.here)
            || self.cluster.is_given_away(pending.number)
        {
            return;
        }
        let missing = self.cluster.missing(pending);
        if self.cluster.coordination.notify_due <= now {
            self.cluster.coordination.notify_due = now.plus(NOTIFY_EVERY);
            return self.notify_behind(now);
        }
        if missing.is_empty() {
            if self.cluster.next_deadline(pending) <= now || self.all_acknowledged(pending) {
                self.finish(now);
            }
            return;
        }
        let waited = now.since(self.cluster.coordination.since);
        let silent: Vec<ServerId> = self.cluster.coordination.silent().collect();
        let why = if !silent.is_empty() && waited >= REPORTS_MAX {
            format!(
                "{} did not report within {} s",
                self.cluster.names(&silent),
                REPORTS_MAX.as_secs()
            )
        } else if waited >= MOVES_MAX {
            format!(
                "{} did not move within {} s",
                self.cluster.names(&missing),
                MOVES_MAX.as_secs()
            )
        } else {
            return;
        };
        self.undo_now(&why, &Caller::itself(), now);
    }

    /// Notifies servers that have not acknowledged the change.
    fn notify_behind(&mut self, now: Timestamp) {
        let Some(pending) = self.catalog.changes().pending() else { return };
        let is_behind = |id: &ServerId| {
            !self.migration.outbox.is_down(*id) && !self.catalog.has_records(*id, pending.records)
        };
        for to in self.cluster.other_servers().filter(is_behind).collect::<Vec<_>>() {
            let message = Message::Catalog(message::Catalog::Wanted {
                have: self.catalog.log.version,
                answer: true,
            });
            self.out.push(Output::Send { to, message });
        }
        self.coordinate(now);
    }

    /// Whether all other reachable servers have acknowledged the change. A server that has announced nothing since this
    /// one started counts as unreachable.
    fn all_acknowledged(&self, pending: &Pending) -> bool {
        self.cluster.other_servers().all(|id| {
            self.migration.outbox.is_down(id)
                || !self.catalog.has_announced_records(id)
                || pending.without.contains(&id)
                || pending.moves(id)
                || self.catalog.has_records(id, pending.records)
        })
    }

    /// Publishes the topology that the change leads to.
    fn finish(&mut self, now: Timestamp) {
        let Some(pending) = self.catalog.changes().pending() else { return };
        let (source, method, by) = (pending.source.clone(), pending.method, pending.by.clone());
        let without = pending.without.clone();
        let mut rules = BTreeMap::new();
        let mut count = 0;
        for domain in pending.change.domains.clone() {
            let in_domain = |id: &ServerId| {
                self.cluster
                    .seat
                    .as_ref()
                    .is_some_and(|seat| seat.topology.domain_of(*id) == Some(domain))
            };
            let reports = self.cluster.coordination.reports.iter().filter(|(id, _)| in_domain(id));
            let reports = reports.map(|(_, gathered)| gathered);
            let rule = match method {
                Method::Since => {
                    let latest = reports.map(|gathered| gathered.latest_ms).max();
                    let clock = u64::try_from(now.0).unwrap_or_default();
                    let ahead =
                        without.iter().any(in_domain).then(|| clock.saturating_add(SKEW_MS));
                    Rule::Since(latest.max(ahead).unwrap_or(clock))
                }
                Method::Except => {
                    let ids: BTreeSet<InstanceId> =
                        reports.flat_map(|gathered| &gathered.ids).copied().collect();
                    count += ids.len();
                    Rule::Except(Exceptions::new(ids))
                }
            };
            rules.insert(domain, rule);
        }
        if count > EXCEPTIONS_MAX {
            let why = format!(
                "{count} instances would be exceptions, at most {EXCEPTIONS_MAX} fit; change the \
                 weights by time stamp"
            );
            return self.undo_now(&why, &Caller::itself(), now);
        }
        let (topology, findings) = self.catalog.next_topology(&source, &rules);
        let Some(topology) = topology else {
            let why = findings.first().map(ToString::to_string).unwrap_or_default();
            return self.undo_now(&why, &Caller::itself(), now);
        };
        for (domain, rule) in &rules {
            let Rule::Except(ids) = rule else { continue };
            for ids in ids.portions() {
                drop(self.catalog.except(*domain, ids.clone()));
                self.record(SiteEvent::Excepted { domain: *domain, ids }, now);
            }
        }
        let recorded: Vec<(DomainId, Validity)> =
            rules.iter().filter_map(|(domain, rule)| Some((*domain, rule.recorded()?))).collect();
        self.put_topology(topology, &source, recorded, by, now);
    }
}

impl Gathered {
    fn add(&mut self, report: &Report) {
        self.latest_ms = self.latest_ms.max(report.latest_ms);
        self.open = report.open;
        let after = report.after.map(|Instance(id)| id);
        if self.is_whole || after > self.upto {
            // An earlier part is missing; the sender resends all parts.
            return;
        }
        self.upto = self.upto.max(report.ids.last().copied());
        self.ids.extend(&report.ids);
        self.is_whole = !report.more;
    }
}
