//! Figure 5: how long a thousand processes of each engine take under each policy.

use anyhow::Result;
use serde::Serialize;

use super::{CASES, PROCESSES, RUNS, Row, policies, rows, tell};
use crate::division::folder;
use crate::plot::{self, Bar, Group};

/// The plotted policies.
const SHOWN: [&str; 5] = ["random", "round-robin", "oxthas-1", "oxthas-3", "ours"];

#[derive(Debug, Serialize)]
struct Figure {
    figure: &'static str,
    runs: u64,
    rows: Vec<Row>,
}

pub(crate) fn run(json: bool) -> Result<()> {
    let rows: Vec<Row> =
        CASES.flat_map(|case| rows(case, PROCESSES, &policies::ALL, RUNS)).collect();
    let folder = folder("001-5");
    std::fs::create_dir_all(&folder)?;
    let title = "Steps for 1,000 processes of each of two engines";
    draw(&folder.join("totals.svg"), title, &SHOWN, &rows)?;
    let text = csv(&rows);
    tell(&Figure { figure: "001-5", runs: RUNS, rows }, "001-5", "totals.csv", &text, json)
}

pub(super) fn csv(rows: &[Row]) -> String {
    let mut csv = "case,policy,mean_steps,ci95,bound\n".to_owned();
    for Row { case, policy, mean_steps, ci95, bound, .. } in rows {
        csv += &format!("{case},{policy},{mean_steps:.1},{ci95:.1},{bound:.1}\n");
    }
    csv
}

/// Some of the policies in all cases, in percent of the slowest one.
pub(super) fn draw(
    path: &std::path::Path,
    title: &str,
    shown: &[&str],
    rows: &[Row],
) -> Result<()> {
    let most = rows.iter().filter(|row| shown.contains(&row.policy));
    let most = most.map(|row| row.mean_steps).fold(0.0, f64::max);
    let part = |steps: f64| steps / most * 100.0;
    let group = |case: u8| {
        let bars = shown.iter().enumerate().filter_map(|(series, name)| {
            let row = rows.iter().find(|row| row.case == case && row.policy == *name)?;
            let Row { mean_steps, ci95, .. } = row;
            let (from, to) = (part(mean_steps - ci95), part(mean_steps + ci95));
            Some(Bar { series, value: part(*mean_steps), from, to })
        });
        Group { name: format!("case {case}"), bars: bars.collect() }
    };
    let groups: Vec<Group> = CASES.map(group).collect();
    plot::draw_bars(path, title, "% of the slowest", shown, &groups)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;

    #[test]
    fn ours_needs_far_fewer_steps_than_the_paper_s_and_is_close_to_the_least() {
        for (case, part) in [(1, 0.75), (2, 0.85), (3, 0.75), (4, 0.85), (5, 0.75)] {
            let rows = rows(case, PROCESSES, &["oxthas-3", "ours"], 2);
            let [paper, ours] = &*rows else { panic!("{rows:?}") };
            assert!(ours.mean_steps <= part * paper.mean_steps, "case {case}: {ours:?} {paper:?}");
            assert!(ours.mean_steps <= 1.35 * ours.bound, "case {case}: {ours:?}");
        }
    }

    #[test]
    fn nobody_beats_the_bound() {
        for row in CASES.flat_map(|case| rows(case, 100, &policies::ALL, 2)) {
            assert!(row.mean_steps >= row.bound, "{row:?}");
        }
    }

    #[test]
    fn what_is_written_comes_out() {
        let written = std::fs::read_to_string(folder("001-5").join("totals.csv")).unwrap();
        let text = csv(&rows(1, PROCESSES, &["ours"], RUNS));
        let line = text.lines().nth(1).unwrap();
        assert!(written.lines().any(|one| one == line), "run `cargo xtask figure 001-5`: {line}");
    }
}
