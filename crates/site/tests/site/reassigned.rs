//! What goes to others, in which order, and that nothing is forgotten on the way.

use crate::support::Harness;
use crate::support::depot::{Depot, PACK, SECOND, registration};
use legwork_model::event::ExecutorType;
use legwork_site::*;

/// The second step is for somebody else.
const TWO_STEPS: &str = "
process: loan
data: { amount: int, packed: string }
start: [amount]
steps:
  - { step: pack, job: pack, reads: [amount], writes: [packed] }
  - { step: ship, job: ship, reads: [packed] }
";

fn failed() -> Outcome {
    Outcome::Failed { error: "paper jam".to_owned(), retry: true }
}

#[test]
fn what_comes_after_a_result_that_counts_without_being_confirmed_is_given_out_at_once() {
    let mut depot = Depot::at(Harness::new(), TWO_STEPS, &["crane"]);
    let types = vec![ExecutorType { job: "ship".into(), limit: None, rate: None }];
    let lift = RegisterExecutor { types, ..registration("lift") };
    depot.site.ask(Request::Executor(Concern::Register(lift))).unwrap();
    depot.start(1);
    let (_, task) = depot.task();
    depot.done("crane", &task);
    depot.said();
    depot.site.ask(Request::Executor(Concern::Remove { name: "crane".into() })).unwrap();
    // When it would be told again.
    depot.site.pass(SECOND * 60);
    let (said, _) = depot.said();
    assert!(said.contains(&"lift do ship attempt 1".to_owned()), "{said:?}");
}

#[test]
fn a_second_attempt_is_not_wasted_on_those_that_are_known_to_fail() {
    let mut depot = Depot::with(&["crane", "lift"]);
    // Crane fails until nothing is expected of it.
    let mut number = 0;
    let mut fails = 0;
    while fails < 3 {
        number += 1;
        depot.start(number);
        let mut open = depot.said().1;
        while let Some((name, task)) = open.pop() {
            if name == "crane" {
                fails += 1;
                depot.report("crane", &task, failed());
                depot.site.pass(SECOND * 2);
            } else {
                depot.site.now.0 += 10;
                depot.done(&name, &task);
                depot.confirm(&name, &task);
            }
            open.extend(depot.said().1);
        }
        assert!(number < 100, "it is tried in the end");
    }
    depot.start(1_000);
    let (name, task) = depot.task();
    assert_eq!(name, "lift");
    depot.report("lift", &task, failed());
    depot.site.pass(SECOND * 2);
    let (said, _) = depot.said();
    let again = said.iter().find(|said| said.contains("attempt 2"));
    assert_eq!(again.map(|said| &said[..4]), Some("lift"), "{said:?}");
}

#[test]
fn whoever_failed_is_tried_now_and_then_while_others_do_the_work() {
    let mut depot = Depot::with(&["crane", "lift"]);
    let mut given =
        std::collections::BTreeMap::from([("crane".to_owned(), 0), ("lift".to_owned(), 0)]);
    for number in 1..600 {
        depot.start(number);
        let mut open = depot.said().1;
        while let Some((name, task)) = open.pop() {
            *given.get_mut(&name).unwrap() += 1;
            depot.site.now.0 += 10;
            // It is back after a while.
            if name == "crane" && number < 200 {
                depot.report("crane", &task, failed());
                depot.site.pass(SECOND * 2);
            } else {
                depot.done(&name, &task);
                depot.confirm(&name, &task);
            }
            open.extend(depot.said().1);
        }
        if number == 200 {
            assert!(given["crane"] < 40, "left alone but for a task now and then: {given:?}");
            given.insert("crane".to_owned(), 0);
        }
    }
    assert!(given["crane"] > 0, "and seen to be back: {given:?}");
}

#[test]
fn when_all_have_had_it_all_but_the_last_may_have_it_again() {
    let mut depot = Depot::at(
        Harness::new(),
        &PACK.replace("times: 3", "times: 9"),
        &["crane", "lift", "truck"],
    );
    depot
        .site
        .ask(Request::Executor(Concern::SetPolicy {
            job: "pack".into(),
            policy: "random".into(),
            recorded: false,
        }))
        .unwrap();
    depot.start(1);
    let mut had = Vec::new();
    for attempt in 0..9_u32 {
        let (name, task) = depot.task();
        depot.report(&name, &task, failed());
        had.push(name);
        depot.site.pass(SECOND * 2_u32.pow(attempt + 1));
    }
    for round in had.chunks(3) {
        let distinct: std::collections::BTreeSet<&String> = round.iter().collect();
        assert_eq!(distinct.len(), 3, "everybody once in each round: {had:?}");
    }
    assert!(had.windows(2).all(|two| two[0] != two[1]), "{had:?}");
}

#[test]
fn a_worker_has_nothing_to_say_about_what_an_executor_has() {
    let mut depot = Depot::with(&["crane"]);
    depot.start(1);
    let (_, task) = depot.task();
    let jobs = vec![JobFailure { job: task.clone(), error: "no".to_owned(), retry: true }];
    let failing = Request::FailJobs { worker: "robot".into(), jobs };
    let Answer::JobResults(results) = depot.site.ask(failing).unwrap() else { panic!() };
    assert_eq!(results[0].as_ref().unwrap_err().code, "lease_lost");
    let returning = Request::ReturnJobs { jobs: vec![task.clone()] };
    let Answer::JobResults(results) = depot.site.ask(returning).unwrap() else { panic!() };
    assert_eq!(results[0].as_ref().unwrap_err().code, "lease_lost");
    depot.done("crane", &task);
    assert_eq!(depot.said().0, ["crane ack"]);
}

#[test]
fn what_a_worker_lets_run_out_is_offered_to_nobody_while_its_case_is_suspended() {
    let mut depot = Depot::with(&[]);
    let instance = depot.start(1);
    assert_eq!(depot.site.jobs("pack", 1).len(), 1);
    depot.site.ask(Request::Suspend { instance, reason: None }).unwrap();
    depot.site.pass(SECOND * 3_600);
    assert_eq!(depot.site.jobs("pack", 1).len(), 0);
    depot.site.ask(Request::Resume { instance, reason: None }).unwrap();
    assert_eq!(depot.site.jobs("pack", 1).len(), 1);
}

#[test]
fn nobody_begins_anything_for_a_case_that_is_suspended() {
    let mut depot = Depot::with(&["crane"]);
    let instance = depot.start(1);
    depot.task();
    depot.site.ask(Request::Suspend { instance, reason: None }).unwrap();
    depot.site.ask(Request::Executor(Concern::Register(registration("lift")))).unwrap();
    depot.site.ask(Request::Executor(Concern::Remove { name: "crane".into() })).unwrap();
    depot.site.pass(SECOND);
    assert_eq!(depot.said().0, [""; 0], "what crane had");
    depot.site.ask(Request::Resume { instance, reason: None }).unwrap();
    assert_eq!(depot.said().0, ["lift do pack attempt 1"]);
}

#[test]
fn what_a_worker_failed_at_in_a_suspended_case_is_tried_again_when_it_is_resumed() {
    let mut depot = Depot::with(&[]);
    let instance = depot.start(1);
    let job = depot.site.jobs("pack", 1).pop().unwrap();
    depot.site.ask(Request::Suspend { instance, reason: None }).unwrap();
    let lease = JobLease { activity: job.activity, lease: job.lease };
    let jobs = vec![JobFailure { job: lease, error: "no".to_owned(), retry: true }];
    depot.site.ask(Request::FailJobs { worker: "robot".into(), jobs }).unwrap();
    depot.site.pass(SECOND * 2);
    assert_eq!(depot.site.jobs("pack", 1).len(), 0);
    depot.site.ask(Request::Resume { instance, reason: None }).unwrap();
    assert_eq!(depot.site.jobs("pack", 1).len(), 1, "not when its lease would have run out");
}
