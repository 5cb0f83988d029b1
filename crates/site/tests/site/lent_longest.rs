//! How long that takes at the most which executors may still have.

use crate::support::crane::{self, asked, done, earliest, earliest_of, given, start};
use crate::support::group::Group;
use legwork_site::*;

/// Packed by a server of the south.
const SENT: &str = "process: sent\nsteps:\n  \
                    - { step: pack, job: pack, at: south, takes: 10m, timeout: 1h }\n";

/// The crane takes twenty minutes each time for what is said to take ten.
fn learn(group: &mut Group, process: &str) {
    for _ in 0..10 {
        start(group, 0, process, Some(200)).1.unwrap();
        (0..5).for_each(|_| group.pass(1_000));
        let has = given(group).pop().expect("it is given");
        (0..119).for_each(|_| group.pass(10_000));
        done(group, &has);
    }
}

#[test]
fn what_was_promised_for_a_job_counts_also_where_nobody_has_learned_it() {
    let mut group = crane::group();
    group.ask(0, Request::Deploy { source: SENT.to_owned() }).unwrap();
    learn(&mut group, "sent");
    // South has the job, north has learned how long such take.
    start(&mut group, 0, "sent", Some(200)).1.unwrap();
    (0..5).for_each(|_| group.pass(1_000));
    assert_eq!(given(&mut group).len(), 1);
    let before = earliest(&mut group);
    group.is_lost = |message| matches!(message, Message::Turn(_));
    group.open(2);
    (0..30).for_each(|_| group.pass(1_000));
    assert_eq!(before, 30, "behind what it has");
    assert_eq!(earliest(&mut group), 30, "behind what it may have; what is promised can wait");
}

#[test]
fn what_was_learned_since_it_was_looked_at_counts() {
    let mut group = crane::group();
    let other = crane::PACK.replace("parcel", "crate");
    group.ask(0, Request::Deploy { source: other }).unwrap();
    group.is_lost = |message| matches!(message, Message::Kept { .. });
    assert_eq!(earliest_of(&mut group, "crate"), 30, "one from each of two");
    group.is_lost = |_| false;
    learn(&mut group, "parcel");
    // It is not kept any more after a while.
    (0..70).for_each(|_| group.pass(10_000));
    group.is_lost = |message| matches!(message, Message::Kept { .. });
    assert_eq!(earliest_of(&mut group, "crate"), 50, "one from each of two, of twenty minutes");
}

#[test]
fn what_is_forgotten_may_take_as_long_as_a_version_says_that_was_deployed_later() {
    let mut group = crane::group();
    group.is_lost = |message| matches!(message, Message::Kept { .. });
    assert_eq!(earliest(&mut group), 30, "one from each of two");
    let longer = crane::PACK.replace("10m", "20m").replace("parcel", "crate");
    group.ask(0, Request::Deploy { source: longer }).unwrap();
    // It is asked anew what another one has.
    crane::register(&mut group, "winch", 1, None);
    group.ask(0, Request::Executor(Concern::Remove { name: "crane".into() })).unwrap();
    (0..5).for_each(|_| group.pass(1_000));
    assert_eq!(earliest(&mut group), 50, "one from each of two");
}

#[test]
fn a_job_without_a_time_takes_as_long_as_was_seen_of_its_size() {
    let source = "process: heap\ndata: { n: int }\nstart: [n]\nsteps:\n  \
                  - { step: pack, job: pack, size: n, reads: [n] }\n";
    let mut group = Group::new(1, 1);
    group.ask(0, Request::Deploy { source: source.to_owned() }).unwrap();
    crane::register(&mut group, "crane", 1, None);
    // A minute for one, ten times.
    for _ in 0..10 {
        let (mut request, _) = asked(&mut group, 0, "heap", None);
        if let Request::Start(start) = &mut request {
            start.data.insert("n".to_owned(), 10.into());
        }
        group.ask(0, request).unwrap();
        (0..60).for_each(|_| group.pass(10_000));
        let has = given(&mut group).pop().expect("a heap");
        done(&mut group, &has);
    }
    group.ask(0, Request::Deploy { source: crane::PACK.replace("10m", "1m") }).unwrap();
    group.is_lost = |message| matches!(message, Message::Kept { .. });
    let date = earliest(&mut group);
    assert!((19..=24).contains(&date), "nearly ten minutes from each of two: {date}");
}
