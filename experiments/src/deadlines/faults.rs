//! Figure 7: how much is promised and kept when one node of three is lost after two thirds of the time.

use anyhow::Result;
use legwork_promise::Strategy;
use serde::Serialize;

use super::slices::{Drawing, Slice, Slices};
use super::{Fault, LOADS, RUNS, Setting, arrivals, load, ratio, run as simulated};
use crate::division::rounded;
use crate::executors::{mean, tell};

const VARIANTS: [(&str, Fault); 3] =
    [("normal", Fault::None), ("tolerant", Fault::Tolerated), ("intolerant", Fault::Ignored)];
/// The load that is drawn.
const DRAWN: u32 = 5;

#[derive(Debug, Serialize)]
struct Figure {
    figure: &'static str,
    runs: u64,
    rows: Vec<Row>,
    over_time: Vec<Slice>,
    /// Which part of what the fault costs is won back, by load.
    won_back: Vec<WonBack>,
}

#[derive(Debug, Serialize)]
struct Row {
    load: f64,
    variant: &'static str,
    ratio: f64,
    ci95: f64,
}

#[derive(Debug, Serialize)]
struct WonBack {
    load: f64,
    part: f64,
}

pub(crate) fn run(json: bool) -> Result<()> {
    let (mut rows, mut over_time, mut won_back) = (Vec::new(), Vec::new(), Vec::new());
    for tenths in LOADS {
        eprintln!("load {} …", load(tenths));
        let (of_load, slices) = of_load(tenths);
        let [normal, tolerant, intolerant] = [0, 1, 2].map(|place: usize| of_load[place].ratio);
        let part = (tolerant - intolerant) / (normal - intolerant);
        won_back.push(WonBack { load: load(tenths), part: rounded(part, 3) });
        rows.extend(of_load);
        over_time.extend(slices);
    }
    let title = "tasks promised and kept, load 0.5; one node of three is lost at 67 %";
    let drawing = Drawing { figure: "004-7", file: "faults.svg", title, load: DRAWN };
    drawing.draw(&over_time, VARIANTS.into_iter().map(|(name, _)| name))?;
    let csv = csv(&rows, &over_time);
    let figure = Figure { figure: "004-7", runs: RUNS, rows, over_time, won_back };
    tell(&figure, "004-7", "faults.csv", &csv, json)
}

fn csv(rows: &[Row], over_time: &[Slice]) -> String {
    let mut csv = "load,variant,until_pct,ratio,ci95\n".to_owned();
    for Row { load, variant, ratio, ci95 } in rows {
        csv += &format!("{load:.1},{variant},,{ratio:.4},{ci95:.4}\n");
    }
    for Slice { load, variant, until, ratio } in over_time {
        csv += &format!("{load:.1},{variant},{until},{ratio:.4},\n");
    }
    csv
}

fn of_load(tenths: u32) -> (Vec<Row>, Vec<Slice>) {
    let mut totals = vec![Vec::new(); VARIANTS.len()];
    let mut slices = vec![Slices::new(); VARIANTS.len()];
    for seed in 0..RUNS {
        let drawn = arrivals(load(tenths), seed);
        for (place, (_, fault)) in VARIANTS.into_iter().enumerate() {
            // Also those that make nothing of it: before the fault all do the same.
            let (strategy, removes, has_deputy) = (Strategy::Flexible, true, true);
            let setting = Setting { strategy, removes, fault, has_deputy };
            let (fates, _) = simulated(&drawn, setting, seed);
            totals[place].push(ratio(&drawn, &fates, |_| true));
            slices[place].add(&drawn, &fates);
        }
    }
    let load = load(tenths);
    let named = VARIANTS.into_iter().map(|(name, _)| name);
    let rows = named.clone().zip(&totals).map(|(variant, totals)| {
        let (ratio, ci95) = mean(totals);
        Row { load, variant, ratio: rounded(ratio, 4), ci95: rounded(ci95.unwrap_or_default(), 4) }
    });
    let over_time = named.zip(slices).flat_map(|(variant, slices)| slices.told(load, variant));
    (rows.collect(), over_time.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;
    use crate::deadlines::written;
    use crate::division::folder;

    #[test]
    fn what_is_written_comes_out_and_tolerance_wins_back_most_of_what_the_fault_costs() {
        let written = std::fs::read_to_string(folder("004-7").join("faults.csv")).unwrap();
        let (rows, slices) = of_load(DRAWN);
        for line in csv(&rows, &slices).lines() {
            assert!(
                written.lines().any(|one| one == line),
                "run `cargo xtask figure 004-7`: {line}"
            );
        }
        let before = |place: usize| -> Vec<f64> {
            let own = slices.iter().filter(|it| it.variant == VARIANTS[place].0 && it.until <= 65);
            own.map(|slice| slice.ratio).collect()
        };
        assert_eq!(before(0), before(2), "without tolerance nothing differs before the fault");
        assert_eq!(before(0), before(1), "nor does it with tolerance");
        let [normal, tolerant, intolerant] = [0, 1, 2].map(|place: usize| rows[place].ratio);
        assert!(normal > tolerant && tolerant > intolerant, "{rows:?}");
        assert!(tolerant - intolerant >= 0.6 * (normal - intolerant), "{rows:?}");
    }

    #[test]
    fn a_fault_costs_something_and_tolerance_wins_some_of_it_back_at_every_load() {
        let csv = std::fs::read_to_string(folder("004-7").join("faults.csv")).unwrap();
        for tenths in LOADS {
            let [normal, tolerant, intolerant] =
                VARIANTS.map(|(variant, ..)| written(&csv, tenths, variant));
            assert!(normal > tolerant && tolerant > intolerant, "at a load of {tenths} tenths");
        }
    }
}
