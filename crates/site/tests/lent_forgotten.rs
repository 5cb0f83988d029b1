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

use crane::{MINUTE, deadlines, done, given, start};
use group::Group;
use legwork_model::id::ServerId;
use legwork_site::*;

/// In how many minutes something could be promised that takes ten.
fn earliest(group: &mut Group) -> i64 {
    let refusal = start(group, 0, "parcel", Some(11)).1.unwrap_err();
    (refusal.earliest().expect("a date").0 - group.now) / MINUTE
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
        // A promise is told for five minutes later than it could be given.
        assert!(earliest(&mut group) >= 20, "server {place}");
        // It may be behind what is given to the crane again.
        (0..120).for_each(|_| group.pass(10_000));
        group.is_lost = |_| false;
        (0..10).for_each(|_| group.pass(1_000));
        let has = given(&mut group).pop().expect("it is given again");
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
    assert!(earliest(&mut group) >= 20);
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
    let after = earliest(&mut group);
    assert!((18..=25).contains(&after), "{after}");
    (0..60).for_each(|_| group.pass(10_000));
    start(&mut group, 0, "parcel", Some(11)).1.unwrap();
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
