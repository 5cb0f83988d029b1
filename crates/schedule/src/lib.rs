//! Which executor gets an automatic step.
//!
//! Executors belong to nobody here: they differ in speed by activity, serve others as well, queue out
//! of sight, hang and die. What is known of them is in the `Book`: the limits they registered with,
//! which steps they were given, of which size, and when an answer came. Invariant: a policy chooses from
//! the book and the candidates alone; it reads no clock and draws no numbers but from a seed.

mod book;
mod dice;
mod doubt;
mod executor;
mod experience;
mod kept;
mod learned;
mod named;
mod oxthas;
mod plan;
mod policy;
mod reason;

pub use book::{Book, Entry, Feedback, Outcome};
pub use dice::Dice;
pub use executor::Limits;
pub use experience::Seen;
pub use kept::{KeptExecutor, KeptKind, Usual};
pub use learned::Learned;
pub use named::{NAMES, OURS, named};
pub use oxthas::{Adjustment, Oxthas, Partition};
pub use plan::{Plan, Waiting};
pub use policy::{LeastOutstanding, Policy, Random, RoundRobin, TwoChoices, Weighted};
pub use reason::{Reason, Why};

/// An executor, by its place in the list of those that are registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExecutorId(pub u32);

/// A type of activity, by its place in the list of types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KindId(pub u32);

/// One assignment of a task to an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AssignmentId(pub u64);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    pub kind: KindId,
    /// How much there is to do, in whatever unit the type has.
    pub size: f64,
    /// How many executors had it before.
    pub attempt: u32,
}

/// An executor that may have a task: it offers the type, was not tried with this task since all of them
/// were, and has room.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    pub executor: ExecutorId,
    /// How long it takes to bring the inputs there.
    pub cost_ms: f64,
    /// How far apart two tasks are at least, by the rate that it registered with.
    pub apart_ms: f64,
}

impl Candidate {
    /// Where the inputs are already.
    pub fn near(executor: ExecutorId) -> Self {
        Self { executor, cost_ms: 0.0, apart_ms: 0.0 }
    }
}
