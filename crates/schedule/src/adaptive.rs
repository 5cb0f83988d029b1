//! The policy `adaptive`: a task goes to the executor where it adds least to the load of all.
//!
//! The backlog of an executor is the time until it can begin another task. A task goes to the executor for which
//! the sum of the squares of all backlogs grows least. When little is waiting, that is the executor that finishes
//! first. When much is waiting, the speed of an executor counts as well as its backlog: a slow idle executor does
//! not get a task that others do ten times as fast. There are no settings.
//!
//! The circuit of an executor opens when it is silent for too long. It opens for one type when the executor fails
//! at that type too often. An open circuit lets through a task from time to time, as a half-open probe.
//!
//! Invariant: the timeout of an attempt is at least twice that of the attempt before, so some attempt outlasts
//! any queue.

use legwork_model::time::Timestamp;

use crate::circuit::OpenCircuit;
use crate::executor::{Executor, half_life_ms};
use crate::{Book, Candidate, Entry, ExecutorId, KindId, Policy, Task};

/// The assumed pace of an unknown executor, as a part of the best known pace.
const HOPE: f64 = 0.8;
/// How many tasks of a type an executor of unknown pace gets at a time.
const TRIALS: u32 = 2;
/// How often a timeout is doubled at most: a millisecond becomes decades.
const DOUBLINGS: u32 = 40;

#[derive(Clone, Copy, Debug, Default)]
pub struct Adaptive;

/// The parameters that all candidates of a task share.
pub(crate) struct Question<'a> {
    pub(crate) task: &'a Task,
    now: Timestamp,
    /// The assumed pace of unknown executors.
    hope: f64,
    service_ms: f64,
    half_life_ms: f64,
}

pub(crate) enum Answer {
    /// The service time of the task, and the time until it begins.
    Costs { own_ms: f64, backlog_ms: f64 },
    /// It is due for a probe.
    Probe,
    /// Its circuit is open, or it has as many tasks as an unknown executor may have.
    No,
}

/// What a task adds to the sum of the squares of all backlogs (half of it).
pub(crate) fn added(own_ms: f64, backlog_ms: f64) -> f64 {
    own_ms * (backlog_ms + own_ms / 2.0)
}

/// The cheapest; the first of equals.
pub(crate) fn cheapest<T>(costs: impl Iterator<Item = (T, f64)>) -> Option<T> {
    costs.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(found, _)| found)
}

impl Adaptive {
    /// The executor with the least added load, or an executor that is due for a probe.
    fn least(
        &self,
        book: &Book,
        task: &Task,
        among: &[Candidate],
        now: Timestamp,
    ) -> Option<ExecutorId> {
        let question = Question::new(book, task, among, now);
        let mut least = f64::INFINITY;
        let mut chosen = None;
        for Candidate { executor, cost_ms, .. } in among {
            let Some(one) = book.executor(*executor) else { continue };
            match question.ask(one, *cost_ms, TRIALS) {
                Answer::Probe => return Some(*executor),
                Answer::Costs { own_ms, backlog_ms } => {
                    let cost = added(own_ms, backlog_ms);
                    if cost < least {
                        (least, chosen) = (cost, Some(*executor));
                    }
                }
                Answer::No => {}
            }
        }
        chosen
    }
}

impl<'a> Question<'a> {
    pub(crate) fn new(book: &Book, task: &'a Task, among: &[Candidate], now: Timestamp) -> Self {
        let paces = among.iter().filter_map(|to| book.executor(to.executor)?.pace(task.kind));
        let best = paces.fold(f64::INFINITY, f64::min);
        let hope = if best.is_finite() { best * HOPE } else { 1.0 };
        let service_ms = book.service_ms().unwrap_or(hope * task.size);
        let half_life_ms = half_life_ms(book.service_ms());
        Question { task, now, hope, service_ms, half_life_ms }
    }
}

impl Question<'_> {
    /// The costs of assigning the task to an executor. An executor of unknown pace may have fewer than `trials`
    /// tasks of the type.
    pub(crate) fn ask(&self, one: &Executor, cost_ms: f64, trials: u32) -> Answer {
        let experience = one.kind(self.task.kind);
        let open_circuit =
            one.open_circuit(self.service_ms, self.now).or_else(|| experience.open_circuit());
        if let Some(open_circuit) = open_circuit {
            return match open_circuit.is_due(one.silence_ms(self.service_ms), self.now) {
                true => Answer::Probe,
                false => Answer::No,
            };
        }
        let pace = match experience.pace {
            Some(pace) => pace,
            None if experience.outstanding < trials => self.hope,
            None => return Answer::No,
        };
        let failures = experience.penalty(self.half_life_ms, self.now);
        let own_ms = pace * self.task.size * (1.0 + failures) + cost_ms;
        Answer::Costs { own_ms, backlog_ms: one.backlog_ms(self.now) }
    }
}

impl Policy for Adaptive {
    fn choose(
        &mut self,
        book: &Book,
        task: &Task,
        among: &[Candidate],
        now: Timestamp,
    ) -> Option<ExecutorId> {
        let outstanding = |to: &&Candidate| book.outstanding(to.executor);
        let anybody = || among.iter().min_by_key(outstanding).map(|to| to.executor);
        self.least(book, task, among, now).or_else(anybody)
    }

    fn plans_ahead(&self) -> bool {
        true
    }

    /// The usual timeout counts from when the executor can begin the task. It doubles with each attempt.
    fn timeout_ms(
        &self,
        book: &Book,
        to: Candidate,
        task: &Task,
        usual_ms: i64,
        now: Timestamp,
    ) -> i64 {
        let backlog_ms = book.backlog_ms(to.executor, now);
        let first_ms = usual_ms.max(1).saturating_add((2.0 * (backlog_ms + to.cost_ms)) as i64);
        first_ms.saturating_mul(doubled(task.attempt))
    }

    /// Tasks that were assigned before the circuit opened are abandoned when it opens; probes after as long a
    /// silence again. The limit of silence doubles with each attempt.
    fn is_abandoned(&self, book: &Book, entry: &Entry, now: Timestamp) -> bool {
        let (Some(one), Some(service_ms)) = (book.executor(entry.executor), book.service_ms())
        else {
            return false;
        };
        let Some(since) = one.silent_since() else { return false };
        let limit_ms = one.silence_ms(service_ms) * doubled(entry.attempt) as f64;
        let opened_at = since.0.saturating_add(limit_ms as i64);
        let until = if entry.at.0 < opened_at { opened_at } else { entry.at.0 + limit_ms as i64 };
        until <= now.0
    }

    fn is_circuit_open(
        &self,
        book: &Book,
        executor: ExecutorId,
        kind: KindId,
        now: Timestamp,
    ) -> bool {
        book.executor(executor).is_none_or(|one| open_circuit(book, one, kind, now).is_some())
    }

    fn is_probe_due(
        &self,
        book: &Book,
        executor: ExecutorId,
        kind: KindId,
        now: Timestamp,
    ) -> bool {
        let Some(one) = book.executor(executor) else { return false };
        let silence_ms = one.silence_ms(book.service_ms().unwrap_or_default());
        open_circuit(book, one, kind, now)
            .is_some_and(|open_circuit| open_circuit.is_due(silence_ms, now))
    }
}

/// Why the circuit of an executor is open for a type, if it is.
fn open_circuit(book: &Book, one: &Executor, kind: KindId, now: Timestamp) -> Option<OpenCircuit> {
    let silence = book.service_ms().and_then(|service_ms| one.open_circuit(service_ms, now));
    silence.or_else(|| one.kind(kind).open_circuit())
}

fn doubled(attempt: u32) -> i64 {
    1 << attempt.min(DOUBLINGS)
}
