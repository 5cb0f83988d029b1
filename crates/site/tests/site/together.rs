//! Steps that may be done anywhere: they are promised together, and the case goes where that was.

use crate::support::group::{Group, executor};
use legwork_model::event::Performer;
use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_site::*;

const CHAIN: &str = "process: chain\nsteps:\n  \
                     - { step: scan, job: scan, at: executor, takes: 10m }\n  \
                     - { step: read, job: read, at: executor, takes: 10m }\n  \
                     - { step: file, job: file, at: executor, takes: 10m }\n";
const BRANCHES: &str = "process: branches\nsteps:\n  \
                        - { step: scan, job: scan, at: executor, takes: 10m }\n  \
                        - parallel: both\n    branches:\n      \
                        - steps: [{ step: read, job: read, at: executor, takes: 20m }]\n      \
                        - steps: [{ step: file, job: file, at: executor, takes: 10m }]\n";
const READ: &str = "process: reading\nsteps:\n  \
                    - { step: read, job: read, takes: 20m }\n";
const ANYWHERE: &str = "process: anywhere\nsteps:\n  \
                        - { step: read, job: read, takes: 10m, at: executor }\n";
const MINUTE: i64 = 60_000;

/// Only the lens, in the south, can scan; an owl in the north and a hare in the south can do the rest.
fn group() -> Group {
    let mut group = Group::new(1, 1);
    for source in [CHAIN, BRANCHES, READ, ANYWHERE] {
        group.ask(0, Request::Deploy { source: source.to_owned() }).unwrap();
    }
    register(&mut group, "lens", "south", &["scan"]);
    register(&mut group, "owl", "north", &["read", "file"]);
    register(&mut group, "hare", "south", &["read", "file"]);
    group
}

fn register(group: &mut Group, name: &str, domain: &str, jobs: &[&str]) {
    let asked = RegisterExecutor { domain: Some(domain.to_owned()), ..executor(name, jobs) };
    group.ask(0, Request::Executor(Concern::Register(asked))).unwrap();
    group.pass(2_000);
}

/// Asks a server for a start that is to be done in so many minutes; answers who does what.
fn start(group: &mut Group, place: usize, process: &str, minutes: i64) -> (InstanceId, String) {
    let instance = group.draw(place, 0);
    let wish = Wish::new(Timestamp(group.now + minutes * MINUTE));
    let request = Request::Start(Start {
        instance,
        process: process.into(),
        version: None,
        data: Data::new(),
        agent: None,
        key: None,
        wait_until: None,
        deadline: Some(Box::new(wish)),
    });
    let id = group.send(place, request);
    for _ in 0..300 {
        if group.answers.contains_key(&id) {
            break;
        }
        group.pass(50);
    }
    let told = match group.answers.remove(&id).expect("an answer") {
        Ok(Answer::Started { instance, .. }) => who_does(&instance.deadline.unwrap()),
        other => panic!("{other:?}"),
    };
    (instance, told)
}

fn who_does(deadline: &DeadlineView) -> String {
    assert!(deadline.promised);
    let by = deadline.legs.iter().map(|leg| match &leg.by {
        Some(Performer::Worker(name) | Performer::Executor(name)) => format!("{} {name}", leg.step),
        other => panic!("{other:?}"),
    });
    by.collect::<Vec<_>>().join(", ")
}

#[test]
fn steps_that_follow_each_other_are_promised_at_one_place() {
    let mut group = group();
    let (_, told) = start(&mut group, 0, "chain", 300);
    assert_eq!(told, "scan lens, read hare, file hare");
}

#[test]
fn branches_beside_each_other_are_spread() {
    let mut group = group();
    let (_, told) = start(&mut group, 0, "branches", 300);
    assert_eq!(told, "scan lens, read hare, file owl");
}

#[test]
fn who_has_no_time_near_it_is_not_waited_for() {
    let mut group = group();
    let (_, told) = start(&mut group, 0, "chain", 33);
    assert_eq!(told, "scan lens, read hare, file hare");
    let (_, told) = start(&mut group, 0, "chain", 43);
    assert_eq!(told, "scan lens, read owl, file owl", "the hare reads something else");
}

#[test]
fn a_case_goes_where_the_executor_is_that_has_promised_its_step() {
    let mut group = group();
    assert_eq!(start(&mut group, 0, "reading", 21).1, "read owl");
    // Who is near has no time; before anything is known of it, that would not count.
    let (instance, told) = start(&mut group, 0, "anywhere", 15);
    assert_eq!(told, "read hare");
    assert_eq!(group.holders(instance), [0, 2]);
}

#[test]
fn what_was_promised_together_is_promised_by_others_when_its_executor_is_gone() {
    for crashed in [None, Some(0), Some(2)] {
        let mut group = group();
        let (instance, _) = start(&mut group, 0, "chain", 300);
        if let Some(place) = crashed {
            group.open(place);
        }
        remove(&mut group, "hare");
        let told = shown(&mut group, instance);
        assert_eq!(told, "scan lens, read owl, file owl", "{crashed:?} crashed");
    }
}

#[test]
fn an_executor_that_came_later_is_asked_when_another_is_gone() {
    let mut group = group();
    remove(&mut group, "hare");
    let (instance, told) = start(&mut group, 0, "reading", 300);
    assert_eq!(told, "read owl");
    register(&mut group, "hare", "south", &["read"]);
    remove(&mut group, "owl");
    assert_eq!(shown(&mut group, instance), "read hare");
}

fn remove(group: &mut Group, name: &str) {
    group.ask(0, Request::Executor(Concern::Remove { name: name.into() })).unwrap();
    for _ in 0..600 {
        group.pass(50);
    }
}

fn shown(group: &mut Group, instance: InstanceId) -> String {
    match group.ask(0, Request::Show { instance, wait_until: None }).unwrap() {
        Answer::Instance(view) => who_does(&view.info.deadline.unwrap()),
        other => panic!("{other:?}"),
    }
}
