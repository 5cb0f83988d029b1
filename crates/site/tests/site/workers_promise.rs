//! Deadlines of steps that workers do: planned by how many of them asked lately, and best effort.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Harness, data_of};
use legwork_model::event::Performer;
use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_site::*;
use serde_json::json;

const MINUTE: Duration = Duration::from_secs(60);

/// Packing takes ten minutes.
const PACK: &str = "
process: loan
data: { packed: string }
result: [packed]
steps:
  - step: pack
    job: pack
    takes: 10m
    writes: [packed]
";

fn site() -> Harness {
    let mut site = Harness::new();
    site.ask(Request::Deploy { source: PACK.to_owned() }).unwrap();
    site
}

/// A worker asks for jobs, and gets one if there is any.
fn ask(site: &mut Harness, worker: &str) -> Vec<Job> {
    let activate = Activate {
        worker: worker.into(),
        types: vec![Arc::from("pack")],
        max: 1,
        lease: MINUTE * 20,
        wait_until: None,
    };
    match site.ask(Request::Activate(activate)).unwrap() {
        Answer::Jobs(jobs) => jobs,
        other => panic!("{other:?}"),
    }
}

fn start(site: &mut Harness, number: u128, minutes: u32) -> Result<DeadlineView, Refusal> {
    let at = site.now + MINUTE * minutes;
    let answer = site.ask(Request::Start(Start {
        instance: InstanceId(number),
        process: "loan".into(),
        version: None,
        data: data_of(json!({})),
        agent: None,
        key: None,
        wait_until: None,
        deadline: Some(Box::new(Wish::new(at))),
    }))?;
    let Answer::Started { instance, .. } = answer else { panic!("{answer:?}") };
    Ok(instance.deadline.unwrap())
}

fn deadline(site: &mut Harness, number: u128) -> DeadlineView {
    let show = Request::Show { instance: InstanceId(number), wait_until: None };
    let Answer::Instance(view) = site.ask(show).unwrap() else { panic!("it is there") };
    view.info.deadline.unwrap()
}

fn pass(site: &mut Harness, minutes: u32) {
    (0..minutes).for_each(|_| site.pass(MINUTE));
}

#[test]
fn where_nobody_asks_nothing_is_promised_and_where_a_worker_asked_it_is_best_effort() {
    let mut site = site();
    let refusal = start(&mut site, 1, 60).unwrap_err();
    let why = "no worker has asked for any here in the last ten minutes";
    assert!(refusal.message.contains(why), "{refusal}");
    assert!(ask(&mut site, "robot").is_empty());
    let promised = start(&mut site, 2, 60).unwrap();
    assert!(promised.promised);
    let [leg] = &promised.legs[..] else { panic!("{promised:?}") };
    assert_eq!((&leg.by, leg.is_best_effort), (&Some(Performer::Worker("pack".into())), true));
    // Who asked for longer ago does not count.
    pass(&mut site, 11);
    assert!(start(&mut site, 3, 60).is_err());
}

#[test]
fn as_much_is_promised_as_the_workers_that_asked_can_do() {
    let mut site = site();
    ask(&mut site, "robot");
    start(&mut site, 1, 25).unwrap();
    start(&mut site, 2, 25).unwrap();
    let earliest = start(&mut site, 3, 25).unwrap_err().earliest().unwrap();
    assert!(earliest >= Timestamp(site.now.0 + 29 * 60_000), "{earliest}");
    // A second one, who begins at once.
    assert_eq!(ask(&mut site, "lift").len(), 1);
    assert!(start(&mut site, 4, 25).is_ok());
}

#[test]
fn a_worker_that_takes_a_promised_job_begins_what_was_promised_and_ends_it() {
    let mut site = site();
    ask(&mut site, "robot");
    start(&mut site, 1, 40).unwrap();
    start(&mut site, 2, 30).unwrap();
    // Any worker may do it, and what is due first goes first.
    let jobs = ask(&mut site, "lift");
    assert_eq!(jobs[0].activity.instance, InstanceId(2));
    // It asks for nothing while it works, and is there all the same.
    pass(&mut site, 12);
    assert_eq!(site.site.deadlines().revoked, 0);
    site.report(&jobs[0], json!({ "packed": "a" })).unwrap();
    assert_eq!(site.site.deadlines().kept, 1);
    assert_eq!(ask(&mut site, "lift").len(), 1);
    pass(&mut site, 1);
    assert_eq!(site.site.deadlines().revoked, 0);
}

#[test]
fn what_nobody_asks_for_any_more_is_revoked_and_promised_again_when_somebody_does() {
    let mut site = site();
    ask(&mut site, "robot");
    start(&mut site, 1, 60).unwrap();
    pass(&mut site, 9);
    assert!(deadline(&mut site, 1).promised);
    pass(&mut site, 3);
    let revoked = deadline(&mut site, 1);
    let reason = revoked.revoked.map(|why| why.reason).unwrap_or_default();
    assert!(reason.contains("no worker has asked"), "{reason}");
    assert_eq!(ask(&mut site, "robot").len(), 1);
    pass(&mut site, 1);
    assert!(deadline(&mut site, 1).promised);
}

#[test]
fn after_a_restart_workers_have_ten_minutes_to_ask_again() {
    let mut site = site();
    ask(&mut site, "robot");
    start(&mut site, 1, 60).unwrap();
    site.restart();
    pass(&mut site, 9);
    assert!(deadline(&mut site, 1).promised);
    pass(&mut site, 3);
    assert!(!deadline(&mut site, 1).promised);
}
