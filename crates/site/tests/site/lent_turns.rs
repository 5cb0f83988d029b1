//! Executors that several servers give work to: the planner of one knows what all of them give it.

use std::cell::Cell;

use crate::support::crane::{self, MINUTE, cases, deadlines, done, given, register, report, start};
use crate::support::group::HIGH;
use legwork_model::event::TaskKey;
use legwork_model::id::{NodeId, ServerId};
use legwork_model::time::Timestamp;
use legwork_site::*;

#[test]
fn what_an_executor_has_from_another_server_counts_when_it_is_to_promise_something() {
    let mut group = crane::group();
    let (first, started) = start(&mut group, 1, "parcel", None);
    started.unwrap();
    let has = given(&mut group);
    assert_eq!(cases(&has), [(1, first)], "nothing is promised: nobody is asked");
    let refusal = start(&mut group, 0, "parcel", Some(12)).1.unwrap_err();
    assert!(refusal.earliest().unwrap() >= Timestamp(group.now + 19 * MINUTE));
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
    let mut group = crane::group();
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
    let mut group = crane::group();
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
    let mut group = crane::group();
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
    let mut group = crane::group();
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
fn who_has_leave_does_not_wait_for_others_of_its_server() {
    let mut group = crane::group();
    let source = "process: ranked\ndata: { p: int }\nstart: [p]\nsteps:\n  \
                  - { step: pack, job: pack, takes: 10m, timeout: 1h, reads: [p], priority: p }\n";
    group.ask(0, Request::Deploy { source: source.to_owned() }).unwrap();
    (0..5).for_each(|_| group.pass(2_000));
    // So that not everybody may queue.
    start(&mut group, 0, "checked", Some(180)).1.unwrap();
    start(&mut group, 0, "parcel", Some(12)).1.unwrap();
    let has = given(&mut group);
    for priority in [1, 5, 3, 9] {
        let instance = group.draw(1, HIGH);
        let mut data = Data::new();
        data.insert("p".to_owned(), priority.into());
        let (process, version) = ("ranked".into(), None);
        let (agent, key, wait_until, deadline) = (None, None, None, None);
        let start = Start { instance, process, version, data, agent, key, wait_until, deadline };
        group.ask(1, Request::Start(start)).unwrap();
        (0..3).for_each(|_| group.pass(1_000));
    }
    done(&mut group, &has[0]);
    for _ in 0..4 {
        group.pass(1_000);
        let has = given(&mut group);
        assert_eq!(has.len(), 1, "the crane is free");
        (0..58).for_each(|_| group.pass(10_000));
        done(&mut group, &has[0]);
    }
}

#[test]
fn promised_jobs_of_several_servers_are_begun_in_the_order_of_the_plan() {
    let mut group = crane::group();
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
    let mut group = crane::group();
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
    let mut group = crane::group();
    let (first, started) = start(&mut group, 1, "parcel", Some(11));
    started.unwrap();
    start(&mut group, 0, "parcel", Some(22)).1.unwrap();
    (0..59).for_each(|_| group.pass(10_000));
    assert_eq!(cases(&given(&mut group)), [(1, first)]);
    // That the step is over is said as well, and comes later.
    let task = TaskKey { instance: first, node: NodeId(1), round: 0, part: 0 };
    let (executor, takes_ms, stage) = ("crane".into(), 600_000, Stage::Over);
    let message = Message::Turn(Box::new(TurnOf { task, executor, takes_ms, stage, ago_ms: 0 }));
    group.feed(0, Input::Message { from: ServerId(1), message });
    (0..2).for_each(|_| group.pass(5_000));
    assert_eq!(deadlines(&group), (0, 0, 0), "the other has its time");
}

#[test]
fn who_waits_behind_one_that_is_not_wanted_any_more_asks_for_a_turn() {
    let mut group = crane::group();
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
    let mut group = crane::group();
    let (first, started) = start(&mut group, 1, "parcel", Some(11));
    started.unwrap();
    let (second, started) = start(&mut group, 0, "parcel", Some(22));
    started.unwrap();
    group.pass(1_000);
    let has = given(&mut group);
    assert_eq!(cases(&has), [(1, first)]);
    // Whoever started it was faster to tell than whoever stops it.
    let task = TaskKey { instance: first, node: NodeId(1), round: 0, part: 0 };
    let message = Message::Step {
        task,
        stage: Stage::Over,
        took_ms: None,
        number: 0,
        ago_ms: 0,
        holder: None,
    };
    group.feed(0, Input::Message { from: ServerId(2), message });
    (0..5).for_each(|_| group.pass(1_000));
    assert_eq!(cases(&given(&mut group)), []);
    done(&mut group, &has[0]);
    assert_eq!(cases(&given(&mut group)), [(0, second)]);
}

#[test]
fn who_asks_again_while_leave_is_under_way_has_it_all_the_same() {
    let mut group = crane::group();
    let (first, started) = start(&mut group, 1, "parcel", Some(42));
    started.unwrap();
    assert_eq!(cases(&given(&mut group)), [(1, first)]);
    start(&mut group, 2, "parcel", Some(22)).1.unwrap();
    let task = TaskKey { instance: first, node: NodeId(1), round: 0, part: 0 };
    let (executor, takes_ms, stage) = ("crane".into(), 600_000, Stage::Waiting);
    let message = Message::Turn(Box::new(TurnOf { task, executor, takes_ms, stage, ago_ms: 0 }));
    group.feed(0, Input::Message { from: ServerId(1), message });
    (0..10).for_each(|_| group.pass(1_000));
    assert_eq!(cases(&given(&mut group)), [], "the crane has one hand");
    assert_eq!(deadlines(&group), (0, 0, 0));
}

#[test]
fn what_is_asked_for_again_was_not_begun_and_that_is_noticed_in_time() {
    let mut group = crane::group();
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
    let mut group = crane::group();
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
    let mut group = crane::group();
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
