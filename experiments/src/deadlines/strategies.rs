//! Not in the paper: the ways to ask others, and what nobody could promise more than.

use anyhow::Result;
use legwork_promise::Strategy;
use serde::Serialize;

use super::{Fault, LOADS, RUNS, Setting, arrivals, bound, load, ratio, run as simulated};
use crate::division::{folder, rounded};
use crate::executors::{mean, tell};
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
    rows: Vec<Row>,
    /// What is reached by somebody who knows all that will arrive: the most that can be lies between this and the bound.
    offline: Vec<Row>,
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
    let (mut rows, mut offline) = (Vec::new(), Vec::new());
    for tenths in LOADS {
        eprintln!("load {} …", load(tenths));
        offline.push(of_load(tenths, &mut rows));
    }
    draw(&rows)?;
    let csv = csv(rows.iter().chain(&offline));
    let figure = Figure { figure: "004-x", runs: RUNS, rows, offline };
    tell(&figure, "004-x", "strategies.csv", &csv, json)
}

fn csv<'a>(rows: impl IntoIterator<Item = &'a Row>) -> String {
    let mut csv = "load,strategy,ratio,ci95,messages\n".to_owned();
    for Row { load, strategy, ratio, ci95, messages } in rows {
        csv += &format!("{load:.1},{strategy},{ratio:.4},{ci95:.4},{messages:.2}\n");
    }
    csv
}

/// Answers what is reached offline.
fn of_load(tenths: u32, rows: &mut Vec<Row>) -> Row {
    let row = |strategy, ratios: &[f64], messages: f64| {
        let (ratio, ci95) = mean(ratios);
        let (ratio, ci95) = (rounded(ratio, 4), rounded(ci95.unwrap_or_default(), 4));
        Row { load: load(tenths), strategy, ratio, ci95, messages: rounded(messages, 2) }
    };
    let drawn: Vec<_> = (0..RUNS).map(|seed| arrivals(load(tenths), seed)).collect();
    let tasks: usize = drawn.iter().map(Vec::len).sum();
    for (name, strategy) in STRATEGIES {
        let (fault, has_deputy) = (Fault::None, false);
        let setting = Setting { strategy, removes: false, fault, has_deputy };
        let mut messages = 0;
        let ratios: Vec<f64> = (0..RUNS)
            .zip(&drawn)
            .map(|(seed, drawn)| {
                let (fates, said) = simulated(drawn, setting, seed);
                messages += said;
                ratio(drawn, &fates, |_| true)
            })
            .collect();
        rows.push(row(name, &ratios, messages as f64 / tasks as f64));
    }
    let bounds: Vec<f64> = drawn.iter().map(|drawn| bound::of(drawn)).collect();
    rows.push(row(BOUND, &bounds, 0.0));
    let reached: Vec<f64> = drawn.iter().map(|drawn| bound::reached(drawn)).collect();
    row(OFFLINE, &reached, 0.0)
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
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;
    use crate::deadlines::written;

    #[test]
    fn what_is_written_comes_out_and_flexible_is_as_good_as_any_and_not_better_than_the_bound() {
        let written = std::fs::read_to_string(folder("004-x").join("strategies.csv")).unwrap();
        let mut rows = Vec::new();
        let offline = of_load(*LOADS.end(), &mut rows);
        for line in csv(rows.iter().chain([&offline])).lines() {
            assert!(
                written.lines().any(|one| one == line),
                "run `cargo xtask figure 004-x`: {line}"
            );
        }
        let [others @ .., flexible, bound] = &*rows else { panic!("{rows:?}") };
        assert!(others.iter().all(|other| other.ratio <= flexible.ratio), "{rows:?}");
        assert!(flexible.ratio <= offline.ratio && offline.ratio <= bound.ratio, "{rows:?}");
    }

    #[test]
    fn flexible_is_as_good_as_any_at_every_load() {
        let csv = std::fs::read_to_string(folder("004-x").join("strategies.csv")).unwrap();
        for tenths in LOADS {
            let ratio = |strategy: &str| written(&csv, tenths, strategy);
            for other in ["local", "random", "focused", "bidding"] {
                assert!(ratio(other) <= ratio("flexible"), "{other} at {tenths} tenths");
            }
            assert!(ratio("flexible") <= ratio("bound"), "at {tenths} tenths");
        }
    }
}
