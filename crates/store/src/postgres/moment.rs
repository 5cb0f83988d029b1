//! A moment on both clocks of the machine.
//!
//! Invariant: a time limit has passed as soon as one of the clocks says so. The monotonic clock stops
//! while the machine is suspended, and the wall clock can be set back: together they never make a lease
//! seem longer than it is, unless both happen at once.

use std::time::{Duration, Instant, SystemTime};

#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// The monotonic clock.
    pub(super) passed: Instant,
    /// The wall clock.
    wall: SystemTime,
}

impl Moment {
    #[expect(clippy::disallowed_methods, reason = "a lease runs on while the machine is suspended")]
    pub(super) fn now() -> Self {
        Self { passed: Instant::now(), wall: SystemTime::now() }
    }

    pub(super) fn plus(self, time: Duration) -> Self {
        Self { passed: self.passed + time, wall: self.wall + time }
    }

    pub(super) fn has_come(self, now: Self) -> bool {
        now.passed >= self.passed || now.wall >= self.wall
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_lease_has_run_out_when_one_of_both_clocks_says_so() {
        let now = Moment::now();
        let until = now.plus(10 * SECOND);
        assert!(!until.has_come(now.plus(9 * SECOND)));
        assert!(until.has_come(now.plus(10 * SECOND)));
        let suspended = Moment { wall: now.wall + 3_600 * SECOND, ..now.plus(SECOND) };
        assert!(until.has_come(suspended), "the time passed stood still");
        let set_back = Moment { wall: now.wall - 3_600 * SECOND, ..now.plus(11 * SECOND) };
        assert!(until.has_come(set_back), "the time of day was set");
    }
}
