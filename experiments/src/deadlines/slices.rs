//! What is promised and kept over time, in parts of it that are told apart.

use anyhow::Result;
use serde::Serialize;

use super::drawn::{Arrival, HORIZON};
use super::world::Fate;
use super::{load, ratio};
use crate::division::{folder, rounded};
use crate::plot::{self, Curve, SeriesLabelPosition};

const COUNT: i64 = 20;

#[derive(Debug, Serialize)]
pub(super) struct Slice {
    pub(super) load: f64,
    pub(super) variant: &'static str,
    /// In per cent of the whole time, the end of the slice.
    pub(super) until: i64,
    pub(super) ratio: f64,
}

/// The sums of all runs of a variant.
#[derive(Clone, Debug)]
pub(super) struct Slices {
    runs: u32,
    sums: Vec<f64>,
}

impl Slices {
    pub(super) fn new() -> Self {
        Self { runs: 0, sums: vec![0.0; COUNT as usize] }
    }

    /// Takes in one run.
    pub(super) fn add(&mut self, drawn: &[Arrival], fates: &[Fate]) {
        self.runs += 1;
        for (slice, sum) in (0..).zip(&mut self.sums) {
            let within = |at: i64| at * COUNT / HORIZON == slice;
            *sum += ratio(drawn, fates, |arrival| within(arrival.at));
        }
    }

    pub(super) fn told(self, load: f64, variant: &'static str) -> impl Iterator<Item = Slice> {
        let until = (1..).map(|slice| slice * 100 / COUNT);
        let runs = f64::from(self.runs.max(1));
        let means = self.sums.into_iter().map(move |sum| sum / runs).zip(until);
        means.map(move |(ratio, until)| Slice { load, variant, until, ratio: rounded(ratio, 4) })
    }
}

/// What is drawn of a figure.
pub(super) struct Drawing<'a> {
    pub(super) figure: &'a str,
    pub(super) file: &'a str,
    pub(super) title: &'a str,
    /// In tenths.
    pub(super) load: u32,
}

impl Drawing<'_> {
    pub(super) fn draw(
        &self,
        over_time: &[Slice],
        variants: impl Iterator<Item = &'static str>,
    ) -> Result<()> {
        let curve = |name: &'static str| {
            let is_it = |it: &&Slice| it.variant == name && it.load == load(self.load);
            let own = over_time.iter().filter(is_it);
            Curve { name, values: own.map(|slice| slice.ratio * 100.0).collect() }
        };
        let curves: Vec<Curve<'_>> = variants.map(curve).collect();
        let (axes, legend) = (["% of the time", "%"], SeriesLabelPosition::LowerLeft);
        let apart = 100.0 / COUNT as f64;
        let path = folder(self.figure).join(self.file);
        std::fs::create_dir_all(folder(self.figure))?;
        plot::draw_parts(&path, self.title, axes, legend, &curves, (apart, apart))
    }
}
