//! What an engine has observed of its executors: assignments, and when they were answered.
//!
//! Invariant: the book follows from registrations and from the engine's own assignments, time-outs and answers. An
//! assignment is outstanding until it is answered, also after its time-out: a living executor still has the task in
//! its queue.

use std::time::Duration;

use legwork_model::time::Timestamp;

use crate::executor::{Entries, Executor, Limits, NEW, half_life_ms};
use crate::experience::Seen;
use crate::{AssignmentId, Candidate, ExecutorId, KindId, Task};

/// The most abandoned assignments that are remembered per executor.
const ABANDONED_MAX: usize = 1_024;

/// All executors, as one engine observes them.
#[derive(Clone, Debug, Default)]
pub struct Book {
    pub(crate) executors: Vec<Executor>,
    entries: Entries,
    last: u64,
    /// The recent mean service time, in milliseconds.
    pub(crate) service_ms: Option<f64>,
    pub(crate) size_max: f64,
    /// How many observations were made.
    pub(crate) revision: u64,
}

/// An assignment without an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    pub executor: ExecutorId,
    pub kind: KindId,
    pub size: f64,
    pub attempt: u32,
    pub at: Timestamp,
    /// The expected transfer time of the inputs.
    cost_ms: f64,
    /// The expected work.
    pub work_ms: f64,
    /// The earliest time at which the executor can have begun.
    pub(crate) begun: Option<Timestamp>,
    /// The rate that the time-out implies, until the answer gives the real rate.
    timed_out: Option<f64>,
    /// Whether the time-out counted as a failure.
    is_failure: bool,
    /// Whether the task is presumed to be at its executor.
    pub(crate) is_counted: bool,
    /// The service time that the executor reports, in milliseconds.
    took_ms: Option<f64>,
}

/// What an executor reports about itself with an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    /// The number of tasks that the executor has now, from all engines.
    pub has: Option<u32>,
    /// The service time of the answered task, in milliseconds.
    pub took_ms: Option<u64>,
}

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    InTime,
    /// After its time-out.
    Late,
}

impl Book {
    /// A book of `executors` executors, each of which does one task at a time.
    pub fn new(executors: usize) -> Self {
        let one = Executor::new(&Limits::default());
        Self { executors: vec![one; executors], ..Self::default() }
    }

    /// Adds an executor.
    pub fn register(&mut self, limits: &Limits) -> ExecutorId {
        self.executors.push(Executor::new(limits));
        ExecutorId(self.executors.len() as u32 - 1)
    }

    /// Replaces the limits of an executor. What was learned of it stays.
    pub fn limit(&mut self, executor: ExecutorId, limits: &Limits) {
        if let Some(one) = self.executors.get_mut(executor.0 as usize) {
            one.limit(limits);
        }
    }

    /// Reuses the number of an executor for another, of which nothing is known.
    pub fn replace(&mut self, executor: ExecutorId, limits: &Limits) {
        self.entries.retain(|_, entry| entry.executor != executor);
        if let Some(one) = self.executors.get_mut(executor.0 as usize) {
            *one = Executor::new(limits);
        }
    }

    /// An executor has registered again. It may be probed at once if it was presumed dead, and its load is unknown.
    pub fn on_registered(&mut self, executor: ExecutorId) {
        if let Some(one) = self.executors.get_mut(executor.0 as usize) {
            one.on_registered();
        }
    }

    /// What was observed of an executor at a type.
    pub fn seen(&self, executor: ExecutorId, kind: KindId) -> Seen {
        let Some(one) = self.executor(executor) else { return Seen::default() };
        let experience = one.kind(kind);
        let is_failing = experience.open_circuit().is_some();
        Seen { pace_ms: experience.pace, is_failing, ..experience.counts }
    }

    /// When the executor failed last at a type, if the circuit of that type is open.
    pub fn failed_at(&self, executor: ExecutorId, kind: KindId) -> Option<Timestamp> {
        self.executor(executor).and_then(|one| one.kind(kind).failed_at())
    }

    /// Whether the executor has tasks and has been silent for so long that its circuit is open.
    pub fn is_silent(&self, executor: ExecutorId, now: Timestamp) -> bool {
        let one = self.executor(executor).zip(self.service_ms);
        one.is_some_and(|(one, service_ms)| one.open_circuit(service_ms, now).is_some())
    }

    pub(crate) fn executor(&self, id: ExecutorId) -> Option<&Executor> {
        self.executors.get(id.0 as usize)
    }

    /// The known number of tasks at an executor.
    pub fn outstanding(&self, executor: ExecutorId) -> u32 {
        self.executor(executor).map_or(0, |one| one.outstanding)
    }

    /// The pace of an executor: milliseconds per unit.
    pub(crate) fn pace(&self, executor: ExecutorId, kind: KindId) -> Option<f64> {
        self.executor(executor)?.pace(kind)
    }

    /// The time until an executor can begin a new task, in milliseconds.
    pub(crate) fn backlog_ms(&self, executor: ExecutorId, now: Timestamp) -> f64 {
        self.executor(executor).map_or(0.0, |one| one.backlog_ms(now))
    }

    /// The concurrency of an executor.
    pub(crate) fn slots(&self, executor: ExecutorId) -> f64 {
        self.executor(executor).map_or(1.0, |one| f64::from(one.at_once()))
    }

    /// Whether this engine has left a slot of an executor free. Tasks of other engines do not count: they may be
    /// done by now, and an engine that waited for the other engines could starve.
    pub fn has_free_slot(&self, executor: ExecutorId) -> bool {
        self.executor(executor).is_some_and(Executor::has_free_slot)
    }

    /// Whether an executor needs another task to stay busy: it has a free slot or a short backlog.
    pub fn needs_more(&self, executor: ExecutorId) -> bool {
        self.executor(executor).is_some_and(Executor::needs_more)
    }

    /// The largest size of any task so far.
    pub fn size_max(&self) -> f64 {
        self.size_max
    }

    /// An assignment without an answer.
    pub fn entry(&self, id: AssignmentId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    /// The recent mean service time, in milliseconds.
    pub(crate) fn service_ms(&self) -> Option<f64> {
        self.service_ms
    }

    /// A task is assigned to an executor.
    pub fn assigned(&mut self, to: Candidate, task: Task, now: Timestamp) -> AssignmentId {
        self.last += 1;
        let id = AssignmentId(self.last);
        self.size_max = self.size_max.max(task.size);
        let Candidate { executor, cost_ms, .. } = to;
        let Some(one) = self.executors.get_mut(executor.0 as usize) else { return id };
        let Task { kind, size, attempt } = task;
        let work_ms = one.expected_ms(kind, size, self.service_ms);
        let mut entry = Entry {
            executor,
            kind,
            size,
            attempt,
            at: now,
            cost_ms,
            work_ms,
            begun: None,
            timed_out: None,
            is_failure: false,
            is_counted: true,
            took_ms: None,
        };
        one.enter(id, &mut entry);
        self.entries.insert(id, entry);
        id
    }

    /// An assignment timed out; the task goes to another executor.
    pub fn timed_out(&mut self, id: AssignmentId, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(&id).filter(|entry| entry.timed_out.is_none())
        else {
            return;
        };
        let Some(one) = self.executors.get_mut(entry.executor.0 as usize) else { return };
        self.revision += 1;
        one.timeouts = one.timeouts.saturating_add(1);
        let rate = entry.size / millis(entry.at, now);
        entry.timed_out = Some(rate);
        // An executor that has answered later assignments hangs at this type; a silent executor hangs altogether.
        entry.is_failure = one.newest_answered > Some(id);
        let experience = one.kind_mut(entry.kind);
        experience.counts.timeouts += 1;
        experience.add_rate(rate);
        if entry.is_failure {
            experience.fail(half_life_ms(self.service_ms), now);
        }
        one.abandoned.insert(id);
        if one.abandoned.len() > ABANDONED_MAX
            && let Some(oldest) = one.abandoned.pop_first()
            && let Some(entry) = self.entries.remove(&oldest)
        {
            one.leave(&mut self.entries, &entry, now);
        }
    }

    /// Shifts all times by an unobserved interval: no answer could be received in it, so it counts against no
    /// executor.
    pub fn skip(&mut self, by: Duration) {
        let later = |moment: &mut Timestamp| *moment = moment.plus(by);
        for entry in self.entries.values_mut() {
            later(&mut entry.at);
            entry.begun.as_mut().map(later);
        }
        self.executors.iter_mut().for_each(|one| one.skip(by));
    }

    /// Records the feedback of an answer; called before the answer itself. `is_over`: the executor no longer has
    /// the assignment.
    pub fn note_feedback(
        &mut self,
        id: AssignmentId,
        feedback: Feedback,
        is_over: bool,
        now: Timestamp,
    ) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.took_ms = feedback.took_ms.map(|ms| (ms as f64).max(0.5));
        let own = u32::from(is_over && entry.is_counted);
        let one = self.executors.get_mut(entry.executor.0 as usize);
        if let (Some(one), Some(has)) = (one, feedback.has) {
            one.set_load(has, own, now);
        }
    }

    /// An executor has done a task, in time or late.
    pub fn answered(&mut self, id: AssignmentId, now: Timestamp) -> Option<Outcome> {
        let entry = self.entries.remove(&id)?;
        let one = self.executors.get_mut(entry.executor.0 as usize)?;
        self.revision += 1;
        let elapsed_ms = millis(one.begun(&entry), now);
        // The transfer time is a guess: it may explain at most half of the time.
        let waited_ms = if entry.begun == Some(entry.at) { entry.cost_ms } else { 0.0 };
        let taken_ms = (elapsed_ms - waited_ms).max(elapsed_ms / 2.0);
        one.leave(&mut self.entries, &entry, now);
        one.speak(&mut self.entries, id, now);
        let experience = one.kind_mut(entry.kind);
        if let Some(rate) = entry.timed_out {
            experience.take_rate_back(rate);
        }
        if entry.is_failure {
            experience.pardon();
        }
        experience.counts.answers += 1;
        experience.add_rate(entry.size / millis(entry.at, now));
        experience.observe(entry.took_ms.unwrap_or(taken_ms).min(taken_ms) / entry.size);
        let expected_ms = experience.pace.unwrap_or_default() * entry.size;
        one.compare(taken_ms, expected_ms);
        let before = self.service_ms.unwrap_or(expected_ms);
        self.service_ms = Some(before + NEW * (expected_ms - before));
        one.timeouts = 0;
        if entry.timed_out.is_some() {
            return Some(Outcome::Late);
        }
        Some(Outcome::InTime)
    }

    /// An executor reports a failure. A failure says nothing about its speed.
    pub fn failed(&mut self, id: AssignmentId, now: Timestamp) -> Option<Outcome> {
        let entry = self.entries.remove(&id)?;
        let one = self.executors.get_mut(entry.executor.0 as usize)?;
        self.revision += 1;
        one.leave(&mut self.entries, &entry, now);
        one.speak(&mut self.entries, id, now);
        // To policies that know time-outs only, a failure is an immediate time-out.
        one.timeouts = one.timeouts.saturating_add(1);
        let experience = one.kind_mut(entry.kind);
        experience.counts.failures += 1;
        if !entry.is_failure {
            experience.fail(half_life_ms(self.service_ms), now);
        }
        let Some(rate) = entry.timed_out else { return Some(Outcome::InTime) };
        experience.take_rate_back(rate);
        Some(Outcome::Late)
    }

    /// An assignment is withdrawn before it had a result, without counting as a failure.
    pub fn withdrawn(&mut self, id: AssignmentId, now: Timestamp) {
        let Some(entry) = self.entries.remove(&id) else { return };
        let Some(one) = self.executors.get_mut(entry.executor.0 as usize) else { return };
        one.abandoned.remove(&id);
        one.leave(&mut self.entries, &entry, now);
        one.rest();
    }
}

fn millis(from: Timestamp, to: Timestamp) -> f64 {
    // The clock is too coarse for a shorter time.
    (to.0.saturating_sub(from.0) as f64).max(0.5)
}
