//! Pseudorandom numbers from a seed (SplitMix64).

/// A sequence of draws.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Uniform below `count`; 0 if `count` is 0.
    pub fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.roll()) * count as u128) >> 64) as usize
    }

    /// Uniform in `[0, 1)`.
    pub fn part(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
