//! Which executor gets what: the paper's rules by number, and what `adaptive` must do in every
//! state.

use std::time::Duration;

use legwork_model::time::Timestamp;
use legwork_schedule::{
    Adaptive, Adjustment, AssignmentId, Book, Candidate, Dice, ExecutorId, KindId,
    LeastOutstanding, Limits, Outcome, Oxthas, Partition, Policy, Random, RoundRobin, Task,
    TwoChoices, Weighted,
};
use proptest::prelude::*;

const KIND: KindId = KindId(0);

fn task(size: f64) -> Task {
    Task { kind: KIND, size, attempt: 0 }
}

fn near(id: u32) -> Candidate {
    Candidate::near(ExecutorId(id))
}

fn all(count: u32) -> Vec<Candidate> {
    (0..count).map(near).collect()
}

/// A book in which executors have done tasks of 60 units at these rates, in units per millisecond.
fn book(rates: &[f64]) -> Book {
    let mut book = Book::new(rates.len());
    for (id, rate) in (0..).map(near).zip(rates) {
        let assignment = book.assigned(id, task(60.0), Timestamp(0));
        book.answered(assignment, Timestamp((60.0 / rate) as i64));
    }
    book
}

fn chosen(policy: &mut dyn Policy, book: &Book, size: f64, count: u32) -> u32 {
    let now = Timestamp(1_000_000);
    policy.choose(book, &task(size), &all(count), now).map_or(u32::MAX, |id| id.0)
}

#[test]
fn a1_8_of_three_the_best_gets_the_largest_half_and_the_third_a_sixth() {
    let book = book(&[1.0, 3.0, 2.0]);
    let mut oxthas = Oxthas::new(3, Dice::new(1));
    let by_size =
        [60.0, 31.0, 30.0, 11.0, 10.0, 1.0].map(|size| chosen(&mut oxthas, &book, size, 3));
    assert_eq!(by_size, [1, 1, 2, 2, 0, 0]);
    oxthas.partition = Partition::Equal;
    let by_size =
        [60.0, 41.0, 40.0, 21.0, 20.0, 1.0].map(|size| chosen(&mut oxthas, &book, size, 3));
    assert_eq!(by_size, [1, 1, 2, 2, 0, 0]);
    oxthas.partition = Partition::Rates;
    let by_size =
        [60.0, 31.0, 30.0, 11.0, 10.0, 1.0].map(|size| chosen(&mut oxthas, &book, size, 3));
    assert_eq!(by_size, [1, 1, 2, 2, 0, 0], "rates of 3:2:1 divide as integers do");
    oxthas.partition = Partition::IntegersReversed;
    let by_size =
        [60.0, 51.0, 50.0, 31.0, 30.0, 1.0].map(|size| chosen(&mut oxthas, &book, size, 3));
    assert_eq!(by_size, [0, 0, 2, 2, 1, 1], "the best has the smallest half");
    oxthas.partition = Partition::RatesReversed;
    let by_size =
        [60.0, 51.0, 50.0, 31.0, 30.0, 1.0].map(|size| chosen(&mut oxthas, &book, size, 3));
    assert_eq!(by_size, [0, 0, 2, 2, 1, 1], "the best has the smallest half");
}

#[test]
fn a1_8_time_outs_divide_the_rate_and_shorten_the_time_until_a_late_answer() {
    let mut book = book(&[2.0, 3.0]);
    let adjustment = Adjustment { rate: true, timeout: Some(0.1) };
    let mut oxthas = Oxthas::new(1, Dice::new(1)).with(Partition::Integers, adjustment);
    let patience = |oxthas: &Oxthas, book: &Book| {
        oxthas.timeout_ms(book, near(1), &task(60.0), 1_000, Timestamp(100))
    };
    assert_eq!((chosen(&mut oxthas, &book, 60.0, 2), patience(&oxthas, &book)), (1, 1_000));
    let late: Vec<AssignmentId> =
        (0..2).map(|_| book.assigned(near(1), task(60.0), Timestamp(100))).collect();
    book.timed_out(late[0], Timestamp(120));
    assert_eq!((chosen(&mut oxthas, &book, 60.0, 2), patience(&oxthas, &book)), (0, 900));
    book.timed_out(late[1], Timestamp(120));
    assert_eq!(patience(&oxthas, &book), 800);
    assert_eq!(book.answered(late[0], Timestamp(121)), Some(Outcome::Late));
    assert_eq!(patience(&oxthas, &book), 1_000);
    let many: Vec<AssignmentId> =
        (0..200).map(|_| book.assigned(near(1), task(1.0), Timestamp(200))).collect();
    many.into_iter().for_each(|id| book.timed_out(id, Timestamp(210)));
    assert_eq!(patience(&oxthas, &book), 10, "there is an end to it");
}

#[test]
fn policies_that_learn_nothing_do_what_their_names_say() {
    let mut book = book(&[1.0, 1.0, 1.0]);
    let mut turns = RoundRobin::default();
    assert_eq!([0; 4].map(|_| chosen(&mut turns, &book, 1.0, 3)), [0, 1, 2, 0]);
    let mut random = Random(Dice::new(7));
    let mut seen = [0_u32; 3];
    (0..300).for_each(|_| seen[chosen(&mut random, &book, 1.0, 3) as usize] += 1);
    assert!(seen.iter().all(|count| (60..140).contains(count)), "{seen:?}");
    for (id, weight) in (0..).map(ExecutorId).zip([0.0, 1.0, 0.0]) {
        book.limit(id, &Limits { weight, ..Limits::default() });
    }
    let mut weighted = Weighted(Dice::new(7));
    assert_eq!([0; 3].map(|_| chosen(&mut weighted, &book, 1.0, 3)), [1, 1, 1]);
    for id in [0, 0, 1] {
        book.assigned(near(id), task(1.0), Timestamp(0));
    }
    assert_eq!(chosen(&mut LeastOutstanding, &book, 1.0, 3), 2);
    let mut two = TwoChoices(Dice::new(7));
    let mut seen = [0_u32; 3];
    (0..300).for_each(|_| seen[chosen(&mut two, &book, 1.0, 3) as usize] += 1);
    assert!(seen[2] > seen[1] && seen[1] > seen[0], "{seen:?}");
}

#[test]
fn adaptive_takes_the_first_to_finish_without_a_queue_and_the_best_at_the_type_with_a_long_one() {
    // The first is good at one type, the second at the other.
    let mut book = Book::new(2);
    for (executor, kind, millis) in [(0, 0, 10), (0, 1, 100), (1, 0, 100), (1, 1, 10)] {
        let task = Task { kind: KindId(kind), size: 1.0, attempt: 0 };
        let id = book.assigned(near(executor), task, Timestamp(0));
        book.answered(id, Timestamp(millis));
    }
    let mut adaptive = Adaptive;
    let mut choose = |book: &mut Book, kind| {
        let task = Task { kind: KindId(kind), size: 1.0, attempt: 0 };
        let id = adaptive.choose(book, &task, &all(2), Timestamp(100)).map_or(u32::MAX, |id| id.0);
        book.assigned(near(id), task, Timestamp(100));
        id
    };
    // A queue in front of the good one does not make the bad one better.
    assert_eq!((0..20).map(|_| choose(&mut book, 0)).collect::<Vec<_>>(), [0; 20]);
    assert_eq!(choose(&mut book, 1), 1);
}

#[test]
fn silence_opens_the_circuit_and_an_answer_to_a_probe_closes_it() {
    let mut book = book(&[1.0, 0.9]);
    let mut adaptive = Adaptive;
    let at = |millis: i64| Timestamp(1_000 + millis);
    let waiting = book.assigned(near(0), task(60.0), at(0));
    let gives_up = |book: &Book, id, now| {
        book.entry(id).is_some_and(|entry| Adaptive.is_abandoned(book, entry, now))
    };
    assert!(!gives_up(&book, waiting, at(300)));
    assert!(gives_up(&book, waiting, at(1_000)));
    let mut choose = |book: &mut Book, now| adaptive.choose(book, &task(60.0), &all(2), now);
    assert_eq!(choose(&mut book, at(1_000)), Some(ExecutorId(0)), "to see whether it answers");
    let tried = book.assigned(near(0), task(60.0), at(1_000));
    assert!(!gives_up(&book, tried, at(1_200)), "it has its own time");
    assert_eq!(choose(&mut book, at(1_900)), Some(ExecutorId(1)));
    assert_eq!(choose(&mut book, at(2_100)), Some(ExecutorId(0)), "and again after twice the time");
    assert_eq!(book.answered(waiting, at(2_200)), Some(Outcome::InTime));
    assert!(!gives_up(&book, tried, at(2_300)));
}

#[test]
fn unobserved_time_counts_against_no_executor() {
    const HOURS: Duration = Duration::from_secs(2 * 3600);
    let mut book = book(&[1.0, 0.9]);
    let waiting = book.assigned(near(0), task(60.0), Timestamp(1_000));
    book.skip(HOURS);
    let at = |millis: i64| Timestamp(1_000 + millis).plus(HOURS);
    assert!(!book.is_silent(ExecutorId(0), at(50)));
    assert_eq!(book.answered(waiting, at(60)), Some(Outcome::InTime));
    assert_eq!(book.seen(ExecutorId(0), KIND).pace_ms.map(f64::round), Some(1.0));
    book.assigned(near(0), task(60.0), at(100));
    assert!(book.is_silent(ExecutorId(0), at(1_400)), "as soon as ever");
}

#[test]
fn time_outs_of_adaptive_outlast_every_queue() {
    let mut book = book(&[1.0]);
    for _ in 0..100 {
        book.assigned(near(0), task(60.0), Timestamp(0));
    }
    let adaptive = Adaptive;
    let patience = |attempt| {
        adaptive.timeout_ms(&book, near(0), &Task { attempt, ..task(60.0) }, 1, Timestamp(0))
    };
    assert!(patience(0) >= 100 * 60, "what is before it is not held against it");
    assert!((0..16).all(|attempt| patience(attempt + 1) >= 2 * patience(attempt)));
}

proptest! {
    #[test]
    fn every_policy_chooses_a_candidate_whatever_was_observed(
        events in prop::collection::vec((0..4_u32, 0..2_u32, 1..200_u32, 0..5_u8), 0..80),
        among in prop::collection::btree_set(0..4_u32, 0..4),
        size in 0.001..1e6_f64,
    ) {
        let mut book = Book::new(4);
        let (mut now, mut open) = (0, Vec::new());
        for (executor, kind, number, what) in events {
            now += i64::from(number);
            match what {
                0 => {
                    let task = Task { kind: KindId(kind), size: f64::from(number), attempt: 0 };
                    open.push(book.assigned(near(executor), task, Timestamp(now)));
                }
                1 if !open.is_empty() => {
                    let id = open.remove(number as usize % open.len());
                    prop_assert!(book.answered(id, Timestamp(now)).is_some());
                    prop_assert!(book.answered(id, Timestamp(now)).is_none(), "an answer counts once");
                }
                2 if !open.is_empty() => {
                    let id = open.remove(number as usize % open.len());
                    prop_assert!(book.failed(id, Timestamp(now)).is_some());
                }
                3 if !open.is_empty() => {
                    book.withdrawn(open.remove(number as usize % open.len()), Timestamp(now));
                }
                _ => {
                    if let Some(id) = open.get(number as usize % open.len().max(1)) {
                        book.timed_out(*id, Timestamp(now));
                    }
                }
            }
        }
        let mut has = [0; 4];
        open.iter().filter_map(|id| book.entry(*id)).for_each(|entry| has[entry.executor.0 as usize] += 1);
        for (id, has) in (0..).zip(has) {
            prop_assert!(book.outstanding(ExecutorId(id)) <= has, "nobody has what it has answered");
        }
        let among: Vec<Candidate> = among.into_iter().map(near).collect();
        let task = Task { kind: KindId(0), size, attempt: 0 };
        let policies: [Box<dyn Policy>; 7] = [
            Box::new(Weighted(Dice::new(3))),
            Box::new(Random(Dice::new(3))),
            Box::new(RoundRobin::default()),
            Box::new(LeastOutstanding),
            Box::new(TwoChoices(Dice::new(3))),
            Box::new(Oxthas::new(3, Dice::new(3))),
            Box::new(Adaptive),
        ];
        for mut policy in policies {
            let chosen = policy.choose(&book, &task, &among, Timestamp(now));
            prop_assert_eq!(chosen.is_some(), !among.is_empty());
            prop_assert!(chosen.is_none_or(|id| among.contains(&Candidate::near(id))));
        }
    }
}
