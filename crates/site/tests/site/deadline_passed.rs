//! Deadlines that pass: counted, written down and told at that moment, once, and followed as the process says.

use std::sync::Arc;
use std::time::Duration;

use legwork_mail::Tell;
use legwork_model::id::InstanceId;
use legwork_site::*;

use crate::support::mailer::{as_mailer, next};
use crate::support::office::{CLAIM, FRIDAY, OFFICE, at, complete, short};
use crate::support::{Harness, LOAN, claim, data_of};

const ID: InstanceId = InstanceId(1 << 80);
const MINUTE: u64 = 60;

/// The office of those who have addresses; Eva starts cases.
fn office(late: &str) -> Harness {
    let mut harness = Harness::new();
    harness.now = at(FRIDAY);
    harness.config.mail = Some(Tell { assignment: false, ..Tell::default() });
    harness.site = Site::new(harness.config.clone());
    let people = OFFICE
        .replace("calendar: office }", "calendar: office, mail: NAME@office }")
        .replacen("NAME", "ann", 1)
        .replace("NAME", "bea")
        + "  eva: { mail: eva@office }\n";
    harness.ask(Request::PublishOrganisation { source: people }).unwrap();
    let source = CLAIM.replace("data:", &format!("late: {late}\ndata:"));
    harness.ask(Request::Deploy { source }).unwrap();
    harness
}

fn start(harness: &mut Harness, deadline: &str) -> bool {
    start_as(harness, ID, deadline)
}

/// Whether it is promised.
fn start_as(harness: &mut Harness, instance: InstanceId, deadline: &str) -> bool {
    let mut wish = Wish::new(at(deadline));
    wish.unpromised = Unpromised::Start;
    let request = Request::Start(Start {
        instance,
        process: Arc::from("claim"),
        version: None,
        data: data_of(serde_json::json!({ "sum": 7 })),
        agent: Some("eva".into()),
        key: None,
        wait_until: None,
        deadline: Some(Box::new(wish)),
    });
    let Ok(Answer::Started { instance, .. }) = harness.ask(request) else { panic!("a start") };
    instance.deadline.unwrap().promised
}

fn go_to(harness: &mut Harness, moment: &str) {
    harness.now = at(moment);
    harness.feed(Input::Settle);
}

fn info(harness: &mut Harness) -> InstanceInfo {
    let show = Request::Show { instance: ID, wait_until: None };
    let Ok(Answer::Instance(view)) = harness.ask(show) else { panic!("a case") };
    view.info
}

fn deadline(harness: &mut Harness) -> DeadlineView {
    info(harness).deadline.unwrap()
}

/// What the history says of deadlines and of the end.
fn history(harness: &mut Harness) -> Vec<String> {
    let request = Request::History { instance: ID, from: 0, limit: 100 };
    let Ok(Answer::History { entries, .. }) = harness.ask(request) else { panic!("a history") };
    let told = entries.into_iter().filter(|it| matches!(it.kind, "deadline_passed" | "aborted"));
    let detail = |it: &HistoryEntry| it.detail.clone().unwrap_or_default();
    told.map(|it| format!("{} {}: {}", short(it.at), it.kind, detail(&it))).collect()
}

/// All letters that are due, each told, as `late eva@office: check`.
fn letters(harness: &mut Harness) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(letter) = next(harness) {
        all.push(match &letter.content {
            Content::Deadline(passing) => {
                let steps = passing.steps.join(", ");
                format!("{} {}: {steps} {:?}", passing.kind, letter.address, passing.then)
            }
            Content::Case(turn) => format!("{} {}", turn.kind, letter.address),
            Content::Digest { .. } => format!("digest {}", letter.address),
            Content::Item { about, .. } => format!("{} {}", about.kind, letter.address),
        });
        as_mailer(harness, Mailing::Told(letter.notice));
    }
    all
}

fn counts(harness: &Harness) -> (u64, u64) {
    let counts = harness.site.deadlines();
    (counts.kept, counts.broken)
}

const NONE: [&str; 0] = [];
const PASSED: &str = "16 16:00 deadline_passed: 2026-01-16T16:00:00.000Z";

#[test]
fn a_promised_case_that_somebody_holds_is_late_at_that_moment_and_both_are_told_once() {
    let mut harness = office("tell");
    assert!(start(&mut harness, "2026-01-16T16:00:00Z"));
    go_to(&mut harness, "2026-01-16T09:00:00Z");
    harness.ask(claim("ann", ID, "check")).unwrap();
    go_to(&mut harness, "2026-01-16T16:00:00Z");
    assert_eq!((history(&mut harness).len(), counts(&harness)), (0, (0, 0)), "it can be in time");
    // Nobody has to ask for it.
    let due = harness.site.next_timeout().unwrap();
    assert!(due <= at("2026-01-16T16:00:00.001Z"), "{due}");
    go_to(&mut harness, "2026-01-16T16:00:00.001Z");
    assert_eq!(history(&mut harness), [PASSED]);
    assert_eq!(counts(&harness), (0, 1));
    let steps: Vec<_> = harness.site.broken().map(|(place, _)| place.step.to_string()).collect();
    assert_eq!(steps, ["check"]);
    let both = ["late ann@office: check Tell", "late eva@office: check Tell"];
    assert_eq!(letters(&mut harness), both);
    let passed = deadline(&mut harness).passed.unwrap();
    assert_eq!((passed.at, passed.extended), (at("2026-01-16T16:00:00Z"), 0));
    for _ in 0..3 {
        harness.restart();
        harness.pass(Duration::from_secs(MINUTE));
        assert_eq!(letters(&mut harness), NONE);
    }
    complete(&mut harness, ID, "check", "ann");
    complete(&mut harness, ID, "approve", "bea");
    assert_eq!((history(&mut harness).len(), counts(&harness)), (1, (0, 0)), "counted before");
}

#[test]
fn a_case_that_nobody_promised_or_holds_is_late_as_well_and_so_is_one_that_is_suspended() {
    for suspended in [false, true] {
        let mut harness = office("tell");
        assert!(!start(&mut harness, "2026-01-16T09:00:00Z"));
        if suspended {
            harness.ask(Request::Suspend { instance: ID, reason: None }).unwrap();
        }
        go_to(&mut harness, "2026-01-16T09:00:01Z");
        let told = ["16 09:00 deadline_passed: 2026-01-16T09:00:00.000Z"];
        assert_eq!(
            (history(&mut harness), counts(&harness)),
            (told.map(str::to_owned).into(), (0, 1))
        );
        assert_eq!(harness.site.broken().count(), 0, "nobody had promised it");
        assert_eq!(letters(&mut harness), ["late eva@office: check Tell"]);
        // A later holder sees it in the list.
        if !suspended {
            harness.ask(claim("ann", ID, "check")).unwrap();
            assert_eq!(letters(&mut harness), NONE);
        }
    }
}

#[test]
fn a_case_that_is_done_in_time_says_nothing() {
    let mut harness = office("abort");
    assert!(start(&mut harness, "2026-01-16T16:00:00Z"));
    complete(&mut harness, ID, "check", "ann");
    go_to(&mut harness, "2026-01-16T16:00:00Z");
    complete(&mut harness, ID, "approve", "bea");
    go_to(&mut harness, "2026-01-16T17:00:00Z");
    assert_eq!((history(&mut harness).len(), counts(&harness)), (0, (1, 0)));
    assert_eq!(letters(&mut harness), NONE);
}

#[test]
fn what_is_done_after_the_deadline_is_late_also_if_nobody_has_looked_at_it_yet() {
    let mut harness = office("tell");
    start(&mut harness, "2026-01-16T16:00:00Z");
    complete(&mut harness, ID, "check", "ann");
    harness.now = at("2026-01-16T16:00:00.001Z");
    complete(&mut harness, ID, "approve", "bea");
    assert_eq!((history(&mut harness), counts(&harness)), (vec![PASSED.to_owned()], (0, 1)));
    let mut harness = office("abort");
    start(&mut harness, "2026-01-16T16:00:00Z");
    harness.now = at("2026-01-16T16:00:00.001Z");
    let refused = harness.refusal(claim("ann", ID, "check"));
    assert!(refused.contains("aborted"), "{refused}");
}

#[test]
fn a_server_that_was_down_says_it_when_it_is_up_again_also_of_what_is_not_in_memory() {
    let mut harness = office("tell");
    start(&mut harness, "2026-01-16T16:00:00Z");
    harness.now = at("2026-01-16T18:00:00Z");
    harness.restart();
    harness.feed(Input::Settle);
    assert_eq!(history(&mut harness), ["16 18:00 deadline_passed: 2026-01-16T16:00:00.000Z"]);
    let mut harness = office("tell");
    harness.config.resident_max = 1;
    harness.restart();
    assert!(!start(&mut harness, "2026-01-16T09:00:00Z"));
    letters(&mut harness);
    harness.ask(Request::Deploy { source: LOAN.to_owned() }).unwrap();
    for number in 2..6 {
        harness.start(number);
    }
    assert!(harness.site.gauges().instances_resident < 5);
    // It is read first.
    harness.pass(Duration::from_secs(3_601));
    harness.feed(Input::Settle);
    assert_eq!(history(&mut harness), ["16 09:00 deadline_passed: 2026-01-16T09:00:00.000Z"]);
    assert_eq!(letters(&mut harness), ["late eva@office: check Tell"]);
}

#[test]
fn a_process_may_have_its_late_cases_aborted_and_that_is_told_also_after_a_crash() {
    let mut harness = office("abort");
    start(&mut harness, "2026-01-16T16:00:00Z");
    harness.ask(claim("ann", ID, "check")).unwrap();
    go_to(&mut harness, "2026-01-16T16:00:01Z");
    let reason = "its deadline 2026-01-16T16:00:00.000Z has passed (`late: abort`)";
    let aborted = [format!("{PASSED}; the case is aborted"), format!("16 16:00 aborted: {reason}")];
    assert_eq!((history(&mut harness), counts(&harness)), (aborted.into(), (0, 1)));
    assert_eq!(info(&mut harness).lifecycle, Lifecycle::Aborted);
    harness.restart();
    let both = ["late ann@office: check Abort", "late eva@office: check Abort"];
    assert_eq!(letters(&mut harness), both);
    harness.restart();
    assert_eq!(letters(&mut harness), NONE);
}

#[test]
fn a_deadline_that_is_extended_may_pass_again_ten_times() {
    let mut harness = office("{ extend: 1d }");
    assert!(!start(&mut harness, "2026-01-16T09:00:00Z"));
    letters(&mut harness);
    go_to(&mut harness, "2026-01-16T09:00:01Z");
    let extended = "16 09:00 deadline_passed: 2026-01-16T09:00:00.000Z; extended until 2026-01-17T09:00:00.000Z";
    assert_eq!(history(&mut harness), [extended]);
    assert_eq!(deadline(&mut harness).at, at("2026-01-17T09:00:00Z"));
    let told = letters(&mut harness);
    assert!(told[0].starts_with("late eva@office: check Extend"), "{told:?}");
    harness.restart();
    harness.pass(Duration::from_secs(MINUTE));
    assert_eq!(letters(&mut harness), NONE);
    // In the night before it is in danger once more, and is told of that as well.
    go_to(&mut harness, "2026-01-17T06:00:00Z");
    assert_eq!(letters(&mut harness), ["danger eva@office: check Tell"]);
    for day in 17..=28 {
        go_to(&mut harness, &format!("2026-01-{day}T09:00:01Z"));
    }
    let all = history(&mut harness);
    assert_eq!(all.len(), 11, "{all:?}");
    assert_eq!(all[10], "26 09:00 deadline_passed: 2026-01-26T09:00:00.000Z");
    assert_eq!(counts(&harness), (0, 0), "counted when it passed first");
    let passed = deadline(&mut harness).passed.unwrap();
    assert_eq!((passed.at, passed.extended), (at("2026-01-26T09:00:00Z"), 10));
    assert_eq!(letters(&mut harness), ["late eva@office: check Tell"]);
}

#[test]
fn what_nobody_promised_any_more_is_tried_again_when_the_deadline_is_extended() {
    let mut harness = office("{ extend: 4d }");
    assert!(start(&mut harness, "2026-01-16T16:00:00Z"));
    // Nobody begins it.
    for hour in 9..16 {
        go_to(&mut harness, &format!("2026-01-16T{hour:02}:30:00Z"));
        (0..3).for_each(|_| harness.pass(Duration::from_secs(5)));
    }
    assert!(!deadline(&mut harness).promised);
    go_to(&mut harness, "2026-01-16T16:00:01Z");
    (0..10).for_each(|_| harness.pass(Duration::from_secs(5)));
    let deadline = deadline(&mut harness);
    assert_eq!((deadline.at, deadline.promised), (at("2026-01-20T16:00:00Z"), true));
}

#[test]
fn what_is_still_promised_gets_new_dates_when_the_deadline_is_extended() {
    let mut harness = office("{ extend: 4d }");
    assert!(start(&mut harness, "2026-01-16T16:00:00Z"));
    // Nobody has begun it, and nobody has looked at the plans before.
    go_to(&mut harness, "2026-01-16T16:00:01Z");
    (0..10).for_each(|_| harness.pass(Duration::from_secs(5)));
    let deadline = deadline(&mut harness);
    assert_eq!((deadline.at, deadline.promised), (at("2026-01-20T16:00:00Z"), true));
    let begin: Vec<_> = deadline.legs.iter().filter_map(|leg| leg.start).collect();
    assert!(begin.len() == 2 && begin.iter().all(|it| *it >= at("2026-01-19T08:00:00Z")));
    assert_eq!(harness.site.deadlines().revoked, 0);
}

#[test]
fn a_case_that_nobody_promised_is_in_danger_when_what_is_left_takes_longer_than_there_is_time() {
    let mut harness = office("tell");
    // Ann is busy for the day.
    assert!(start_as(&mut harness, InstanceId(2 << 80), "2026-01-16T13:00:00Z"));
    assert!(start_as(&mut harness, InstanceId(3 << 80), "2026-01-16T16:00:00Z"));
    assert!(!start(&mut harness, "2026-01-16T15:00:00Z"));
    assert_eq!(letters(&mut harness), NONE);
    let danger = |harness: &mut Harness| deadline(harness).danger.map(short);
    assert_eq!(danger(&mut harness).as_deref(), Some("16 11:00"), "three hours, and one");
    harness.restart();
    go_to(&mut harness, "2026-01-16T10:30:00Z");
    harness.ask(claim("ann", ID, "check")).unwrap();
    assert_eq!(danger(&mut harness).as_deref(), Some("16 14:00"), "she should be done by then");
    complete(&mut harness, ID, "check", "ann");
    assert_eq!(danger(&mut harness).as_deref(), Some("16 14:00"));
    let told = |harness: &mut Harness| {
        let mut all = letters(harness);
        all.retain(|letter| letter.starts_with("danger"));
        all
    };
    go_to(&mut harness, "2026-01-16T13:59:00Z");
    assert_eq!(told(&mut harness), NONE);
    go_to(&mut harness, "2026-01-16T14:00:00Z");
    assert_eq!(told(&mut harness), ["danger eva@office: approve Tell"]);
    for _ in 0..3 {
        harness.restart();
        harness.pass(Duration::from_secs(MINUTE));
        assert_eq!(told(&mut harness), NONE);
    }
}
