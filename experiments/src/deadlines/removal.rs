//! Figure 8: what it brings that less important tasks make way; nothing fails.

use std::iter;

use anyhow::Result;
use legwork_promise::Strategy;
use serde::Serialize;

use super::drawn::PRIORITIES;
use super::page::{Page, Table, percent, points};
use super::slices::{Drawing, Slice, Slices};
use super::{
    Difference, Fault, LOADS, RUNS, Setting, arrivals, load, of_runs, ratio, run as simulated,
};

const VARIANTS: [(&str, bool); 2] = [("with removal", true), ("without", false)];
const DRAWN: u32 = 9;

#[derive(Debug, Default, Serialize)]
struct Tables {
    rows: Vec<Row>,
    over_time: Vec<Slice>,
    differences: Vec<OfPriority>,
}

#[derive(Debug, Serialize)]
struct Row {
    load: f64,
    variant: &'static str,
    /// Of all tasks if nothing is said; the highest is the most important.
    priority: Option<usize>,
    ratio: f64,
    ci95: f64,
}

#[derive(Debug, Serialize)]
struct OfPriority {
    priority: Option<usize>,
    #[serde(flatten)]
    difference: Difference,
}

pub(crate) fn run(json: bool) -> Result<()> {
    let tables = Tables::new();
    let title = "tasks promised and kept, load 0.9, nothing fails";
    let drawing = Drawing { figure: "004-8", file: "removal.svg", title, load: DRAWN };
    drawing.draw(&tables.over_time, VARIANTS.into_iter().map(|(name, _)| name))?;
    tables.page().tell(&tables, json)
}

impl Tables {
    fn new() -> Self {
        let mut tables = Self::default();
        for tenths in LOADS {
            eprintln!("load {} …", load(tenths));
            tables.add(tenths);
        }
        tables
    }

    /// Both variants at a load, each with the same runs.
    fn add(&mut self, tenths: u32) {
        let load = load(tenths);
        let own = VARIANTS.map(|(variant, removes)| {
            let (ratios, slices) = runs_of(tenths, removes);
            for (priority, ratios) in ratios.iter().enumerate() {
                let (ratio, ci95) = of_runs(ratios);
                self.rows.push(Row { load, variant, priority: named(priority), ratio, ci95 });
            }
            self.over_time.extend(slices.told(load, variant));
            (variant, ratios)
        });
        let [(with, ours), (without, others)] = own;
        for (priority, (ours, others)) in ours.iter().zip(&others).enumerate() {
            let difference = Difference::new(tenths, (with, ours), (without, others));
            self.differences.push(OfPriority { priority: named(priority), difference });
        }
    }

    fn csv(&self) -> String {
        let mut csv = "load,variant,priority,until_pct,ratio,ci95\n".to_owned();
        let word = |priority: Option<usize>| priority.map(|it| it.to_string()).unwrap_or_default();
        for Row { load, variant, priority, ratio, ci95 } in &self.rows {
            let priority = word(*priority);
            csv += &format!("{load:.1},{variant},{priority},,{ratio:.4},{ci95:.4}\n");
        }
        for OfPriority { priority, difference: it } in &self.differences {
            let (load, variant, priority) = (it.load, it.variant(), word(*priority));
            let (difference, ci95) = (it.difference, it.ci95);
            csv += &format!("{load:.1},{variant},{priority},,{difference:.4},{ci95:.4}\n");
        }
        for Slice { load, variant, until, ratio } in &self.over_time {
            csv += &format!("{load:.1},{variant},,{until},{ratio:.4},\n");
        }
        csv
    }

    fn page(&self) -> Page {
        let tables = vec![self.ratios()];
        Page { figure: "004-8", file: "removal.csv", csv: self.csv(), tables }
    }

    fn ratios(&self) -> Table {
        const OF_LOAD: usize = PRIORITIES + 1;
        // All, then the most important first.
        let shown = || iter::once(0).chain((1..=PRIORITIES).rev());
        let names = (1..=PRIORITIES).rev().map(|priority| format!("priority {priority}"));
        let head = ["load", "removal", "all"].map(str::to_owned).into_iter().chain(names);
        let mut table = Table::new(&head.collect::<Vec<_>>());
        let of_loads = self.rows.chunks(2 * OF_LOAD).zip(self.differences.chunks(OF_LOAD));
        for (rows, differences) in of_loads {
            let (with, without) = rows.split_at(OF_LOAD);
            let ratio = |row: &Row| percent(row.ratio, row.ci95);
            let lines: [(&str, Vec<String>); 3] = [
                ("with", shown().map(|it| ratio(&with[it])).collect()),
                ("without", shown().map(|it| ratio(&without[it])).collect()),
                ("difference", shown().map(|it| points(&differences[it].difference)).collect()),
            ];
            for (name, cells) in lines {
                let first = [with[0].load.to_string(), name.to_owned()];
                table.push(&first.into_iter().chain(cells).collect::<Vec<_>>());
            }
        }
        table
    }
}

fn named(priority: usize) -> Option<usize> {
    (priority > 0).then_some(priority)
}

/// What is kept in each run, of all tasks and then by priority; and over the time.
fn runs_of(tenths: u32, removes: bool) -> (Vec<Vec<f64>>, Slices) {
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); PRIORITIES + 1];
    let mut slices = Slices::new();
    for seed in 0..RUNS {
        let drawn = arrivals(load(tenths), seed);
        let (strategy, fault, has_deputy) = (Strategy::Flexible, Fault::None, false);
        let setting = Setting { strategy, removes, fault, has_deputy };
        let (fates, _) = simulated(&drawn, setting, seed);
        for (priority, ratios) in ratios.iter_mut().enumerate() {
            let of = |of: u8| priority == 0 || usize::from(of) == priority;
            ratios.push(ratio(&drawn, &fates, |arrival| of(arrival.priority)));
        }
        slices.add(&drawn, &fates);
    }
    (ratios, slices)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;

    #[test]
    fn what_is_written_comes_out_and_the_most_important_gain_by_removal() {
        let tables = Tables::new();
        tables.page().is_written();
        let of = |priority: usize| {
            tables.differences.iter().filter(move |it| it.priority == named(priority))
        };
        for it in of(PRIORITIES) {
            assert!(!it.difference.is_worse(), "{it:?}");
        }
        let (most, least) = (of(PRIORITIES).next_back().unwrap(), of(1).next_back().unwrap());
        assert_eq!(most.difference.load, load(DRAWN));
        assert!(most.difference.difference > most.difference.ci95, "{most:?}");
        assert!(least.difference.is_worse(), "{least:?}");
    }
}
