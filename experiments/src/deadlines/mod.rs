//! Nodes that reserve time for each other's tasks: figures 7 and 8 of Lee, Park: "Design of Task Allocation
//! Algorithm for Workflow Engine" (in Korean), and a comparison of strategies for asking other nodes.
//!
//! Invariant: the plans are those of the server (`legwork_plan`); only the paper's own parts are here.

mod apart;
mod ask;
mod bound;
mod drawn;
mod faults;
mod figure;
mod hand;
mod line;
mod lost;
mod node;
mod removal;
mod share;
mod strategies;
mod whole;
mod world;

use self::drawn::{Arrival, arrivals};

pub(crate) use faults::run as faults;
pub(crate) use removal::run as removal;
pub(crate) use share::run as share;
pub(crate) use strategies::run as strategies;

const RUNS: u64 = 20;
/// Loads, in tenths.
const LOADS: std::ops::RangeInclusive<u32> = 3..=9;

fn load(tenths: u32) -> f64 {
    f64::from(tenths) / 10.0
}

/// The tasks of all runs at a load: the same for all variants.
fn arrivals_of(load: f64) -> Vec<Vec<Arrival>> {
    eprintln!("load {load} …");
    (0..RUNS).map(|seed| arrivals(load, seed)).collect()
}
