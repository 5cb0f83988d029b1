//! What is known of one executor: its tasks, its silence, and its load from other engines.
//!
//! It works on as many tasks at a time as it registered with, in first-in, first-out order. Invariant:
//! `outstanding` and `work_ms` count assignments that were neither answered nor, after a time-out, overtaken by the
//! answer to a later assignment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use legwork_model::time::Timestamp;

use crate::book::Entry;
use crate::circuit::OpenCircuit;
use crate::experience::{Experience, NOTHING};
use crate::{AssignmentId, KindId};

/// The weight of a new observation in an exponential moving average.
pub(crate) const NEW: f64 = 0.05;
/// How long a busy executor may be silent before its circuit opens, in usual service times.
const SILENCE: f64 = 16.0;
/// How long a begun task may take before the executor counts as silent, as a multiple of the expected time.
const OVERDUE: f64 = 3.0;
/// The longest expected time of a task of unknown type, in usual service times.
const UNKNOWN: f64 = 64.0;
/// The assumed service time of a task from another engine where no pace is known, in milliseconds.
const UNKNOWN_MS: f64 = 1_000.0;
/// The half-life of a failure, in usual service times.
const HALF_LIFE: f64 = 64.0;

/// An executor with a shorter backlog may need the next task before it answers: the round trip takes time, and so
/// does storing the answer.
const AHEAD_MS: f64 = 200.0;

pub(crate) type Entries = BTreeMap<AssignmentId, Entry>;

/// The limits that an executor registers with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Its concurrency.
    pub at_once: u32,
    /// Its share of the tasks under the policy `weighted`.
    pub weight: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { at_once: 1, weight: 1.0 }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Executor {
    /// Observations by type, sorted by type.
    kinds: Vec<(KindId, Experience)>,
    at_once: u32,
    pub(crate) weight: f64,
    /// The number of unanswered assignments and their expected work, in milliseconds.
    pub(crate) outstanding: u32,
    work_ms: f64,
    /// The number of assignments that it can have begun, and of those still queued.
    working: u32,
    working_ms: f64,
    waiting: VecDeque<AssignmentId>,
    /// The outstanding assignments that were abandoned.
    pub(crate) abandoned: BTreeSet<AssignmentId>,
    pub(crate) newest_answered: Option<AssignmentId>,
    answered_at: Option<Timestamp>,
    assigned_at: Option<Timestamp>,
    /// Since when it has tasks and has not answered.
    silent_since: Option<Timestamp>,
    /// Time-outs and errors since its last result.
    pub(crate) timeouts: u32,
    /// The actual and the expected total time of answers since they can have been begun. The difference went to
    /// other engines.
    taken_ms: f64,
    expected_ms: f64,
    /// The number of tasks of other engines in its last load report, and the time of the report.
    others: u32,
    others_at: Timestamp,
}

impl Executor {
    pub(crate) fn new(limits: &Limits) -> Self {
        let mut one = Self::default();
        one.limit(limits);
        one
    }

    pub(crate) fn limit(&mut self, limits: &Limits) {
        (self.at_once, self.weight) = (limits.at_once.max(1), limits.weight);
    }

    pub(crate) fn kind(&self, kind: KindId) -> &Experience {
        let place = self.kinds.binary_search_by_key(&kind, |(kind, _)| *kind);
        place.ok().and_then(|place| self.kinds.get(place)).map_or(&NOTHING, |(_, seen)| seen)
    }

    pub(crate) fn kind_mut(&mut self, kind: KindId) -> &mut Experience {
        let place = match self.kinds.binary_search_by_key(&kind, |(kind, _)| *kind) {
            Ok(place) => place,
            Err(place) => {
                self.kinds.insert(place, (kind, NOTHING));
                place
            }
        };
        &mut self.kinds[place].1
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = (KindId, &Experience)> {
        self.kinds.iter().map(|(kind, seen)| (*kind, seen))
    }

    /// The mean of `size / time` over all its assignments, in units per millisecond.
    pub(crate) fn rate(&self, kind: KindId) -> Option<f64> {
        self.kind(kind).rate()
    }

    /// Milliseconds per unit of work.
    pub(crate) fn pace(&self, kind: KindId) -> Option<f64> {
        self.kind(kind).pace
    }

    /// The expected time of a task. For an unknown type it is the mean of the known types, bounded by a multiple of
    /// the usual service time: types have units of their own.
    pub(crate) fn expected_ms(&self, kind: KindId, size: f64, service_ms: Option<f64>) -> f64 {
        let known = || self.kinds.iter().filter_map(|(_, experience)| experience.pace);
        let mean = || known().sum::<f64>() / (known().count().max(1) as f64);
        let most_ms = service_ms.map_or(f64::INFINITY, |usual_ms| UNKNOWN * usual_ms);
        self.pace(kind).map_or_else(|| (mean() * size).min(most_ms), |pace| pace * size)
    }

    /// Adds an assignment.
    pub(crate) fn enter(&mut self, id: AssignmentId, entry: &mut Entry) {
        self.outstanding += 1;
        self.work_ms += entry.work_ms;
        self.silent_since.get_or_insert(entry.at);
        self.assigned_at = Some(entry.at);
        let experience = self.kind_mut(entry.kind);
        experience.outstanding += 1;
        experience.assigned_at = Some(entry.at);
        if self.working < self.at_once {
            self.begin(entry, entry.at);
        } else {
            self.waiting.push_back(id);
        }
    }

    fn begin(&mut self, entry: &mut Entry, now: Timestamp) {
        entry.begun = Some(now);
        self.working += 1;
        self.working_ms += entry.work_ms;
    }

    /// Removes an assignment; the next ones begin.
    pub(crate) fn leave(&mut self, entries: &mut Entries, entry: &Entry, now: Timestamp) {
        if !entry.is_counted {
            return;
        }
        self.outstanding -= 1;
        self.kind_mut(entry.kind).outstanding -= 1;
        let less = |sum: f64| (sum - entry.work_ms).max(0.0);
        self.work_ms = if self.outstanding == 0 { 0.0 } else { less(self.work_ms) };
        if entry.begun.is_some() {
            self.working -= 1;
            self.working_ms = if self.working == 0 { 0.0 } else { less(self.working_ms) };
        }
        while self.working < self.at_once
            && let Some(next) = self.waiting.pop_front()
        {
            let is_open = |entry: &&mut Entry| entry.is_counted && entry.begun.is_none();
            if let Some(entry) = entries.get_mut(&next).filter(is_open) {
                self.begin(entry, now);
            }
        }
    }

    /// The executor has answered. It does not have abandoned assignments that are older than the answered one: it
    /// would have answered those first.
    pub(crate) fn speak(&mut self, entries: &mut Entries, id: AssignmentId, now: Timestamp) {
        self.abandoned.remove(&id);
        while self.abandoned.first().is_some_and(|oldest| *oldest < id)
            && let Some(lost) = self.abandoned.pop_first()
        {
            if let Some(mut entry) = entries.remove(&lost) {
                self.leave(entries, &entry, now);
                entry.is_counted = false;
                entries.insert(lost, entry);
            }
        }
        self.newest_answered = self.newest_answered.max(Some(id));
        self.answered_at = Some(now);
        self.silent_since = (self.outstanding > 0).then_some(now);
    }

    /// An idle executor is not silent.
    pub(crate) fn rest(&mut self) {
        self.silent_since = self.silent_since.filter(|_| self.outstanding > 0);
    }

    /// The earliest time at which it can have begun an assignment.
    pub(crate) fn begun(&self, entry: &Entry) -> Timestamp {
        let after = self.answered_at.map_or(entry.at, |before| before.max(entry.at));
        entry.begun.unwrap_or(after)
    }

    /// Records the actual and the expected time of a task.
    pub(crate) fn compare(&mut self, taken_ms: f64, expected_ms: f64) {
        self.taken_ms += NEW * (taken_ms - self.taken_ms);
        self.expected_ms += NEW * (expected_ms - self.expected_ms);
    }

    /// The totals of actual and expected times.
    pub(crate) fn compared(&self) -> (f64, f64) {
        (self.taken_ms, self.expected_ms)
    }

    pub(crate) fn restore_compared(&mut self, taken_ms: f64, expected_ms: f64) {
        (self.taken_ms, self.expected_ms) = (taken_ms, expected_ms);
    }

    /// The slowdown by tasks of other engines, as a factor.
    fn slowed(&self) -> f64 {
        if self.expected_ms > 0.0 { (self.taken_ms / self.expected_ms).max(1.0) } else { 1.0 }
    }

    /// The time until it can begin a new task, in milliseconds, at the recent share of work for other engines.
    pub(crate) fn backlog_ms(&self, now: Timestamp) -> f64 {
        let others = self.others(now);
        if self.working.saturating_add(others) < self.at_once {
            return 0.0;
        }
        let others_ms = f64::from(others) * self.expected_ms;
        (self.work_ms * self.slowed() + others_ms) / f64::from(self.at_once)
    }

    /// Records a load report: `has` tasks of all engines, `over` of which this engine counts as finished.
    pub(crate) fn set_load(&mut self, has: u32, over: u32, now: Timestamp) {
        self.others = has.saturating_sub(self.outstanding.saturating_sub(over));
        self.others_at = now;
    }

    /// The estimated number of tasks of other engines by now: it works off the reported tasks at the learned pace.
    /// So an executor that is assigned nothing, and reports nothing, is not avoided for ever.
    fn others(&self, now: Timestamp) -> u32 {
        let each_ms = if self.expected_ms > 0.0 { self.expected_ms } else { UNKNOWN_MS };
        let passed_ms = now.0.saturating_sub(self.others_at.0).max(0) as f64;
        let done = passed_ms * f64::from(self.at_once) / each_ms;
        self.others.saturating_sub(done as u32)
    }

    pub(crate) fn at_once(&self) -> u32 {
        self.at_once
    }

    pub(crate) fn has_free_slot(&self) -> bool {
        self.working < self.at_once
    }

    /// Whether it needs another task of this engine to stay busy.
    pub(crate) fn needs_more(&self) -> bool {
        self.has_free_slot() || self.work_ms / f64::from(self.at_once) < AHEAD_MS
    }

    /// The longest silence before its circuit opens, by the usual service time.
    pub(crate) fn silence_ms(&self, service_ms: f64) -> f64 {
        let overdue_ms = OVERDUE * self.working_ms * self.slowed();
        (SILENCE * self.taken_ms.max(service_ms)).max(overdue_ms)
    }

    /// Shifts all times by an interval in which it could not be on_registered.
    pub(crate) fn skip(&mut self, by: Duration) {
        let tried = self.kinds.iter_mut().map(|(_, experience)| &mut experience.assigned_at);
        let own = [&mut self.answered_at, &mut self.assigned_at, &mut self.silent_since];
        for moment in tried.chain(own).flatten() {
            *moment = moment.plus(by);
        }
        self.others_at = self.others_at.plus(by);
    }

    /// It has registered again and may have been restarted: earlier probes and its reported load are void.
    pub(crate) fn on_registered(&mut self) {
        self.assigned_at = None;
        self.others = 0;
        self.kinds.iter_mut().for_each(|(_, experience)| experience.assigned_at = None);
    }

    pub(crate) fn silent_since(&self) -> Option<Timestamp> {
        self.silent_since
    }

    /// The open circuit of a busy executor that is silent for too long.
    pub(crate) fn open_circuit(&self, service_ms: f64, now: Timestamp) -> Option<OpenCircuit> {
        let since = self.silent_since?;
        let silent_ms = now.0.saturating_sub(since.0) as f64;
        if silent_ms < SILENCE * service_ms || silent_ms < self.silence_ms(service_ms) {
            return None;
        }
        Some(OpenCircuit { since, probed_at: self.assigned_at.map_or(since, |at| at.max(since)) })
    }
}

/// The half-life of a failure, by the usual service time.
pub(crate) fn half_life_ms(service_ms: Option<f64>) -> f64 {
    HALF_LIFE * service_ms.unwrap_or(1_000.0)
}
