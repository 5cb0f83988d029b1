//! The bytes that servers say messages in. They must not change: servers of different releases
//! talk to each other.
//!
//! A case that fails here is a change of the format, not a test to be adapted: give the new field
//! or variant a new number instead.

use legwork_model::event::{
    Completed, Created, Entry, Event, FetchedValue, Leg, Parcel, Passage, Performer, Planned,
    Replanned, TaskKey,
};
use legwork_model::id::{Activity, ElementId, InstanceId, Iteration, NodeId, ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_model::value::{Value, hex};
use legwork_plan::{Candidate, Grant, How, Offer as PlanOffer, Task, TaskId, Window, Work};
use legwork_site::{
    Attempt, Follow, Instance, Item, Items, KeyQuestion, Mark, Message, Named, Offer, ParcelId,
    Report, Reserving, ResourceId, Shares, Stage, Wanted, Why, message,
};

/// 2026-03-01T09:30:05.123Z
const AT: Timestamp = Timestamp(1_772_357_405_123);

fn instance() -> Instance {
    Instance(InstanceId(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10))
}

fn parcel() -> ParcelId {
    ParcelId { instance: instance(), number: 3 }
}

fn offer(entries: Option<Vec<Entry>>) -> Message {
    let passage = Passage { source: Activity::once(NodeId(1)), target: Activity::once(NodeId(2)) };
    let parcel_of_control = Parcel::Control { passages: vec![passage], order: None };
    Message::Migration(message::Migration::Offer(Box::new(Offer {
        id: parcel(),
        process: "claim".into(),
        version: 2,
        parcel: parcel_of_control,
        entries,
        is_part: false,
        epoch: None,
    })))
}

fn entries() -> Vec<Entry> {
    let created = Event::Created(Box::new(Created {
        process: "claim".into(),
        version: 2,
        by: Performer::System,
        inputs: vec![(ElementId(0), Value::Int(7))],
        deadline: None,
    }));
    let completed = Event::Completed(Completed {
        activity: Activity::once(NodeId(1)),
        by: Performer::Agent("ann".into()),
        started_at: Timestamp(AT.0 + 900),
        writes: vec![(ElementId(1), Value::String("yes".to_owned()))],
        code: None,
        request: None,
        home: None,
        channel: None,
    });
    let entry = |event, at, elsewhere| Entry { event, at, server: ServerId(0), elsewhere };
    vec![
        entry(created, AT, Vec::new()),
        entry(completed, Timestamp(AT.0 + 1_000), vec![ElementId(2)]),
    ]
}

fn check(message: &Message, expected: &str) {
    let bytes = message.to_bytes();
    assert_eq!(hex(&bytes), expected, "{message:?}");
    assert_eq!(Message::from_bytes(&bytes).as_ref(), Ok(message));
}

#[test]
fn messages_keep_their_bytes() {
    check(&offer(None), "0082008482500102030405060708090a0b0c0d0e0f100365636c61696d02820081820102");
    let mut later = offer(None);
    if let Message::Migration(message::Migration::Offer(later)) = &mut later {
        later.epoch = Some(3);
    }
    check(&later, "0082008782500102030405060708090a0b0c0d0e0f100365636c61696d02820081820102f6f403");
    check(
        &offer(Some(entries())),
        "1b0000019ca8bbc9c382008582500102030405060708090a0b0c0d0e0f100365636c61696d02820081820102828382008465636c61696d0281008182008201810700008482048401820163616e6e390383818201820381637965733903e7008102",
    );
    let mut part = offer(Some(Vec::new()));
    if let Message::Migration(message::Migration::Offer(part)) = &mut part {
        part.is_part = true;
    }
    check(&part, "0082008682500102030405060708090a0b0c0d0e0f100365636c61696d0282008182010280f5");
    let last = vec![Activity::once(NodeId(4))];
    check(
        &Message::Migration(message::Migration::Known { parcel: parcel(), last }),
        "00830182500102030405060708090a0b0c0d0e0f100381820480",
    );
    check(
        &Message::Migration(message::Migration::Ack { parcel: parcel() }),
        "00820282500102030405060708090a0b0c0d0e0f1003",
    );
    let writer = Activity::once(NodeId(1));
    let values = vec![Wanted { element: ElementId(2), writer: writer.clone() }];
    check(
        &Message::Migration(message::Migration::Want { instance: instance(), values }),
        "008303500102030405060708090a0b0c0d0e0f10818202820180",
    );
    let value = Value::String("long".to_owned());
    let values = vec![FetchedValue { element: ElementId(2), writer, value }];
    check(
        &Message::Migration(message::Migration::Have { instance: instance(), values }),
        "008304500102030405060708090a0b0c0d0e0f1081830201820381646c6f6e67",
    );
    check(&Message::Catalog(message::Catalog::Wanted { have: 300, answer: false }), "00820519012c");
    let records = vec![vec![1, 2].into(), vec![].into()];
    check(
        &Message::Catalog(message::Catalog::Records { from: 7, before: 8, records }),
        "00840607088242010240",
    );
}

#[test]
fn messages_about_changes_keep_their_bytes() {
    let Instance(id) = instance();
    let report = |after, ids, more| {
        Message::Registrar(message::Registrar::Report(Report {
            change: 2,
            latest_ms: 1_000,
            after,
            ids,
            more,
            open: 9,
        }))
    };
    check(&report(None, Vec::new(), false), "00820986021903e8f640f409");
    check(
        &report(Some(instance()), vec![id], true),
        "00820986021903e8500102030405060708090a0b0c0d0e0f10500102030405060708090a0b0c0d0e0f10f509",
    );
    check(
        &Message::Registrar(message::Registrar::Moved { change: 2, server: ServerId(3) }),
        "00830a0203",
    );
    let question = KeyQuestion { key: StreamId(7), versions: 3 };
    check(
        &Message::Key(message::Key::Wanted(question)),
        "00820b82500000000000000000000000000000000703",
    );
    check(
        &Message::Key(message::Key::Used { question, is_used: true }),
        "00830c82500000000000000000000000000000000703f5",
    );
    // Of a case: whether it was there and is over.
    let question = KeyQuestion { key: StreamId::from(id), versions: 3 };
    check(
        &Message::Key(message::Key::Wanted(question)),
        "00820b82500102030405060708090a0b0c0d0e0f1003",
    );
    check(
        &Message::Key(message::Key::Used { question, is_used: false }),
        "00830c82500102030405060708090a0b0c0d0e0f1003f4",
    );
    check(
        &Message::Registrar(message::Registrar::Over { ids: vec![id] }),
        "00820d500102030405060708090a0b0c0d0e0f10",
    );
}

fn items(items: Vec<Item>) -> Message {
    let named = |step: &str| Named {
        instance: instance(),
        step: step.into(),
        iteration: Iteration(vec![2, 0]),
    };
    Message::Worklist(message::Worklist::Items(Box::new(Items {
        agent: "ann".into(),
        question: 8,
        number: 0,
        after: None,
        cursor: Mark([1, 2, 3, 4, 5]),
        more: false,
        removed: items.iter().map(|_| named("check")).collect(),
        items,
    })))
}

fn item() -> Item {
    Item {
        activity: Named {
            instance: instance(),
            step: "sign".into(),
            iteration: Iteration::default(),
        },
        process: "claim".into(),
        title: "Sign it".into(),
        offered_at: AT,
        claimed_by: None,
        takes_ms: None,
        on_behalf_of: None,
        due: None,
        planned_for: None,
    }
}

#[test]
fn messages_about_worklists_keep_their_bytes() {
    let follow = |since| Follow { agent: "ann".into(), question: 7, since, seconds: 180 };
    check(&Message::Worklist(message::Worklist::Follow(follow(None))), "0082078463616e6e07f618b4");
    check(
        &Message::Worklist(message::Worklist::Follow(follow(Some(Mark([1, 2, 3, 4, 5]))))),
        "0082078463616e6e0785010203040518b4",
    );
    check(&items(Vec::new()), "0082088663616e6e0800f6850102030405f4");
    let later = Item {
        offered_at: Timestamp(AT.0 + 5),
        claimed_by: Some("ann".into()),
        takes_ms: Some(900),
        on_behalf_of: Some("bob".into()),
        ..item()
    };
    check(
        &items(vec![item(), later]),
        "1b0000019ca8bbc9c382088863616e6e0800f6850102030405f4828482500102030405060708090a0b0c0d0e0f10647369676e65636c61696d675369676e206974008782500102030405060708090a0b0c0d0e0f10647369676e65636c61696d675369676e2069742463616e6e19038463626f628283500102030405060708090a0b0c0d0e0f1065636865636b82020083500102030405060708090a0b0c0d0e0f1065636865636b820200",
    );
    let bytes = items(vec![item()]).to_bytes().len() as u64;
    let spent = Shares { worklist: bytes, ..Shares::default() };
    assert_eq!(items(vec![item()]).shares(bytes), spent);
}

#[test]
fn what_a_server_has_done_keeps_its_bytes() {
    check(&Message::Registrar(message::Registrar::Load { written: 300 }), "00820e19012c");
}

#[test]
fn messages_about_reservations_keep_their_bytes() {
    let Instance(instance) = instance();
    let id = TaskId { instance, step: 2, round: 1 };
    let window = Window { release: Timestamp(1), due: Timestamp(9) };
    let candidate = Candidate { who: ResourceId::Person("ann".into()), within: vec![window] };
    let task = Task {
        id,
        step: "sign".into(),
        priority: 5,
        release: Timestamp(1),
        due: Some(Timestamp(9)),
        cost: Work(4),
        who: vec![candidate],
        how: How::Displacing,
        after_fault: true,
        idle_until: None,
        offer: Some(PlanOffer { caller: 3, process: 4, case: 5 }),
        of: None,
    };
    let reserve = |what| Message::Deadline(message::Deadline::Reserve(Box::new(what)));
    let ask = Reserving::Ask { task: Box::new(task), attempt: 7, hold_ms: Some(30_000) };
    check(
        &reserve(ask),
        "00821784008a83500102030405060708090a0b0c0d0e0f100201647369676e050109048182820063616e6e8182010901f58303040507197530",
    );
    let by = ResourceId::Executor("crane".into());
    let grant =
        Grant { task: id, by, window, start: Timestamp(2), end: Timestamp(6), offered: None };
    let (grant, earliest) = (Some(Box::new(grant)), Some(Timestamp(8)));
    check(
        &reserve(Reserving::Answer { task: id, attempt: 7, grant, earliest, load: Work(3) }),
        "008217860183500102030405060708090a0b0c0d0e0f100201078583500102030405060708090a0b0c0d0e0f1002018201656372616e6582010902060803",
    );
    let tasks = vec![Attempt { task: id, attempt: 7 }];
    check(
        &reserve(Reserving::Confirm { tasks: tasks.clone() }),
        "0082178202818283500102030405060708090a0b0c0d0e0f10020107",
    );
    let confirmed = Reserving::Confirmed { tasks: tasks.clone(), lost: Vec::new() };
    check(&reserve(confirmed), "0082178303818283500102030405060708090a0b0c0d0e0f1002010780");
    check(
        &reserve(Reserving::Release { tasks: tasks.clone() }),
        "0082178204818283500102030405060708090a0b0c0d0e0f10020107",
    );
    let all = [Why::Displaced, Why::Late, Why::Gone, Why::Unseen];
    for (why, byte) in all.into_iter().zip(["00", "01", "02", "03"]) {
        check(
            &reserve(Reserving::TakenBack { task: tasks[0], why }),
            &format!("00821783058283500102030405060708090a0b0c0d0e0f10020107{byte}"),
        );
    }
    check(
        &reserve(Reserving::Held { after: Some(id), tasks, up_to: None }),
        "008217830683500102030405060708090a0b0c0d0e0f100201818283500102030405060708090a0b0c0d0e0f10020107",
    );
}

#[test]
fn messages_about_plans_keep_their_bytes() {
    let (by, planner) = (Performer::Worker("crane".into()), ServerId(3));
    let planned = Planned { by, start: AT, end: Timestamp(AT.0 + 600_000), planner };
    let leg = |planned| Leg {
        node: NodeId(2),
        round: 1,
        release: AT,
        due: Timestamp(AT.0 + 900_000),
        takes_ms: 600_000,
        planned,
    };
    let told = |planned| {
        let (legs, reason) = (vec![leg(planned)], "so".to_owned());
        let replanned = Box::new(Replanned { legs, reason });
        Message::Deadline(message::Deadline::Replanned {
            instance: instance(),
            replanned,
            number: 300,
        })
    };
    check(
        &told(None),
        "008414500102030405060708090a0b0c0d0e0f1082818502011b0000019ca8bbc9c31b0000019ca8c985631a000927c062736f19012c",
    );
    check(
        &told(Some(planned)),
        "008414500102030405060708090a0b0c0d0e0f1082818602011b0000019ca8bbc9c31b0000019ca8c985631a000927c0848202656372616e651b0000019ca8bbc9c31b0000019ca8c4f1830362736f19012c",
    );
    let Instance(instance) = instance();
    let task = TaskKey { instance, node: NodeId(2), round: 1, part: 0 };
    let stage = Stage::Over;
    let step = |took_ms, number| {
        Message::Deadline(message::Deadline::Step {
            task,
            stage,
            took_ms,
            number,
            ago_ms: 0,
            holder: None,
        })
    };
    let id = "84500102030405060708090a0b0c0d0e0f10020100";
    // As it was said before it had a number.
    check(&step(None, 0), &format!("008310{id}02"));
    check(&step(Some(7), 0), &format!("008410{id}0207"));
    check(&step(Some(7), 300), &format!("008510{id}020719012c"));
    check(&step(None, 300), &format!("008510{id}02f619012c"));
    let late = Message::Deadline(message::Deadline::Step {
        task,
        stage,
        took_ms: None,
        number: 300,
        ago_ms: 500,
        holder: None,
    });
    check(&late, &format!("008610{id}02f619012c1901f4"));
    check(
        &Message::Deadline(message::Deadline::StepAck { task, number: 300 }),
        &format!("008316{id}19012c"),
    );
    let message = Message::Deadline(message::Deadline::ReplannedAck {
        instance: Instance(instance),
        number: 300,
    });
    check(&message, "008315500102030405060708090a0b0c0d0e0f1019012c");
}

#[test]
fn what_is_cut_off_or_followed_by_something_is_refused() {
    let bytes = offer(Some(entries())).to_bytes();
    for end in 0..bytes.len() {
        assert!(Message::from_bytes(&bytes[..end]).is_err(), "{end}");
    }
    assert!(Message::from_bytes(&[bytes, vec![0]].concat()).is_err());
}

#[test]
fn the_bytes_of_an_offer_are_split_and_add_up() {
    let whole = offer(Some(entries()));
    let bytes = whole.to_bytes().len() as u64;
    let shares = whole.shares(bytes + 2);
    assert_eq!(shares.total(), bytes + 2);
    // An array of the variant and a number, an array of the variant and a text.
    assert_eq!(shares.small, 4 + 7);
    assert!(shares.history > 20 && shares.control > 20, "{shares:?}");
    let question = offer(None);
    assert_eq!(question.shares(9), Shares { control: 9, ..Shares::default() });
    let wanted =
        Message::Migration(message::Migration::Want { instance: instance(), values: Vec::new() });
    assert_eq!(wanted.shares(9), Shares { large: 9, ..Shares::default() });
}

#[test]
fn numbers_of_messages_that_are_gone_are_not_used_again() {
    for number in [15, 17, 18, 19] {
        // A message of that number with any content.
        for content in ["80", "8101", "820102"] {
            let text = format!("0082{number:02x}{content}");
            let bytes: Vec<u8> = (0..text.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
                .collect();
            assert!(Message::from_bytes(&bytes).is_err(), "{number} {content}");
        }
    }
}
