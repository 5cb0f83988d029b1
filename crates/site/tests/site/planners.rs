//! Deadlines over several servers: who keeps whose plan, and what they tell each other.

use crate::support::group::{self, Group};
use crate::support::tour::*;
use legwork_model::event::{Method, PlanEvent, Record};
use legwork_model::id::{InstanceId, ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_site::*;

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
    assert_eq!(turns(&mut group, 2, "sam"), 5, "the earliest date is offered");
}

#[test]
fn a_plan_is_asked_for_at_the_server_that_keeps_it() {
    let mut group = group();
    let resource = ResourceId::Person("sam".into());
    let refusal = group.ask(1, Request::Plan { resource }).unwrap_err();
    assert_eq!((refusal.code, refusal.at), ("elsewhere", Some(ServerId(2))));
}

#[test]
fn a_plan_names_steps_of_cases_that_its_server_does_not_know() {
    let mut group = group();
    start(&mut group, 8);
    for is_restarted in [false, true] {
        if is_restarted {
            group.open(2);
            group.pass(1_000);
        }
        let resource = ResourceId::Person("sam".into());
        let Ok(Answer::Plan(plan)) = group.ask(2, Request::Plan { resource }) else {
            panic!("a plan")
        };
        let steps: Vec<Option<&str>> = plan.turns.iter().map(|it| it.step.as_deref()).collect();
        assert_eq!(steps, [Some("sign")]);
    }
}

#[test]
fn a_step_that_is_done_anywhere_gives_the_time_back() {
    let mut group = group();
    let (instance, by) = start(&mut group, 8);
    let clerk = if by.contains("ann") { "ann" } else { "bob" };
    let planner = if clerk == "ann" { 0 } else { 2 };
    assert_eq!(turns(&mut group, planner, clerk), 1);
    group.ask(1, done(instance, "check", clerk)).unwrap();
    group.pass(1_000);
    assert_eq!(turns(&mut group, planner, clerk), 0);
    // The second step is done in the south.
    for _ in 0..5 {
        group.pass(1_000);
    }
    assert_eq!(turns(&mut group, 2, "sam"), 1);
    group.ask(2, done(instance, "sign", "sam")).unwrap();
    group.pass(1_000);
    assert_eq!(turns(&mut group, 2, "sam"), 0);
}

#[test]
fn who_may_not_do_it_any_more_gives_it_back_and_another_planner_is_asked() {
    let mut group = group();
    let (_, planned) = start(&mut group, 8);
    assert!(planned.ends_with("sign sam"), "{planned}");
    assert_eq!(turns(&mut group, 2, "sam"), 1);
    let source = PEOPLE
        .replace("sam: { roles: [manager]", "sam: { roles: [clerk]")
        .replace(" } }\n", " }, tom: { roles: [manager], share: 100 } }\n");
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
    let people = PEOPLE.replace("sam:", "tom: { roles: [manager], share: 100 }, sam:");
    publish_people(&mut group, &people);
    group.ask(0, Request::Deploy { source: TOUR.to_owned() }).unwrap();
    run(&mut group, 5);
    let (instance, by) = start(&mut group, 12);
    let clerk = if by.contains("ann") { "ann" } else { "bob" };
    group.ask(1, done(instance, "check", clerk)).unwrap();
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
    group.is_lost =
        |message| matches!(message, Message::Deadline(message::Deadline::Replanned { .. }));
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
        Message::Deadline(message::Deadline::Replanned { .. }) => panic!("{message:?}"),
        _ => false,
    };
    (0..15).for_each(|_| group.pass(5_000));
}

#[test]
fn a_promise_is_counted_once_although_others_hear_of_the_end_after_the_deadline() {
    let mut group = group();
    let source = TOUR.replace("process: tour", "process: round")
        + "  - { step: file, who: Role(clerk), at: north, takes: 1h }\n";
    group.ask(0, Request::Deploy { source }).unwrap();
    run(&mut group, 5);
    let wish = Wish::new(Timestamp(group.now + 12 * HOUR));
    let (instance, by) = start_with(&mut group, "round", wish);
    assert!(by.contains("sign sam"), "{by}");
    for (place, step, agent) in [(1, "check", "ann"), (2, "sign", "sam")] {
        group.ask(place, done(instance, step, agent)).unwrap();
        run(&mut group, 5);
    }
    // The south does not hear that it has ended before the deadline is over.
    group.away.insert(2);
    group.ask(1, done(instance, "file", "ann")).unwrap();
    let counts = |group: &Group| {
        let counts = group.servers[1].site.deadlines();
        (counts.kept, counts.broken)
    };
    assert_eq!(counts(&group), (1, 0));
    (0..24).for_each(|_| group.pass(HOUR));
    group.away.clear();
    group.feed(1, Input::Link { to: ServerId(2), is_up: true });
    (0..10).for_each(|_| group.pass(10_000));
    assert_eq!(counts(&group), (1, 0));
    let request = Request::Show { instance, wait_until: None };
    let Ok(Answer::Instance(view)) = group.ask(1, request) else { panic!("it is there") };
    assert!(view.info.ended_at <= Some(view.info.deadline.unwrap().at), "when it ended, not heard");
}

#[test]
fn a_promise_that_was_kept_elsewhere_counts_as_kept_however_late_its_starter_hears_of_it() {
    let mut group = group();
    let (instance, by) = start(&mut group, 10);
    let clerk = if by.contains("ann") { "ann" } else { "bob" };
    group.ask(1, done(instance, "check", clerk)).unwrap();
    run(&mut group, 5);
    // The south is done in time, and north-2 hears of it a day later.
    group.away.insert(1);
    group.ask(2, done(instance, "sign", "sam")).unwrap();
    let ended = Timestamp(group.now);
    (0..24).for_each(|_| group.pass(HOUR));
    group.away.clear();
    group.feed(2, Input::Link { to: ServerId(1), is_up: true });
    (0..10).for_each(|_| group.pass(10_000));
    let counts = group.servers[1].site.deadlines();
    assert_eq!((counts.kept, counts.broken), (1, 0));
    let show = |group: &mut Group| {
        let request = Request::Show { instance, wait_until: None };
        match group.ask(1, request) {
            Ok(Answer::Instance(view)) => view.info.ended_at,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(show(&mut group), Some(ended));
    group.open(1);
    assert_eq!(show(&mut group), Some(ended), "also after a restart");
}

#[test]
fn what_nobody_could_do_any_more_is_promised_again_by_planners_of_other_servers() {
    let mut group = group();
    let (instance, _) = start(&mut group, 10);
    let ill =
        PEOPLE.replace("{ roles: [clerk], share: 100 }", "{ absent: [{ from: 1970-01-01 }] }");
    publish_people(&mut group, &ill);
    assert!(!shown(&mut group, 1, instance).promised);
    // Whoever started it dies meanwhile.
    group.open(1);
    publish_people(&mut group, PEOPLE);
    assert!(shown(&mut group, 1, instance).promised);
    assert_eq!(turns(&mut group, 0, "ann") + turns(&mut group, 2, "bob"), 1);
}

/// Starts a tour under a key, the same each time.
fn send_keyed(group: &mut Group) -> RequestId {
    let wish = Wish::new(Timestamp(1_000_000 + 6 * HOUR));
    let instance = group.draw(1, group::HIGH);
    let Request::Start(start) = start_of(instance, "tour", wish) else { panic!("a start") };
    group.send(1, Request::Start(Start { key: group::key(7), ..start }))
}

fn started(answer: Option<Result<Answer, Refusal>>) -> (InstanceId, bool) {
    match answer {
        Some(Ok(Answer::Started { instance, repeated })) => (instance.instance, repeated),
        other => panic!("{other:?}"),
    }
}

#[test]
fn starts_under_one_key_are_promised_once_also_if_they_come_while_it_is_looked_for() {
    let mut group = group();
    // Sam cannot be asked at first, so that the first has to wait.
    group.away.insert(2);
    let both = [send_keyed(&mut group), send_keyed(&mut group)];
    group.pass(50);
    assert!(both.iter().all(|id| !group.answers.contains_key(id)));
    group.away.clear();
    run(&mut group, 5);
    let [first, second] = both.map(|id| started(group.answers.remove(&id)));
    assert_eq!((first.0, first.1, second.1), (second.0, false, true));
    assert_eq!(group.servers[1].site.deadlines().promised, 1);
    assert_eq!(turns(&mut group, 2, "sam"), 1);
}

#[test]
fn who_waits_under_the_same_key_for_a_start_that_is_given_up_starts_instead() {
    let mut group = group();
    group.away.insert(2);
    let (first, gone) = (send_keyed(&mut group), send_keyed(&mut group));
    let last = send_keyed(&mut group);
    group.pass(50);
    group.feed(1, Input::Cancelled { id: gone });
    group.feed(1, Input::Cancelled { id: first });
    group.away.clear();
    run(&mut group, 5);
    assert!(!started(group.answers.remove(&last)).1);
    assert!(group.answers.is_empty());
    assert_eq!(turns(&mut group, 2, "sam"), 1);
}

#[test]
fn who_was_displaced_for_a_start_that_is_given_up_is_tried_again_at_once() {
    let mut group = group();
    let source =
        "process: letter\nsteps:\n  - { step: write, who: Agent(ann), at: north, takes: 3h }\n";
    group.ask(0, Request::Deploy { source: source.to_owned() }).unwrap();
    run(&mut group, 5);
    // Ann has time for one until then.
    let by = Timestamp(group.now + 4 * HOUR);
    let (first, planned) = start_with(&mut group, "letter", Wish::new(by));
    assert_eq!(planned, "write ann");
    // Her planner does not hear that the urgent one goes ahead.
    group.is_lost = |message| matches!(message, Message::Deadline(message::Deadline::Reserve(what)) if is_confirm(what));
    let mut urgent = Wish::new(by);
    urgent.priority = 9;
    let instance = group.draw(1, group::HIGH);
    let id = group.send(1, start_of(instance, "letter", urgent));
    run(&mut group, 1);
    assert!(!group.answers.contains_key(&id));
    assert!(!shown(&mut group, 1, first).promised);
    group.is_lost = |_| false;
    group.feed(1, Input::Cancelled { id });
    run(&mut group, 5);
    assert!(shown(&mut group, 1, first).promised);
    assert_eq!(turns(&mut group, 0, "ann"), 1);
}

fn is_confirm(what: &Reserving) -> bool {
    matches!(what, Reserving::Confirm { .. })
}
