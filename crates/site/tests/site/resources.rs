//! Deadlines and the time people have: what they do regularly, who falls ill, who stands in for whom.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Harness, claim, data_of};
use legwork_model::event::Performer;
use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_site::*;

/// A Monday at eight.
const MONDAY: &str = "2026-01-19T08:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn organisation(agents: &str) -> Request {
    let source = format!(
        "organisation: office\ncalendars:\n  office: {{ zone: UTC, hours: {{ mon-fri: '08:00-16:00' }} }}\n\
         agents:\n{agents}"
    );
    Request::PublishOrganisation { source }
}

/// On Monday at eight, with a check that takes a clerk so long.
fn office(agents: &str, takes: &str) -> Harness {
    let mut harness = Harness::new();
    harness.now = at(MONDAY);
    harness.ask(organisation(agents)).unwrap();
    let source = format!(
        "process: claim\nsteps:\n  - {{ step: check, who: Role(clerk), takes: {takes} }}\n"
    );
    harness.ask(Request::Deploy { source }).unwrap();
    harness
}

/// Starts a claim that is to be done by then (`20T16`); answers who does it when, or the earliest date.
fn start(harness: &mut Harness, number: u128, deadline: &str) -> String {
    let wish = Wish::new(at(&format!("2026-01-{deadline}:00:00Z")));
    match harness.ask(start_by(number, wish)) {
        Ok(Answer::Started { instance, .. }) => planned(instance.deadline.as_ref().unwrap()),
        Ok(other) => panic!("{other:?}"),
        Err(refusal) => format!("earliest {}", refusal.earliest().map_or("never".into(), short)),
    }
}

fn start_by(number: u128, wish: Wish) -> Request {
    Request::Start(Start {
        instance: InstanceId(number << 80),
        process: Arc::from("claim"),
        version: None,
        data: data_of(serde_json::json!({})),
        agent: None,
        key: None,
        wait_until: None,
        deadline: Some(Box::new(wish)),
    })
}

fn planned(deadline: &DeadlineView) -> String {
    let legs = deadline.legs.iter().map(|leg| {
        let Some(Performer::Agent(by)) = &leg.by else { return "nobody".to_owned() };
        format!("{by} {} to {}", short(leg.start.unwrap()), short(leg.end.unwrap()))
    });
    legs.collect::<Vec<_>>().join(", ")
}

/// Who does a claim when, by now.
fn stands(harness: &mut Harness, number: u128) -> String {
    let Ok(Answer::Instance(info)) =
        harness.ask(Request::Show { instance: InstanceId(number << 80), wait_until: None })
    else {
        panic!("an instance")
    };
    planned(info.info.deadline.as_ref().unwrap())
}

fn short(moment: Timestamp) -> String {
    moment.to_string()[8..16].replace('T', " ")
}

const ANN: &str = "  ann: { roles: [clerk], share: 100, calendar: office }\n";

fn absent(agent: &str, from: &str, to: &str) -> String {
    ANN.replace("ann", agent).replace(" }", &format!(", absent: [{{ from: {from}, to: {to} }}] }}"))
}

#[test]
fn regular_work_of_the_day_that_has_begun_is_counted() {
    let letters = ANN.replace(" }", ", regularly: [{ task: letters, every: 1d, takes: 1h }] }");
    let mut harness = office(&letters, "2h");
    harness.now = at("2026-01-19T10:00:00Z");
    // Six hours are left of Monday, and one of them is for letters.
    assert_eq!(start(&mut harness, 1, "19T16"), "ann 19 11:00 to 19 13:00");
    assert_eq!(start(&mut harness, 2, "19T16"), "ann 19 13:00 to 19 15:00");
    assert!(start(&mut harness, 3, "19T16").starts_with("earliest 20"));
    // Nor is it forgotten when something else changes.
    let more = format!("{letters}  zoe: {{ roles: [guard] }}\n");
    harness.ask(organisation(&more)).unwrap();
    assert!(start(&mut harness, 3, "19T16").starts_with("earliest 20"));
}

#[test]
fn regular_work_of_a_week_is_promised_to_nobody() {
    let ann = ANN.replace(" }", ", regularly: [{ task: accounts, every: 7d, takes: 20h }] }");
    let mut harness = office(&ann, "20h");
    assert!(start(&mut harness, 1, "23T16").starts_with("ann 21 12:00"));
    assert_eq!(start(&mut harness, 2, "23T16"), "earliest 02 08:05");
    // While Ann does her accounts, and then what she has promised, nothing becomes late.
    works_until(&mut harness, "21T12");
    assert_eq!(stands(&mut harness, 1), "ann 21 12:00 to 23 16:00");
    harness.ask(claim("ann", InstanceId(1 << 80), "check")).unwrap();
    works_until(&mut harness, "23T16");
    assert_eq!(stands(&mut harness, 1), "ann 21 12:00 to 23 16:00");
    assert_eq!(harness.site.deadlines().revoked, 0);
}

#[test]
fn who_writes_letters_by_the_plan_keeps_what_was_promised_behind_them() {
    let letters = ANN.replace(" }", ", regularly: [{ task: letters, every: 1d, takes: 1h }] }");
    let mut harness = office(&letters, "7h");
    assert_eq!(start(&mut harness, 1, "19T16"), "ann 19 09:00 to 19 16:00");
    works_until(&mut harness, "19T09");
    // Nor is it forgotten that they are written when something else changes.
    let more = format!("{letters}  zoe: {{ roles: [guard] }}\n");
    harness.ask(organisation(&more)).unwrap();
    assert_eq!(stands(&mut harness, 1), "ann 19 09:00 to 19 16:00");
    // Then nobody begins, and that is noticed.
    harness.pass(Duration::from_secs(70));
    assert_eq!(stands(&mut harness, 1), "nobody");
}

/// Time passes, a minute at a time.
fn works_until(harness: &mut Harness, until: &str) {
    while harness.now < at(&format!("2026-01-{until}:00:00Z")) {
        harness.pass(Duration::from_secs(60));
    }
}

#[test]
fn somebody_who_will_be_away_on_a_later_day_is_noticed_at_once() {
    let mut harness = office(ANN, "4h");
    let guard = "  zoe: { roles: [guard], share: 100, calendar: office }\n";
    harness.ask(organisation(&format!("{ANN}{guard}"))).unwrap();
    // Two steps, the second of which cannot begin before Wednesday.
    let source = "process: claim\nsteps:\n  - { step: wait, who: Role(guard), takes: 16h }\n  \
                  - { step: check, who: Role(clerk), takes: 4h }\n";
    harness.ask(Request::Deploy { source: source.to_owned() }).unwrap();
    assert_eq!(
        start(&mut harness, 1, "21T16"),
        "zoe 19 08:00 to 20 16:00, ann 21 11:11 to 21 15:11"
    );
    let away = absent("ann", "2026-01-21", "2026-01-21");
    harness.ask(organisation(&format!("{away}{guard}"))).unwrap();
    assert_eq!(stands(&mut harness, 1), "nobody, nobody");
    assert_eq!(harness.site.deadlines().revoked, 1);
}

#[test]
fn who_has_claimed_it_and_falls_ill_is_noticed_before_the_deadline_is_missed() {
    let mut harness = office(ANN, "3h");
    start(&mut harness, 1, "19T16");
    harness.ask(claim("ann", InstanceId(1 << 80), "check")).unwrap();
    harness.now = at("2026-01-19T09:00:00Z");
    let away = absent("ann", "2026-01-19T09:00:00Z", "2026-01-30");
    harness.ask(organisation(&away)).unwrap();
    assert_eq!(stands(&mut harness, 1), "nobody");
    assert_eq!(harness.site.deadlines().revoked, 1);
}

#[test]
fn a_reserve_is_promised_when_a_colleague_falls_ill_and_not_for_what_is_displaced() {
    let ben = ANN.replace("ann", "ben").replace(" }", ", reserve: 50 }");
    let mut harness = office(&format!("{ANN}{ben}"), "4h");
    assert_eq!(start(&mut harness, 1, "19T12"), "ann 19 08:00 to 19 12:00");
    // Of Ben's hours half are free for the time after a fault.
    let mut wish = Wish::new(at("2026-01-19T12:00:00Z"));
    wish.priority = 9;
    let Ok(Answer::Started { instance, .. }) = harness.ask(start_by(2, wish)) else {
        panic!("it displaces the first")
    };
    assert_eq!(planned(instance.deadline.as_ref().unwrap()), "ann 19 08:00 to 19 12:00");
    assert_eq!(stands(&mut harness, 1), "nobody");
    let ill = absent("ann", "2026-01-19", "2026-01-19");
    harness.ask(organisation(&format!("{ill}{ben}"))).unwrap();
    assert_eq!(stands(&mut harness, 2), "ben 19 08:00 to 19 12:00");
    assert_eq!((stands(&mut harness, 1), harness.site.deadlines().revoked), ("nobody".into(), 1));
}

#[test]
fn what_nobody_begins_in_time_is_no_reason_to_use_a_reserve() {
    let ann = ANN.replace("share: 100", "share: 50");
    // With all of his time he could do it until noon.
    let ben = ANN.replace("ann", "ben").replace(" }", ", reserve: 60 }");
    let mut harness = office(&format!("{ann}{ben}"), "4h");
    assert_eq!(start(&mut harness, 1, "19T16"), "ann 19 08:00 to 19 16:00");
    harness.pass(Duration::from_secs(300));
    assert_eq!(stands(&mut harness, 1), "nobody");
}

#[test]
fn nothing_is_promised_for_longer_than_peoples_time_is_known() {
    let mut harness = office(ANN, "3h");
    let too_far = || Wish::new(at("2027-02-24T08:00:00Z"));
    let refusal = harness.ask(start_by(1, too_far())).unwrap_err();
    assert_eq!(refusal.code, "deadline_too_far");
    assert!(refusal.message.contains("2027-02-23T08:00:00"), "{}", refusal.message);
    let last = Wish::new(at("2027-02-23T08:00:00Z"));
    assert!(harness.ask(start_by(1, last)).is_ok());
    // Without a promise a case may have any deadline.
    let mut anyway = too_far();
    anyway.unpromised = Unpromised::Start;
    assert!(harness.ask(start_by(2, anyway)).is_ok());
    assert_eq!(stands(&mut harness, 2), "");
}
