//! The policies that are compared, by name.

use legwork_schedule::{
    Adjustment, Dice, Learned, LeastOutstanding, Oxthas, Partition, Policy, Random, RoundRobin,
    TwoChoices, Weighted,
};

use super::drawn::Drawn;
use super::world::Chooser;
use super::{EXECUTORS, KINDS};

/// What is compared when nothing fails.
pub(super) const ALL: [&str; 12] = [
    "random",
    "round-robin",
    "weighted",
    "least-outstanding",
    "two-choices",
    "oxthas-1",
    "oxthas-2",
    "oxthas-3",
    "oxthas-4",
    "oxthas-5",
    "oxthas-6",
    "ours",
];

/// OXTHAS-3, by how it divides sizes among the best.
pub(super) const PARTITIONS: [&str; 5] =
    ["equal", "integers", "rates", "integers-reversed", "rates-reversed"];

/// OXTHAS-3 with its adjustments, when an executor dies.
pub(super) const ADJUSTMENTS: [&str; 4] = ["none", "capability", "timeout", "both"];

/// The part of the time-out that it is shortened by, as the paper has it in its simulation.
const BETA: f64 = 0.01;

pub(super) fn chooser(name: &str, seed: u64, drawn: &Drawn) -> Chooser {
    let oxthas = |best, partition, adjustment| {
        let policy = Oxthas::new(best, Dice::new(seed)).with(partition, adjustment);
        Chooser { policy: Box::new(policy), warms_up: true, gives_up: false }
    };
    let divided = |partition| oxthas(3, partition, Adjustment::default());
    let adjusted = |rate, timeout: bool| {
        let adjustment = Adjustment { rate, timeout: timeout.then_some(BETA) };
        oxthas(3, Partition::Integers, adjustment)
    };
    let at_once =
        |policy: Box<dyn Policy>| Chooser { policy, warms_up: false, gives_up: name == "ours" };
    let dice = Dice::new(seed);
    match name {
        "random" => at_once(Box::new(Random(dice))),
        "round-robin" => at_once(Box::<RoundRobin>::default()),
        "weighted" => at_once(Box::new(Weighted { weights: means(drawn), dice })),
        "least-outstanding" => at_once(Box::new(LeastOutstanding)),
        "two-choices" => at_once(Box::new(TwoChoices(dice))),
        "equal" => divided(Partition::Equal),
        "integers" => divided(Partition::Integers),
        "rates" => divided(Partition::Rates),
        "integers-reversed" => divided(Partition::IntegersReversed),
        "rates-reversed" => divided(Partition::RatesReversed),
        "none" => adjusted(false, false),
        "capability" => adjusted(true, false),
        "timeout" => adjusted(false, true),
        "both" => adjusted(true, true),
        "ours" => at_once(Box::<Learned>::default()),
        name => {
            let best = name.strip_prefix("oxthas-").and_then(|best| best.parse().ok());
            oxthas(best.unwrap_or(3), Partition::Integers, Adjustment::default())
        }
    }
}

/// The mean speed of each executor: whoever sets weights knows that much, no other policy does.
fn means(drawn: &Drawn) -> Vec<f64> {
    let mean = |place| drawn.speeds.iter().map(|row| row[place]).sum::<f64>() / KINDS as f64;
    (0..EXECUTORS).map(mean).collect()
}
