//! When somebody of whom nothing is expected is tried again.
//!
//! Invariant: there is always a next time, and from one to the next it is at most `CAP` times the least.

use legwork_model::time::Timestamp;

/// How many times as long as the first time it is waited at most.
const CAP: f64 = 64.0;

/// Since when nothing is expected, and when it was given something last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) since: Timestamp,
    pub(crate) tried_at: Timestamp,
}

impl Doubt {
    /// Whether it is time: each time is twice as far from the beginning as the one before.
    pub(crate) fn is_due(self, least_ms: f64, now: Timestamp) -> bool {
        let apart = |from: Timestamp, to: Timestamp| to.0.saturating_sub(from.0) as f64;
        let least_ms = least_ms.max(1.0);
        let interval = apart(self.since, self.tried_at).clamp(least_ms, CAP * least_ms);
        apart(self.tried_at, now) >= interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_double_up_to_a_limit() {
        let mut doubt = Doubt { since: Timestamp(0), tried_at: Timestamp(0) };
        let mut times = Vec::new();
        for now in 0..2_000 {
            if doubt.is_due(10.0, Timestamp(now)) {
                times.push(now);
                doubt.tried_at = Timestamp(now);
            }
        }
        assert_eq!(times, [10, 20, 40, 80, 160, 320, 640, 1_280, 1_920]);
    }
}
