//! Letters about promises where several servers have to do with a case: one of them writes, and the last letter is true.

use crate::support::claim;
use crate::support::group::{self, Group, HIGH};
use legwork_mail::Tell;
use legwork_model::event::Method;
use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_site::*;

const PEOPLE: &str = "organisation: o\nagents: { ann: { roles: [clerk], share: 100 }, \
                      bob: { roles: [clerk], share: 100 }, eva: { mail: eva@office } }\n";
/// Started in the north, and done in the south.
const TOUR: &str =
    "process: tour\nsteps:\n  - { step: check, who: Role(clerk), at: south, takes: 3h }\n";
const HOUR: i64 = 3_600_000;

/// North-1 keeps Ann's plan, south-1 Bob's; all of them write letters.
fn group() -> Group {
    group_with(Tell::default(), PEOPLE)
}

fn group_with(tell: Tell, people_there: &str) -> Group {
    let mut group = Group::new(1, 1);
    for place in 0..3 {
        group.servers[place].config.mail = Some(tell.clone());
        group.open(place);
        for to in (0..3).filter(|to| *to != place) {
            group.feed(place, Input::Link { to: ServerId(to as u16), is_up: true });
        }
    }
    group.pass(2_000);
    let people = "    people: [ann]\n  south: { people: [bob], servers";
    let topology = group::topology(1, 1).replace("  south: { servers", people);
    group.publish(&topology, Method::Since).unwrap();
    group.ask(0, Request::PublishOrganisation { source: people_there.to_owned() }).unwrap();
    group.ask(0, Request::Deploy { source: TOUR.to_owned() }).unwrap();
    for _ in 0..5 {
        group.pass(2_000);
    }
    group
}

/// Eva starts a case at north-2; who has promised it.
fn start(group: &mut Group) -> (InstanceId, String) {
    let instance = group.draw(1, HIGH);
    let request = Request::Start(Start {
        instance,
        process: "tour".into(),
        version: None,
        data: Data::new(),
        agent: Some("eva".into()),
        key: None,
        wait_until: None,
        deadline: Some(Box::new(Wish::new(Timestamp(group.now + 7 * HOUR)))),
    });
    let id = group.send(1, request);
    while !group.answers.contains_key(&id) {
        group.pass(50);
    }
    match group.answers.remove(&id).unwrap() {
        Ok(Answer::Started { instance: info, .. }) => {
            (instance, format!("{:?}", info.deadline.unwrap().legs[0].by))
        }
        other => panic!("{other:?}"),
    }
}

fn ask(group: &mut Group, place: usize, errand: Mailing) -> Answer {
    group.last += 1;
    let (id, credential) = (RequestId(group.last), Credential::Mailer);
    group.feed(place, Input::Request { id, credential, request: Request::Mail(errand) });
    group.answers.remove(&id).unwrap().unwrap()
}

/// All letters of the next seconds, as `1: revocation`, with the server that wrote them.
fn told(group: &mut Group, seconds: u32) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..seconds {
        for _ in 0..20 {
            group.pass(50);
        }
        for place in (0..3).filter(|place| !group.away.contains(place)).collect::<Vec<_>>() {
            while let Answer::Letter { letter, more: true } = ask(group, place, Mailing::Next) {
                let Some(letter) = letter else { continue };
                all.push(match &letter.content {
                    Content::Case(turn) => format!("{place}: {}", turn.kind),
                    Content::Deadline(it) => format!("{place}: {} {}", it.kind, letter.address),
                    Content::Item { .. } | Content::Digest { .. } => panic!("{letter:?}"),
                });
                ask(group, place, Mailing::Told(letter.notice));
            }
        }
    }
    all
}

fn replanned(group: &mut Group, instance: InstanceId) -> Vec<String> {
    let request = Request::History { instance, from: 0, limit: 100 };
    let Ok(Answer::History { entries, .. }) = group.ask(1, request) else { panic!("a history") };
    let changes = entries.into_iter().filter(|entry| entry.kind == "replanned");
    changes.filter_map(|entry| entry.detail).collect()
}

/// So many cases, half of which Bob has promised, and then he is away.
fn left(group: &mut Group, count: usize) -> InstanceId {
    let cases: Vec<_> = (0..count).map(|_| start(group)).collect();
    let bobs: Vec<_> = cases.iter().filter(|(_, by)| by.contains("bob")).collect();
    assert_eq!(bobs.len(), count / 2);
    assert_eq!(told(group, 10), [] as [&str; 0]);
    let ill = PEOPLE.replace("bob: {", "bob: { absent: [{ from: 1970-01-01 }],");
    group.ask(0, Request::PublishOrganisation { source: ill }).unwrap();
    bobs[0].0
}

#[test]
fn what_somebody_else_promises_at_once_is_not_written_about() {
    let mut group = group();
    let bobs = left(&mut group, 2);
    assert_eq!(told(&mut group, 60), [] as [&str; 0]);
    let changes = replanned(&mut group, bobs);
    assert!(changes.last().unwrap().contains("check by ann"), "{changes:?}");
}

#[test]
fn of_all_servers_that_one_writes_which_started_the_case() {
    let mut group = group();
    // Ann has the time for two of them.
    let bobs = left(&mut group, 4);
    assert_eq!(told(&mut group, 60), ["1: revocation", "1: revocation"]);
    assert_eq!(group.holders(bobs), [1, 2], "another one knows of it");
}

#[test]
fn that_a_deadline_has_passed_everybody_hears_once_from_their_server() {
    let people = PEOPLE.replace(
        "roles: [clerk], share: 100 }",
        "roles: [clerk], share: 100, mail: clerk@office }",
    );
    let tell = Tell { assignment: false, ..Tell::default() };
    let mut group = group_with(tell, &people);
    let (instance, by) = start(&mut group);
    let agent = if by.contains("ann") { "ann" } else { "bob" };
    group.ask(2, claim(agent, instance, "check")).unwrap();
    (0..8).for_each(|_| group.pass(HOUR));
    let mut told_all = told(&mut group, 5);
    told_all.retain(|letter| letter.contains("late"));
    told_all.sort();
    assert_eq!(told_all, ["1: late eva@office", "2: late clerk@office"]);
    group.open(1);
    group.open(2);
    told_all = told(&mut group, 20);
    told_all.retain(|letter| letter.contains("late"));
    assert_eq!(told_all, [] as [&str; 0]);
}
