//! Executors that several servers give work to: the planner of one knows what all of them give it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a wrong assumption is a failed test"
)]

#[path = "support/group.rs"]
mod group;

use std::cell::Cell;

use group::{Group, HIGH};
use legwork_model::event::{ExecutorType, Secret, TaskKey};
use legwork_model::id::{InstanceId, NodeId, ServerId};
use legwork_model::time::Timestamp;
use legwork_site::*;

const PACK: &str = "process: parcel\nsteps:\n  \
                    - { step: pack, job: pack, takes: 10m, timeout: 1h }\n";
/// Somebody works for five minutes before something is packed.
const CHECKED: &str = "process: checked\nsteps:\n  - { step: check, who: Role(clerk), takes: 5m }\n  \
                       - { step: pack, job: pack, takes: 10m, timeout: 1h }\n";
const MINUTE: i64 = 60_000;

/// North-1 keeps the plan of the crane, which does one at a time.
fn group() -> Group {
    group_with(1, None)
}

/// The same with a crane that takes so many and works on so many of them at a time.
fn group_with(limit: u32, at_once: Option<u32>) -> Group {
    let mut group = Group::new(1, 1);
    for source in [PACK, CHECKED] {
        group.ask(0, Request::Deploy { source: source.to_owned() }).unwrap();
    }
    register(&mut group, "crane", limit, at_once);
    group
}

fn register(group: &mut Group, name: &str, limit: u32, at_once: Option<u32>) {
    let executor = RegisterExecutor {
        name: name.into(),
        url: format!("http://{name}.example:7001").into(),
        secret: Secret("s".repeat(32)),
        types: vec![ExecutorType { job: "pack".into(), limit: None, rate: None }],
        rate: None,
        weight: None,
        limit,
        at_once,
        regularly: Vec::new(),
        domain: None,
        verdicts: false,
    };
    group.ask(0, Request::Executor(Concern::Register(executor))).unwrap();
    for _ in 0..5 {
        group.pass(2_000);
    }
}

/// Starts something at a server that is to be done in so many minutes, if that is said.
fn start(
    group: &mut Group,
    place: usize,
    process: &str,
    minutes: Option<i64>,
) -> (InstanceId, Result<Answer, Refusal>) {
    let instance = group.draw(place, if place == 1 { HIGH } else { 0 });
    let deadline = minutes.map(|minutes| Wish::new(Timestamp(group.now + minutes * MINUTE)));
    let request = Request::Start(Start {
        instance,
        process: process.into(),
        version: None,
        data: Data::new(),
        agent: None,
        key: None,
        wait_until: None,
        deadline: deadline.map(Box::new),
    });
    let id = group.send(place, request);
    for _ in 0..100 {
        if group.answers.contains_key(&id) {
            break;
        }
        group.pass(50);
    }
    group.pass(1);
    (instance, group.answers.remove(&id).expect("an answer"))
}

/// What the crane was given since this was asked last: by which server, and for what.
fn given(group: &mut Group) -> Vec<(usize, JobLease)> {
    let calls = std::mem::take(&mut group.calls).into_iter();
    let tasks = calls.filter_map(|(place, call)| match call.ask {
        Ask::Task(job) => Some((place, JobLease { activity: job.activity, lease: job.lease })),
        Ask::Verdict { .. } | Ask::Cancel(_) => None,
    });
    tasks.collect()
}

fn cases(given: &[(usize, JobLease)]) -> Vec<(usize, InstanceId)> {
    given.iter().map(|(place, task)| (*place, task.activity.instance)).collect()
}

fn done(group: &mut Group, given: &(usize, JobLease)) {
    report(group, given, Outcome::Done(Data::new()));
}

fn report(group: &mut Group, (place, task): &(usize, JobLease), outcome: Outcome) {
    let (executor, task) = ("crane".into(), task.clone());
    let report = Concern::Report(TaskReport { executor, task, outcome });
    group.last += 1;
    let (id, credential) = (RequestId(group.last), Credential::Executor("crane".into()));
    group.feed(*place, Input::Request { id, credential, request: Request::Executor(report) });
    group.answers.remove(&id).unwrap().unwrap();
    (0..5).for_each(|_| group.pass(100));
}

fn deadlines(group: &Group) -> (u64, u64, u64) {
    let all = group.servers.iter().map(|server| server.site.deadlines());
    all.fold((0, 0, 0), |(kept, broken, withdrawn), it| {
        (kept + it.kept, broken + it.broken, withdrawn + it.withdrawn)
    })
}

#[test]
fn what_an_executor_has_from_another_server_counts_when_it_is_to_promise_something() {
    let mut group = group();
    let (first, started) = start(&mut group, 1, "parcel", None);
    started.unwrap();
    let has = given(&mut group);
    assert_eq!(cases(&has), [(1, first)], "nothing is promised: nobody is asked");
    let refusal = start(&mut group, 0, "parcel", Some(12)).1.unwrap_err();
    assert!(refusal.earliest.unwrap() >= Timestamp(group.now + 19 * MINUTE));
    let (second, started) = start(&mut group, 2, "parcel", Some(22));
    started.unwrap();
    group.now += 9 * MINUTE;
    done(&mut group, &has[0]);
    let has = given(&mut group);
    assert_eq!(cases(&has), [(2, second)]);
    group.now += 9 * MINUTE;
    done(&mut group, &has[0]);
    assert_eq!(deadlines(&group), (1, 0, 0));
}

#[test]
fn another_server_gives_an_executor_nothing_that_would_make_a_promise_late() {
    let mut group = group();
    let (checked, started) = start(&mut group, 0, "checked", Some(18));
    started.unwrap();
    let (other, started) = start(&mut group, 1, "parcel", None);
    started.unwrap();
    (0..10).for_each(|_| group.pass(1_000));
    assert_eq!(cases(&given(&mut group)), [], "the crane is needed before it would be done");
    group.ask(0, Request::Abort { instance: checked, reason: String::new() }).unwrap();
    (0..5).for_each(|_| group.pass(1_000));
    assert_eq!(cases(&given(&mut group)), [(1, other)]);
}

#[test]
fn a_server_that_begins_anew_hears_at_once_which_executors_are_kept() {
    let mut group = group();
    start(&mut group, 0, "checked", Some(18)).1.unwrap();
    let (north, other) = (ServerId(0), ServerId(1));
    group.feed(0, Input::Link { to: other, is_up: false });
    group.open(1);
    group.feed(0, Input::Link { to: other, is_up: true });
    group.feed(1, Input::Link { to: north, is_up: true });
    group.pass(1);
    start(&mut group, 1, "parcel", None).1.unwrap();
    (0..10).for_each(|_| group.pass(1_000));
    assert_eq!(cases(&given(&mut group)), [], "the crane is needed before it would be done");
}

#[test]
fn what_has_failed_at_an_executor_that_another_server_keeps_is_given_to_it_again() {
    let mut group = group();
    start(&mut group, 0, "checked", Some(300)).1.unwrap();
    let (case, started) = start(&mut group, 1, "parcel", None);
    started.unwrap();
    (0..5).for_each(|_| group.pass(1_000));
    let has = given(&mut group);
    assert_eq!(cases(&has), [(1, case)]);
    report(&mut group, &has[0], Outcome::Failed { error: "it slipped".into(), retry: true });
    (0..10).for_each(|_| group.pass(1_000));
    assert_eq!(cases(&given(&mut group)), [(1, case)]);
}

#[test]
fn who_gets_no_turn_with_one_executor_asks_for_another() {
    let mut group = group();
    start(&mut group, 0, "checked", Some(18)).1.unwrap();
    register(&mut group, "lift", 1, None);
    // For this both are kept.
    start(&mut group, 0, "checked", Some(600)).1.unwrap();
    let (other, started) = start(&mut group, 1, "parcel", None);
    started.unwrap();
    (0..20).for_each(|_| group.pass(1_000));
    let to: Vec<&str> = group.calls.iter().map(|(_, call)| &*call.executor.name).collect();
    assert_eq!(to, ["lift"], "the crane is needed before it would be done");
    assert_eq!(cases(&given(&mut group)), [(1, other)]);
}

#[test]
fn promised_jobs_of_several_servers_are_begun_in_the_order_of_the_plan() {
    let mut group = group();
    let mut cases_of = Vec::new();
    for (place, minutes) in [(0, 42), (1, 31), (2, 52), (1, 21)] {
        let (case, started) = start(&mut group, place, "parcel", Some(minutes));
        started.unwrap();
        cases_of.push((minutes, (place, case)));
    }
    let (late, started) = start(&mut group, 1, "parcel", None);
    started.unwrap();
    let mut order = Vec::new();
    for _ in 0..5 {
        let has = given(&mut group);
        assert_eq!(has.len(), 1, "one at a time");
        order.extend(cases(&has));
        (0..59).for_each(|_| group.pass(10_000));
        done(&mut group, &has[0]);
    }
    assert_eq!(order.pop(), Some((1, late)));
    // The first was begun when nobody knew of the others.
    assert_eq!(order.remove(0), cases_of.remove(0).1);
    cases_of.sort_unstable();
    assert_eq!(order, cases_of.into_iter().map(|(_, it)| it).collect::<Vec<_>>());
    assert_eq!(deadlines(&group), (4, 0, 0));
}

#[test]
fn what_another_server_has_given_counts_as_long_as_it_says_so() {
    let mut group = group();
    start(&mut group, 1, "parcel", None).1.unwrap();
    let has = given(&mut group);
    let (promised, started) = start(&mut group, 0, "parcel", Some(60));
    started.unwrap();
    // More than twice as long as was said.
    (0..24 * 6).for_each(|_| group.pass(10_000));
    assert_eq!(cases(&given(&mut group)), [], "the crane is busy");
    done(&mut group, &has[0]);
    assert_eq!(cases(&given(&mut group)), [(0, promised)]);
}

#[test]
fn what_is_given_back_when_it_is_done_is_not_taken_to_wait_again() {
    let mut group = group();
    let (first, started) = start(&mut group, 1, "parcel", Some(11));
    started.unwrap();
    start(&mut group, 0, "parcel", Some(22)).1.unwrap();
    (0..59).for_each(|_| group.pass(10_000));
    assert_eq!(cases(&given(&mut group)), [(1, first)]);
    // That the step is over is said as well, and comes later.
    let task = TaskKey { instance: first, node: NodeId(1), round: 0, part: 0 };
    let (executor, takes_ms, stage) = ("crane".into(), 600_000, Stage::Over);
    let message = Message::Turn(Box::new(TurnOf { task, executor, takes_ms, stage }));
    group.feed(0, Input::Message { from: ServerId(1), message });
    (0..2).for_each(|_| group.pass(5_000));
    assert_eq!(deadlines(&group), (0, 0, 0), "the other has its time");
}

#[test]
fn who_waits_behind_one_that_is_not_wanted_any_more_asks_for_a_turn() {
    let mut group = group();
    let (checked, started) = start(&mut group, 0, "checked", Some(18));
    started.unwrap();
    let (first, started) = start(&mut group, 1, "parcel", None);
    started.unwrap();
    let (second, started) = start(&mut group, 1, "parcel", None);
    started.unwrap();
    (0..10).for_each(|_| group.pass(1_000));
    group.ask(1, Request::Abort { instance: first, reason: String::new() }).unwrap();
    (0..10).for_each(|_| group.pass(1_000));
    group.ask(0, Request::Abort { instance: checked, reason: String::new() }).unwrap();
    (0..5).for_each(|_| group.pass(1_000));
    assert_eq!(cases(&given(&mut group)), [(1, second)]);
}

#[test]
fn who_works_on_what_is_not_wanted_any_more_is_busy_until_it_is_stopped() {
    let mut group = group();
    let (first, started) = start(&mut group, 1, "parcel", Some(11));
    started.unwrap();
    let (second, started) = start(&mut group, 0, "parcel", Some(22));
    started.unwrap();
    group.pass(1_000);
    let has = given(&mut group);
    assert_eq!(cases(&has), [(1, first)]);
    // Whoever started it was faster to tell than whoever stops it.
    let task = TaskKey { instance: first, node: NodeId(1), round: 0, part: 0 };
    let message = Message::Step { task, stage: Stage::Over, took_ms: None };
    group.feed(0, Input::Message { from: ServerId(2), message });
    (0..5).for_each(|_| group.pass(1_000));
    assert_eq!(cases(&given(&mut group)), []);
    done(&mut group, &has[0]);
    assert_eq!(cases(&given(&mut group)), [(0, second)]);
}

#[test]
fn what_is_asked_for_again_was_not_begun_and_that_is_noticed_in_time() {
    let mut group = group();
    group.is_lost = |message| match message {
        Message::Turn(turn) => turn.stage == Stage::Begun,
        _ => false,
    };
    start(&mut group, 1, "parcel", Some(12)).1.unwrap();
    (0..30).for_each(|_| group.pass(1_000));
    assert_eq!(deadlines(&group), (0, 0, 0));
    (0..180).for_each(|_| group.pass(1_000));
    assert_eq!(deadlines(&group), (0, 0, 1), "nobody has begun it, and there is not time enough");
}

#[test]
fn who_has_not_heard_that_an_executor_is_kept_is_told_again_before_anything_is_promised() {
    thread_local!(static LOST: Cell<u32> = const { Cell::new(0) });
    let mut group = group();
    start(&mut group, 1, "parcel", None).1.unwrap();
    given(&mut group);
    group.is_lost = |message| match message {
        Message::Kept { .. } => LOST.replace(LOST.get() + 1) < 2,
        _ => false,
    };
    start(&mut group, 0, "parcel", Some(12)).1.unwrap_err();
    assert!(LOST.get() > 2);
}

#[test]
fn what_others_gave_while_the_planner_was_down_counts_when_it_gives_its_own_again() {
    let mut group = group();
    let (promised, started) = start(&mut group, 0, "parcel", Some(20));
    started.unwrap();
    assert_eq!(cases(&given(&mut group)), [(0, promised)]);
    group.away.insert(0);
    let (other, started) = start(&mut group, 1, "parcel", None);
    started.unwrap();
    (0..70).for_each(|_| group.pass(1_000));
    assert_eq!(cases(&given(&mut group)), [(1, other)], "nobody holds the promise");
    group.away.clear();
    group.open(0);
    (0..30).for_each(|_| group.pass(1_000));
    assert_eq!(deadlines(&group), (0, 0, 1), "there is not time enough for both");
}

/// The crane takes two and does one at a time: what it has from several servers queues, in an order nobody knows.
fn queued() -> (Group, Vec<(usize, JobLease)>) {
    let mut group = group_with(2, Some(1));
    for place in [0, 1, 2] {
        start(&mut group, place, "parcel", None).1.unwrap();
    }
    let has = given(&mut group);
    assert_eq!(has.len(), 3);
    (group, has)
}

#[test]
fn what_queues_at_an_executor_is_in_no_promises_way_in_whatever_order_it_is_done() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (mut group, has) = queued();
        let (first, started) = start(&mut group, 0, "parcel", Some(42));
        started.unwrap();
        // Another promise is given in between.
        for (number, place) in order.into_iter().enumerate() {
            (0..58).for_each(|_| group.pass(10_000));
            done(&mut group, &has[place]);
            if number == 0 {
                // Any of the two that are left may be the one that is begun only now.
                let refusal = start(&mut group, 1, "parcel", Some(31)).1.unwrap_err();
                assert!(refusal.earliest.unwrap() >= Timestamp(group.now + 39 * MINUTE));
                let (_, started) = start(&mut group, 1, "parcel", Some(42));
                started.unwrap();
            }
        }
        let begun = given(&mut group);
        assert_eq!(cases(&begun), [(0, first)]);
        (0..58).for_each(|_| group.pass(10_000));
        done(&mut group, &begun[0]);
        let begun = given(&mut group);
        (0..58).for_each(|_| group.pass(10_000));
        done(&mut group, &begun[0]);
        assert_eq!(deadlines(&group), (2, 0, 0), "{order:?}");
    }
}
