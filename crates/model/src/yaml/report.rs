//! Collects findings while a document is read.
//!
//! Reading goes on after a finding, so that an author sees all of them at once, up to a readable
//! number.

use crate::finding::{Finding, Rule, Severity, Span};

/// The most findings of one document that are listed; the rest is counted.
pub const FINDINGS_MAX: usize = 100;

#[derive(Debug, Default)]
pub struct Report {
    findings: Vec<Finding>,
    untold: usize,
    has_errors: bool,
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
        self.has_errors = true;
        self.find(Severity::Error, span, rule, message.into(), hint.into());
    }

    /// A probable mistake that can be deployed nevertheless.
    pub fn warning(
        &mut self,
        span: Span,
        rule: Rule,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.find(Severity::Warning, span, rule, message.into(), hint.into());
    }

    fn find(&mut self, severity: Severity, span: Span, rule: Rule, message: String, hint: String) {
        if self.findings.len() >= FINDINGS_MAX {
            self.untold += 1;
            return;
        }
        self.findings.push(Finding { span, severity, rule, message, hint });
    }

    /// Records that something was left out, or is inconsistent.
    pub fn mark_incomplete(&mut self) {
        self.incomplete = true;
    }

    /// Whether something was left out.
    pub fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    pub fn has_errors(&self) -> bool {
        self.has_errors
    }

    /// All findings, in the order of their places.
    pub fn into_findings(mut self) -> Vec<Finding> {
        self.findings.sort();
        self.findings.dedup();
        if self.untold > 0 {
            self.findings.push(Finding {
                span: Span::default(),
                severity: if self.has_errors { Severity::Error } else { Severity::Warning },
                rule: Rule::Y3,
                message: format!("{} more findings are not shown", self.untold),
                hint: "mend those above and check again".to_owned(),
            });
        }
        self.findings
    }
}
