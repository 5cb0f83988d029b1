//! `adaptive` under errors, hanging types, limits, concurrency and remote inputs.

use legwork_model::time::Timestamp;
use legwork_schedule::{
    Adaptive, AssignmentId, Book, Candidate, Dice, ExecutorId, KindId, Limits, Outcome, Oxthas,
    Plan, Policy, Task,
};

const GOOD: KindId = KindId(0);
const BAD: KindId = KindId(1);
/// A type that no executor has done yet.
const NEW: KindId = KindId(2);

fn task(kind: KindId) -> Task {
    Task { kind, size: 1.0, attempt: 0 }
}

fn near(id: u32) -> Candidate {
    Candidate::near(ExecutorId(id))
}

fn choose(book: &Book, kind: KindId, among: &[Candidate], now: i64) -> u32 {
    let chosen = Adaptive.choose(book, &task(kind), among, Timestamp(now));
    chosen.map_or(u32::MAX, |id| id.0)
}

fn give(book: &mut Book, id: u32, kind: KindId, now: i64) -> AssignmentId {
    book.assigned(near(id), task(kind), Timestamp(now))
}

/// Two executors that do tasks of both types in 10 and in 11 ms.
fn two(limits: &Limits) -> Book {
    let mut book = Book::new(0);
    for (executor, millis) in [(0, 10), (1, 11)] {
        book.register(limits);
        for kind in [GOOD, BAD] {
            let id = give(&mut book, executor, kind, 0);
            book.answered(id, Timestamp(millis));
        }
    }
    // Both began the second task when they had answered the first; run again, each on its own.
    for (executor, millis) in [(0, 10), (1, 11)] {
        for (kind, at) in [(GOOD, 100), (BAD, 200)] {
            let id = give(&mut book, executor, kind, at);
            book.answered(id, Timestamp(at + millis));
        }
    }
    book
}

#[test]
fn failing_one_type_opens_only_its_circuit_until_the_failures_are_old() {
    let mut book = two(&Limits::default());
    let both = [near(0), near(1)];
    assert_eq!(choose(&book, BAD, &both, 1_000), 0);
    let failed = give(&mut book, 0, BAD, 1_000);
    assert_eq!(book.failed(failed, Timestamp(1_001)), Some(Outcome::InTime));
    assert_eq!(choose(&book, BAD, &both, 1_002), 1, "an error is worse than a slower one");
    assert_eq!(choose(&book, GOOD, &both, 1_002), 0, "which says nothing of another type");
    assert_eq!(choose(&book, BAD, &both, 10_000), 0, "and is forgotten");
}

#[test]
fn errors_open_the_circuit_of_a_type_and_a_probe_that_is_answered_closes_it() {
    let mut book = two(&Limits::default());
    let mut tried = Vec::new();
    for now in 1_000..20_000 {
        // The second has a long backlog: only an open circuit keeps tasks from the first.
        if choose(&book, BAD, &[near(0)], now) == 0
            && choose(&book, BAD, &[near(0), near(1)], now) == 0
        {
            tried.push(now);
            let id = give(&mut book, 0, BAD, now);
            book.failed(id, Timestamp(now));
        }
    }
    let gaps: Vec<i64> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(tried.len() < 20, "{tried:?}");
    let probes = &gaps[gaps.len() - 4..];
    assert!(probes.windows(2).all(|pair| pair[1] >= pair[0]), "ever more seldom: {gaps:?}");
    assert_eq!(choose(&book, GOOD, &[near(0), near(1)], 20_000), 0, "the other type is as before");
    let probe = give(&mut book, 0, BAD, 40_000);
    book.answered(probe, Timestamp(40_010));
    assert_eq!(choose(&book, BAD, &[near(0), near(1)], 60_000), 0, "it is back");
    assert_eq!(choose(&book, BAD, &[near(0), near(1)], 60_001), 0, "for good");
}

#[test]
fn a_type_that_hangs_while_others_are_answered_counts_as_failing_until_it_is_answered_late() {
    let limits = Limits { at_once: 4, ..Limits::default() };
    let mut book = two(&limits);
    let both = [near(0), near(1)];
    let hanging = give(&mut book, 0, BAD, 1_000);
    let other = give(&mut book, 0, GOOD, 1_000);
    book.answered(other, Timestamp(1_010));
    book.timed_out(hanging, Timestamp(1_050));
    assert_eq!(choose(&book, BAD, &both, 1_051), 1);
    assert_eq!(choose(&book, GOOD, &both, 1_051), 0);
    assert_eq!(book.answered(hanging, Timestamp(1_052)), Some(Outcome::Late));
    assert_eq!(choose(&book, BAD, &both, 1_053), 0, "nothing is held against it");
}

#[test]
fn an_executor_that_lost_its_tasks_is_not_presumed_to_have_them() {
    let mut book = two(&Limits::default());
    let lost: Vec<AssignmentId> = (0..5).map(|_| give(&mut book, 0, GOOD, 1_000)).collect();
    lost.iter().for_each(|id| book.timed_out(*id, Timestamp(2_000)));
    assert_eq!(book.outstanding(ExecutorId(0)), 5, "it may still have them");
    let probe = give(&mut book, 0, GOOD, 3_000);
    book.answered(probe, Timestamp(3_010));
    assert_eq!(book.outstanding(ExecutorId(0)), 0, "it answers the newest first: the rest is lost");
    assert_eq!(choose(&book, GOOD, &[near(0), near(1)], 3_011), 0);
    assert_eq!(
        book.answered(lost[0], Timestamp(3_012)),
        Some(Outcome::Late),
        "if it comes, it counts"
    );
}

#[test]
fn nothing_is_known_of_an_executor_with_a_reused_number() {
    let mut book = two(&Limits::default());
    let (late, open) = (give(&mut book, 0, GOOD, 1_000), give(&mut book, 0, GOOD, 1_000));
    book.timed_out(late, Timestamp(2_000));
    book.replace(ExecutorId(0), &Limits::default());
    assert_eq!(book.outstanding(ExecutorId(0)), 0);
    let own = give(&mut book, 0, GOOD, 3_000);
    assert_eq!(book.answered(late, Timestamp(3_001)), None, "what the other had is nobody's");
    book.withdrawn(open, Timestamp(3_002));
    assert_eq!(book.outstanding(ExecutorId(0)), 1);
    book.answered(own, Timestamp(3_010));
    let seen = book.seen(ExecutorId(0), GOOD);
    assert_eq!((seen.answers, seen.timeouts, seen.pace_ms), (1, 0, Some(10.0)));
}

#[test]
fn a_concurrent_executor_has_no_backlog_until_all_slots_are_busy() {
    let mut book = two(&Limits::default());
    let many = book.register(&Limits { at_once: 3, ..Limits::default() });
    let id = book.assigned(Candidate::near(many), task(GOOD), Timestamp(300));
    book.answered(id, Timestamp(312));
    let all = [near(0), near(1), near(2)];
    let mut count = [0; 3];
    for _ in 0..45 {
        let id = choose(&book, GOOD, &all, 1_000);
        give(&mut book, id, GOOD, 1_000);
        count[id as usize] += 1;
    }
    assert!(count[2] * 2 > count[0] * 3, "three slots take more than one: {count:?}");
    assert!(count[0] >= count[1], "{count:?}");
}

#[test]
fn a_pace_is_that_of_one_slot_however_many_there_are() {
    let mut book = Book::new(0);
    let one = book.register(&Limits { at_once: 2, ..Limits::default() });
    book.register(&Limits::default());
    // Four tasks of 10 ms on two slots: two are done after 10 ms, two after 20 ms.
    let ids: Vec<AssignmentId> =
        (0..4).map(|_| book.assigned(Candidate::near(one), task(GOOD), Timestamp(0))).collect();
    for (id, at) in ids.into_iter().zip([10, 10, 20, 20]) {
        book.answered(id, Timestamp(at));
    }
    let id = give(&mut book, 1, GOOD, 0);
    book.answered(id, Timestamp(9));
    assert_eq!(choose(&book, GOOD, &[near(0), near(1)], 1_000), 1, "9 ms are less than 10");
    let id = give(&mut book, 1, GOOD, 2_000);
    book.answered(id, Timestamp(2_020));
    let id = give(&mut book, 1, GOOD, 3_000);
    book.answered(id, Timestamp(3_020));
    let id = give(&mut book, 1, GOOD, 4_000);
    book.answered(id, Timestamp(4_020));
    assert_eq!(choose(&book, GOOD, &[near(0), near(1)], 5_000), 0, "20 ms are not");
}

#[test]
fn a_type_with_a_unit_of_its_own_says_nothing_of_how_long_another_takes() {
    let mut book = two(&Limits::default());
    let task = Task { kind: NEW, size: 1e7, attempt: 0 };
    let id = book.assigned(near(0), task, Timestamp(1_000));
    let expected_ms = book.entry(id).unwrap().work_ms;
    assert!(expected_ms < 10_000.0, "10 ms a unit of the other type: {expected_ms}");
}

#[test]
fn an_executor_that_registers_again_is_probed_at_once() {
    let mut book = two(&Limits::default());
    // It has been silent for very long, and was probed several times.
    for now in [1_000, 10_000, 20_000, 40_000, 80_000] {
        give(&mut book, 0, GOOD, now);
    }
    let both = [near(0), near(1)];
    assert_eq!(choose(&book, GOOD, &both, 81_000), 1);
    book.on_registered(ExecutorId(0));
    assert_eq!(choose(&book, GOOD, &both, 81_000), 0);
    give(&mut book, 0, GOOD, 81_000);
    assert_eq!(choose(&book, GOOD, &both, 81_001), 1, "once");
}

#[test]
fn without_an_assignment_there_is_no_probe() {
    let mut book = two(&Limits::default());
    let known = |book: &Book, now| {
        let task = Task { kind: GOOD, size: 1.0, attempt: 0 };
        let among = [near(0), near(1)];
        Plan::default().best_known(book, &task, &among, Timestamp(now)).map(|id| id.0)
    };
    assert!(known(&book, 1_000).is_some());
    assert_eq!(Plan::default().best_known(&book, &task(NEW), &[near(0)], Timestamp(1_000)), None);
    give(&mut book, 0, GOOD, 1_000);
    book.on_registered(ExecutorId(0));
    assert_eq!(known(&book, 80_000), Some(1), "its circuit is open, even if a probe is due");
}

#[test]
fn oxthas_does_not_retry_a_failing_executor_for_ever() {
    let mut book = two(&Limits::default());
    let mut policy = Oxthas::new(1, Dice::new(1));
    let (id, other) = (give(&mut book, 0, NEW, 1_000), give(&mut book, 1, NEW, 1_000));
    book.answered(other, Timestamp(1_010));
    book.failed(id, Timestamp(1_010));
    let chosen = policy.choose(&book, &task(NEW), &[near(0), near(1)], Timestamp(1_020));
    assert_eq!(chosen, Some(ExecutorId(1)));
}

#[test]
fn inputs_that_are_far_away_count_and_are_not_held_against_the_executor() {
    let book = two(&Limits::default());
    let far = |cost_ms| [Candidate { cost_ms, ..near(0) }, near(1)];
    assert_eq!(choose(&book, GOOD, &far(0.5), 1_000), 0);
    assert_eq!(choose(&book, GOOD, &far(5.0), 1_000), 1);
    let mut book = book;
    for round in 0..10 {
        let at = 1_000 + round * 100;
        let id = book.assigned(far(5.0)[0], task(GOOD), Timestamp(at));
        book.answered(id, Timestamp(at + 15));
    }
    assert_eq!(choose(&book, GOOD, &far(0.5), 3_000), 0, "5 of the 15 ms were the way");
}
