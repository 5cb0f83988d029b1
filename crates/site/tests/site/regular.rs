//! Deadlines of steps that programs do which do other things as well.

use std::time::Duration;

use crate::support::depot::{Depot, PACK, registration};
use crate::support::{Harness, data_of};
use legwork_model::event::RegularWork;
use legwork_model::id::InstanceId;
use legwork_site::*;

const MINUTE: Duration = Duration::from_secs(60);
/// In milliseconds.
const MINUTE_MS: u64 = 60_000;

/// Packing takes ten minutes, or whatever is said.
fn depot_with(takes: &str, crane: RegisterExecutor) -> Depot {
    let takes = format!("    job: pack\n    takes: {takes}\n    timeout: 2h\n");
    let mut depot = Depot::at(Harness::new(), &PACK.replace("    job: pack\n", &takes), &[]);
    depot.site.ask(Request::Executor(Concern::Register(crane))).unwrap();
    depot
}

/// One at a time, and something else for so long in every hour.
fn besides(minutes: u64) -> RegisterExecutor {
    let work = RegularWork { every_ms: 60 * MINUTE_MS, takes_ms: minutes * MINUTE_MS };
    RegisterExecutor { limit: 1, regularly: vec![work], ..registration("crane") }
}

fn start(depot: &mut Depot, number: u128, within: Duration) -> Result<Answer, Refusal> {
    let deadline = depot.site.now + within;
    depot.site.ask(Request::Start(Start {
        instance: InstanceId(number),
        process: "loan".into(),
        version: None,
        data: data_of(serde_json::json!({ "amount": 3 })),
        agent: None,
        key: None,
        wait_until: None,
        deadline: Some(Box::new(Wish::new(deadline))),
    }))
}

/// What the executor has is done.
fn finish(depot: &mut Depot) {
    let (name, task) = depot.task();
    depot.done(&name, &task);
    depot.confirm(&name, &task);
    depot.site.pass(Duration::from_secs(1));
}

#[test]
fn what_an_executor_does_regularly_counts_whenever_it_does_it() {
    // Five minutes in an hour may come twice within ten, and leave 91 per cent of the time.
    let mut depot = depot_with("10m", besides(5));
    let refusal = start(&mut depot, 1, MINUTE * 21).unwrap_err();
    assert!(refusal.earliest().unwrap() > depot.site.now + MINUTE * 22, "{refusal}");
    start(&mut depot, 2, MINUTE * 22).unwrap();
    // The second need not wait for it once more.
    assert!(start(&mut depot, 3, MINUTE * 32).is_err());
    assert!(start(&mut depot, 4, MINUTE * 33).is_ok());
    // What takes longer than there is between two is possible.
    let mut depot = depot_with("90m", besides(5));
    assert!(start(&mut depot, 1, MINUTE * 111).is_ok());
}

#[test]
fn who_does_something_else_first_is_not_late() {
    let mut depot = depot_with("10m", besides(5));
    start(&mut depot, 1, MINUTE * 22).unwrap();
    start(&mut depot, 2, MINUTE * 33).unwrap();
    for _ in 0..20 {
        depot.site.pass(MINUTE);
    }
    finish(&mut depot);
    for _ in 0..10 {
        depot.site.pass(MINUTE);
    }
    finish(&mut depot);
    let counts = depot.site.site.deadlines();
    assert_eq!((counts.kept, counts.revoked), (2, 0), "{counts:?}");
}

#[test]
fn what_was_seen_of_an_executor_does_not_count_its_regular_work_twice() {
    let mut depot = depot_with("10m", besides(30));
    let earliest = |depot: &mut Depot, number: u128| {
        let refusal = start(depot, number, MINUTE).unwrap_err();
        refusal.earliest().unwrap().since(depot.site.now)
    };
    let before = earliest(&mut depot, 100);
    for number in 1..=8 {
        start(&mut depot, number, MINUTE * 600).unwrap();
        for _ in 0..20 {
            depot.site.pass(MINUTE);
        }
        finish(&mut depot);
    }
    let after = earliest(&mut depot, 101);
    assert!(after < before + MINUTE * 10, "{before:?}, then {after:?}");
}

#[test]
fn what_an_executor_does_regularly_leaves_time_for_tasks() {
    let minutes = |every: u64, takes: u64| RegularWork {
        every_ms: every * MINUTE_MS,
        takes_ms: takes * MINUTE_MS,
    };
    let mut depot = Depot::with(&[]);
    let mut registered = |regularly: &[RegularWork]| {
        let asked = RegisterExecutor { regularly: regularly.into(), ..registration("crane") };
        depot.site.ask(Request::Executor(Concern::Register(asked)))
    };
    for (regularly, wrong) in [
        (vec![minutes(60, 60)], "what is done every 1h takes some time and less than that, not 1h"),
        (vec![minutes(60, 0)], "what is done every 1h takes some time and less than that, not 0ms"),
        (vec![minutes(0, 0)], "what is done every 0ms takes some time"),
        (vec![minutes(601 * 24 * 60, 1)], "every 601d is too seldom: every 400d at the most"),
        (vec![minutes(60, 30), minutes(10, 5)], "takes 100 % of its time, and 90 % at the most"),
        (vec![minutes(600, 1); 21], "an executor does at most 20 things regularly"),
    ] {
        let refusal = registered(&regularly).unwrap_err();
        assert_eq!(refusal.code, "bad_executor");
        assert!(refusal.message.contains(wrong), "{refusal}");
    }
    registered(&[minutes(60, 30), minutes(10, 4)]).unwrap();
}

#[test]
fn what_an_executor_does_regularly_is_known_after_a_restart() {
    let mut depot = depot_with("10m", besides(5));
    depot.site.restart();
    let again = depot.site.ask(Request::Executor(Concern::Register(besides(5)))).unwrap();
    assert!(matches!(again, Answer::ExecutorRegistered { unchanged: true }), "{again:?}");
    assert!(start(&mut depot, 1, MINUTE * 21).is_err());
    let other = depot.site.ask(Request::Executor(Concern::Register(besides(1)))).unwrap();
    assert!(matches!(other, Answer::ExecutorRegistered { unchanged: false }), "{other:?}");
    assert!(start(&mut depot, 2, MINUTE * 13).is_ok());
}
