//! Publishing topologies, and this server's seat in the one in force.
//!
//! Invariant: the seat follows the catalog. So a server that knows a definition also knows a topology with all its
//! domains, and the numbers of domains and servers mean the same everywhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::event::{Performer, SiteEvent, Validity};
use legwork_model::finding::{Finding, Rule, Severity, Span};
use legwork_model::id::{DomainId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_placement::{Rule as Counts, Topology, is_placed, unknown_domain};

use crate::answer::Answer;
use crate::catalog::Catalog;
use crate::catalog::access::Caller;
use crate::cluster::Cluster;
use crate::cluster::reconfigure::under_way;
use crate::cluster::seat::Seat;
use crate::input::{PublishTopology, RequestId};
use crate::output::Output;
use crate::refusal::{Kind, Refusal};
use crate::{Site, page};

impl Catalog {
    /// The topology that follows from a text and the one in force, and the errors of the text. `rules` says from when
    /// on the weights of each changed domain apply.
    pub(crate) fn next_topology(
        &self,
        source: &str,
        rules: &BTreeMap<DomainId, Counts>,
    ) -> (Option<Topology>, Vec<Finding>) {
        let previous = self.topology().map(|published| &*published.topology);
        Topology::succeed(source, previous, rules)
    }

    pub(crate) fn topology_versions(
        &self,
        caller: &Caller,
        after: u32,
        limit: usize,
    ) -> Result<Answer, Refusal> {
        caller.require_any()?;
        let (versions, more) = page(self.topology_editions(after), limit);
        Ok(Answer::Versions { versions, more })
    }
}

impl Cluster {
    /// Refuses a definition older than the topology that names domains the topology lacks: they could be added while it
    /// runs.
    pub(crate) fn require_domains(&self, schema: &Schema) -> Result<(), Refusal> {
        let unknown = self.seat.as_ref().and_then(|seat| unknown_domain(schema, &seat.topology));
        let Some(name) = unknown else { return Ok(()) };
        let message = format!(
            "version {} of `{}` names the domain `{name}`, which the topology does not have; start \
             a later version",
            schema.version, schema.process
        );
        Err(Refusal::new(Kind::Conflict, "no_such_domain", message))
    }

    /// Refuses requests that only the registrar can carry out.
    pub(crate) fn require_registrar(&self) -> Result<(), Refusal> {
        let Some(seat) = self.seat() else { return Ok(()) };
        match seat.topology.registrar() {
            Some(registrar) if registrar != seat.here => {
                let name = seat.topology.server(registrar).map(|server| &*server.name);
                let message = format!(
                    "only `{}` changes definitions, organisation, topology and tokens; ask there",
                    name.unwrap_or_default()
                );
                let refusal = Refusal::new(Kind::Conflict, "not_registrar", message);
                Err(refusal.at(Some(registrar)))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The registrar, as far as known here.
    pub(crate) fn registrar(&self) -> Option<ServerId> {
        self.seat().and_then(|seat| seat.topology.registrar())
    }
}

impl Site {
    /// Reads the topology file this server was started with.
    pub(crate) fn read_bootstrap(&mut self) {
        let Some(member) = &self.config.member else { return };
        let (topology, findings) = Topology::parse(&member.topology);
        let here = topology.as_ref().and_then(|topology| topology.server_named(&member.name));
        match (topology, here) {
            (Some(topology), Some(here)) => {
                self.cluster.bootstrap = Some(Seat { here, topology: Arc::new(topology) });
                self.cluster.index_names();
            }
            (Some(_), None) => {
                let name = &member.name;
                self.catalog.log.faults.push(format!(
                    "the topology this server was started with has no server `{name}`"
                ));
            }
            (None, _) => {
                let why = findings.first().map(ToString::to_string).unwrap_or_default();
                self.catalog.log.faults.push(format!(
                    "the topology this server was started with is unreadable: {why}"
                ));
            }
        }
    }

    /// The first input after a start: the first registrar publishes the topology it was started with.
    pub(crate) fn begin(&mut self, now: Timestamp) {
        if std::mem::replace(&mut self.cluster.has_begun, true) {
            return;
        }
        // Before anything has changed.
        self.note_recovered_fates();
        self.follow_changes(now);
        if self.catalog.topology().is_some() {
            return;
        }
        let (Some(seat), Some(member)) = (&self.cluster.bootstrap, &self.config.member) else {
            return;
        };
        if seat.topology.registrar() != Some(seat.here) {
            return;
        }
        let (topology, source) = (Topology::clone(&seat.topology), member.topology.clone());
        match self.first_fits(&topology) {
            Ok(()) => {
                let by = Caller::itself().performer();
                self.put_topology(topology, &source, Vec::new(), by, now);
            }
            Err(refusal) => {
                let why = refusal.findings.first().map(|finding| finding.message.clone());
                let why = why.unwrap_or(refusal.message);
                let text =
                    format!("the topology is not published, and this server is alone: {why}");
                self.out.push(Output::Notice { text });
            }
        }
    }

    /// Updates the seat from the topology in force.
    pub(crate) fn follow_topology(&mut self) {
        let Some(member) = &self.config.member else { return };
        let topology = self.catalog.topology().map(|published| published.topology.clone());
        let seat = topology.and_then(|topology| {
            let here = topology.server_named(&member.name)?;
            Some(Seat { here, topology })
        });
        if self.cluster.seat.is_none() && seat.is_some() {
            self.catalog.forget_file_numbers();
        }
        self.cluster.seat = seat;
        self.cluster.index_names();
    }

    /// The topology in force, if this server was started alone with the store of one of its servers. It must not run:
    /// it would repeat the work of others.
    pub fn member_alone(&self) -> Option<&Topology> {
        let published = self.catalog.topology()?;
        self.config.member.is_none().then_some(&*published.topology)
    }

    /// Publishes a topology, at once if it moves nothing, else as a change.
    pub(crate) fn publish_topology(
        &mut self,
        caller: &Caller,
        asked: &PublishTopology,
        now: Timestamp,
    ) -> Result<Answer, Refusal> {
        caller.require_admin()?;
        if !asked.dry_run {
            self.cluster.require_registrar()?;
        }
        if self.config.member.is_none() {
            let message = "this server is alone; start it with `legwork up --cluster DIR`, where \
                           `legwork cluster init` made DIR";
            return Err(Refusal::new(Kind::Conflict, "not_a_member", message));
        }
        let in_force = self.catalog.topology().filter(|last| *last.source == asked.source);
        if let (Some(published), false) = (in_force, asked.dry_run) {
            let version = published.topology.epoch;
            return Ok(Answer::Published { version, unchanged: true, warnings: Vec::new() });
        }
        let (topology, findings) = self.catalog.next_topology(&asked.source, &BTreeMap::new());
        let topology = topology.ok_or_else(|| Refusal::check_failed(findings))?;
        let change = self.catalog.topology().map(|last| last.topology.change_to(&topology));
        if asked.dry_run {
            let method = asked.method.unwrap_or_default();
            return Ok(self.dry_run(method, &topology, &change.unwrap_or_default()));
        }
        if let Some(pending) = self.catalog.changes().pending() {
            // The same request again gets the progress of the change.
            let is_same = *pending.source == asked.source;
            return if is_same { Ok(self.changing()) } else { Err(under_way(pending)) };
        }
        self.require_epochs(&topology)?;
        match change {
            None => self.first_fits(&topology)?,
            Some(change) if !change.is_empty() => {
                return self.begin_change(caller, asked, topology, change, now);
            }
            Some(_) => {}
        }
        let version = topology.epoch;
        self.put_topology(topology, &asked.source, Vec::new(), caller.performer(), now);
        Ok(Answer::Published { version, unchanged: false, warnings: Vec::new() })
    }

    fn require_epochs(&self, topology: &Topology) -> Result<(), Refusal> {
        let most = self.config.limits.topologies;
        if topology.epoch as usize <= most {
            return Ok(());
        }
        let message = format!(
            "the topology has been published {most} times, the most allowed; publish less often, \
             and continue with new servers"
        );
        Err(Refusal::new(Kind::Conflict, "too_many_topologies", message))
    }

    pub(crate) fn put_topology(
        &mut self,
        topology: Topology,
        source: &str,
        rules: Vec<(DomainId, Validity)>,
        by: Performer,
        now: Timestamp,
    ) {
        let epoch = topology.epoch;
        self.catalog.publish_topology(topology, source, self.catalog.log.version, now);
        self.follow_topology();
        let source = source.to_owned();
        self.record(SiteEvent::TopologyPublished { epoch, source, by, rules }, now);
        self.follow_changes(now);
    }

    /// Whether the first topology fits the instances and definitions that were here before. A later topology
    /// changes only what fits.
    fn first_fits(&self, topology: &Topology) -> Result<(), Refusal> {
        let mut findings = self.catalog.misplaced(topology);
        let registrar = topology.registrar().and_then(|id| topology.server(id));
        let own = self.config.member.as_ref().map(|member| &member.name);
        if registrar.map(|server| &server.name) != own {
            let name = own.map(|name| &**name).unwrap_or_default();
            findings.push(Finding {
                span: Span::default(),
                severity: Severity::Error,
                rule: Rule::Y2,
                message: format!("`{name}`, where it is published, is not its first server"),
                hint: "the first server in the file keeps the catalog: publish it there".to_owned(),
            });
        }
        if !findings.is_empty() {
            return Err(Refusal::check_failed(findings));
        }
        let mut open = self.cases.instances.newest_first(None);
        match open.find(|(_, slot)| is_placed(&slot.schema)) {
            None => Ok(()),
            Some((id, slot)) => {
                let process = &slot.schema.process;
                let message = format!(
                    "instance {id} of `{process}`, a process with places for its steps, was begun \
                     before there was a topology; wait for the end of {id}, or abort {id}"
                );
                Err(Refusal::new(Kind::Conflict, "begun_alone", message))
            }
        }
    }

    /// The topology in force, or another epoch read from the store.
    pub(crate) fn topology(&mut self, id: RequestId, caller: &Caller, epoch: Option<u32>) {
        let in_force = self.catalog.topology();
        let answer = match (caller.require_any(), in_force) {
            (Err(refusal), _) => Err(refusal),
            (Ok(()), Some(published))
                if epoch.is_none_or(|asked| asked == published.topology.epoch) =>
            {
                Ok(Answer::Topology {
                    topology: published.topology.clone(),
                    source: published.source.clone(),
                    here: self.cluster.seat.as_ref().map(|seat| seat.here),
                })
            }
            (Ok(()), Some(_) | None) => {
                match epoch.and_then(|asked| self.catalog.topology_edition(asked)) {
                    Some(edition) => {
                        return self.out.push(Output::ReadOwn { id, record: edition.record });
                    }
                    None => Err(no_epoch(epoch)),
                }
            }
        };
        self.answer(id, answer);
    }
}

fn no_epoch(epoch: Option<u32>) -> Refusal {
    let what = match epoch {
        Some(epoch) => {
            format!("topology of epoch {epoch}; `GET /v1/topology/versions` lists them")
        }
        None => "topology: this server is alone, or has not received the catalog yet".to_owned(),
    };
    Refusal::not_found("no_topology", what)
}
