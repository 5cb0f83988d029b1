//! Curves over rounds or hours, and bars with their extremes, as an SVG.

use std::path::Path;

use anyhow::{Result, anyhow};
pub(crate) use plotters::prelude::SeriesLabelPosition;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// A line of a plot: its name, and a value per round.
pub(crate) struct Curve<'a> {
    pub(crate) name: &'a str,
    pub(crate) values: Vec<f64>,
}

const SIZE: (u32, u32) = (720, 400);
const COLOURS: [RGBColor; 6] = [
    RGBColor(178, 72, 52),
    RGBColor(28, 98, 122),
    RGBColor(222, 158, 144),
    RGBColor(132, 178, 194),
    RGBColor(84, 130, 53),
    RGBColor(120, 120, 120),
];

pub(crate) fn draw(
    path: &Path,
    title: &str,
    axes: [&str; 2],
    legend: SeriesLabelPosition,
    curves: &[Curve<'_>],
) -> Result<()> {
    draw_over(path, title, axes, legend, curves, (1.0, 1.0))
}

/// The same over other x values: the first one, and the step. NaN values are left out.
pub(crate) fn draw_over(
    path: &Path,
    title: &str,
    axes: [&str; 2],
    legend: SeriesLabelPosition,
    curves: &[Curve<'_>],
    over: (f64, f64),
) -> Result<()> {
    let most = values(curves).fold(0.0, f64::max);
    draw_between(path, title, axes, legend, curves, (over, 0.0..most * 1.05))
}

/// The same for parts in per cent, from a little below the lowest of them, so that close curves can be
/// distinguished.
pub(crate) fn draw_parts(
    path: &Path,
    title: &str,
    axes: [&str; 2],
    legend: SeriesLabelPosition,
    curves: &[Curve<'_>],
    over: (f64, f64),
) -> Result<()> {
    let least = values(curves).fold(100.0, f64::min);
    let from = ((least - 1.0) / 5.0).floor() * 5.0;
    draw_between(path, title, axes, legend, curves, (over, from..100.0 + (100.0 - from) / 20.0))
}

fn values<'a>(curves: &'a [Curve<'_>]) -> impl Iterator<Item = f64> + 'a {
    curves.iter().flat_map(|curve| curve.values.iter().copied())
}

fn draw_between(
    path: &Path,
    title: &str,
    axes: [&str; 2],
    legend: SeriesLabelPosition,
    curves: &[Curve<'_>],
    ((first, apart), shown): ((f64, f64), std::ops::Range<f64>),
) -> Result<()> {
    let [over, unit] = axes;
    let failed = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", path.display());
    let rounds = curves.iter().map(|curve| curve.values.len()).max().unwrap_or(0);
    let at = |place: usize| first + place as f64 * apart;
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(|error| failed(&error))?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(first..at(rounds.max(1) - 1), shown)
        .map_err(|error| failed(&error))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc(over)
        .y_desc(unit)
        .x_label_formatter(&|round| format!("{round:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .draw()
        .map_err(|error| failed(&error))?;
    for (curve, colour) in curves.iter().zip(COLOURS) {
        let points = curve.values.iter().enumerate().map(|(n, value)| (at(n), *value));
        let points = points.filter(|(_, value)| value.is_finite());
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(3)))
            .map_err(|error| failed(&error))?
            .label(curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .position(legend)
        .border_style(BLACK.mix(0.2))
        .background_style(WHITE)
        .draw()
        .map_err(|error| failed(&error))?;
    area.present().map_err(|error| failed(&error))
}

/// Bars that belong together.
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) bars: Vec<Bar>,
}

/// A value with its extremes, in the colour of its series.
pub(crate) struct Bar {
    pub(crate) series: usize,
    pub(crate) value: f64,
    pub(crate) from: f64,
    pub(crate) to: f64,
}

/// The width of the legend beside the bars.
const LEGEND_WIDTH: u32 = 130;

/// The legend is beside the bars and covers none of them; the axis ends above the highest extreme.
pub(crate) fn draw_bars(
    path: &Path,
    title: &str,
    unit: &str,
    series: &[&str],
    groups: &[Group],
) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", path.display());
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE).map_err(|error| failed(&error))?;
    let (area, legend) = area.split_horizontally(SIZE.0 - LEGEND_WIDTH);
    let all = || groups.iter().flat_map(|group| &group.bars);
    let most = all().map(|bar| bar.value.max(bar.to)).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(24)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..groups.len() as f64, 0.0..most * 1.05)
        .map_err(|error| failed(&error))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_desc(unit)
        .y_label_formatter(&|value| format!("{value:.0}"))
        .draw()
        .map_err(|error| failed(&error))?;
    let (plot_x, plot_y) = chart.plotting_area().get_pixel_range();
    for (place, group) in groups.iter().enumerate() {
        let width = f64::from(plot_x.end - plot_x.start) / groups.len() as f64;
        let x = plot_x.start + ((place as f64 + 0.5) * width) as i32;
        let style = ("sans-serif", 15).into_font().into_text_style(&area);
        let style = style.pos(Pos::new(HPos::Center, VPos::Top));
        area.draw(&Text::new(group.name.clone(), (x, plot_y.end + 8), style))
            .map_err(|error| failed(&error))?;
    }
    for (number, colour) in COLOURS.into_iter().enumerate().take(series.len()) {
        let bars = groups.iter().enumerate().flat_map(|(group, Group { bars, .. })| {
            let width = 0.8 / bars.len().max(1) as f64;
            let placed = bars.iter().enumerate().filter(|(_, bar)| bar.series == number);
            placed.map(move |(place, bar)| (group as f64 + 0.1 + place as f64 * width, width, bar))
        });
        let bars: Vec<(f64, f64, &Bar)> = bars.collect();
        let filled = bars.iter().map(|(x, width, bar)| {
            Rectangle::new([(*x, 0.0), (x + width * 0.9, bar.value)], colour.mix(0.8).filled())
        });
        chart.draw_series(filled).map_err(|error| failed(&error))?;
        let whiskers = bars.iter().map(|(x, width, bar)| {
            let middle = x + width * 0.45;
            PathElement::new([(middle, bar.from), (middle, bar.to)], BLACK)
        });
        chart.draw_series(whiskers).map_err(|error| failed(&error))?;
    }
    for (place, (name, colour)) in series.iter().zip(COLOURS).enumerate() {
        let y = plot_y.start + 10 + place as i32 * 22;
        legend
            .draw(&Rectangle::new([(0, y), (14, y + 10)], colour.mix(0.8).filled()))
            .and_then(|()| legend.draw(&Text::new(*name, (20, y - 2), ("sans-serif", 14))))
            .map_err(|error| failed(&error))?;
    }
    area.present().map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

    use super::*;

    /// The numbers of an attribute of all elements of a name.
    fn numbers(svg: &str, element: &str, attribute: &str) -> Vec<f64> {
        let start = format!("<{element} ");
        let own = svg.split('<').map(|rest| format!("<{rest}"));
        let own = own.filter(|rest| rest.starts_with(&start));
        let value = |rest: String| {
            let (_, after) = rest.split_once(&format!(" {attribute}=\""))?;
            after.split_once('"')?.0.split([' ', ',']).next()?.parse().ok()
        };
        own.filter_map(value).collect()
    }

    #[test]
    fn the_legend_covers_no_bar_and_error_bars_are_not_cut_off() {
        let bar = |series| Bar { series, value: 100.0, from: 98.0, to: 102.0 };
        let group = |name: &str| Group { name: name.to_owned(), bars: vec![bar(0), bar(1)] };
        let file = std::env::temp_dir().join(format!("legwork-bars-{}.svg", std::process::id()));
        draw_bars(&file, "bars", "%", &["one", "two"], &[group("a"), group("b")]).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        // After the background: four bars, then two keys of the legend.
        let (left, top) = (numbers(&svg, "rect", "x"), numbers(&svg, "rect", "y"));
        let width = numbers(&svg, "rect", "width");
        let right = (1..5).map(|place| left[place] + width[place]).fold(0.0, f64::max);
        assert_eq!(left.len(), 7, "{svg}");
        assert!(
            left[5] >= right && left[6] >= right,
            "the legend begins at {left:?}, bars end at {right}"
        );
        // The upper end of each error bar is above the end of its bar.
        let black =
            svg.lines().filter(|line| line.contains("polyline") && line.contains("#000000"));
        let ends = black.filter_map(|line| {
            let (_, points) = line.split_once("points=\"")?;
            let ys = points.split_once('"')?.0.split_whitespace();
            let ys = ys.filter_map(|point| point.split_once(',')?.1.parse::<f64>().ok());
            Some(ys.fold(f64::INFINITY, f64::min))
        });
        let above = ends.filter(|end| *end < top[1]).count();
        assert!(above >= 4, "{above} of 4 error bars end above their bars: {svg}");
    }
}
