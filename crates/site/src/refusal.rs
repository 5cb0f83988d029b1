//! Refusals: a stable code, and a message that says what to do next.
//!
//! A refused request has changed nothing.

use std::fmt;

use legwork_model::finding::Finding;
use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

use crate::answer::DeadlineView;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: Kind,
    /// Stable, for programs.
    pub code: &'static str,
    /// For people.
    pub message: String,
    /// The findings of the check, if a definition or an organisation was refused.
    pub findings: Vec<Finding>,
    /// The server that can carry out the request, if this one cannot: the driver forwards the request.
    pub at: Option<ServerId>,
    /// Of a deadline: the first one that could be promised, with its plan.
    pub possible: Option<Box<DeadlineView>>,
}

/// The kind of a refusal; the API derives the status from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The request itself is wrong.
    Invalid,
    Unauthenticated,
    Forbidden,
    NotFound,
    /// It does not fit the present state.
    Conflict,
    /// A limit is reached; it may succeed later.
    Exhausted,
    /// A stored record cannot be understood; waiting does not help.
    Broken,
}

impl Refusal {
    pub(crate) fn new(kind: Kind, code: &'static str, message: impl Into<String>) -> Self {
        Self { kind, code, message: message.into(), findings: Vec::new(), at: None, possible: None }
    }

    pub(crate) fn unauthenticated(message: &str) -> Self {
        let next = "give a token that `legwork token create` printed";
        Self::new(Kind::Unauthenticated, "unauthenticated", format!("{message}; {next}"))
    }

    pub(crate) fn forbidden(needed: &str) -> Self {
        let message =
            format!("the token lacks the scope {needed}; ask an admin for one that has it");
        Self::new(Kind::Forbidden, "forbidden", message)
    }

    pub(crate) fn not_found(code: &'static str, what: impl fmt::Display) -> Self {
        Self::new(Kind::NotFound, code, format!("there is no {what}"))
    }

    pub(crate) fn check_failed(findings: Vec<Finding>) -> Self {
        Self {
            kind: Kind::Invalid,
            code: "check_failed",
            message: "the check found errors; mend them and try again".to_owned(),
            findings,
            at: None,
            possible: None,
        }
    }

    /// Of a deadline: the first one that could be promised.
    pub fn earliest(&self) -> Option<Timestamp> {
        self.possible.as_ref().map(|deadline| deadline.at)
    }

    /// The same refusal, with the server that can carry out the request.
    pub(crate) fn at(self, server: Option<ServerId>) -> Self {
        Self { at: server, ..self }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}
