//! Not in the paper: the strategies for asking other nodes, compared with a bound.

use std::iter;

use anyhow::Result;

use super::ask::Strategy;
use super::figure::{ALL, Figure, Table, apart, ratios};
use super::world::{Outcome, Setting, run as simulated};
use super::{LOADS, arrivals_of, bound, load};

const STRATEGIES: [(&str, Strategy); 5] = [
    ("local", Strategy::Local),
    ("random", Strategy::Random),
    ("focused", Strategy::Focused),
    ("bidding", Strategy::Bidding),
    (FLEXIBLE, Strategy::Flexible),
];
const FLEXIBLE: &str = "flexible";
const BOUND: &str = "bound";
/// The result of a planner that knows all arrivals: the optimum lies between this and the bound.
const OFFLINE: &str = "offline";
/// For a task, in the mean.
const MESSAGES: &str = "messages";

pub(crate) fn run(json: bool) -> Result<()> {
    let figure = made();
    let title = "tasks done in time, by strategy";
    let over = (f64::from(*LOADS.start()), 1.0);
    let names: Vec<&str> = names().filter(|name| *name != OFFLINE).collect();
    figure.draw(title, "load, tenths", over, &names, |row| row.of == ALL)?;
    figure.tell(&tables(&figure), json)
}

fn names() -> impl Iterator<Item = &'static str> {
    STRATEGIES.into_iter().map(|(name, _)| name).chain([OFFLINE, BOUND])
}

fn made() -> Figure {
    let mut figure = Figure::new("004-x", "strategies.csv");
    for load in LOADS.map(load) {
        let drawn = arrivals_of(load);
        let own = STRATEGIES.map(|(name, strategy)| {
            let setting = Setting { strategy, removes: false, has_deputy: false };
            let runs = (0..).zip(&drawn).map(|(seed, drawn)| simulated(drawn, setting, seed));
            let outcomes: Vec<Outcome> = runs.collect();
            let a_task = drawn.iter().zip(&outcomes);
            let a_task = a_task.map(|(drawn, it)| it.messages as f64 / drawn.len() as f64);
            figure.add(load, name, MESSAGES, &a_task.collect::<Vec<_>>());
            let ratios = ratios(&drawn, &outcomes, |_| true);
            figure.add(load, name, ALL, &ratios);
            ratios
        });
        let [others @ .., ours] = &own;
        for ((name, _), theirs) in STRATEGIES.iter().zip(others) {
            figure.add(load, &ahead_of(name), ALL, &apart(ours, theirs));
        }
        let of = |planned: fn(&[_]) -> f64| drawn.iter().map(|it| planned(it)).collect::<Vec<_>>();
        figure.add(load, OFFLINE, ALL, &of(bound::reached));
        figure.add(load, BOUND, ALL, &of(bound::of));
    }
    figure
}

fn ahead_of(other: &str) -> String {
    format!("{FLEXIBLE} - {other}")
}

fn tables(figure: &Figure) -> Vec<Table> {
    let head = |names: &mut dyn Iterator<Item = String>| -> Vec<String> {
        iter::once("load".to_owned()).chain(names).collect()
    };
    let mut ratios = Figure::by_load(&head(&mut names().map(str::to_owned)), |load| {
        names().map(|name| figure.percent(load, name, ALL)).collect()
    });
    let most = load(*LOADS.end());
    let messages = names().map(|name| figure.row(most, name, MESSAGES));
    let messages =
        messages.map(|row| row.map(|row| format!("{:.2}", row.value)).unwrap_or_default());
    ratios.push(iter::once(MESSAGES.to_owned()).chain(messages).collect());
    let others = || STRATEGIES.iter().map(|(name, _)| ahead_of(name)).take(STRATEGIES.len() - 1);
    let ahead = Figure::by_load(&head(&mut others()), |load| {
        others().map(|name| figure.points(load, &name, ALL)).collect()
    });
    vec![ratios, ahead]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_out_and_flexible_is_as_good_as_any_at_every_load() {
        let figure = made();
        figure.is_written(&tables(&figure));
        for load in LOADS.map(load) {
            let of = |name: &str| figure.value(load, name, ALL);
            for (name, _) in STRATEGIES {
                assert!(of(FLEXIBLE) >= of(name), "{load} {name}");
            }
            assert!(of(FLEXIBLE) <= of(BOUND) && of(OFFLINE) <= of(BOUND), "{load}");
        }
    }
}
