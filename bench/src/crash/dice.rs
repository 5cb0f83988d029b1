//! Pseudorandom numbers from a seed: SplitMix64, small and the same everywhere.
//!
//! Invariant: the same seed gives the same moments of the kills; what the load does in between
//! depends on the machine.

use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// Each user of a seed has a number, and with it an independent sequence.
    pub(super) fn new(seed: u64, user: u64) -> Self {
        let mut dice = Self(seed ^ user.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        dice.roll();
        dice
    }

    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// True in `percent` of 100 cases.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.roll() % 100 < percent
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.roll() % (end.max(1) as u64)) as usize
    }

    /// Between the two, to the microsecond.
    pub(super) fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let span = to.saturating_sub(from).as_micros().max(1) as u64;
        from + Duration::from_micros(self.roll() % span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_course_and_another_user_another() {
        let course = |seed, user| {
            let mut dice = Dice::new(seed, user);
            (0..5).map(|_| dice.roll()).collect::<Vec<_>>()
        };
        assert_eq!(course(1, 2), course(1, 2));
        assert_ne!(course(1, 2), course(1, 3));
        assert_ne!(course(1, 2), course(2, 2));
    }
}
