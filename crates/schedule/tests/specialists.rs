//! Four executors that are each ten times as fast at one type as at the others, in virtual time: neither limits nor
//! a second server cost throughput.
//!
//! Invariant checked: the work of all cases takes at most 1.25 times as long as if it could be divided arbitrarily.

mod support;

use legwork_model::time::Timestamp;
use legwork_schedule::{
    Book, Candidate, ExecutorId, Feedback, KindId, Limits, Plan, Task, Waiting,
};
use support::specialists::{OWN_MS, Setting, Shape, makespan_ms};

/// Per server.
const CASES: usize = 400;

/// The makespan as a multiple of the bound.
fn ratio(setting: Setting) -> f64 {
    let bound_ms = (setting.cases * setting.servers) as i64 * OWN_MS;
    makespan_ms(setting).map_or(f64::INFINITY, |ms| ms as f64 / bound_ms as f64)
}

fn check(shape: Shape) {
    for (servers, tells) in [(1, false), (1, true), (2, true)] {
        for limit in [1, 16, 1_000] {
            let setting = Setting { shape, servers, limit, cases: CASES, tells };
            let ratio = ratio(setting);
            assert!((1.0..=1.25).contains(&ratio), "{ratio:.3} of the bound: {setting:?}");
        }
    }
}

#[test]
fn parallel_steps_take_at_most_a_quarter_longer_than_the_bound() {
    check(Shape::Parallel);
}

#[test]
fn sequential_steps_take_at_most_a_quarter_longer_than_the_bound() {
    check(Shape::Sequence);
}

#[test]
fn two_servers_keep_all_executors_busy_without_load_reports() {
    let setting =
        Setting { shape: Shape::Sequence, servers: 2, limit: 16, cases: CASES, tells: false };
    let (silent, told) = (ratio(setting), ratio(Setting { tells: true, ..setting }));
    assert!(told < silent && silent < 1.5, "{told:.3} {silent:.3}");
}

fn task(kind: u32) -> Task {
    Task { kind: KindId(kind), size: 1.0, attempt: 0 }
}

fn all() -> [Candidate; 2] {
    [0, 1].map(|id| Candidate::near(ExecutorId(id)))
}

/// Two executors; the first takes 10 ms, the second `second_ms`.
fn two(second_ms: i64) -> Book {
    let mut book = Book::new(0);
    for (id, ms) in [(0, 10), (1, second_ms)] {
        book.register(&Limits::default());
        let given = book.assigned(Candidate::near(ExecutorId(id)), task(0), Timestamp(0));
        book.answered(given, Timestamp(ms));
    }
    book
}

fn planned(book: &Book, tasks: usize, now: i64) -> Plan {
    let mut plan = Plan::default();
    let waiting = Waiting { tasks, units: tasks as f64 };
    plan.anew(book, &[(KindId(0), waiting, all().to_vec())], Timestamp(now));
    plan
}

#[test]
fn a_task_waits_for_a_busy_executor_that_does_it_sooner_than_an_idle_one() {
    let mut book = two(100);
    let first = Candidate::near(ExecutorId(0));
    book.assigned(first, task(0), Timestamp(1_000));
    let plan = planned(&book, 3, 1_000);
    assert!(plan.is_for(ExecutorId(0), KindId(0)) && !plan.is_for(ExecutorId(1), KindId(0)));
    assert!(
        planned(&book, 300, 1_000).is_for(ExecutorId(1), KindId(0)),
        "with much the slow one helps"
    );
}

#[test]
fn nothing_waits_for_an_executor_that_is_presumed_dead() {
    let mut book = two(100);
    book.assigned(Candidate::near(ExecutorId(0)), task(0), Timestamp(1_000));
    let plan = planned(&book, 3, 60_000);
    assert!(!plan.is_for(ExecutorId(0), KindId(0)) && plan.is_for(ExecutorId(1), KindId(0)));
    book.assigned(Candidate::near(ExecutorId(1)), task(0), Timestamp(1_000));
    assert!(planned(&book, 3, 60_000).has_unplaced(KindId(0)), "a free slot takes them");
}

#[test]
fn an_idle_executor_helps_if_that_is_sooner() {
    let book = two(100);
    let (mut few, mut many) = (planned(&book, 3, 1_000), planned(&book, 30, 1_000));
    let second = Candidate::near(ExecutorId(1));
    assert!(!few.help(&book, (second, &task(0)), &all(), Timestamp(1_000)));
    // Tasks that arrive one by one are placed like tasks that all wait from the beginning.
    let waiting = Waiting { tasks: 300, units: 300.0 };
    assert!(many.lacks(KindId(0), waiting));
    many.follow(&book, (KindId(0), waiting), &all(), Timestamp(1_000));
    while many.is_for(ExecutorId(1), KindId(0)) {
        many.take(ExecutorId(1), KindId(0));
    }
    assert!(many.help(&book, (second, &task(0)), &all(), Timestamp(1_000)));
    assert!(many.is_for(ExecutorId(1), KindId(0)));
}

#[test]
fn a_reported_load_of_other_engines_counts_as_backlog() {
    let mut book = two(12);
    let first = Candidate::near(ExecutorId(0));
    assert!(planned(&book, 1, 1_000).is_for(ExecutorId(0), KindId(0)));
    let given = book.assigned(first, task(0), Timestamp(1_000));
    let feedback = Feedback { has: Some(5), took_ms: Some(10) };
    book.note_feedback(given, feedback, true, Timestamp(1_010));
    book.answered(given, Timestamp(1_010));
    assert!(planned(&book, 1, 1_010).is_for(ExecutorId(1), KindId(0)), "five others are before it");
    // It is not asked meanwhile, and works off the reported tasks all the same.
    assert!(planned(&book, 1, 1_011).is_for(ExecutorId(1), KindId(0)), "not yet");
    assert!(planned(&book, 1, 1_060).is_for(ExecutorId(0), KindId(0)), "50 ms later they are done");
    let mut again = book.clone();
    again.on_registered(ExecutorId(0));
    assert!(planned(&again, 1, 1_010).is_for(ExecutorId(0), KindId(0)), "it was started anew");
}

#[test]
fn the_pace_is_that_of_reported_service_times() {
    let mut book = two(100);
    for round in 0..30 {
        let at = 1_000 * round;
        let given = book.assigned(Candidate::near(ExecutorId(1)), task(0), Timestamp(at));
        let feedback = Feedback { has: None, took_ms: Some(7) };
        book.note_feedback(given, feedback, true, Timestamp(at + 500));
        book.answered(given, Timestamp(at + 500));
    }
    assert_eq!(book.seen(ExecutorId(1), KindId(0)).pace_ms, Some(7.0));
}
