//! Starts that would be promised at the expense of others, and are given up or refused before they go ahead: nobody hears
//! of them.

use std::cell::Cell;

use crate::support::group::{self, Group};
use crate::support::tour::*;
use legwork_model::event::{Performer, PlanEvent, Record, TaskKey};
use legwork_model::id::{InstanceId, StreamId};
use legwork_model::time::Timestamp;
use legwork_site::*;

const VISIT: &str =
    "process: visit\nsteps:\n  - { step: check, who: Role(clerk), at: north, takes: 3h }\n";

/// Room for the second step is not taken: whoever keeps the plan is not told to.
fn is_second_take(message: &Message) -> bool {
    let Message::Plan(said) = message else { return false };
    matches!(said.message, legwork_promise::Message::Take { task, .. } if task.step > 1)
}

thread_local! {
    static IS_TAKEN: Cell<bool> = const { Cell::new(false) };
}

/// Room for the second step is taken, and nobody hears of it.
fn is_second_taken(message: &Message) -> bool {
    IS_TAKEN.set(IS_TAKEN.get() || is_second_take(message));
    let Message::Plan(said) = message else { return false };
    let legwork_promise::Message::Answer { tasks, .. } = &said.message else { return false };
    IS_TAKEN.get() && tasks.iter().any(|task| task.step > 1)
}

/// Four cases that are not important fill the time of both clerks.
fn busy() -> (Group, Vec<InstanceId>) {
    let mut group = group();
    group.ask(0, Request::Deploy { source: VISIT.to_owned() }).unwrap();
    run(&mut group, 2);
    let minor = (0..4).map(|_| {
        let mut wish = Wish::new(Timestamp(group.now + 13 * HOUR / 2));
        wish.priority = 1;
        let (instance, by) = start_with(&mut group, "visit", wish);
        assert!(by.starts_with("check"), "{by}");
        instance
    });
    let minor = minor.collect();
    run(&mut group, 2);
    (group, minor)
}

fn urgent(group: &Group, hours: i64) -> Wish {
    let mut wish = Wish::new(Timestamp(group.now + hours * HOUR));
    wish.priority = 9;
    wish
}

/// How many of these cases were told anything, and how many turns all have.
fn heard(group: &mut Group, cases: &[InstanceId]) -> (usize, usize) {
    let told = cases.iter().filter(|id| !replanned(group, **id).is_empty()).count();
    let clerks = turns(group, 0, "ann") + turns(group, 2, "bob");
    (told, clerks + turns(group, 2, "sam"))
}

/// The same start, with nothing in its way, is promised, and somebody makes way for it and is told.
fn is_promised_after_all(mut group: Group, minor: &[InstanceId]) {
    let wish = urgent(&group, 5);
    let (_, by) = start_with(&mut group, "tour", wish);
    assert!(by.starts_with("check"), "{by}");
    run(&mut group, 5);
    assert_eq!(heard(&mut group, minor).0, 1);
}

#[test]
fn nobody_hears_of_a_start_that_is_hung_up_between_its_steps() {
    let (mut group, minor) = busy();
    let before = heard(&mut group, &minor);
    assert_eq!(before, (0, 4));
    group.is_lost = is_second_take;
    let (instance, wish) = (group.draw(1, group::HIGH), urgent(&group, 5));
    let id = group.send(1, start_of(instance, "tour", wish));
    // The first step has all it needs, the second does not answer.
    (0..10).for_each(|_| group.pass(50));
    assert!(!group.answers.contains_key(&id));
    assert_eq!(heard(&mut group, &minor).0, 0);
    group.feed(1, Input::Cancelled { id });
    group.is_lost = |_| false;
    run(&mut group, 15);
    assert_eq!(heard(&mut group, &minor), before);
    is_promised_after_all(group, &minor);
}

#[test]
fn nobody_hears_of_a_start_that_is_refused_between_its_steps() {
    let (mut group, minor) = busy();
    let before = heard(&mut group, &minor);
    group.is_lost = is_second_take;
    let wish = urgent(&group, 5);
    let (_, by) = start_with(&mut group, "tour", wish);
    assert!(by.starts_with("deadline_not_promised"), "{by}");
    group.is_lost = |_| false;
    run(&mut group, 15);
    assert_eq!(heard(&mut group, &minor), before);
    is_promised_after_all(group, &minor);
}

/// Who has promised the first step of a case, as the planners have written it down.
fn checker(group: &Group, instance: InstanceId) -> &'static str {
    let is_it = |task: &TaskKey| (task.instance, task.node.0) == (instance, 1);
    let has_promised = |place: usize| {
        let records = group.servers[place].streams.get(&StreamId::PLANS.0).into_iter().flatten();
        let events = records.flat_map(|it| Record::<PlanEvent>::from_bytes(it).unwrap().events);
        events.fold(false, |has_promised, event| match event {
            PlanEvent::Reserved(reserved) if is_it(&reserved.task) => true,
            PlanEvent::Ended(task) if is_it(&task) => false,
            _ => has_promised,
        })
    };
    match (has_promised(0), has_promised(2)) {
        (true, false) => "ann",
        (false, true) => "bob",
        both => panic!("{both:?}"),
    }
}

#[test]
fn what_somebody_begins_when_its_time_was_promised_already_makes_way_all_the_same() {
    let (mut group, minor) = busy();
    group.is_lost = is_second_taken;
    let (instance, wish) = (group.draw(1, group::HIGH), urgent(&group, 5));
    let id = group.send(1, start_of(instance, "tour", wish));
    (0..40).take_while(|_| !IS_TAKEN.get()).for_each(|_| group.pass(50));
    assert!(IS_TAKEN.get());
    // Whoever would make way for it begins all that could.
    let clerk = checker(&group, instance);
    let is_own = |group: &mut Group, id: InstanceId| {
        let leg = shown(group, 1, id).legs.swap_remove(0);
        leg.by == Some(Performer::Agent(clerk.into()))
    };
    let own: Vec<InstanceId> = minor.iter().copied().filter(|id| is_own(&mut group, *id)).collect();
    assert_eq!(own.len(), 2);
    for id in &own {
        let claim = Request::Claim { agent: clerk.into(), activity: activity(*id, "check") };
        group.ask(1, claim).unwrap();
    }
    group.is_lost = |_| false;
    run(&mut group, 20);
    // They put one of them aside, and what is told to be promised is in their plan.
    let by = told(group.answers.remove(&id).expect("an answer"));
    assert!(by.starts_with(&format!("check {clerk}")), "{by}");
    assert_eq!(heard(&mut group, &own).0, 1);
    run(&mut group, 40);
    assert_eq!(heard(&mut group, &minor).0, 1);
    let planner = if clerk == "ann" { 0 } else { 2 };
    assert_eq!(turns(&mut group, planner, clerk), 2, "one has made way");
    assert_eq!(turns(&mut group, 2, "sam"), 1);
}

#[test]
fn nobody_hears_of_a_start_that_was_promised_and_is_refused_then() {
    let (mut group, minor) = busy();
    let before = heard(&mut group, &minor);
    group.is_lost = is_second_take;
    let (instance, wish) = (group.draw(1, group::HIGH), urgent(&group, 5));
    let id = group.send(1, start_of(instance, "tour", wish));
    // Somebody else starts the same case meanwhile, without a deadline.
    let Request::Start(start) = start_of(instance, "tour", urgent(&group, 5)) else {
        panic!("a start")
    };
    group.ask(1, Request::Start(Start { deadline: None, ..start })).unwrap();
    group.is_lost = |_| false;
    run(&mut group, 15);
    let answer = group.answers.remove(&id).expect("an answer");
    assert_eq!(answer.unwrap_err().code, "instance_exists");
    assert_eq!(heard(&mut group, &minor), before);
}

#[test]
fn nobody_makes_way_for_a_date_that_is_only_looked_for() {
    let (mut group, minor) = busy();
    let before = heard(&mut group, &minor);
    // It takes longer than that: the earliest date is told, which others would have to make way for.
    let wish = urgent(&group, 2);
    let (_, by) = start_with(&mut group, "visit", wish);
    assert_eq!(by, "deadline_not_promised true");
    run(&mut group, 5);
    assert_eq!(heard(&mut group, &minor), before);
}
