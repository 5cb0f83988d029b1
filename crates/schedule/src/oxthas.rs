//! OXTHAS-N: the N executors with the best rates share a type of activity by size; the best executor gets
//! the largest tasks.
//!
//! Time-outs of an executor adjust its rate and its time-out; its next answer resets both. Invariant: if
//! there are at most N candidates, each has a part.

use legwork_model::time::Timestamp;

use crate::{Book, Candidate, Dice, ExecutorId, Policy, Task};

/// How sizes are divided among the N best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// All parts have the same width.
    Equal,
    /// Widths are as N : N-1 : … : 1, the widest for the best.
    Integers,
    /// Widths are as the rates.
    Rates,
    /// As `Integers`, but from the small end: the best has the smallest tasks.
    IntegersReversed,
    /// As `Rates`, but from the small end.
    RatesReversed,
}

/// What a time-out adjusts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Adjustment {
    /// The rate of an executor: `c / (1 + R)`.
    pub rate: bool,
    /// The time-out: `T - beta R`, where `beta` is this part of `T`.
    pub timeout: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct Oxthas {
    pub best: usize,
    pub partition: Partition,
    pub adjustment: Adjustment,
    /// To choose among executors without observations.
    pub dice: Dice,
    /// A buffer for the best executors of a task.
    ranked: Vec<Ranked>,
}

/// An executor and its adjusted rate.
type Ranked = (f64, ExecutorId);

impl Oxthas {
    pub fn new(best: usize, dice: Dice) -> Self {
        let (partition, adjustment) = (Partition::Integers, Adjustment::default());
        Self { best: best.max(1), partition, adjustment, dice, ranked: Vec::new() }
    }

    pub fn with(self, partition: Partition, adjustment: Adjustment) -> Self {
        Self { partition, adjustment, ..self }
    }

    /// Any executor without observations. If there is none, ranks the best, best first; of equal rates, the
    /// executor that registered first.
    fn unknown_or_rank(
        &mut self,
        book: &Book,
        task: &Task,
        among: &[Candidate],
    ) -> Option<ExecutorId> {
        self.ranked.clear();
        let (mut unknown, mut unknowns) = (None, 0);
        for to in among {
            let Some(one) = book.executor(to.executor) else { continue };
            // An executor that only failed is not unknown: its rate is zero.
            let nothing = one.kind(task.kind).only_fails().then_some(0.0);
            let Some(rate) = one.rate(task.kind).or(nothing) else {
                unknowns += 1;
                if self.dice.below(unknowns) == 0 {
                    unknown = Some(to.executor);
                }
                continue;
            };
            let penalty = if self.adjustment.rate { f64::from(one.timeouts) } else { 0.0 };
            self.rank((rate / (1.0 + penalty), to.executor));
        }
        unknown
    }

    fn rank(&mut self, new: Ranked) {
        let is_better = |one: &Ranked| one.0.total_cmp(&new.0).then(new.1.cmp(&one.1)).is_gt();
        let is_full = self.ranked.len() == self.best;
        if is_full && self.ranked.last().is_some_and(is_better) {
            return;
        }
        let place = self.ranked.iter().take_while(|one| is_better(one)).count();
        if is_full {
            self.ranked.pop();
        }
        self.ranked.insert(place, new);
    }

    /// The width of the part of sizes at a rank.
    fn width(&self, place: usize) -> f64 {
        match self.partition {
            Partition::Equal => 1.0,
            Partition::Integers | Partition::IntegersReversed => (self.ranked.len() - place) as f64,
            Partition::Rates | Partition::RatesReversed => {
                self.ranked.get(place).map_or(0.0, |one| one.0)
            }
        }
    }

    /// The executor whose part contains a size, by the largest size.
    fn part(&self, size: f64, size_max: f64) -> Option<ExecutorId> {
        let all: f64 = (0..self.ranked.len()).map(|place| self.width(place)).sum();
        let mut widths = 0.0;
        for (place, (_, id)) in self.ranked.iter().enumerate() {
            widths += self.width(place);
            // A border belongs to the part below it.
            let is_in = match self.partition {
                Partition::Equal | Partition::Integers | Partition::Rates => {
                    size * all > (all - widths) * size_max
                }
                Partition::IntegersReversed | Partition::RatesReversed => {
                    size * all <= widths * size_max
                }
            };
            if is_in {
                return Some(*id);
            }
        }
        self.ranked.last().map(|(_, id)| *id)
    }
}

impl Policy for Oxthas {
    fn timeout_ms(&self, book: &Book, to: Candidate, _: &Task, usual_ms: i64, _: Timestamp) -> i64 {
        let timeouts = book.executor(to.executor).map_or(0, |one| one.timeouts);
        let usual = usual_ms as f64;
        let less = self.adjustment.timeout.unwrap_or_default() * usual * f64::from(timeouts);
        // The paper sets no lower bound; without one no answer would ever be in time again.
        (usual - less).max(usual / 100.0) as i64
    }

    fn choose(
        &mut self,
        book: &Book,
        task: &Task,
        among: &[Candidate],
        _: Timestamp,
    ) -> Option<ExecutorId> {
        let unknown = self.unknown_or_rank(book, task, among);
        if unknown.is_some() {
            return unknown;
        }
        self.part(task.size, book.size_max().max(task.size))
    }
}
