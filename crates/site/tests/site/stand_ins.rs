//! Deadlines and those who stand in for others: they are asked for the time in which somebody is away, and for no other.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Harness, activity, claim, data_of};
use legwork_model::event::Performer;
use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_site::*;

/// A Monday at eight.
const MONDAY: &str = "2026-01-19T08:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Ann is a clerk, and Ben stands in for her while she is absent.
fn people(absent: &str) -> String {
    format!(
        "organisation: office\ncalendars:\n  office: {{ zone: UTC, hours: {{ mon-fri: '08:00-16:00' }} }}\nagents:\n  \
         ann: {{ roles: [clerk], share: 100, calendar: office, substitutes: [ben], absent: [{absent}] }}\n  \
         ben: {{ roles: [guard], share: 100, calendar: office }}\n"
    )
}

fn publish(harness: &mut Harness, source: String) {
    harness.ask(Request::PublishOrganisation { source }).unwrap();
}

/// On Monday at eight, with a check that takes a clerk so long.
fn office(absent: &str, takes: &str) -> Harness {
    let mut harness = Harness::new();
    harness.now = at(MONDAY);
    publish(&mut harness, people(absent));
    let source = format!(
        "process: claim\nsteps:\n  - {{ step: check, who: Role(clerk), takes: {takes} }}\n"
    );
    harness.ask(Request::Deploy { source }).unwrap();
    harness
}

/// Starts a claim that is to be done by then (`20T16`); answers who does it when, or the earliest date.
fn start(harness: &mut Harness, number: u128, deadline: &str) -> String {
    let wish = Wish::new(at(&format!("2026-01-{deadline}:00:00Z")));
    let start = Start {
        instance: InstanceId(number << 80),
        process: Arc::from("claim"),
        version: None,
        data: data_of(serde_json::json!({})),
        agent: None,
        key: None,
        wait_until: None,
        deadline: Some(Box::new(wish)),
    };
    match harness.ask(Request::Start(start)) {
        Ok(Answer::Started { instance, .. }) => planned(instance.deadline.as_ref().unwrap()),
        Ok(other) => panic!("{other:?}"),
        Err(refusal) => {
            format!("earliest {}", refusal.earliest().map_or("never".into(), short))
        }
    }
}

fn planned(deadline: &DeadlineView) -> String {
    let leg = &deadline.legs[0];
    let Some(Performer::Agent(by)) = &leg.by else { return "nobody".to_owned() };
    format!("{by} {} to {}", short(leg.start.unwrap()), short(leg.end.unwrap()))
}

/// Who does a claim when, by now.
fn stands(harness: &mut Harness, number: u128) -> String {
    let show = Request::Show { instance: InstanceId(number << 80), wait_until: None };
    let Ok(Answer::Instance(shown)) = harness.ask(show) else { panic!("an instance") };
    planned(shown.info.deadline.as_ref().unwrap())
}

fn history_len(harness: &mut Harness, number: u128) -> usize {
    let request = Request::History { instance: InstanceId(number << 80), from: 0, limit: 100 };
    let Ok(Answer::History { entries, .. }) = harness.ask(request) else { panic!("a history") };
    entries.len()
}

fn short(moment: Timestamp) -> String {
    moment.to_string()[8..16].replace('T', " ")
}

#[test]
fn whoever_stands_in_is_not_planned_for_when_the_other_is_back() {
    let mut harness = office("{ from: 2026-01-18, to: 2026-01-19T12:00:00Z }", "2h");
    harness.now = at("2026-01-19T11:00:00Z");
    assert_eq!(start(&mut harness, 1, "19T16"), "ann 19 12:00 to 19 14:00");
    assert_eq!(start(&mut harness, 2, "19T16"), "ann 19 14:00 to 19 16:00");
    // Ben has all day, but sees nothing of it from noon on.
    assert_eq!(start(&mut harness, 3, "19T16"), "earliest 20 10:00");
}

#[test]
fn whoever_will_stand_in_is_asked_for_that_time() {
    let mut harness = office("{ from: 2026-01-20, to: 2026-01-30 }", "10h");
    assert_eq!(start(&mut harness, 1, "21T16"), "ben 20 08:00 to 21 10:00");
    // Also when a date is looked for.
    assert_eq!(start(&mut harness, 2, "19T16"), "earliest 22 12:00");
}

#[test]
fn who_falls_ill_is_stood_in_for_and_the_promise_goes_on() {
    let mut harness = office("", "3h");
    assert_eq!(start(&mut harness, 1, "19T16"), "ann 19 08:00 to 19 11:00");
    publish(&mut harness, people("{ from: 2026-01-19, to: 2026-01-23 }"));
    assert_eq!(stands(&mut harness, 1), "ben 19 08:00 to 19 11:00");
    // Ann was not ill after all: Ben sees nothing of it now.
    publish(&mut harness, people(""));
    assert_eq!(stands(&mut harness, 1), "ann 19 08:00 to 19 11:00");
    assert_eq!(harness.site.deadlines().revoked, 0);
}

#[test]
fn what_somebody_ill_has_claimed_is_promised_by_who_stands_in_and_by_nobody_else() {
    let mut harness = office("", "3h");
    let ill = "{ from: 2026-01-19T08:00:00Z, to: 2026-01-23 }";
    // Abe is a clerk too, and has time; but he cannot take what Ann has claimed.
    let abe = "  abe: { roles: [clerk], share: 100, calendar: office }\n";
    let instance = InstanceId(1 << 80);
    start(&mut harness, 1, "19T12");
    harness.ask(claim("ann", instance, "check")).unwrap();
    publish(&mut harness, format!("{}{abe}", people(ill)));
    assert_eq!(stands(&mut harness, 1), "ben 19 08:00 to 19 11:00");
    // Ben takes it over, and it is known that he works on it.
    harness.ask(claim("ben", instance, "check")).unwrap();
    harness.pass(Duration::from_secs(3 * 3600));
    assert_eq!(harness.site.deadlines().revoked, 0);
    let complete = Complete {
        agent: "ben".into(),
        activity: activity(instance, "check"),
        data: data_of(serde_json::json!({})),
        answer: None,
        request: None,
    };
    harness.ask(Request::Complete(complete)).unwrap();
    assert_eq!(harness.site.deadlines().kept, 1);
}

#[test]
fn until_when_somebody_stands_in_is_not_forgotten_in_a_crash() {
    let mut harness = office("{ from: 2026-01-18, to: 2026-01-19T12:00:00Z }", "1h");
    harness.now = at("2026-01-19T11:00:00Z");
    assert_eq!(start(&mut harness, 5, "19T16"), "ben 19 11:00 to 19 12:00");
    for number in 1..=4 {
        let planned = start(&mut harness, number, "19T16");
        assert!(planned.starts_with("ann"), "{planned}");
    }
    harness.restart();
    // Whoever does not begin now is not done by noon.
    harness.pass(Duration::from_secs(300));
    assert_eq!(stands(&mut harness, 5), "nobody");
}

/// Ann is away on Monday and on Wednesday from eight to twelve.
const TWICE: &str = "{ from: 2026-01-19T08:00:00Z, to: 2026-01-19T12:00:00Z }, \
                     { from: 2026-01-21T08:00:00Z, to: 2026-01-21T12:00:00Z }";

/// Ann has no time before Wednesday, and Ben an hour on Monday morning.
fn away_twice() -> Harness {
    let mut harness = office(TWICE, "3h");
    for (number, planned) in [
        (1, "ben 19 08:00 to 19 11:00"),
        (2, "ann 19 12:00 to 19 15:00"),
        (3, "ann 19 15:00 to 20 10:00"),
        (4, "ann 20 10:00 to 20 13:00"),
        (5, "ann 20 13:00 to 20 16:00"),
    ] {
        let deadline = if number == 1 { "19T12" } else { "20T16" };
        assert_eq!(start(&mut harness, number, deadline), planned);
    }
    harness
}

#[test]
fn whoever_stands_in_twice_is_asked_for_the_second_time_if_the_first_is_full() {
    let mut harness = away_twice();
    assert_eq!(start(&mut harness, 6, "20T16"), "earliest 21 11:00");
    assert_eq!(start(&mut harness, 6, "21T12"), "ben 21 08:00 to 21 11:00");
    // Both are full now, and Ann has to do it herself.
    assert_eq!(start(&mut harness, 7, "21T12"), "earliest 21 15:00");
}

#[test]
fn who_stands_in_for_the_second_time_still_does_after_a_change_and_a_crash() {
    let mut harness = away_twice();
    assert_eq!(start(&mut harness, 6, "21T12"), "ben 21 08:00 to 21 11:00");
    let before = history_len(&mut harness, 6);
    // A new organisation that says the same of him.
    publish(&mut harness, format!("{}  abe: {{ roles: [guard] }}\n", people(TWICE)));
    harness.restart();
    harness.pass(Duration::from_secs(300));
    // Nothing of it was promised anew, nor does it take the time of the first away from others.
    assert_eq!(stands(&mut harness, 6), "ben 21 08:00 to 21 11:00");
    assert_eq!(history_len(&mut harness, 6), before);
    assert_eq!(stands(&mut harness, 1), "ben 19 08:00 to 19 11:00");
    assert_eq!(harness.site.deadlines().revoked, 0);
    // The second time is not needed any more: Ann does it, or nobody.
    let first = TWICE.split(", {").next().unwrap();
    publish(&mut harness, people(first));
    assert_eq!(stands(&mut harness, 6), "ann 21 08:00 to 21 11:00");
}

#[test]
fn who_is_barred_because_somebody_else_did_the_first_step_has_not_promised_the_second() {
    let mut harness = Harness::new();
    harness.now = at(MONDAY);
    let two = people("").replace("roles: [guard]", "roles: [clerk]");
    publish(&mut harness, two);
    let source = "process: claim\nsteps:\n  - { step: check, who: Role(clerk), takes: 1h }\n  - \
                  { step: approve, who: Role(clerk) EXCEPT NodePerformingAgent(check), takes: 1h }\n";
    harness.ask(Request::Deploy { source: source.to_owned() }).unwrap();
    let planned = start(&mut harness, 1, "20T16");
    let (first, other) = if planned.starts_with("ann") { ("ann", "ben") } else { ("ben", "ann") };
    // Whoever was to approve does the check.
    let id = InstanceId(1 << 80);
    harness.ask(claim(other, id, "check")).unwrap();
    let complete = crate::support::complete(other, id, "check");
    harness.ask(Request::Complete(complete)).unwrap();
    let Ok(Answer::Instance(view)) = harness.ask(Request::Show { instance: id, wait_until: None })
    else {
        panic!("an instance")
    };
    let deadline = view.info.deadline.unwrap();
    assert!(deadline.promised);
    let by =
        deadline.legs.iter().find(|leg| &*leg.step == "approve").and_then(|leg| leg.by.clone());
    assert_eq!(by, Some(Performer::Agent(first.into())));
}

/// Cora manages them all, and is away.
const CORA_IS_AWAY: &str = "\
organisation: office
units: { office: { manager: cora } }
positions: { staff: { unit: office } }
agents:
  ann: { positions: [staff], roles: [clerk] }
  ben: { positions: [staff] }
  cora: { substitutes: [ann, ben], absent: [{ from: 2026-01-01 }] }
";

#[test]
fn whoever_asks_for_something_is_not_planned_to_approve_it_for_their_manager() {
    let mut harness = Harness::new();
    harness.now = at(MONDAY);
    publish(&mut harness, CORA_IS_AWAY.to_owned());
    let source = "process: claim\nsteps:\n  - { step: ask, who: Role(clerk), takes: 1h }\n  - \
                  { step: approve, who: ManagerOf(NodePerformingAgent(ask)), takes: 1h }\n";
    harness.ask(Request::Deploy { source: source.to_owned() }).unwrap();
    assert!(start(&mut harness, 1, "20T16").starts_with("ann"));
    let id = InstanceId(1 << 80);
    let approves = |harness: &mut Harness| {
        let show = Request::Show { instance: id, wait_until: None };
        let Ok(Answer::Instance(view)) = harness.ask(show) else { panic!("an instance") };
        let legs = view.info.deadline.unwrap().legs;
        legs.iter().find(|leg| &*leg.step == "approve").and_then(|leg| leg.by.clone())
    };
    let ben = Some(Performer::Agent("ben".into()));
    assert_eq!(approves(&mut harness), ben);
    harness.ask(claim("ann", id, "ask")).unwrap();
    harness.ask(Request::Complete(crate::support::complete("ann", id, "ask"))).unwrap();
    assert_eq!(approves(&mut harness), ben);
    assert_eq!((harness.items("ann"), harness.items("ben")), (vec![], vec!["approve".to_owned()]));
    // Nor does anybody give it to her.
    let give = Request::Delegate {
        agent: "ben".into(),
        activity: activity(id, "approve"),
        to: "ann".into(),
    };
    assert!(harness.refusal(give).ends_with("(barred)"));
    harness.ask(Request::Complete(crate::support::complete("ben", id, "approve"))).unwrap();
    assert_eq!(harness.site.deadlines().kept, 1);
}

#[test]
fn who_is_away_and_has_somebody_standing_in_takes_nobodys_time_to_spare() {
    let away = "absent: [{ from: 2026-01-01, to: 2026-02-28 }]";
    for (bea, others) in [
        ("roles: [manager], share: 100, calendar: office".to_owned(), ""),
        (
            format!("roles: [manager], share: 100, calendar: office, substitutes: [zoe], {away}"),
            "\n  zoe: { roles: [guard], share: 100, calendar: office }",
        ),
    ] {
        let mut harness = office("", "3h");
        let source = format!("{}  bea: {{ {bea} }}{others}\n", people(""));
        publish(&mut harness, source);
        let source = "process: claim\nsteps:\n  - { step: check, who: Role(clerk), takes: 3h }\n  \
                      - { step: approve, who: Role(manager), takes: 1h }\n";
        harness.ask(Request::Deploy { source: source.to_owned() }).unwrap();
        start(&mut harness, 1, "22T16");
        let show = Request::Show { instance: InstanceId(1 << 80), wait_until: None };
        let Ok(Answer::Instance(shown)) = harness.ask(show) else { panic!("an instance") };
        let deadline = shown.info.deadline.unwrap();
        assert!(deadline.promised);
        // Three quarters of the time until Thursday evening are for the check.
        assert_eq!(short(deadline.legs[0].due), "21 16:00", "bea: {{ {bea} }}");
    }
}
