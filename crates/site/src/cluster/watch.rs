//! The watch-dog: every server reports its load to the registrar, which compares the loads with the weights.
//!
//! Invariant: no load is reported or watched unless the topology asks for it. The outcome is a proposal, or, if the
//! topology says so, a change like any other, recorded in the name of the watch-dog. Observations are volatile: a
//! restarted registrar begins again.

use std::collections::BTreeMap;
use std::time::Duration;

use legwork_model::event::Method;
use legwork_model::id::{DomainId, ServerId};
use legwork_model::time::Timestamp;
use legwork_placement::{Edit, Mode, Policy, Proposal, Topology, Watch, Watched};

use crate::Site;
use crate::catalog::access::Caller;
use crate::cluster::Cluster;
use crate::input::PublishTopology;
use crate::message::{self, Message};
use crate::output::Output;

/// How often a server reports its load.
const PAUSE: Duration = Duration::from_secs(30);
/// A server that has not reported for this long is left out.
const SILENCE: Duration = Duration::from_secs(90);

#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// Records of instances written here since the last report.
    pub(crate) written: u64,
    due: Timestamp,
    /// At the registrar: the last report of each server, and when it arrived.
    loads_reported: BTreeMap<ServerId, (u64, Timestamp)>,
    domains: BTreeMap<DomainId, Watch>,
    /// The epoch under which the domains are watched.
    epoch: u32,
    /// The last proposal for each domain, until its weights change.
    proposals: BTreeMap<DomainId, Proposal>,
}

impl Cluster {
    fn policy(&self) -> Option<&Policy> {
        let policy = &self.seat.as_ref()?.topology.watchdog;
        (policy.mode != Mode::Off).then_some(policy)
    }

    pub(crate) fn next_watch(&self) -> Option<Timestamp> {
        self.policy().map(|_| self.watching.due)
    }

    /// Drops all reports: after a long pause every server would count as silent.
    pub(crate) fn restart_watch(&mut self, now: Timestamp) {
        self.watching.loads_reported.clear();
        self.watching.domains.clear();
        self.watching.due = self.watching.due.max(now.plus(PAUSE));
    }

    /// A server reports its load.
    pub(crate) fn on_load(&mut self, from: ServerId, written: u64, now: Timestamp) {
        if self.policy().is_some() {
            self.watching.loads_reported.insert(from, (written, now));
        }
    }

    /// The proposals of the watch-dog in words, one for each domain concerned.
    pub(crate) fn proposals(&self) -> Vec<String> {
        let Some(seat) = &self.seat else { return Vec::new() };
        let proposals = self.watching.proposals.values();
        proposals.map(|proposal| words(&seat.topology, proposal)).collect()
    }
}

impl Site {
    /// Reports this server's load; the registrar checks all loads.
    pub(crate) fn report_load(&mut self, now: Timestamp) {
        let Some(due) = self.cluster.next_watch() else {
            // Work done before watching was switched on is not reported.
            self.cluster.watching.written = 0;
            return;
        };
        if due > now {
            return;
        }
        self.cluster.watching.due = now.plus(PAUSE);
        let written = std::mem::take(&mut self.cluster.watching.written);
        let Some(here) = self.cluster.seat.as_ref().map(|seat| seat.here) else { return };
        match self.cluster.registrar() {
            Some(registrar) if registrar == here => {
                self.cluster.on_load(here, written, now);
                self.check_loads(now);
            }
            Some(to) => self.out.push(Output::Send {
                to,
                message: Message::Registrar(message::Registrar::Load { written }),
            }),
            None => {}
        }
    }

    /// Compares the loads of each domain with its weights.
    fn check_loads(&mut self, now: Timestamp) {
        let (Some(policy), Some(seat)) = (self.cluster.policy().cloned(), &self.cluster.seat)
        else {
            return;
        };
        let topology = seat.topology.clone();
        if self.catalog.changes().pending().is_some() {
            return;
        }
        if std::mem::replace(&mut self.cluster.watching.epoch, topology.epoch) != topology.epoch {
            self.cluster
                .watching
                .domains
                .values_mut()
                .for_each(|watch| watch.changed(&policy, now));
            self.cluster.watching.proposals.clear();
        }
        let recent = self
            .cluster
            .watching
            .loads_reported
            .iter()
            .filter(|(_, (_, at))| now.since(*at) < SILENCE);
        let loads: BTreeMap<ServerId, u64> = recent.map(|(id, (load, _))| (*id, *load)).collect();
        for domain in (0..).map(DomainId).take(topology.domains.len()) {
            let watched: Vec<Watched> =
                topology.servers_of(domain).map(|(id, server)| Watched::new(id, server)).collect();
            if watched.len() < 2 {
                continue;
            }
            let watch = self.cluster.watching.domains.entry(domain);
            let watch = watch.or_insert_with(|| Watch::new(&policy, now));
            if let Some(proposal) = watch.on_loads(&policy, &watched, &loads, now) {
                self.propose(&topology, domain, proposal, policy.mode, now);
            }
        }
    }

    /// Announces other weights, and publishes them if the topology asks for it.
    fn propose(
        &mut self,
        topology: &Topology,
        domain: DomainId,
        proposal: Proposal,
        mode: Mode,
        now: Timestamp,
    ) {
        let text = format!("the watch-dog proposes: {}", words(topology, &proposal));
        self.out.push(Output::Notice { text });
        let named = |(id, weight)| Some((topology.server(id)?.name.clone(), weight));
        let weights = proposal.weights().filter_map(named).collect();
        self.cluster.watching.proposals.insert(domain, proposal);
        if mode != Mode::Apply {
            return;
        }
        let applied = topology.edited(&Edit::Adjust { weights }).map_err(|error| error.to_string());
        let applied = applied.and_then(|source| {
            let asked =
                PublishTopology { source, method: Some(Method::Since), ..Default::default() };
            let answer = self.publish_topology(&Caller::watchdog(), &asked, now);
            answer.map(drop).map_err(|refusal| refusal.message)
        });
        if let Err(why) = applied {
            let text = format!("what the watch-dog proposes cannot be put in force: {why}");
            self.out.push(Output::Notice { text });
        }
    }
}

fn words(topology: &Topology, proposal: &Proposal) -> String {
    let one = |change: &legwork_placement::Proposed| {
        let server = topology.server(change.watched.server);
        format!("{} {change}", server.map(|server| &*server.name).unwrap_or_default())
    };
    proposal.changes.iter().map(one).collect::<Vec<_>>().join("; ")
}
