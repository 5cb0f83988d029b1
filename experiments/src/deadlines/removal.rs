//! Figure 8: the effect of displacing less important tasks; no node is lost.

use anyhow::Result;

use super::ask::Strategy;
use super::drawn::PRIORITIES;
use super::figure::{ALL, Figure, Table, apart, ratios};
use super::world::{Setting, run as simulated};
use super::{LOADS, arrivals_of, load};

const WITH: &str = "with removal";
const WITHOUT: &str = "without";
const DIFFERENCE: &str = "with removal - without";
const DRAWN: f64 = 0.9;

pub(crate) fn run(json: bool) -> Result<()> {
    let figure = made();
    let title = "tasks done in time, load 0.9, no node is lost";
    figure.draw_over_time(title, DRAWN, &[WITH, WITHOUT])?;
    figure.tell(&[table(&figure)], json)
}

fn made() -> Figure {
    let mut figure = Figure::new("004-8", "removal.csv");
    for load in LOADS.map(load) {
        let drawn = arrivals_of(load);
        let [with, without] = [true, false].map(|removes| {
            let setting = Setting { strategy: Strategy::Flexible, removes, has_deputy: false };
            let runs = (0..).zip(&drawn).map(|(seed, drawn)| simulated(drawn, setting, seed));
            runs.collect::<Vec<_>>()
        });
        for (name, priority) in groups() {
            let is_own = |of: u8| priority.is_none_or(|priority| usize::from(of) == priority);
            let of = |outcomes| ratios(&drawn, outcomes, |arrival| is_own(arrival.priority));
            let (ours, others) = (of(&with), of(&without));
            figure.add(load, WITH, &name, &ours);
            figure.add(load, WITHOUT, &name, &others);
            figure.add(load, DIFFERENCE, &name, &apart(&ours, &others));
        }
        figure.add_slices(load, WITH, &drawn, &with);
        figure.add_slices(load, WITHOUT, &drawn, &without);
    }
    figure
}

/// All tasks, then by priority, most important first.
fn groups() -> impl Iterator<Item = (String, Option<usize>)> {
    let own =
        (1..=PRIORITIES).rev().map(|priority| (format!("priority {priority}"), Some(priority)));
    std::iter::once((ALL.to_owned(), None)).chain(own)
}

fn table(figure: &Figure) -> Table {
    let head = ["load", "removal"].map(str::to_owned).into_iter();
    let mut table = vec![head.chain(groups().map(|(name, _)| name)).collect()];
    for load in LOADS.map(load) {
        for (name, variant) in [("with", WITH), ("without", WITHOUT), ("difference", DIFFERENCE)] {
            let cells = groups().map(|(of, _)| match variant == DIFFERENCE {
                true => figure.points(load, variant, &of),
                false => figure.percent(load, variant, &of),
            });
            table.push([load.to_string(), name.to_owned()].into_iter().chain(cells).collect());
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_out_and_the_most_important_gain_by_removal() {
        let figure = made();
        figure.is_written(&[table(&figure)]);
        let difference = |load: f64, priority: usize| {
            let row = figure.row(load, DIFFERENCE, &format!("priority {priority}")).unwrap();
            (row.value, row.ci95)
        };
        for load in LOADS.map(load) {
            let (value, ci95) = difference(load, PRIORITIES);
            assert!(value + ci95 >= 0.0, "{load}: {value}");
        }
        let (most, least) = (difference(DRAWN, PRIORITIES), difference(DRAWN, 1));
        assert!(most.0 > most.1, "{most:?}");
        assert!(least.0 + least.1 < 0.0, "{least:?}");
    }
}
