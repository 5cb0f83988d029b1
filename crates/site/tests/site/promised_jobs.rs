//! Deadlines of steps that programs do: executors have plans, and what is promised goes first.

use std::time::Duration;

use crate::support::depot::{Depot, PACK, registration};
use crate::support::{Harness, data_of};
use legwork_model::event::Performer;
use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_site::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Packing takes ten minutes.
fn source() -> String {
    PACK.replace("    job: pack\n", "    job: pack\n    takes: 10m\n    timeout: 1h\n")
}

/// One executor that does one at a time.
fn depot() -> Depot {
    depot_with(RegisterExecutor { limit: 1, ..registration("crane") })
}

fn depot_with(crane: RegisterExecutor) -> Depot {
    let mut depot = Depot::at(Harness::new(), &source(), &[]);
    depot.site.ask(Request::Executor(Concern::Register(crane))).unwrap();
    depot
}

/// Besides, a process in which somebody works for five minutes before something is packed.
fn deploy_checked(depot: &mut Depot) {
    let organisation = "
organisation: yard
agents:
  ann: { roles: [clerk], share: 100 }
";
    depot.site.ask(Request::PublishOrganisation { source: organisation.to_owned() }).unwrap();
    let step = "steps:\n  - { step: check, who: Role(clerk), takes: 5m }\n";
    let source = source().replace("process: loan", "process: checked").replace("steps:\n", step);
    depot.site.ask(Request::Deploy { source }).unwrap();
}

/// What the executor has is done.
fn finish(depot: &mut Depot, name: &str, task: &JobLease) {
    depot.done(name, task);
    depot.confirm(name, task);
    depot.site.pass(Duration::from_secs(1));
}

fn given(depot: &mut Depot) -> Vec<u128> {
    depot.said().1.iter().map(|(_, task)| task.activity.instance.0).collect()
}

fn start(depot: &mut Depot, number: u128, minutes: Option<u32>) -> Result<Answer, Refusal> {
    start_of("loan", depot, number, minutes)
}

fn start_of(
    process: &str,
    depot: &mut Depot,
    number: u128,
    minutes: Option<u32>,
) -> Result<Answer, Refusal> {
    let deadline = minutes.map(|minutes| depot.site.now + MINUTE * minutes);
    depot.site.ask(Request::Start(Start {
        instance: InstanceId(number),
        process: process.into(),
        version: None,
        data: data_of(serde_json::json!({ "amount": 3 })),
        agent: None,
        key: None,
        wait_until: None,
        deadline: deadline.map(|at| Box::new(Wish::new(at))),
    }))
}

#[test]
fn an_executor_promises_what_it_has_time_for() {
    let mut depot = depot();
    let Ok(Answer::Started { instance, .. }) = start(&mut depot, 1, Some(25)) else {
        panic!("started")
    };
    let deadline = instance.deadline.unwrap();
    assert!(deadline.promised);
    assert_eq!(deadline.legs[0].by, Some(Performer::Executor("crane".into())));
    assert!(start(&mut depot, 2, Some(25)).is_ok());
    let refusal = start(&mut depot, 3, Some(25)).unwrap_err();
    assert_eq!(refusal.code, "deadline_not_promised");
    assert!(refusal.earliest().unwrap() >= Timestamp(depot.site.now.0 + 30 * 60_000));
}

#[test]
fn what_an_executor_works_on_is_not_taken_for_something_it_has_not_begun() {
    let mut depot = depot();
    start(&mut depot, 1, Some(12)).unwrap();
    let (name, task) = depot.task();
    for _ in 0..9 {
        depot.site.pass(MINUTE);
    }
    assert_eq!(depot.site.site.deadlines().revoked, 0);
    depot.done(&name, &task);
    depot.confirm(&name, &task);
    assert_eq!(depot.site.site.deadlines().kept, 1);
}

#[test]
fn what_is_promised_goes_before_what_nobody_has_promised() {
    let mut depot = depot();
    start(&mut depot, 1, None).unwrap();
    let (name, first) = depot.task();
    start(&mut depot, 2, None).unwrap();
    start(&mut depot, 3, Some(60)).unwrap();
    depot.done(&name, &first);
    depot.confirm(&name, &first);
    depot.site.pass(Duration::from_secs(1));
    assert_eq!(depot.task().1.activity.instance, InstanceId(3));
}

#[test]
fn where_no_executor_does_a_job_nothing_is_promised() {
    let source = PACK.replace("    job: pack\n", "    job: pack\n    takes: 10m\n");
    let mut depot = Depot::at(Harness::new(), &source, &[]);
    let refusal = start(&mut depot, 1, Some(60)).unwrap_err();
    assert!(
        refusal.message.contains("no executor is registered for jobs of type `pack`"),
        "{refusal}"
    );
}

#[test]
fn an_executor_that_only_fails_promises_nothing_until_it_had_time_to_come_back() {
    let mut depot = depot();
    start(&mut depot, 1, None).unwrap();
    for _ in 0..3 {
        let (name, task) = depot.task();
        let outcome = Outcome::Failed { error: "paper jam".to_owned(), retry: true };
        depot.report(&name, &task, outcome);
        depot.confirm(&name, &task);
        depot.site.pass(Duration::from_secs(2));
    }
    let refusal = start(&mut depot, 2, Some(60)).unwrap_err();
    assert!(refusal.message.contains("all have failed of late: crane"), "{refusal}");
    (0..11).for_each(|_| depot.site.pass(MINUTE));
    assert!(start(&mut depot, 2, Some(60)).is_ok());
}

#[test]
fn when_an_executor_is_taken_out_another_promises_its_tasks_or_it_is_told() {
    let mut depot = depot();
    start(&mut depot, 1, Some(15)).unwrap();
    start(&mut depot, 2, Some(25)).unwrap();
    let lift = RegisterExecutor { limit: 1, ..registration("lift") };
    depot.site.ask(Request::Executor(Concern::Register(lift))).unwrap();
    depot.site.ask(Request::Executor(Concern::Remove { name: "crane".into() })).unwrap();
    depot.site.pass(Duration::from_secs(10));
    assert_eq!(depot.site.site.deadlines().revoked, 0, "the lift has promised both");
    depot.site.ask(Request::Executor(Concern::Remove { name: "lift".into() })).unwrap();
    depot.site.pass(Duration::from_secs(10));
    assert_eq!(depot.site.site.deadlines().revoked, 2);
}

#[test]
fn an_executor_promises_its_reserve_only_for_one_that_is_gone() {
    let mut depot = depot();
    let lift = RegisterExecutor { limit: 1, reserve: Some(50), ..registration("lift") };
    depot.site.ask(Request::Executor(Concern::Register(lift))).unwrap();
    start(&mut depot, 1, Some(12)).unwrap();
    assert_eq!(promised_by(&mut depot, 1), Some(Performer::Executor("crane".into())));
    start(&mut depot, 2, Some(12)).unwrap_err();
    depot.site.ask(Request::Executor(Concern::Remove { name: "crane".into() })).unwrap();
    depot.site.pass(Duration::from_secs(1));
    assert_eq!(promised_by(&mut depot, 1), Some(Performer::Executor("lift".into())));
    assert_eq!(depot.site.site.deadlines().revoked, 0);
}

fn promised_by(depot: &mut Depot, number: u128) -> Option<Performer> {
    let show = Request::Show { instance: InstanceId(number), wait_until: None };
    let Ok(Answer::Instance(view)) = depot.site.ask(show) else { panic!("an instance") };
    view.info.deadline.unwrap().legs[0].by.clone()
}

#[test]
fn an_executor_that_is_busy_promises_only_what_it_has_time_for_afterwards() {
    let mut depot = depot();
    start(&mut depot, 1, None).unwrap();
    let (name, task) = depot.task();
    let refusal = start(&mut depot, 2, Some(12)).unwrap_err();
    assert_eq!(refusal.code, "deadline_not_promised");
    assert!(refusal.earliest().unwrap() >= Timestamp(depot.site.now.0 + 20 * 60_000));
    start(&mut depot, 3, Some(21)).unwrap();
    finish(&mut depot, &name, &task);
    assert_eq!(given(&mut depot), [3]);
    // As long as the other runs there is no more; then there is.
    start(&mut depot, 4, Some(19)).unwrap_err();
    start(&mut depot, 5, Some(21)).unwrap();
}

#[test]
fn what_nobody_promised_waits_where_it_would_make_something_late() {
    let mut depot = depot();
    deploy_checked(&mut depot);
    start_of("checked", &mut depot, 1, Some(18)).unwrap();
    start(&mut depot, 2, None).unwrap();
    depot.site.pass(Duration::from_secs(1));
    assert_eq!(given(&mut depot), [] as [u128; 0], "it would be packing when it is needed");
    let (instance, reason) = (InstanceId(1), String::new());
    depot.site.ask(Request::Abort { instance, reason }).unwrap();
    depot.site.pass(Duration::from_secs(1));
    assert_eq!(given(&mut depot), [2], "when nothing is promised any more");
}

#[test]
fn after_a_restart_nothing_is_given_out_before_it_is_known_what_is_promised() {
    let mut depot = depot();
    deploy_checked(&mut depot);
    start_of("checked", &mut depot, 1, Some(18)).unwrap();
    start(&mut depot, 2, None).unwrap();
    depot.site.restart();
    depot.site.pass(Duration::from_secs(1));
    assert_eq!(given(&mut depot), [] as [u128; 0], "it would be packing when it is needed");
}

#[test]
fn what_was_promised_goes_before_all_that_another_process_waits_for() {
    let mut depot = depot();
    let other = source().replace("process: loan", "process: other");
    depot.site.ask(Request::Deploy { source: other }).unwrap();
    start(&mut depot, 1, None).unwrap();
    let (name, first) = depot.task();
    start_of("other", &mut depot, 2, None).unwrap();
    start(&mut depot, 3, Some(60)).unwrap();
    start(&mut depot, 4, Some(50)).unwrap();
    finish(&mut depot, &name, &first);
    for next in [4, 3, 2] {
        let (name, task) = depot.task();
        assert_eq!(task.activity.instance, InstanceId(next));
        finish(&mut depot, &name, &task);
    }
    assert_eq!(depot.site.site.deadlines().kept, 2);
}

#[test]
fn a_job_that_takes_longer_than_was_said_keeps_its_executor_busy() {
    let mut depot = depot();
    start(&mut depot, 1, None).unwrap();
    let (name, task) = depot.task();
    start(&mut depot, 2, Some(25)).unwrap();
    for _ in 0..11 {
        depot.site.pass(MINUTE);
    }
    start(&mut depot, 3, Some(14)).unwrap_err();
    assert_eq!(depot.site.site.deadlines().revoked, 0, "there is still time");
    for _ in 0..5 {
        depot.site.pass(MINUTE);
    }
    assert_eq!(depot.site.site.deadlines().revoked, 1, "it is told before it is late");
    finish(&mut depot, &name, &task);
    assert_eq!(given(&mut depot), [2], "it is done all the same");
}

#[test]
fn an_executor_promises_no_more_of_a_type_than_it_takes_of_it() {
    let types =
        vec![legwork_model::event::ExecutorType { job: "pack".into(), limit: Some(1), rate: None }];
    let mut depot = depot_with(RegisterExecutor { limit: 2, types, ..registration("crane") });
    start(&mut depot, 1, Some(12)).unwrap();
    start(&mut depot, 2, Some(12)).unwrap_err();
}

#[test]
fn an_executor_with_a_queue_promises_what_comes_after_it() {
    let crane = RegisterExecutor { limit: 3, at_once: Some(1), ..registration("crane") };
    let mut depot = depot_with(crane);
    // One that gives an executor all that it takes.
    let (job, policy) = ("pack".into(), "least-outstanding".into());
    let set = Concern::SetPolicy { job, policy, recorded: false };
    depot.site.ask(Request::Executor(set)).unwrap();
    (1..=3).for_each(|number| drop(start(&mut depot, number, None).unwrap()));
    assert_eq!(given(&mut depot), [1, 2, 3]);
    start(&mut depot, 4, Some(39)).unwrap_err();
    start(&mut depot, 5, Some(41)).unwrap();
}

#[test]
fn what_queued_at_an_executor_takes_its_time_from_when_it_is_begun() {
    let crane = RegisterExecutor { limit: 2, at_once: Some(1), ..registration("crane") };
    let mut depot = depot_with(crane);
    (1..=2).for_each(|number| drop(start(&mut depot, number, None).unwrap()));
    let tasks = depot.said().1;
    start(&mut depot, 3, Some(60)).unwrap();
    (0..6).for_each(|_| depot.site.pass(MINUTE));
    finish(&mut depot, &tasks[0].0, &tasks[0].1);
    // The second was begun just now, and not when it was given.
    start(&mut depot, 4, Some(19)).unwrap_err();
    start(&mut depot, 5, Some(21)).unwrap();
}

#[test]
fn others_need_not_wait_for_what_an_executor_has_promised_and_cannot_begin() {
    let mut depot = depot();
    deploy_checked(&mut depot);
    start_of("checked", &mut depot, 1, Some(18)).unwrap();
    start(&mut depot, 2, Some(60)).unwrap();
    assert_eq!(given(&mut depot), [] as [u128; 0], "the other needs its time before");
    let lift = RegisterExecutor { limit: 1, ..registration("lift") };
    depot.site.ask(Request::Executor(Concern::Register(lift))).unwrap();
    start(&mut depot, 3, None).unwrap();
    let (name, task) = depot.task();
    assert_eq!((&*name, task.activity.instance), ("lift", InstanceId(3)));
}

#[test]
fn an_executor_that_was_taken_out_just_before_a_crash_has_promised_nothing() {
    let mut depot = depot();
    start(&mut depot, 1, Some(15)).unwrap();
    depot.site.ask(Request::Executor(Concern::Remove { name: "crane".into() })).unwrap();
    assert_eq!(depot.site.site.deadlines().revoked, 1, "at that moment");
    depot.site.restart();
    depot.site.pass(Duration::from_secs(1));
    let show = Request::Show { instance: InstanceId(1), wait_until: None };
    let Ok(Answer::Instance(view)) = depot.site.ask(show) else { panic!("an instance") };
    assert!(!view.info.deadline.unwrap().promised);
}

#[test]
fn how_long_executors_take_is_learned() {
    let mut depot = depot();
    for number in 1..=8 {
        start(&mut depot, number, Some(60)).unwrap();
        let (name, task) = depot.task();
        depot.site.pass(MINUTE * 5);
        depot.done(&name, &task);
        depot.confirm(&name, &task);
    }
    let Ok(Answer::Started { instance, .. }) = start(&mut depot, 9, Some(60)) else {
        panic!("started")
    };
    let leg = &instance.deadline.unwrap().legs[0];
    assert_eq!(leg.end.unwrap().since(leg.start.unwrap()), MINUTE * 5);
}

#[test]
fn a_promised_job_that_failed_for_good_is_in_nobodys_way() {
    let mut depot = depot();
    start(&mut depot, 1, Some(30)).unwrap();
    start(&mut depot, 2, Some(40)).unwrap();
    let (name, task) = depot.task();
    assert_eq!(task.activity.instance, InstanceId(1));
    depot.report(&name, &task, Outcome::Failed { error: "no".into(), retry: false });
    depot.site.pass(Duration::from_secs(1));
    assert_eq!(given(&mut depot), [2], "the other begins at once");
}

#[test]
fn what_an_executor_holds_from_before_a_restart_takes_its_time_until_it_reports_without_it() {
    let mut depot = depot();
    start(&mut depot, 1, None).unwrap();
    let (name, before) = depot.task();
    depot.site.restart();
    depot.site.pass(Duration::from_secs(1));
    let (_, anew) = depot.task();
    let both = Some(vec![before, anew.clone()]);
    depot.report_with(&name, &anew, Outcome::Taken, both);
    let refusal = start(&mut depot, 2, Some(25)).unwrap_err();
    // Two tasks of ten minutes come before.
    let earliest = refusal.earliest().unwrap();
    assert!(earliest >= Timestamp(depot.site.now.0 + 29 * 60_000), "{earliest}");
    // A report that says nothing of tasks changes nothing.
    depot.report_with(&name, &anew, Outcome::Taken, None);
    assert!(start(&mut depot, 3, Some(25)).is_err());
    depot.report_with(&name, &anew, Outcome::Taken, Some(vec![anew.clone()]));
    assert!(start(&mut depot, 4, Some(25)).is_ok());
}

#[test]
fn what_other_servers_gave_an_executor_counts_as_long_as_is_usual() {
    let mut depot = depot();
    start(&mut depot, 1, None).unwrap();
    let (name, task) = depot.task();
    let mut other = task.clone();
    (other.activity.instance, other.lease) = (InstanceId(99), 77);
    depot.report_with(&name, &task, Outcome::Taken, Some(vec![other, task.clone()]));
    let earliest = start(&mut depot, 2, Some(20)).unwrap_err().earliest().unwrap();
    // Ten minutes of its own, one of the other, and ten.
    assert!(earliest > Timestamp(depot.site.now.0 + 20 * 60_000 + 30_000), "{earliest}");
    finish(&mut depot, &name, &task);
    // It reports no more, and the task should be done by now.
    (0..2).for_each(|_| depot.site.pass(MINUTE));
    assert!(start(&mut depot, 3, Some(11)).is_ok());
}
