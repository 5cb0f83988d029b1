//! `dispatch`: how long does it take to choose the executor of a task?
//!
//! 6, 100 and 10,000 executors, all of which may have the task. Each has done five tasks of each of five types
//! at its own pace, and has up to six that it has not answered. Only the choice is measured; the book does not
//! change. Invariant: choices follow from the book, the tasks and a seed; the hash shows that a faster choice
//! is the same choice.

use std::hint::black_box;
use std::time::Instant;

use legwork_model::time::Timestamp;
use legwork_schedule::{Adaptive, Book, Candidate, Dice, ExecutorId, KindId, Policy, Task, named};

use crate::report::{Row, rounded};
use crate::usage::load_average;

/// The numbers of executors.
pub const EXECUTORS: [usize; 3] = [6, 100, 10_000];
/// The measured policies. Recorded rows have `adaptive` under its former name, `ours`.
pub const POLICIES: [&str; 10] = [
    "random",
    "round-robin",
    "weighted",
    "least-outstanding",
    "two-choices",
    "oxthas-1",
    "oxthas-3",
    "oxthas-6",
    "oxthas-3-rates-both",
    "ours",
];

const KINDS: u32 = 5;
/// The tasks, used repeatedly.
const TASKS: usize = 256;
/// After all answers.
const NOW: Timestamp = Timestamp(1_000_000);

/// Measures so many decisions of a policy.
pub fn measure(name: &'static str, executors: usize, decisions: usize) -> Row {
    let load_average = load_average();
    let mut dice = Dice::new(executors as u64);
    let book = book(executors, &mut dice);
    let among: Vec<Candidate> = all(executors).map(Candidate::near).collect();
    let task = |_| Task {
        kind: KindId(dice.below(KINDS as usize) as u32),
        size: 1.0 + dice.below(100) as f64,
        attempt: 0,
    };
    let tasks: Vec<Task> = (0..TASKS).map(task).collect();
    let mut policy: Box<dyn Policy> = named(name, 1).unwrap_or_else(|| Box::<Adaptive>::default());
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for task in tasks.iter().take(64) {
        let chosen = policy.choose(&book, task, &among, NOW).map_or(u64::MAX, |id| id.0.into());
        hash = (hash ^ chosen).wrapping_mul(0x0000_0100_0000_01B3);
    }
    let begun = Instant::now();
    for decision in 0..decisions {
        black_box(policy.choose(&book, black_box(&tasks[decision % TASKS]), &among, NOW));
    }
    let seconds = begun.elapsed().as_secs_f64();
    Row {
        workload: "dispatch",
        policy: Some(name),
        executors: Some(executors),
        cases: decisions,
        decisions_per_s: Some(rounded(decisions as f64 / seconds, 0)),
        ns_per_decision: Some(rounded(seconds * 1e9 / decisions as f64, 1)),
        hash: Some(format!("{hash:016x}")),
        load_average,
        ..Row::default()
    }
}

fn all(executors: usize) -> impl Iterator<Item = ExecutorId> {
    (0..executors as u32).map(ExecutorId)
}

fn book(executors: usize, dice: &mut Dice) -> Book {
    let mut book = Book::new(executors);
    for to in all(executors).map(Candidate::near) {
        let mut now = 0;
        for turn in 0..5 * KINDS {
            let size = 1.0 + dice.below(100) as f64;
            let task = Task { kind: KindId(turn % KINDS), size, attempt: 0 };
            let id = book.assigned(to, task, Timestamp(now));
            now += (size * (1.0 + dice.below(9) as f64)) as i64;
            book.answered(id, Timestamp(now));
        }
        for _ in 0..dice.below(7) {
            let kind = KindId(dice.below(KINDS as usize) as u32);
            book.assigned(to, Task { kind, size: 50.0, attempt: 0 }, Timestamp(NOW.0 - 1));
        }
    }
    book
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choosing_an_executor_is_measured_for_every_policy() {
        for executors in [6, 100] {
            for name in POLICIES {
                let row = measure(name, executors, 10);
                assert!(row.ns_per_decision.is_some_and(|ns| ns > 0.0), "{row:?}");
            }
        }
    }

    #[test]
    fn who_is_chosen_does_not_change_unnoticed() {
        let row = measure("ours", 100, 1);
        assert_eq!(row.hash.as_deref(), Some("78ffc1125ddd802e"));
    }
}
