//! Executors that may still have what a server gave them before it began anew, or before it was not heard of any more.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a wrong assumption is a failed test"
)]

#[path = "support/crane.rs"]
mod crane;
#[path = "support/group.rs"]
mod group;

use crane::{asked, deadlines, done, given, start};
use group::Group;
use legwork_model::id::ServerId;
use legwork_site::*;

/// In how many minutes something can be promised that takes ten.
fn earliest(group: &mut Group) -> i64 {
    let is_promised = |minutes: &i64| {
        let (mut request, _) = asked(group, 0, "parcel", Some(*minutes));
        if let Request::Start(Start { deadline: Some(wish), .. }) = &mut request {
            wish.ask_only = true;
        }
        let id = group.send(0, request);
        while !group.answers.contains_key(&id) {
            group.pass(50);
        }
        group.answers.remove(&id).unwrap().is_ok()
    };
    (10..90).find(is_promised).expect("a date")
}

/// A server has given something to the crane, and begins anew with it in its hands.
fn begun_anew(place: usize) -> Group {
    let mut group = crane::group();
    start(&mut group, place, "parcel", None).1.unwrap();
    assert_eq!(given(&mut group).len(), 1);
    // What the server does not give to it again it may have all the same.
    group.is_lost = |message| matches!(message, Message::Turn(_));
    group.open(place);
    group
}

#[test]
fn what_a_server_gave_before_it_began_anew_comes_first_for_all_that_is_known() {
    for place in [0, 1] {
        let mut group = begun_anew(place);
        // What is given again may be behind what it has.
        (0..5).for_each(|_| group.pass(1_000));
        let has = given(&mut group).pop().expect("it is given again");
        assert_eq!(earliest(&mut group), 30, "server {place}");
        (0..120).for_each(|_| group.pass(10_000));
        group.is_lost = |_| false;
        (0..10).for_each(|_| group.pass(1_000));
        done(&mut group, &has);
        start(&mut group, 0, "parcel", Some(11)).1.unwrap();
    }
}

#[test]
fn nothing_is_counted_for_a_server_that_had_nothing_to_give() {
    for place in [0, 1] {
        let mut group = crane::group();
        group.open(place);
        (0..5).for_each(|_| group.pass(1_000));
        start(&mut group, 0, "parcel", Some(11)).1.unwrap();
    }
}

#[test]
fn who_is_not_heard_of_may_have_given_something_as_long_as_nobody_hears_otherwise() {
    let mut group = crane::group();
    group.is_lost = |message| matches!(message, Message::Kept { .. });
    assert_eq!(earliest(&mut group), 30, "one from each of two");
    group.is_lost = |_| false;
    (0..10).for_each(|_| group.pass(1_000));
    start(&mut group, 0, "parcel", Some(11)).1.unwrap();
}

#[test]
fn what_a_lost_server_may_have_given_is_over_when_it_was_lost_long_ago() {
    let mut group = crane::group();
    group.away.insert(1);
    group.feed(0, Input::Link { to: ServerId(1), is_up: false });
    (0..6).for_each(|_| group.pass(10_000));
    assert_eq!(earliest(&mut group), 20);
    // Three servers may have given something then.
    (0..3 * 60).for_each(|_| group.pass(10_000));
    assert_eq!(earliest(&mut group), 11);
}

#[test]
fn what_a_server_may_have_given_counts_at_once_if_it_is_lost_already() {
    let mut group = crane::group();
    let source = "process: talk\nsteps:\n  - { step: talk, who: Role(clerk), takes: 5m }\n";
    group.ask(0, Request::Deploy { source: source.to_owned() }).unwrap();
    // Whoever plans knows who is lost.
    start(&mut group, 0, "talk", Some(120)).1.unwrap();
    for (place, to) in [(1, ServerId(1)), (2, ServerId(2))] {
        group.away.insert(place);
        group.feed(0, Input::Link { to, is_up: false });
    }
    (0..3).for_each(|_| group.pass(10_000));
    let refusal = start(&mut group, 0, "parcel", Some(11)).1.unwrap_err();
    assert_eq!(refusal.code, "deadline_not_promised");
}

#[test]
fn what_is_given_behind_something_unknown_is_later_by_that() {
    let mut group = crane::group();
    start(&mut group, 0, "parcel", Some(200)).1.unwrap();
    let has = given(&mut group).remove(0);
    (0..58).for_each(|_| group.pass(10_000));
    done(&mut group, &has);
    group.is_lost = |message| matches!(message, Message::Kept { .. });
    group.open(0);
    assert_eq!(earliest(&mut group), 30, "one from each of two");
    start(&mut group, 0, "parcel", None).1.unwrap();
    assert_eq!(given(&mut group).len(), 1);
    assert_eq!(earliest(&mut group), 40);
    group.is_lost = |_| false;
    (0..10).for_each(|_| group.pass(1_000));
    assert_eq!(earliest(&mut group), 20, "they have given nothing");
}

#[test]
fn what_was_promised_before_a_restart_stays_promised_and_is_begun_in_its_turn() {
    let mut group = crane::group();
    start(&mut group, 1, "parcel", None).1.unwrap();
    let first = given(&mut group).remove(0);
    start(&mut group, 0, "parcel", Some(22)).1.unwrap();
    group.open(0);
    (0..59).for_each(|_| group.pass(10_000));
    done(&mut group, &first);
    let promised = given(&mut group).pop().expect("its turn");
    assert_eq!(deadlines(&group), (0, 0, 0));
    (0..58).for_each(|_| group.pass(10_000));
    done(&mut group, &promised);
    assert_eq!(deadlines(&group), (1, 0, 0));
}

#[test]
fn what_an_executor_has_begun_and_does_not_finish_is_told_before_it_is_due() {
    let mut group = crane::group();
    start(&mut group, 0, "parcel", Some(14)).1.unwrap();
    assert_eq!(given(&mut group).len(), 1);
    (0..61).for_each(|_| group.pass(10_000));
    assert_eq!(deadlines(&group), (0, 0, 0), "it may be done at any moment");
    (0..20).for_each(|_| group.pass(10_000));
    assert_eq!(deadlines(&group), (0, 0, 1), "a quarter more is too late");
}
