//! Which executor gets an automatic step.
//!
//! No engine owns the executors: they differ in speed by type of activity, serve other engines as well,
//! queue out of sight, hang and die. The `Book` has what is known of them: the limits they registered
//! with, the assigned steps and their sizes, and when answers came. Invariant: a policy chooses from the
//! book and the candidates alone; it reads no clock and draws random numbers only from a seed.

mod adaptive;
mod book;
mod circuit;
mod dice;
mod executor;
mod experience;
mod named;
mod oxthas;
mod plan;
mod policy;
mod reason;
mod snapshot;

pub use adaptive::Adaptive;
pub use book::{Book, Entry, Feedback, Outcome};
pub use dice::Dice;
pub use executor::Limits;
pub use experience::Seen;
pub use named::{ADAPTIVE, NAMES, current_name, named};
pub use oxthas::{Adjustment, Oxthas, Partition};
pub use plan::{Plan, Waiting};
pub use policy::{LeastOutstanding, Policy, Random, RoundRobin, TwoChoices, Weighted};
pub use reason::{Reason, Why};
pub use snapshot::{ExecutorSnapshot, KindSnapshot, Usual};

/// An executor, by its index among the registered executors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExecutorId(pub u32);

/// A type of activity, by its index among the types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KindId(pub u32);

/// One assignment of a task to an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AssignmentId(pub u64);

/// A task to assign.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    pub kind: KindId,
    /// The size of the task, in whatever unit the type has.
    pub size: f64,
    /// How many executors had the task before.
    pub attempt: u32,
}

/// An executor that may get a task: it offers the type, has room, and was not tried with this task since
/// all candidates were.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub executor: ExecutorId,
    /// The transfer time of the inputs.
    pub cost_ms: f64,
    /// The shortest interval between two tasks, by the rate that it registered with.
    pub apart_ms: f64,
}

impl Candidate {
    /// A candidate that has the inputs already.
    pub fn near(executor: ExecutorId) -> Self {
        Self { executor, cost_ms: 0.0, apart_ms: 0.0 }
    }
}
