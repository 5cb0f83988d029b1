//! The definitions and the organisation in force, in all their versions.
//!
//! Versions count from 1 and are never changed or removed: an instance goes on with the one it
//! started with.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::finding::{Finding, Severity, Span};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_org::{Assignments, Checked, Organisation};

use crate::answer::DefinitionInfo;

/// How many processes a site takes, and how many versions of each.
pub(crate) const PROCESSES_MAX: usize = 10_000;
pub(crate) const VERSIONS_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Catalog {
    processes: BTreeMap<Arc<str>, Vec<Deployed>>,
    /// Of the latest version of every process, to be held against each new organisation.
    assignments: BTreeMap<Arc<str>, Assignments>,
    organisation: Published,
}

#[derive(Debug)]
pub(crate) struct Deployed {
    pub(crate) schema: Arc<Schema>,
    pub(crate) source: Arc<str>,
    pub(crate) at: Timestamp,
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
        let process = schema.process.clone();
        self.assignments.insert(process.clone(), assignments);
        let deployed = Deployed { schema: Arc::new(schema), source: Arc::from(source), at };
        self.processes.entry(process).or_default().push(deployed);
    }

    /// The latest version of every process.
    pub(crate) fn list(&self) -> Vec<DefinitionInfo> {
        self.processes.values().filter_map(|versions| versions.last()).map(Deployed::info).collect()
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

    pub(crate) fn publish(&mut self, organisation: Organisation, version: u32, source: &str) {
        let organisation = Arc::new(organisation);
        self.organisation = Published { organisation, version, source: Arc::from(source) };
    }
}

impl Deployed {
    pub(crate) fn info(&self) -> DefinitionInfo {
        DefinitionInfo {
            process: self.schema.process.clone(),
            version: self.schema.version,
            title: self.schema.title.clone(),
            deployed_at: self.at,
        }
    }
}
