//! Figure 7: an executor dies in the middle; the loss depends on the time-out.

use anyhow::Result;
use serde::Serialize;

use super::drawn::{RANDOM, SIZE_MAX};
use super::world::Failure;
use super::{Drawn, Outcome, RUNS, Setting, chooser, mean, policies, run as simulated, tell};
use crate::division::{folder, rounded};
use crate::plot::{self, Curve, SeriesLabelPosition};

/// The tables of the paper, and random speeds.
const CASES: std::ops::RangeInclusive<u8> = 1..=RANDOM;
pub(super) const PROCESSES: u32 = 200;
/// Executor 2 dies at this step.
pub(super) const DEAD: usize = 1;
pub(super) const DIES_AT: f64 = 2_000.0;
/// The setting, and the file with its results.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    pub(super) size_max: usize,
    pub(super) cancels: bool,
    pub(super) file: &'static str,
    of: &'static str,
}

/// Sizes as in the other figures; tasks that were reassigned are done nevertheless.
pub(super) const KEPT: Variant =
    Variant { size_max: SIZE_MAX, cancels: false, file: "failing", of: "" };
/// Smaller tasks, and executors drop reassigned tasks.
pub(super) const CANCELLED: Variant =
    Variant { size_max: 60, cancels: true, file: "cancelled", of: ", sizes to 60, cancelled" };
/// Time-outs, in hundreds of steps.
const TIMEOUTS: std::ops::RangeInclusive<u32> = 3..=20;

#[derive(Debug, Serialize)]
struct Figure {
    figure: &'static str,
    runs: u64,
    rows: Vec<Row>,
    /// Without the executor that dies, and without time-outs.
    five: Vec<Five>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    case: u8,
    timeout: u32,
    policy: &'static str,
    /// Of the runs that ended.
    mean_steps: Option<f64>,
    ci95: Option<f64>,
    /// The number of runs that ended.
    finished: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Five {
    case: u8,
    policy: &'static str,
    mean_steps: f64,
    ci95: f64,
}

pub(crate) fn run(json: bool) -> Result<()> {
    for variant in [KEPT, CANCELLED] {
        let mut rows = Vec::new();
        let names: Vec<&str> = policies::ADJUSTMENTS.into_iter().chain(["ours"]).collect();
        for case in CASES {
            eprintln!("{}, case {case} …", variant.file);
            let of = |hundreds| rows_of(variant, case, hundreds * 100, &names, RUNS);
            rows.extend(TIMEOUTS.flat_map(of));
        }
        let five: Vec<Five> =
            CASES.flat_map(|case| ["none", "ours"].map(|name| five(variant, case, name))).collect();
        draw(variant, &rows, &five)?;
        let text = csv(&rows, &five);
        let file = format!("{}.csv", variant.file);
        tell(&Figure { figure: "001-7", runs: RUNS, rows, five }, "001-7", &file, &text, json)?;
    }
    Ok(())
}

fn csv(rows: &[Row], five: &[Five]) -> String {
    let mut csv = "case,timeout,policy,mean_steps,ci95,finished\n".to_owned();
    for Row { case, timeout, policy, mean_steps, ci95, finished } in rows {
        let shown = |value: &Option<f64>| value.map(|value| format!("{value:.1}"));
        let shown = |value| shown(value).unwrap_or_default();
        let (steps, ci95) = (shown(mean_steps), shown(ci95));
        csv += &format!("{case},{timeout},{policy},{steps},{ci95},{finished}\n");
    }
    for Five { case, policy, mean_steps, ci95 } in five {
        csv += &format!("{case},,five-{policy},{mean_steps:.1},{ci95:.1},{RUNS}\n");
    }
    csv
}

fn rows_of(
    variant: Variant,
    case: u8,
    timeout: u32,
    names: &[&'static str],
    runs: u64,
) -> Vec<Row> {
    let failure = Some(Failure { executor: DEAD, at: DIES_AT, timeout: f64::from(timeout) });
    let setting = Setting { failure, cancels: variant.cancels, ..Setting::default() };
    let row = |policy: &'static str| {
        let outcomes = outcomes(variant, case, policy, setting, runs);
        let finished = outcomes.iter().filter(|outcome| outcome.is_finished);
        let steps: Vec<f64> = finished.map(|outcome| outcome.steps).collect();
        let (mean_steps, ci95) = mean(&steps);
        let mean_steps = (!steps.is_empty()).then(|| rounded(mean_steps, 1));
        let ci95 = ci95.map(|half| rounded(half, 1));
        Row { case, timeout, policy, mean_steps, ci95, finished: steps.len() }
    };
    names.iter().copied().map(row).collect()
}

fn five(variant: Variant, case: u8, policy: &'static str) -> Five {
    let setting = Setting { without: Some(DEAD), ..Setting::default() };
    let outcomes = outcomes(variant, case, policy, setting, RUNS);
    let steps: Vec<f64> = outcomes.iter().map(|outcome| outcome.steps).collect();
    let (mean_steps, ci95) = mean(&steps);
    let (mean_steps, ci95) = (rounded(mean_steps, 1), rounded(ci95.unwrap_or_default(), 1));
    Five { case, policy, mean_steps, ci95 }
}

fn outcomes(variant: Variant, case: u8, policy: &str, setting: Setting, runs: u64) -> Vec<Outcome> {
    let of = |seed| {
        let drawn = Drawn::with_sizes(case, PROCESSES, seed, variant.size_max);
        simulated(&drawn, setting, |seed| chooser(policy, seed))
    };
    (0..runs).map(of).collect()
}

/// The paper's: random speeds.
fn draw(variant: Variant, rows: &[Row], five: &[Five]) -> Result<()> {
    let curve = |name: &'static str| {
        let own = rows.iter().filter(|row| row.case == RANDOM && row.policy == name);
        // Means over a part of the runs are not plotted.
        let whole = |row: &Row| row.mean_steps.filter(|_| row.finished as u64 == RUNS);
        Curve { name, values: own.map(|row| whole(row).unwrap_or(f64::NAN)).collect() }
    };
    let mut curves: Vec<Curve<'_>> =
        ["none", "capability", "timeout", "both", "ours"].map(curve).into();
    let five = five.iter().find(|five| five.case == RANDOM && five.policy == "none");
    let steps = five.map_or(f64::NAN, |five| five.mean_steps);
    curves.push(Curve { name: "five, no time-out", values: vec![steps; TIMEOUTS.count()] });
    let folder = folder("001-7");
    std::fs::create_dir_all(&folder)?;
    let title = format!("Steps when executor 2 dies at step 2000 (random speeds{})", variant.of);
    let axes = ["time-out in steps", "steps"];
    let place = SeriesLabelPosition::UpperLeft;
    let file = folder.join(format!("{}.svg", variant.file));
    plot::draw_over(&file, &title, axes, place, &curves, (300.0, 100.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;

    #[test]
    fn ours_always_comes_to_an_end_and_is_never_worse_than_the_best_of_the_paper_s() {
        for case in CASES {
            for timeout in [700, 1_400] {
                let rows = rows_of(KEPT, case, timeout, &["capability", "both", "ours"], 4);
                let [paper @ .., ours] = &*rows else { panic!("{rows:?}") };
                assert_eq!(ours.finished, 4, "{ours:?}");
                let steps = paper.iter().filter_map(|row| row.mean_steps);
                let best = steps.fold(f64::INFINITY, f64::min);
                assert!(ours.mean_steps.unwrap() <= best, "{ours:?} {paper:?}");
            }
        }
    }

    #[test]
    fn what_is_written_comes_out() {
        for variant in [KEPT, CANCELLED] {
            let file = folder("001-7").join(format!("{}.csv", variant.file));
            let written = std::fs::read_to_string(file).unwrap();
            let text = csv(&rows_of(variant, 1, 600, &["both", "ours"], RUNS), &[]);
            for line in text.lines().skip(1) {
                let is_written = written.lines().any(|one| one == line);
                assert!(is_written, "run `cargo xtask figure 001-7`: {line}");
            }
        }
    }
}
