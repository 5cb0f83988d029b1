//! Figure 7: how much is reserved and done in time when one node of three is lost after two thirds of the time.
//! Measured with the policy of a server, and with the deputy of the paper.

use anyhow::Result;

use super::ask::Strategy;
use super::figure::{ALL, Figure, Table, apart, ratios};
use super::world::{Loss, Setting, run_with};
use super::{LOADS, arrivals_of, load};
use crate::executors::mean;

const LOSSES: [Loss; 4] = [Loss::Server, Loss::Deputy, Loss::Reservations, Loss::Ignored];
const NORMAL: &str = "normal";
const SERVER: &str = "tolerant (server)";
const DEPUTY: &str = "tolerant (deputy)";
const RESERVATIONS: &str = "reservations only";
const INTOLERANT: &str = "intolerant";
const VARIANTS: [&str; 5] = [NORMAL, SERVER, DEPUTY, RESERVATIONS, INTOLERANT];
const WON_BACK: &str = "won back";
/// The plotted load.
const DRAWN: f64 = 0.5;

pub(crate) fn run(json: bool) -> Result<()> {
    let figure = made();
    let title = "tasks done in time, load 0.5; one node of three is lost at 67 %";
    figure.draw_over_time(title, DRAWN, &[NORMAL, SERVER, DEPUTY, INTOLERANT])?;
    figure.tell(&tables(&figure), json)
}

fn made() -> Figure {
    let mut figure = Figure::new("004-7", "faults.csv");
    for load in LOADS.map(load) {
        let drawn = arrivals_of(load);
        let mut outcomes = VARIANTS.map(|_| Vec::new());
        for (seed, drawn) in (0..).zip(&drawn) {
            // Also the deputy in variants without one: before the loss all variants are the same run.
            let strategy = Strategy::Flexible;
            let setting = Setting { strategy, removes: true, has_deputy: true };
            let (normal, lost) = run_with(drawn, setting, seed, LOSSES);
            let all = std::iter::once(normal).chain(lost);
            outcomes.iter_mut().zip(all).for_each(|(outcomes, one)| outcomes.push(one));
        }
        let own = outcomes.each_ref().map(|outcomes| ratios(&drawn, outcomes, |_| true));
        for ((variant, ratios), outcomes) in VARIANTS.iter().zip(&own).zip(&outcomes) {
            figure.add(load, variant, ALL, ratios);
            figure.add_slices(load, variant, &drawn, outcomes);
        }
        let [normal, tolerant @ .., intolerant] = &own;
        for (variant, ratios) in VARIANTS[1..].iter().zip(tolerant) {
            let (won, lost) = (apart(ratios, intolerant), apart(normal, intolerant));
            figure.add(load, &format!("{variant} - {INTOLERANT}"), ALL, &won);
            figure.put(load, variant, WON_BACK, part_of(&won, &lost));
        }
    }
    figure
}

/// With half its 95 % confidence interval: that of the differences to the recovered part in the mean, as a part of
/// the mean loss.
fn part_of(won: &[f64], lost: &[f64]) -> (f64, f64) {
    let (lost_mean, part) = (mean(lost).0, mean(won).0 / mean(lost).0);
    let beside: Vec<f64> = won.iter().zip(lost).map(|(won, lost)| won - part * lost).collect();
    (part, mean(&beside).1.unwrap_or_default() / lost_mean)
}

fn tables(figure: &Figure) -> Vec<Table> {
    let head = ["load", NORMAL, "tolerant", INTOLERANT, "tolerant - intolerant", WON_BACK];
    let of = |tolerant: &str| {
        Figure::by_load(&head.map(str::to_owned), |load| {
            let ratio = |variant: &str| figure.percent(load, variant, ALL);
            let ratios = [NORMAL, tolerant, INTOLERANT].map(ratio);
            let difference = format!("{tolerant} - {INTOLERANT}");
            let won_back = figure.part(load, tolerant, WON_BACK);
            ratios.into_iter().chain([figure.points(load, &difference, ALL), won_back]).collect()
        })
    };
    [SERVER, DEPUTY, RESERVATIONS].map(of).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_out_and_both_policies_win_back_part_of_what_the_loss_costs() {
        let figure = made();
        figure.is_written(&tables(&figure));
        for load in LOADS.map(load) {
            let of = |variant: &str| figure.value(load, variant, ALL);
            for tolerant in [SERVER, DEPUTY] {
                assert!(of(NORMAL) > of(tolerant), "{load} {tolerant}");
                assert!(of(tolerant) > of(INTOLERANT), "{load} {tolerant}");
            }
        }
        assert!(figure.value(DRAWN, DEPUTY, WON_BACK) >= 0.6);
        for until in (5..=65).step_by(5).map(|until| format!("until {until} %")) {
            let of = |variant: &str| figure.value(DRAWN, variant, &until);
            let same = VARIANTS.iter().all(|variant| of(variant) == of(NORMAL));
            assert!(same, "nothing differs {until} of the time");
        }
    }
}
