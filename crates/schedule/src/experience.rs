//! What is known of an executor and a type of activity.
//!
//! Invariant: a pace is never better than what was observed among the last ones. Times in which the
//! executor served others are in the observations and, as long as a quarter of them is free of it, not
//! in the pace. Failures count until an answer or until they are old.

use legwork_model::time::Timestamp;

use crate::doubt::Doubt;
use crate::{KeptKind, KindId};

/// How many of the last observations count.
const RECENT: usize = 24;
/// Which of them is taken, from the best on.
const QUANTILE: f64 = 0.25;
/// How many failures without an answer in between are no chance.
const FAILURES: u32 = 3;

/// What was seen of an executor at a type, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// How long a unit takes it once it is begun, in milliseconds.
    pub pace_ms: Option<f64>,
    pub answers: u64,
    pub timeouts: u64,
    pub failures: u64,
    /// It has failed so often, with nothing done in between, that nothing is expected of it.
    pub is_failing: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Experience {
    pub(crate) counts: Seen,
    /// Sum and number of `size / time`, queueing included.
    rate_sum: f64,
    rates: u32,
    /// Milliseconds per unit, from when the executor can have begun: the last ones, in a ring.
    recent: [f64; RECENT],
    observed: usize,
    pub(crate) pace: Option<f64>,
    pub(crate) outstanding: u32,
    pub(crate) assigned_at: Option<Timestamp>,
    /// Failures since the last answer.
    failures: u32,
    failing_since: Option<Timestamp>,
    /// Failures, each of which counts half after a while; and as of when.
    penalty: f64,
    penalty_at: Timestamp,
}

/// What is known of whoever was never given anything.
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

    /// From at least one observation.
    fn reckon_pace(&mut self) {
        let mut known = self.recent;
        let known = &mut known[..self.observed.min(RECENT)];
        let place = (known.len() as f64 * QUANTILE) as usize;
        self.pace = Some(*known.select_nth_unstable_by(place, f64::total_cmp).1);
    }

    /// What is worth keeping over a restart; `None` if nothing was seen.
    pub(crate) fn kept(&self, kind: KindId) -> Option<KeptKind> {
        let Seen { answers, timeouts, failures, .. } = self.counts;
        if answers + timeouts + failures == 0 {
            return None;
        }
        let known = self.observed.min(RECENT);
        let oldest = self.observed - known;
        let recent = (oldest..self.observed).map(|place| self.recent[place % RECENT]).collect();
        let (rate_sum, rates) = (self.rate_sum, self.rates);
        Some(KeptKind { kind, recent, rate_sum, rates, answers, timeouts, failures })
    }

    pub(crate) fn restore(&mut self, kept: KeptKind) {
        let KeptKind { kind: _, recent, rate_sum, rates, answers, timeouts, failures } = kept;
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

    /// A task was not done.
    pub(crate) fn fail(&mut self, half_life_ms: f64, now: Timestamp) {
        self.penalty = self.penalty(half_life_ms, now) + 1.0;
        self.penalty_at = now;
        self.failures = self.failures.saturating_add(1);
        self.failing_since.get_or_insert(now);
    }

    /// It was done after all.
    pub(crate) fn pardon(&mut self) {
        self.penalty = (self.penalty - 1.0).max(0.0);
    }

    /// How many failures there were, the older the less they count.
    pub(crate) fn penalty(&self, half_life_ms: f64, now: Timestamp) -> f64 {
        if self.penalty == 0.0 {
            return 0.0;
        }
        let age_ms = now.0.saturating_sub(self.penalty_at.0).max(0) as f64;
        self.penalty * (-age_ms / half_life_ms.max(1.0)).exp2()
    }

    /// Whether it was tried, and nothing came of it yet but failures.
    pub(crate) fn only_fails(&self) -> bool {
        self.rates == 0 && self.counts.failures > 0
    }

    /// When it failed last, if it does nothing else any more.
    pub(crate) fn failed_at(&self) -> Option<Timestamp> {
        self.doubt().map(|_| self.penalty_at)
    }

    /// Nothing is expected any more of one that only fails.
    pub(crate) fn doubt(&self) -> Option<Doubt> {
        let since = self.failing_since.filter(|_| self.failures >= FAILURES)?;
        Some(Doubt { since, tried_at: self.assigned_at.map_or(since, |at| at.max(since)) })
    }
}
