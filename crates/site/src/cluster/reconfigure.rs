//! Requests of an operator: another topology, the progress of a change, or its undoing.
//!
//! Invariant: a topology that moves neither instances nor servers is published at once. Any other is a change, begun
//! here with one record and ended by `coordinate`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::{Method, SiteEvent};
use legwork_model::id::{DomainId, ServerId};
use legwork_model::time::Timestamp;
use legwork_placement::{Change, Map, Topology};

use crate::Site;
use crate::answer::{Answer, ChangeView, DryRun, LastChange, Phase, Reconfiguration};
use crate::cases::control::bounded;
use crate::catalog::access::Caller;
use crate::catalog::changes::{Fate, Pending};
use crate::cluster::Cluster;
use crate::input::PublishTopology;
use crate::refusal::{Kind, Refusal};

/// The expected duration of a change of weights if there was none yet.
const USUAL: Duration = Duration::from_secs(1);
/// What an exception takes at every server.
const EXCEPTION_BYTES: u64 = 16;

impl Cluster {
    /// The servers that are declared down.
    fn without(&self, asked: &PublishTopology) -> Result<BTreeSet<ServerId>, Refusal> {
        let topology = self.seat().map(|seat| &seat.topology);
        let number = |name: &Arc<str>| {
            let known = topology.and_then(|topology| topology.server_named(name));
            known.ok_or_else(|| Refusal::not_found("no_such_server", format!("server `{name}`")))
        };
        asked.without.iter().map(number).collect()
    }

    /// Refuses changes that could not end.
    fn require_changeable(&self, next: &Topology, change: &Change) -> Result<(), Refusal> {
        let Some(seat) = &self.seat else { return Ok(()) };
        let known = seat.topology.servers.len();
        let locked = change.domains.iter();
        let mut new = locked
            .flat_map(|domain| next.servers_of(*domain))
            .filter(|(id, server)| usize::from(id.0) >= known && server.weight > 0);
        if let Some((_, server)) = new.next() {
            let message = format!(
                "`{}` is new and has a weight; publish it with `weight: 0` first, start it, and \
                 give it its weight when it has joined",
                server.name
            );
            return Err(Refusal::new(Kind::Conflict, "server_not_joined", message));
        }
        if !change.servers.is_empty() && !change.domains.is_empty() {
            // The domain could start nothing for as long as a store is copied.
            let message = "weights and hosts do not change at the same time; publish the weights \
                           first, and then where servers run";
            return Err(Refusal::new(Kind::Conflict, "weights_and_hosts", message));
        }
        let moves_registrar = change.servers.contains(&seat.here);
        if moves_registrar && change.servers.len() > 1 {
            let message = format!(
                "`{0}` keeps the catalog and is moved by itself; change the rest before or after, \
                 and if it is a guest, or has one, move the guest into another process first: \
                 legwork cluster remove GUEST --into SERVER",
                self.name_here().unwrap_or_default()
            );
            return Err(Refusal::new(Kind::Conflict, "registrar_moves_alone", message));
        }
        Ok(())
    }

    fn domain_names<'a>(&self, ids: impl Iterator<Item = &'a DomainId>) -> Vec<Arc<str>> {
        let topology = self.seat().map(|seat| &seat.topology);
        ids.filter_map(|id| Some(topology?.domain(*id)?.name.clone())).collect()
    }

    fn server_names<'a>(&self, ids: impl Iterator<Item = &'a ServerId>) -> Vec<Arc<str>> {
        let topology = self.seat().map(|seat| &seat.topology);
        ids.filter_map(|id| Some(topology?.server(*id)?.name.clone())).collect()
    }
}

impl Site {
    /// Begins a change, or continues the one under way if it is the same.
    pub(crate) fn begin_change(
        &mut self,
        caller: &Caller,
        asked: &PublishTopology,
        topology: Topology,
        change: Change,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        let method = asked.method.unwrap_or_default();
        let without = self.cluster.without(asked)?;
        self.cluster.require_changeable(&topology, &change)?;
        self.require_reachable(&topology, &change, &without)?;
        if method == Method::Except && !without.is_empty() && !change.domains.is_empty() {
            let message = "the instances of a server that is down are unknown; change the \
                           weights by time stamp (`since`)";
            return Err(Refusal::new(Kind::Invalid, "exceptions_unknown", message));
        }
        let (number, by) = (self.catalog.changes().next_number(), caller.performer());
        let event = SiteEvent::ChangeBegun {
            number,
            source: asked.source.clone(),
            method,
            by: by.clone(),
            without: without.iter().copied().collect(),
        };
        let source = Arc::from(&*asked.source);
        let records = self.catalog.log.version + 1;
        let changed = (topology, change);
        let pending = Pending::new(number, (source, method, by), without, changed, (records, now));
        self.catalog.begin_change(pending).map_err(out_of_order)?;
        self.record(event, now);
        self.follow_changes(now);
        self.coordinate(now);
        Ok(self.changing())
    }

    /// The progress of the change under way, or how the last one ended.
    pub(crate) fn changing(&self) -> Answer {
        Answer::Reconfiguration(Box::new(self.reconfiguration_now()))
    }

    /// Refuses a change that would lock a domain while it waits for an unreachable server, and a change that declares a
    /// server down which may believe it is the only one of its domain.
    fn require_reachable(
        &self,
        next: &Topology,
        change: &Change,
        without: &BTreeSet<ServerId>,
    ) -> Result<(), Refusal> {
        let Some(seat) = &self.cluster.seat else { return Ok(()) };
        let was_alone = |id: &&ServerId| {
            let domain = seat.topology.domain_of(**id).filter(|id| change.domains.contains(id));
            let divisions = domain.map_or(&[][..], |id| self.catalog.changes().divisions(id));
            let mut shares = divisions.iter().map(|division| division.layout.shares());
            domain.is_some() && !shares.any(|all| all.len() > 1 && all.contains_key(*id))
        };
        if let Some(alone) = without.iter().find(was_alone) {
            let message = format!(
                "{} has never shared its domain and may not know that it is not alone there; wait \
                 for it",
                self.cluster.names(&[*alone])
            );
            return Err(Refusal::new(Kind::Conflict, "server_was_alone", message));
        }
        let mut away = self.reporters(change, next, without);
        away.retain(|id| self.migration.outbox.is_down(*id));
        if away.is_empty() {
            return Ok(());
        }
        let names = self.cluster.names(&away);
        let message = format!(
            "{names} cannot be reached, and the domain would have to wait; try again, or declare a server \
             down with `--without` if it is gone for good"
        );
        Err(Refusal::new(Kind::Exhausted, "server_unreachable", message))
    }

    /// What another topology would change for what is here. Every server answers for itself.
    pub(crate) fn dry_run(&self, method: Method, next: &Topology, change: &Change) -> Answer {
        let here = self.cluster.seat.as_ref().map(|seat| seat.here);
        let known = self.cases.known_ids().count() as u64;
        // Several servers have parts of the same instance: only the one that started the instance counts it.
        let open =
            self.cases.known_ids().filter(|id| self.cluster.starter_of(*id).is_none()).count()
                as u64;
        let moves = here.is_some_and(|here| change.servers.contains(&here));
        let is_locked =
            self.cluster.domain_here().is_some_and(|domain| change.domains.contains(&domain));
        let excepted = match method {
            Method::Except if is_locked => self.affected(next).len() as u64,
            Method::Except | Method::Since => 0,
        };
        Answer::DryRun(Box::new(DryRun {
            domains: self.cluster.domain_names(change.domains.iter()),
            servers: self.cluster.server_names(change.servers.iter()),
            open,
            moved: if moves { known } else { 0 },
            excepted,
            bytes: excepted * EXCEPTION_BYTES,
        }))
    }

    pub(crate) fn reconfiguration(&self, caller: &Caller) -> Result<Answer, Refusal> {
        caller.require_any()?;
        self.cluster.require_registrar()?;
        Ok(self.changing())
    }

    fn reconfiguration_now(&self) -> Reconfiguration {
        let changes = self.catalog.changes();
        let last = changes.last().map(|(number, fate, why)| LastChange {
            number,
            epoch: match fate {
                Fate::Published { epoch } => Some(epoch),
                Fate::Undone => None,
            },
            why,
        });
        let epoch = self.catalog.topology().map_or(0, |published| published.topology.epoch);
        let change = changes.pending().map(|pending| self.change_view(pending));
        Reconfiguration { epoch, change, last, proposals: self.cluster.proposals() }
    }

    fn change_view(&self, pending: &Pending) -> ChangeView {
        let missing = self.cluster.missing(pending);
        let reporters = self.cluster.coordination.reporters().iter();
        let reported = reporters.filter(|id| self.cluster.coordination.has_reported(**id));
        let is_moving = missing.iter().all(|id| pending.moves(*id));
        let others =
            self.cluster.seat.iter().flat_map(|seat| seat.topology.numbered().map(|(id, _)| id));
        let knows = |id: &ServerId| self.catalog.has_records(*id, pending.records);
        let acknowledged: Vec<ServerId> = others.filter(knows).collect();
        let took = self.catalog.changes().took_ms().map_or(USUAL, Duration::from_millis);
        let (open, excepted) = self.cluster.coordination.counts();
        ChangeView {
            number: pending.number,
            phase: match (missing.is_empty(), is_moving) {
                (true, _) => Phase::Ending,
                (false, true) => Phase::Moving,
                (false, false) => Phase::Locking,
            },
            method: pending.method,
            since: pending.begun_at,
            domains: self.cluster.domain_names(pending.change.domains.iter()),
            servers: self.cluster.server_names(pending.change.servers.iter()),
            without: self.cluster.server_names(pending.without.iter()),
            acknowledged: self.cluster.server_names(acknowledged.iter()),
            reported: self.cluster.server_names(reported),
            missing: self.cluster.server_names(missing.iter()),
            open,
            excepted,
            estimate: pending.change.servers.is_empty().then_some(took),
        }
    }

    /// Undoes the change under way.
    pub(crate) fn undo(
        &mut self,
        caller: &Caller,
        why: Option<String>,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        self.cluster.require_registrar()?;
        let why = bounded(why.unwrap_or_else(|| "no reason was given".to_owned()), "reason")?;
        let Some(pending) = self.catalog.changes().pending() else {
            let message = "no change of the topology is under way; nothing is left to do";
            return Err(Refusal::new(Kind::Conflict, "no_change", message));
        };
        if self.cluster.is_given_away(pending.number) || self.cluster.has_moved_in(pending.number) {
            let message = "the store of this server is on its way to its new host; wait until it goes on there";
            return Err(Refusal::new(Kind::Conflict, "store_given_away", message));
        }
        self.undo_now(&why, caller, now);
        Ok(self.changing())
    }

    pub(crate) fn undo_now(&mut self, why: &str, by: &Caller, now: Timestamp) {
        let Some(number) = self.catalog.changes().pending().map(|pending| pending.number) else {
            return;
        };
        let (why, by) = (why.to_owned(), by.performer());
        if self.catalog.undo_change(number, &why).is_ok() {
            self.record(SiteEvent::ChangeUndone { number, why, by }, now);
            self.follow_changes(now);
        }
    }
}

/// Refuses another change while one is under way.
pub(crate) fn under_way(pending: &Pending) -> Refusal {
    let message = format!(
        "change {} of the topology is under way; wait for its end, or undo it",
        pending.number
    );
    Refusal::new(Kind::Conflict, "change_under_way", message)
}

fn out_of_order(reason: String) -> Refusal {
    Refusal::new(Kind::Conflict, "change_under_way", reason)
}
