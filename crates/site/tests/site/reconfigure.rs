//! Weights and hosts change while cases run: what is locked, what is reported, what becomes of it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::group::{Group, HIGH, Server, asked, code, key, start, topology, with_guest};
use legwork_model::event::{Event, Method, Record};
use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_site::*;

#[test]
fn by_time_stamp_new_weights_count_for_what_is_created_from_then_on() {
    let mut group = Group::new(1, 0);
    let (old, _) = group.start(2, HIGH);
    assert_eq!(group.holders(old), [0, 2]);
    group.pass(1);
    group.publish(&topology(1, 1), Method::Since).unwrap();
    assert_eq!(group.epochs(), [2, 2, 2], "all in one go: everybody hears at once");
    let draws = [(group.draw(2, HIGH), 0), (old, 0)];
    group.pass(1);
    let new = group.start(2, HIGH).0;
    assert_eq!(group.holders(new), [1, 2]);
    let topology = group.servers[2].site.seat().unwrap().topology.clone();
    for (id, server) in draws {
        assert_eq!(topology.domains[0].chain.server(id), ServerId(server), "{id}");
    }
}

#[test]
fn by_exceptions_they_count_for_all_but_what_is_there() {
    let mut group = Group::new(1, 0);
    let (here, _) = group.start(0, HIGH);
    let elsewhere = group.draw(2, HIGH);
    group.publish(&topology(1, 1), Method::Except).unwrap();
    assert_eq!(group.epochs(), [2, 2, 2]);
    let chain = group.servers[2].site.seat().unwrap().topology.domains[0].chain.clone();
    assert_eq!(chain.server(here), ServerId(0), "it is there");
    assert_eq!(chain.server(elsewhere), ServerId(1), "created before, and not there yet");
    let status = group.status();
    assert_eq!(status.last, Some(LastChange { number: 1, epoch: Some(2), why: None }));
}

#[test]
fn what_a_locked_server_may_not_start_waits_and_may_belong_elsewhere_then() {
    let mut group = Group::new(1, 0);
    group.away.insert(1);
    group.publish(&topology(1, 1), Method::Except).unwrap();
    let (stays, first) = group.start(0, 0);
    let (goes, second) = group.start(0, HIGH);
    assert_eq!((group.answers.len(), group.servers[0].site.held()), (0, 2));
    let change = group.status().change.unwrap();
    assert_eq!((change.phase, change.missing), (Phase::Locking, vec!["north-2".into()]));
    assert_eq!((change.domains, change.reported), (vec!["north".into()], vec!["north-1".into()]));
    group.away.clear();
    group.pass(1_000);
    assert_eq!(group.epochs(), [2, 2, 2], "who does not seem to have heard is told again");
    group.pass(1);
    assert!(group.answers.remove(&first).unwrap().is_ok());
    assert_eq!(code(group.answers.remove(&second)), ("placed_elsewhere", Some(ServerId(1))));
    assert_eq!((group.holders(stays), group.holders(goes)), (vec![0], vec![]));
}

#[test]
fn a_server_that_is_declared_down_is_not_waited_for_but_nobody_knows_what_it_has() {
    let mut group = Group::new(1, 1);
    group.away.insert(1);
    let mut asked = asked(&topology(1, 0), Method::Except);
    asked.without = vec!["north-2".into()];
    let refusal = group.ask(0, Request::PublishTopology(asked)).unwrap_err();
    assert_eq!(refusal.code, "exceptions_unknown");
    let mut asked = self::asked(&topology(1, 0), Method::Since);
    asked.without = vec!["north-2".into()];
    group.ask(0, Request::PublishTopology(asked)).unwrap();
    group.pass(2_000);
    assert_eq!(group.epochs(), [2, 1, 2]);
}

#[test]
fn a_change_goes_on_when_the_registrar_has_died() {
    let mut group = Group::new(1, 0);
    let (id, _) = group.start(0, HIGH);
    group.away.insert(1);
    group.publish(&topology(1, 1), Method::Except).unwrap();
    group.open(0);
    group.away.clear();
    group.pass(1_000);
    group.pass(1_000);
    assert_eq!(group.epochs(), [2, 2, 2]);
    let chain = &group.servers[1].site.seat().unwrap().topology.domains[0].chain;
    assert_eq!(chain.server(id), ServerId(0));
}

#[test]
fn what_was_sent_under_the_old_weights_goes_to_the_new_server() {
    let mut group = Group::new(1, 0);
    // South does not hear of the change, and sends what it starts to where it belonged.
    group.away.insert(2);
    group.publish(&topology(0, 1), Method::Except).unwrap();
    group.pass(2_000);
    assert_eq!(group.epochs(), [2, 2, 1]);
    group.away = BTreeSet::from([0]);
    let (id, _) = group.start(2, HIGH);
    group.away.clear();
    group.pass(2_000);
    group.pass(2_000);
    assert_eq!((group.epochs(), group.holders(id)), (vec![2, 2, 2], vec![1, 2]));
    let redirected = |bytes: &Vec<u8>| {
        let events = Record::<Event>::from_bytes(bytes).unwrap().events;
        events.iter().any(|event| matches!(event, Event::Redirected { .. }))
    };
    assert!(group.servers[2].streams[&id.0].iter().any(redirected));
}

#[test]
fn a_server_that_moves_waits_and_goes_on_at_its_new_host_alone() {
    let mut group = Group::new(1, 1);
    let (id, _) = group.start(1, HIGH);
    group.publish(&with_guest(), Method::Since).unwrap();
    assert_eq!(group.servers[1].site.mode(), Mode::Frozen { change: 1 });
    let (other, held) = group.start(1, HIGH);
    let before = group.servers[1].streams.clone();
    group.feed(1, Input::GivenAway { change: 1 });
    assert_eq!(group.servers[1].streams, before, "nothing is appended");
    // The new host has what the old one had.
    let (config, streams) = (group.servers[1].config.clone(), before);
    let old = std::mem::replace(
        &mut group.servers[1],
        Server { site: Site::new(config.clone()), config, streams },
    );
    group.open(1);
    group.feed(1, moved(1));
    group.pass(2_000);
    assert_eq!(group.epochs(), [2, 2, 2]);
    assert_eq!(group.servers[1].site.mode(), Mode::Serving);
    let show = Request::Show { instance: id, wait_until: None };
    assert!(group.ask(1, show).is_ok());
    // The old one hears of it, and sends those who have waited there to the new one.
    group.servers.push(old);
    let records = group.servers[0].streams[&0].clone();
    let behind = group.servers[3].streams[&0].len();
    assert!(behind < records.len());
    group.feed(3, Input::Message { from: ServerId(0), message: catalog(&records, 0) });
    assert_eq!(group.servers[3].site.mode(), Mode::Gone { change: 1 });
    assert_eq!(code(group.answers.remove(&held)), ("server_moved", Some(ServerId(1))));
    assert!(!group.servers[3].streams.contains_key(&other.0));
    // Also if it comes up again.
    group.open(3);
    group.feed(3, Input::GivenAway { change: 1 });
    assert_eq!(group.servers[3].site.mode(), Mode::Gone { change: 1 });
}

#[test]
fn what_the_registrar_has_not_heard_of_a_change_is_said_again_when_it_can_be_reached() {
    let mut group = Group::new(1, 1);
    group.publish(&with_guest(), Method::Since).unwrap();
    group.feed(1, Input::GivenAway { change: 1 });
    group.away.insert(0);
    group.feed(1, moved(1));
    group.away.clear();
    assert_eq!(group.epochs(), [1, 1, 1]);
    group.feed(1, Input::Link { to: ServerId(0), is_up: true });
    assert_eq!(group.epochs(), [2, 2, 2]);
}

#[test]
fn what_a_move_took_is_not_what_new_weights_are_expected_to_take() {
    let mut group = Group::new(1, 1);
    group.publish(&with_guest(), Method::Since).unwrap();
    group.pass(60_000);
    group.feed(1, Input::GivenAway { change: 1 });
    group.feed(1, moved(1));
    group.pass(2_000);
    assert_eq!(group.epochs(), [2, 2, 2]);
    group.away.insert(1);
    let weighed = with_guest().replace("host: north-1", "host: north-1, weight: 3");
    group.publish(&weighed, Method::Since).unwrap();
    assert_eq!(group.status().change.unwrap().estimate, Some(std::time::Duration::from_secs(1)));
}

fn moved(server: u16) -> Input {
    Input::Moved { change: 1, server: ServerId(server) }
}

/// All records in one message.
fn catalog(records: &[Vec<u8>], from: usize) -> Message {
    let records = records[from..].iter().map(|record| record.clone().into()).collect();
    Message::Catalog(message::Catalog::Records { from: 0, before: 0x9E37_79B9_7F4A_7C15, records })
}

#[test]
fn a_move_that_is_undone_goes_on_where_it_was_and_not_at_the_new_host() {
    let mut group = Group::new(1, 1);
    group.publish(&with_guest(), Method::Since).unwrap();
    let (id, held) = group.start(1, HIGH);
    let (config, streams) = (group.servers[1].config.clone(), group.servers[1].streams.clone());
    group.servers.push(Server { site: Site::new(config.clone()), config, streams });
    group.open(3);
    group.feed(1, Input::GivenAway { change: 1 });
    group.ask(0, Request::Undo { why: Some("no room".to_owned()) }).unwrap();
    group.pass(1);
    assert_eq!(group.servers[1].site.mode(), Mode::Serving);
    assert!(group.answers.remove(&held).unwrap().is_ok());
    assert_eq!(group.holders(id), [1]);
    assert_eq!(group.epochs()[..3], [1, 1, 1]);
    group.servers[3].site.handle(moved(1), Timestamp(group.now));
    let records = group.servers[0].streams[&0].clone();
    group.feed(3, Input::Message { from: ServerId(0), message: catalog(&records, 0) });
    assert_eq!(group.servers[3].site.mode(), Mode::Gone { change: 1 });
}

#[test]
fn a_registrar_that_moves_publishes_at_its_new_host() {
    let mut group = Group::new(1, 1);
    let address = topology(1, 1).replace("north:1\", api", "north:9\", api");
    group.publish(&address, Method::Since).unwrap();
    group.feed(0, Input::GivenAway { change: 1 });
    let refusal = group.ask(0, Request::Undo { why: None }).unwrap_err();
    assert_eq!(refusal.code, "store_given_away");
    group.pass(700_000);
    assert_eq!(group.epochs(), [1, 1, 1], "where it was it does nothing any more");
    group.open(0);
    group.feed(0, moved(0));
    group.pass(2_000);
    group.pass(30_000);
    assert_eq!(group.epochs(), [2, 2, 2]);
}

#[test]
fn who_comes_up_among_others_starts_nothing_before_it_knows_how_much_catalog_there_is() {
    let mut group = Group::new(1, 1);
    group.away = BTreeSet::from([0, 2]);
    group.open(1);
    let (id, held) = group.start(1, HIGH);
    group.pass(5_000);
    assert!(group.answers.is_empty());
    group.away.clear();
    group.pass(1_000);
    group.pass(1);
    assert!(group.answers.remove(&held).unwrap().is_ok());
    assert_eq!(group.holders(id), [1]);
    // One that is alone in its domain goes on at once.
    group.open(2);
    group.away = BTreeSet::from([0, 1]);
    let (_, started) = group.start(2, HIGH);
    assert!(group.answers.remove(&started).unwrap().is_ok());
}

#[test]
fn after_a_long_pause_a_server_starts_nothing_before_it_knows_how_much_catalog_there_is() {
    let mut group = Group::new(1, 1);
    group.away.insert(1);
    let mut change = asked(&topology(1, 0), Method::Since);
    change.without = vec!["north-2".into()];
    group.ask(0, Request::PublishTopology(change)).unwrap();
    group.pass(2_000);
    assert_eq!(group.epochs(), [2, 1, 2]);
    group.pass(120_000);
    group.away = BTreeSet::from([0, 2]);
    // Said before the pause, and only heard now.
    let have = group.servers[1].streams[&0].len() as u64;
    let said = Message::Catalog(message::Catalog::Wanted { have, answer: false });
    let heard = Input::Message { from: ServerId(0), message: said };
    for input in [Input::Jumped { by: Duration::from_secs(122) }, heard, Input::Settle] {
        group.feed(1, input);
    }
    let (id, held) = group.start(1, HIGH);
    (0..3).for_each(|_| group.pass(1_000));
    assert!(group.answers.is_empty(), "it may have been declared down");
    group.away.clear();
    (0..3).for_each(|_| group.pass(1_000));
    assert_eq!(code(group.answers.remove(&held)), ("placed_elsewhere", Some(ServerId(0))));
    assert_eq!((group.epochs(), group.holders(id)), (vec![2, 2, 2], vec![]));
}

#[test]
fn a_key_that_was_used_under_other_weights_starts_nothing_twice() {
    let mut group = Group::new(1, 0);
    let first = group.draw(0, HIGH);
    group.ask(0, start(first, key(7))).unwrap();
    group.publish(&topology(1, 1), Method::Except).unwrap();
    let again = group.draw(1, HIGH);
    let refusal = group.ask(1, start(again, key(7))).unwrap_err();
    assert_eq!((refusal.code, refusal.at), ("elsewhere", Some(ServerId(0))));
    let Ok(Answer::Started { instance, repeated }) = group.ask(0, start(again, key(7))) else {
        panic!("not found")
    };
    assert_eq!((instance.instance, repeated), (first, true));
    // One that was not used starts where it belongs now.
    let id = group.draw(1, HIGH);
    assert_eq!(group.ask(0, start(id, key(8))).unwrap_err().at, Some(ServerId(1)));
    group.ask(1, start(id, key(8))).unwrap();
    assert_eq!(group.holders(id), [1]);
}

#[test]
fn a_key_is_not_called_unused_by_a_server_that_may_still_use_it() {
    let mut group = Group::new(1, 1);
    // It works on, but hears nothing of the catalog, and was declared down.
    group.is_lost = |message| matches!(message, Message::Catalog(message::Catalog::Records { .. }));
    let mut change = asked(&topology(1, 0), Method::Since);
    change.without = vec!["north-2".into()];
    group.ask(0, Request::PublishTopology(change)).unwrap();
    group.pass(3_000);
    assert_eq!(group.epochs(), [2, 1, 1]);
    // From then on all that is new belongs to the other one.
    group.pass(120_000);
    let (now, before) = (group.draw(0, HIGH), group.draw(1, HIGH));
    let held = group.send(0, start(now, key(7)));
    assert!(group.answers.is_empty(), "there it could be used until the new weights are known");
    group.ask(1, start(before, key(7))).unwrap();
    group.is_lost = |_| false;
    group.pass(1_000);
    group.pass(1_000);
    assert_eq!(group.epochs()[..2], [2, 2]);
    assert_eq!(code(group.answers.remove(&held)), ("elsewhere", Some(ServerId(1))));
    assert_eq!((group.holders(now), group.holders(before)), (vec![], vec![1]));
}

#[test]
fn while_a_server_that_may_have_used_a_key_is_away_the_start_is_refused_and_not_repeated() {
    let mut group = Group::new(1, 0);
    group.publish(&topology(0, 1), Method::Except).unwrap();
    group.away.insert(0);
    let id = group.draw(1, HIGH);
    let held = group.send(1, start(id, key(7)));
    (0..11).for_each(|_| group.pass(1_000));
    assert_eq!(code(group.answers.remove(&held)).0, "idempotency_key_unclear");
    assert_eq!(group.holders(id), [0; 0]);
}

thread_local! { static ACKNOWLEDGED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) } }

#[test]
fn a_case_that_is_over_at_the_server_of_before_does_not_begin_at_its_new_one() {
    let mut group = Group::new(1, 0);
    let (instance, _) = group.start(2, HIGH);
    let first = Record::<Event>::from_bytes(&group.servers[0].streams[&instance.0][0]).unwrap();
    let Event::Received(received) = first.events[0].clone() else { panic!("{first:?}") };
    group.ask(2, Request::Abort { instance, reason: "done".to_owned() }).unwrap();
    group.publish(&topology(0, 1), Method::Except).unwrap();
    group.is_lost = |message| {
        if let Message::Migration(message::Migration::Ack { parcel }) = message {
            ACKNOWLEDGED.with_borrow_mut(|all| all.push(parcel.number));
        }
        false
    };
    // Another server has not heard of the abort, and passes control on by the new weights; later it
    // hears of it, and passes that on as well.
    for number in [1, 2] {
        let offer = Offer {
            id: ParcelId { instance: Instance(instance), number },
            process: "visit".into(),
            version: 1,
            parcel: received.parcel.clone(),
            entries: Some(received.entries.clone()),
            is_part: false,
            epoch: Some(2),
        };
        let message = Message::Migration(message::Migration::Offer(Box::new(offer)));
        group.feed(1, Input::Message { from: ServerId(2), message });
        assert_eq!(group.holders(instance), [0, 2], "nothing is done twice");
    }
    assert_eq!(ACKNOWLEDGED.take(), [1, 2], "nobody resends them for ever");
}

#[test]
fn a_case_from_before_begins_at_its_new_server_when_the_one_of_before_never_had_it() {
    let mut group = Group::new(1, 0);
    group.publish(&topology(0, 1), Method::Except).unwrap();
    group.away.insert(0);
    let (old, _) = group.start(2, HIGH);
    (0..3).for_each(|_| group.pass(1_000));
    assert_eq!(group.holders(old), [2], "nobody knows whether it was at the other server");
    group.away.clear();
    group.feed(1, Input::Link { to: ServerId(0), is_up: true });
    assert_eq!(group.holders(old), [1, 2], "it is asked as soon as it can be reached");
    // Of those that were created later than any clock was then, that is known.
    group.away.insert(0);
    group.pass(61_000);
    let (new, _) = group.start(2, HIGH);
    assert_eq!(group.holders(new), [1, 2]);
}

#[test]
fn a_dry_run_tells_what_would_be_and_changes_nothing() {
    let mut group = Group::new(1, 0);
    for spread in [0, HIGH, HIGH] {
        group.start(0, spread);
    }
    let mut asked = asked(&topology(1, 1), Method::Except);
    asked.dry_run = true;
    let Ok(Answer::DryRun(told)) = group.ask(0, Request::PublishTopology(asked)) else {
        panic!("no dry run")
    };
    assert_eq!(
        *told,
        DryRun {
            domains: vec!["north".into()],
            servers: vec![],
            open: 3,
            moved: 0,
            excepted: 2,
            bytes: 32,
        }
    );
    assert_eq!(group.epochs(), [1, 1, 1]);
}

#[test]
fn a_dry_run_counts_a_case_once_where_it_was_started() {
    let mut group = Group::new(1, 0);
    let (passed_on, _) = group.start(2, HIGH);
    group.start(0, 0);
    assert_eq!(group.holders(passed_on), [0, 2]);
    let mut open = |server: usize| {
        let mut asked = asked(&topology(1, 1), Method::Except);
        asked.dry_run = true;
        match group.ask(server, Request::PublishTopology(asked)) {
            Ok(Answer::DryRun(told)) => (told.open, told.excepted),
            other => panic!("no dry run: {other:?}"),
        }
    };
    assert_eq!([open(0), open(1), open(2)], [(1, 1), (0, 0), (1, 0)]);
}
