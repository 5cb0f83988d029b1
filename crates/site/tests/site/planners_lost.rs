//! Deadlines over several servers, of which some die or cannot be reached: what was promised stays so, or it is told.

use crate::support::group::{Group, HIGH};
use crate::support::tour::*;
use legwork_model::event::{Performer, PlanEvent, Record, TaskKey};
use legwork_model::id::{InstanceId, ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_plan::TaskId;
use legwork_site::*;

#[test]
fn promises_survive_the_crash_of_any_server() {
    let mut group = group();
    start(&mut group, 8);
    start(&mut group, 8);
    for place in 0..3 {
        group.open(place);
        for to in (0..3).filter(|to| *to != place) {
            group.feed(place, Input::Link { to: ServerId(to as u16), is_up: true });
        }
        for _ in 0..5 {
            group.pass(2_000);
        }
        assert_eq!((turns(&mut group, 0, "ann"), turns(&mut group, 2, "bob")), (1, 1), "{place}");
        assert_eq!(turns(&mut group, 2, "sam"), 2);
    }
    assert_eq!(start(&mut group, 3).1, "deadline_not_promised true");
}

#[test]
fn when_a_planner_cannot_be_reached_nothing_is_promised_for_it() {
    let mut group = group();
    group.away.insert(2);
    assert_eq!(start(&mut group, 8).1, "deadline_not_promised false");
    group.away.clear();
    assert_eq!(turns(&mut group, 0, "ann"), 0, "the first step is given back");
}

#[test]
fn what_can_wait_no_longer_for_a_lost_planner_is_promised_by_others_or_told() {
    let mut group = group();
    let both = [start(&mut group, 12), start(&mut group, 12)];
    let (bobs, _) = both.iter().find(|(_, plan)| plan.contains("bob")).expect("one is his");
    group.away.insert(2);
    group.feed(1, Input::Link { to: ServerId(2), is_up: false });
    group.pass(5_000);
    assert_eq!(replanned(&mut group, *bobs), [] as [&str; 0], "it may be a moment only");
    for _ in 0..10 {
        group.pass(1_000);
    }
    // Bob should have begun; Sam's hour comes later.
    let told = replanned(&mut group, *bobs);
    let last = told.last().map_or("", String::as_str);
    assert!(last.contains("planned otherwise now; check by ann"), "{told:?}");
    assert!(told.iter().all(|text| !text.contains("sign")), "{told:?}");
    let refused = start(&mut group, 30).1;
    assert_eq!(refused, "deadline_not_promised false");
    for _ in 0..24 {
        group.pass(HOUR / 2);
    }
    let told = replanned(&mut group, *bobs);
    assert!(told.iter().any(|text| text.contains("sign is not promised any more")), "{told:?}");
    // What is not wanted of Bob any more is given back when his planner can be reached again.
    group.away.clear();
    group.feed(1, Input::Link { to: ServerId(2), is_up: true });
    group.pass(1_000);
    assert_eq!(turns(&mut group, 2, "bob"), 0);
}

#[test]
fn what_was_reserved_for_a_start_that_a_crash_broke_off_is_given_back() {
    let mut group = group();
    // Bob and Sam cannot be asked, so that Ann's planner waits for them with her time reserved.
    group.away.insert(2);
    let instance = group.draw(0, 0);
    let mut wish = Wish::new(Timestamp(group.now + 8 * HOUR));
    wish.priority = 0;
    let id = group.send(0, start_of(instance, "tour", wish));
    assert!(!group.answers.contains_key(&id));
    group.open(0);
    group.pass(1_000);
    assert_eq!(turns(&mut group, 0, "ann"), 0);
}

#[test]
fn what_another_server_had_counted_on_for_a_start_that_its_crash_broke_off_is_given_back() {
    let mut group = group();
    // Ann's time is reserved and counted on by north-2, which waits for Sam.
    let bob_is_none = PEOPLE.replace("bob: { roles: [clerk], share: 100 }", "bob: {}");
    publish_people(&mut group, &bob_is_none);
    group.away.insert(2);
    let wish = Wish::new(Timestamp(group.now + 8 * HOUR));
    let instance = group.draw(1, HIGH);
    let id = group.send(1, start_of(instance, "tour", wish));
    // At first it was asked what Sam has offered.
    run(&mut group, 4);
    assert!(!group.answers.contains_key(&id));
    assert_eq!(turns(&mut group, 0, "ann"), 1);
    group.open(1);
    for is_up in [false, true] {
        group.feed(0, Input::Link { to: ServerId(1), is_up });
    }
    // It is held for a while, and nobody confirms it.
    run(&mut group, 35);
    assert_eq!(turns(&mut group, 0, "ann"), 0);
}

#[test]
fn a_promise_that_is_taken_back_while_its_case_is_being_read_is_tried_again() {
    let mut group = group();
    let (instance, by) = start(&mut group, 10);
    let clerk = if by.contains("ann") { "ann" } else { "bob" };
    // The snapshot of the case is of another version, and reading all of it takes a while.
    let server = &mut group.servers[1];
    server.config.life += 1 << 40;
    server.site = Site::new(server.config.clone());
    for (id, records) in server.streams.clone() {
        let version = records.len() as u64;
        let is_case = id == instance.0;
        let snapshot = is_case.then(|| (version, vec![0xFF]));
        let records = if is_case { Vec::new() } else { records };
        let stream = Stream { id, snapshot, records };
        let outputs = server.site.handle(Input::Recovered(stream), Timestamp(group.now));
        let is_asked = outputs.iter().any(|it| matches!(it, Output::Load { whole: true, .. }));
        assert_eq!(is_asked, is_case);
        if id == StreamId::SITE.0 {
            server.site.handle(Input::SiteRecovered, Timestamp(group.now));
        }
    }
    let ill = format!("{clerk}: {{ absent: [{{ from: 1970-01-01 }}], ");
    publish_people(&mut group, &PEOPLE.replace(&format!("{clerk}: {{ "), &ill));
    let records = group.servers[1].streams[&instance.0].clone();
    let stream = Stream { id: instance.0, snapshot: None, records };
    group.feed(1, Input::Loaded(stream));
    run(&mut group, 20);
    let deadline = shown(&mut group, 1, instance);
    let other = if clerk == "ann" { "bob" } else { "ann" };
    assert_eq!(deadline.legs[0].by, Some(Performer::Agent(other.into())));
}

/// The place of whoever plans for the one who is to check it, and their name.
fn checker(by: &str) -> (usize, &'static str) {
    if by.contains("ann") { (0, "ann") } else { (2, "bob") }
}

#[test]
fn who_was_away_hears_what_was_taken_back_as_soon_as_it_can_be_reached() {
    let mut group = group();
    let both = [start(&mut group, 40), start(&mut group, 40)];
    let (anns, _) = both.iter().find(|(_, plan)| plan.contains("ann")).expect("one is hers");
    group.away.insert(1);
    group.feed(0, Input::Link { to: ServerId(1), is_up: false });
    publish_people(
        &mut group,
        &PEOPLE.replace("ann: { ", "ann: { absent: [{ from: 1970-01-01 }], "),
    );
    (0..62).for_each(|_| group.pass(60_000));
    group.away.clear();
    group.feed(0, Input::Link { to: ServerId(1), is_up: true });
    run(&mut group, 8);
    let told = replanned(&mut group, *anns);
    assert!(told.iter().any(|text| text.contains("check by bob")), "{told:?}");
}

#[test]
fn what_comes_late_from_a_server_that_is_lost_does_not_tell_that_it_is_there() {
    let mut group = group();
    let both = [start(&mut group, 12), start(&mut group, 12)];
    let (bobs, _) = both.iter().find(|(_, plan)| plan.contains("bob")).expect("one is his");
    group.away.insert(2);
    group.feed(1, Input::Link { to: ServerId(2), is_up: false });
    let late = Reserving::Release { tasks: Vec::new() };
    let message = Message::Deadline(message::Deadline::Reserve(Box::new(late)));
    group.feed(1, Input::Message { from: ServerId(2), message });
    (0..15).for_each(|_| group.pass(1_000));
    let told = replanned(&mut group, *bobs);
    assert!(told.iter().any(|text| text.contains("check by ann")), "{told:?}");
}

#[test]
fn somebody_who_has_begun_is_waited_for_also_after_a_restart_of_whoever_asked() {
    let mut group = group();
    let (instance, by) = start(&mut group, 12);
    let (planner, clerk) = checker(&by);
    let claim = Request::Claim { agent: clerk.into(), activity: activity(instance, "check") };
    group.ask(1, claim).unwrap();
    group.pass(HOUR);
    group.away.insert(planner);
    group.open(1);
    (0..20).for_each(|_| group.pass(1_000));
    assert_eq!(replanned(&mut group, instance), [] as [&str; 0], "they work on it");
}

/// What is reserved at a server for the steps of a case.
fn reserved(group: &Group, place: usize, instance: InstanceId) -> Vec<TaskKey> {
    let records = group.servers[place].streams.get(&StreamId::PLANS.0).into_iter().flatten();
    let events = records.flat_map(|it| Record::<PlanEvent>::from_bytes(it).unwrap().events);
    let tasks = events.filter_map(|event| match event {
        PlanEvent::Reserved(own) if own.task.instance == instance => Some(own.task),
        _ => None,
    });
    tasks.collect()
}

#[test]
fn what_was_released_for_new_dates_that_a_crash_broke_off_is_planned_again() {
    let mut group = group();
    // Started where Ann is planned for.
    let instance = group.draw(0, 0);
    let wish = Wish::new(Timestamp(group.now + 8 * HOUR));
    let id = group.send(0, start_of(instance, "tour", wish));
    run(&mut group, 2);
    assert!(group.answers.remove(&id).is_some_and(|answer| answer.is_ok()));
    let Some(own) = reserved(&group, 0, instance).pop() else { return };
    let at = Timestamp(group.now);
    let released = Record { at, events: vec![PlanEvent::Ended(own)] }.to_bytes();
    let plans = group.servers[0].streams.get_mut(&StreamId::PLANS.0).unwrap();
    plans.push(released);
    group.open(0);
    for to in 1..3 {
        group.feed(0, Input::Link { to: ServerId(to), is_up: true });
    }
    assert_eq!(turns(&mut group, 0, "ann"), 0);
    run(&mut group, 90);
    assert_eq!(turns(&mut group, 0, "ann") + turns(&mut group, 2, "bob"), 1);
    assert!(shown(&mut group, 0, instance).promised);
}

#[test]
fn while_one_step_gets_new_dates_another_that_is_lost_gets_them_as_well() {
    let mut group = group();
    let (instance, by) = start(&mut group, 40);
    let (planner, _) = checker(&by);
    let key_at = |group: &Group, place: usize| reserved(group, place, instance);
    let (check, sign) = match planner {
        0 => (key_at(&group, 0)[0], key_at(&group, 2)[0]),
        _ => (key_at(&group, 2)[0], key_at(&group, 2)[1]),
    };
    let taken_back = |task: TaskKey, why| {
        let task = TaskId { instance, step: task.node.0, round: task.round };
        let what = Reserving::TakenBack { task: Attempt { task, attempt: 1 }, why };
        Message::Deadline(message::Deadline::Reserve(Box::new(what)))
    };
    // The planners of the first one do not answer just now.
    group.away.extend([0, 2]);
    let from = ServerId(planner as u16);
    group.feed(1, Input::Message { from, message: taken_back(check, Why::Late) });
    group.pass(1_000);
    group.feed(1, Input::Message { from: ServerId(2), message: taken_back(sign, Why::Gone) });
    group.away.clear();
    run(&mut group, 20);
    let told = replanned(&mut group, instance);
    assert!(told.iter().any(|text| text.contains("sign by sam")), "{told:?}");
    assert!(shown(&mut group, 1, instance).promised);
}
