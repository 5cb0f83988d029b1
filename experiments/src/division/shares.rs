//! Figure 5: the load of three servers with 10 to 10,000 instances active at a time.

use anyhow::Result;
use serde::Serialize;

use super::simulation::{MEAN_STAY_H, Outcome, SERVERS, Setting, Way, YEAR_H, intended, simulate};
use super::{folder, mean, rounded, write};
use crate::plot::{self, Bar, Group};

/// The average numbers of active instances.
const ACTIVE: [u32; 4] = [10, 100, 1_000, 10_000];
const RUNS: u64 = 10;
/// Every server of the domain starts instances.
const FRONTS: usize = SERVERS;

#[derive(Debug, Serialize)]
struct Figure {
    figure: &'static str,
    runs: u64,
    hours: f64,
    mean_retention_hours: f64,
    rows: Vec<Row>,
    /// Placements that the product does not have.
    compared: Vec<Row>,
}

/// One server, the mean of all runs. Loads are shares of the domain's average load, in percent;
/// deviations are in percent of what is intended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) active: u32,
    pub(super) placement: &'static str,
    pub(super) server: String,
    pub(super) intended: f64,
    pub(super) average: f64,
    /// Half of the 99 % confidence interval of the average, in percent of it.
    pub(super) average_ci_pct: f64,
    pub(super) max_dev_pct: f64,
    pub(super) min_dev_pct: f64,
    /// The largest deviation of its current share of the load from the intended one, in any run.
    pub(super) max_share_dev_pct: f64,
    /// The same, as the mean of all runs.
    pub(super) mean_share_dev_pct: f64,
}

const HEAD: &str = "active,placement,server,intended,average,average_ci_pct,max_dev_pct,\
                    min_dev_pct,max_share_dev_pct,mean_share_dev_pct\n";

impl Row {
    fn csv(&self) -> String {
        let Self { active, placement, server, intended, .. } = self;
        format!(
            "{active},{placement},{server},{intended},{:.2},{:.2},{:.2},{:.2},{:.2},{:.2}\n",
            self.average,
            self.average_ci_pct,
            self.max_dev_pct,
            self.min_dev_pct,
            self.max_share_dev_pct,
            self.mean_share_dev_pct,
        )
    }
}

pub(crate) fn run(json: bool) -> Result<()> {
    let mut rows = Vec::new();
    for active in ACTIVE {
        eprintln!("{active} active …");
        rows.extend(rows_of(active, RUNS, YEAR_H, FRONTS));
    }
    let is_own = |row: &Row| row.placement == "hash" || row.placement == "ours";
    let (rows, compared): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(is_own);
    let folder = folder("002-5");
    write(&folder, "shares.csv", &csv(&rows))?;
    write(&folder, "compared.csv", &csv(&compared))?;
    draw(&folder.join("shares.svg"), &rows)?;
    if json {
        let (runs, hours) = (RUNS, YEAR_H);
        let mean_retention_hours = MEAN_STAY_H;
        let figure = Figure { figure: "002-5", runs, hours, mean_retention_hours, rows, compared };
        println!("{}", serde_json::to_string(&figure)?);
    } else {
        print!("{}{}", csv(&rows), csv(&compared));
        println!("written: {}", folder.display());
    }
    Ok(())
}

/// The rows of all placements and servers.
pub(super) fn rows_of(active: u32, runs: u64, hours: f64, fronts: usize) -> Vec<Row> {
    let seeds = (0..runs).map(|run| u64::from(active) << 32 | run);
    let outcomes: Vec<Outcome> =
        seeds.map(|seed| simulate(Setting { active, hours, fronts, seed })).collect();
    let mut rows = Vec::new();
    for way in Way::ALL {
        for server in 0..SERVERS {
            let shown: Vec<_> =
                outcomes.iter().map(|outcome| outcome[way as usize].shown(server)).collect();
            let all = |of: fn(&super::simulation::Shown) -> f64| -> Vec<f64> {
                shown.iter().map(of).collect()
            };
            let (average, ci) = mean(&all(|shown| shown.average));
            let share_devs = all(|shown| shown.share_dev);
            rows.push(Row {
                active,
                placement: way.word(),
                server: format!("s{}", server + 1),
                intended: intended(server) * 100.0,
                average: rounded(average, 2),
                average_ci_pct: rounded(ci / average * 100.0, 2),
                max_dev_pct: rounded(mean(&all(|shown| shown.max_dev)).0, 2),
                min_dev_pct: rounded(mean(&all(|shown| shown.min_dev)).0, 2),
                max_share_dev_pct: rounded(share_devs.iter().copied().fold(0.0, f64::max), 2),
                mean_share_dev_pct: rounded(mean(&share_devs).0, 2),
            });
        }
    }
    rows
}

fn csv(rows: &[Row]) -> String {
    HEAD.to_owned() + &rows.iter().map(Row::csv).collect::<String>()
}

/// Bars as in the paper: the average, from the least to the greatest load.
fn draw(path: &std::path::Path, rows: &[Row]) -> Result<()> {
    let groups = ACTIVE.map(|active| Group {
        name: format!("{active} active"),
        bars: rows
            .iter()
            .filter(|row| row.active == active)
            .map(|row| Bar {
                series: usize::from(row.placement == "ours"),
                value: row.average,
                from: row.intended * (1.0 - row.max_share_dev_pct / 100.0).max(0.0),
                to: row.intended * (1.0 + row.max_share_dev_pct / 100.0),
            })
            .collect(),
    });
    plot::draw_bars(
        path,
        "Share of the load, and how far from it in a year",
        "% of the load just then",
        &["plain hash", "ours"],
        &groups,
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;

    /// What was written by the whole simulation.
    fn written() -> Vec<Row> {
        let text = std::fs::read_to_string(folder("002-5").join("shares.csv")).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next().map(|line| line.to_owned() + "\n").as_deref(), Some(HEAD));
        let row = |line: &str| {
            let cells: Vec<&str> = line.split(',').collect();
            let number = |place: usize| cells[place].parse::<f64>().unwrap();
            Row {
                active: cells[0].parse().unwrap(),
                placement: if cells[1] == "ours" { "ours" } else { "hash" },
                server: cells[2].to_owned(),
                intended: number(3),
                average: number(4),
                average_ci_pct: number(5),
                max_dev_pct: number(6),
                min_dev_pct: number(7),
                max_share_dev_pct: number(8),
                mean_share_dev_pct: number(9),
            }
        };
        lines.map(row).collect()
    }

    fn of<'r>(rows: &'r [Row], active: u32, placement: &'r str) -> impl Iterator<Item = &'r Row> {
        rows.iter().filter(move |row| row.active == active && row.placement == placement)
    }

    fn largest<'r>(rows: impl Iterator<Item = &'r Row>, what: fn(&Row) -> f64) -> f64 {
        rows.map(what).fold(f64::MIN, f64::max)
    }

    #[test]
    fn a2_1_and_a2_2_averages_are_what_is_intended_to_within_a_percent() {
        let rows = written();
        assert_eq!(rows.len(), ACTIVE.len() * 2 * SERVERS);
        for row in &rows {
            let bound = if row.active == 10 { 0.03 } else { 0.01 };
            assert!((row.average / row.intended - 1.0).abs() < bound, "{row:?}");
            assert!(row.average_ci_pct < bound * 100.0, "{row:?}");
        }
    }

    #[test]
    fn a2_3_and_a2_5_deviations_shrink_with_the_number_of_instances() {
        let rows = written();
        for placement in ["hash", "ours"] {
            for server in 0..SERVERS {
                let dev = |active| {
                    let row = of(&rows, active, placement).nth(server).unwrap();
                    (row.max_dev_pct, -row.min_dev_pct, row.max_share_dev_pct)
                };
                for (few, many) in [(10, 100), (100, 1_000), (1_000, 10_000)] {
                    let (few, many) = (dev(few), dev(many));
                    assert!(many.0 < few.0 && many.1 < few.1 && many.2 < few.2, "{few:?} {many:?}");
                }
            }
            // One server has more than the average of the whole domain.
            let most = of(&rows, 10, placement).map(|r| r.intended * (1.0 + r.max_dev_pct / 100.0));
            assert!(most.fold(0.0, f64::max) > 100.0);
        }
    }

    #[test]
    fn a2_4_with_10000_active_the_load_stays_within_a_tenth() {
        let rows = written();
        for row in rows.iter().filter(|row| row.active == 10_000) {
            assert!(row.max_dev_pct < 10.0 && row.min_dev_pct > -10.0, "{row:?}");
        }
    }

    #[test]
    fn of_the_load_just_then_ours_is_off_by_half_as_much_as_the_hash_at_most() {
        let rows = written();
        let check = |active, what: fn(&Row) -> f64| {
            let ours = largest(of(&rows, active, "ours"), what);
            let hash = largest(of(&rows, active, "hash"), what);
            assert!(ours <= hash / 2.0, "{active}: {ours} of {hash}");
        };
        for active in [100, 1_000, 10_000] {
            check(active, |row| row.max_share_dev_pct);
        }
        for active in [1_000, 10_000] {
            check(active, |row| row.mean_share_dev_pct);
        }
    }

    #[test]
    fn a_small_run_shows_the_same() {
        let rows = rows_of(1_000, 1, 20.0 * 24.0, FRONTS);
        let dev = |row: &Row| row.max_share_dev_pct;
        let (ours, hash) =
            (largest(of(&rows, 1_000, "ours"), dev), largest(of(&rows, 1_000, "hash"), dev));
        assert!(ours <= hash * 0.6, "{ours} of {hash}");
        for row in of(&rows, 1_000, "ours") {
            assert!((row.average / row.intended - 1.0).abs() < 0.01, "{row:?}");
        }
    }
}
