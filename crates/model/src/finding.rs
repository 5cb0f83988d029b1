//! The findings of `check` about a definition or an organisation.
//!
//! A finding is an error (it cannot be deployed) or a warning (it can), always with the place, the rule and a hint.

use std::fmt;

/// A place in a text file; lines and columns count from 1. `0:0` stands for the whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    pub line: u32,
    pub column: u32,
}

/// A value with the place it was written at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spanned<T> {
    pub value: T,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Error,
    Warning,
}

/// The rule that a finding refers to. `Y1` is YAML that cannot be read, `Y2` a field or a value that a definition
/// does not have, `Y3` a limit, `Y4` a field without effect; the others are those of the guide's page on checking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    Y1,
    Y2,
    Y3,
    Y4,
    K1,
    K2,
    K3,
    K4,
    K5,
    K6,
    D1,
    D2,
    D3,
    D4,
    D5,
    Z1,
    Z2,
    Z3,
    Z4,
    Z5,
    Z6,
    Z7,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub span: Span,
    pub severity: Severity,
    pub rule: Rule,
    /// What is wrong.
    pub message: String,
    /// How to correct it.
    pub hint: String,
}

impl<T> Spanned<T> {
    pub fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }

    /// For definitions that were not read from a file.
    pub fn nowhere(value: T) -> Self {
        Self { value, span: Span::default() }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { span, severity, rule, message, hint } = self;
        write!(f, "{span}: {severity} {rule}: {message}\n    hint: {hint}")
    }
}
