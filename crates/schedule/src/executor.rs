//! What is known of one executor: what it has, since when it is silent, how much it does for others.
//!
//! It works on as many tasks at a time as it said, in the order in which they came. Invariant: what
//! is counted as its own (`outstanding`, `work_ms`) was given to it and was neither answered nor
//! overtaken after a time-out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use legwork_model::time::Timestamp;

use crate::book::Entry;
use crate::doubt::Doubt;
use crate::experience::{Experience, NOTHING};
use crate::{AssignmentId, KindId};

/// How much a new observation counts in a mean that forgets.
pub(crate) const NEW: f64 = 0.05;
/// How many times as long as usual an executor may say nothing, though it has something to do.
const SILENCE: f64 = 16.0;
/// How many times as long as expected it may work on what it has begun.
const OVERDUE: f64 = 3.0;
/// How many times as long as usual a task of a type that is not known may be expected to take.
const UNKNOWN: f64 = 64.0;
/// How long a task of others is taken to last where no pace is known, in milliseconds.
const UNKNOWN_MS: f64 = 1_000.0;
/// After how many times as long as a task takes a failure counts half.
const HALF_LIFE: f64 = 64.0;

/// An executor with less to do than that may need the next task before it answers: the way there and back takes
/// time, and so does storing what it answers.
const AHEAD_MS: f64 = 200.0;

pub(crate) type Entries = BTreeMap<AssignmentId, Entry>;

/// What an executor says of itself at its registration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// On how many tasks it works at a time.
    pub at_once: u32,
    /// Its part of the tasks, where they are given out by weights.
    pub weight: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { at_once: 1, weight: 1.0 }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Executor {
    /// What was seen of it, by the types of which anything was, in their order.
    kinds: Vec<(KindId, Experience)>,
    at_once: u32,
    pub(crate) weight: f64,
    /// Assignments without an answer, and how long they are expected to take, in milliseconds.
    pub(crate) outstanding: u32,
    work_ms: f64,
    /// Those that it can have begun with, and those that wait for that.
    working: u32,
    working_ms: f64,
    waiting: VecDeque<AssignmentId>,
    /// Those of the outstanding ones that are not waited for any more.
    pub(crate) given_up: BTreeSet<AssignmentId>,
    pub(crate) newest_answered: Option<AssignmentId>,
    answered_at: Option<Timestamp>,
    assigned_at: Option<Timestamp>,
    /// Since when it has something to do and has not answered.
    silent_since: Option<Timestamp>,
    /// Time-outs and errors since it last did something.
    pub(crate) timeouts: u32,
    /// How long answers took from when they can have been begun, and how long they were expected to:
    /// the rest went to others.
    taken_ms: f64,
    expected_ms: f64,
    /// How many tasks of other engines it had when it reported its load last, and when that was.
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

    /// The mean of `size / time` over all that was given to it, in units per millisecond.
    pub(crate) fn rate(&self, kind: KindId) -> Option<f64> {
        self.kind(kind).rate()
    }

    /// How long a unit takes when it is worked on, in milliseconds.
    pub(crate) fn pace(&self, kind: KindId) -> Option<f64> {
        self.kind(kind).pace
    }

    /// How long a task is expected to take; of a type that is not known as the mean of the others, but no
    /// more than some times as long as tasks usually take: types have units of their own.
    pub(crate) fn expected_ms(&self, kind: KindId, size: f64, service_ms: Option<f64>) -> f64 {
        let known = || self.kinds.iter().filter_map(|(_, experience)| experience.pace);
        let mean = || known().sum::<f64>() / (known().count().max(1) as f64);
        let most_ms = service_ms.map_or(f64::INFINITY, |usual_ms| UNKNOWN * usual_ms);
        self.pace(kind).map_or_else(|| (mean() * size).min(most_ms), |pace| pace * size)
    }

    /// A task comes to the others.
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

    /// A task is not there any more, and the next ones begin.
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

    /// It said something. What it was given before and is not waited for any more, it does not have:
    /// it would have answered that first.
    pub(crate) fn speak(&mut self, entries: &mut Entries, id: AssignmentId, now: Timestamp) {
        self.given_up.remove(&id);
        while self.given_up.first().is_some_and(|oldest| *oldest < id)
            && let Some(lost) = self.given_up.pop_first()
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

    /// Whoever has nothing to do has nothing to say.
    pub(crate) fn rest(&mut self) {
        self.silent_since = self.silent_since.filter(|_| self.outstanding > 0);
    }

    /// When it can have begun with something.
    pub(crate) fn begun(&self, entry: &Entry) -> Timestamp {
        let after = self.answered_at.map_or(entry.at, |before| before.max(entry.at));
        entry.begun.unwrap_or(after)
    }

    /// A task took so long, and was expected to take so long.
    pub(crate) fn compare(&mut self, taken_ms: f64, expected_ms: f64) {
        self.taken_ms += NEW * (taken_ms - self.taken_ms);
        self.expected_ms += NEW * (expected_ms - self.expected_ms);
    }

    /// How long tasks took, and how long they were expected to.
    pub(crate) fn compared(&self) -> (f64, f64) {
        (self.taken_ms, self.expected_ms)
    }

    pub(crate) fn restore_compared(&mut self, taken_ms: f64, expected_ms: f64) {
        (self.taken_ms, self.expected_ms) = (taken_ms, expected_ms);
    }

    /// How many times as long everything takes because it works for others in between.
    fn slowed(&self) -> f64 {
        if self.expected_ms > 0.0 { (self.taken_ms / self.expected_ms).max(1.0) } else { 1.0 }
    }

    /// When it gets to a new task, in milliseconds from now: it does as much for others in between as
    /// it did of late.
    pub(crate) fn backlog_ms(&self, now: Timestamp) -> f64 {
        let others = self.others(now);
        if self.working.saturating_add(others) < self.at_once {
            return 0.0;
        }
        let others_ms = f64::from(others) * self.expected_ms;
        (self.work_ms * self.slowed() + others_ms) / f64::from(self.at_once)
    }

    /// Its load as it reports it: how many tasks it has from all engines. So many of this engine's are over with the report.
    pub(crate) fn set_load(&mut self, has: u32, over: u32, now: Timestamp) {
        self.others = has.saturating_sub(self.outstanding.saturating_sub(over));
        self.others_at = now;
    }

    /// How many tasks of other engines it has by now: it works off what it reported, at the pace that was learned. So an
    /// executor that is given nothing, and reports nothing, is not avoided for ever.
    fn others(&self, now: Timestamp) -> u32 {
        let each_ms = if self.expected_ms > 0.0 { self.expected_ms } else { UNKNOWN_MS };
        let passed_ms = now.0.saturating_sub(self.others_at.0).max(0) as f64;
        let done = passed_ms * f64::from(self.at_once) / each_ms;
        self.others.saturating_sub(done as u32)
    }

    pub(crate) fn at_once(&self) -> u32 {
        self.at_once
    }

    pub(crate) fn has_free_hand(&self) -> bool {
        self.working < self.at_once
    }

    /// Whether it needs another task of this engine so as not to wait for one.
    pub(crate) fn needs_more(&self) -> bool {
        self.has_free_hand() || self.work_ms / f64::from(self.at_once) < AHEAD_MS
    }

    /// For how long it may say nothing, where tasks usually take so long.
    pub(crate) fn silence_ms(&self, service_ms: f64) -> f64 {
        let overdue_ms = OVERDUE * self.working_ms * self.slowed();
        (SILENCE * self.taken_ms.max(service_ms)).max(overdue_ms)
    }

    /// So much time passed in which it could not be heard.
    pub(crate) fn skip(&mut self, by: Duration) {
        let tried = self.kinds.iter_mut().map(|(_, experience)| &mut experience.assigned_at);
        let own = [&mut self.answered_at, &mut self.assigned_at, &mut self.silent_since];
        for moment in tried.chain(own).flatten() {
            *moment = moment.plus(by);
        }
        self.others_at = self.others_at.plus(by);
    }

    /// It has registered again, and may have been started anew: earlier probes and its load say nothing any more.
    pub(crate) fn hear(&mut self) {
        self.assigned_at = None;
        self.others = 0;
        self.kinds.iter_mut().for_each(|(_, experience)| experience.assigned_at = None);
    }

    pub(crate) fn silent_since(&self) -> Option<Timestamp> {
        self.silent_since
    }

    /// Nothing is expected any more of one that has something to do and says nothing.
    pub(crate) fn doubt(&self, service_ms: f64, now: Timestamp) -> Option<Doubt> {
        let since = self.silent_since?;
        let silent_ms = now.0.saturating_sub(since.0) as f64;
        if silent_ms < SILENCE * service_ms || silent_ms < self.silence_ms(service_ms) {
            return None;
        }
        Some(Doubt { since, tried_at: self.assigned_at.map_or(since, |at| at.max(since)) })
    }
}

/// After how long a failure counts half, where tasks usually take so long.
pub(crate) fn half_life_ms(service_ms: Option<f64>) -> f64 {
    HALF_LIFE * service_ms.unwrap_or(1_000.0)
}
