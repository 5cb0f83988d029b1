//! Executors that several servers give work to, where one of them could not be heard or begins anew: what may queue
//! behind what nobody knew of.

use crate::support::crane::{
    self, MINUTE, asked, cases, deadlines, done, given, group_with, report, start,
};
use crate::support::group::Group;
use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_site::*;

/// A server has not heard for so long that the crane is kept that it asks nobody, and has given something to it before it was
/// given what it has promised.
fn unheard(minutes: i64) -> (Group, (usize, JobLease), (usize, JobLease)) {
    let mut group = crane::group();
    start(&mut group, 0, "parcel", Some(12)).1.unwrap();
    let before = given(&mut group).remove(0);
    (0..58).for_each(|_| group.pass(10_000));
    done(&mut group, &before);
    group.is_lost = |message| matches!(message, Message::Kept { .. });
    (0..7).for_each(|_| group.pass(10_000));
    start(&mut group, 1, "parcel", None).1.unwrap();
    let other = given(&mut group).remove(0);
    start(&mut group, 0, "parcel", Some(minutes)).1.unwrap();
    let promised = given(&mut group).remove(0);
    (0..60).for_each(|_| group.pass(1_000));
    assert_eq!(deadlines(&group), (1, 0, 0));
    group.is_lost = |_| false;
    (0..10).for_each(|_| group.pass(1_000));
    (group, other, promised)
}

#[test]
fn what_was_promised_and_may_queue_behind_what_nobody_knew_of_is_not_taken_to_be_begun() {
    let (group, ..) = unheard(18);
    assert_eq!(deadlines(&group), (1, 0, 1), "there is not time enough for both");
}

#[test]
fn what_queued_behind_something_is_begun_when_that_is_over() {
    let (mut group, other, promised) = unheard(22);
    assert_eq!(deadlines(&group), (1, 0, 0), "there is time enough for both");
    (0..49).for_each(|_| group.pass(10_000));
    done(&mut group, &other);
    (0..55).for_each(|_| group.pass(10_000));
    assert_eq!(deadlines(&group), (1, 0, 0), "it is worked on");
    done(&mut group, &promised);
    assert_eq!(deadlines(&group), (2, 0, 0));
}

#[test]
fn what_cannot_be_begun_after_a_restart_is_not_taken_to_be_worked_on() {
    let mut group = crane::group();
    let (promised, started) = start(&mut group, 1, "parcel", Some(25));
    started.unwrap();
    let (other, started) = start(&mut group, 1, "parcel", None);
    started.unwrap();
    assert_eq!(cases(&given(&mut group)), [(1, promised)]);
    // Nothing is heard of the planner for some time.
    group.is_lost = |message| matches!(message, Message::Kept { .. } | Message::Turn(_));
    group.open(1);
    (0..4).for_each(|_| group.pass(1_000));
    assert_eq!(cases(&given(&mut group)), [(1, other)]);
    group.is_lost = |_| false;
    (0..18 * 6).for_each(|_| group.pass(10_000));
    assert_eq!(deadlines(&group), (0, 0, 1), "there is not time enough any more");
}

#[test]
fn who_begins_anew_waits_to_hear_which_executors_are_kept() {
    let mut group = crane::group();
    let (promised, started) = start(&mut group, 0, "parcel", Some(25));
    started.unwrap();
    start(&mut group, 1, "parcel", None).1.unwrap();
    assert_eq!(cases(&given(&mut group)), [(0, promised)]);
    group.open(1);
    group.pass(1_000);
    for link in [(0, 1), (1, 0)] {
        let (at, to) = (link.0, ServerId(link.1));
        group.feed(at, Input::Link { to, is_up: false });
        group.feed(at, Input::Link { to, is_up: true });
    }
    (0..30).for_each(|_| group.pass(1_000));
    assert_eq!(cases(&given(&mut group)), [], "the crane has one hand");
}

#[test]
fn what_came_later_is_not_in_the_way_of_what_is_begun() {
    let mut group = crane::group();
    start(&mut group, 0, "parcel", Some(12)).1.unwrap();
    let promised = given(&mut group).remove(0);
    // The other server has not heard of anything, and gives what it likes.
    group.is_lost = |message| matches!(message, Message::Kept { .. });
    group.open(1);
    start(&mut group, 1, "parcel", None).1.unwrap();
    (0..7 * 6).for_each(|_| group.pass(10_000));
    assert_eq!(given(&mut group).len(), 1);
    group.is_lost = |_| false;
    (0..6).for_each(|_| group.pass(10_000));
    assert_eq!(deadlines(&group), (0, 0, 0), "it is worked on");
    done(&mut group, &promised);
    assert_eq!(deadlines(&group), (1, 0, 0));
}

#[test]
fn who_is_given_something_and_has_no_time_for_it_has_not_begun_it() {
    let mut group = crane::group();
    let (request, _) = asked(&mut group, 0, "parcel", Some(12));
    group.send(0, request);
    // The answer comes before anything else happens.
    while group.calls.is_empty() {
        group.pass(50);
    }
    let has = given(&mut group).remove(0);
    let rest = Some(std::time::Duration::from_secs(3_600));
    report(&mut group, &has, Outcome::Busy { rest });
    (0..6 * 6).for_each(|_| group.pass(10_000));
    assert_eq!(deadlines(&group), (0, 0, 1), "nobody works on it");
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
fn what_queues_is_not_taken_to_take_longer_because_the_organisation_is_new() {
    let (mut group, _) = queued();
    start(&mut group, 0, "parcel", Some(42)).1.unwrap();
    (0..18 * 6).for_each(|_| group.pass(10_000));
    let source = "organisation: o\nagents: { ann: { roles: [clerk] }, bob: {} }\n".to_owned();
    group.ask(0, Request::PublishOrganisation { source }).unwrap();
    (0..3).for_each(|_| group.pass(10_000));
    assert_eq!(deadlines(&group), (0, 0, 0));
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
                assert!(refusal.earliest().unwrap() >= Timestamp(group.now + 39 * MINUTE));
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
