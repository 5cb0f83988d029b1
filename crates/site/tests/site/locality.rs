//! Executors that are at home somewhere: what a task reads need not travel far.

use crate::support::group::{Group, executor};
use legwork_model::id::{ActivityId, InstanceId, Iteration};
use legwork_site::*;

const READ: &str = "
process: letter
data: { text: string }
start: [text]
steps:
  - { step: read, job: read, reads: [text] }
";

/// Two steps of which the second goes where its executor is, and a third that stays there.
const LOCATED: &str = "
process: survey
data: { text: string }
start: [text]
steps:
  - { step: note, who: Agent(ann) }
  - { step: read, job: read, reads: [text], at: executor }
  - { step: file, who: Agent(ann) }
";

/// The place of a step is found where it would be else, when what it waits for far away is done.
const AWAITED: &str = "
process: survey
steps:
  - parallel: both
    branches:
      - steps: [{ step: note, who: Agent(ann), at: south }]
      - steps: [{ step: read, job: read, at: executor, after: [note] }]
";

fn register(group: &mut Group, name: &str, domain: &str) {
    let domain = Some(domain.to_owned());
    let asked = RegisterExecutor { limit: 4, domain, ..executor(name, &["read"]) };
    group.ask(0, Request::Executor(Concern::Register(asked))).unwrap();
    group.pass(2_000);
}

fn start(group: &mut Group, place: usize, text: &str) -> Vec<(usize, String, String)> {
    let start = Start {
        instance: group.draw(place, 0),
        process: "letter".into(),
        version: None,
        data: [("text".to_owned(), text.into())].into(),
        agent: None,
        key: None,
        wait_until: None,
        deadline: None,
    };
    group.ask(place, Request::Start(start)).unwrap();
    group.pass(0);
    let told = |(by, call): (usize, Call)| {
        (
            by,
            call.executor.name.to_string(),
            call.why.map_or_else(String::new, |why| why.to_string()),
        )
    };
    std::mem::take(&mut group.calls).into_iter().map(told).collect()
}

#[test]
fn a_task_goes_to_whoever_is_near_and_the_way_is_told() {
    let mut group = Group::new(1, 1);
    group.ask(0, Request::Deploy { source: READ.to_owned() }).unwrap();
    register(&mut group, "lens", "south");
    register(&mut group, "owl", "north");
    let text = "x".repeat(100_000);
    let [(by, to, why)] = &start(&mut group, 0, &text)[..] else { panic!() };
    assert_eq!((*by, &**to), (0, "owl"), "{why}");
    let [(by, to, why)] = &start(&mut group, 2, &text)[..] else { panic!() };
    assert_eq!((*by, &**to), (2, "lens"), "{why}");
    group.ask(0, Request::Executor(Concern::Remove { name: "owl".into() })).unwrap();
    // What it had, and the new one.
    for (_, to, why) in start(&mut group, 0, &text) {
        assert_eq!(to, "lens");
        assert!(why.contains("11.0 ms to get there"), "{why}");
    }
}

#[test]
fn a_case_goes_where_the_executor_of_its_next_step_is() {
    let mut group = Group::new(1, 1);
    group.ask(0, Request::Deploy { source: LOCATED.to_owned() }).unwrap();
    register(&mut group, "lens", "south");
    let instance = survey(&mut group, [("text".to_owned(), "x".into())].into());
    assert_eq!(group.holders(instance), [0]);
    note(&mut group, 0, instance);
    assert_eq!(group.holders(instance), [0, 2], "it went south");
    let [(2, call)] = &group.calls[..] else { panic!("{:?}", group.calls) };
    let Ask::Task(job) = &call.ask else { panic!() };
    assert_eq!((&*call.executor.name, &*job.activity.step), ("lens", "read"));
    let told = history(&mut group, 0, instance);
    let located = told.iter().position(|line| line == "located read: with an executor in south");
    let sent = told.iter().position(|line| line == "sent: control of read to south-1 (transfer 1)");
    assert!(located.is_some() && located < sent, "{told:#?}");
}

#[test]
fn what_finds_the_place_of_a_step_goes_by_the_name_of_the_step() {
    let mut group = Group::new(1, 1);
    group.ask(0, Request::Deploy { source: AWAITED.to_owned() }).unwrap();
    register(&mut group, "owl", "north");
    let instance = survey(&mut group, Data::new());
    group.pass(0);
    note(&mut group, 2, instance);
    let told = history(&mut group, 2, instance);
    assert!(
        told.contains(&"sent: control of both/join, read to north-1 (transfer 1)".to_owned()),
        "{told:#?}"
    );
    let told = history(&mut group, 0, instance);
    assert!(told.contains(&"located read: stays here".to_owned()), "{told:#?}");
    assert!(!told.concat().contains("read.place"), "{told:#?}");
}

fn survey(group: &mut Group, data: Data) -> InstanceId {
    let instance = group.draw(0, 0);
    let (process, version) = ("survey".into(), None);
    let (agent, key, wait_until) = (None, None, None);
    let start = Start { instance, process, version, data, agent, key, wait_until, deadline: None };
    group.ask(0, Request::Start(start)).unwrap();
    instance
}

fn note(group: &mut Group, place: usize, instance: InstanceId) {
    let complete = Complete {
        agent: "ann".into(),
        activity: ActivityId { instance, step: "note".into(), iteration: Iteration::default() },
        data: Data::new(),
        answer: None,
        request: None,
    };
    group.ask(place, Request::Complete(complete)).unwrap();
    group.pass(0);
}

/// What happened, in words.
fn history(group: &mut Group, place: usize, instance: InstanceId) -> Vec<String> {
    let asked = Request::History { instance, from: 0, limit: 100 };
    let Answer::History { entries, .. } = group.ask(place, asked).unwrap() else { panic!() };
    let told = |entry: &HistoryEntry| {
        let step = entry.step.as_ref().map(|step| format!(" {step}")).unwrap_or_default();
        format!("{}{step}: {}", entry.kind, entry.detail.as_deref().unwrap_or_default())
    };
    entries.iter().map(told).collect()
}
