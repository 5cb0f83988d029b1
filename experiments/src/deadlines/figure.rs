//! The output of a figure: rows for programs, tables on its page for people, and curves.
//!
//! Invariant: page and rows never disagree; the text outside of the marks on the page is kept.

use anyhow::{Context, Result};
use serde::Serialize;

use super::drawn::{Arrival, HORIZON};
use super::world::Outcome;
use super::{LOADS, RUNS, load};
use crate::division::{folder, rounded, write};
use crate::executors::{mean, tell};
use crate::plot::{self, Curve, SeriesLabelPosition};

const BEGIN: &str = "<!-- table: written by `cargo xtask figure` -->\n";
const END: &str = "<!-- end of the table -->\n";
const PAGE: &str = "README.md";
/// Of all tasks.
pub(super) const ALL: &str = "all";
/// The number of time slices.
const SLICES: i64 = 20;

#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) load: f64,
    pub(super) variant: String,
    /// The group of tasks, or the counted quantity.
    pub(super) of: String,
    /// The mean of all runs, and half its 95 % confidence interval.
    pub(super) value: f64,
    pub(super) ci95: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Figure {
    figure: &'static str,
    #[serde(skip)]
    file: &'static str,
    runs: u64,
    pub(super) rows: Vec<Row>,
}

pub(super) type Table = Vec<Vec<String>>;

/// In each run, the part of the filtered tasks that were reserved and done in time; 1 of none.
pub(super) fn ratios(
    drawn: &[Vec<Arrival>],
    outcomes: &[Outcome],
    of: impl Fn(&Arrival) -> bool,
) -> Vec<f64> {
    let ratio = |(drawn, outcome): (&Vec<Arrival>, &Outcome)| {
        let counted = drawn.iter().zip(&outcome.fates).filter(|(arrival, _)| of(arrival));
        let (all, kept) = counted.fold((0_u32, 0_u32), |(all, kept), (_, fate)| {
            (all + 1, kept + u32::from(fate.is_good()))
        });
        if all == 0 { 1.0 } else { f64::from(kept) / f64::from(all) }
    };
    drawn.iter().zip(outcomes).map(ratio).collect()
}

/// Paired differences of two variants. All variants of a run have the same tasks, so only the difference in each
/// run is meaningful.
pub(super) fn apart(ours: &[f64], others: &[f64]) -> Vec<f64> {
    ours.iter().zip(others).map(|(one, other)| one - other).collect()
}

impl Figure {
    pub(super) fn new(figure: &'static str, file: &'static str) -> Self {
        Self { figure, file, runs: RUNS, rows: Vec::new() }
    }

    /// A row of values, one per run.
    pub(super) fn add(&mut self, load: f64, variant: &str, of: &str, values: &[f64]) {
        let (value, ci95) = mean(values);
        self.put(load, variant, of, (value, ci95.unwrap_or_default()));
    }

    pub(super) fn put(&mut self, load: f64, variant: &str, of: &str, (value, ci95): (f64, f64)) {
        let (variant, of) = (variant.to_owned(), of.to_owned());
        let (value, ci95) = (rounded(value, 4), rounded(ci95, 4));
        self.rows.push(Row { load, variant, of, value, ci95 });
    }

    /// Rows of what is done in time over the time.
    pub(super) fn add_slices(
        &mut self,
        load: f64,
        variant: &str,
        drawn: &[Vec<Arrival>],
        outcomes: &[Outcome],
    ) {
        for slice in 0..SLICES {
            let own = ratios(drawn, outcomes, |it| it.at * SLICES / HORIZON == slice);
            self.add(load, variant, &format!("until {} %", (slice + 1) * 100 / SLICES), &own);
        }
    }

    pub(super) fn row(&self, load: f64, variant: &str, of: &str) -> Option<&Row> {
        self.rows.iter().find(|it| it.load == load && it.variant == variant && it.of == of)
    }

    #[cfg(test)]
    pub(super) fn value(&self, load: f64, variant: &str, of: &str) -> f64 {
        self.row(load, variant, of).map_or(f64::NAN, |row| row.value)
    }

    fn cell(
        &self,
        load: f64,
        variant: &str,
        of: &str,
        tell: impl Fn(f64, f64) -> String,
    ) -> String {
        self.row(load, variant, of)
            .map(|row| tell(row.value * 100.0, row.ci95 * 100.0))
            .unwrap_or_default()
    }

    /// A ratio in per cent, with half its confidence interval.
    pub(super) fn percent(&self, load: f64, variant: &str, of: &str) -> String {
        self.cell(load, variant, of, |value, ci95| format!("{value:.2} ± {ci95:.2}"))
    }

    /// A difference in points.
    pub(super) fn points(&self, load: f64, variant: &str, of: &str) -> String {
        self.cell(load, variant, of, |value, ci95| format!("{value:+.2} ± {ci95:.2}"))
    }

    /// A part of a difference.
    pub(super) fn part(&self, load: f64, variant: &str, of: &str) -> String {
        self.cell(load, variant, of, |value, ci95| format!("{value:.0} ± {ci95:.0} %"))
    }

    /// A table with a line for each load.
    pub(super) fn by_load(head: &[String], cells: impl Fn(f64) -> Vec<String>) -> Table {
        let lines = LOADS.map(load).map(|load| {
            let mut line = cells(load);
            line.insert(0, load.to_string());
            line
        });
        std::iter::once(head.to_vec()).chain(lines).collect()
    }

    fn csv(&self) -> String {
        let line = |Row { load, variant, of, value, ci95 }: &Row| {
            format!("{load},{variant},{of},{value:.4},{ci95:.4}\n")
        };
        let lines: String = self.rows.iter().map(line).collect();
        "load,variant,of,value,ci95\n".to_owned() + &lines
    }

    /// Writes rows and page, and prints the rows.
    pub(super) fn tell(&self, tables: &[Table], json: bool) -> Result<()> {
        let folder = folder(self.figure);
        let page = std::fs::read_to_string(folder.join(PAGE)).context("the page of the figure")?;
        write(&folder, PAGE, &updated(&page, tables)?)?;
        tell(self, self.figure, self.file, &self.csv(), json)
    }

    /// Asserts that the written files match.
    #[cfg(test)]
    pub(super) fn is_written(&self, tables: &[Table]) {
        let read = |file: &str| std::fs::read_to_string(folder(self.figure).join(file)).unwrap();
        let page = updated(&read(PAGE), tables).unwrap();
        for (file, made) in [(self.file, &self.csv()), (PAGE, &page)] {
            let (figure, written) = (self.figure, read(file));
            let apart = written.lines().zip(made.lines()).find(|(written, made)| written != made);
            assert_eq!(apart, None, "{file}: run `cargo xtask figure {figure}`");
            assert_eq!(written.len(), made.len(), "{file}: run `cargo xtask figure {figure}`");
        }
    }

    /// Curves of variants over the time, at one load.
    pub(super) fn draw_over_time(&self, title: &str, load: f64, names: &[&str]) -> Result<()> {
        let slice = 100.0 / SLICES as f64;
        let is_own = |row: &Row| row.load == load && row.of.starts_with("until");
        self.draw(title, "% of the time", (slice, slice), names, is_own)
    }

    /// Curves of these rows of variants: the first x value, and the step.
    pub(super) fn draw(
        &self,
        title: &str,
        axis: &str,
        over: (f64, f64),
        names: &[&str],
        is_own: impl Fn(&Row) -> bool,
    ) -> Result<()> {
        let curves = names.iter().map(|&name| {
            let own = self.rows.iter().filter(|row| row.variant == name && is_own(row));
            Curve { name, values: own.map(|row| row.value * 100.0).collect() }
        });
        let (curves, axes): (Vec<Curve<'_>>, _) = (curves.collect(), [axis, "%"]);
        let folder = folder(self.figure);
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(self.file).with_extension("svg");
        plot::draw_parts(&path, title, axes, SeriesLabelPosition::LowerLeft, &curves, over)
    }
}

/// The page with these tables.
fn updated(page: &str, tables: &[Table]) -> Result<String> {
    let (mut done, mut rest) = (String::new(), page);
    for table in tables {
        let (before, behind) = rest.split_once(BEGIN).context("each table has its mark")?;
        let (_, after) = behind.split_once(END).context("each table has a mark at its end")?;
        let mut lines = table.iter().map(|cells| format!("| {} |\n", cells.join(" | ")));
        let head = lines.next().unwrap_or_default();
        let rule = "|---".repeat(table.first().map_or(0, Vec::len));
        let lines: String = lines.collect();
        done += &format!("{before}{BEGIN}\n{head}{rule}|\n{lines}\n{END}");
        rest = after;
    }
    Ok(done + rest)
}
