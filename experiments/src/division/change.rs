//! The effect of changing 20:30:50 to 50:30:20: Algorithms 3 and 4 of section 4.2.
//!
//! Instances are created up to two days before they come into the domain: the two algorithms differ
//! for those in transit at the change.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use anyhow::Result;
use legwork_model::id::InstanceId;
use legwork_placement::{Chain, Exceptions, Layout, Rule};
use serde::Serialize;

use super::random::Random;
use super::simulation::{
    Fronts, LOADS, MEAN_STAY_H, SERVERS, WEIGHTS, gap, kind, layout, stay, weights,
};
use super::{folder, rounded, write};
use crate::plot::{self, Curve, SeriesLabelPosition};

const ACTIVE: u32 = 10_000;
const NEW: [u32; SERVERS] = [50, 30, 20];
const HOUR_MS: u64 = 3_600_000;
/// When the weights change: the arrivals are in their steady state.
const CHANGE_H: u64 = 4 * 24;
/// How long the effect is measured.
const HOURS: u64 = 4 * 24;
/// The longest time between creation and arrival in the domain.
const WAY_H: u64 = 48;

#[derive(Debug, Serialize)]
struct Figure {
    figure: &'static str,
    active: usize,
    mean_retention_hours: f64,
    /// Active instances that keep the old weights by exception: with the paper's intervals, and
    /// with the product's.
    exceptions_contiguous: usize,
    exceptions_ours: usize,
    exceptions_contiguous_pct: f64,
    exceptions_ours_pct: f64,
    /// Hours until the load of every server is within 2 points of the intended one.
    hours_by_time_stamp: Option<u64>,
    hours_by_exceptions: Option<u64>,
    rows: Vec<Row>,
}

/// Shares of the load in percent, an hour each.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    hour: i64,
    algorithm3: [f64; SERVERS],
    algorithm4: [f64; SERVERS],
    /// The remaining exceptions: ended instances are forgotten.
    exceptions: usize,
}

/// An instance in transit, and then in the domain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stay {
    leaves: u64,
    id: InstanceId,
    kind: usize,
    /// Its server under Algorithm 3, and under 4.
    servers: [usize; 2],
}

pub(crate) fn run(json: bool) -> Result<()> {
    let figure = figure(ACTIVE);
    let folder = folder("002-4");
    write(&folder, "change.csv", &figure.csv())?;
    figure.draw(&folder.join("change.svg"))?;
    if json {
        println!("{}", serde_json::to_string(&figure)?);
    } else {
        print!("{}", figure.csv());
        println!("written: {}", folder.display());
    }
    Ok(())
}

fn figure(active: u32) -> Figure {
    let mut dice = Random::new(u64::from(active));
    let mut fronts = Fronts::new(SERVERS, &mut dice);
    let old = Chain::new(layout(WEIGHTS));
    let new = old.newest().next(&weights(NEW)).unwrap_or_else(|| layout(NEW));
    let mut chains = [old.clone(), old.clone()];
    let mut stays: BinaryHeap<Reverse<Stay>> = BinaryHeap::new();
    let mut figure = Figure {
        figure: "002-4",
        active: 0,
        mean_retention_hours: MEAN_STAY_H,
        exceptions_contiguous: 0,
        exceptions_ours: 0,
        exceptions_contiguous_pct: 0.0,
        exceptions_ours_pct: 0.0,
        hours_by_time_stamp: None,
        hours_by_exceptions: None,
        rows: Vec::new(),
    };
    let (mut arrival, mut count) = (0.0_f64, 0_u32);
    let mut ended: BTreeSet<InstanceId> = BTreeSet::new();
    for hour in 0..CHANGE_H + HOURS {
        let end = (hour + 1) * HOUR_MS;
        while (arrival as u64) < end {
            let now = arrival as u64;
            let (kind, front) = (kind(&mut dice), dice.below(SERVERS));
            // It comes from another domain: the moment of its creation is in its id.
            let age = (dice.unit() * (WAY_H * HOUR_MS) as f64) as u64;
            count += 1;
            let created = (now + WAY_H * HOUR_MS).saturating_sub(age);
            let id = fronts.draw(front, kind, created, count);
            let servers = [0, 1].map(|of: usize| usize::from(chains[of].server(id).0));
            let leaves = now + stay(kind, &mut dice);
            stays.push(Reverse(Stay { leaves, id, kind, servers }));
            arrival += gap(active, &mut dice);
        }
        while let Some(Reverse(stay)) = stays.peek().copied().filter(|stay| stay.0.leaves < end) {
            stays.pop();
            ended.insert(stay.id);
        }
        chains[1].forget(&std::mem::take(&mut ended));
        let hour = hour as i64 + 1 - CHANGE_H as i64;
        if hour >= -6 {
            figure.rows.push(row(hour, &stays, &chains[1]));
        }
        if hour == 0 {
            // All moments are shifted by the age of the oldest instance in transit.
            let now = end + WAY_H * HOUR_MS;
            figure.change(&stays, &mut chains, &new, now);
        }
    }
    figure.settle();
    figure
}

fn row(hour: i64, stays: &BinaryHeap<Reverse<Stay>>, chain: &Chain) -> Row {
    let mut loads = [[0_u32; SERVERS]; 2];
    for Reverse(stay) in stays {
        for (loads, server) in loads.iter_mut().zip(stay.servers) {
            loads[server] += LOADS[stay.kind];
        }
    }
    let shares = loads.map(|loads| {
        let total: u32 = loads.iter().sum();
        loads.map(|load| rounded(f64::from(load) / f64::from(total.max(1)) * 100.0, 2))
    });
    let [algorithm3, algorithm4] = shares;
    let exceptions = chain.versions().map(|version| match &version.rule {
        Rule::Except(ids) => ids.len(),
        Rule::Always | Rule::Since(_) => 0,
    });
    Row { hour, algorithm3, algorithm4, exceptions: exceptions.sum() }
}

impl Figure {
    /// The weights change.
    fn change(
        &mut self,
        stays: &BinaryHeap<Reverse<Stay>>,
        chains: &mut [Chain; 2],
        new: &Layout,
        now: u64,
    ) {
        let moved = |layout: &Layout, chain: &Chain| -> Vec<InstanceId> {
            let ids = stays.iter().map(|stay| stay.0.id);
            ids.filter(|id| layout.server(id.spread()) != chain.server(*id)).collect()
        };
        self.active = stays.len();
        self.exceptions_contiguous = moved(&layout(NEW), &chains[1]).len();
        let exceptions = Exceptions::new(moved(new, &chains[1]));
        self.exceptions_ours = exceptions.len();
        let percent = |part: usize| rounded(part as f64 / stays.len() as f64 * 100.0, 1);
        self.exceptions_contiguous_pct = percent(self.exceptions_contiguous);
        self.exceptions_ours_pct = percent(self.exceptions_ours);
        chains[0] = chains[0].then(new.clone(), Rule::Since(now));
        chains[1] = chains[1].then(new.clone(), Rule::Except(exceptions));
    }

    fn settle(&mut self) {
        let near = |shares: &[f64; SERVERS]| {
            shares.iter().zip(NEW).all(|(share, meant)| (share - f64::from(meant)).abs() < 2.0)
        };
        let hours = |of: fn(&Row) -> &[f64; SERVERS]| {
            let row = self.rows.iter().find(|row| row.hour > 0 && near(of(row)));
            row.map(|row| row.hour.unsigned_abs())
        };
        self.hours_by_time_stamp = hours(|row| &row.algorithm3);
        self.hours_by_exceptions = hours(|row| &row.algorithm4);
    }

    fn csv(&self) -> String {
        let mut text = String::from(
            "hour,algorithm3_s1,algorithm3_s2,algorithm3_s3,algorithm4_s1,algorithm4_s2,\
             algorithm4_s3,exceptions\n",
        );
        for Row { hour, algorithm3, algorithm4, exceptions } in &self.rows {
            let shares = algorithm3.iter().chain(algorithm4).map(|share| format!("{share:.2}"));
            let shares = shares.collect::<Vec<_>>().join(",");
            text.push_str(&format!("{hour},{shares},{exceptions}\n"));
        }
        text
    }

    fn draw(&self, path: &std::path::Path) -> Result<()> {
        let after = || self.rows.iter().filter(|row| row.hour > 0);
        let of =
            |name, value: fn(&Row) -> f64| Curve { name, values: after().map(value).collect() };
        let curves = [
            of("s1, time stamp", |row| row.algorithm3[0]),
            of("s1, exceptions", |row| row.algorithm4[0]),
            of("s3, time stamp", |row| row.algorithm3[2]),
            of("s3, exceptions", |row| row.algorithm4[2]),
        ];
        let title = "After 20:30:50 became 50:30:20";
        let legend = SeriesLabelPosition::LowerRight;
        plot::draw(path, title, ["hours", "% of the load"], legend, &curves)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;

    #[test]
    fn the_product_excepts_half_as_many_as_the_paper_and_both_come_to_the_new_weights() {
        let figure = figure(1_000);
        assert!((figure.exceptions_contiguous_pct - 60.0).abs() < 4.0, "{figure:?}");
        assert!((figure.exceptions_ours_pct - 30.0).abs() < 4.0, "{figure:?}");
        let (stamp, set) =
            (figure.hours_by_time_stamp.unwrap(), figure.hours_by_exceptions.unwrap());
        assert!(set < stamp, "{set} and {stamp}");
        assert_eq!(figure.rows.last().unwrap().exceptions, 0, "all of them have ended");
    }

    #[test]
    fn what_is_written_comes_out() {
        let written = std::fs::read_to_string(folder("002-4").join("change.csv")).unwrap();
        assert_eq!(written, figure(ACTIVE).csv(), "run `cargo xtask figure 002-4`");
    }
}
