//! Curves over rounds as an SVG.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// A line of a plot: its name, and a value per round.
pub(crate) struct Curve<'a> {
    pub(crate) name: &'a str,
    pub(crate) values: Vec<f64>,
}

const SIZE: (u32, u32) = (720, 400);
const COLOURS: [RGBColor; 2] = [RGBColor(178, 72, 52), RGBColor(28, 98, 122)];

pub(crate) fn draw(path: &Path, title: &str, unit: &str, curves: &[Curve<'_>]) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", path.display());
    let all = || curves.iter().flat_map(|curve| curve.values.iter().copied());
    let rounds = curves.iter().map(|curve| curve.values.len()).max().unwrap_or(0) as f64;
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(|error| failed(&error))?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(1.0..rounds, 0.0..all().fold(0.0, f64::max) * 1.05)
        .map_err(|error| failed(&error))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc("round of the loop")
        .y_desc(unit)
        .x_label_formatter(&|round| format!("{round:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .draw()
        .map_err(|error| failed(&error))?;
    for (curve, colour) in curves.iter().zip(COLOURS) {
        let points = curve.values.iter().enumerate().map(|(n, value)| ((n + 1) as f64, *value));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(3)))
            .map_err(|error| failed(&error))?
            .label(curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(BLACK.mix(0.2))
        .background_style(WHITE)
        .draw()
        .map_err(|error| failed(&error))?;
    area.present().map_err(|error| failed(&error))
}
