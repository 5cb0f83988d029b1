//! The clock: the only place where time is read.
//!
//! Invariant: it never goes backwards, and never behind what the store has recorded. While the
//! machine's clock is set back, time stands still here.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use legwork_model::time::Timestamp;

#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// The largest moment seen, in milliseconds.
    latest: AtomicI64,
}

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        self.not_before(machine_millis())
    }

    /// Time goes on from here at the earliest.
    pub(crate) fn advance_to(&self, moment: Timestamp) {
        self.latest.fetch_max(moment.0, Ordering::Relaxed);
    }

    /// How far the machine's clock is behind what was recorded, in milliseconds.
    pub(crate) fn lag(&self) -> i64 {
        self.latest.load(Ordering::Relaxed).saturating_sub(machine_millis()).max(0)
    }

    fn not_before(&self, millis: i64) -> Timestamp {
        Timestamp(self.latest.fetch_max(millis, Ordering::Relaxed).max(millis))
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock")]
fn machine_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_stands_still() {
        let clock = Clock::default();
        let seen: Vec<_> = [5, 9, 3, 8, 10].map(|millis| clock.not_before(millis).0).into();
        assert_eq!(seen, [5, 9, 9, 9, 10]);
    }

    #[test]
    fn time_goes_on_from_what_was_recorded() {
        let clock = Clock::default();
        let ahead = clock.now() + std::time::Duration::from_secs(3600);
        clock.advance_to(ahead);
        assert_eq!(clock.now(), ahead);
        assert!(clock.lag() > 0);
    }
}
