//! Executors at the limits of an instance, of a server and of what is remembered.

use crate::support::depot::{Depot, SECOND, registration};
use crate::support::{Harness, data_of};
use legwork_model::id::InstanceId;
use legwork_site::*;
use serde_json::json;

const BOTH: &str = "
process: loan
data: { amount: int, packed: string, checked: string }
start: [amount]
steps:
  - parallel: both
    branches:
      - name: one
        steps:
          - step: pack
            job: pack
            retry: { times: 0 }
            writes: [packed]
      - name: other
        steps:
          - step: check
            job: pack
            retry: { times: 0 }
            writes: [checked]
";

/// A site whose instances hold so much, with both steps of a case out; the one of `pack` first.
fn both_out(config: Config) -> (Depot, InstanceId, Vec<(String, JobLease)>) {
    let mut site = Harness::new();
    site.config = Config { life: site.config.life, ..config };
    site.restart();
    let mut depot = Depot::at(site, BOTH, &["crane"]);
    let case = depot.start(1);
    let mut tasks = depot.said().1;
    tasks.sort_by_key(|(_, task)| &*task.activity.step != "pack");
    assert_eq!(tasks.len(), 2);
    (depot, case, tasks)
}

fn incidents(depot: &mut Depot) -> Vec<String> {
    match depot.site.ask(Request::Incidents { limit: 9, after: None }).unwrap() {
        Answer::Incidents { incidents, .. } => {
            incidents.iter().map(|incident| format!("{incident:?}")).collect()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_has_no_room_is_refused_when_it_comes_and_never_when_it_is_confirmed() {
    let config = Config { data_bytes_max: 1_000, ..Config::default() };
    let (mut depot, case, tasks) = both_out(config);
    let long = |name: &str| Outcome::Done(data_of(json!({ name: "x".repeat(600) })));
    depot.report("crane", &tasks[0].1, long("packed"));
    depot.report("crane", &tasks[1].1, long("checked"));
    let said = depot.said().0;
    assert_eq!(said, ["crane ack", "crane cancel", "crane nack"]);
    let story = incidents(&mut depot);
    assert!(story.len() == 1 && story[0].contains("1000 fit"), "{story:?}");
    depot.confirm("crane", &tasks[0].1);
    assert!(depot.site.states(case).contains("pack=Completed"));
}

#[test]
fn a_result_that_counts_has_its_place_in_the_history() {
    // Started, and two more: a result, and that it is confirmed.
    let config = Config { history_records_max: 3, ..Config::default() };
    let (mut depot, case, tasks) = both_out(config);
    depot.report("crane", &tasks[0].1, Outcome::Done(data_of(json!({ "packed": "a" }))));
    assert_eq!(depot.said().0, ["crane ack"]);
    let refusal = depot.site.refusal(Request::Suspend { instance: case, reason: None });
    assert!(refusal.contains("history"), "{refusal}");
    depot.confirm("crane", &tasks[0].1);
    assert!(depot.site.states(case).contains("pack=Completed"));
}

#[test]
fn a_result_of_a_case_that_cannot_be_read_is_not_judged() {
    let mut depot = Depot::with(&["crane"]);
    let case = depot.start(1);
    let (name, task) = depot.task();
    depot.done(&name, &task);
    depot.said();
    depot.site.corrupt(case);
    depot.site.restart();
    let outcome = Outcome::Done(data_of(json!({ "packed": "a" })));
    let (executor, feedback) = ("crane".into(), Feedback::default());
    let report = TaskReport { executor, task, outcome, feedback, holds: None };
    let refusal = depot.speak(&name, Request::Executor(Concern::Report(report))).unwrap_err();
    assert_eq!(refusal.code, "instance_broken");
    depot.site.pass(SECOND);
    assert_eq!(depot.said().0, [""; 0]);
}

#[test]
fn what_waits_for_room_goes_out_as_soon_as_there_is_some() {
    let mut depot = Depot::with(&["crane"]);
    let register = |asked| Request::Executor(Concern::Register(asked));
    for number in 1..=6 {
        depot.start(number);
    }
    let tasks = depot.said().1;
    assert_eq!(tasks.len(), 2);
    depot.site.pass(SECOND / 10);
    assert_eq!(depot.said().0, [""; 0]);
    depot.site.ask(register(RegisterExecutor { limit: 3, ..registration("crane") })).unwrap();
    assert_eq!(depot.said().0, ["crane do pack attempt 1"]);
    depot.site.ask(register(RegisterExecutor { limit: 1, ..registration("lift") })).unwrap();
    let (name, task) = depot.task();
    assert_eq!(name, "lift");
    depot.report("lift", &task, Outcome::Busy { rest: Some(SECOND / 2) });
    assert_eq!(depot.said().0, [""; 0]);
    depot.site.pass(SECOND / 2);
    assert_eq!(depot.said().0, ["lift do pack attempt 1"]);
    depot.done("crane", &tasks[0].1);
    assert_eq!(depot.said().0, ["crane ack", "crane do pack attempt 1"]);
    depot.site.ask(Request::Executor(Concern::Remove { name: "lift".into() })).unwrap();
    depot.site.pass(SECOND / 10);
    assert_eq!(depot.said().0, [""; 0], "crane is full, and lift is gone");
    depot.done("crane", &tasks[1].1);
    assert_eq!(depot.said().0, ["crane ack", "crane do pack attempt 1"]);
}

#[test]
fn of_those_that_come_and_go_under_new_names_nothing_is_left_in_the_end() {
    let mut depot = Depot::with(&[]);
    let remove = |name: &str| Request::Executor(Concern::Remove { name: name.into() });
    for number in 1..=300 {
        let name = format!("pod-{number}");
        depot.site.ask(Request::Executor(Concern::Register(registration(&name)))).unwrap();
        depot.start(number);
        let (given, task) = depot.task();
        assert_eq!(given, name);
        match number % 3 {
            // The next one is given this too.
            0 => depot.report(&name, &task, Outcome::Failed { error: "no".into(), retry: false }),
            1 => depot.site.pass(600 * SECOND),
            _ => depot.done(&name, &task),
        }
        let own = depot.site.ask(Request::Executor(Concern::List { after: None, limit: 9 }));
        let Ok(Answer::Executors { executors, .. }) = own else { panic!("{own:?}") };
        let [one] = executors.as_slice() else { panic!("{executors:?}") };
        let seen = one.types[0].answers + one.types[0].failures + one.types[0].timeouts;
        assert!(seen <= 2, "what others did says nothing of it: {seen}");
        depot.site.ask(remove(&name)).unwrap();
        depot.said();
    }
}

#[test]
fn an_attempt_that_cannot_be_recorded_does_not_keep_its_job() {
    let config = Config { history_records_max: 1, ..Config::default() };
    let (mut depot, _, tasks) = both_out(config);
    depot.site.notices = Some(Vec::new());
    let error = "no".to_owned();
    depot.report("crane", &tasks[0].1, Outcome::Failed { error, retry: true });
    assert_eq!(depot.said().0, ["crane cancel"]);
    let notices = depot.site.notices.take().unwrap();
    assert!(notices.len() == 1 && notices[0].contains("history"), "{notices:?}");
    depot.site.pass(9 * SECOND);
    assert_eq!(depot.said().0, [""; 0]);
    depot.site.pass(SECOND);
    assert_eq!(depot.said().0, ["crane do pack attempt 1"]);
}
