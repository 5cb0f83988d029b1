//! Collects findings while a document is read.
//!
//! Reading goes on after a finding, so that an author sees all of them at once, but never more
//! than they could read.

use crate::finding::{Finding, Rule, Severity, Span};

/// The most findings of one document that are told; the rest is counted.
pub const FINDINGS_MAX: usize = 100;

#[derive(Debug, Default)]
pub struct Report {
    findings: Vec<Finding>,
    untold: usize,
    incomplete: bool,
}

impl Report {
    pub fn error(
        &mut self,
        span: Span,
        rule: Rule,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.findings.len() >= FINDINGS_MAX {
            self.untold += 1;
            return;
        }
        let (message, hint) = (message.into(), hint.into());
        self.findings.push(Finding { span, severity: Severity::Error, rule, message, hint });
    }

    /// Notes that something was left out of what is being read, or does not hold together.
    pub fn mark_incomplete(&mut self) {
        self.incomplete = true;
    }

    /// Whether something had to be left out.
    pub fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// All findings, in the order of their places.
    pub fn into_findings(mut self) -> Vec<Finding> {
        self.findings.sort();
        self.findings.dedup();
        if self.untold > 0 {
            self.findings.push(Finding {
                span: Span::default(),
                severity: Severity::Error,
                rule: Rule::Y3,
                message: format!("{} more findings are not shown", self.untold),
                hint: "mend those above and check again".to_owned(),
            });
        }
        self.findings
    }
}
