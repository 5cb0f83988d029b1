//! Executors: who gets a task, which result counts, and what they are told.

use crate::support::depot::{Depot, SECOND, registration};
use crate::support::{Harness, data_of};
use legwork_model::event::{ExecutorType, Performer, Secret};
use legwork_model::id::InstanceId;
use legwork_site::*;
use serde_json::json;

#[test]
fn a_case_goes_on_when_the_executor_has_confirmed_that_its_result_counts() {
    let mut depot = Depot::with(&["crane"]);
    let case = depot.start(1);
    let (name, task) = depot.task();
    depot.report(&name, &task, Outcome::Taken);
    assert_eq!(depot.said().0, [""; 0]);
    depot.done(&name, &task);
    assert_eq!((depot.said().0, depot.packed(case)), (vec!["crane ack".to_owned()], None));
    assert_eq!(depot.site.states(case), "Running: pack=Answered");
    depot.confirm(&name, &task);
    assert!(depot.packed(case).unwrap().contains("crane"));
    depot.confirm(&name, &task);
}

#[test]
fn only_the_last_assignment_counts_and_a_verdict_is_the_same_however_often_it_is_asked_for() {
    let mut depot = Depot::with(&["crane", "lift"]);
    let case = depot.start(1);
    let (first, early) = depot.task();
    depot.site.pass(120 * SECOND);
    depot.site.pass(2 * SECOND);
    let (said, mut tasks) = depot.said();
    let (second, late) = tasks.pop().unwrap();
    assert_ne!(first, second, "one that has not had it");
    assert_eq!(said, [format!("{first} cancel"), format!("{second} do pack attempt 2")]);
    depot.done(&first, &early);
    assert_eq!(depot.said().0, [format!("{first} nack")]);
    depot.done(&second, &late);
    assert_eq!(depot.said().0, [format!("{second} ack")]);
    depot.done(&first, &early);
    depot.confirm(&second, &late);
    depot.done(&second, &late);
    depot.site.restart();
    depot.done(&first, &early);
    depot.done(&second, &late);
    let told = [format!("{first} nack"), format!("{second} ack")];
    assert_eq!(depot.said().0, [told.clone(), told].concat());
    assert!(depot.packed(case).unwrap().contains(&second));
}

#[test]
fn a_result_that_counts_is_not_lost_by_a_restart_before_it_is_confirmed() {
    let mut depot = Depot::with(&["crane"]);
    let case = depot.start(1);
    let (name, task) = depot.task();
    depot.done(&name, &task);
    depot.said();
    depot.site.restart();
    depot.site.pass(SECOND);
    assert_eq!(depot.said().0, ["crane ack"], "and it is not given out again");
    depot.site.pass(2 * SECOND);
    assert_eq!(depot.said().0, ["crane ack"]);
    depot.confirm(&name, &task);
    assert!(depot.packed(case).is_some());
    depot.site.pass(600 * SECOND);
    assert_eq!(depot.said().0, [""; 0]);
}

#[test]
fn what_counted_while_executors_were_called_workers_counts_still() {
    let mut depot = Depot::with(&["crane"]);
    let (confirmed, answered) = (depot.start(1), depot.start(2));
    let tasks = depot.said().1;
    let [(name, first), (_, second)] = &tasks[..] else { panic!("{tasks:?}") };
    depot.done(name, first);
    depot.confirm(name, first);
    depot.done(name, second);
    depot.said();
    // As the version before wrote it.
    for case in [confirmed, answered] {
        let renamed = depot.site.rewrite(case, b"\x82\x03\x65crane", b"\x82\x02\x65crane");
        assert_eq!(renamed, if case == confirmed { 2 } else { 1 });
    }
    depot.site.restart();
    depot.site.pass(SECOND);
    assert_eq!(depot.said().0, ["crane ack"], "the one that is not confirmed");
    depot.done(name, first);
    depot.done(name, second);
    assert_eq!(depot.said().0, ["crane ack", "crane ack"]);
    depot.confirm(name, second);
    assert!(depot.packed(answered).is_some());
}

#[test]
fn who_is_busy_rests_and_that_is_no_failed_attempt() {
    let mut depot = Depot::with(&["crane"]);
    depot.start(1);
    let (name, task) = depot.task();
    depot.report(&name, &task, Outcome::Busy { rest: Some(5 * SECOND) });
    depot.site.pass(4 * SECOND);
    assert_eq!(depot.said().0, [""; 0]);
    depot.site.pass(SECOND);
    assert_eq!(depot.said().0, ["crane do pack attempt 1"]);
}

#[test]
fn failures_go_round_and_end_in_an_incident_that_tells_each() {
    let mut depot = Depot::with(&["crane", "lift"]);
    let case = depot.start(1);
    let mut names = Vec::new();
    for number in 1..=4 {
        let (name, task) = depot.task();
        let error = format!("no paper in tray {number}");
        depot.report(&name, &task, Outcome::Failed { error, retry: true });
        names.push(name);
        depot.site.pass(60 * SECOND);
    }
    assert_ne!(names[0], names[1]);
    let incidents = depot.site.ask(Request::Incidents { limit: 9, after: None }).unwrap();
    let Answer::Incidents { incidents, .. } = incidents else { panic!("{incidents:?}") };
    assert_eq!(incidents.len(), 1);
    let message = "failed 4 times, at last with: no paper in tray 4";
    assert_eq!(incidents[0].message, message);
    let told = incidents[0].failures.iter().zip(&names).zip(1..);
    for ((failure, name), number) in told {
        assert_eq!(failure.by, Performer::Executor(name.as_str().into()));
        assert_eq!(failure.error, format!("no paper in tray {number}"));
    }
    assert_eq!(incidents[0].failures.len(), 4);
    assert!(incidents[0].failures.is_sorted_by_key(|failure| failure.at));
    let history = Request::History { instance: case, from: 0, limit: 100 };
    let Answer::History { entries, .. } = depot.site.ask(history).unwrap() else { panic!() };
    assert_eq!(entries.iter().filter(|entry| entry.kind == "failed").count(), 4);
}

#[test]
fn a_result_that_does_not_fit_is_a_failed_attempt_and_does_not_count() {
    let mut depot = Depot::with(&["crane", "lift"]);
    let case = depot.start(1);
    let (name, task) = depot.task();
    depot.report(&name, &task, Outcome::Done(data_of(json!({ "packed": 7 }))));
    let said = depot.said().0;
    assert!(said.contains(&format!("{name} nack")), "{said:?}");
    depot.site.pass(2 * SECOND);
    let (other, task) = depot.task();
    depot.done(&other, &task);
    depot.confirm(&other, &task);
    assert!(depot.packed(case).unwrap().contains(&other));
}

#[test]
fn nobody_has_more_than_it_may_and_what_waits_goes_out_when_there_is_room() {
    let mut depot = Depot::with(&["crane"]);
    for number in 1..=5 {
        depot.start(number);
    }
    let (said, tasks) = depot.said();
    assert_eq!(said.len(), 2);
    depot.done("crane", &tasks[0].1);
    assert_eq!(depot.said().0, ["crane ack", "crane do pack attempt 1"]);
}

#[test]
fn an_executor_without_verdicts_is_told_none_and_its_case_goes_on_at_once() {
    let mut depot = Depot::with(&[]);
    let plain = RegisterExecutor { verdicts: false, ..registration("crane") };
    depot.site.ask(Request::Executor(Concern::Register(plain))).unwrap();
    let case = depot.start(1);
    let (name, task) = depot.task();
    depot.done(&name, &task);
    assert_eq!(depot.said().0, [""; 0]);
    assert!(depot.packed(case).is_some());
}

#[test]
fn a_case_that_is_aborted_cancels_its_task_and_a_result_does_not_count() {
    let mut depot = Depot::with(&["crane"]);
    let instance = depot.start(1);
    let (name, task) = depot.task();
    depot.site.ask(Request::Abort { instance, reason: "stop".to_owned() }).unwrap();
    assert_eq!(depot.said().0, ["crane cancel"]);
    depot.done(&name, &task);
    assert_eq!(depot.said().0, ["crane nack"]);
}

#[test]
fn what_an_executor_has_done_counts_also_when_it_is_taken_out_before_it_has_confirmed() {
    let mut depot = Depot::with(&["crane"]);
    let case = depot.start(1);
    let (name, task) = depot.task();
    depot.done(&name, &task);
    depot.site.ask(Request::Executor(Concern::Remove { name: "crane".into() })).unwrap();
    depot.site.pass(2 * SECOND);
    assert!(depot.packed(case).is_some());
}

#[test]
fn a_registration_changes_nothing_when_it_says_what_is_known_and_is_checked() {
    let mut depot = Depot::with(&["crane"]);
    let unchanged =
        |answer: Answer| matches!(answer, Answer::ExecutorRegistered { unchanged: true });
    let same = Request::Executor(Concern::Register(registration("crane")));
    assert!(unchanged(depot.site.ask(same).unwrap()));
    let other = RegisterExecutor { limit: 3, ..registration("crane") };
    assert!(!unchanged(depot.site.ask(Request::Executor(Concern::Register(other))).unwrap()));
    let wrong: [(RegisterExecutor, &str); 6] = [
        (registration("no name"), "letters"),
        (RegisterExecutor { url: "ftp://x".into(), ..registration("a") }, "http://"),
        (RegisterExecutor { secret: Secret("short".to_owned()), ..registration("a") }, "secret"),
        (RegisterExecutor { types: Vec::new(), ..registration("a") }, "types"),
        (RegisterExecutor { limit: 0, ..registration("a") }, "at a time"),
        (RegisterExecutor { reserve: Some(91), ..registration("a") }, "0 to 90 per cent"),
    ];
    for (asked, why) in wrong {
        let refusal = depot.site.refusal(Request::Executor(Concern::Register(asked)));
        assert!(refusal.contains(why), "{refusal}");
    }
    depot.site.restart();
    depot.start(1);
    assert_eq!(depot.said().0, ["crane do pack attempt 1"]);
}

#[test]
fn an_executor_can_say_nothing_of_what_another_one_has() {
    let mut depot = Depot::with(&["crane", "lift"]);
    let case = depot.start(1);
    let (own, task) = depot.task();
    let other = if own == "crane" { "lift" } else { "crane" };
    depot.report(other, &task, Outcome::Failed { error: "no".to_owned(), retry: false });
    depot.done(other, &task);
    assert_eq!((depot.said().0, depot.packed(case)), (vec![format!("{other} nack")], None));
    depot.done(&own, &task);
    depot.confirm(other, &task);
    assert_eq!((depot.said().0, depot.packed(case)), (vec![format!("{own} ack")], None));
    depot.confirm(&own, &task);
    assert!(depot.packed(case).unwrap().contains(&own));
    depot.done(other, &task);
    assert_eq!(depot.said().0, [format!("{other} nack")]);
}

#[test]
fn a_task_that_is_out_stays_out_when_its_case_is_suspended_and_resumed() {
    let mut depot = Depot::with(&["crane", "lift"]);
    let instance = depot.start(1);
    let (name, task) = depot.task();
    depot.site.ask(Request::Suspend { instance, reason: None }).unwrap();
    depot.site.ask(Request::Resume { instance, reason: None }).unwrap();
    assert_eq!(depot.said().0, [""; 0]);
    depot.done(&name, &task);
    depot.confirm(&name, &task);
    assert!(depot.packed(instance).is_some());
}

#[test]
fn what_has_failed_waits_while_its_case_is_suspended() {
    let mut depot = Depot::with(&["crane", "lift"]);
    let instance = depot.start(1);
    let (name, task) = depot.task();
    depot.site.ask(Request::Suspend { instance, reason: None }).unwrap();
    depot.report(&name, &task, Outcome::Failed { error: "no".to_owned(), retry: true });
    depot.site.pass(300 * SECOND);
    assert!(!depot.said().0.iter().any(|said| said.contains("do pack")));
    depot.site.ask(Request::Resume { instance, reason: None }).unwrap();
    let said = depot.said().0;
    assert!(said.iter().any(|said| said.ends_with("do pack attempt 2")), "{said:?}");
}

#[test]
fn what_counted_before_its_case_was_aborted_has_counted() {
    let mut depot = Depot::with(&["crane"]);
    let instance = depot.start(1);
    let (name, task) = depot.task();
    depot.done(&name, &task);
    depot.site.ask(Request::Abort { instance, reason: "stop".to_owned() }).unwrap();
    depot.said();
    depot.site.restart();
    depot.done(&name, &task);
    assert_eq!(depot.said().0, ["crane ack"]);
}

#[test]
fn an_executor_that_wants_no_verdicts_any_more_keeps_nothing_waiting() {
    let mut depot = Depot::with(&["crane"]);
    let case = depot.start(1);
    let (name, task) = depot.task();
    depot.done(&name, &task);
    let plain = RegisterExecutor { verdicts: false, ..registration("crane") };
    depot.site.ask(Request::Executor(Concern::Register(plain))).unwrap();
    depot.site.pass(2 * SECOND);
    assert!(depot.packed(case).is_some());
}

#[test]
fn a_job_that_waits_for_its_next_attempt_does_not_keep_others_waiting() {
    let mut depot = Depot::with(&["crane"]);
    for number in 1..=2 {
        depot.start(number);
    }
    let tasks = depot.said().1;
    depot.site.ask(Request::Executor(Concern::Register(registration("lift")))).unwrap();
    let error = || Outcome::Failed { error: "no".to_owned(), retry: true };
    tasks.iter().for_each(|(name, task)| depot.report(name, task, error()));
    depot.site.pass(SECOND);
    // Lift has both, and is full; crane has had them and is free.
    let said = depot.said().0;
    assert_eq!(said.iter().filter(|said| said.starts_with("lift do")).count(), 2, "{said:?}");
    depot.start(3);
    assert_eq!(depot.said().0, ["crane do pack attempt 1"]);
}

#[test]
fn nobody_speaks_for_an_executor_but_itself() {
    let mut depot = Depot::with(&["crane"]);
    depot.start(1);
    let (_, task) = depot.task();
    let report = || {
        let outcome = Outcome::Done(data_of(json!({ "packed": "x" })));
        Request::Executor(Concern::Report(TaskReport {
            executor: "crane".into(),
            task: task.clone(),
            outcome,
            feedback: Feedback::default(),
            holds: None,
        }))
    };
    let refusal = depot.site.refusal(report());
    assert!(refusal.contains("executor:crane"), "{refusal}");
    let refusal = depot.speak("lift", report()).unwrap_err();
    assert_eq!(refusal.code, "forbidden");
}

#[test]
fn an_executor_with_another_token_is_the_same_and_may_change_nothing() {
    let mut depot = Depot::with(&[]);
    let mut issue = |number: u8, scope| {
        let (name, hash) = (format!("token{number}"), [number; 32]);
        depot.site.ask(Request::IssueToken { name, hash, scopes: vec![scope] }).unwrap();
        depot.site.credential = Credential::Token([1; 32]);
    };
    issue(1, Scope::Admin);
    issue(2, Scope::Worker);
    issue(3, Scope::Worker);
    let mut register = |number, asked| {
        depot.site.credential = Credential::Token([number; 32]);
        match depot.site.ask(Request::Executor(Concern::Register(asked))) {
            Ok(Answer::ExecutorRegistered { unchanged }) => Ok(unchanged),
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => Err(refusal.code),
        }
    };
    assert_eq!(register(2, registration("crane")), Ok(false));
    assert_eq!(register(3, registration("crane")), Ok(true));
    let secret = Secret("t".repeat(32));
    for other in [
        RegisterExecutor { secret, ..registration("crane") },
        RegisterExecutor { limit: 3, ..registration("crane") },
    ] {
        assert_eq!(register(3, other), Err("executor_exists"));
    }
}

#[test]
fn a_secret_stays_out_of_logs() {
    let mut depot = Depot::with(&["crane"]);
    depot.start(1);
    let request = Request::Executor(Concern::Register(registration("crane")));
    let listed = depot.site.ask(Request::Executor(Concern::List { after: None, limit: 9 }));
    let shown = format!("{request:?} {:?} {listed:?} {:?}", depot.site.calls, depot.site.site);
    assert!(shown.contains("crane.example") && !shown.contains("ssss"), "{shown}");
}

const ROUNDS: &str = r#"
process: loan
data: { amount: int, packed: string }
start: [amount]
steps:
  - loop: again
    steps:
      - step: pack
        job: pack
        retry: { times: 3, pause: 1s }
        writes: [packed]
    until: packed == "enough"
"#;

#[test]
fn results_of_earlier_rounds_get_the_verdict_that_they_had() {
    let mut depot = Depot::at(Harness::new(), ROUNDS, &["crane", "lift"]);
    depot.start(1);
    let (mut counted, mut wasted) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (name, task) = depot.task();
        wasted.push((name.clone(), task.clone()));
        depot.report(&name, &task, Outcome::Failed { error: "no".to_owned(), retry: true });
        depot.site.pass(2 * SECOND);
        let (name, task) = depot.task();
        depot.done(&name, &task);
        depot.confirm(&name, &task);
        counted.push((name, task));
    }
    for _ in 0..2 {
        for (all, verdict) in [(&counted, "ack"), (&wasted, "nack")] {
            for (name, task) in all {
                depot.said();
                depot.done(name, task);
                assert_eq!(depot.said().0, [format!("{name} {verdict}")]);
                depot.confirm(name, task);
            }
        }
        // What counted of one is nothing of the other.
        let (name, task) = &counted[0];
        let other = if name == "crane" { "lift" } else { "crane" };
        depot.done(other, task);
        assert_eq!(depot.said().0, [format!("{other} nack")]);
        depot.confirm(other, task);
        depot.site.restart();
        depot.site.pass(SECOND);
    }
}

#[test]
fn what_the_good_one_has_no_room_for_is_not_poured_into_one_that_fails() {
    let mut depot = Depot::with(&["crane", "lift"]);
    let no = || Outcome::Failed { error: "no".to_owned(), retry: true };
    let (mut failed, mut open) = (0, Vec::new());
    for number in 1..=200 {
        depot.start(number);
        for (name, task) in depot.said().1 {
            match name.as_str() {
                "lift" => depot.report(&name, &task, no()),
                _ => open.push(task),
            }
            failed += usize::from(name == "lift");
        }
        // Crane is slow: most of the time it has all that it takes.
        depot.site.pass(SECOND / 10);
        if number % 10 == 0 && !open.is_empty() {
            depot.done("crane", &open.remove(0));
        }
    }
    assert!(failed < 20, "{failed} attempts were wasted");
}

const TWO_TYPES: &str = "
process: loan
data: { amount: int }
start: [amount]
steps:
  - step: pack
    job: pack
    retry: { times: 0 }
  - step: render
    job: render
    retry: { times: 0 }
";

#[test]
fn nobody_is_given_up_as_silent_at_a_type_that_it_has_never_done() {
    let mut depot = Depot::at(Harness::new(), TWO_TYPES, &[]);
    let of_type = |job: &str| ExecutorType { job: job.into(), limit: None, rate: None };
    let types = vec![of_type("pack"), of_type("render")];
    let both = RegisterExecutor { types, verdicts: false, ..registration("crane") };
    depot.site.ask(Request::Executor(Concern::Register(both))).unwrap();
    let nothing = || Outcome::Done(data_of(json!({})));
    depot.start(1);
    let (_, pack) = depot.task();
    depot.site.pass(SECOND / 200);
    depot.report("crane", &pack, nothing());
    let (_, render) = depot.task();
    assert_eq!(&*render.activity.step, "render");
    // Ten thousand times as long as what it is known for.
    (0..50).for_each(|_| depot.site.pass(SECOND));
    assert_eq!(depot.said().0, [""; 0], "it is waited for");
    depot.report("crane", &render, nothing());
    assert!(depot.site.states(InstanceId(1)).starts_with("Completed"));
}
