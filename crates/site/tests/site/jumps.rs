//! Time goes on unseen: the clock is set forward, or the machine is suspended. Nobody is judged by what could not
//! be heard meanwhile.

use std::time::Duration;

use legwork_model::id::InstanceId;
use legwork_site::*;
use serde_json::json;

use crate::support::Harness;
use crate::support::depot::Depot;
use crate::support::office::{FRIDAY, at, complete, office, plan, start};

const HOURS: Duration = Duration::from_secs(2 * 3600);

/// The machine is suspended for so long.
fn suspend(site: &mut Harness, by: Duration) {
    site.now = site.now + by;
    site.feed(Input::Jumped { by });
    site.feed(Input::Settle);
}

/// A worker has a job; 20 seconds later the machine is suspended for hours.
fn suspended_with_a_lease() -> (Harness, Job) {
    let mut bank = Harness::bank();
    let loan = bank.start(1);
    bank.ask(Request::Complete(crate::support::complete("ann", loan, "capture"))).unwrap();
    let score = bank.jobs("credit-score", 1).remove(0);
    bank.pass(Duration::from_secs(20));
    suspend(&mut bank, HOURS);
    (bank, score)
}

#[test]
fn a_worker_keeps_its_lease_while_the_server_cannot_hear_it() {
    let (mut bank, score) = suspended_with_a_lease();
    assert!(bank.jobs("credit-score", 1).is_empty(), "it is still the first worker's");
    bank.report(&score, json!({ "risk": 1 })).unwrap();
}

#[test]
fn a_lease_runs_on_after_a_jump_for_as_long_as_it_had_left() {
    let (mut bank, score) = suspended_with_a_lease();
    bank.pass(Duration::from_secs(LEASE_SECONDS - 21));
    assert!(bank.jobs("credit-score", 1).is_empty());
    bank.pass(Duration::from_secs(2));
    let again = bank.jobs("credit-score", 1).remove(0);
    assert_ne!(again.lease, score.lease);
}

/// What workers of the bank ask for.
const LEASE_SECONDS: u64 = 60;

#[test]
fn an_executor_has_time_to_say_what_it_has_done_meanwhile() {
    let mut depot = Depot::with(&["crane"]);
    // How long it takes is known: otherwise nobody is given up for silence.
    for number in 1..=3 {
        depot.start(number);
        let (name, task) = depot.task();
        depot.site.pass(Duration::from_millis(200));
        depot.done(&name, &task);
        depot.confirm(&name, &task);
    }
    let late = depot.start(4);
    let (name, task) = depot.task();
    suspend(&mut depot.site, HOURS);
    depot.site.pass(Duration::from_secs(10));
    let (said, _) = depot.said();
    assert!(
        !said.iter().any(|text| text.contains("attempt 2") || text.contains("cancel")),
        "{said:?}"
    );
    depot.done(&name, &task);
    depot.confirm(&name, &task);
    assert!(depot.packed(late).unwrap().contains("crane"));
}

#[test]
fn a_promise_is_not_taken_back_before_those_who_kept_it_were_heard() {
    let mut harness = office();
    let claim = InstanceId(1 << 80);
    start(&mut harness, 1, "2026-01-16T12:30:00Z");
    harness.ask(crate::support::claim("ann", claim, "check")).unwrap();
    harness.pass(Duration::from_secs(60));
    // From eight to a quarter past eleven: by the plan it is done, and the manager at work.
    suspend(&mut harness, Duration::from_secs(3 * 3600 + 900));
    harness.pass(Duration::from_secs(10));
    complete(&mut harness, claim, "check", "ann");
    complete(&mut harness, claim, "approve", "bea");
    let (counts, began) = (harness.site.deadlines(), at(FRIDAY));
    assert_eq!((counts.revoked, counts.kept), (0, 1), "begun at {began}");
}

#[test]
fn what_nobody_does_after_a_jump_is_judged_then() {
    let mut harness = office();
    let claim = InstanceId(1 << 80);
    start(&mut harness, 1, "2026-01-16T12:30:00Z");
    suspend(&mut harness, Duration::from_secs(3 * 3600 + 1800));
    assert_eq!(harness.site.deadlines().revoked, 0);
    (0..30).for_each(|_| harness.pass(Duration::from_secs(1)));
    let Ok(Answer::Instance(view)) =
        harness.ask(Request::Show { instance: claim, wait_until: None })
    else {
        panic!("a case")
    };
    let planned = plan(view.info.deadline.as_ref().unwrap());
    assert!(planned.starts_with("not promised"), "{planned}");
    assert_eq!(harness.site.deadlines().revoked, 1);
}

#[test]
fn whoever_is_slow_again_and_again_is_judged_all_the_same() {
    let mut harness = office();
    let claim = InstanceId(1 << 80);
    start(&mut harness, 1, "2026-01-16T12:30:00Z");
    suspend(&mut harness, Duration::from_secs(3 * 3600 + 1800));
    for _ in 0..10 {
        suspend(&mut harness, Duration::from_secs(6));
    }
    assert_eq!(harness.site.deadlines().revoked, 1, "nobody has begun {claim}");
}
