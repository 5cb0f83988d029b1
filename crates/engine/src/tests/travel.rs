//! Transfers: numbered without gaps, redirected as long as none was acknowledged.

use std::collections::BTreeMap;

use legwork_model::arbitrary::cases;
use legwork_model::event::{
    Event, Order, Orders, Parcel, Passage, Performer, Received, Record, RequestDigest,
};
use legwork_model::id::{Activity, NodeId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use proptest::prelude::*;

use super::random::{Dice, dice, lively, schemas, travelling};
use crate::{Command, Lifecycle, Rejection, State, decide, replay};

const SERVERS: [ServerId; 3] = [ServerId(1), ServerId(2), ServerId(3)];

fn parcel(number: u32) -> Parcel {
    let start = Activity::once(Schema::START);
    let target = Activity::once(NodeId(number));
    Parcel::Control { passages: vec![Passage { source: start, target }], order: None }
}

/// The waiting transfers of each server, by number and subject.
fn waiting(state: &State) -> BTreeMap<ServerId, Vec<(u32, Parcel)>> {
    let waiting = |peer: &crate::Peer| {
        let all = peer.waiting.iter();
        (peer.server, all.map(|outgoing| (outgoing.number, outgoing.parcel.clone())).collect())
    };
    state.peers().iter().map(waiting).collect()
}

/// An instance with so many unacknowledged transfers to server 1.
fn sending(schema: &Schema, parcels: u32) -> State {
    let mut state = lively(schema, &[1]).remove(0).state;
    for number in 0..parcels {
        let send = Command::Send { to: SERVERS[0], parcel: parcel(number) };
        state = decide(schema, &state, send, Timestamp(9)).unwrap().state;
    }
    state
}

fn a_schema() -> Schema {
    compiled("process: p\nsteps: [{ step: a, job: a }]\n")
}

fn compiled(source: &str) -> Schema {
    let (definition, _) = legwork_model::yaml::parse(source);
    legwork_model::compile::compile(&definition.unwrap(), 1).unwrap()
}

#[test]
fn unacknowledged_transfers_are_redirected_in_the_same_order() {
    let schema = a_schema();
    let mut state = sending(&schema, 2);
    let (from, to) = (SERVERS[0], SERVERS[1]);
    let send = Command::Send { to, parcel: parcel(7) };
    state = decide(&schema, &state, send, Timestamp(9)).unwrap().state;
    let redirect = || Command::Redirect { from, to };
    let decision = decide(&schema, &state, redirect(), Timestamp(9)).unwrap();
    assert_eq!(decision.events, [Event::Redirected { from, to: Some(to) }]);
    let expected = vec![(1, parcel(7)), (2, parcel(0)), (3, parcel(1))];
    assert_eq!(waiting(&decision.state), BTreeMap::from([(to, expected)]));
    let again = decide(&schema, &decision.state, redirect(), Timestamp(9));
    assert_eq!(again, Err(Rejection::AlreadyDone));
}

#[test]
fn a_server_that_had_a_part_keeps_its_place() {
    let schema = a_schema();
    let (from, to) = (SERVERS[0], SERVERS[1]);
    let deliver = Command::Deliver { to: from, number: 1 };
    let state = decide(&schema, &sending(&schema, 2), deliver, Timestamp(9)).unwrap().state;
    let redirected = decide(&schema, &state, Command::Redirect { from, to }, Timestamp(9));
    assert_eq!(redirected, Err(Rejection::AlreadyDone));
}

#[test]
fn transfers_of_an_ended_instance_are_dropped_instead_of_redirected() {
    let schema = a_schema();
    let (from, to) = (SERVERS[0], SERVERS[1]);
    let abort = Command::Abort { by: Performer::System, reason: String::new() };
    let state = decide(&schema, &sending(&schema, 1), abort, Timestamp(9)).unwrap().state;
    assert!(!state.is_over(&schema));
    let redirect = Command::Redirect { from, to };
    let decision = decide(&schema, &state, redirect, Timestamp(9)).unwrap();
    assert_eq!(decision.events, [Event::Redirected { from, to: None }]);
    assert!(decision.state.is_over(&schema) && decision.state.peers().is_empty());
}

#[test]
fn what_counted_has_counted_also_when_its_instance_is_aborted_elsewhere() {
    let schema = compiled("process: p\nsteps: [{ step: a, job: a }, { step: b, job: b }]\n");
    let state = lively(&schema, &[1]).remove(0).state;
    let activity = state.open(&schema).next().unwrap().activity;
    let (by, started_at, outputs) = (Performer::Worker("crm".into()), Timestamp(3), Vec::new());
    let answer = Command::Answer { activity, by, started_at, outputs, lease: 7 };
    let state = decide(&schema, &state, answer, Timestamp(9)).unwrap().state;
    let (what, by) = (Orders::Abort, Performer::System);
    let order = Order { number: 1, what, by, reason: None };
    let (from, number, parcel) = (SERVERS[0], 1, Parcel::Order(order));
    let received = Box::new(Received { from, number, parcel, entries: Vec::new() });
    let decision = decide(&schema, &state, Command::Receive(received), Timestamp(9)).unwrap();
    let [Event::Completed(done), Event::Received(_)] = &decision.events[..] else {
        panic!("{:?}", decision.events);
    };
    assert_eq!(done.request, Some(RequestDigest(7)));
    assert_eq!(decision.state.lifecycle(), Lifecycle::Aborted);
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn replaying_every_prefix_rebuilds_what_is_on_its_way(
        schema in schemas(), dice in dice(60),
    ) {
        let moments = travelling(&schema, &dice);
        let history: Vec<&Record<Event>> = moments.iter().map(|moment| &moment.record).collect();
        for (length, moment) in moments.iter().enumerate() {
            let rebuilt = replay(&schema, history[..=length].iter().copied());
            prop_assert_eq!(rebuilt.as_ref(), Some(&moment.state));
        }
    }

    #[test]
    fn what_waits_is_numbered_without_gaps_and_nothing_is_lost(
        schema in schemas(), dice in dice(60),
    ) {
        let (mut sent, mut gone) = (0, 0);
        for moment in travelling(&schema, &dice) {
            for event in &moment.record.events {
                sent += usize::from(matches!(event, Event::Sent { .. }));
                gone += usize::from(matches!(event, Event::Delivered { .. }));
            }
            let left: usize = moment.state.peers().iter().map(|peer| peer.waiting.len()).sum();
            prop_assert_eq!(sent, gone + left);
            for peer in moment.state.peers() {
                let numbers = peer.waiting.iter().map(|outgoing| outgoing.number);
                let first = peer.sent + 1 - peer.waiting.len() as u32;
                prop_assert!(numbers.eq(first..=peer.sent));
            }
        }
    }
}

/// The possible transfers of a server.
pub(super) fn move_on(state: &State, dice: &mut Dice) -> Command {
    let to = SERVERS[dice.roll(SERVERS.len())];
    let first = state.peer(to).and_then(|peer| peer.waiting.first());
    match (dice.roll(4), first) {
        (0, Some(outgoing)) => Command::Deliver { to, number: outgoing.number },
        (1 | 2, Some(_)) => Command::Redirect { from: to, to: SERVERS[dice.roll(SERVERS.len())] },
        (3, _) if state.lifecycle() == Lifecycle::Running => {
            let (what, by) = (Orders::Suspend, Performer::System);
            let order = Order { number: dice.roll(9) as u32, what, by, reason: None };
            Command::Send { to, parcel: Parcel::Order(order) }
        }
        (_, _) => Command::Send { to, parcel: parcel(dice.roll(9) as u32) },
    }
}
