//! The spreads of instances that start one after the other: a low-discrepancy sequence.
//!
//! Invariant: however many starts there are, each part of all spreads gets its share of them to
//! within a few; random draws would be off by the square root of their number. Servers need not
//! coordinate: sequences with different beginnings add up to the same shares.

/// The golden ratio of all spreads: the step that leaves the smallest gaps.
const STEP: u32 = 0x9E37_79B9;

/// An additive (Kronecker) sequence of spreads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence(u32);

impl Sequence {
    /// The beginning is random, so that the sequences of several servers are not in step.
    pub fn new(beginning: u32) -> Self {
        Self(beginning)
    }

    /// Every spread is drawn once before any is drawn again: the step is odd.
    pub fn draw(&mut self) -> u32 {
        let spread = self.0;
        self.0 = spread.wrapping_add(STEP);
        spread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_goes_on_by_the_golden_section() {
        let mut sequence = Sequence::new(0);
        let drawn: Vec<u32> = (0..4).map(|_| sequence.draw()).collect();
        assert_eq!(drawn, [0, 0x9E37_79B9, 0x3C6E_F372, 0xDAA6_6D2B]);
    }

    #[test]
    fn every_part_gets_its_share_at_every_moment() {
        for beginning in [0, 1, 0x8000_0000, 0xDEAD_BEEF] {
            let mut sequence = Sequence::new(beginning);
            let bound = (1_u64 << 32) / 5;
            let mut below = 0_u64;
            for drawn in 1..=100_000_u64 {
                below += u64::from(u64::from(sequence.draw()) < bound);
                let off = below as f64 - drawn as f64 / 5.0;
                assert!(off.abs() < 4.0, "{off} of {drawn} from {beginning}");
            }
        }
    }
}
