//! Letters to whoever started a case when its deadline is not promised any more, and when it is again.

use std::sync::Arc;
use std::time::Duration;

use legwork_mail::Tell;
use legwork_model::id::{AgentId, InstanceId};
use legwork_model::time::Timestamp;
use legwork_site::*;
use serde_json::json;

use crate::support::mailer::{as_mailer, next};
use crate::support::{Harness, LOAN, data_of};

const OFFICE: &str = r#"
organisation: office
agents:
  ann: { roles: [clerk], share: 100 }
  eva: { mail: eva@office }
  fay: { roles: [guest] }
"#;

const CLAIM: &str = r#"
process: claim
title: Settle a claim
data: { sum: int }
start: [sum]
steps:
  - { step: check, title: Check it, who: Role(clerk), reads: [sum], takes: 3h }
"#;

const HOUR: i64 = 3_600_000;
const ID: InstanceId = InstanceId(1 << 80);

fn publish(office: &mut Harness, source: &str) {
    office.ask(Request::PublishOrganisation { source: source.to_owned() }).unwrap();
}

/// Nobody can do the step any more.
fn falls_ill(office: &mut Harness) {
    publish(office, &OFFICE.replace("ann: {", "ann: { absent: [{ from: 2026-01-01 }],"));
}

fn office_with(tell: Tell) -> Harness {
    let mut office = Harness::new();
    office.config.mail = Some(tell);
    office.site = Site::new(office.config.clone());
    publish(&mut office, OFFICE);
    office.ask(Request::Deploy { source: CLAIM.to_owned() }).unwrap();
    office
}

fn start(office: &mut Harness, instance: InstanceId, agent: Option<&str>) {
    let answer = office.ask(Request::Start(Start {
        instance,
        process: Arc::from("claim"),
        version: None,
        data: data_of(json!({ "sum": 4_711 })),
        agent: agent.map(AgentId::from),
        key: None,
        wait_until: None,
        deadline: Some(Box::new(Wish::new(Timestamp(office.now.0 + 48 * HOUR)))),
    }));
    let Ok(Answer::Started { instance, .. }) = answer else { panic!("{answer:?}") };
    assert!(instance.deadline.unwrap().promised);
}

/// A case that Eva started and that is promised.
fn office() -> Harness {
    let mut office = office_with(Tell::default());
    start(&mut office, ID, Some("eva"));
    office
}

/// All letters of the next so many seconds, each told, as `revocation eva@office`.
fn told(office: &mut Harness, seconds: u64) -> String {
    let mut all = Vec::new();
    for _ in 0..seconds {
        office.pass(Duration::from_secs(1));
        while let Some(letter) = next(office) {
            all.push(match &letter.content {
                Content::Case(turn) => format!("{} {}", turn.kind, letter.address),
                Content::Deadline(passing) => format!("{} {}", passing.kind, letter.address),
                Content::Digest { .. } => {
                    format!("{} cases {}", letter.notice.about.len(), letter.address)
                }
                Content::Item { about, .. } => format!("{} {}", about.kind, letter.address),
            });
            as_mailer(office, Mailing::Told(letter.notice));
        }
    }
    all.join(", ")
}

#[test]
fn whoever_started_a_case_is_told_once_that_nobody_can_do_it_in_time() {
    let mut office = office();
    assert_eq!(told(&mut office, 60), "");
    falls_ill(&mut office);
    assert_eq!(told(&mut office, 4), "");
    office.pass(Duration::from_secs(1));
    let letter = next(&mut office).unwrap();
    let Content::Case(turn) = &letter.content else { panic!("{letter:?}") };
    assert_eq!((&*turn.process, &*turn.step), ("Settle a claim", "Check it"));
    assert_eq!(
        (turn.instance, &*turn.why),
        (ID, "the planned performer is not available any more")
    );
    assert!(!format!("{letter:?}").contains("4711"), "no data of the case");
    assert_eq!(told(&mut office, 60), "revocation eva@office");
    office.restart();
    assert_eq!(told(&mut office, 60), "");
}

#[test]
fn a_letter_that_was_not_told_comes_again_after_a_restart_and_is_the_same() {
    let mut office = office();
    falls_ill(&mut office);
    office.restart();
    office.pass(Duration::from_secs(6));
    let letter = next(&mut office).unwrap();
    office.restart();
    assert_eq!(next(&mut office).unwrap(), letter);
    assert_eq!(told(&mut office, 10), "revocation eva@office");
}

#[test]
fn a_case_that_is_promised_again_is_told_also_after_a_restart() {
    let mut office = office();
    falls_ill(&mut office);
    assert_eq!(told(&mut office, 10), "revocation eva@office");
    // Ann is back, and has the time for it.
    publish(&mut office, OFFICE);
    office.pass(Duration::from_secs(1));
    office.restart();
    assert_eq!(told(&mut office, 10), "promise eva@office");
    office.restart();
    assert_eq!(told(&mut office, 10), "");
}

#[test]
fn nobody_is_told_of_a_case_that_nobody_started_or_that_has_ended() {
    let mut office = office_with(Tell::default());
    start(&mut office, ID, None);
    falls_ill(&mut office);
    assert_eq!(told(&mut office, 10), "");
    let mut office = self::office();
    falls_ill(&mut office);
    office.ask(Request::Abort { instance: ID, reason: "no".to_owned() }).unwrap();
    assert_eq!(told(&mut office, 10), "");
    let mut office = office_with(Tell { promise: false, ..Tell::default() });
    start(&mut office, ID, Some("eva"));
    falls_ill(&mut office);
    assert_eq!(told(&mut office, 10), "");
}

#[test]
fn whoever_gets_an_address_later_is_told_then_also_if_memory_was_short() {
    let mut office = office_with(Tell::default());
    office.config.resident_max = 1;
    office.restart();
    start(&mut office, ID, Some("fay"));
    falls_ill(&mut office);
    assert_eq!(told(&mut office, 10), "");
    office.restart();
    office.ask(Request::Deploy { source: LOAN.to_owned() }).unwrap();
    for number in 2..6 {
        office.start(number);
    }
    let ill = OFFICE.replace("ann: {", "ann: { absent: [{ from: 2026-01-01 }],");
    publish(&mut office, &ill.replace("fay: {", "fay: { mail: fay@office,"));
    assert_eq!(told(&mut office, 10), "revocation fay@office");
}

#[test]
fn many_at_once_come_as_one_after_the_limit_of_the_hour() {
    let mut office = office_with(Tell { letters_an_hour_max: 2, ..Tell::default() });
    for number in 1..=6 {
        start(&mut office, InstanceId(number << 80), Some("eva"));
    }
    falls_ill(&mut office);
    assert_eq!(told(&mut office, 10), "revocation eva@office, revocation eva@office");
    office.pass(Duration::from_secs(3_600));
    assert_eq!(told(&mut office, 10), "4 cases eva@office");
    assert_eq!(told(&mut office, 10), "");
}
