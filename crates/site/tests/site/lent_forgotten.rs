//! Executors that may still have what a server gave them before it began anew, or before it was not heard of any more.

use crate::support::crane::{self, deadlines, done, earliest, given, start};
use crate::support::group::Group;
use legwork_model::id::{ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_site::*;

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
fn what_a_suspended_case_has_with_an_executor_counts_when_its_server_begins_anew() {
    for place in [0, 1] {
        let mut group = crane::group();
        let instance = start(&mut group, place, "parcel", None).0;
        assert_eq!(given(&mut group).len(), 1);
        group.ask(place, Request::Suspend { instance, reason: None }).unwrap();
        group.open(place);
        (0..5).for_each(|_| group.pass(1_000));
        assert!(earliest(&mut group) >= 20, "server {place}: behind what it has");
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

#[test]
fn copies_of_one_job_may_fill_the_crane_of_a_server_that_begins_anew_again_and_again() {
    let mut group = crane::group_with(4, Some(1));
    start(&mut group, 1, "parcel", None).1.unwrap();
    assert_eq!(given(&mut group).len(), 1);
    for _ in 0..2 {
        group.open(1);
        (0..4).for_each(|_| group.pass(1_000));
        assert_eq!(given(&mut group).len(), 1, "it is given again, as another task");
    }
    assert_eq!(earliest(&mut group), 60, "four from before, and the one that is known");
    // Once more, and it is heard by whoever keeps the plan.
    group.open(1);
    (0..30).for_each(|_| group.pass(1_000));
    assert_eq!(given(&mut group).len(), 1);
    assert_eq!(earliest(&mut group), 60, "the same four");
}

#[test]
fn a_crane_does_no_more_at_a_time_of_what_is_forgotten_than_of_its_type() {
    for begin_anew in [false, true] {
        let mut group = crane::group();
        crane::register_of_type(&mut group, 4, None, Some(1));
        for place in 0..3 {
            start(&mut group, place, "parcel", None).1.unwrap();
        }
        assert_eq!(given(&mut group).len(), 3);
        if begin_anew {
            group.is_lost = |message| matches!(message, Message::Turn(_));
            group.open(1);
            group.open(2);
        }
        assert_eq!(earliest(&mut group), 40, "begun anew: {begin_anew}");
    }
}

#[test]
fn what_a_crane_has_is_no_less_when_it_takes_less() {
    for begins_anew in [false, true] {
        let mut group = crane::group();
        crane::register(&mut group, "crane", 4, Some(1));
        // One that gives an executor all that it takes.
        let (job, policy) = ("pack".into(), "least-outstanding".into());
        let set = Concern::SetPolicy { job, policy, recorded: false };
        group.ask(0, Request::Executor(set)).unwrap();
        (0..5).for_each(|_| group.pass(2_000));
        for _ in 0..4 {
            start(&mut group, 1, "parcel", None).1.unwrap();
        }
        assert_eq!(given(&mut group).len(), 4);
        if begins_anew {
            group.is_lost = |message| matches!(message, Message::Turn(_));
            group.open(1);
        }
        crane::register(&mut group, "crane", 1, None);
        let earliest = earliest(&mut group);
        assert!(earliest >= 49, "begun anew: {begins_anew}, {earliest}");
    }
}

#[test]
fn a_crane_that_is_never_idle_has_done_what_was_forgotten_after_a_while() {
    let mut group = crane::group();
    start(&mut group, 0, "parcel", None).1.unwrap();
    assert_eq!(given(&mut group).len(), 1);
    group.open(0);
    (0..5).for_each(|_| group.pass(1_000));
    let mut has = given(&mut group).pop().expect("it is given again");
    let mut dates = Vec::new();
    for _ in 0..6 {
        dates.push(earliest(&mut group));
        start(&mut group, 0, "parcel", None).1.unwrap();
        (0..59).for_each(|_| group.pass(10_000));
        done(&mut group, &has);
        has = given(&mut group).pop().expect("the next");
    }
    // Three servers may have given one each.
    assert_eq!(dates, [30, 30, 30, 30, 20, 20]);
}

#[test]
fn what_a_case_has_open_that_is_still_to_be_read_counts() {
    let mut group = crane::group();
    start(&mut group, 1, "parcel", None).1.unwrap();
    assert_eq!(given(&mut group).len(), 1);
    group.is_lost = |message| matches!(message, Message::Turn(_));
    let server = &mut group.servers[1];
    server.config.life += 1 << 40;
    server.site = Site::new(server.config.clone());
    let mut late = Vec::new();
    for (id, records) in server.streams.clone() {
        let is_instance = id != StreamId::SITE.0 && id != StreamId::PLANS.0;
        // A snapshot that another version has written.
        let snapshot = is_instance.then(|| (records.len() as u64, vec![1, 2, 3]));
        let kept = if is_instance { Vec::new() } else { records.clone() };
        let stream = Stream { id, snapshot, records: kept };
        let outputs = server.site.handle(Input::Recovered(stream), Timestamp(group.now));
        if outputs.iter().any(|output| matches!(output, Output::Load { .. })) {
            late.push(Stream { id, snapshot: None, records });
        }
        if id == StreamId::SITE.0 {
            server.site.handle(Input::SiteRecovered, Timestamp(group.now));
        }
    }
    assert_eq!(late.len(), 1);
    group.pass(0);
    late.into_iter().for_each(|stream| group.feed(1, Input::Loaded(stream)));
    (0..5).for_each(|_| group.pass(1_000));
    assert_eq!(given(&mut group).len(), 1, "it is given again");
    assert_eq!(earliest(&mut group), 30);
}

#[test]
fn who_was_not_there_before_has_nothing_from_before() {
    let mut group = Group::new(1, 1);
    group.ask(0, Request::Deploy { source: crane::PACK.to_owned() }).unwrap();
    start(&mut group, 0, "parcel", None).1.unwrap();
    group.open(0);
    (0..3).for_each(|_| group.pass(1_000));
    crane::register(&mut group, "crane", 1, None);
    assert_eq!(given(&mut group).len(), 1);
    assert_eq!(earliest(&mut group), 20);
}

#[test]
fn nothing_is_withdrawn_where_what_is_forgotten_takes_as_long_as_was_said() {
    for of_type in [None, Some(1)] {
        let mut group = crane::group();
        crane::register_of_type(&mut group, 4, Some(1), of_type);
        for place in 0..3 {
            start(&mut group, place, "parcel", None).1.unwrap();
        }
        let all = given(&mut group).into_iter();
        let own = all.into_iter().find(|(place, _)| *place == 0).expect("one from here");
        group.is_lost = |message| matches!(message, Message::Turn(_));
        group.open(1);
        group.open(2);
        let minutes = earliest(&mut group);
        start(&mut group, 0, "parcel", Some(minutes)).1.unwrap();
        (0..59).for_each(|_| group.pass(10_000));
        done(&mut group, &own);
        // It does the other two, ten minutes each, and then what was promised.
        (0..179).for_each(|_| group.pass(10_000));
        let promised = given(&mut group).into_iter().find(|(place, _)| *place == 0);
        done(&mut group, &promised.expect("its turn"));
        assert_eq!(deadlines(&group), (1, 0, 0));
    }
}
