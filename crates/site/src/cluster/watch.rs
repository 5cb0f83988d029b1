//! The watch-dog: every server tells the registrar how much it does, and the registrar holds it
//! against what the weights are meant to bring.
//!
//! Invariant: nothing is told or watched unless the topology says so. What comes of it is a proposal,
//! or by the same topology a change like any other, recorded in the name of the watch-dog. What was
//! seen is volatile: a registrar that comes back begins to watch anew.

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

/// How often a server tells how much it has done.
const PAUSE: Duration = Duration::from_secs(30);
/// Whoever has not told for this long is not counted on.
const SILENCE: Duration = Duration::from_secs(90);

#[derive(Debug, Default)]
pub(crate) struct Watching {
    /// Records of instances written here since that was last told.
    pub(crate) written: u64,
    due: Timestamp,
    /// At the registrar: what each server has told last, and when.
    told: BTreeMap<ServerId, (u64, Timestamp)>,
    domains: BTreeMap<DomainId, Watch>,
    /// The epoch that the domains are watched under.
    epoch: u32,
    /// The last proposal of each domain, until its weights change.
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

    /// What was told before counts as if it had never been: all have been silent for longer than they may.
    pub(crate) fn watch_anew(&mut self, now: Timestamp) {
        self.watching.told.clear();
        self.watching.domains.clear();
        self.watching.due = self.watching.due.max(now.plus(PAUSE));
    }

    /// A server has told how much it has done.
    pub(crate) fn on_load(&mut self, from: ServerId, written: u64, now: Timestamp) {
        if self.policy().is_some() {
            self.watching.told.insert(from, (written, now));
        }
    }

    /// What the watch-dog proposes, in words, for each domain that it proposes something for.
    pub(crate) fn proposals(&self) -> Vec<String> {
        let Some(seat) = &self.seat else { return Vec::new() };
        let proposals = self.watching.proposals.values();
        proposals.map(|proposal| words(&seat.topology, proposal)).collect()
    }
}

impl Site {
    /// Tells how much was done here; the registrar looks at what all have told.
    pub(crate) fn watch(&mut self, now: Timestamp) {
        let Some(due) = self.cluster.next_watch() else {
            // Work from before somebody wanted it watched is not told.
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
                self.look_after(now);
            }
            Some(to) => self.out.push(Output::Send {
                to,
                message: Message::Registrar(message::Registrar::Load { written }),
            }),
            None => {}
        }
    }

    /// Holds the loads of each domain against what is meant.
    fn look_after(&mut self, now: Timestamp) {
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
        let recent =
            self.cluster.watching.told.iter().filter(|(_, (_, at))| now.since(*at) < SILENCE);
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

    /// Tells of other weights, and puts them in force if that is wanted.
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
