//! What ours makes of errors, hanging types, limits, several tasks at a time and inputs that are far away.

use std::collections::BTreeMap;

use legwork_model::time::Timestamp;
use legwork_schedule::{
    AssignmentId, Book, Candidate, ExecutorId, KindId, Learned, Limits, Outcome, Policy, Task,
};

const GOOD: KindId = KindId(0);
const BAD: KindId = KindId(1);

fn task(kind: KindId) -> Task {
    Task { kind, size: 1.0, attempt: 0 }
}

fn near(id: u32) -> Candidate {
    Candidate::near(ExecutorId(id))
}

fn choose(book: &Book, kind: KindId, among: &[Candidate], now: i64) -> u32 {
    let chosen = Learned::default().choose(book, &task(kind), among, Timestamp(now));
    chosen.map_or(u32::MAX, |id| id.0)
}

fn give(book: &mut Book, id: u32, kind: KindId, now: i64) -> AssignmentId {
    book.assigned(near(id), task(kind), Timestamp(now))
}

/// Two executors that do tasks of both types in 10 and in 11 ms.
fn two(limits: &Limits) -> Book {
    let mut book = Book::new(0, 2);
    for (executor, millis) in [(0, 10), (1, 11)] {
        book.register(limits);
        for kind in [GOOD, BAD] {
            let id = give(&mut book, executor, kind, 0);
            book.answered(id, Timestamp(millis));
        }
    }
    // Both began with the second when they had answered the first; done again, on their own.
    for (executor, millis) in [(0, 10), (1, 11)] {
        for (kind, at) in [(GOOD, 100), (BAD, 200)] {
            let id = give(&mut book, executor, kind, at);
            book.answered(id, Timestamp(at + millis));
        }
    }
    book
}

#[test]
fn who_fails_one_type_only_gets_the_others_and_that_one_again_when_it_is_forgotten() {
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
        // The second has no end of work to do: only what nothing is expected of is left.
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
fn who_comes_back_without_what_it_had_is_not_taken_to_have_it() {
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
fn of_one_that_gets_the_number_of_another_nothing_is_known() {
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
fn who_does_several_at_a_time_has_no_backlog_until_all_hands_are_busy() {
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
    assert!(count[2] * 2 > count[0] * 3, "three hands take more than one: {count:?}");
    assert!(count[0] >= count[1], "{count:?}");
}

#[test]
fn a_pace_is_that_of_one_hand_however_many_there_are() {
    let mut book = Book::new(0, 1);
    let one = book.register(&Limits { at_once: 2, ..Limits::default() });
    book.register(&Limits::default());
    // Four tasks of 10 ms on two hands: two are done after 10 ms, two after 20 ms.
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
fn limits_of_an_executor_and_of_its_types_hold() {
    let kinds_max = BTreeMap::from([(BAD, 1)]);
    let mut book = two(&Limits { at_once: 1, tasks_max: 3, kinds_max, ..Limits::default() });
    let room = |book: &Book| [GOOD, BAD].map(|kind| book.has_room(ExecutorId(0), kind));
    assert_eq!(room(&book), [true, true]);
    let first = give(&mut book, 0, BAD, 1_000);
    assert_eq!(room(&book), [true, false]);
    give(&mut book, 0, GOOD, 1_000);
    let third = give(&mut book, 0, GOOD, 1_000);
    assert_eq!(room(&book), [false, false]);
    book.answered(first, Timestamp(1_010));
    assert_eq!(room(&book), [true, true]);
    book.withdrawn(third, Timestamp(1_011));
    assert_eq!(book.outstanding(ExecutorId(0)), 1);
    assert!(!book.has_room(ExecutorId(0), KindId(7)), "a type that nobody knows");
}

#[test]
fn inputs_that_are_far_away_count_and_are_not_held_against_the_executor() {
    let book = two(&Limits::default());
    let far = |cost_ms| [Candidate { executor: ExecutorId(0), cost_ms }, near(1)];
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
