//! Findings as text: place, rule, message, the line with a caret, and the hint.
//!
//! Invariant: the first line of a finding begins with `file:line:column:`, which editors and
//! terminals turn into a link.

use std::path::Path;

use legwork_api::definitions::{Finding, Severity};

use crate::layout::{self, fold};
use crate::style::{self, BAD, DIM, GOOD, STRONG, WARN, paint, plain};

/// How much of a line is shown around the place, if it fits.
const EXCERPT_CHARS: usize = 100;
/// The margins: the line number, and a mark at both ends.
const MARGIN_CHARS: usize = 10;

/// The finding with an excerpt of its text, folded.
pub(crate) fn render(path: &Path, text: &str, finding: &Finding) -> String {
    render_in(path, text, finding, layout::columns())
}

fn render_in(path: &Path, text: &str, finding: &Finding, columns: Option<usize>) -> String {
    let place = match finding.line {
        0 => format!("{}:", path.display()),
        line => format!("{}:{line}:{}:", path.display(), finding.column),
    };
    let severity = match finding.severity {
        Severity::Error => paint(BAD, format!("error {}", finding.rule)),
        Severity::Warning => paint(WARN, format!("warning {}", finding.rule)),
    };
    let message = plain(&finding.message);
    let head = format!("{} {severity}: {message}\n", paint(STRONG, place));
    let mut out = fold(head, columns);
    let room = columns.map_or(EXCERPT_CHARS, |columns| columns.saturating_sub(MARGIN_CHARS));
    out.push_str(&excerpt(text, finding, room.clamp(1, EXCERPT_CHARS)));
    if !finding.hint.is_empty() {
        let hint = plain(&finding.hint);
        out.push_str(&fold(format!("      {} {hint}\n", paint(DIM, "hint:")), columns));
    }
    out
}

/// `2 errors, 1 warning`.
pub(crate) fn tally<'f>(findings: impl IntoIterator<Item = &'f Finding>) -> (usize, usize) {
    findings.into_iter().fold((0, 0), |(errors, warnings), finding| match finding.severity {
        Severity::Error => (errors + 1, warnings),
        Severity::Warning => (errors, warnings + 1),
    })
}

pub(crate) fn summary(files: usize, errors: usize, warnings: usize) -> String {
    let files = style::count(files, "file");
    match (errors, warnings) {
        (0, 0) => format!("{} {files}, nothing to mend\n", paint(GOOD, "✔")),
        (0, _) => {
            let warnings = paint(WARN, style::count(warnings, "warning"));
            format!("{} {warnings} in {files}; it can be deployed\n", paint(GOOD, "✔"))
        }
        (_, _) => {
            let errors = paint(BAD, style::count(errors, "error"));
            let warnings = match warnings {
                0 => String::new(),
                _ => format!(", {}", paint(WARN, style::count(warnings, "warning"))),
            };
            format!("{} {errors}{warnings} in {files}\n", paint(BAD, "✘"))
        }
    }
}

fn excerpt(text: &str, finding: &Finding, room: usize) -> String {
    let line = (finding.line as usize).checked_sub(1).and_then(|line| text.lines().nth(line));
    let Some(line) = line else { return String::new() };
    let column = (finding.column as usize).saturating_sub(1);
    // A window around the place: lines can be as long as files.
    let from = column.saturating_sub(room * 2 / 3);
    let shown: Vec<char> = line.chars().skip(from).take(room).collect();
    let cut = |cut: bool| if cut { "…" } else { "" };
    let (before, after) = (cut(from > 0), cut(line.chars().nth(from + room).is_some()));
    let visible: String = shown.iter().map(|&c| if c.is_control() { ' ' } else { c }).collect();
    let gap: usize = style::width(before)
        + visible.chars().take(column - from).map(style::char_width).sum::<usize>();
    let number = format!("{:>5} {}", finding.line, paint(DIM, "│"));
    let margin = format!("      {}", paint(DIM, "│"));
    let caret = match finding.severity {
        Severity::Error => paint(BAD, "^"),
        Severity::Warning => paint(WARN, "^"),
    };
    format!("{number} {before}{}{after}\n{margin} {}{caret}\n", visible.trim_end(), " ".repeat(gap))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, line: u32, column: u32, severity: Severity) -> String {
        shown_in(None, text, line, column, severity)
    }

    fn shown_in(
        columns: Option<usize>,
        text: &str,
        line: u32,
        column: u32,
        severity: Severity,
    ) -> String {
        let finding = Finding {
            line,
            column,
            severity,
            rule: "D1".to_owned(),
            message: "`approve` reads `amount`, which nothing writes before it".to_owned(),
            hint: "write it in a step before, or read `amount?`".to_owned(),
        };
        let text = render_in(Path::new("loan.yaml"), text, &finding, columns);
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn a_finding_shows_its_line_with_a_caret() {
        let text = "process: loan\nsteps:\n  - step: approve\n    reads: [amount]\n";
        insta::assert_snapshot!(shown(text, 4, 13, Severity::Error), @r"
        loan.yaml:4:13: error D1: `approve` reads `amount`, which nothing writes before it
            4 │     reads: [amount]
              │             ^
              hint: write it in a step before, or read `amount?`
        ");
    }

    #[test]
    fn a_finding_about_the_whole_file_has_no_excerpt() {
        insta::assert_snapshot!(shown("", 0, 0, Severity::Warning), @r"
        loan.yaml: warning D1: `approve` reads `amount`, which nothing writes before it
              hint: write it in a step before, or read `amount?`
        ");
    }

    #[test]
    fn wide_tabbed_and_endless_lines_keep_the_caret_in_place() {
        insta::assert_snapshot!(shown("\t日本: x", 1, 6, Severity::Error), @r"
        loan.yaml:1:6: error D1: `approve` reads `amount`, which nothing writes before it
            1 │  日本: x
              │        ^
              hint: write it in a step before, or read `amount?`
        ");
        let long = format!("{}!{}", "a".repeat(500), "b".repeat(500));
        insta::assert_snapshot!(shown(&long, 1, 501, Severity::Error), @r"
        loan.yaml:1:501: error D1: `approve` reads `amount`, which nothing writes before it
            1 │ …aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb…
              │                                                                    ^
              hint: write it in a step before, or read `amount?`
        ");
    }

    #[test]
    fn on_a_narrow_screen_sentences_are_folded_and_the_excerpt_is_cut() {
        let long = format!("{}!{}", "a".repeat(500), "b".repeat(500));
        insta::assert_snapshot!(shown_in(Some(44), &long, 1, 501, Severity::Error), @r"
        loan.yaml:1:501: error D1: `approve` reads
          `amount`, which nothing writes before it
            1 │ …aaaaaaaaaaaaaaaaaaaaaa!bbbbbbbbbbb…
              │                        ^
              hint: write it in a step before, or
                read `amount?`
        ");
    }

    #[test]
    fn a_place_behind_the_end_does_no_harm() {
        assert!(shown("short", 1, 4_000, Severity::Error).contains('^'));
        assert!(shown("short", 9, 1, Severity::Error).contains("loan.yaml:9:1"));
    }

    #[test]
    fn errors_and_warnings_are_counted_apart() {
        let plain = |text: String| anstream::adapter::strip_str(&text).to_string();
        assert_eq!(plain(summary(3, 0, 0)), "✔ 3 files, nothing to mend\n");
        assert_eq!(plain(summary(1, 0, 2)), "✔ 2 warnings in 1 file; it can be deployed\n");
        assert_eq!(plain(summary(2, 1, 0)), "✘ 1 error in 2 files\n");
        assert_eq!(plain(summary(2, 3, 1)), "✘ 3 errors, 1 warning in 2 files\n");
    }
}
