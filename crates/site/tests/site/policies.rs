//! Who chooses the executors of a type, and what is told of why.

use crate::support::depot::Depot;
use legwork_model::id::InstanceId;
use legwork_site::*;

fn set(policy: &str, recorded: bool) -> Request {
    let (job, policy) = ("pack".into(), policy.into());
    Request::Executor(Concern::SetPolicy { job, policy, recorded })
}

fn listed(depot: &mut Depot) -> Vec<(String, String, bool)> {
    let Answer::Policies(all) = depot.site.ask(Request::Executor(Concern::Policies)).unwrap()
    else {
        panic!()
    };
    let told = |one: PolicyInfo| (one.job.to_string(), one.policy.to_string(), one.recorded);
    all.into_iter().map(told).collect()
}

/// Starts so many cases, and tells to whom each went: all are done before the next begins.
fn went(depot: &mut Depot, numbers: std::ops::Range<u128>) -> Vec<String> {
    let mut went = Vec::new();
    for number in numbers {
        depot.start(number);
        let (name, task) = depot.task();
        depot.site.now.0 += 10;
        depot.done(&name, &task);
        depot.confirm(&name, &task);
        depot.said();
        went.push(name);
    }
    went
}

fn reasons(depot: &mut Depot, number: u128) -> Vec<String> {
    let history = Request::History { instance: InstanceId(number), from: 0, limit: 100 };
    let Answer::History { entries, .. } = depot.site.ask(history).unwrap() else { panic!() };
    let assigned = entries.into_iter().filter(|entry| entry.kind == "assigned");
    assigned.map(|entry| entry.detail.unwrap()).collect()
}

#[test]
fn a_type_has_the_policy_that_was_set_also_after_a_restart() {
    let mut depot = Depot::with(&["crane", "lift"]);
    assert!(listed(&mut depot).is_empty());
    depot.site.ask(set("round-robin", false)).unwrap();
    assert_eq!(went(&mut depot, 1..5), ["crane", "lift", "crane", "lift"]);
    depot.site.restart();
    assert_eq!(listed(&mut depot), [("pack".to_owned(), "round-robin".to_owned(), false)]);
    assert_eq!(went(&mut depot, 5..9), ["crane", "lift", "crane", "lift"]);
    depot.site.ask(set("adaptive", false)).unwrap();
    assert!(listed(&mut depot).is_empty(), "as usual");
}

#[test]
fn adaptive_can_still_be_set_by_its_former_name() {
    let mut depot = Depot::with(&["crane"]);
    depot.site.ask(set("ours", true)).unwrap();
    assert_eq!(listed(&mut depot), [("pack".to_owned(), "adaptive".to_owned(), true)]);
    depot.site.ask(set("ours", false)).unwrap();
    assert!(listed(&mut depot).is_empty(), "the default");
}

#[test]
fn a_policy_that_does_not_exist_is_refused_with_those_that_do() {
    let mut depot = Depot::with(&[]);
    let refusal = depot.site.refusal(set("best", false));
    assert!(refusal.contains("best") && refusal.contains("oxthas-3"), "{refusal}");
}

#[test]
fn the_history_says_why_where_that_is_wanted() {
    let mut depot = Depot::with(&["crane"]);
    went(&mut depot, 1..3);
    assert!(reasons(&mut depot, 2).is_empty());
    depot.site.ask(set("adaptive", true)).unwrap();
    went(&mut depot, 3..4);
    let told = reasons(&mut depot, 3);
    assert_eq!(told, ["to crane; adaptive: takes 10.0 ms, has 0.0 ms to do, one of 1"]);
    depot.site.ask(set("random", true)).unwrap();
    went(&mut depot, 4..5);
    assert!(reasons(&mut depot, 4)[0].starts_with("to crane; random: "), "{told:?}");
}
