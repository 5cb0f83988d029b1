//! Figure 8: what it brings that less important tasks make way; nothing fails.

use anyhow::Result;
use legwork_promise::Strategy;
use serde::Serialize;

use super::drawn::PRIORITIES;
use super::slices::{Drawing, Slice, Slices};
use super::{Fault, LOADS, RUNS, Setting, arrivals, load, ratio, run as simulated};
use crate::division::rounded;
use crate::executors::{mean, tell};

const VARIANTS: [(&str, bool); 2] = [("with removal", true), ("without", false)];
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

pub(crate) fn run(json: bool) -> Result<()> {
    let (mut rows, mut over_time) = (Vec::new(), Vec::new());
    for tenths in LOADS {
        eprintln!("load {} …", load(tenths));
        of_load(tenths, &mut rows, &mut over_time);
    }
    let title = "tasks promised and kept, load 0.9, nothing fails";
    let drawing = Drawing { figure: "004-8", file: "removal.svg", title, load: DRAWN };
    drawing.draw(&over_time, VARIANTS.into_iter().map(|(name, _)| name))?;
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
        let mut slices = Slices::new();
        for seed in 0..RUNS {
            let drawn = arrivals(load, seed);
            let (strategy, fault, has_deputy) = (Strategy::Flexible, Fault::None, false);
            let setting = Setting { strategy, removes, fault, has_deputy };
            let (fates, _) = simulated(&drawn, setting, seed);
            for (priority, ratios) in ratios.iter_mut().enumerate() {
                let of = |of: u8| priority == 0 || usize::from(of) == priority;
                ratios.push(ratio(&drawn, &fates, |arrival| of(arrival.priority)));
            }
            slices.add(&drawn, &fates);
        }
        for (priority, ratios) in ratios.iter().enumerate() {
            let (ratio, ci95) = mean(ratios);
            let (ratio, ci95) = (rounded(ratio, 4), rounded(ci95.unwrap_or_default(), 4));
            let priority = (priority > 0).then_some(priority);
            rows.push(Row { load, variant, priority, ratio, ci95 });
        }
        over_time.extend(slices.told(load, variant));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;
    use crate::division::folder;

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
