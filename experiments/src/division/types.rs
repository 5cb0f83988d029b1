//! Figure 6: the same for the instances of every single type, with 1,000 active at a time.

use anyhow::Result;
use serde::Serialize;

use super::simulation::{
    MEAN_STAY_H, SERVERS, Setting, Shown, TYPES, Way, YEAR_H, intended, simulate,
};
use super::{folder, mean, rounded, write};
use crate::plot::{self, Bar, Group};

const ACTIVE: u32 = 1_000;
const RUNS: u64 = 10;
const WAYS: [Way; 2] = [Way::Hash, Way::Ours];

#[derive(Debug, Serialize)]
struct Figure {
    figure: &'static str,
    runs: u64,
    hours: f64,
    mean_retention_hours: f64,
    active: u32,
    rows: Vec<Row>,
}

/// One type at one server, the mean of all runs; as in figure 5.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    placement: &'static str,
    #[serde(rename = "type")]
    kind: usize,
    server: String,
    intended: f64,
    average: f64,
    max_dev_pct: f64,
    min_dev_pct: f64,
    max_share_dev_pct: f64,
}

const HEAD: &str =
    "placement,type,server,intended,average,max_dev_pct,min_dev_pct,max_share_dev_pct\n";

pub(crate) fn run(json: bool) -> Result<()> {
    let rows = rows(RUNS, YEAR_H);
    let folder = folder("002-6");
    write(&folder, "types.csv", &csv(&rows))?;
    draw(&folder.join("types.svg"), &rows)?;
    if json {
        let (runs, hours, active) = (RUNS, YEAR_H, ACTIVE);
        let mean_retention_hours = MEAN_STAY_H;
        let figure = Figure { figure: "002-6", runs, hours, mean_retention_hours, active, rows };
        println!("{}", serde_json::to_string(&figure)?);
    } else {
        print!("{}", csv(&rows));
        println!("written: {}", folder.display());
    }
    Ok(())
}

fn rows(runs: u64, hours: f64) -> Vec<Row> {
    let run = |seed| simulate(Setting { active: ACTIVE, hours, fronts: SERVERS, seed });
    let outcomes: Vec<_> = (0..runs).map(|number| run(6 << 32 | number)).collect();
    let mut rows = Vec::new();
    for way in WAYS {
        for kind in 0..TYPES {
            for server in 0..SERVERS {
                let all = |of: fn(&Shown) -> f64| -> Vec<f64> {
                    let of = |shown: Shown| of(&shown);
                    outcomes.iter().map(|o| of(o[way as usize].shown_of(kind, server))).collect()
                };
                let share_dev = all(|shown| shown.share_dev).into_iter().fold(0.0, f64::max);
                rows.push(Row {
                    placement: way.word(),
                    kind: kind + 1,
                    server: format!("s{}", server + 1),
                    intended: intended(server) * 100.0,
                    average: rounded(mean(&all(|shown| shown.average)).0, 3),
                    max_dev_pct: rounded(mean(&all(|shown| shown.max_dev)).0, 2),
                    min_dev_pct: rounded(mean(&all(|shown| shown.min_dev)).0, 2),
                    max_share_dev_pct: rounded(share_dev, 2),
                });
            }
        }
    }
    rows
}

fn csv(rows: &[Row]) -> String {
    let line = |row: &Row| {
        let Row { placement, kind, server, intended, average, .. } = row;
        format!(
            "{placement},{kind},{server},{intended},{average:.3},{:.2},{:.2},{:.2}\n",
            row.max_dev_pct, row.min_dev_pct, row.max_share_dev_pct
        )
    };
    HEAD.to_owned() + &rows.iter().map(line).collect::<String>()
}

fn draw(path: &std::path::Path, rows: &[Row]) -> Result<()> {
    let groups: Vec<Group> = (1..=TYPES)
        .map(|kind| Group {
            name: format!("type {kind}"),
            bars: rows
                .iter()
                .filter(|row| row.kind == kind)
                .map(|row| Bar {
                    series: usize::from(row.placement == "ours"),
                    value: row.average,
                    from: row.intended * (1.0 - row.max_share_dev_pct / 100.0).max(0.0),
                    to: row.intended * (1.0 + row.max_share_dev_pct / 100.0),
                })
                .collect(),
        })
        .collect();
    plot::draw_bars(
        path,
        "Share of the load of each type, 1,000 instances active",
        "% of the type's load just then",
        &["plain hash", "ours"],
        &groups,
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;

    #[test]
    fn a2_6_every_single_type_has_the_intended_shares() {
        let text = std::fs::read_to_string(folder("002-6").join("types.csv")).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().skip(1).map(|l| l.split(',').collect()).collect();
        assert_eq!(lines.len(), WAYS.len() * TYPES * SERVERS);
        for line in lines {
            let (intended, average): (f64, f64) =
                (line[3].parse().unwrap(), line[4].parse().unwrap());
            assert!((average - intended).abs() <= 0.5, "{line:?}");
        }
    }

    #[test]
    fn a_small_run_shows_the_same() {
        for row in rows(1, 10.0 * 24.0).iter().filter(|row| row.placement == "ours") {
            assert!((row.average - row.intended).abs() <= 0.5, "{row:?}");
        }
    }
}
