//! Figure 6: 200 to 2,000 processes of each engine, in case 3.

use anyhow::Result;
use serde::Serialize;

use super::{RUNS, Row, policies, rows, tell};
use crate::division::folder;
use crate::plot::{self, Curve, SeriesLabelPosition};

const CASE: u8 = 3;
/// Hundreds of processes.
const HUNDREDS: [u32; 10] = [2, 4, 6, 8, 10, 12, 14, 16, 18, 20];
const SHOWN: [&str; 6] = ["random", "round-robin", "oxthas-1", "oxthas-2", "oxthas-3", "ours"];

#[derive(Debug, Serialize)]
struct Figure {
    figure: &'static str,
    runs: u64,
    rows: Vec<Row>,
}

pub(crate) fn run(json: bool) -> Result<()> {
    let of = |hundreds: &u32| rows(CASE, hundreds * 100, &policies::ALL, RUNS);
    let rows: Vec<Row> = HUNDREDS.iter().flat_map(of).collect();
    let folder = folder("001-6");
    std::fs::create_dir_all(&folder)?;
    let curve = |name: &'static str| {
        let own = rows.iter().filter(|row| row.policy == name);
        Curve { name, values: own.map(|row| row.mean_steps).collect() }
    };
    let curves = SHOWN.map(curve);
    let axes = ["processes of each engine", "steps"];
    let place = SeriesLabelPosition::UpperLeft;
    let title = "Steps in case 3";
    plot::draw_over(&folder.join("counts.svg"), title, axes, place, &curves, (200.0, 200.0))?;
    let text = csv(&rows);
    tell(&Figure { figure: "001-6", runs: RUNS, rows }, "001-6", "counts.csv", &text, json)
}

fn csv(rows: &[Row]) -> String {
    let mut csv = "processes,policy,mean_steps,ci95,bound\n".to_owned();
    for Row { processes, policy, mean_steps, ci95, bound, .. } in rows {
        csv += &format!("{processes},{policy},{mean_steps:.1},{ci95:.1},{bound:.1}\n");
    }
    csv
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;

    #[test]
    fn what_is_written_comes_out() {
        let written = std::fs::read_to_string(folder("001-6").join("counts.csv")).unwrap();
        let text = csv(&rows(CASE, 200, &policies::ALL, RUNS));
        for line in text.lines() {
            assert!(
                written.lines().any(|one| one == line),
                "run `cargo xtask figure 001-6`: {line}"
            );
        }
    }
}
