//! Changes of the topology that are refused or given up, and exceptions that end.

use std::time::Duration;

use crate::support::group::{Group, HIGH, asked, key, start, topology, with_guest};
use legwork_model::event::Method;
use legwork_model::id::{InstanceId, ServerId};
use legwork_site::*;

/// With one more server in the north, of this weight.
fn with_third(text: &str, weight: u32) -> String {
    let server = "north-3: { address: \"north:3\", api: \"http://north:3\"";
    text.replace("  south:", &format!("      {server}, weight: {weight} }}\n  south:"))
}

#[test]
fn who_does_not_report_is_named_and_the_change_undone() {
    let mut group = Group::new(1, 0);
    group.away.insert(1);
    group.publish(&topology(1, 1), Method::Since).unwrap();
    let (id, held) = group.start(0, HIGH);
    group.pass(29_000);
    assert!(group.status().change.is_some());
    group.pass(1_000);
    let last = group.status().last.unwrap();
    let why = "`north-2` did not report within 30 s";
    assert_eq!((last.epoch, last.why.as_deref()), (None, Some(why)));
    group.pass(1);
    assert!(group.answers.remove(&held).unwrap().is_ok(), "what waited goes on as before");
    assert_eq!(group.holders(id), [0]);
    assert!(group.publish(&topology(1, 1), Method::Since).is_ok(), "and it can be tried again");
}

#[test]
fn what_cannot_be_brought_to_an_end_is_refused() {
    let mut group = Group::new(1, 0);
    let undo = group.ask(0, Request::Undo { why: None }).unwrap_err();
    assert_eq!(undo.code, "no_change");
    let more = with_third(&topology(1, 0), 1);
    assert_eq!(group.publish(&more, Method::Since).unwrap_err().code, "server_not_joined");
    let weighed_and_moved = topology(1, 1).replace("north:2\", api", "north:9\", api");
    let refusal = group.publish(&weighed_and_moved, Method::Since).unwrap_err();
    assert_eq!(refusal.code, "weights_and_hosts");
    let both = topology(1, 0).replace("\", api", "9\", api");
    let refused = group.publish(&both, Method::Since).unwrap_err();
    assert_eq!(refused.code, "registrar_moves_alone");
    assert!(refused.message.contains("`north-1` keeps the catalog"), "{}", refused.message);
    group.away.insert(1);
    group.publish(&topology(1, 1), Method::Since).unwrap();
    assert!(group.publish(&topology(1, 1), Method::Since).is_ok(), "the same is under way");
    let another = group.publish(&topology(2, 1), Method::Since).unwrap_err();
    assert_eq!(another.code, "change_under_way");
    assert_eq!(group.status().change.unwrap().estimate, Some(Duration::from_secs(1)));
}

#[test]
fn a_change_that_would_wait_for_somebody_who_is_away_is_not_begun() {
    let mut group = Group::new(1, 1);
    group.feed(0, Input::Link { to: ServerId(1), is_up: false });
    let refusal = group.publish(&topology(2, 1), Method::Since).unwrap_err();
    assert_eq!(refusal.code, "server_unreachable");
    assert!(refusal.message.contains("`north-2` cannot be reached"), "{}", refusal.message);
    let (id, _) = group.start(0, 0);
    assert_eq!(group.holders(id), [0], "nothing is locked");
    group.feed(0, Input::Link { to: ServerId(1), is_up: true });
    group.publish(&topology(2, 1), Method::Since).unwrap();
    assert_eq!(group.epochs(), [2, 2, 2]);
}

#[test]
fn a_server_that_never_had_a_part_keeps_no_change_from_ending() {
    let mut group = Group::new(1, 1);
    group.publish(&with_third(&topology(1, 1), 0), Method::Since).unwrap();
    // Nobody has ever started north-3.
    group.publish(&with_third(&topology(2, 1), 0), Method::Since).unwrap();
    assert_eq!(group.epochs(), [3, 3, 3]);
    group.publish(&with_third(&topology(2, 1), 1), Method::Since).unwrap();
    group.pass(30_000);
    let why = group.status().last.unwrap().why.unwrap();
    assert!(why.starts_with("`north-3` did not report"), "to get a part it has to be there: {why}");
}

#[test]
fn nobody_changes_the_weights_behind_the_back_of_one_that_may_believe_to_be_alone() {
    let mut group = Group::new(1, 0);
    group.away.insert(1);
    let mut change = asked(&topology(0, 1), Method::Since);
    change.without = vec!["north-1".into()];
    let refusal = group.ask(0, Request::PublishTopology(change)).unwrap_err();
    assert_eq!(refusal.code, "server_was_alone");
}

#[test]
fn a_question_about_a_key_is_asked_anew_when_the_server_has_moved() {
    let mut group = Group::new(1, 0);
    group.publish(&topology(1, 1), Method::Except).unwrap();
    group.away.insert(0);
    let id = group.draw(1, HIGH);
    let held = group.send(1, start(id, key(7)));
    group.away = [1].into();
    group.publish(&with_guest(), Method::Since).unwrap();
    group.away.clear();
    group.pass(1_000);
    assert_eq!(group.servers[1].site.mode(), Mode::Frozen { change: 2 });
    for _ in 0..12 {
        group.pass(1_000);
        let due = group.servers[1].site.next_timeout().unwrap();
        assert!(due.0 > group.now, "nothing is due that a frozen server does not do");
    }
    group.ask(0, Request::Undo { why: None }).unwrap();
    group.pass(1_000);
    group.pass(1_000);
    assert!(group.answers.remove(&held).unwrap().is_ok(), "nobody was ever out of reach");
    assert_eq!(group.holders(id), [1]);
}

/// How many divisions each server knows of the domain of the first.
fn versions(group: &Group) -> Vec<usize> {
    let seats = group.servers.iter().map(|server| server.site.seat().unwrap());
    seats.map(|seat| seat.topology.domains[0].chain.versions().count()).collect()
}

#[test]
fn an_exception_ends_with_its_instance() {
    let mut group = Group::new(1, 0);
    let ids: Vec<InstanceId> = (0..3).map(|_| group.start(0, HIGH).0).collect();
    group.publish(&topology(0, 1), Method::Except).unwrap();
    assert_eq!(versions(&group), [2, 2, 2]);
    for instance in ids {
        group.ask(0, Request::Abort { instance, reason: "done".to_owned() }).unwrap();
        group.pass(30_000);
    }
    assert_eq!(versions(&group), [1, 1, 1], "no instance comes to the older weights any more");
}

#[test]
fn as_many_exceptions_as_there_are_end_also_at_a_server_that_only_tells_of_them() {
    let mut group = Group::new(0, 1);
    let ids: Vec<InstanceId> = (0..4_100).map(|_| group.start(1, 0).0).collect();
    group.publish(&topology(1, 0), Method::Except).unwrap();
    group.pass(2_000);
    assert_eq!(versions(&group), [2, 2, 2]);
    for instance in ids {
        group.ask(1, Request::Abort { instance, reason: "done".to_owned() }).unwrap();
    }
    (0..3).for_each(|_| group.pass(30_000));
    assert_eq!(versions(&group), [1, 1, 1]);
    assert_eq!(group.servers[1].site.next_timeout().map(|due| due.0 > group.now), Some(true));
}
