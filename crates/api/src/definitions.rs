//! Processes and the organisation: publishing, reading and checking them.
//!
//! Invariant: what is published is kept word for word; `source` always answers the very text that
//! was sent.

use std::fmt;
use std::sync::Arc;

use legwork_model::finding;
use legwork_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::text;

/// A definition or an organisation, as its author wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The YAML text.
    pub source: String,
}

/// A definition was deployed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deployed {
    pub process: Arc<str>,
    /// Counts from 1.
    pub version: u32,
    /// The latest version has the same text already: nothing was stored.
    pub unchanged: bool,
    pub warnings: Vec<Finding>,
}

/// An organisation was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Published {
    /// Counts from 1.
    pub version: u32,
    /// The latest version has the same text already: nothing was stored.
    pub unchanged: bool,
    pub warnings: Vec<Finding>,
}

/// One version of a process, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DefinitionSummary {
    pub process: Arc<str>,
    pub version: u32,
    pub title: Arc<str>,
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub deployed_at: Timestamp,
}

/// The latest version of every process, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DefinitionList {
    pub definitions: Vec<DefinitionSummary>,
    /// The cursor of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One version of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Definition {
    #[serde(flatten)]
    pub summary: DefinitionSummary,
    /// The YAML text as it was deployed.
    pub source: Arc<str>,
}

/// The versions of a process or of the organisation, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionList {
    pub versions: Vec<VersionSummary>,
    /// The cursor of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionSummary {
    /// Counts from 1.
    pub version: u32,
    #[serde(with = "text")]
    #[schema(value_type = String, format = DateTime)]
    pub published_at: Timestamp,
}

/// A version of the organisation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Organisation {
    pub version: u32,
    /// The YAML text as it was published.
    pub source: Arc<str>,
    pub agents: Vec<Agent>,
}

/// A person, or a program that acts as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Agent {
    pub agent: Arc<str>,
    pub name: String,
}

/// Texts to check; nothing is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckRequest {
    /// The YAML text of a definition.
    pub source: String,
    /// The YAML text of an organisation: then it is checked too, and whether every step of the
    /// definition can be done by somebody in it. Without one, by somebody in the one in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organisation: Option<String>,
}

/// What `check` found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckAnswer {
    /// Whether it could be deployed: there is no finding of severity `error`.
    pub ok: bool,
    /// About the definition.
    pub findings: Vec<Finding>,
    /// About the organisation.
    pub organisation_findings: Vec<Finding>,
}

/// One remark of `check`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// Counts from 1; 0 stands for the whole text.
    pub line: u32,
    /// Counts from 1; 0 stands for the whole text.
    pub column: u32,
    pub severity: Severity,
    /// The rule it speaks of.
    #[schema(example = "D1")]
    pub rule: String,
    /// What is wrong.
    pub message: String,
    /// What would mend it.
    pub hint: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It cannot be deployed like this.
    Error,
    Warning,
}

impl From<&finding::Finding> for Finding {
    fn from(found: &finding::Finding) -> Self {
        Self {
            line: found.span.line,
            column: found.span.column,
            severity: match found.severity {
                finding::Severity::Error => Severity::Error,
                finding::Severity::Warning => Severity::Warning,
            },
            rule: found.rule.to_string(),
            message: found.message.clone(),
            hint: found.hint.clone(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, severity, rule, message, hint } = self;
        let severity = match severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{line}:{column}: {severity} {rule}: {message}\n    hint: {hint}")
    }
}
