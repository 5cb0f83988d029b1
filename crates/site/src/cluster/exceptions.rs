//! Exceptions of a domain end with their instances.
//!
//! Invariant: an exception is dropped only when its instance is over at the only server that has it. Each server
//! reports its own to the registrar. The registrar records them in batches, so that the catalog grows by few records.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use legwork_model::event::SiteEvent;
use legwork_model::id::{DomainId, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_placement::{Map, PORTION_MAX, Rule};

use crate::Site;
use crate::cases::Cases;
use crate::cluster::Cluster;
use crate::message::{self, Message};
use crate::output::Output;

/// How often a server reports ended exceptions, and how many at a time.
const PAUSE: Duration = Duration::from_secs(30);
const REPORTED_MAX: usize = PORTION_MAX;
/// The registrar records ended exceptions when they make up this fraction of all exceptions left of a change.
const PART: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// Exceptions of this server's domain whose instances are here and not over.
    open: BTreeSet<InstanceId>,
    /// Exceptions whose instances are over, until that is recorded.
    over: BTreeSet<InstanceId>,
    due: Timestamp,
    /// At the registrar: ended exceptions that are reported and not recorded yet.
    reported: BTreeMap<DomainId, BTreeSet<InstanceId>>,
}

impl Cases {
    fn is_known(&self, id: InstanceId) -> bool {
        self.instances.get(id).is_some()
            || self.instances.broken(id).is_some()
            || self.unread.contains(&id)
    }
}

impl Cluster {
    /// The end of these exceptions is recorded: they need not be reported any more.
    pub(crate) fn note_recorded_over(&mut self, domain: DomainId, ids: &[InstanceId]) {
        // An instance may be an exception of several domains.
        if self.domain_here() == Some(domain) {
            for id in ids {
                self.endings.over.remove(id);
            }
        }
    }
}

impl Site {
    /// Finds the exceptions this server has to report on.
    pub(crate) fn note_exceptions(&mut self) {
        let (Some(seat), Some(domain)) = (&self.cluster.seat, self.cluster.domain_here()) else {
            return;
        };
        let Some(found) = seat.topology.domain(domain) else { return };
        let mut own = BTreeSet::new();
        for version in found.chain.versions() {
            if let Rule::Except(ids) = &version.rule {
                let is_here = |id: &InstanceId| found.chain.server(*id) == seat.here;
                own.extend(ids.iter().filter(is_here));
            }
        }
        let (open, over) = own.into_iter().partition(|id| self.cases.is_known(*id));
        (self.cluster.endings.open, self.cluster.endings.over) = (open, over);
    }

    /// An instance is over here and is removed from memory.
    pub(crate) fn forget_over(&mut self, id: InstanceId) {
        self.cases.instances.remove(id);
        self.planning.forget_ended(id);
        if self.cluster.endings.open.remove(&id) {
            self.cluster.endings.over.insert(id);
        }
    }

    pub(crate) fn next_over_report(&self) -> Option<Timestamp> {
        let is_quiet = self.catalog.changes().pending().is_none();
        (!self.cluster.endings.over.is_empty() && is_quiet).then_some(self.cluster.endings.due)
    }

    /// Reports ended exceptions to the registrar from time to time.
    pub(crate) fn report_over(&mut self, now: Timestamp) {
        if self.next_over_report().is_none_or(|due| due > now) {
            return;
        }
        self.cluster.endings.due = now.plus(PAUSE);
        let ids: Vec<InstanceId> =
            self.cluster.endings.over.iter().take(REPORTED_MAX).copied().collect();
        let Some(here) = self.cluster.seat.as_ref().map(|seat| seat.here) else { return };
        match self.cluster.registrar() {
            Some(registrar) if registrar == here => self.on_over(here, ids, now),
            Some(to) => self.out.push(Output::Send {
                to,
                message: Message::Registrar(message::Registrar::Over { ids }),
            }),
            None => {}
        }
    }

    /// A server reports ended exceptions.
    pub(crate) fn on_over(&mut self, from: ServerId, ids: Vec<InstanceId>, now: Timestamp) {
        let Some(seat) = &self.cluster.seat else { return };
        let is_registrar = seat.topology.registrar() == Some(seat.here);
        if !is_registrar || self.catalog.changes().pending().is_some() {
            return;
        }
        let Some(domain) = seat.topology.domain_of(from) else { return };
        let Some(found) = seat.topology.domain(domain) else { return };
        let sets = || {
            found.chain.versions().filter_map(|version| match &version.rule {
                Rule::Except(ids) => Some(ids),
                Rule::Always | Rule::Since(_) => None,
            })
        };
        // An instance may be an exception of several changes.
        let left = sets().map(|ids| ids.len()).max().unwrap_or_default();
        let is_exception = |id: &InstanceId| {
            sets().any(|ids| ids.contains(*id)) && found.chain.server(*id) == from
        };
        let reported = self.cluster.endings.reported.entry(domain).or_default();
        reported.extend(ids.into_iter().filter(is_exception));
        if reported.is_empty() || reported.len() * PART < left && reported.len() < REPORTED_MAX {
            return;
        }
        let ids: Vec<InstanceId> = std::mem::take(reported).into_iter().take(PORTION_MAX).collect();
        self.cluster.note_recorded_over(domain, &ids);
        self.catalog.unexcept(domain, ids.clone());
        self.follow_topology();
        self.record(SiteEvent::Unexcepted { domain, ids }, now);
    }
}
