//! Figure 7: how much is promised and kept when one node of three is lost after two thirds of the time.

use std::iter;

use anyhow::Result;
use legwork_promise::Strategy;
use serde::Serialize;

use super::page::{Page, Table, percent, points};
use super::slices::{Drawing, Slice, Slices};
use super::{
    Difference, Fault, LOADS, RUNS, Setting, arrivals, load, of_runs, ratio, run as simulated,
};
use crate::division::rounded;
use crate::executors::mean;

const VARIANTS: [(&str, Fault); 4] = [
    ("normal", Fault::None),
    ("tolerant", Fault::Tolerated),
    ("intolerant", Fault::Ignored),
    ("unguarded", Fault::Noticed),
];
const NORMAL: usize = 0;
const TOLERANT: usize = 1;
const UNGUARDED: usize = 3;
/// What tolerance is held against.
const WITHOUT: [usize; 2] = [2, UNGUARDED];
/// The load that is drawn.
const DRAWN: u32 = 5;

#[derive(Debug, Serialize)]
struct Row {
    load: f64,
    variant: &'static str,
    ratio: f64,
    ci95: f64,
}

/// Which part of what the fault costs without tolerance is won back by it.
#[derive(Debug, Serialize)]
struct WonBack {
    load: f64,
    of: &'static str,
    part: f64,
    ci95: f64,
}

#[derive(Debug, Default, Serialize)]
struct Tables {
    /// Of the paper's three variants.
    rows: Vec<Row>,
    unguarded: Vec<Row>,
    over_time: Vec<Slice>,
    differences: Vec<Difference>,
    won_back: Vec<WonBack>,
}

pub(crate) fn run(json: bool) -> Result<()> {
    let tables = Tables::new();
    let title = "tasks promised and kept, load 0.5; one node of three is lost at 67 %";
    let drawing = Drawing { figure: "004-7", file: "faults.svg", title, load: DRAWN };
    drawing.draw(&tables.over_time, VARIANTS.into_iter().map(|(name, _)| name))?;
    tables.page().tell(&tables, json)
}

impl Tables {
    fn new() -> Self {
        let mut tables = Self::default();
        for tenths in LOADS {
            eprintln!("load {} …", load(tenths));
            tables.add(tenths);
        }
        tables
    }

    /// All variants at a load, each with the same runs.
    fn add(&mut self, tenths: u32) {
        let mut ratios = vec![Vec::new(); VARIANTS.len()];
        let mut slices = vec![Slices::new(); VARIANTS.len()];
        for seed in 0..RUNS {
            let drawn = arrivals(load(tenths), seed);
            for (place, (_, fault)) in VARIANTS.into_iter().enumerate() {
                // Also those that make nothing of it: before the fault all do the same.
                let (strategy, removes, has_deputy) = (Strategy::Flexible, true, true);
                let setting = Setting { strategy, removes, fault, has_deputy };
                let (fates, _) = simulated(&drawn, setting, seed);
                ratios[place].push(ratio(&drawn, &fates, |_| true));
                slices[place].add(&drawn, &fates);
            }
        }
        let load = load(tenths);
        for (place, slices) in slices.into_iter().enumerate() {
            let variant = VARIANTS[place].0;
            let (ratio, ci95) = of_runs(&ratios[place]);
            let rows = if place == UNGUARDED { &mut self.unguarded } else { &mut self.rows };
            rows.push(Row { load, variant, ratio, ci95 });
            self.over_time.extend(slices.told(load, variant));
        }
        let named = |place: usize| (VARIANTS[place].0, ratios[place].as_slice());
        for place in WITHOUT {
            self.differences.push(Difference::new(tenths, named(TOLERANT), named(place)));
            let (part, ci95) = won_back(&ratios[NORMAL], &ratios[TOLERANT], &ratios[place]);
            self.won_back.push(WonBack { load, of: VARIANTS[place].0, part, ci95 });
        }
        self.differences.push(Difference::new(tenths, named(NORMAL), named(TOLERANT)));
    }

    fn csv(&self) -> String {
        let mut csv = "load,variant,until_pct,ratio,ci95\n".to_owned();
        for Row { load, variant, ratio, ci95 } in self.rows.iter().chain(&self.unguarded) {
            csv += &format!("{load:.1},{variant},,{ratio:.4},{ci95:.4}\n");
        }
        for it in &self.differences {
            let (load, variant) = (it.load, it.variant());
            csv += &format!("{load:.1},{variant},,{:.4},{:.4}\n", it.difference, it.ci95);
        }
        for WonBack { load, of, part, ci95 } in &self.won_back {
            csv += &format!("{load:.1},won back of {of},,{part:.3},{ci95:.3}\n");
        }
        for Slice { load, variant, until, ratio } in &self.over_time {
            csv += &format!("{load:.1},{variant},{until},{ratio:.4},\n");
        }
        csv
    }

    fn page(&self) -> Page {
        let tables = vec![self.ratios()];
        Page { figure: "004-7", file: "faults.csv", csv: self.csv(), tables }
    }

    fn ratios(&self) -> Table {
        // Of those without tolerance the better first.
        let without = [WITHOUT[1], WITHOUT[0]].map(|place| VARIANTS[place].0);
        let names = [VARIANTS[NORMAL].0, VARIANTS[TOLERANT].0].into_iter().chain(without);
        let apart = without.map(|name| format!("{} - {name}", VARIANTS[TOLERANT].0));
        let won_back = without.map(|name| format!("won back of {name}"));
        let head = iter::once("load".to_owned()).chain(names.map(str::to_owned));
        let head = head.chain(apart).chain(won_back);
        let mut table = Table::new(&head.collect::<Vec<_>>());
        for (rows, unguarded) in self.rows.chunks(UNGUARDED).zip(&self.unguarded) {
            let load = unguarded.load;
            let [normal, tolerant, intolerant] = rows else { continue };
            let ratios = [normal, tolerant, unguarded, intolerant];
            let ratios = ratios.map(|row| percent(row.ratio, row.ci95));
            let differences = without.into_iter().filter_map(|name| {
                self.differences.iter().find(|it| it.load == load && it.minus == name).map(points)
            });
            let won_back = without.into_iter().filter_map(|name| {
                let own = self.won_back.iter().find(|it| it.load == load && it.of == name)?;
                Some(format!("{:.0} ± {:.0} %", own.part * 100.0, own.ci95 * 100.0))
            });
            let cells = iter::once(load.to_string()).chain(ratios).chain(differences);
            table.push(&cells.chain(won_back).collect::<Vec<_>>());
        }
        table
    }
}

/// With half its 95 % confidence interval: that of what is won back in each run beside the part that is won back in the mean, as a
/// part of what is lost in the mean.
fn won_back(normal: &[f64], tolerant: &[f64], without: &[f64]) -> (f64, f64) {
    let minus = |ours: &[f64]| -> Vec<f64> {
        ours.iter().zip(without).map(|(one, other)| one - other).collect()
    };
    let (won, lost) = (minus(tolerant), minus(normal));
    let (lost_mean, part) = (mean(&lost).0, mean(&won).0 / mean(&lost).0);
    let beside: Vec<f64> = won.iter().zip(&lost).map(|(won, lost)| won - part * lost).collect();
    let ci95 = mean(&beside).1.unwrap_or_default() / lost_mean;
    (rounded(part, 3), rounded(ci95, 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_out_and_tolerance_wins_back_most_of_what_the_fault_costs() {
        let tables = Tables::new();
        tables.page().is_written();
        assert_eq!(tables.unguarded.len(), LOADS.count());
        for (rows, unguarded) in tables.rows.chunks(UNGUARDED).zip(&tables.unguarded) {
            let [normal, tolerant, intolerant] = rows else { panic!("{rows:?}") };
            assert!(normal.ratio > tolerant.ratio, "{normal:?} {tolerant:?}");
            for other in [intolerant, unguarded] {
                assert!(tolerant.ratio > other.ratio, "{tolerant:?} {other:?}");
            }
        }
        let drawn = tables.won_back.iter().filter(|it| it.load == load(DRAWN));
        assert!(drawn.clone().all(|it| it.part >= 0.6), "{:?}", tables.won_back);
        assert_eq!(drawn.count(), WITHOUT.len());
        let before = |place: usize| -> Vec<f64> {
            let is_it = |it: &&Slice| it.variant == VARIANTS[place].0 && it.until <= 65;
            tables.over_time.iter().filter(is_it).map(|slice| slice.ratio).collect()
        };
        for place in 1..VARIANTS.len() {
            assert_eq!(before(NORMAL), before(place), "nothing differs before the fault");
        }
    }
}
