//! Collects findings up to a readable number, and never loses that there are errors.

use crate::finding::{Finding, Rule, Severity, Span};

/// The most errors that are listed; the rest is counted.
pub const ERRORS_MAX: usize = 100;
/// The most warnings that are listed; the rest is counted.
pub const WARNINGS_MAX: usize = 100;

#[derive(Debug, Default)]
pub(super) struct Report {
    findings: Vec<Finding>,
    errors: usize,
    warnings: usize,
}

impl Report {
    pub(super) fn error(
        &mut self,
        span: Span,
        rule: Rule,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.errors += 1;
        if self.errors <= ERRORS_MAX {
            let (severity, message, hint) = (Severity::Error, message.into(), hint.into());
            self.findings.push(Finding { span, severity, rule, message, hint });
        }
    }

    pub(super) fn warning(
        &mut self,
        span: Span,
        rule: Rule,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        self.warnings += 1;
        if self.warnings <= WARNINGS_MAX {
            let (severity, message, hint) = (Severity::Warning, message.into(), hint.into());
            self.findings.push(Finding { span, severity, rule, message, hint });
        }
    }

    /// Whether no further error would be listed: more checks are pointless.
    pub(super) fn errors_are_full(&self) -> bool {
        self.errors >= ERRORS_MAX
    }

    pub(super) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// All findings, in the order of their places.
    pub(super) fn into_findings(mut self) -> Vec<Finding> {
        self.findings.sort();
        self.findings.dedup();
        let untold = [
            (Severity::Error, self.errors.saturating_sub(ERRORS_MAX), "errors"),
            (Severity::Warning, self.warnings.saturating_sub(WARNINGS_MAX), "warnings"),
        ];
        for (severity, count, what) in untold {
            if count > 0 {
                self.findings.push(Finding {
                    span: Span::default(),
                    severity,
                    rule: Rule::Y3,
                    message: format!("{count} more {what} are not shown"),
                    hint: "mend those above and check again".to_owned(),
                });
            }
        }
        self.findings
    }
}
