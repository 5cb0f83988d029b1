//! How evenly instances are spread over the servers of a domain, and what a change of weights moves:
//! figures 5 and 6, and section 4.2, of Bauer, Reichert, Dadam: "Intra-Subnet Load Balancing in
//! Distributed Workflow Management Systems", IJCIS 12(3), 2003.

mod change;
mod random;

pub(crate) use random::Random;
mod shares;
mod simulation;
mod types;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub(crate) use change::run as change;
pub(crate) use shares::run as shares;
pub(crate) use types::run as types;

/// Where the files of a figure are.
pub(crate) fn folder(figure: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/papers").join(figure)
}

pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::create_dir_all(folder).context("the folder of the figure")?;
    std::fs::write(folder.join(name), text).with_context(|| name.to_owned())
}

/// To so many places behind the point, as it is written and printed.
pub(crate) fn rounded(value: f64, places: i32) -> f64 {
    let scale = 10_f64.powi(places);
    (value * scale).round() / scale
}

/// The mean of some values and half the width of its 99 % confidence interval.
fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let spread: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (spread / (count - 1.0) / count).sqrt();
    // Student's t at 99 % for the degrees of freedom that are used here: 1 to 9.
    let t = [63.66, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250];
    (mean, error * t[(values.len() - 2).min(t.len() - 1)])
}
