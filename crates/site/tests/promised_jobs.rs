//! Deadlines of steps that programs do: executors have plans, and what is promised goes first.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a wrong assumption is a failed test")]

mod support;

use std::time::Duration;

use legwork_model::event::Performer;
use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_site::*;
use support::depot::{Depot, PACK, registration};
use support::{Harness, data_of};

const MINUTE: Duration = Duration::from_secs(60);

/// One executor that does one at a time; packing takes ten minutes.
fn depot() -> Depot {
    let source =
        PACK.replace("    job: pack\n", "    job: pack\n    takes: 10m\n    timeout: 1h\n");
    let mut depot = Depot::at(Harness::new(), &source, &[]);
    let crane = RegisterExecutor { limit: 1, ..registration("crane") };
    depot.site.ask(Request::Executor(Concern::Register(crane))).unwrap();
    depot
}

fn start(depot: &mut Depot, number: u128, minutes: Option<u32>) -> Result<Answer, Refusal> {
    let deadline = minutes.map(|minutes| depot.site.now + MINUTE * minutes);
    depot.site.ask(Request::Start(Start {
        instance: InstanceId(number),
        process: "loan".into(),
        version: None,
        data: data_of(serde_json::json!({ "amount": 3 })),
        agent: None,
        key: None,
        wait_until: None,
        deadline: deadline.map(|at| Box::new(Wish::new(at))),
    }))
}

#[test]
fn an_executor_promises_what_it_has_time_for() {
    let mut depot = depot();
    let Ok(Answer::Started { instance, .. }) = start(&mut depot, 1, Some(25)) else {
        panic!("started")
    };
    let deadline = instance.deadline.unwrap();
    assert!(deadline.promised);
    assert_eq!(deadline.legs[0].by, Some(Performer::Worker("crane".into())));
    assert!(start(&mut depot, 2, Some(25)).is_ok());
    let refusal = start(&mut depot, 3, Some(25)).unwrap_err();
    assert_eq!(refusal.code, "deadline_not_promised");
    assert!(refusal.earliest.unwrap() >= Timestamp(depot.site.now.0 + 30 * 60_000));
}

#[test]
fn what_an_executor_works_on_is_not_taken_for_something_it_has_not_begun() {
    let mut depot = depot();
    start(&mut depot, 1, Some(12)).unwrap();
    let (name, task) = depot.task();
    for _ in 0..9 {
        depot.site.pass(MINUTE);
    }
    assert_eq!(depot.site.site.deadlines().withdrawn, 0);
    depot.done(&name, &task);
    depot.confirm(&name, &task);
    assert_eq!(depot.site.site.deadlines().kept, 1);
}

#[test]
fn what_is_promised_goes_before_what_nobody_has_promised() {
    let mut depot = depot();
    start(&mut depot, 1, None).unwrap();
    let (name, first) = depot.task();
    start(&mut depot, 2, None).unwrap();
    start(&mut depot, 3, Some(60)).unwrap();
    depot.done(&name, &first);
    depot.confirm(&name, &first);
    depot.site.pass(Duration::from_secs(1));
    assert_eq!(depot.task().1.activity.instance, InstanceId(3));
}

#[test]
fn where_no_executor_does_a_job_nothing_is_promised() {
    let source = PACK.replace("    job: pack\n", "    job: pack\n    takes: 10m\n");
    let mut depot = Depot::at(Harness::new(), &source, &[]);
    let refusal = start(&mut depot, 1, Some(60)).unwrap_err();
    assert!(refusal.message.contains("nobody is known who can do `pack`"), "{refusal}");
}

#[test]
fn when_an_executor_is_taken_out_another_promises_its_tasks_or_it_is_told() {
    let mut depot = depot();
    start(&mut depot, 1, Some(15)).unwrap();
    start(&mut depot, 2, Some(25)).unwrap();
    let lift = RegisterExecutor { limit: 1, ..registration("lift") };
    depot.site.ask(Request::Executor(Concern::Register(lift))).unwrap();
    depot.site.ask(Request::Executor(Concern::Remove { name: "crane".into() })).unwrap();
    depot.site.pass(Duration::from_secs(10));
    // The lift was not known when they were promised, so nobody else was asked: both are told.
    assert_eq!(depot.site.site.deadlines().withdrawn, 2);
}
