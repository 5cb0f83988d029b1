//! The clock: the only place where time is read.
//!
//! Invariant: it never goes backwards, never behind what the store has recorded, and never stands still.
//! While the machine's clock is behind, because it was set back, time advances here by the monotonic
//! clock.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use legwork_model::time::Timestamp;

/// The lag of the machine's clock that is not logged: clocks are corrected all the time.
const LAG_TOLD_MILLIS: i64 = 1_000;

/// The longest sleep of a thread between two readings of the clock. A sleep is measured by the monotonic
/// clock, which stops while the machine is suspended and does not see a clock set forward.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// The shortest sleep, if the next event is overdue.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// The longest time between two readings of the clock by the drive thread, also on a busy machine with a
/// slow store. In a longer gap no message could be received.
const UNSEEN_MAX: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Clock {
    /// The moment of `passed` zero.
    begun: Instant,
    /// The offset to the monotonic clock; it only grows.
    offset_millis: AtomicI64,
    /// The lag of the machine's clock was logged, and persists.
    told: AtomicBool,
}

/// Both clocks of the machine at one moment, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The wall clock, which can be set.
    wall: i64,
    /// The monotonic clock since creation.
    passed: i64,
}

impl Clock {
    pub(crate) fn now(&self) -> Timestamp {
        let reading = self.read();
        let now = self.at(reading);
        if let Some(lag) = self.news(now.0.saturating_sub(reading.wall)) {
            tracing::warn!(
                lag_ms = lag,
                "the clock of this machine was set back, or is behind what the store has \
                 recorded; time goes on from where it was, ahead of that clock: check it"
            );
        }
        now
    }

    /// Time goes on from here at the earliest.
    pub(crate) fn advance_to(&self, moment: Timestamp) {
        let reading = self.read();
        self.at(Reading { wall: moment.0, ..reading });
    }

    fn at(&self, Reading { wall, passed }: Reading) -> Timestamp {
        let offset = wall.saturating_sub(passed);
        let offset = self.offset_millis.fetch_max(offset, Ordering::Relaxed).max(offset);
        Timestamp(passed.saturating_add(offset))
    }

    /// The lag of the machine's clock, if it should be logged and was not yet.
    fn news(&self, lag: i64) -> Option<i64> {
        let behind = lag > LAG_TOLD_MILLIS;
        if self.told.load(Ordering::Relaxed) == behind {
            return None;
        }
        let told = self.told.swap(behind, Ordering::Relaxed);
        (behind && !told).then_some(lag)
    }

    fn read(&self) -> Reading {
        Reading { wall: now().0, passed: millis(self.begun.elapsed()) }
    }
}

/// The time to sleep until the next event is due.
pub(crate) fn sleep(due: Timestamp, now: Timestamp) -> Duration {
    due.since(now).clamp(SLEEP_MIN, SLEEP_MAX)
}

/// The unobserved time since a thread last read the clock and slept for at most `slept`: longer than any
/// round takes.
pub(crate) fn jump(looked: Timestamp, slept: Duration, now: Timestamp) -> Option<Duration> {
    let unseen = now.since(looked).saturating_sub(slept);
    let jump = (unseen > UNSEEN_MAX).then_some(unseen)?;
    tracing::warn!(
        seconds = jump.as_secs(),
        "for so long nothing was heard here: the clock was set forward, the machine was suspended, or \
         its disk hung; nobody is given up for that"
    );
    Some(jump)
}

/// The time by the machine's clock, for commands: `--by 3d` counts from here.
#[expect(clippy::disallowed_methods, reason = "the clock")]
pub fn now() -> Timestamp {
    Timestamp(millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()))
}

fn millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            offset_millis: AtomicI64::new(i64::MIN),
            told: AtomicBool::new(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    #[test]
    fn time_goes_on_while_the_clock_is_set_back() {
        let clock = Clock::default();
        let readings = [
            (10 * HOUR, 0),
            (10 * HOUR + 500, 500),
            // Set back by one hour.
            (9 * HOUR + 1_000, 1_000),
            (9 * HOUR + 4_000, 4_000),
            // Set to the right time again, and then on by one hour.
            (10 * HOUR + 5_000, 5_000),
            (11 * HOUR + 6_000, 6_000),
            (11 * HOUR + 7_000, 7_000),
        ];
        let seen = readings.map(|(wall, passed)| clock.at(Reading { wall, passed }).0);
        let expected = [
            10 * HOUR,
            10 * HOUR + 500,
            10 * HOUR + 1_000,
            10 * HOUR + 4_000,
            10 * HOUR + 5_000,
            11 * HOUR + 6_000,
            11 * HOUR + 7_000,
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_comes_due_by_a_jump_of_the_clock_is_seen_within_a_second() {
        let (clock, due) = (Clock::default(), Timestamp(12 * HOUR));
        // Both clocks of the machine; the thread sleeps as long as it is told to. During the third sleep
        // the clock is set forward by two hours, or the machine is suspended for as long.
        let (mut wall, mut passed, mut late) = (10 * HOUR, 0, None);
        for round in 1..10 {
            let now = clock.at(Reading { wall, passed });
            late = (now >= due).then_some(now.0 - due.0);
            if late.is_some() {
                break;
            }
            let slept = millis(sleep(due, now));
            let jump = if round == 3 { 2 * HOUR } else { 0 };
            (wall, passed) = (wall + slept + jump, passed + slept);
        }
        let overslept = passed - 2 * 1_000;
        assert!(late.is_some() && overslept <= 1_000, "it slept {overslept} ms past the jump");
        assert_eq!(sleep(due, due + Duration::from_secs(5)), SLEEP_MIN);
        assert_eq!(sleep(due, Timestamp(due.0 - 20)), Duration::from_millis(20));
    }

    #[test]
    fn only_what_no_round_takes_is_a_jump() {
        let at = |seconds: u64| Timestamp::default() + Duration::from_secs(seconds);
        let second = Duration::from_secs(1);
        assert_eq!(jump(at(10), second, at(11)), None);
        assert_eq!(jump(at(10), second, at(16)), None, "a slow disk");
        assert_eq!(jump(at(10), second, at(7_211)), Some(7_200 * second));
        assert_eq!(jump(at(10), Duration::ZERO, at(9)), None);
    }

    #[test]
    fn a_step_back_is_told_once() {
        let clock = Clock::default();
        let told = [0, 900, HOUR, HOUR, 0, 2_000, 2_000].map(|lag| clock.news(lag));
        assert_eq!(told, [None, None, Some(HOUR), None, None, Some(2_000), None]);
    }

    #[test]
    fn time_goes_on_from_what_was_recorded() {
        let clock = Clock::default();
        let ahead = clock.now() + std::time::Duration::from_secs(3600);
        clock.advance_to(ahead);
        assert!(clock.now() >= ahead);
    }
}
