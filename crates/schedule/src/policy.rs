//! The interface of a policy, and the policies that learn nothing.
//!
//! Invariant: the chosen executor is one of the candidates, and there is one if there are any candidates.

use std::fmt;

use legwork_model::time::Timestamp;

use crate::{Book, Candidate, Dice, Entry, ExecutorId, KindId, Task};

/// Chooses the executor of a task.
pub trait Policy: fmt::Debug + Send {
    /// One of the candidates; `None` if there are none.
    fn choose(
        &mut self,
        book: &Book,
        task: &Task,
        among: &[Candidate],
        now: Timestamp,
    ) -> Option<ExecutorId>;

    /// The time-out of an answer, given the usual one of the type. Called before the assignment is recorded in the
    /// book.
    fn timeout_ms(&self, _: &Book, _: Candidate, _: &Task, usual_ms: i64, _: Timestamp) -> i64 {
        usual_ms
    }

    /// Whether a task waits for a busy executor if it adds less to the load there than at an idle one.
    fn plans_ahead(&self) -> bool {
        false
    }

    /// Whether an assignment is abandoned before its time-out, because the circuit of its executor is open.
    fn is_abandoned(&self, _: &Book, _: &Entry, _now: Timestamp) -> bool {
        false
    }

    /// Whether the circuit of an executor is open for a type.
    fn is_circuit_open(&self, _: &Book, _: ExecutorId, _: KindId, _now: Timestamp) -> bool {
        false
    }

    /// Whether an executor with an open circuit is due for a probe.
    fn is_probe_due(&self, _: &Book, _: ExecutorId, _: KindId, _now: Timestamp) -> bool {
        false
    }
}

/// A uniformly random candidate.
#[derive(Clone, Debug)]
pub struct Random(pub Dice);

impl Policy for Random {
    fn choose(
        &mut self,
        _: &Book,
        _: &Task,
        among: &[Candidate],
        _: Timestamp,
    ) -> Option<ExecutorId> {
        at(among, self.0.below(among.len()))
    }
}

/// Candidates in turn.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    next: usize,
}

impl Policy for RoundRobin {
    fn choose(
        &mut self,
        _: &Book,
        _: &Task,
        among: &[Candidate],
        _: Timestamp,
    ) -> Option<ExecutorId> {
        let place = self.next.checked_rem(among.len())?;
        self.next = self.next.wrapping_add(1);
        at(among, place)
    }
}

/// At random, by the weights that executors registered with.
#[derive(Clone, Debug)]
pub struct Weighted(pub Dice);

impl Policy for Weighted {
    fn choose(
        &mut self,
        book: &Book,
        _: &Task,
        among: &[Candidate],
        _: Timestamp,
    ) -> Option<ExecutorId> {
        let weight = |to: &Candidate| book.executor(to.executor).map_or(0.0, |one| one.weight);
        let mut left = self.0.part() * among.iter().map(weight).sum::<f64>();
        let found = among.iter().find(|to| {
            left -= weight(to);
            left < 0.0
        });
        found.or(among.last()).map(|to| to.executor)
    }
}

/// The candidate with the fewest tasks of this engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastOutstanding;

impl Policy for LeastOutstanding {
    fn choose(
        &mut self,
        book: &Book,
        _: &Task,
        among: &[Candidate],
        _: Timestamp,
    ) -> Option<ExecutorId> {
        among.iter().map(|to| to.executor).min_by_key(|id| book.outstanding(*id))
    }
}

/// The less busy of two random candidates.
#[derive(Clone, Debug)]
pub struct TwoChoices(pub Dice);

impl Policy for TwoChoices {
    fn choose(
        &mut self,
        book: &Book,
        _: &Task,
        among: &[Candidate],
        _: Timestamp,
    ) -> Option<ExecutorId> {
        let mut draw = || at(among, self.0.below(among.len()));
        let (first, second) = (draw()?, draw()?);
        Some(if book.outstanding(second) < book.outstanding(first) { second } else { first })
    }
}

fn at(among: &[Candidate], place: usize) -> Option<ExecutorId> {
    among.get(place).map(|to| to.executor)
}
