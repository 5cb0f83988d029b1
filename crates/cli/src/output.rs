//! What a command prints: text for people, or with `--json` one document for programs.
//!
//! Invariant: with `--json` standard output holds JSON and nothing else, one document per command
//! and one per line where a command goes on (`--follow`, `--watch`).

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use crate::layout;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
}

impl Output {
    /// The answer of a command, folded.
    pub(crate) fn answer(
        self,
        document: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        self.verbatim(document, || layout::fold(text(), layout::columns()))
    }

    /// Text before an answer, not part of the document.
    pub(crate) fn people(self, text: impl FnOnce() -> String) -> Result<()> {
        match self.json {
            true => Ok(()),
            false => write(&layout::fold(text(), layout::columns())),
        }
    }

    /// An answer that is not folded: a source, a chart.
    pub(crate) fn verbatim(
        self,
        document: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        if self.json {
            write(&(serde_json::to_string_pretty(document)? + "\n"))
        } else {
            write(&text())
        }
    }

    /// One of many answers of a continuous command.
    pub(crate) fn event(
        self,
        document: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        match self.json {
            true => write(&(serde_json::to_string(document)? + "\n")),
            false => write(&layout::fold(text(), layout::columns())),
        }
    }
}

/// Writes text to standard output, without colours where they are not supported.
pub(crate) fn write(text: &str) -> Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// A remark on standard error, folded.
pub(crate) fn remark(text: &str) {
    remark_verbatim(&layout::fold(text.to_owned(), layout::columns_beside()));
}

/// A remark that is not folded: it is for programs.
pub(crate) fn remark_verbatim(text: &str) {
    // A closed standard error is ignored.
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}
