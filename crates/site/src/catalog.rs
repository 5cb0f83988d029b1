//! The definitions and the organisation in force, in all their versions.
//!
//! Versions count from 1 and are never changed or removed: an instance goes on with the one it
//! started with.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::finding::{Finding, Rule, Severity, Span};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_model::{check, compile, yaml};
use legwork_org::{Assignments, Organisation};

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

/// A definition that passed the check.
pub(crate) struct Checked {
    pub(crate) schema: Schema,
    pub(crate) assignments: Assignments,
    pub(crate) warnings: Vec<Finding>,
}

impl Catalog {
    /// Reads and checks a definition; `version` is the number it will have.
    pub(crate) fn check(&self, source: &str) -> Result<Checked, Vec<Finding>> {
        let (definition, mut findings) = yaml::parse(source);
        let Some(definition) = definition else { return Err(findings) };
        findings.extend(check::check(&definition));
        let assignments = Assignments::of(&definition);
        if self.organisation.version > 0 {
            findings.extend(assignments.check(&self.organisation.organisation));
        }
        if findings.iter().any(|finding| finding.severity == Severity::Error) {
            return Err(findings);
        }
        let version = self.versions(&definition.process.value).len() as u32 + 1;
        match compile::compile(&definition, version) {
            Ok(schema) => match check::graph(&schema).into_iter().next() {
                None => Ok(Checked { schema, assignments, warnings: findings }),
                Some(fault) => Err(vec![not_runnable(fault)]),
            },
            Err(error) => Err(vec![not_runnable(error.to_string())]),
        }
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

/// What the check has let through and cannot run all the same: a gap in the check.
fn not_runnable(message: String) -> Finding {
    Finding {
        span: Span::default(),
        severity: Severity::Error,
        rule: Rule::Y2,
        message,
        hint: "correct the step or the sync edges it speaks of, and report this gap in the check"
            .to_owned(),
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
