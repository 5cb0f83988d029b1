//! Definitions, organisation and topology, in all versions.
//!
//! Versions count from 1 and are never changed or removed: an instance keeps the version it was started with. An old
//! definition costs no more than its text. The text of an old organisation is read from the site's own stream on
//! request.

pub(crate) mod access;
pub(crate) mod chain;
pub(crate) mod changes;
pub(crate) mod publish;
pub(crate) mod replicate;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use legwork_model::finding::{Finding, Severity, Span};
use legwork_model::id::{DomainId, InstanceId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_model::yaml;
use legwork_org::{Assignments, Checked, Organisation};
use legwork_placement::{Domains, Topology};

use crate::answer::{DefinitionInfo, VersionInfo};
use access::Tokens;
use chain::Chain;
use changes::{Changes, Pending};
use replicate::Replication;

#[derive(Debug, Default)]
pub(crate) struct Catalog {
    processes: BTreeMap<Arc<str>, Vec<Deployed>>,
    /// Assignments in the latest version of every process, checked against each new organisation.
    assignments: BTreeMap<Arc<str>, Assignments>,
    /// Domains in the latest version of every process, checked against the first topology.
    domains: BTreeMap<Arc<str>, Domains>,
    organisation: Published,
    /// All versions of the organisation, including the one in force.
    editions: Vec<Edition>,
    topology: Option<PublishedTopology>,
    topologies: Vec<Edition>,
    changes: Changes,
    /// Processes whose latest version was replayed and is not in force yet.
    replayed: BTreeSet<Arc<str>>,
    /// Whether the organisation was replayed and is not in force yet.
    is_organisation_replayed: bool,
    /// Size of the texts of all definitions.
    source_bytes: u64,
    pub(crate) tokens: Tokens,
    pub(crate) log: Log,
    pub(crate) replication: Replication,
}

/// The site's own stream, which records the catalog.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Number of records.
    pub(crate) version: u64,
    /// Checksums of the records.
    pub(crate) chain: Chain,
    /// Faults found while reading this stream or that of the plans.
    pub(crate) faults: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Deployed {
    process: Arc<str>,
    pub(crate) version: u32,
    pub(crate) source: Arc<str>,
    at: Timestamp,
    /// Compiled on first use: most versions are no longer in use.
    schema: OnceCell<Result<Arc<Schema>, String>>,
}

/// The topology in force.
#[derive(Debug)]
pub(crate) struct PublishedTopology {
    pub(crate) topology: Arc<Topology>,
    pub(crate) source: Arc<str>,
}

/// Where a version of the organisation or of the topology is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edition {
    /// Number of its record in the site's own stream.
    pub(crate) record: u64,
    at: Timestamp,
}

/// The organisation in force; version 0 is empty and precedes the first published one.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) organisation: Arc<Organisation>,
    pub(crate) version: u32,
    pub(crate) source: Arc<str>,
}

impl Catalog {
    /// Parses and checks a definition against the organisation in force, if there is one. Returns it with its future
    /// version, and the warnings.
    pub(crate) fn check(&self, source: &str) -> Result<(Checked, Vec<Finding>), Vec<Finding>> {
        let Published { organisation, version, .. } = &self.organisation;
        let organisation = (*version > 0).then_some(&**organisation);
        let (checked, mut findings) = legwork_org::check_text(source, organisation);
        let Some(mut checked) = checked else { return Err(findings) };
        if let Some(published) = &self.topology {
            findings.extend(Domains::of(&checked.definition).check(&published.topology));
            findings.sort();
            if findings.iter().any(|finding| finding.severity == Severity::Error) {
                return Err(findings);
            }
        }
        checked.schema.version = self.versions(&checked.schema.process).len() as u32 + 1;
        Ok((checked, findings))
    }

    pub(crate) fn versions(&self, process: &str) -> &[Deployed] {
        self.processes.get(process).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn len(&self) -> usize {
        self.processes.len()
    }

    /// The given version, or the latest.
    pub(crate) fn find(&self, process: &str, version: Option<u32>) -> Option<&Deployed> {
        let versions = self.versions(process);
        match version {
            None => versions.last(),
            Some(number) => versions.get((number as usize).checked_sub(1)?),
        }
    }

    pub(crate) fn deploy(&mut self, checked: Checked, source: &str, at: Timestamp) {
        let Checked { schema, assignments, definition } = checked;
        let (process, version) = (schema.process.clone(), schema.version);
        self.assignments.insert(process.clone(), assignments);
        self.domains.insert(process.clone(), Domains::of(&definition));
        let deployed = Deployed {
            process: process.clone(),
            version,
            source: Arc::from(source),
            at,
            schema: OnceCell::from(Ok(Arc::new(schema))),
        };
        self.push(deployed);
    }

    /// Adds a replayed version; see `put_in_force`.
    pub(crate) fn redeploy(&mut self, process: Arc<str>, source: &str, at: Timestamp) {
        let version = self.versions(&process).len() as u32 + 1;
        let (source, schema) = (Arc::from(source), OnceCell::new());
        self.replayed.insert(process.clone());
        self.push(Deployed { process, version, source, at, schema });
    }

    fn push(&mut self, deployed: Deployed) {
        self.source_bytes += deployed.source.len() as u64;
        self.processes.entry(deployed.process.clone()).or_default().push(deployed);
    }

    /// Size of the texts of all definitions in bytes.
    pub(crate) fn source_bytes(&self) -> u64 {
        self.source_bytes
    }

    /// Puts the latest replayed versions in force. Returns the faults.
    ///
    /// Does not check them again: a process accepted by an older check keeps running.
    pub(crate) fn put_in_force(&mut self) -> Vec<String> {
        let mut faults = Vec::new();
        let version = self.organisation.version;
        if std::mem::take(&mut self.is_organisation_replayed) {
            match Organisation::parse(&self.organisation.source) {
                (Some(parsed), _) => self.organisation.organisation = Arc::new(parsed),
                (None, _) => faults.push(format!("organisation version {version} is unreadable")),
            }
        }
        for process in std::mem::take(&mut self.replayed) {
            let versions = self.processes.get(&process);
            let Some(latest) = versions.and_then(|versions| versions.last()) else { continue };
            match latest.compile() {
                Ok((schema, assignments, domains)) => {
                    self.assignments.insert(process.clone(), assignments);
                    self.domains.insert(process, domains);
                    drop(latest.schema.set(Ok(Arc::new(schema))));
                }
                Err(fault) => faults.push(fault),
            }
        }
        faults
    }

    /// The latest version of every process after the given name.
    pub(crate) fn list(&self, after: Option<&str>) -> impl Iterator<Item = DefinitionInfo> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let processes = self.processes.range::<str, _>((from, Bound::Unbounded));
        processes.filter_map(|(_, versions)| versions.last()).map(Deployed::info)
    }

    /// Warnings for all that the latest definitions need and an organisation lacks; no errors, since the processes
    /// already run.
    pub(crate) fn check_all(&self, organisation: &Organisation) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (process, assignments) in &self.assignments {
            for finding in assignments.check(organisation) {
                let message =
                    format!("process `{process}` at {}: {}", finding.span, finding.message);
                let (severity, span) = (Severity::Warning, Span::default());
                findings.push(Finding { severity, span, message, ..finding });
            }
        }
        findings
    }

    pub(crate) fn organisation(&self) -> &Organisation {
        &self.organisation.organisation
    }

    pub(crate) fn published(&self) -> &Published {
        &self.organisation
    }

    /// Where a version of the organisation is stored.
    pub(crate) fn edition(&self, version: u32) -> Option<Edition> {
        self.editions.get((version as usize).checked_sub(1)?).copied()
    }

    /// The versions of the organisation after the given one, oldest first.
    pub(crate) fn editions(&self, after: u32) -> impl Iterator<Item = VersionInfo> {
        let editions = self.editions.iter().enumerate().skip(after as usize);
        editions.map(|(place, edition)| VersionInfo { version: place as u32 + 1, at: edition.at })
    }

    /// `record` is the number of its record in the site's own stream.
    pub(crate) fn publish(
        &mut self,
        organisation: Organisation,
        source: &str,
        record: u64,
        at: Timestamp,
    ) {
        self.republish(source, record, at);
        self.is_organisation_replayed = false;
        self.organisation.organisation = Arc::new(organisation);
    }

    /// Whether an organisation was replayed and is not in force yet.
    pub(crate) fn awaits_organisation(&self) -> bool {
        self.is_organisation_replayed
    }

    pub(crate) fn topology(&self) -> Option<&PublishedTopology> {
        self.topology.as_ref()
    }

    /// Where an epoch of the topology is stored.
    pub(crate) fn topology_edition(&self, epoch: u32) -> Option<Edition> {
        self.topologies.get((epoch as usize).checked_sub(1)?).copied()
    }

    /// The epochs of the topology after the given one, oldest first.
    pub(crate) fn topology_editions(&self, after: u32) -> impl Iterator<Item = VersionInfo> {
        let editions = self.topologies.iter().enumerate().skip(after as usize);
        editions.map(|(place, edition)| VersionInfo { version: place as u32 + 1, at: edition.at })
    }

    /// `record` is the number of its record in the site's own stream.
    pub(crate) fn publish_topology(
        &mut self,
        topology: Topology,
        source: &str,
        record: u64,
        at: Timestamp,
    ) {
        self.topologies.push(Edition { record, at });
        self.changes.published(&topology, at);
        let (topology, source) = (Arc::new(topology), Arc::from(source));
        self.topology = Some(PublishedTopology { topology, source });
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    pub(crate) fn begin_change(&mut self, pending: Pending) -> Result<(), String> {
        self.changes.begin(pending)
    }

    pub(crate) fn except(&mut self, domain: DomainId, ids: Vec<InstanceId>) -> Result<(), String> {
        self.changes.except(domain, ids)
    }

    pub(crate) fn undo_change(&mut self, number: u32, why: &str) -> Result<(), String> {
        self.changes.undo(number, why)
    }

    /// Drops exceptions of a domain whose instances have ended.
    pub(crate) fn unexcept(&mut self, domain: DomainId, ids: Vec<InstanceId>) {
        let Some(published) = &mut self.topology else { return };
        let topology = Arc::make_mut(&mut published.topology);
        if let Some(domain) = topology.domains.get_mut(usize::from(domain.0)) {
            domain.chain.forget(&ids.into_iter().collect());
        }
    }

    /// Errors for the domains that the latest definitions name and a topology lacks.
    pub(crate) fn misplaced(&self, topology: &Topology) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (process, domains) in &self.domains {
            let findings_of = domains.check(topology);
            let errors = findings_of.into_iter().filter(|one| one.severity == Severity::Error);
            for finding in errors {
                let message =
                    format!("process `{process}` at {}: {}", finding.span, finding.message);
                let hint = "add the domain, or deploy the process without it first".to_owned();
                findings.push(Finding { span: Span::default(), message, hint, ..finding });
            }
        }
        findings
    }

    /// Adds a replayed version; see `put_in_force`.
    pub(crate) fn republish(&mut self, source: &str, record: u64, at: Timestamp) {
        self.is_organisation_replayed = true;
        self.editions.push(Edition { record, at });
        self.organisation.version = self.editions.len() as u32;
        self.organisation.source = Arc::from(source);
    }
}

impl Deployed {
    /// The compiled definition, or why it cannot be compiled.
    pub(crate) fn schema(&self) -> Result<&Arc<Schema>, &str> {
        let made = || self.compile().map(|(schema, ..)| Arc::new(schema));
        self.schema.get_or_init(made).as_ref().map_err(String::as_str)
    }

    fn compile(&self) -> Result<(Schema, Assignments, Domains), String> {
        let fault = |why: &dyn std::fmt::Display| {
            format!("process `{}` version {} {why}", self.process, self.version)
        };
        let (definition, _) = yaml::parse(&self.source);
        let definition = definition.ok_or_else(|| fault(&"is unreadable"))?;
        let schema = legwork_model::compile::compile(&definition, self.version)
            .map_err(|error| fault(&format!("cannot be carried out: {error}")))?;
        Ok((schema, Assignments::of(&definition), Domains::of(&definition)))
    }

    pub(crate) fn version_info(&self) -> VersionInfo {
        VersionInfo { version: self.version, at: self.at }
    }

    pub(crate) fn info(&self) -> DefinitionInfo {
        let title = self.schema().map_or(&self.process, |schema| &schema.title);
        DefinitionInfo {
            process: self.process.clone(),
            version: self.version,
            title: title.clone(),
            deployed_at: self.at,
        }
    }
}
