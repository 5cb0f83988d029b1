//! The tables on the page of a figure, written from the same numbers as its CSV.
//!
//! Invariant: page and rows never disagree; what stands outside of the marks is left alone.

use anyhow::{Context, Result};
use serde::Serialize;

use super::{Difference, RUNS};
use crate::division::{folder, write};
use crate::executors::tell;

const BEGIN: &str = "<!-- table: written by `cargo xtask figure` -->\n";
const END: &str = "<!-- end of the table -->\n";
const PAGE: &str = "README.md";

/// What a figure leaves behind: its rows for programs, and its page for people.
pub(super) struct Page {
    pub(super) figure: &'static str,
    pub(super) file: &'static str,
    pub(super) csv: String,
    pub(super) tables: Vec<Table>,
}

#[derive(Serialize)]
struct Figure<'a, T> {
    figure: &'static str,
    runs: u64,
    #[serde(flatten)]
    tables: &'a T,
}

#[derive(Debug)]
pub(super) struct Table {
    lines: Vec<String>,
}

impl Page {
    /// Writes both, and prints the rows, or all that the figure tells.
    pub(super) fn tell(&self, tables: &impl Serialize, json: bool) -> Result<()> {
        let folder = folder(self.figure);
        let page = std::fs::read_to_string(folder.join(PAGE)).context("the page of the figure")?;
        write(&folder, PAGE, &self.updated(&page)?)?;
        let figure = Figure { figure: self.figure, runs: RUNS, tables };
        tell(&figure, self.figure, self.file, &self.csv, json)
    }

    /// The page with these tables.
    fn updated(&self, page: &str) -> Result<String> {
        let (mut done, mut rest) = (String::new(), page);
        for Table { lines } in &self.tables {
            let (before, behind) =
                rest.split_once(BEGIN).context("the page has a mark to begin at for each table")?;
            let (_, after) = behind.split_once(END).context("each table has a mark to end at")?;
            done += &format!("{before}{BEGIN}\n{}\n\n{END}", lines.join("\n"));
            rest = after;
        }
        Ok(done + rest)
    }

    /// What is written is what comes out.
    #[cfg(test)]
    pub(super) fn is_written(&self) {
        let read = |file: &str| {
            let path = folder(self.figure).join(file);
            std::fs::read_to_string(&path).unwrap_or_else(|it| panic!("{}: {it}", path.display()))
        };
        let page = self.updated(&read(PAGE)).unwrap_or_else(|error| panic!("{error:#}"));
        for (file, made) in [(self.file, &self.csv), (PAGE, &page)] {
            let (figure, written) = (self.figure, read(file));
            let apart = written.lines().zip(made.lines()).find(|(written, made)| written != made);
            assert_eq!(apart, None, "{file}: run `cargo xtask figure {figure}`");
            assert_eq!(written.len(), made.len(), "{file}: run `cargo xtask figure {figure}`");
        }
    }
}

impl Table {
    pub(super) fn new(head: &[String]) -> Self {
        let mut table = Self { lines: Vec::new() };
        table.push(head);
        table.lines.push("|---".repeat(head.len()) + "|");
        table
    }

    pub(super) fn push(&mut self, cells: &[String]) {
        self.lines.push(format!("| {} |", cells.join(" | ")));
    }
}

/// A ratio in per cent, with half its confidence interval.
pub(super) fn percent(ratio: f64, ci95: f64) -> String {
    format!("{:.2} ± {:.2}", ratio * 100.0, ci95 * 100.0)
}

/// A difference in points.
pub(super) fn points(it: &Difference) -> String {
    format!("{:+.2} ± {:.2}", it.difference * 100.0, it.ci95 * 100.0)
}
