//! Random inputs: the speeds of the executors around their means, and the sizes of all tasks.
//!
//! Invariant: they follow from the number of cases and the seed alone, so that all policies have the
//! same work.

use std::time::Duration;

use legwork_schedule::Dice;
use legwork_testbed::bound;

use super::{EXECUTORS, SERVERS, TYPES};

/// Table 3 of the paper: units per step of the executors, averaged over the types.
const MEANS: [f64; EXECUTORS] = [8.0, 5.0, 2.0, 8.0, 5.0, 2.0];
/// The largest random size; the smallest is one.
const SIZE_MAX: usize = 100;
/// The duration of one of the paper's steps here.
const STEP: Duration = Duration::from_millis(5);
/// The steps between two starts at a server.
const INTERVAL: u32 = 10;

/// The sizes of the tasks of a case.
pub(super) type Sizes = [u32; TYPES.len()];

#[derive(Clone, Debug)]
pub(super) struct Drawn {
    /// The units of a type that an executor does in a step.
    speeds: [[f64; EXECUTORS]; TYPES.len()],
    /// Of the cases of each server.
    pub(super) sizes: [Vec<Sizes>; SERVERS],
}

impl Drawn {
    pub(super) fn new(cases: usize, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let speeds = TYPES.map(|_| MEANS.map(|mean| mean - 1.0 + dice.below(3) as f64));
        let mut case = |_| TYPES.map(|_| 1 + dice.below(SIZE_MAX) as u32);
        let sizes = [(); SERVERS].map(|()| (0..cases).map(&mut case).collect());
        Self { speeds, sizes }
    }

    /// The milliseconds per unit of a type at an executor.
    pub(super) fn pace_ms(&self, executor: usize, kind: usize) -> f64 {
        STEP.as_secs_f64() * 1_000.0 / self.speeds[kind][executor]
    }

    /// The time between two starts at a server.
    pub(super) fn interval() -> Duration {
        STEP * INTERVAL
    }

    /// The bound on any assignment, with all executors busy all the time.
    pub(super) fn bound(&self) -> Duration {
        let mut work = [0.0; TYPES.len()];
        for (kind, size) in self.sizes.iter().flatten().flat_map(|case| case.iter().enumerate()) {
            work[kind] += f64::from(*size);
        }
        let starts = self.sizes.iter().map(Vec::len).max().unwrap_or_default();
        let last_start = INTERVAL as f64 * starts.saturating_sub(1) as f64;
        STEP.mul_f64(bound::least(&self.speeds, &work).max(last_start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_follows_from_the_seed_and_has_a_bound() {
        let [one, same, other] = [1, 1, 2].map(|seed| Drawn::new(200, seed));
        assert_eq!(one.sizes, same.sizes);
        assert_ne!(one.sizes, other.sizes);
        // 2 x 200 cases x 5 tasks x 50.5 units, by 30 units in 5 ms, and not much better.
        let seconds = one.bound().as_secs_f64();
        assert!((14.0..18.0).contains(&seconds), "{seconds}");
    }
}
