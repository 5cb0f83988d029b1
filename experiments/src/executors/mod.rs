//! Automatic steps on executors that several engines share: figures 4 to 9 of Katoh, Kobayashi, Yokota:
//! "OXTHAS: Failure-aware Activity Scheduling in Web Services Based Workflow Management", IEICE
//! Transactions D J91-D(4), 2008.

mod bound;
mod counts;
mod course;
mod drawn;
mod failing;
mod partitions;
mod policies;
mod totals;
mod world;

use anyhow::Result;
use serde::Serialize;

pub(crate) use counts::run as counts;
pub(crate) use course::{queues, retries};
pub(crate) use failing::run as failing;
pub(crate) use partitions::run as partitions;
pub(crate) use totals::run as totals;

use self::drawn::Drawn;
use self::policies::chooser;
use self::world::{Outcome, Setting, run};
use crate::division::{folder, rounded, write};

/// Executors and types of activities; a process has one activity of each type, in sequence.
const EXECUTORS: usize = 6;
const KINDS: usize = 5;
const CASES: std::ops::RangeInclusive<u8> = 1..=5;
/// Processes of each engine when nothing fails.
const PROCESSES: u32 = 1_000;
const RUNS: u64 = 20;

/// The mean of some runs under a policy without failures.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Row {
    case: u8,
    policy: &'static str,
    processes: u32,
    mean_steps: f64,
    ci95: f64,
    /// The bound on any assignment: the fluid one, and the last arrival.
    bound: f64,
}

/// The rows of all these policies with the same tasks.
fn rows(case: u8, processes: u32, policies: &[&'static str], runs: u64) -> Vec<Row> {
    let drawn: Vec<Drawn> = (0..runs).map(|seed| Drawn::new(case, processes, seed)).collect();
    let bounds: Vec<f64> = drawn.iter().map(bound::of).collect();
    let bound = rounded(mean(&bounds).0, 1);
    let row = |policy: &'static str| {
        let steps = |drawn: &Drawn| run(drawn, Setting::default(), |seed| chooser(policy, seed));
        let steps: Vec<f64> = drawn.iter().map(|drawn| steps(drawn).steps).collect();
        let (mean_steps, ci95) = mean(&steps);
        let (mean_steps, ci95) = (rounded(mean_steps, 1), rounded(ci95.unwrap_or_default(), 1));
        Row { case, policy, processes, mean_steps, ci95, bound }
    };
    policies.iter().copied().map(row).collect()
}

/// Student's t at 95 %, for two to twenty runs.
const T: [f64; 19] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
];

/// The mean of some values and half the width of its 95 % confidence interval, which needs more than
/// one value.
pub(crate) fn mean(values: &[f64]) -> (f64, Option<f64>) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let t = values.len().checked_sub(2).map(|place| T[place.min(T.len() - 1)]);
    let spread: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, t.map(|t| t * (spread / (count - 1.0) / count).sqrt()))
}

/// Writes the table of a figure, and prints it or the whole figure.
pub(crate) fn tell(
    figure: &impl Serialize,
    name: &str,
    file: &str,
    csv: &str,
    json: bool,
) -> Result<()> {
    let folder = folder(name);
    write(&folder, file, csv)?;
    if json {
        println!("{}", serde_json::to_string(figure)?);
    } else {
        print!("{csv}");
        println!("written: {}", folder.display());
    }
    Ok(())
}
