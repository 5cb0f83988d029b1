//! Deadlines of processes with loops: every planned round is promised, no more and no less.

use std::sync::Arc;

use crate::support::{Harness, data_of};
use legwork_model::event::Performer;
use legwork_model::id::{ActivityId, InstanceId, Iteration};
use legwork_model::time::Timestamp;
use legwork_site::*;

const OFFICE: &str = r#"
organisation: office
calendars:
  office: { zone: UTC, hours: { mon-fri: "08:00-16:00" } }
agents:
  ann: { roles: [clerk], share: 100, calendar: office }
  abe: { roles: [checker], share: 100, calendar: office }
  bea: { roles: [manager], share: 100, calendar: office }
"#;

/// A loop that is planned for two rounds, and something after it.
const REVIEW: &str = r#"
process: claim
steps:
  - loop: review
    steps:
      - { step: check, who: Role(clerk), takes: 1h }
    who: Role(manager)
    takes: 30m
    rounds: 2
  - { step: file, who: Role(clerk), takes: 1h }
"#;

const NESTED: &str = r#"
process: claim
steps:
  - loop: outer
    steps:
      - loop: inner
        steps:
          - { step: check, who: Role(clerk), takes: 30m }
        who: Role(manager)
        takes: 10m
        rounds: 2
    who: Role(manager)
    takes: 10m
    rounds: 2
"#;

const CASE: InstanceId = InstanceId(1 << 80);
const EVENING: &str = "2026-01-16T16:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// On a Friday at eight.
fn office(source: &str) -> Harness {
    let mut harness = Harness::new();
    harness.now = at("2026-01-16T08:00:00Z");
    harness.ask(Request::PublishOrganisation { source: OFFICE.to_owned() }).unwrap();
    harness.ask(Request::Deploy { source: source.to_owned() }).unwrap();
    harness
}

fn start(harness: &mut Harness, instance: InstanceId, deadline: &str) -> Result<String, Refusal> {
    let start = Request::Start(Start {
        instance,
        process: Arc::from("claim"),
        version: None,
        data: data_of(serde_json::json!({})),
        agent: None,
        key: None,
        wait_until: None,
        deadline: Some(Box::new(Wish::new(at(deadline)))),
    });
    let Answer::Started { instance, .. } = harness.ask(start)? else { panic!("started") };
    Ok(plan(instance.deadline.as_ref().unwrap()))
}

/// What is planned, as `check:0 ann, …`.
fn plan(deadline: &DeadlineView) -> String {
    let legs = deadline.legs.iter().map(|leg| {
        let step = named_in(&leg.step, &leg.iteration);
        let by = match &leg.by {
            Some(Performer::Agent(by)) => by.as_str(),
            Some(Performer::Worker(_) | Performer::Executor(_) | Performer::System) => "no person",
            None => "nobody",
        };
        let given_back = if leg.is_given_back { " given back" } else { "" };
        format!("{step} {by}{given_back}")
    });
    let legs = legs.collect::<Vec<_>>().join(", ");
    if deadline.promised { legs } else { format!("not promised: {legs}") }
}

fn named_in(step: &str, iteration: &Iteration) -> String {
    if iteration.0.is_empty() { step.to_owned() } else { format!("{step}:{iteration}") }
}

fn shown(harness: &mut Harness) -> String {
    let show = Request::Show { instance: CASE, wait_until: None };
    let Ok(Answer::Instance(view)) = harness.ask(show) else { panic!("a case") };
    plan(&view.info.deadline.unwrap())
}

/// Somebody does a step, such as `check:0`, within ten minutes.
fn done(harness: &mut Harness, agent: &str, step: &str, answer: Option<&str>) {
    let activity: ActivityId = format!("{CASE}:{step}").parse().unwrap();
    harness.ask(Request::Claim { agent: agent.into(), activity: activity.clone() }).unwrap();
    harness.now = Timestamp(harness.now.0 + 600_000);
    let complete = Complete {
        agent: agent.into(),
        activity,
        data: data_of(serde_json::json!({})),
        answer: answer.map(str::to_owned),
        request: None,
    };
    harness.ask(Request::Complete(complete)).unwrap();
}

/// From when on somebody is busy with what.
fn turns(harness: &mut Harness, agent: &str) -> Vec<String> {
    let resource = ResourceId::Person(agent.into());
    let Ok(Answer::Plan(plan)) = harness.ask(Request::Plan { resource }) else { panic!("a plan") };
    let turns = plan.turns.iter().filter(|turn| turn.instance == Some(CASE));
    let named = turns.map(|turn| (turn.step.as_deref().unwrap_or("?"), &turn.iteration));
    named.map(|(step, iteration)| named_in(step, iteration)).collect()
}

fn replanned(harness: &mut Harness) -> Vec<String> {
    let request = Request::History { instance: CASE, from: 0, limit: 100 };
    let Ok(Answer::History { entries, .. }) = harness.ask(request) else { panic!("a history") };
    let changes = entries.into_iter().filter(|entry| entry.kind == "replanned");
    changes.filter_map(|entry| entry.detail).collect()
}

#[test]
fn every_planned_round_is_promised_and_then_what_follows() {
    let mut harness = office(REVIEW);
    assert_eq!(
        start(&mut harness, CASE, EVENING).unwrap(),
        "check:0 ann, review:0 bea, check:1 ann, review:1 bea, file ann"
    );
    assert_eq!(turns(&mut harness, "ann"), ["check:0", "check:1", "file"]);
    // One after the other it takes four hours.
    let refusal = start(&mut harness, InstanceId(2 << 80), "2026-01-16T11:50:00Z").unwrap_err();
    assert_eq!(refusal.code, "deadline_not_promised");
    for round in 0..2 {
        done(&mut harness, "ann", &format!("check:{round}"), None);
        let answer = if round == 0 { "repeat" } else { "leave" };
        done(&mut harness, "bea", &format!("review:{round}"), Some(answer));
        assert!(!shown(&mut harness).contains("not promised"));
    }
    done(&mut harness, "ann", "file", None);
    assert_eq!(replanned(&mut harness), [""; 0]);
    assert_eq!((harness.site.deadlines().kept, harness.site.deadlines().revoked), (1, 0));
}

#[test]
fn rounds_that_are_not_gone_are_given_back_at_once_and_what_follows_begins_early() {
    let mut harness = office(REVIEW);
    start(&mut harness, CASE, EVENING).unwrap();
    done(&mut harness, "ann", "check:0", None);
    assert_eq!(turns(&mut harness, "ann"), ["check:1", "file"]);
    assert_eq!(turns(&mut harness, "bea"), ["review:0", "review:1"]);
    done(&mut harness, "bea", "review:0", Some("leave"));
    assert_eq!(turns(&mut harness, "ann"), ["file"]);
    assert_eq!(turns(&mut harness, "bea"), [""; 0]);
    assert_eq!(
        shown(&mut harness),
        "check:0 ann, review:0 bea, check:1 ann given back, review:1 bea given back, file ann"
    );
    // So it is after a restart.
    harness.restart();
    assert_eq!(turns(&mut harness, "ann"), ["file"]);
    done(&mut harness, "ann", "file", None);
    assert_eq!(harness.site.deadlines().kept, 1);
    assert_eq!(turns(&mut harness, "ann"), [""; 0]);
}

#[test]
fn a_round_more_than_planned_revokes_the_promise_at_that_moment_and_says_so() {
    let mut harness = office(REVIEW);
    start(&mut harness, CASE, EVENING).unwrap();
    done(&mut harness, "ann", "check:0", None);
    done(&mut harness, "bea", "review:0", Some("repeat"));
    // Where it stands in the second round survives a crash.
    harness.restart();
    assert_eq!(turns(&mut harness, "ann"), ["check:1", "file"]);
    done(&mut harness, "ann", "check:1", None);
    assert_eq!((replanned(&mut harness).len(), harness.site.deadlines().revoked), (0, 0));
    done(&mut harness, "bea", "review:1", Some("repeat"));
    let told = replanned(&mut harness);
    let text = "`check` is done once more than was planned; check:2 is not promised any more";
    assert_eq!(told, [text]);
    assert_eq!(harness.site.deadlines().revoked, 1);
    assert!(shown(&mut harness).starts_with("not promised: check:0 ann"));
}

#[test]
fn rounds_of_a_loop_within_a_loop_are_not_taken_for_each_other() {
    let mut harness = office(NESTED);
    assert_eq!(
        start(&mut harness, CASE, EVENING).unwrap(),
        "check:0.0 ann, inner:0.0 bea, check:0.1 ann, inner:0.1 bea, outer:0 bea, \
         check:1.0 ann, inner:1.0 bea, check:1.1 ann, inner:1.1 bea, outer:1 bea"
    );
    // The inner loop goes round once in the first round, which leaves one turn for each round of the second.
    done(&mut harness, "ann", "check:0.0", None);
    done(&mut harness, "bea", "inner:0.0", Some("leave"));
    assert_eq!(turns(&mut harness, "ann"), ["check:1.0", "check:1.1"]);
    done(&mut harness, "bea", "outer:0", Some("repeat"));
    assert_eq!(turns(&mut harness, "ann"), ["check:1.0", "check:1.1"]);
    done(&mut harness, "ann", "check:1.0", None);
    assert_eq!(turns(&mut harness, "ann"), ["check:1.1"]);
    done(&mut harness, "bea", "inner:1.0", Some("repeat"));
    done(&mut harness, "ann", "check:1.1", None);
    assert_eq!((replanned(&mut harness).len(), harness.site.deadlines().revoked), (0, 0));
    done(&mut harness, "bea", "inner:1.1", Some("repeat"));
    assert_eq!(harness.site.deadlines().revoked, 1);
    assert!(replanned(&mut harness)[0].contains("check:1.2 is not promised any more"));
}

#[test]
fn who_may_not_do_a_step_is_seen_round_by_round() {
    let source = r#"
process: claim
steps:
  - loop: review
    steps:
      - { step: write, who: Role(clerk) OR Role(checker), takes: 1h }
      - { step: read, who: (Role(clerk) OR Role(checker)) EXCEPT NodePerformingAgent(write), takes: 30m }
    who: Role(manager)
    takes: 10m
    rounds: 2
"#;
    let mut harness = office(source);
    let planned = start(&mut harness, CASE, EVENING).unwrap();
    let legs: Vec<(&str, &str)> =
        planned.split(", ").map(|leg| leg.split_once(' ').unwrap()).collect();
    let by = |step: &str| legs.iter().find(|(name, _)| *name == step).unwrap().1;
    for round in 0..2 {
        assert_ne!(by(&format!("write:{round}")), by(&format!("read:{round}")), "{planned}");
    }
    // Who is to read in the second round writes in the first, which is no reason why they should not.
    let doer = by("read:1");
    done(&mut harness, doer, "write:0", None);
    let told = replanned(&mut harness);
    assert!(!told.iter().any(|text| text.contains(":1")), "{planned}: {told:?}");
    let is_reader = by("read:0") == doer;
    assert_eq!(
        told.iter().any(|text| text.contains("read:0 by")),
        is_reader,
        "{planned}: {told:?}"
    );
    assert_eq!(harness.site.deadlines().revoked, 0);
}
