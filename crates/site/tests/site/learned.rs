//! What was learned of executors survives a restart: it is stored now and then, and dropped if it cannot be read.

use std::time::Duration;

use crate::support::depot::{Depot, SECOND, registration};
use legwork_model::id::StreamId;
use legwork_site::*;

const PACE: Duration = Duration::from_millis(400);

/// Two cases at each of these, one after the other, the first of which is the fastest.
fn depot(executors: &[&str]) -> Depot {
    let mut depot = Depot::with(&[]);
    for (number, name) in (1..).zip(executors) {
        depot.site.ask(Request::Executor(Concern::Register(registration(name)))).unwrap();
        for case in 0..2 {
            work(&mut depot, 10 * number + case, PACE * number as u32);
        }
        depot.site.ask(Request::Executor(Concern::Remove { name: (*name).into() })).unwrap();
    }
    for name in executors {
        depot.site.ask(Request::Executor(Concern::Register(registration(name)))).unwrap();
    }
    depot
}

fn work(depot: &mut Depot, case: u128, pace: Duration) {
    depot.start(case);
    let (name, task) = depot.task();
    depot.site.pass(pace);
    depot.done(&name, &task);
    depot.confirm(&name, &task);
    depot.said();
}

/// Name, pace in milliseconds, and what was done and failed.
fn seen(depot: &mut Depot) -> Vec<(String, Option<i64>, u64, u64)> {
    let list = Concern::List { after: None, limit: 100 };
    let answer = depot.site.ask(Request::Executor(list)).unwrap();
    let Answer::Executors { executors, .. } = answer else { panic!("{answer:?}") };
    let row = |one: &ExecutorInfo| {
        let own = one.types.first().unwrap();
        let pace_ms = own.pace_ms.map(|pace| pace.round() as i64);
        (one.name.to_string(), pace_ms, own.answers, own.failures)
    };
    executors.iter().map(row).collect()
}

#[test]
fn what_was_learned_before_a_restart_decides_after_it() {
    let mut depot = depot(&["crane", "lift"]);
    depot.site.pass(10 * SECOND);
    let before = seen(&mut depot);
    assert_eq!(before, [("crane".into(), Some(400), 2, 0), ("lift".into(), Some(800), 2, 0)]);
    depot.site.restart();
    assert_eq!(seen(&mut depot), before);
    depot.start(90);
    assert_eq!(depot.task().0, "crane");
    // Numbers of executors and types are others after a restart; names are not.
    depot.site.ask(Request::Executor(Concern::Remove { name: "crane".into() })).unwrap();
    depot.site.restart();
    assert_eq!(seen(&mut depot), before[1..]);
}

#[test]
fn a_crash_loses_what_was_learned_in_the_last_ten_seconds_at_most() {
    let mut depot = depot(&["crane"]);
    // The first answer is stored at once, the second after ten seconds.
    let (version, first) = depot.site.snapshot_of(StreamId::EXECUTORS).unwrap().clone();
    assert_eq!(version, 1);
    let due = depot.site.site.next_timeout().unwrap();
    assert!(due <= depot.site.now + 10 * SECOND, "also if nothing else happens");
    depot.site.restart();
    assert_eq!(seen(&mut depot)[0].2, 1);
    work(&mut depot, 30, PACE);
    depot.site.pass(10 * SECOND);
    depot.site.restart();
    assert_eq!(seen(&mut depot)[0].2, 2);
    for case in 40..60 {
        work(&mut depot, case, PACE);
    }
    assert_eq!(depot.site.records(StreamId::EXECUTORS), 1, "the stream does not grow");
    assert_ne!(depot.site.snapshot_of(StreamId::EXECUTORS).unwrap().1, first);
    depot.site.feed(Input::Stopping);
    depot.site.restart();
    assert_eq!(seen(&mut depot)[0].2, 22, "nothing is lost when it stops in good order");
    let stored = depot.site.snapshot_of(StreamId::EXECUTORS).cloned();
    depot.site.feed(Input::Stopping);
    depot.site.pass(60 * SECOND);
    assert_eq!(depot.site.snapshot_of(StreamId::EXECUTORS).cloned(), stored, "nothing is new");
}

#[test]
fn what_cannot_be_read_of_it_is_learned_anew() {
    let mut depot = depot(&["crane"]);
    depot.site.feed(Input::Stopping);
    depot.site.corrupt_snapshot(StreamId::EXECUTORS);
    depot.site.restart();
    assert!(depot.site.site.faults().is_empty());
    assert_eq!(seen(&mut depot), [("crane".into(), None, 0, 0)]);
    work(&mut depot, 30, PACE);
    depot.site.restart();
    assert_eq!(seen(&mut depot), [("crane".into(), Some(400), 1, 0)]);
}

#[test]
fn an_executor_that_failed_gets_a_new_chance_after_a_restart() {
    let mut depot = depot(&["crane"]);
    for case in 30..33 {
        depot.start(case);
        let (name, task) = depot.task();
        let error = "no paper".to_owned();
        depot.report(&name, &task, Outcome::Failed { error, retry: false });
    }
    depot.site.feed(Input::Stopping);
    let before = seen(&mut depot);
    assert_eq!(before, [("crane".into(), Some(400), 2, 3)]);
    depot.site.restart();
    assert_eq!(seen(&mut depot), before);
    depot.start(33);
    assert_eq!(depot.task().0, "crane");
}

#[test]
fn the_pace_of_workers_is_kept_as_well() {
    let mut depot = depot(&["crane"]);
    depot
        .site
        .ask(Request::Executor(Concern::Register(RegisterExecutor {
            limit: 1,
            ..registration("crane")
        })))
        .unwrap();
    for case in 30..34 {
        depot.start(case);
    }
    let jobs = depot.site.jobs("pack", 1);
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    depot.site.pass(PACE);
    depot.site.report(&jobs[0], serde_json::json!({ "packed": "by hand" })).unwrap();
    depot.site.feed(Input::Stopping);
    let before = seen(&mut depot);
    assert_eq!(before.len(), 2, "{before:?}");
    depot.site.restart();
    assert_eq!(seen(&mut depot), before);
}
