//! The definitions and the organisation in force, in all their versions.
//!
//! Versions count from 1 and are never changed or removed: an instance goes on with the one it
//! started with. What is not in use costs no more than its text, an organisation that is no longer
//! in force not even that: it is read from the site's own stream when somebody asks for it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use legwork_model::finding::{Finding, Severity, Span};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_model::yaml;
use legwork_org::{Assignments, Checked, Organisation};

use crate::answer::{DefinitionInfo, VersionInfo};

#[derive(Debug, Default)]
pub(crate) struct Catalog {
    processes: BTreeMap<Arc<str>, Vec<Deployed>>,
    /// Of the latest version of every process, to be held against each new organisation.
    assignments: BTreeMap<Arc<str>, Assignments>,
    organisation: Published,
    /// All versions of the organisation, the one in force included.
    editions: Vec<Edition>,
    /// Of the texts of all definitions.
    source_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Deployed {
    process: Arc<str>,
    pub(crate) version: u32,
    pub(crate) source: Arc<str>,
    at: Timestamp,
    /// Made of the text when it is needed: most versions are of the past.
    schema: OnceCell<Result<Arc<Schema>, String>>,
}

/// Where a version of the organisation is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edition {
    /// The number of its record in the site's own stream.
    pub(crate) record: u64,
    at: Timestamp,
}

/// The organisation in force; version 0 is the empty one before the first is published.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub(crate) organisation: Arc<Organisation>,
    pub(crate) version: u32,
    pub(crate) source: Arc<str>,
}

impl Catalog {
    /// Reads and checks a definition against the organisation in force, if there is one; with the
    /// version it will have, and the warnings.
    pub(crate) fn check(&self, source: &str) -> Result<(Checked, Vec<Finding>), Vec<Finding>> {
        let Published { organisation, version, .. } = &self.organisation;
        let organisation = (*version > 0).then_some(&**organisation);
        let (checked, findings) = legwork_org::check_text(source, organisation);
        let Some(mut checked) = checked else { return Err(findings) };
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

    pub(crate) fn deploy(
        &mut self,
        schema: Schema,
        assignments: Assignments,
        source: &str,
        at: Timestamp,
    ) {
        let (process, version) = (schema.process.clone(), schema.version);
        self.assignments.insert(process.clone(), assignments);
        let deployed = Deployed {
            process: process.clone(),
            version,
            source: Arc::from(source),
            at,
            schema: OnceCell::from(Ok(Arc::new(schema))),
        };
        self.push(deployed);
    }

    /// Takes in a version that was deployed before; see `finish_recovery`.
    pub(crate) fn redeploy(&mut self, process: Arc<str>, source: &str, at: Timestamp) {
        let version = self.versions(&process).len() as u32 + 1;
        let (source, schema) = (Arc::from(source), OnceCell::new());
        self.push(Deployed { process, version, source, at, schema });
    }

    fn push(&mut self, deployed: Deployed) {
        self.source_bytes += deployed.source.len() as u64;
        self.processes.entry(deployed.process.clone()).or_default().push(deployed);
    }

    /// The bytes of the texts of all definitions.
    pub(crate) fn source_bytes(&self) -> u64 {
        self.source_bytes
    }

    /// All has come that was published before: what is in force is put into force. Answers what
    /// cannot be understood. Not checked again: what ran under an older check goes on running.
    pub(crate) fn finish_recovery(&mut self) -> Vec<String> {
        let mut faults = Vec::new();
        let version = self.organisation.version;
        if version > 0 {
            match Organisation::parse(&self.organisation.source) {
                (Some(parsed), _) => self.organisation.organisation = Arc::new(parsed),
                (None, _) => faults.push(format!("organisation version {version} is unreadable")),
            }
        }
        for latest in self.processes.values().filter_map(|versions| versions.last()) {
            match latest.compile() {
                Ok((schema, assignments)) => {
                    self.assignments.insert(latest.process.clone(), assignments);
                    drop(latest.schema.set(Ok(Arc::new(schema))));
                }
                Err(fault) => faults.push(fault),
            }
        }
        faults
    }

    /// The latest version of every process after the given one.
    pub(crate) fn list(&self, after: Option<&str>) -> impl Iterator<Item = DefinitionInfo> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let processes = self.processes.range::<str, _>((from, Bound::Unbounded));
        processes.filter_map(|(_, versions)| versions.last()).map(Deployed::info)
    }

    /// What the latest definitions miss in an organisation; a warning, since they run already.
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

    /// Where a version of the organisation is kept.
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
        self.organisation.organisation = Arc::new(organisation);
    }

    /// Takes in a version that was published before; see `finish_recovery`.
    pub(crate) fn republish(&mut self, source: &str, record: u64, at: Timestamp) {
        self.editions.push(Edition { record, at });
        self.organisation.version = self.editions.len() as u32;
        self.organisation.source = Arc::from(source);
    }
}

impl Deployed {
    /// The executable form, or why there is none.
    pub(crate) fn schema(&self) -> Result<&Arc<Schema>, &str> {
        let made = || self.compile().map(|(schema, _)| Arc::new(schema));
        self.schema.get_or_init(made).as_ref().map_err(String::as_str)
    }

    fn compile(&self) -> Result<(Schema, Assignments), String> {
        let fault = |why: &dyn std::fmt::Display| {
            format!("process `{}` version {} {why}", self.process, self.version)
        };
        let (definition, _) = yaml::parse(&self.source);
        let definition = definition.ok_or_else(|| fault(&"is unreadable"))?;
        let schema = legwork_model::compile::compile(&definition, self.version)
            .map_err(|error| fault(&format!("cannot be carried out: {error}")))?;
        Ok((schema, Assignments::of(&definition)))
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
