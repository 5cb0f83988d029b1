//! Deadlines over several servers: who keeps whose plan, and what they tell each other.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a wrong assumption is a failed test"
)]

#[path = "support/group.rs"]
mod group;

use group::{Group, HIGH};
use legwork_model::event::{Method, Performer, PlanEvent, Record};
use legwork_model::id::{ActivityId, AgentId, InstanceId, ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_site::*;

const PEOPLE: &str = "organisation: o\nagents: { ann: { roles: [clerk] }, bob: { roles: [clerk] }, \
                      sam: { roles: [manager] } }\n";
const TOUR: &str = "process: tour\nsteps:\n  - { step: check, who: Role(clerk), at: north, takes: 3h }\n  \
                    - { step: sign, who: Role(manager), at: south, takes: 1h }\n";
const HOUR: i64 = 3_600_000;

fn topology(north: &str, south: &str) -> String {
    let people = format!("    people: [{north}]\n  south: {{ people: [{south}], servers");
    group::topology(1, 1).replace("  south: { servers", &people)
}

/// North-1 keeps Ann's plan, south-1 Bob's and Sam's.
fn group() -> Group {
    let mut group = Group::new(1, 1);
    group.publish(&topology("ann", "bob, sam"), Method::Since).unwrap();
    group.ask(0, Request::PublishOrganisation { source: PEOPLE.to_owned() }).unwrap();
    group.ask(0, Request::Deploy { source: TOUR.to_owned() }).unwrap();
    for _ in 0..5 {
        group.pass(2_000);
    }
    group
}

/// Asks north-2 for a start that is to be done in so many hours.
fn start(group: &mut Group, hours: i64) -> (InstanceId, String) {
    let instance = group.draw(1, HIGH);
    let wish = Wish::new(Timestamp(group.now + hours * HOUR));
    let request = Request::Start(Start {
        instance,
        process: "tour".into(),
        version: None,
        data: Data::new(),
        agent: None,
        key: None,
        wait_until: None,
        deadline: Some(Box::new(wish)),
    });
    let id = group.send(1, request);
    for _ in 0..200 {
        if group.answers.contains_key(&id) {
            break;
        }
        group.pass(50);
    }
    (instance, told(group.answers.remove(&id).expect("an answer")))
}

fn told(answer: Result<Answer, Refusal>) -> String {
    match answer {
        Ok(Answer::Started { instance, .. }) => {
            let deadline = instance.deadline.unwrap();
            assert!(deadline.promised);
            let by = deadline.legs.iter().map(|leg| match &leg.by {
                Some(Performer::Agent(agent)) => format!("{} {agent}", leg.step),
                other => panic!("{other:?}"),
            });
            by.collect::<Vec<_>>().join(", ")
        }
        Err(Refusal { code, earliest, .. }) => format!("{code} {}", earliest.is_some()),
        other => panic!("{other:?}"),
    }
}

fn run(group: &mut Group, seconds: u32) {
    for _ in 0..seconds * 20 {
        group.pass(50);
    }
}

/// An answer that others have to be asked for.
fn asked(group: &mut Group, place: usize, request: Request) -> Answer {
    let id = group.send(place, request);
    run(group, 2);
    group.answers.remove(&id).unwrap().unwrap()
}

fn publish_people(group: &mut Group, source: &str) {
    group.ask(0, Request::PublishOrganisation { source: source.to_owned() }).unwrap();
    run(group, 5);
}

fn activity(instance: InstanceId, step: &str) -> ActivityId {
    ActivityId { instance, step: step.into(), iteration: Default::default() }
}

fn shown(group: &mut Group, place: usize, instance: InstanceId) -> DeadlineView {
    match group.ask(place, Request::Show { instance, wait_until: None }).unwrap() {
        Answer::Instance(view) => view.info.deadline.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// How many turns somebody has in their plan, asked at their planner.
fn turns(group: &mut Group, planner: usize, agent: &str) -> usize {
    let resource = ResourceId::Person(agent.into());
    match group.ask(planner, Request::Plan { resource }).unwrap() {
        Answer::Plan(plan) => plan.turns.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_deadline_is_promised_by_planners_of_other_servers() {
    let mut group = group();
    let (_, first) = start(&mut group, 8);
    assert!(["check ann, sign sam", "check bob, sign sam"].contains(&first.as_str()), "{first}");
    let (_, second) = start(&mut group, 8);
    // Whoever has not got the first gets the second.
    assert_ne!(first, second);
    assert_eq!((turns(&mut group, 0, "ann"), turns(&mut group, 2, "bob")), (1, 1));
    assert_eq!(turns(&mut group, 2, "sam"), 2);
    // A third in a hurry goes before both; a fourth has no time.
    let (_, third) = start(&mut group, 5);
    assert!(third.starts_with("check"), "{third}");
    let (_, fourth) = start(&mut group, 5);
    assert!(fourth.starts_with("check"), "{fourth}");
    assert_eq!(start(&mut group, 5).1, "deadline_not_promised true");
    assert_eq!(turns(&mut group, 2, "sam"), 4, "what was reserved for it is given back");
}

#[test]
fn a_plan_is_asked_for_at_the_server_that_keeps_it() {
    let mut group = group();
    let resource = ResourceId::Person("sam".into());
    let refusal = group.ask(1, Request::Plan { resource }).unwrap_err();
    assert_eq!((refusal.code, refusal.at), ("elsewhere", Some(ServerId(2))));
}

#[test]
fn a_step_that_is_done_anywhere_gives_the_time_back() {
    let mut group = group();
    let (instance, by) = start(&mut group, 8);
    let clerk = if by.contains("ann") { "ann" } else { "bob" };
    let planner = if clerk == "ann" { 0 } else { 2 };
    assert_eq!(turns(&mut group, planner, clerk), 1);
    let done = |step: &str, agent: &str| {
        Request::Complete(Complete {
            agent: AgentId::from(agent),
            activity: activity(instance, step),
            data: Data::new(),
            answer: None,
            request: None,
        })
    };
    group.ask(1, done("check", clerk)).unwrap();
    group.pass(1_000);
    assert_eq!(turns(&mut group, planner, clerk), 0);
    // The second step is done in the south.
    for _ in 0..5 {
        group.pass(1_000);
    }
    assert_eq!(turns(&mut group, 2, "sam"), 1);
    group.ask(2, done("sign", "sam")).unwrap();
    group.pass(1_000);
    assert_eq!(turns(&mut group, 2, "sam"), 0);
}

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

fn replanned(group: &mut Group, instance: InstanceId) -> Vec<String> {
    let request = Request::History { instance, from: 0, limit: 100 };
    let Ok(Answer::History { entries, .. }) = group.ask(1, request) else { panic!("a history") };
    let changes = entries.into_iter().filter(|entry| entry.kind == "replanned");
    changes.filter_map(|entry| entry.detail).collect()
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
    assert!(last.starts_with("somebody else will do it; check by ann"), "{told:?}");
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
    let start = Start {
        instance,
        process: "tour".into(),
        version: None,
        data: Data::new(),
        agent: None,
        key: None,
        wait_until: None,
        deadline: Some(Box::new(wish)),
    };
    let id = group.send(0, Request::Start(start));
    assert!(!group.answers.contains_key(&id));
    assert_eq!(turns(&mut group, 0, "ann"), 1);
    group.open(0);
    group.pass(1_000);
    assert_eq!(turns(&mut group, 0, "ann"), 0);
}

#[test]
fn who_may_not_do_it_any_more_gives_it_back_and_another_planner_is_asked() {
    let mut group = group();
    let (_, planned) = start(&mut group, 8);
    assert!(planned.ends_with("sign sam"), "{planned}");
    assert_eq!(turns(&mut group, 2, "sam"), 1);
    let source = PEOPLE
        .replace("sam: { roles: [manager] }", "sam: { roles: [clerk] }, tom: { roles: [manager] }");
    group.ask(0, Request::PublishOrganisation { source }).unwrap();
    for _ in 0..10 {
        group.pass(2_000);
    }
    assert_eq!((turns(&mut group, 2, "sam"), turns(&mut group, 0, "tom")), (0, 1));
}

#[test]
fn whoever_is_at_home_elsewhere_from_now_on_is_planned_there_and_nowhere_else() {
    let mut group = group();
    let (instance, first) = start(&mut group, 10);
    let (_, second) = start(&mut group, 10);
    assert_ne!(first, second);
    assert_eq!((turns(&mut group, 0, "ann"), turns(&mut group, 2, "bob")), (1, 1));
    // Ann moves south, Bob north.
    group.publish(&topology("bob", "ann, sam"), Method::Since).unwrap();
    run(&mut group, 15);
    let both = |group: &mut Group| turns(group, 2, "ann") + turns(group, 0, "bob");
    assert_eq!(both(&mut group), 2);
    // Nobody is booked twice: there is time for two more that take three hours, and no more.
    assert!(start(&mut group, 10).1.starts_with("check"));
    assert!(start(&mut group, 10).1.starts_with("check"));
    assert_eq!(start(&mut group, 10).1, "deadline_not_promised true");
    assert!(shown(&mut group, 1, instance).promised, "somebody does it all the same");
    for place in 0..3 {
        group.open(place);
    }
    for _ in 0..5 {
        group.pass(2_000);
    }
    assert_eq!(both(&mut group), 4);
}

/// Whether the plans of a server say that a step was begun.
fn is_begun(group: &Group, place: usize) -> bool {
    let records = group.servers[place].streams.get(&StreamId::PLANS.0).into_iter().flatten();
    let events = records.flat_map(|it| Record::<PlanEvent>::from_bytes(it).unwrap().events);
    events.into_iter().any(|event| matches!(event, PlanEvent::Begun(_)))
}

#[test]
fn another_planner_that_takes_over_a_promise_hears_that_the_step_is_begun() {
    let mut group = group();
    let (instance, by) = start(&mut group, 10);
    let clerk = if by.contains("ann") { "ann" } else { "bob" };
    let next = if clerk == "ann" { 2 } else { 0 };
    let claim = Request::Claim { agent: clerk.into(), activity: activity(instance, "check") };
    group.ask(1, claim).unwrap();
    run(&mut group, 1);
    assert!(!is_begun(&group, next));
    let moved = if clerk == "ann" { ("", "ann, bob, sam") } else { ("ann, bob", "sam") };
    group.publish(&topology(moved.0, moved.1), Method::Since).unwrap();
    run(&mut group, 15);
    assert!(shown(&mut group, 1, instance).promised);
    assert!(is_begun(&group, next));
}

#[test]
fn a_step_that_is_controlled_elsewhere_is_shown_there_as_it_is_planned_now() {
    let mut group = Group::new(1, 1);
    group.publish(&topology("ann, tom", "bob, sam"), Method::Since).unwrap();
    let people = PEOPLE.replace("sam:", "tom: { roles: [manager] }, sam:");
    publish_people(&mut group, &people);
    group.ask(0, Request::Deploy { source: TOUR.to_owned() }).unwrap();
    run(&mut group, 5);
    let (instance, by) = start(&mut group, 12);
    let clerk = if by.contains("ann") { "ann" } else { "bob" };
    let done = Complete {
        agent: clerk.into(),
        activity: activity(instance, "check"),
        data: Data::new(),
        answer: None,
        request: None,
    };
    group.ask(1, Request::Complete(done)).unwrap();
    run(&mut group, 5);
    let list = |group: &mut Group, agent: &str, since: Option<String>| {
        let list = Worklist { agent: agent.into(), since, limit: 10, wait_until: None };
        match asked(group, 2, Request::Worklist(list)) {
            Answer::Worklist(list) => list,
            other => panic!("{other:?}"),
        }
    };
    let (first, other) = if by.contains("sign sam") { ("sam", "tom") } else { ("tom", "sam") };
    let before = list(&mut group, other, None);
    assert_eq!(before.items[0].planned_for, Some(first.into()));
    let ill = format!("{first}: {{ absent: [{{ from: 1970-01-01 }}], ");
    // What is lost on the way is said again.
    group.is_lost = |message| matches!(message, Message::Replanned { .. });
    publish_people(&mut group, &people.replace(&format!("{first}: {{ "), &ill));
    assert!(shown(&mut group, 1, instance).promised);
    let lost = list(&mut group, other, None);
    assert_eq!(lost.items[0].planned_for, Some(first.into()));
    group.is_lost = |_| false;
    (0..15).for_each(|_| group.pass(5_000));
    let after = list(&mut group, other, Some(before.cursor));
    assert_eq!(after.items[0].planned_for, Some(other.into()));
    // Until it is heard, and no longer.
    group.is_lost = |message| match message {
        Message::Replanned { .. } => panic!("{message:?}"),
        _ => false,
    };
    (0..15).for_each(|_| group.pass(5_000));
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
