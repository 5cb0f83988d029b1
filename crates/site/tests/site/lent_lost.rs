//! Executors that several servers give work to, where one of them is lost or the executor that has promised something fails.

use crate::support::crane::{self, cases, deadlines, given, register, report_of, start};
use std::sync::Arc;

use crate::support::group::{Group, executor};
use legwork_model::id::{ActivityId, InstanceId, ServerId};
use legwork_site::*;

/// Who was given something last.
fn whom(group: &Group) -> Arc<str> {
    let mut last = group.calls.iter().rev();
    let task = last.find(|(_, call)| matches!(call.ask, Ask::Task(_)));
    task.map(|(_, call)| call.executor.name.clone()).expect("somebody has it")
}

/// Ann has checked a case of north-2.
fn check(group: &mut Group, case: InstanceId) {
    let activity =
        ActivityId { instance: case, step: "check".into(), iteration: Default::default() };
    let (agent, data) = ("ann".into(), Data::new());
    let done = Complete { agent, activity, data, answer: None, request: None };
    group.ask(1, Request::Complete(done)).unwrap();
}

#[test]
fn what_a_lost_server_had_given_to_an_executor_does_not_block_it_for_ever() {
    let mut group = crane::group();
    let (promised, started) = start(&mut group, 1, "parcel", Some(25));
    started.unwrap();
    assert_eq!(cases(&given(&mut group)), [(1, promised)]);
    group.away.insert(1);
    group.feed(0, Input::Link { to: ServerId(1), is_up: false });
    (0..30 * 6).for_each(|_| group.pass(10_000));
    let (other, started) = start(&mut group, 0, "parcel", Some(15));
    started.unwrap();
    assert_eq!(cases(&given(&mut group)), [(0, other)]);
}

#[test]
fn another_executor_does_what_the_one_that_has_promised_it_failed_at() {
    let mut group = crane::group();
    register(&mut group, "lift", 1, None);
    let (case, started) = start(&mut group, 1, "parcel", Some(60));
    started.unwrap();
    let first = whom(&group);
    let has = given(&mut group);
    let failed = Outcome::Failed { error: "it slipped".into(), retry: true };
    report_of(&mut group, &first, &has[0], failed);
    (0..30).for_each(|_| group.pass(1_000));
    let second = whom(&group);
    assert_eq!(cases(&given(&mut group)), [(1, case)]);
    assert_ne!(second, first);
    assert_eq!(deadlines(&group), (0, 0, 0));
}

#[test]
fn another_executor_does_it_also_long_after_it_was_promised() {
    let mut group = crane::group();
    register(&mut group, "lift", 1, None);
    let (case, started) = start(&mut group, 1, "checked", Some(120));
    started.unwrap();
    // By then nobody has to ask for who has promised nothing.
    (0..20 * 6).for_each(|_| group.pass(10_000));
    check(&mut group, case);
    (0..5).for_each(|_| group.pass(1_000));
    let first = whom(&group);
    let has = given(&mut group);
    let failed = Outcome::Failed { error: "it slipped".into(), retry: true };
    report_of(&mut group, &first, &has[0], failed);
    (0..30).for_each(|_| group.pass(1_000));
    assert_ne!(whom(&group), first);
    assert_eq!(cases(&given(&mut group)), [(1, case)]);
}

#[test]
fn others_have_work_while_what_was_promised_waits_for_whoever_failed_at_it() {
    let mut group = crane::group();
    let (_, started) = start(&mut group, 1, "parcel", Some(60));
    started.unwrap();
    let has = given(&mut group);
    let asked = RegisterExecutor { domain: Some("south".into()), ..executor("lift", &["pack"]) };
    group.ask(0, Request::Executor(Concern::Register(asked))).unwrap();
    (0..5).for_each(|_| group.pass(2_000));
    // The crane rests for an hour, and its planner does not know the lift.
    let rest = Some(std::time::Duration::from_secs(3_600));
    report_of(&mut group, "crane", &has[0], Outcome::Busy { rest });
    let (other, started) = start(&mut group, 1, "parcel", None);
    started.unwrap();
    (0..5).for_each(|_| group.pass(1_000));
    assert_eq!(cases(&given(&mut group)), [(1, other)]);
}

#[test]
fn what_was_promised_is_tried_again_while_its_planner_and_starter_is_lost() {
    let mut group = crane::group();
    let source = crane::PACK
        .replace("process: parcel", "process: far")
        .replace("job: pack", "job: pack, at: south");
    group.ask(0, Request::Deploy { source }).unwrap();
    (0..5).for_each(|_| group.pass(2_000));
    let (case, started) = start(&mut group, 0, "far", Some(60));
    started.unwrap();
    (0..5).for_each(|_| group.pass(1_000));
    let has = given(&mut group);
    assert_eq!(cases(&has), [(2, case)]);
    group.away.insert(0);
    group.feed(2, Input::Link { to: ServerId(0), is_up: false });
    (0..10).for_each(|_| group.pass(10_000));
    let failed = Outcome::Failed { error: "it slipped".into(), retry: true };
    report_of(&mut group, "crane", &has[0], failed);
    (0..12).for_each(|_| group.pass(10_000));
    assert_eq!(cases(&given(&mut group)), [(2, case)]);
}

#[test]
fn what_was_promised_does_not_wait_for_leave_of_a_planner_that_is_not_heard_of() {
    let mut group = crane::group();
    let (case, started) = start(&mut group, 1, "checked", Some(40));
    started.unwrap();
    group.is_lost = |message| matches!(message, Message::Kept { .. } | Message::Turn(_));
    check(&mut group, case);
    (0..5).for_each(|_| group.pass(10_000));
    assert_eq!(cases(&given(&mut group)), [], "it may be a moment only");
    (0..3).for_each(|_| group.pass(10_000));
    assert_eq!(cases(&given(&mut group)), [(1, case)]);
}
