//! Not in the paper: the ways to ask others, and what nobody could promise more than.

use anyhow::Result;
use legwork_promise::Strategy;
use serde::Serialize;

use super::{
    Arrival, Difference, Fault, LOADS, RUNS, Setting, arrivals, bound, load, of_runs, ratio,
    run as simulated,
};
use crate::division::{folder, rounded};
use crate::executors::tell;
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

#[derive(Debug, Serialize)]
struct Figure {
    figure: &'static str,
    runs: u64,
    #[serde(flatten)]
    tables: Tables,
}

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
    let csv = tables.csv();
    let figure = Figure { figure: "004-x", runs: RUNS, tables };
    tell(&figure, "004-x", "strategies.csv", &csv, json)
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
    use crate::deadlines::is_written;

    #[test]
    fn what_is_written_comes_out_and_flexible_is_as_good_as_any_at_every_load() {
        let tables = Tables::new();
        is_written("004-x", "strategies.csv", &tables.csv());
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
