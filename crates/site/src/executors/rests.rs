//! Rests of executors: because they reported to be busy, or by their rate limits.
//!
//! Invariant: in any period no more tasks are assigned than the rate allows, plus those of a tenth of a second: clocks
//! and rounds of a driver are not finer.

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::rate::Rate;
use legwork_model::time::Timestamp;
use legwork_schedule::{ExecutorId, KindId};

/// How far ahead of its rate an executor may be.
const AHEAD_MS: f64 = 100.0;

/// The reason of a rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rest {
    Busy,
    Rate,
    RateOf(KindId),
}

#[derive(Debug, Default)]
pub(crate) struct Rests {
    until: BTreeMap<(ExecutorId, Rest), Timestamp>,
    due: BTreeSet<(Timestamp, ExecutorId, Rest)>,
    /// When the next task would be assigned at an even pace.
    next_ms: BTreeMap<(ExecutorId, Rest), f64>,
}

impl Rests {
    /// The executor is busy until a moment.
    pub(crate) fn set_busy(&mut self, executor: ExecutorId, until: Timestamp) {
        self.rest(executor, Rest::Busy, until);
    }

    pub(crate) fn busy_until(&self, executor: ExecutorId) -> Option<Timestamp> {
        self.until.get(&(executor, Rest::Busy)).copied()
    }

    /// A task of a type was assigned; the rate limits of the executor, and of the type.
    pub(crate) fn on_assigned(
        &mut self,
        executor: ExecutorId,
        kind: KindId,
        (rate, of_kind): (Option<Rate>, Option<Rate>),
        now: Timestamp,
    ) {
        for (rest, rate) in [(Rest::Rate, rate), (Rest::RateOf(kind), of_kind)] {
            let Some(rate) = rate else { continue };
            let interval_ms = rate.interval_ms();
            let next_ms = self.next_ms.entry((executor, rest)).or_insert(f64::MIN);
            *next_ms = next_ms.max(now.0 as f64) + interval_ms;
            let until = (*next_ms - (AHEAD_MS - interval_ms).max(0.0)).ceil() as i64;
            if until > now.0 {
                self.rest(executor, rest, Timestamp(until));
            }
        }
    }

    fn rest(&mut self, executor: ExecutorId, rest: Rest, until: Timestamp) {
        if let Some(before) = self.until.insert((executor, rest), until) {
            self.due.remove(&(before, executor, rest));
        }
        self.due.insert((until, executor, rest));
    }

    /// Whether an executor rests for a type, as of the last call of `wake`.
    pub(crate) fn is_resting(&self, executor: ExecutorId, kind: KindId) -> bool {
        let rests = [Rest::Busy, Rest::Rate, Rest::RateOf(kind)];
        !self.until.is_empty()
            && rests.iter().any(|rest| self.until.contains_key(&(executor, *rest)))
    }

    /// Ends the rests that are over; returns their executors.
    pub(crate) fn wake(&mut self, now: Timestamp) -> Vec<ExecutorId> {
        let mut woken = Vec::new();
        while let Some((until, executor, rest)) = self.due.first().copied()
            && until <= now
        {
            self.due.pop_first();
            self.until.remove(&(executor, rest));
            woken.push(executor);
        }
        woken
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(until, ..)| *until)
    }

    /// The rate limits of an executor have changed.
    pub(crate) fn forget_rates(&mut self, executor: ExecutorId) {
        let busy_until = self.busy_until(executor);
        self.forget(executor);
        if let Some(until) = busy_until {
            self.set_busy(executor, until);
        }
    }

    /// Drops everything about an executor.
    pub(crate) fn forget(&mut self, executor: ExecutorId) {
        self.due.retain(|(_, of, _)| *of != executor);
        self.until.retain(|(of, _), _| *of != executor);
        self.next_ms.retain(|(of, _), _| *of != executor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRM: ExecutorId = ExecutorId(4);
    const MAIL: KindId = KindId(1);
    const SCAN: KindId = KindId(2);

    /// How many tasks are assigned in `millis` milliseconds.
    fn given(rates: (Option<Rate>, Option<Rate>), millis: i64) -> usize {
        let mut rests = Rests::default();
        let mut given = 0;
        for now in (0..millis).map(Timestamp) {
            rests.wake(now);
            while !rests.is_resting(CRM, MAIL) {
                rests.on_assigned(CRM, MAIL, rates, now);
                given += 1;
            }
        }
        given
    }

    #[test]
    fn no_more_is_given_than_the_rate_allows() {
        let rate = |text: &str| Some(text.parse().unwrap());
        assert_eq!(given((rate("2/s"), None), 10_000), 20);
        assert_eq!(given((None, rate("6/m"),), 60_000), 6);
        assert_eq!(given((rate("1000/s"), rate("5/s")), 10_000), 50);
        let many = given((rate("1000/s"), None), 10_000);
        assert!((10_000..=10_100).contains(&many), "{many}");
    }

    #[test]
    fn the_rate_of_a_type_leaves_others_alone_and_being_busy_does_not() {
        let mut rests = Rests::default();
        rests.on_assigned(CRM, MAIL, (None, Some("1/s".parse().unwrap())), Timestamp(0));
        assert!(rests.is_resting(CRM, MAIL) && !rests.is_resting(CRM, SCAN));
        assert_eq!(rests.busy_until(CRM), None);
        rests.set_busy(CRM, Timestamp(300));
        rests.set_busy(CRM, Timestamp(200));
        assert!(rests.is_resting(CRM, SCAN));
        assert_eq!(
            (rests.next_due(), rests.wake(Timestamp(200))),
            (Some(Timestamp(200)), vec![CRM])
        );
        assert!(!rests.is_resting(CRM, SCAN));
        rests.set_busy(CRM, Timestamp(900));
        rests.forget_rates(CRM);
        assert_eq!((rests.next_due(), rests.is_resting(CRM, MAIL)), (Some(Timestamp(900)), true));
        rests.forget(CRM);
        assert_eq!((rests.next_due(), rests.is_resting(CRM, MAIL)), (None, false));
    }
}
