//! What is known of an executor at one type of activity.
//!
//! Invariant: a pace is never better than one of the recent observations. Times in which the executor
//! served other engines are in the observations; as long as a quarter of the observations is free of
//! them, they are not in the pace. Failures count until an answer, or until they are old.

use legwork_model::time::Timestamp;

use crate::circuit::OpenCircuit;
use crate::{KindId, KindSnapshot};

/// The number of recent observations.
const RECENT: usize = 24;
/// The quantile of the recent observations that is the pace; 0 is the best.
const QUANTILE: f64 = 0.25;
/// The number of failures in a row that opens the circuit.
const FAILURES: u32 = 3;

/// What was observed of an executor at a type, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Milliseconds per unit, once begun.
    pub pace_ms: Option<f64>,
    pub answers: u64,
    pub timeouts: u64,
    pub failures: u64,
    /// The circuit of the type is open: too many failures in a row.
    pub is_failing: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Experience {
    pub(crate) counts: Seen,
    /// Sum and number of `size / time`, queueing included.
    rate_sum: f64,
    rates: u32,
    /// A ring of recent paces: milliseconds per unit, from when the executor can have begun.
    recent: [f64; RECENT],
    observed: usize,
    pub(crate) pace: Option<f64>,
    pub(crate) outstanding: u32,
    pub(crate) assigned_at: Option<Timestamp>,
    /// Failures since the last answer.
    failures: u32,
    failing_since: Option<Timestamp>,
    /// The decayed number of failures, and the time of that value.
    penalty: f64,
    penalty_at: Timestamp,
}

/// Without observations.
pub(crate) const NOTHING: Experience = Experience {
    counts: Seen { pace_ms: None, answers: 0, timeouts: 0, failures: 0, is_failing: false },
    rate_sum: 0.0,
    rates: 0,
    recent: [0.0; RECENT],
    observed: 0,
    pace: None,
    outstanding: 0,
    assigned_at: None,
    failures: 0,
    failing_since: None,
    penalty: 0.0,
    penalty_at: Timestamp(0),
};

impl Experience {
    pub(crate) fn rate(&self) -> Option<f64> {
        (self.rates > 0).then(|| self.rate_sum / f64::from(self.rates))
    }

    pub(crate) fn add_rate(&mut self, rate: f64) {
        self.rate_sum += rate;
        self.rates += 1;
    }

    pub(crate) fn take_rate_back(&mut self, rate: f64) {
        self.rate_sum -= rate;
        self.rates -= 1;
    }

    /// A task was done at this pace.
    pub(crate) fn observe(&mut self, pace: f64) {
        self.recent[self.observed % RECENT] = pace;
        self.observed += 1;
        self.reckon_pace();
        (self.failures, self.failing_since) = (0, None);
    }

    /// Requires at least one observation.
    fn reckon_pace(&mut self) {
        let mut known = self.recent;
        let known = &mut known[..self.observed.min(RECENT)];
        let place = (known.len() as f64 * QUANTILE) as usize;
        self.pace = Some(*known.select_nth_unstable_by(place, f64::total_cmp).1);
    }

    /// The snapshot to store; `None` without observations.
    pub(crate) fn snapshot(&self, kind: KindId) -> Option<KindSnapshot> {
        let Seen { answers, timeouts, failures, .. } = self.counts;
        if answers + timeouts + failures == 0 {
            return None;
        }
        let known = self.observed.min(RECENT);
        let oldest = self.observed - known;
        let recent = (oldest..self.observed).map(|place| self.recent[place % RECENT]).collect();
        let (rate_sum, rates) = (self.rate_sum, self.rates);
        Some(KindSnapshot { kind, recent, rate_sum, rates, answers, timeouts, failures })
    }

    pub(crate) fn restore(&mut self, snapshot: KindSnapshot) {
        let KindSnapshot { kind: _, recent, rate_sum, rates, answers, timeouts, failures } =
            snapshot;
        self.counts = Seen { answers, timeouts, failures, ..self.counts };
        if rate_sum.is_finite() && rates > 0 {
            (self.rate_sum, self.rates) = (rate_sum, rates);
        }
        for pace in recent.into_iter().take(RECENT) {
            self.recent[self.observed % RECENT] = pace;
            self.observed += 1;
            self.reckon_pace();
        }
    }

    /// A task failed.
    pub(crate) fn fail(&mut self, half_life_ms: f64, now: Timestamp) {
        self.penalty = self.penalty(half_life_ms, now) + 1.0;
        self.penalty_at = now;
        self.failures = self.failures.saturating_add(1);
        self.failing_since.get_or_insert(now);
    }

    /// A task that counted as failed was done after all.
    pub(crate) fn pardon(&mut self) {
        self.penalty = (self.penalty - 1.0).max(0.0);
    }

    /// The number of failures, decayed by age.
    pub(crate) fn penalty(&self, half_life_ms: f64, now: Timestamp) -> f64 {
        if self.penalty == 0.0 {
            return 0.0;
        }
        let age_ms = now.0.saturating_sub(self.penalty_at.0).max(0) as f64;
        self.penalty * (-age_ms / half_life_ms.max(1.0)).exp2()
    }

    /// Whether it was tried and has failed every time.
    pub(crate) fn only_fails(&self) -> bool {
        self.rates == 0 && self.counts.failures > 0
    }

    /// When it failed last, if the circuit is open.
    pub(crate) fn failed_at(&self) -> Option<Timestamp> {
        self.open_circuit().map(|_| self.penalty_at)
    }

    /// The circuit, if it is open.
    pub(crate) fn open_circuit(&self) -> Option<OpenCircuit> {
        let since = self.failing_since.filter(|_| self.failures >= FAILURES)?;
        Some(OpenCircuit { since, probed_at: self.assigned_at.map_or(since, |at| at.max(since)) })
    }
}
