//! Figures 8 and 9: one run in which executor 2 dies; the queues of all executors, and the retries
//! of the dead one's tasks.

use anyhow::Result;
use serde::Serialize;

use super::drawn::RANDOM;
use super::failing::{CANCELLED, DEAD, DIES_AT, KEPT, PROCESSES, Variant};
use super::world::{Failure, Sample};
use super::{Drawn, EXECUTORS, Outcome, Setting, chooser, run, tell};
use crate::division::folder;
use crate::plot::{self, Curve, SeriesLabelPosition};

const TIMEOUT: f64 = 1_000.0;
/// The shown run; the paper shows one as well.
const SEED: u64 = 0;
const POLICIES: [&str; 4] = ["none", "capability", "timeout", "ours"];

#[derive(Debug, Serialize)]
struct Figure<T> {
    figure: &'static str,
    rows: Vec<T>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Queues {
    policy: &'static str,
    step: f64,
    queues: [u32; EXECUTORS],
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Retries {
    policy: &'static str,
    step: f64,
    retries: u32,
}

/// Figure 8.
pub(crate) fn queues(json: bool) -> Result<()> {
    let rows: Vec<Queues> = POLICIES.into_iter().flat_map(queues_of).collect();
    let name = "001-8";
    let of = |row: &Queues| f64::from(row.queues[DEAD]);
    let curves: Vec<Curve<'_>> = POLICIES
        .into_iter()
        .map(|name| {
            let own = rows.iter().filter(|row| row.policy == name);
            Curve { name, values: own.map(of).collect() }
        })
        .collect();
    draw(name, "queues.svg", "What executor 2 has (time-out 1000)", "tasks", &curves)?;
    let text = queues_csv(&rows);
    tell(&Figure { figure: name, rows }, name, "queues.csv", &text, json)
}

/// Figure 9, twice.
pub(crate) fn retries(json: bool) -> Result<()> {
    retries_of(KEPT, "retries", json)?;
    retries_of(CANCELLED, "cancelled", json)
}

fn retries_of(variant: Variant, file: &str, json: bool) -> Result<()> {
    let rows = retries_rows(variant);
    let name = "001-9";
    let curves: Vec<Curve<'_>> = POLICIES
        .into_iter()
        .map(|name| {
            let own = rows.iter().filter(|row| row.policy == name);
            Curve { name, values: own.map(|row| f64::from(row.retries)).collect() }
        })
        .collect();
    let sizes = if variant.cancels { ", sizes to 60, cancelled" } else { "" };
    let title = format!("Tasks taken from executor 2 (time-out 1000{sizes})");
    draw(name, &format!("{file}.svg"), &title, "tasks", &curves)?;
    let text = retries_csv(&rows);
    tell(&Figure { figure: name, rows }, name, &format!("{file}.csv"), &text, json)
}

fn retries_rows(variant: Variant) -> Vec<Retries> {
    let row = |policy: &'static str, Sample { step, retries, .. }: &Sample| Retries {
        policy,
        step: *step,
        retries: retries[DEAD],
    };
    let of = |policy| {
        samples(variant, policy).iter().map(|sample| row(policy, sample)).collect::<Vec<_>>()
    };
    POLICIES.into_iter().flat_map(of).collect()
}

fn retries_csv(rows: &[Retries]) -> String {
    let mut text = "policy,step,retries\n".to_owned();
    for Retries { policy, step, retries } in rows {
        text += &format!("{policy},{step},{retries}\n");
    }
    text
}

fn samples(variant: Variant, policy: &str) -> Vec<Sample> {
    let drawn = Drawn::with_sizes(RANDOM, PROCESSES, SEED, variant.size_max);
    let failure = Some(Failure { executor: DEAD, at: DIES_AT, timeout: TIMEOUT });
    let cancels = variant.cancels;
    let setting = Setting { failure, cancels, is_sampled: true, ..Setting::default() };
    let Outcome { samples, .. } = run(&drawn, setting, |seed| chooser(policy, seed));
    samples
}

fn queues_of(policy: &'static str) -> Vec<Queues> {
    let row =
        |Sample { step, queues, .. }: &Sample| Queues { policy, step: *step, queues: *queues };
    samples(KEPT, policy).iter().map(row).collect()
}

fn queues_csv(rows: &[Queues]) -> String {
    let mut text = "policy,step,e1,e2,e3,e4,e5,e6\n".to_owned();
    for Queues { policy, step, queues } in rows {
        let queues: Vec<String> = queues.iter().map(u32::to_string).collect();
        text += &format!("{policy},{step},{}\n", queues.join(","));
    }
    text
}

fn draw(name: &str, file: &str, title: &str, unit: &str, curves: &[Curve<'_>]) -> Result<()> {
    let folder = folder(name);
    std::fs::create_dir_all(&folder)?;
    let place = SeriesLabelPosition::UpperLeft;
    plot::draw_over(&folder.join(file), title, ["step", unit], place, curves, (0.0, 100.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;

    #[test]
    fn what_is_written_comes_out() {
        let written = std::fs::read_to_string(folder("001-8").join("queues.csv")).unwrap();
        let rows: Vec<Queues> = POLICIES.into_iter().flat_map(queues_of).collect();
        assert_eq!(written, queues_csv(&rows), "run `cargo xtask figure 001-8`");
    }

    #[test]
    fn what_is_written_of_retries_comes_out() {
        for (variant, file) in [(KEPT, "retries.csv"), (CANCELLED, "cancelled.csv")] {
            let written = std::fs::read_to_string(folder("001-9").join(file)).unwrap();
            assert_eq!(
                written,
                retries_csv(&retries_rows(variant)),
                "run `cargo xtask figure 001-9`"
            );
        }
    }

    #[test]
    fn the_queue_of_the_dead_one_hardly_grows_with_ours() {
        let most = |policy| {
            let after = queues_of(policy).into_iter().filter(|row| row.step >= DIES_AT);
            after.map(|row| row.queues[DEAD]).max().unwrap()
        };
        assert!(most("ours") < most("capability") && most("capability") <= most("none"));
    }
}
