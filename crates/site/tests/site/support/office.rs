//! An office whose clerk and manager do claims, and what is promised of those.

use std::sync::Arc;

use legwork_model::event::Performer;
use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_site::*;

use super::{Harness, activity, data_of};

pub(crate) const OFFICE: &str = r#"
organisation: office
calendars:
  office: { zone: UTC, hours: { mon-fri: "08:00-16:00" } }
agents:
  ann: { roles: [clerk], share: 100, calendar: office }
  bea: { roles: [manager], share: 100, calendar: office }
"#;

pub(crate) const CLAIM: &str = r#"
process: claim
data: { sum: int }
start: [sum]
steps:
  - { step: check, who: Role(clerk), reads: [sum], takes: 3h }
  - { step: approve, who: Role(manager), reads: [sum], takes: 1h }
"#;

/// A Friday at eight.
pub(crate) const FRIDAY: &str = "2026-01-16T08:00:00Z";

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(crate) fn office() -> Harness {
    let mut harness = Harness::new();
    harness.now = at(FRIDAY);
    harness.ask(Request::PublishOrganisation { source: OFFICE.to_owned() }).unwrap();
    harness.ask(Request::Deploy { source: CLAIM.to_owned() }).unwrap();
    harness
}

pub(crate) fn wish(number: u128, deadline: &str, change: impl FnOnce(&mut Wish)) -> Request {
    let mut wish = Wish::new(at(deadline));
    change(&mut wish);
    Request::Start(Start {
        instance: InstanceId(number << 80),
        process: Arc::from("claim"),
        version: None,
        data: data_of(serde_json::json!({ "sum": 7 })),
        agent: None,
        key: None,
        wait_until: None,
        deadline: Some(Box::new(wish)),
    })
}

/// Starts a claim with a deadline; answers what is planned, as `check ann 08:00-11:00, …`, or the earliest
/// date.
pub(crate) fn start(harness: &mut Harness, number: u128, deadline: &str) -> String {
    told(harness.ask(wish(number, deadline, |_| {})))
}

pub(crate) fn told(answer: Result<Answer, Refusal>) -> String {
    match answer {
        Ok(Answer::Started { instance, .. }) => plan(instance.deadline.as_ref().unwrap()),
        Ok(Answer::Deadline(deadline)) => plan(&deadline),
        Ok(other) => panic!("{other:?}"),
        Err(refusal) => {
            let earliest = refusal.earliest().map_or("never".to_owned(), short);
            format!("{}, earliest {earliest}", refusal.code)
        }
    }
}

pub(crate) fn short(moment: Timestamp) -> String {
    moment.to_string()[8..16].replace('T', " ")
}

pub(crate) fn plan(deadline: &DeadlineView) -> String {
    let legs = deadline.legs.iter().map(|leg| {
        let Some(Performer::Agent(by)) = &leg.by else { return format!("{} nobody", leg.step) };
        let (start, end) = (leg.start.unwrap(), leg.end.unwrap());
        format!("{} {by} {}-{}", leg.step, short(start), &short(end)[3..])
    });
    let legs: Vec<String> = legs.collect();
    if deadline.promised { legs.join(", ") } else { format!("not promised: {}", legs.join(", ")) }
}

pub(crate) fn complete(harness: &mut Harness, instance: InstanceId, step: &str, agent: &str) {
    let complete = Complete {
        agent: agent.into(),
        activity: activity(instance, step),
        data: data_of(serde_json::json!({})),
        answer: None,
        request: None,
    };
    harness.ask(Request::Complete(complete)).unwrap();
}

pub(crate) fn replanned(harness: &mut Harness, instance: InstanceId) -> Vec<String> {
    let request = Request::History { instance, from: 0, limit: 100 };
    let Ok(Answer::History { entries, .. }) = harness.ask(request) else { panic!("a history") };
    let changes = entries.into_iter().filter(|entry| entry.kind == "replanned");
    changes.filter_map(|entry| entry.detail).collect()
}
