//! Policies by their names, as they are set for a type of activity.

use crate::{
    Adjustment, Dice, Learned, LeastOutstanding, Oxthas, Partition, Policy, Random, RoundRobin,
    TwoChoices, Weighted,
};

/// Ours, which is used where nothing is said.
pub const OURS: &str = "ours";

/// The names there are. After OXTHAS there may stand how sizes are divided (`equal`, `integers`,
/// `rates`, the last two also with `-reversed`), and what a time-out adjusts (`capability`,
/// `timeout`, `both`): `oxthas-3-rates-reversed-both`.
pub const NAMES: [&str; 12] = [
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
    OURS,
];

/// The part of the time-out that it is shortened by with each, as the paper has it.
const BETA: f64 = 0.01;

/// The policy of a name, which draws from this seed if it draws at all.
pub fn named(name: &str, seed: u64) -> Option<Box<dyn Policy>> {
    let dice = Dice::new(seed);
    Some(match name {
        "random" => Box::new(Random(dice)),
        "round-robin" => Box::<RoundRobin>::default(),
        "weighted" => Box::new(Weighted(dice)),
        "least-outstanding" => Box::new(LeastOutstanding),
        "two-choices" => Box::new(TwoChoices(dice)),
        OURS => Box::<Learned>::default(),
        _ => Box::new(oxthas(name.strip_prefix("oxthas-")?, dice)?),
    })
}

fn oxthas(rest: &str, dice: Dice) -> Option<Oxthas> {
    let (best, rest) = rest.split_once('-').unwrap_or((rest, ""));
    let best = best.parse().ok().filter(|best| (1..=6).contains(best))?;
    let (adjustment, rest) = adjusted(rest);
    let partition = match rest {
        "equal" => Partition::Equal,
        "" | "integers" => Partition::Integers,
        "rates" => Partition::Rates,
        "integers-reversed" => Partition::IntegersReversed,
        "rates-reversed" => Partition::RatesReversed,
        _ => return None,
    };
    Some(Oxthas::new(best, dice).with(partition, adjustment))
}

/// What time-outs adjust, and what stands before it.
fn adjusted(words: &str) -> (Adjustment, &str) {
    let (before, last) = words.rsplit_once('-').unwrap_or(("", words));
    let (rate, timeout) = match last {
        "capability" => (true, None),
        "timeout" => (false, Some(BETA)),
        "both" => (true, Some(BETA)),
        _ => return (Adjustment::default(), words),
    };
    (Adjustment { rate, timeout }, before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_policy_and_nothing_else_is() {
        for name in NAMES {
            assert!(named(name, 1).is_some(), "{name}");
        }
        for name in ["", "best", "oxthas", "oxthas-", "oxthas-0", "oxthas-7", "oxthas-3-often"] {
            assert!(named(name, 1).is_none(), "{name}");
        }
    }

    #[test]
    fn oxthas_says_how_it_divides_and_what_it_adjusts() {
        let read =
            |rest| oxthas(rest, Dice::new(1)).map(|own| (own.best, own.partition, own.adjustment));
        let none = Adjustment::default();
        let both = Adjustment { rate: true, timeout: Some(BETA) };
        assert_eq!(read("4"), Some((4, Partition::Integers, none)));
        assert_eq!(read("3-rates-reversed"), Some((3, Partition::RatesReversed, none)));
        assert_eq!(read("3-both"), Some((3, Partition::Integers, both)));
        assert_eq!(read("2-equal-both"), Some((2, Partition::Equal, both)));
    }
}
