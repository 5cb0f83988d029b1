//! Not in the paper: the ways to ask others, and what nobody could promise more than.

use std::iter;

use anyhow::Result;
use legwork_promise::Strategy;
use serde::Serialize;

use super::page::{Page, Table, percent, points};
use super::{
    Arrival, Difference, Fault, LOADS, RUNS, Setting, arrivals, bound, load, of_runs, ratio,
    run as simulated,
};
use crate::division::{folder, rounded};
use crate::plot::{self, Curve, SeriesLabelPosition};

const STRATEGIES: [(&str, Strategy); 5] = [
    ("local", Strategy::Local),
    ("random", Strategy::Random),
    ("focused", Strategy::Focused),
    ("bidding", Strategy::Bidding),
    ("flexible", Strategy::Flexible),
];
const BOUND: &str = "bound";
const OFFLINE: &str = "offline";

#[derive(Debug, Default, Serialize)]
struct Tables {
    rows: Vec<Row>,
    /// What is reached by somebody who knows all that will arrive: the most that can be lies between this and the bound.
    offline: Vec<Row>,
    /// What flexible is better by than the others.
    differences: Vec<Difference>,
}

#[derive(Debug, Serialize)]
struct Row {
    load: f64,
    strategy: &'static str,
    ratio: f64,
    ci95: f64,
    /// For a task, in the mean.
    messages: f64,
}

pub(crate) fn run(json: bool) -> Result<()> {
    let tables = Tables::new();
    draw(&tables.rows)?;
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

    /// All strategies at a load, each with the same runs.
    fn add(&mut self, tenths: u32) {
        let row = |strategy, ratios: &[f64], messages: f64| {
            let (ratio, ci95) = of_runs(ratios);
            Row { load: load(tenths), strategy, ratio, ci95, messages: rounded(messages, 2) }
        };
        let drawn: Vec<_> = (0..RUNS).map(|seed| arrivals(load(tenths), seed)).collect();
        let own = STRATEGIES.map(|(name, strategy)| {
            let (ratios, messages) = runs_of(strategy, &drawn);
            self.rows.push(row(name, &ratios, messages));
            (name, ratios)
        });
        let [others @ .., (flexible, ours)] = &own;
        for (other, theirs) in others {
            self.differences.push(Difference::new(tenths, (flexible, ours), (other, theirs)));
        }
        let bounds: Vec<f64> = drawn.iter().map(|drawn| bound::of(drawn)).collect();
        self.rows.push(row(BOUND, &bounds, 0.0));
        let reached: Vec<f64> = drawn.iter().map(|drawn| bound::reached(drawn)).collect();
        self.offline.push(row(OFFLINE, &reached, 0.0));
    }

    fn csv(&self) -> String {
        let mut csv = "load,strategy,ratio,ci95,messages\n".to_owned();
        for Row { load, strategy, ratio, ci95, messages } in self.rows.iter().chain(&self.offline) {
            csv += &format!("{load:.1},{strategy},{ratio:.4},{ci95:.4},{messages:.2}\n");
        }
        for it in &self.differences {
            let (load, variant) = (it.load, it.variant());
            csv += &format!("{load:.1},{variant},{:.4},{:.4},\n", it.difference, it.ci95);
        }
        csv
    }

    fn page(&self) -> Page {
        let tables = vec![self.ratios(), self.ahead()];
        Page { figure: "004-x", file: "strategies.csv", csv: self.csv(), tables }
    }

    fn ratios(&self) -> Table {
        let names = STRATEGIES.map(|(name, _)| name.to_owned());
        let head = ["load".to_owned()].into_iter().chain(names);
        let mut table =
            Table::new(&head.chain([OFFLINE, BOUND].map(str::to_owned)).collect::<Vec<_>>());
        let cell = |row: &Row| percent(row.ratio, row.ci95);
        let mut messages = vec!["messages".to_owned()];
        for (rows, offline) in self.rows.chunks(STRATEGIES.len() + 1).zip(&self.offline) {
            let [own @ .., bound] = rows else { continue };
            let all = own.iter().chain([offline, bound]).map(cell);
            table.push(&iter::once(offline.load.to_string()).chain(all).collect::<Vec<_>>());
            messages.truncate(1);
            messages.extend(own.iter().map(|row| format!("{:.2}", row.messages)));
        }
        messages.resize(STRATEGIES.len() + 3, String::new());
        table.push(&messages);
        table
    }

    /// What flexible is in front of the others by.
    fn ahead(&self) -> Table {
        let others = STRATEGIES.len() - 1;
        let head = self.differences.iter().take(others).map(Difference::variant);
        let mut table = Table::new(&iter::once("load".to_owned()).chain(head).collect::<Vec<_>>());
        for own in self.differences.chunks(others) {
            let load = own.iter().take(1).map(|it| it.load.to_string());
            table.push(&load.chain(own.iter().map(points)).collect::<Vec<_>>());
        }
        table
    }
}

/// What is kept in each run, and how many messages a task takes.
fn runs_of(strategy: Strategy, drawn: &[Vec<Arrival>]) -> (Vec<f64>, f64) {
    let (fault, has_deputy) = (Fault::None, false);
    let setting = Setting { strategy, removes: false, fault, has_deputy };
    let (mut ratios, mut messages) = (Vec::new(), 0);
    for (seed, drawn) in (0..).zip(drawn) {
        let (fates, said) = simulated(drawn, setting, seed);
        messages += said;
        ratios.push(ratio(drawn, &fates, |_| true));
    }
    let tasks: usize = drawn.iter().map(Vec::len).sum();
    (ratios, messages as f64 / tasks as f64)
}

fn draw(rows: &[Row]) -> Result<()> {
    let names = STRATEGIES.into_iter().map(|(name, _)| name).chain([BOUND]);
    let curve = |name: &'static str| {
        let own = rows.iter().filter(|row| row.strategy == name);
        Curve { name, values: own.map(|row| row.ratio * 100.0).collect() }
    };
    let curves: Vec<Curve<'_>> = names.map(curve).collect();
    let title = "tasks promised and kept, by whom others are asked";
    let (axes, legend) = (["load, tenths", "%"], SeriesLabelPosition::LowerLeft);
    let path = folder("004-x").join("strategies.svg");
    std::fs::create_dir_all(folder("004-x"))?;
    let first = f64::from(*LOADS.start());
    plot::draw_parts(&path, title, axes, legend, &curves, (first, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_out_and_flexible_is_as_good_as_any_at_every_load() {
        let tables = Tables::new();
        tables.page().is_written();
        let Tables { rows, offline, differences } = &tables;
        for it in differences {
            assert!(it.difference >= 0.0, "{it:?}");
        }
        for (rows, offline) in rows.chunks(STRATEGIES.len() + 1).zip(offline) {
            let [.., flexible, bound] = rows else { panic!("{rows:?}") };
            for one in [flexible, offline] {
                assert!(one.ratio <= bound.ratio, "{one:?} {bound:?}");
            }
        }
    }
}
