//! Why a request was refused, as RFC 9457 `application/problem+json`.
//!
//! Invariant: `code` is stable and for programs; `detail` is for people, says what to do next and
//! may change.

use std::fmt;

use legwork_model::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::deadlines::DeadlineStep;
use crate::definitions::Finding;
use crate::text;

/// The media type of a problem.
pub const CONTENT_TYPE: &str = "application/problem+json";

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A name for the kind of problem: `urn:legwork:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words; the same for all problems of one status.
    pub title: String,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// What is wrong here, and what to do next.
    pub detail: String,
    /// Stable, for programs.
    #[schema(example = "held_by_another")]
    pub code: String,
    /// What `check` found, when a definition or an organisation was refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// Of a deadline that cannot be promised: the first date that can be, if there is one.
    #[serde(default, with = "text::option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub earliest: Option<Timestamp>,
    /// What would be planned for that date: who would do what when. It is held for five minutes, for the next start of the
    /// same process by the same caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<DeadlineStep>,
}

impl Problem {
    pub fn new(status: u16, code: &str, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:legwork:problem:{code}"),
            title: title(status).to_owned(),
            status,
            detail: detail.into(),
            code: code.to_owned(),
            findings: Vec::new(),
            earliest: None,
            steps: Vec::new(),
        }
    }

    /// Whether the same request may go through later without any change. After
    /// `storage_unavailable` alone it may have gone through already: repeat it under the same
    /// idempotency key, or look first.
    pub fn is_temporary(&self) -> bool {
        matches!(self.status, 429 | 503)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.code)?;
        self.findings.iter().try_for_each(|finding| write!(f, "\n{finding}"))
    }
}

impl std::error::Error for Problem {}

fn title(status: u16) -> &'static str {
    match status {
        400 => "The request is wrong",
        401 => "A token is needed",
        403 => "Not allowed",
        404 => "Not there",
        405 => "The method does not fit the path",
        409 => "It does not fit the present state",
        413 => "The body is too large",
        415 => "The content type does not fit",
        422 => "The request cannot be carried out",
        429 => "Too many requests",
        431 => "The header is too large",
        503 => "Not possible at present",
        _ => "The server failed",
    }
}
