//! Policies by name, as they are set for a type of activity.

use crate::{
    Adaptive, Adjustment, Dice, LeastOutstanding, Oxthas, Partition, Policy, Random, RoundRobin,
    TwoChoices, Weighted,
};

/// The default policy.
pub const ADAPTIVE: &str = "adaptive";

/// The former name of `adaptive`: stored records have it, and callers may still use it.
const ADAPTIVE_FORMERLY: &str = "ours";

/// The names of all policies. After OXTHAS there may follow how sizes are divided (`equal`,
/// `integers`, `rates`, the last two also with `-reversed`), and what a time-out adjusts
/// (`capability`, `timeout`, `both`): `oxthas-3-rates-reversed-both`.
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
    ADAPTIVE,
];

/// The current name of a policy, given its current or its former name.
pub fn current_name(name: &str) -> &str {
    if name == ADAPTIVE_FORMERLY { ADAPTIVE } else { name }
}

/// The part of the time-out that each time-out subtracts, as in the paper.
const BETA: f64 = 0.01;

/// The policy with a name; a random policy draws from the seed.
pub fn named(name: &str, seed: u64) -> Option<Box<dyn Policy>> {
    let dice = Dice::new(seed);
    Some(match current_name(name) {
        "random" => Box::new(Random(dice)),
        "round-robin" => Box::<RoundRobin>::default(),
        "weighted" => Box::new(Weighted(dice)),
        "least-outstanding" => Box::new(LeastOutstanding),
        "two-choices" => Box::new(TwoChoices(dice)),
        ADAPTIVE => Box::<Adaptive>::default(),
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

/// What time-outs adjust, and the words before it.
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
            assert_eq!(current_name(name), name);
        }
        for name in ["", "best", "oxthas", "oxthas-", "oxthas-0", "oxthas-7", "oxthas-3-often"] {
            assert!(named(name, 1).is_none(), "{name}");
        }
    }

    #[test]
    fn adaptive_is_still_known_by_its_former_name() {
        assert_eq!(current_name("ours"), "adaptive");
        let by_former_name = named("ours", 1).unwrap();
        assert_eq!(format!("{by_former_name:?}"), format!("{:?}", named("adaptive", 1).unwrap()));
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
