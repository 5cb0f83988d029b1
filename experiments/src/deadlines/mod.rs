//! Deadlines that nodes promise each other: figures 7 and 8 of Lee, Park: "Design of Task Allocation Algorithm
//! for Workflow Engine" (in Korean), and a comparison of the ways to ask others.

mod bound;
mod drawn;
mod faults;
mod page;
mod removal;
mod slices;
mod strategies;
mod world;

use serde::Serialize;

use self::drawn::{Arrival, arrivals};
use self::world::{Fate, Fault, Setting, run};
use crate::division::rounded;
use crate::executors::mean;

pub(crate) use faults::run as faults;
pub(crate) use removal::run as removal;
pub(crate) use strategies::run as strategies;

const RUNS: u64 = 20;
/// Loads, in tenths.
const LOADS: std::ops::RangeInclusive<u32> = 3..=9;

/// The part of tasks that was promised and kept, of those that a filter takes; 1 of none.
fn ratio(arrivals: &[Arrival], fates: &[Fate], of: impl Fn(&Arrival) -> bool) -> f64 {
    let counted = arrivals.iter().zip(fates).filter(|(arrival, _)| of(arrival));
    let (all, kept) = counted.fold((0_u32, 0_u32), |(all, kept), (_, fate)| {
        (all + 1, kept + u32::from(fate.kept && fate.promised))
    });
    if all == 0 { 1.0 } else { f64::from(kept) / f64::from(all) }
}

/// One variant beside another in the same runs. All variants of a run are given the same tasks, so what differs from run
/// to run says nothing about them: only the difference in each does.
#[derive(Debug, Serialize)]
struct Difference {
    load: f64,
    of: &'static str,
    minus: &'static str,
    difference: f64,
    ci95: f64,
}

impl Difference {
    fn new(tenths: u32, (of, ours): (&'static str, &[f64]), minus: (&'static str, &[f64])) -> Self {
        let (difference, ci95) = apart(ours, minus.1);
        Self { load: load(tenths), of, minus: minus.0, difference, ci95 }
    }

    fn variant(&self) -> String {
        format!("{} - {}", self.of, self.minus)
    }

    /// Whether it is more than chance that the first is worse.
    #[cfg(test)]
    fn is_worse(&self) -> bool {
        self.difference + self.ci95 < 0.0
    }
}

/// The mean of the differences run by run, and half its 95 % confidence interval.
fn apart(ours: &[f64], others: &[f64]) -> (f64, f64) {
    let differences: Vec<f64> = ours.iter().zip(others).map(|(one, other)| one - other).collect();
    of_runs(&differences)
}

/// The mean of some runs and half its 95 % confidence interval, as they are written.
fn of_runs(values: &[f64]) -> (f64, f64) {
    let (mean, ci95) = mean(values);
    (rounded(mean, 4), rounded(ci95.unwrap_or_default(), 4))
}

fn load(tenths: u32) -> f64 {
    f64::from(tenths) / 10.0
}
