//! What an engine has seen of its executors: what it gave them, and what came back when.
//!
//! Invariant: everything here follows from what executors registered with and from the engine's own
//! assignments, time-outs and answers. What is outstanding at an executor is what it was given and has not
//! answered, also after a time-out: a living executor still has it in its queue.

use std::time::Duration;

use legwork_model::time::Timestamp;

use crate::executor::{Entries, Executor, Limits, NEW, half_life_ms};
use crate::experience::Seen;
use crate::{AssignmentId, Candidate, ExecutorId, KindId, Task};

/// How many assignments that are not waited for any more are remembered of an executor.
const GIVEN_UP_MAX: usize = 1_024;

/// All executors, as one engine sees them.
#[derive(Clone, Debug, Default)]
pub struct Book {
    pub(crate) executors: Vec<Executor>,
    entries: Entries,
    last: u64,
    /// The time that a task takes once it is worked on, in milliseconds, of late.
    pub(crate) service_ms: Option<f64>,
    pub(crate) size_max: f64,
    /// How often something was learned.
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
    /// How long the inputs were expected to be on their way.
    cost_ms: f64,
    /// How long it was expected to take.
    pub work_ms: f64,
    /// When it can have been begun.
    pub(crate) begun: Option<Timestamp>,
    /// The rate that a time-out stands for until the real answer comes.
    timed_out: Option<f64>,
    /// Whether that counted as a failure.
    is_failure: bool,
    /// Whether its executor is taken to have it.
    pub(crate) is_counted: bool,
    /// How long its executor says that it worked on it, in milliseconds.
    took_ms: Option<f64>,
}

/// What an executor reports of itself with an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    /// How many tasks it has now, from all engines.
    pub has: Option<u32>,
    /// How many milliseconds it worked on the task that it answers.
    pub took_ms: Option<u64>,
}

/// What an answer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    InTime,
    /// After its time-out.
    Late,
}

impl Book {
    /// So many executors, each of which works on one task at a time.
    pub fn new(executors: usize) -> Self {
        let one = Executor::new(&Limits::default());
        Self { executors: vec![one; executors], ..Self::default() }
    }

    /// One more executor.
    pub fn register(&mut self, limits: &Limits) -> ExecutorId {
        self.executors.push(Executor::new(limits));
        ExecutorId(self.executors.len() as u32 - 1)
    }

    /// An executor takes more or less than before; what was learned of it stays.
    pub fn limit(&mut self, executor: ExecutorId, limits: &Limits) {
        if let Some(one) = self.executors.get_mut(executor.0 as usize) {
            one.limit(limits);
        }
    }

    /// Another executor has this number from now on; nothing is known of it.
    pub fn replace(&mut self, executor: ExecutorId, limits: &Limits) {
        self.entries.retain(|_, entry| entry.executor != executor);
        if let Some(one) = self.executors.get_mut(executor.0 as usize) {
            *one = Executor::new(limits);
        }
    }

    /// An executor has registered again: it may be probed at once if it was presumed dead, and its load is not known.
    pub fn heard(&mut self, executor: ExecutorId) {
        if let Some(one) = self.executors.get_mut(executor.0 as usize) {
            one.hear();
        }
    }

    /// What was seen of an executor at a type.
    pub fn seen(&self, executor: ExecutorId, kind: KindId) -> Seen {
        let Some(one) = self.executor(executor) else { return Seen::default() };
        let experience = one.kind(kind);
        let is_failing = experience.doubt().is_some();
        Seen { pace_ms: experience.pace, is_failing, ..experience.counts }
    }

    /// When an executor failed last at a type, if it does nothing else any more.
    pub fn failed_at(&self, executor: ExecutorId, kind: KindId) -> Option<Timestamp> {
        self.executor(executor).and_then(|one| one.kind(kind).failed_at())
    }

    /// Whether an executor has something to do and has said nothing for so long that nothing is expected of it.
    pub fn is_silent(&self, executor: ExecutorId, now: Timestamp) -> bool {
        let one = self.executor(executor).zip(self.service_ms);
        one.is_some_and(|(one, service_ms)| one.doubt(service_ms, now).is_some())
    }

    pub(crate) fn executor(&self, id: ExecutorId) -> Option<&Executor> {
        self.executors.get(id.0 as usize)
    }

    /// How many tasks an executor has, as far as is known.
    pub fn outstanding(&self, executor: ExecutorId) -> u32 {
        self.executor(executor).map_or(0, |one| one.outstanding)
    }

    /// How long a unit takes an executor, if that is known.
    pub(crate) fn pace(&self, executor: ExecutorId, kind: KindId) -> Option<f64> {
        self.executor(executor)?.pace(kind)
    }

    /// When an executor gets to a new task, in milliseconds from now.
    pub(crate) fn backlog_ms(&self, executor: ExecutorId, now: Timestamp) -> f64 {
        self.executor(executor).map_or(0.0, |one| one.backlog_ms(now))
    }

    /// On how many tasks an executor works at a time.
    pub(crate) fn hands(&self, executor: ExecutorId) -> f64 {
        self.executor(executor).map_or(1.0, |one| f64::from(one.at_once()))
    }

    /// Whether this engine has not filled all hands of an executor. What others gave does not count: their tasks may be
    /// done by now, and whoever waited for that would never get a turn.
    pub fn has_free_hand(&self, executor: ExecutorId) -> bool {
        self.executor(executor).is_some_and(Executor::has_free_hand)
    }

    /// Whether an executor needs another task so as not to wait for one: it has a hand free, or little to do.
    pub fn needs_more(&self, executor: ExecutorId) -> bool {
        self.executor(executor).is_some_and(Executor::needs_more)
    }

    /// The largest size that any task had.
    pub fn size_max(&self) -> f64 {
        self.size_max
    }

    /// An assignment that was not answered yet.
    pub fn entry(&self, id: AssignmentId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    /// How long a task takes once it is worked on, in milliseconds, of late.
    pub(crate) fn service_ms(&self) -> Option<f64> {
        self.service_ms
    }

    /// A task goes to an executor.
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

    /// An assignment was waited for in vain; the task goes elsewhere.
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
        // Whoever has answered what it got later, hangs at this; a silent one hangs altogether.
        entry.is_failure = one.newest_answered > Some(id);
        let experience = one.kind_mut(entry.kind);
        experience.counts.timeouts += 1;
        experience.add_rate(rate);
        if entry.is_failure {
            experience.fail(half_life_ms(self.service_ms), now);
        }
        one.given_up.insert(id);
        if one.given_up.len() > GIVEN_UP_MAX
            && let Some(oldest) = one.given_up.pop_first()
            && let Some(entry) = self.entries.remove(&oldest)
        {
            one.leave(&mut self.entries, &entry, now);
        }
    }

    /// So much time passed unseen: nothing could be heard in it, so it counts as nobody's.
    pub fn skip(&mut self, by: Duration) {
        let later = |moment: &mut Timestamp| *moment = moment.plus(by);
        for entry in self.entries.values_mut() {
            later(&mut entry.at);
            entry.begun.as_mut().map(later);
        }
        self.executors.iter_mut().for_each(|one| one.skip(by));
    }

    /// The feedback in an answer about an assignment; called before the answer itself is noted. `is_over`: the executor
    /// does not have the assignment any more.
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

    /// An executor has done a task, whether it was waited for or not.
    pub fn answered(&mut self, id: AssignmentId, now: Timestamp) -> Option<Outcome> {
        let entry = self.entries.remove(&id)?;
        let one = self.executors.get_mut(entry.executor.0 as usize)?;
        self.revision += 1;
        let elapsed_ms = millis(one.begun(&entry), now);
        // What the way of the inputs takes is a guess: it may explain half of the time.
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

    /// An executor says that it cannot do a task. That says nothing of how fast it is.
    pub fn failed(&mut self, id: AssignmentId, now: Timestamp) -> Option<Outcome> {
        let entry = self.entries.remove(&id)?;
        let one = self.executors.get_mut(entry.executor.0 as usize)?;
        self.revision += 1;
        one.leave(&mut self.entries, &entry, now);
        one.speak(&mut self.entries, id, now);
        // To those who know of time-outs alone it is one that comes at once.
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

    /// An assignment is taken back before anything came of it, and nobody is to blame.
    pub fn withdrawn(&mut self, id: AssignmentId, now: Timestamp) {
        let Some(entry) = self.entries.remove(&id) else { return };
        let Some(one) = self.executors.get_mut(entry.executor.0 as usize) else { return };
        one.given_up.remove(&id);
        one.leave(&mut self.entries, &entry, now);
        one.rest();
    }
}

fn millis(from: Timestamp, to: Timestamp) -> f64 {
    // What takes no time at all has taken less than can be told.
    (to.0.saturating_sub(from.0) as f64).max(0.5)
}
