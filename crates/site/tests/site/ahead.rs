//! A task waits for the executor that is expected to do it first, also if that one is full, and never for one of which
//! nothing is expected.

use std::time::Duration;

use crate::support::Harness;
use crate::support::depot::{Depot, PACK, SECOND, registration};
use legwork_site::*;

type Tasks = Vec<(String, JobLease)>;

/// Executors that take one task at a time, each of which has done some in so many milliseconds.
fn depot(paces: &[(&str, i64)]) -> Depot {
    depot_for(PACK, paces)
}

fn depot_for(source: &str, paces: &[(&str, i64)]) -> Depot {
    let mut depot = Depot::at(Harness::new(), source, &[]);
    for (round, (name, ms)) in (0..).zip(paces) {
        let others = paces.iter().map(|(name, _)| *name).filter(|other| other != name);
        others.for_each(|other| leave(&mut depot, other));
        enter(&mut depot, name, 1);
        for number in 0..3 {
            depot.start(1_000 + 10 * round + number);
            let (given, task) = depot.task();
            assert_eq!(given, *name);
            depot.site.pass(Duration::from_millis(*ms as u64));
            depot.done(name, &task);
            depot.confirm(name, &task);
        }
    }
    paces.iter().for_each(|(name, _)| enter(&mut depot, name, 1));
    depot.said();
    depot
}

fn enter(depot: &mut Depot, name: &str, limit: u32) {
    let own = RegisterExecutor { limit, at_once: Some(1), ..registration(name) };
    depot.site.ask(Request::Executor(Concern::Register(own))).unwrap();
}

fn leave(depot: &mut Depot, name: &str) {
    // Whoever is not there yet need not go.
    drop(depot.site.ask(Request::Executor(Concern::Remove { name: name.into() })));
}

fn names(tasks: &Tasks) -> Vec<&str> {
    tasks.iter().map(|(name, _)| &**name).collect()
}

#[test]
fn a_task_waits_for_a_full_executor_that_does_it_before_a_slow_one_with_room() {
    let mut depot = depot(&[("crane", 1_000), ("ladder", 20_000)]);
    for number in 1..=4 {
        depot.start(number);
    }
    let mut given = depot.said().1;
    assert_eq!(names(&given), ["crane"], "the others wait for the crane, and not at the ladder");
    for _ in 0..3 {
        let (name, task) = given.pop().unwrap();
        depot.site.pass(SECOND);
        depot.done(&name, &task);
        given = depot.said().1;
        assert_eq!(names(&given), ["crane"], "as soon as it has room");
    }
}

#[test]
fn retries_are_not_all_bound_to_a_slow_executor_because_it_has_room() {
    let mut depot = depot(&[("crane", 1_000), ("ladder", 20_000)]);
    ["crane", "ladder"].iter().for_each(|name| enter(&mut depot, name, 16));
    for number in 1..=2 {
        depot.start(number);
    }
    for _ in 0..2 {
        let (name, task) = depot.task();
        assert_eq!(name, "crane");
        let error = "no paper".to_owned();
        depot.report(&name, &task, Outcome::Failed { error, retry: true });
    }
    depot.said();
    depot.site.pass(SECOND);
    let given = depot.said().1;
    assert_eq!(
        names(&given),
        ["ladder", "crane"],
        "what the ladder would get to in 20 s it is not given"
    );
}

#[test]
fn a_slow_executor_does_what_the_fast_one_would_get_to_much_later() {
    let mut depot = depot(&[("crane", 1_000), ("ladder", 4_000)]);
    for number in 1..=20 {
        depot.start(number);
    }
    let given = depot.said().1;
    assert_eq!(names(&given), ["crane", "ladder"]);
    // The ladder goes on as long as enough waits.
    let (mut crane, mut ladder) = (given[0].1.clone(), Some(given[1].1.clone()));
    let mut done = [0, 0];
    for second in 1..=20 {
        depot.site.pass(SECOND);
        depot.done("crane", &crane);
        done[0] += 1;
        if second % 4 == 0
            && let Some(task) = ladder.take()
        {
            depot.done("ladder", &task);
            done[1] += 1;
        }
        for (name, task) in depot.said().1 {
            match &*name {
                "crane" => crane = task,
                _ => ladder = Some(task),
            }
        }
        if done[0] + done[1] == 20 {
            break;
        }
    }
    assert!(done[0] + done[1] >= 19 && (3..=5).contains(&done[1]), "{done:?}");
}

#[test]
fn a_task_that_waits_for_one_that_is_presumed_dead_goes_to_another() {
    let mut depot = depot(&[("crane", 1_000), ("ladder", 20_000)]);
    for number in 1..=3 {
        depot.start(number);
    }
    assert_eq!(names(&depot.said().1), ["crane"]);
    let mut given = Vec::new();
    for _ in 0..400 {
        depot.site.pass(SECOND);
        given.extend(depot.said().1);
    }
    assert!(names(&given).contains(&"ladder"), "{given:?}");
}

/// A step that is tried once and has to be answered within 5 s.
fn tried_once() -> String {
    PACK.replace("    job: pack\n", "    job: pack\n    timeout: 5s\n")
        .replace("times: 3", "times: 0")
}

#[test]
fn an_executor_that_has_nothing_but_what_it_did_not_answer_is_given_the_next_task() {
    let mut depot = depot_for(&tried_once(), &[("crane", 1_000)]);
    // Soon after each other, and when the crane has been presumed dead for long.
    for (number, pause) in (1..).zip([10, 20, 600, 20]) {
        depot.start(number);
        assert_eq!(names(&depot.said().1), ["crane"], "task {number}");
        depot.site.pass(pause * SECOND);
        assert_eq!(depot.said().0, ["crane cancel"], "task {number} is given up");
    }
}

#[test]
fn what_waits_for_an_executor_that_answers_nothing_goes_to_an_idle_one_in_the_end() {
    let mut depot = depot_for(&tried_once(), &[("crane", 1_000), ("ladder", 4_000)]);
    depot.start(1);
    assert_eq!(names(&depot.said().1), ["crane"]);
    depot.site.pass(6 * SECOND);
    assert_eq!(depot.said().0, ["crane cancel"]);
    // Nothing is given out now, and the crane is still expected to be the first to do the next task.
    for number in 2..=6 {
        depot.start(number);
    }
    let mut done = 0;
    for _ in 0..60 {
        for (name, task) in depot.said().1 {
            if name == "ladder" {
                depot.site.pass(4 * SECOND);
                depot.done(&name, &task);
                depot.confirm(&name, &task);
                done += 1;
            }
        }
        depot.site.pass(SECOND);
    }
    assert!(done >= 2, "{done}: the crane fails with a few until it is presumed dead");
}

#[test]
fn a_task_that_waits_for_one_that_says_that_it_is_busy_or_goes_is_given_to_another_at_once() {
    for goes in [false, true] {
        let mut depot = depot(&[("crane", 1_000), ("ladder", 20_000)]);
        for number in 1..=2 {
            depot.start(number);
        }
        let (name, task) = depot.task();
        assert_eq!(name, "crane");
        match goes {
            true => leave(&mut depot, "crane"),
            false => depot.report("crane", &task, Outcome::Busy { rest: Some(60 * SECOND) }),
        }
        assert_eq!(names(&depot.said().1), ["ladder"], "goes: {goes}");
    }
}

#[test]
fn an_executor_that_does_one_at_a_time_is_given_little_ahead_whatever_it_takes() {
    let mut depot = depot(&[("crane", 50)]);
    enter(&mut depot, "crane", 1_000);
    for number in 1..=100 {
        depot.start(number);
    }
    let given = depot.said().1.len();
    assert!((2..10).contains(&given), "{given}: what it needs until it is given more");
}

#[test]
fn as_long_as_nobody_is_known_all_hands_are_busy() {
    let mut depot = Depot::at(Harness::new(), PACK, &[]);
    for name in ["crane", "ladder"] {
        let own = RegisterExecutor { limit: 16, ..registration(name) };
        depot.site.ask(Request::Executor(Concern::Register(own))).unwrap();
    }
    for number in 1..=40 {
        depot.start(number);
    }
    assert_eq!(depot.said().1.len(), 32, "each works on all that it takes");
}
