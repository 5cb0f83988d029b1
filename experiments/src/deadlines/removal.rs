//! Figure 8: what it brings that less important tasks make way; nothing fails.

use anyhow::Result;
use legwork_promise::Strategy;
use serde::Serialize;

use super::drawn::{HORIZON, PRIORITIES};
use super::{Fault, LOADS, RUNS, Setting, arrivals, load, ratio, run as simulated};
use crate::division::{folder, rounded};
use crate::executors::{mean, tell};
use crate::plot::{self, Curve, SeriesLabelPosition};

const VARIANTS: [(&str, bool); 2] = [("with removal", true), ("without", false)];
const SLICES: i64 = 20;
const DRAWN: u32 = 9;

#[derive(Debug, Serialize)]
struct Figure {
    figure: &'static str,
    runs: u64,
    rows: Vec<Row>,
    over_time: Vec<Slice>,
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
struct Slice {
    load: f64,
    variant: &'static str,
    until: i64,
    ratio: f64,
}

pub(crate) fn run(json: bool) -> Result<()> {
    let (mut rows, mut over_time) = (Vec::new(), Vec::new());
    for tenths in LOADS {
        eprintln!("load {} …", load(tenths));
        of_load(tenths, &mut rows, &mut over_time);
    }
    draw(&over_time)?;
    let csv = csv(&rows, &over_time);
    let figure = Figure { figure: "004-8", runs: RUNS, rows, over_time };
    tell(&figure, "004-8", "removal.csv", &csv, json)
}

fn csv(rows: &[Row], over_time: &[Slice]) -> String {
    let mut csv = "load,variant,priority,until_pct,ratio,ci95\n".to_owned();
    for Row { load, variant, priority, ratio, ci95 } in rows {
        let priority = priority.map(|priority| priority.to_string()).unwrap_or_default();
        csv += &format!("{load:.1},{variant},{priority},,{ratio:.4},{ci95:.4}\n");
    }
    for Slice { load, variant, until, ratio } in over_time {
        csv += &format!("{load:.1},{variant},,{until},{ratio:.4},\n");
    }
    csv
}

fn of_load(tenths: u32, rows: &mut Vec<Row>, over_time: &mut Vec<Slice>) {
    let load = load(tenths);
    for (variant, removes) in VARIANTS {
        let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); PRIORITIES + 1];
        let mut slices = vec![0.0; SLICES as usize];
        for seed in 0..RUNS {
            let drawn = arrivals(load, seed);
            let (strategy, fault, has_deputy) = (Strategy::Flexible, Fault::None, false);
            let setting = Setting { strategy, removes, fault, has_deputy };
            let (fates, _) = simulated(&drawn, setting, seed);
            for (priority, ratios) in ratios.iter_mut().enumerate() {
                let of = |of: u8| priority == 0 || usize::from(of) == priority;
                ratios.push(ratio(&drawn, &fates, |arrival| of(arrival.priority)));
            }
            for (slice, mean) in (0..).zip(&mut slices) {
                let within = |at: i64| at * SLICES / HORIZON == slice;
                *mean += ratio(&drawn, &fates, |arrival| within(arrival.at)) / RUNS as f64;
            }
        }
        for (priority, ratios) in ratios.iter().enumerate() {
            let (ratio, ci95) = mean(ratios);
            let (ratio, ci95) = (rounded(ratio, 4), rounded(ci95.unwrap_or_default(), 4));
            let priority = (priority > 0).then_some(priority);
            rows.push(Row { load, variant, priority, ratio, ci95 });
        }
        let until = (1..).map(|slice| slice * 100 / SLICES);
        over_time.extend(slices.into_iter().zip(until).map(|(ratio, until)| Slice {
            load,
            variant,
            until,
            ratio: rounded(ratio, 4),
        }));
    }
}

fn draw(over_time: &[Slice]) -> Result<()> {
    let curve = |name: &'static str| {
        let own = over_time.iter().filter(|it| it.variant == name && it.load == load(DRAWN));
        Curve { name, values: own.map(|slice| slice.ratio * 100.0).collect() }
    };
    let curves: Vec<Curve<'_>> = VARIANTS.into_iter().map(|(name, _)| curve(name)).collect();
    let title = "tasks promised and kept, load 0.9, nothing fails";
    let (axes, legend) = (["% of the time", "%"], SeriesLabelPosition::LowerLeft);
    let apart = 100.0 / SLICES as f64;
    let path = folder("004-8").join("removal.svg");
    std::fs::create_dir_all(folder("004-8"))?;
    plot::draw_parts(&path, title, axes, legend, &curves, (apart, apart))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;

    #[test]
    fn what_is_written_comes_out_and_the_most_important_gain_by_removal() {
        let written = std::fs::read_to_string(folder("004-8").join("removal.csv")).unwrap();
        let (mut rows, mut slices) = (Vec::new(), Vec::new());
        of_load(DRAWN, &mut rows, &mut slices);
        for line in csv(&rows, &slices).lines() {
            assert!(
                written.lines().any(|one| one == line),
                "run `cargo xtask figure 004-8`: {line}"
            );
        }
        let most = rows.iter().filter(|row| row.priority == Some(PRIORITIES));
        let ratios: Vec<f64> = most.map(|row| row.ratio).collect();
        assert!(ratios[0] > ratios[1], "{rows:?}");
    }
}
