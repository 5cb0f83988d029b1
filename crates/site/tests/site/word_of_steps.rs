//! Planners of other servers hear how far steps are, whatever is lost on the way and whoever dies, and count it once.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::group::Group;
use crate::support::tour::*;
use legwork_model::event::{PlanEvent, Record};
use legwork_model::id::{InstanceId, ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_site::*;

/// How often the plans of a server say something.
fn count(group: &Group, place: usize, is_it: fn(&PlanEvent) -> bool) -> usize {
    let records = group.servers[place].streams.get(&StreamId::PLANS.0).into_iter().flatten();
    let events = records.flat_map(|it| Record::<PlanEvent>::from_bytes(it).unwrap().events);
    events.into_iter().filter(is_it).count()
}

fn begun(group: &Group, place: usize) -> usize {
    count(group, place, |event| matches!(event, PlanEvent::Begun(_)))
}

fn left(group: &Group, place: usize) -> usize {
    count(group, place, |event| matches!(event, PlanEvent::Left(_)))
}

fn is_step(message: &Message) -> bool {
    matches!(message, Message::Deadline(message::Deadline::Step { .. }))
}

/// A tour, who checks it, and the server that keeps their plan.
fn checked(group: &mut Group) -> (InstanceId, &'static str, usize) {
    let (instance, by) = start(group, 10);
    match by.contains("ann") {
        true => (instance, "ann", 0),
        false => (instance, "bob", 2),
    }
}

fn claim(group: &mut Group, place: usize, instance: InstanceId, step: &str, agent: &str) {
    let activity = activity(instance, step);
    group.ask(place, Request::Claim { agent: agent.into(), activity }).unwrap();
}

fn release(group: &mut Group, instance: InstanceId, agent: &str) {
    let activity = activity(instance, "check");
    group.ask(1, Request::Release { agent: agent.into(), activity }).unwrap();
}

#[test]
fn that_a_step_is_begun_or_left_is_said_until_its_planner_has_heard_it() {
    let mut group = group();
    let (instance, clerk, planner) = checked(&mut group);
    group.is_lost = is_step;
    claim(&mut group, 1, instance, "check", clerk);
    run(&mut group, 3);
    assert_eq!(begun(&group, planner), 0);
    group.is_lost = |_| false;
    run(&mut group, 8);
    assert_eq!((begun(&group, planner), left(&group, planner)), (1, 0));
    group.is_lost = is_step;
    release(&mut group, instance, clerk);
    run(&mut group, 3);
    assert_eq!(left(&group, planner), 0);
    group.is_lost = |_| false;
    run(&mut group, 8);
    assert_eq!((begun(&group, planner), left(&group, planner)), (1, 1));
    // Until it is heard, and no longer.
    group.is_lost = |message| match message {
        Message::Deadline(message::Deadline::Step { .. }) => panic!("{message:?}"),
        _ => false,
    };
    (0..15).for_each(|_| group.pass(5_000));
}

#[test]
fn what_was_begun_while_its_planner_was_down_is_not_taken_back_when_it_is_up_again() {
    let mut group = group();
    let (instance, by) = start(&mut group, 5);
    let (clerk, planner) = if by.contains("ann") { ("ann", 0) } else { ("bob", 2) };
    let link = |group: &mut Group, is_up| {
        let to = ServerId(planner as u16);
        group.feed(1, Input::Link { to, is_up });
    };
    group.away.insert(planner);
    link(&mut group, false);
    claim(&mut group, 1, instance, "check", clerk);
    // If it were to begin only now, it could not be done in time.
    (0..25).for_each(|_| group.pass(HOUR / 10));
    group.away.clear();
    group.open(planner);
    group.pass(50);
    link(&mut group, true);
    run(&mut group, 1);
    (0..15).for_each(|_| group.pass(5_000));
    assert_eq!(begun(&group, planner), 1);
    assert_eq!(replanned(&mut group, instance), [] as [&str; 0]);
    assert_eq!(turns(&mut group, planner, clerk), 1);
}

#[test]
fn who_dies_after_it_has_stored_that_a_step_is_begun_or_left_says_so_when_it_is_back() {
    let mut group = group();
    let (instance, clerk, planner) = checked(&mut group);
    group.is_lost = is_step;
    claim(&mut group, 1, instance, "check", clerk);
    group.open(1);
    group.is_lost = |_| false;
    run(&mut group, 2);
    assert_eq!((begun(&group, planner), left(&group, planner)), (1, 0));
    group.is_lost = is_step;
    release(&mut group, instance, clerk);
    group.open(1);
    group.is_lost = |_| false;
    run(&mut group, 2);
    assert_eq!((begun(&group, planner), left(&group, planner)), (1, 1));
}

#[test]
fn a_server_in_between_that_dies_tells_its_steps_too_although_it_did_not_start_the_case() {
    let mut group = group();
    let (instance, clerk, _) = checked(&mut group);
    // Sam moves north: the south does his step, and another server keeps his plan.
    group.ask(1, done(instance, "check", clerk)).unwrap();
    run(&mut group, 5);
    let moved = topology("ann, sam", "bob");
    group.publish(&moved, legwork_model::event::Method::Since).unwrap();
    run(&mut group, 15);
    let before = begun(&group, 0);
    group.is_lost = is_step;
    claim(&mut group, 2, instance, "sign", "sam");
    group.open(2);
    group.is_lost = |_| false;
    run(&mut group, 2);
    assert_eq!(begun(&group, 0), before + 1);
}

#[test]
fn how_long_a_step_took_is_learned_once_however_often_it_is_told() {
    let mut group = group();
    // The case goes on after it.
    let source = TOUR.replace("process: tour", "process: round")
        + "  - { step: file, who: Role(clerk), at: south, takes: 1h }\n";
    group.ask(0, Request::Deploy { source }).unwrap();
    run(&mut group, 5);
    let wish = Wish::new(Timestamp(group.now + 12 * HOUR));
    let (instance, _) = start_with(&mut group, "round", wish);
    group.ask(1, done(instance, "check", "ann")).unwrap();
    run(&mut group, 5);
    claim(&mut group, 2, instance, "sign", "sam");
    run(&mut group, 2);
    group.is_lost =
        |message| matches!(message, Message::Deadline(message::Deadline::StepAck { .. }));
    group.pass(HOUR / 2);
    group.ask(2, done(instance, "sign", "sam")).unwrap();
    run(&mut group, 10);
    let took = |group: &Group| count(group, 1, |event| matches!(event, PlanEvent::Took { .. }));
    assert_eq!(took(&group), 1);
    group.is_lost = |_| false;
    run(&mut group, 10);
    assert_eq!(took(&group), 1);
}

static SAID: AtomicUsize = AtomicUsize::new(0);

#[test]
fn who_has_promised_a_step_and_has_started_its_case_is_told_once() {
    let mut group = group();
    let source = TOUR.replace("process: tour", "process: trip");
    let source = source.replace("Role(clerk), at: north", "Role(clerk), at: south");
    group.ask(0, Request::Deploy { source }).unwrap();
    publish_people(&mut group, &PEOPLE.replace("bob: { roles: [clerk], share: 100 }", "bob: {}"));
    // North-1 starts it and keeps Ann's plan; she does it in the south.
    let wish = Wish::new(Timestamp(group.now + 10 * HOUR));
    let instance = group.draw(0, 0);
    let id = group.send(0, start_of(instance, "trip", wish));
    run(&mut group, 10);
    assert_eq!(told(group.answers.remove(&id).expect("an answer")), "check ann, sign sam");
    group.is_lost = |message| {
        SAID.fetch_add(usize::from(is_step(message)), Ordering::Relaxed);
        false
    };
    claim(&mut group, 2, instance, "check", "ann");
    assert_eq!((SAID.load(Ordering::Relaxed), begun(&group, 0)), (1, 1));
    run(&mut group, 5);
    assert_eq!(SAID.load(Ordering::Relaxed), 1);
    // Who may have begun anew is told once more.
    for is_up in [false, true] {
        group.feed(2, Input::Link { to: ServerId(0), is_up });
    }
    run(&mut group, 5);
    assert_eq!(SAID.load(Ordering::Relaxed), 2);
}
