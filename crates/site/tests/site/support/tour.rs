//! Two domains whose people do a tour together, and what was promised of it.

use legwork_model::event::{Method, Performer};
use legwork_model::id::{ActivityId, InstanceId};
use legwork_model::time::Timestamp;
use legwork_site::*;

use super::group::{self, Group, HIGH};

pub(crate) const PEOPLE: &str = "organisation: o\nagents: { ann: { roles: [clerk], share: 100 }, \
                      bob: { roles: [clerk], share: 100 }, sam: { roles: [manager], share: 100 } }\n";
pub(crate) const TOUR: &str = "process: tour\nsteps:\n  - { step: check, who: Role(clerk), at: north, takes: 3h }\n  \
                    - { step: sign, who: Role(manager), at: south, takes: 1h }\n";
pub(crate) const HOUR: i64 = 3_600_000;

pub(crate) fn topology(north: &str, south: &str) -> String {
    let people = format!("    people: [{north}]\n  south: {{ people: [{south}], servers");
    group::topology(1, 1).replace("  south: { servers", &people)
}

/// North-1 keeps Ann's plan, south-1 Bob's and Sam's.
pub(crate) fn group() -> Group {
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
pub(crate) fn start(group: &mut Group, hours: i64) -> (InstanceId, String) {
    let wish = Wish::new(Timestamp(group.now + hours * HOUR));
    start_with(group, "tour", wish)
}

pub(crate) fn start_of(instance: InstanceId, process: &str, wish: Wish) -> Request {
    Request::Start(Start {
        instance,
        process: process.into(),
        version: None,
        data: Data::new(),
        agent: None,
        key: None,
        wait_until: None,
        deadline: Some(Box::new(wish)),
    })
}

pub(crate) fn start_with(group: &mut Group, process: &str, wish: Wish) -> (InstanceId, String) {
    let instance = group.draw(1, HIGH);
    let id = group.send(1, start_of(instance, process, wish));
    for _ in 0..200 {
        if group.answers.contains_key(&id) {
            break;
        }
        group.pass(50);
    }
    (instance, told(group.answers.remove(&id).expect("an answer")))
}

pub(crate) fn told(answer: Result<Answer, Refusal>) -> String {
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
        Err(refusal) => format!("{} {}", refusal.code, refusal.possible.is_some()),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn run(group: &mut Group, seconds: u32) {
    for _ in 0..seconds * 20 {
        group.pass(50);
    }
}

/// An answer that others have to be asked for.
pub(crate) fn asked(group: &mut Group, place: usize, request: Request) -> Answer {
    let id = group.send(place, request);
    run(group, 2);
    group.answers.remove(&id).unwrap().unwrap()
}

pub(crate) fn publish_people(group: &mut Group, source: &str) {
    group.ask(0, Request::PublishOrganisation { source: source.to_owned() }).unwrap();
    run(group, 5);
}

pub(crate) fn done(instance: InstanceId, step: &str, agent: &str) -> Request {
    Request::Complete(Complete {
        agent: agent.into(),
        activity: activity(instance, step),
        data: Data::new(),
        answer: None,
        request: None,
    })
}

pub(crate) fn activity(instance: InstanceId, step: &str) -> ActivityId {
    ActivityId { instance, step: step.into(), iteration: Default::default() }
}

pub(crate) fn shown(group: &mut Group, place: usize, instance: InstanceId) -> DeadlineView {
    match group.ask(place, Request::Show { instance, wait_until: None }).unwrap() {
        Answer::Instance(view) => view.info.deadline.unwrap(),
        other => panic!("{other:?}"),
    }
}

/// How many turns somebody has in their plan, asked at their planner.
pub(crate) fn turns(group: &mut Group, planner: usize, agent: &str) -> usize {
    let resource = ResourceId::Person(agent.into());
    match group.ask(planner, Request::Plan { resource }).unwrap() {
        Answer::Plan(plan) => plan.turns.len(),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn replanned(group: &mut Group, instance: InstanceId) -> Vec<String> {
    let request = Request::History { instance, from: 0, limit: 100 };
    let Ok(Answer::History { entries, .. }) = group.ask(1, request) else { panic!("a history") };
    let changes = entries.into_iter().filter(|entry| entry.kind == "replanned");
    changes.filter_map(|entry| entry.detail).collect()
}
