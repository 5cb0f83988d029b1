//! Deadlines that are asked for: promised, refused with the earliest date, or accepted without a promise.

use std::sync::Arc;
use std::time::Duration;

use crate::support::office::*;
use crate::support::{crane, data_of};
use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_site::*;

#[test]
fn what_is_only_asked_for_is_an_offer_and_is_forgotten_after_a_while() {
    let mut harness = office();
    for _ in 0..3 {
        // It is good for five minutes: so nobody has to begin before.
        let ask = wish(1, "2026-01-16T16:00:00Z", |wish| wish.ask_only = true);
        assert_eq!(told(harness.ask(ask)), "check ann 16 08:05-11:05, approve bea 16 11:05-12:05");
    }
    assert_eq!(harness.site.deadlines(), DeadlineCounts::default());
    harness.pass(Duration::from_secs(400));
    let resource = ResourceId::Person("ann".into());
    let Ok(Answer::Plan(plan)) = harness.ask(Request::Plan { resource }) else { panic!("a plan") };
    assert_eq!(plan.turns, []);
}

#[test]
fn without_a_promise_it_starts_all_the_same_if_that_is_wanted() {
    let mut harness = office();
    let anyway = wish(1, "2026-01-16T09:00:00Z", |wish| wish.unpromised = Unpromised::Start);
    assert_eq!(told(harness.ask(anyway)), "not promised: ");
    let show = Request::Show { instance: InstanceId(1 << 80), wait_until: None };
    let Ok(Answer::Instance(view)) = harness.ask(show) else { panic!("a case") };
    assert_eq!(view.info.deadline.unwrap().revoked, None, "nobody had promised it");
    assert_eq!(harness.site.deadlines().unpromised, 1);
}

#[test]
fn a_step_of_unknown_length_cannot_be_promised_and_it_is_told_which() {
    let mut harness = office();
    let source = CLAIM.replace(", takes: 1h", "");
    harness.ask(Request::Deploy { source }).unwrap();
    let refusal = harness.refusal(wish(1, "2026-01-19T16:00:00Z", |_| {}));
    assert!(refusal.contains("`approve`") && refusal.contains("takes:"), "{refusal}");
}

#[test]
fn a_deadline_in_the_past_or_too_far_ahead_is_refused_saying_what_to_do_instead() {
    let mut harness = office();
    let refusal = harness.refusal(wish(1, "2026-01-16T08:00:00Z", |_| {}));
    assert!(refusal.contains("deadline_past"), "{refusal}");
    assert!(refusal.contains("give a later one, or start it without a deadline"), "{refusal}");
    let refusal = harness.refusal(wish(1, "2028-01-16T08:00:00Z", |_| {}));
    assert!(refusal.contains("deadline_too_far"), "{refusal}");
    assert!(refusal.contains("give an earlier one, or start it without a promise"), "{refusal}");
}

#[test]
fn what_cannot_be_started_is_not_promised() {
    let mut harness = office();
    let Request::Start(start) = wish(1, "2026-01-16T16:00:00Z", |_| {}) else { unreachable!() };
    let data = data_of(serde_json::json!({ "price": 7 }));
    let refusal = harness.ask(Request::Start(Start { data, ..start })).unwrap_err();
    assert_eq!(refusal.code, "unknown_element");
    assert_eq!(harness.site.deadlines().promised, 0);
    let resource = ResourceId::Person("ann".into());
    let Ok(Answer::Plan(plan)) = harness.ask(Request::Plan { resource }) else { panic!("a plan") };
    assert_eq!(plan.turns, []);
}

#[test]
fn nothing_is_displaced_for_a_question() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T16:00:00Z");
    start(&mut harness, 2, "2026-01-16T16:00:00Z");
    let ask = wish(3, "2026-01-16T13:00:00Z", |wish| (wish.priority, wish.ask_only) = (9, true));
    assert!(harness.ask(ask).unwrap_err().earliest().is_some());
    for number in 1..=2 {
        assert_eq!(replanned(&mut harness, InstanceId(number << 80)), [] as [&str; 0]);
    }
}

#[test]
fn nothing_is_displaced_for_a_case_that_is_refused_for_another_step() {
    let mut harness = office();
    let sign = "process: sign\nsteps: [{ step: sign, who: Role(manager), takes: 450m }]";
    harness.ask(Request::Deploy { source: sign.to_owned() }).unwrap();
    // Bea's day is full of what is as important, and nothing is displaced for another step of it.
    let Request::Start(busy) = wish(1, "2026-01-16T16:00:00Z", |wish| wish.priority = 9) else {
        panic!("a start")
    };
    let busy = Start { process: Arc::from("sign"), data: data_of(serde_json::json!({})), ..busy };
    assert!(told(harness.ask(Request::Start(busy))).starts_with("sign bea"));
    for number in 21..=22 {
        let planned = start(&mut harness, number, "2026-01-19T16:00:00Z");
        assert!(planned.starts_with("check ann"), "{planned}");
    }
    let urgent = wish(31, "2026-01-16T14:00:00Z", |wish| wish.priority = 9);
    let refused = told(harness.ask(urgent));
    assert!(refused.starts_with("deadline_not_promised"), "{refused}");
    for number in 21..=22 {
        assert_eq!(replanned(&mut harness, InstanceId(number << 80)), [] as [&str; 0]);
    }
}

#[test]
fn the_earliest_date_can_still_be_promised_when_it_was_read() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T14:00:00Z");
    for (number, asked) in [(2, "2026-01-16T14:00:00Z"), (3, "2026-01-16T16:00:00Z")] {
        let earliest = harness.ask(wish(number, asked, |_| {})).unwrap_err().earliest().unwrap();
        // Nobody works meanwhile.
        harness.now = Timestamp(harness.now.0 + 120_000);
        let told = start(&mut harness, number, &earliest.to_string());
        assert!(told.starts_with("check ann"), "{earliest}: {told}");
    }
    // Nor is it taken back at once because nobody has begun in the same moment.
    harness.pass(Duration::from_secs(60));
    assert_eq!(harness.site.deadlines().revoked, 0);
}

#[test]
fn the_earliest_date_has_five_minutes_for_reading_it_once() {
    let mut harness = office();
    // Ann comes twice, and has two steps one after the other then.
    let source = CLAIM.replace("3h", "1h").trim_end().to_owned()
        + "\n  - { step: file, who: Role(clerk), takes: 1h }\n  \
           - { step: stamp, who: Role(clerk), takes: 30m }\n";
    harness.ask(Request::Deploy { source }).unwrap();
    let refusal = harness.ask(wish(1, "2026-01-16T09:00:00Z", |_| {})).unwrap_err();
    let earliest = refusal.earliest().unwrap();
    assert_eq!(short(earliest), "16 11:35");
    // Who would do what when is told with it, and tells what it waits for.
    let possible = plan(refusal.possible.as_deref().unwrap());
    assert_eq!(
        possible,
        "check ann 16 08:05-09:05, approve bea 16 09:05-10:05, file ann 16 10:05-11:05, stamp ann 16 11:05-11:35"
    );
    harness.now = Timestamp(harness.now.0 + 290_000);
    let told = start(&mut harness, 1, &earliest.to_string());
    assert!(told.starts_with("check ann"), "{told}");
}

#[test]
fn where_nobody_has_anything_to_do_it_is_promised_at_once() {
    let mut harness = office();
    let source = "process: claim\ndata: { sum: int }\nstart: [sum]\nsteps: []\n";
    harness.ask(Request::Deploy { source: source.to_owned() }).unwrap();
    let answer = harness.ask(wish(1, "2026-01-16T16:00:00Z", |_| {})).unwrap();
    let Answer::Started { instance, .. } = answer else { panic!("{answer:?}") };
    assert!(instance.deadline.unwrap().promised);
    let counts = harness.site.deadlines();
    assert_eq!((counts.promised, counts.kept), (1, 1));
}

#[test]
fn a_start_that_is_refused_although_it_could_be_promised_does_not_count_as_promised() {
    let mut group = crane::group();
    // The promise waits for the planner of the crane.
    group.is_lost = |message| matches!(message, Message::Deadline(message::Deadline::Reserve(_)));
    let (request, instance) = crane::asked(&mut group, 1, "parcel", Some(100));
    let id = group.send(1, request);
    assert!(!group.answers.contains_key(&id));
    let (Request::Start(other), _) = crane::asked(&mut group, 1, "parcel", None) else { panic!() };
    group.ask(1, Request::Start(Start { instance, ..other })).unwrap();
    group.is_lost = |_| false;
    (0..100).for_each(|_| group.pass(100));
    assert_eq!(group.answers.remove(&id).unwrap().unwrap_err().code, "instance_exists");
    assert_eq!(group.servers[1].site.deadlines().promised, 0);
}
