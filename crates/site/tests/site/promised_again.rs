//! Cases whose promise was revoked are tried again, as long as they can be in time, and displace nothing.

use std::time::Duration;

use legwork_model::id::InstanceId;
use legwork_site::*;

use crate::support::office::*;
use crate::support::{Harness, claim};

const FIRST: InstanceId = InstanceId(1 << 80);
const URGENT: InstanceId = InstanceId(9 << 80);

fn shown(harness: &mut Harness, instance: InstanceId) -> String {
    match harness.ask(Request::Show { instance, wait_until: None }) {
        Ok(Answer::Instance(view)) => plan(view.info.deadline.as_ref().unwrap()),
        other => panic!("{other:?}"),
    }
}

fn pass(harness: &mut Harness, seconds: u64) {
    (0..seconds).for_each(|_| harness.pass(Duration::from_secs(1)));
}

/// Ann has time for one claim by noon, and an urgent one has taken the place of the first.
fn displaced() -> Harness {
    let mut harness = office();
    let planned = start(&mut harness, 1, "2026-01-16T12:30:00Z");
    assert!(planned.starts_with("check ann"), "{planned}");
    let urgent = wish(9, "2026-01-16T12:30:00Z", |wish| wish.priority = 9);
    let planned = told(harness.ask(urgent));
    assert!(planned.starts_with("check ann"), "{planned}");
    harness.ask(claim("ann", URGENT, "check")).unwrap();
    assert!(shown(&mut harness, FIRST).starts_with("not promised: check nobody"));
    harness
}

fn abort(harness: &mut Harness, instance: InstanceId) {
    harness.ask(Request::Abort { instance, reason: "no".to_owned() }).unwrap();
}

#[test]
fn what_was_displaced_is_promised_again_when_there_is_time_for_it_after_all() {
    let mut harness = displaced();
    pass(&mut harness, 30);
    abort(&mut harness, URGENT);
    pass(&mut harness, 60);
    let planned = shown(&mut harness, FIRST);
    assert!(planned.starts_with("check ann 16 08:"), "{planned}");
    let history = replanned(&mut harness, FIRST);
    let again = "it can be done in time again; check by ann";
    assert!(history.iter().any(|text| text.starts_with(again)), "{history:?}");
    assert_eq!(harness.site.deadlines().revoked, 1);
    // It counts as any other promise.
    complete(&mut harness, FIRST, "check", "ann");
    complete(&mut harness, FIRST, "approve", "bea");
    assert_eq!(harness.site.deadlines().kept, 1);
}

#[test]
fn nothing_is_written_while_nobody_has_the_time_nor_when_it_is_late() {
    let mut harness = displaced();
    let before = replanned(&mut harness, FIRST);
    pass(&mut harness, 600);
    assert_eq!(replanned(&mut harness, FIRST), before);
    // From now on it cannot be done in time.
    harness.now = at("2026-01-16T11:29:00Z");
    abort(&mut harness, URGENT);
    pass(&mut harness, 120);
    assert_eq!(replanned(&mut harness, FIRST), before);
    let next = harness.site.next_timeout();
    assert!(next.is_none_or(|next| next > harness.now), "nobody tries it any more");
}

#[test]
fn nothing_is_displaced_for_what_is_tried_again() {
    let mut harness = displaced();
    abort(&mut harness, URGENT);
    // Less important, and there first.
    let idle = wish(2, "2026-01-16T12:30:00Z", |wish| wish.priority = 1);
    assert!(told(harness.ask(idle)).starts_with("check ann"));
    pass(&mut harness, 600);
    assert!(shown(&mut harness, FIRST).starts_with("not promised"));
    assert_eq!(replanned(&mut harness, InstanceId(2 << 80)), [] as [&str; 0]);
}

#[test]
fn what_was_revoked_before_a_restart_is_tried_again_after_it() {
    let mut harness = displaced();
    harness.config.resident_max = 1;
    harness.restart();
    abort(&mut harness, URGENT);
    pass(&mut harness, 90);
    assert!(shown(&mut harness, FIRST).starts_with("check ann"));
}

#[test]
fn a_case_that_was_revoked_before_a_restart_is_not_counted_again() {
    let mut harness = displaced();
    harness.restart();
    assert_eq!(harness.site.deadlines().revoked, 0);
    // Another of its steps is lost as well.
    let ill = OFFICE.replace("bea: {", "bea: { absent: [{ from: 2026-01-16 }],");
    harness.ask(Request::PublishOrganisation { source: ill }).unwrap();
    pass(&mut harness, 10);
    assert_eq!(shown(&mut harness, FIRST), "not promised: check nobody, approve nobody");
    // The urgent one is counted.
    assert_eq!(harness.site.deadlines().revoked, 1);
}

#[test]
fn a_case_is_promised_again_when_the_step_that_nobody_had_promised_was_done_in_time() {
    let mut harness = displaced();
    complete(&mut harness, FIRST, "check", "ann");
    abort(&mut harness, URGENT);
    pass(&mut harness, 90);
    let planned = shown(&mut harness, FIRST);
    assert!(planned.starts_with("check ann 16 08:00-08:00, approve bea"), "{planned}");
    complete(&mut harness, FIRST, "approve", "bea");
    assert_eq!(harness.site.deadlines().kept, 1);
}

#[test]
fn a_step_that_is_not_done_by_its_date_gets_a_later_one_as_long_as_the_case_can_be_in_time() {
    let mut harness = office();
    // Until Friday of next week.
    start(&mut harness, 1, "2026-01-23T12:00:00Z");
    let show = Request::Show { instance: FIRST, wait_until: None };
    let Ok(Answer::Instance(shown_first)) = harness.ask(show) else { panic!("an instance") };
    let due = shown_first.info.deadline.unwrap().legs[0].due;
    assert!(due > at("2026-01-21T00:00:00Z") && due < at("2026-01-23T00:00:00Z"), "{due}");
    // Nobody does it until then.
    harness.now = due;
    pass(&mut harness, 60);
    let planned = shown(&mut harness, FIRST);
    assert!(planned.starts_with("check ann") && planned.contains("approve bea"), "{planned}");
    assert!(!replanned(&mut harness, FIRST).is_empty());
    pass(&mut harness, 600);
    complete(&mut harness, FIRST, "check", "ann");
    complete(&mut harness, FIRST, "approve", "bea");
    assert_eq!((harness.site.deadlines().kept, harness.site.deadlines().revoked), (1, 0));
}

#[test]
fn whoever_is_back_is_asked_at_once_and_for_all_steps_that_nobody_has_promised() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T12:30:00Z");
    let ill = OFFICE
        .replace("ann: {", "ann: { absent: [{ from: 2026-01-16 }],")
        .replace("bea: {", "bea: { absent: [{ from: 2026-01-16 }],");
    harness.ask(Request::PublishOrganisation { source: ill }).unwrap();
    pass(&mut harness, 10);
    assert_eq!(shown(&mut harness, FIRST), "not promised: check nobody, approve nobody");
    harness.ask(Request::PublishOrganisation { source: OFFICE.to_owned() }).unwrap();
    pass(&mut harness, 5);
    let planned = shown(&mut harness, FIRST);
    assert!(planned.starts_with("check ann") && planned.contains("approve bea"), "{planned}");
}

#[test]
fn what_is_revoked_only_when_it_is_late_counts_as_broken() {
    let mut harness = office();
    start(&mut harness, 1, "2026-01-16T12:30:00Z");
    // Nobody looked at the plans before.
    harness.now = at("2026-01-16T15:00:00Z");
    pass(&mut harness, 10);
    complete(&mut harness, FIRST, "check", "ann");
    complete(&mut harness, FIRST, "approve", "bea");
    let counts = harness.site.deadlines();
    assert_eq!((counts.revoked, counts.broken), (0, 1));
}
