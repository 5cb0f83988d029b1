//! What a policy is, and those that learn nothing.
//!
//! Invariant: whoever is chosen is one of the candidates, and there is one if there are any.

use std::fmt;

use legwork_model::time::Timestamp;

use crate::{Book, Candidate, Dice, Entry, ExecutorId, KindId, Task};

/// Chooses who gets a task.
pub trait Policy: fmt::Debug + Send {
    /// One of those that may have it; `None` if there is none.
    fn choose(
        &mut self,
        book: &Book,
        task: &Task,
        among: &[Candidate],
        now: Timestamp,
    ) -> Option<ExecutorId>;

    /// How long an answer is waited for, where this is usual for the type. Asked before the task is
    /// written into the book.
    fn patience_ms(&self, _: &Book, _: Candidate, _: &Task, usual_ms: i64, _: Timestamp) -> i64 {
        usual_ms
    }

    /// Whether a task waits for an executor that is busy, if it adds less to the load there than at one that is free.
    fn plans_ahead(&self) -> bool {
        false
    }

    /// Whether an assignment is given up before its time, because nothing is expected of its executor
    /// any more.
    fn is_given_up(&self, _: &Book, _: &Entry, _now: Timestamp) -> bool {
        false
    }

    /// Whether nothing is expected of an executor at a type any more, unless it answers.
    fn is_doubted(&self, _: &Book, _: ExecutorId, _: KindId, _now: Timestamp) -> bool {
        false
    }

    /// Whether it is time to give such a one a task all the same, to see whether it is back.
    fn is_tried(&self, _: &Book, _: ExecutorId, _: KindId, _now: Timestamp) -> bool {
        false
    }
}

/// Anyone.
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

/// One after the other.
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

/// By the weights that executors registered with.
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

/// Whoever has the fewest tasks of this engine.
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

/// The less busy one of two that are drawn.
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
