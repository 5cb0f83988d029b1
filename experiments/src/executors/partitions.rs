//! Figure 4: how OXTHAS-3 divides sizes among the best executors.

use anyhow::Result;
use serde::Serialize;

use super::totals::{csv, draw};
use super::{CASES, PROCESSES, RUNS, Row, policies, rows, tell};
use crate::division::folder;

#[derive(Debug, Serialize)]
struct Figure {
    figure: &'static str,
    runs: u64,
    rows: Vec<Row>,
}

pub(crate) fn run(json: bool) -> Result<()> {
    let of = |case| rows(case, PROCESSES, &policies::PARTITIONS, RUNS);
    let rows: Vec<Row> = CASES.flat_map(of).collect();
    let folder = folder("001-4");
    std::fs::create_dir_all(&folder)?;
    let title = "Steps with OXTHAS-3, by how sizes are divided";
    draw(&folder.join("partitions.svg"), title, &policies::PARTITIONS, &rows)?;
    let text = csv(&rows);
    tell(&Figure { figure: "001-4", runs: RUNS, rows }, "001-4", "partitions.csv", &text, json)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;

    #[test]
    fn what_is_written_comes_out() {
        let written = std::fs::read_to_string(folder("001-4").join("partitions.csv")).unwrap();
        let text = csv(&rows(1, PROCESSES, &["rates"], RUNS));
        let line = text.lines().nth(1).unwrap();
        assert!(written.lines().any(|one| one == line), "run `cargo xtask figure 001-4`: {line}");
    }
}
