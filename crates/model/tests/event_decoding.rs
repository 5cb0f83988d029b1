//! Reading stored records: written records come back, damaged or foreign ones are refused,
//! additions of a later version are skipped.

use legwork_model::event::{
    Completed, Created, Event, Incident, Performer, Record, RequestDigest, SiteEvent, TokenIssued,
};
use legwork_model::id::{Activity, AgentId, ElementId, Iteration, NodeId};
use legwork_model::time::Timestamp;
use legwork_model::value::{FileRef, Value};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn activity() -> impl Strategy<Value = Activity> {
    (any::<u32>(), vec(any::<u32>(), 0..4))
        .prop_map(|(node, counts)| Activity { node: NodeId(node), iteration: Iteration(counts) })
}

fn agent() -> impl Strategy<Value = AgentId> {
    ".{0,12}".prop_map(|name| AgentId::from(name.as_str()))
}

fn performer() -> impl Strategy<Value = Performer> {
    prop_oneof![
        Just(Performer::System),
        agent().prop_map(Performer::Agent),
        ".{0,12}".prop_map(|name| Performer::Worker(name.as_str().into())),
        ".{0,12}".prop_map(|name| Performer::Executor(name.as_str().into())),
    ]
}

fn moment() -> impl Strategy<Value = Timestamp> {
    any::<i64>().prop_map(Timestamp)
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        (any::<i64>(), 0_u32..=28)
            .prop_map(|(digits, scale)| Value::Decimal(rust_decimal::Decimal::new(digits, scale))),
        ".*".prop_map(Value::String),
        moment().prop_map(Value::DateTime),
        ".*".prop_map(Value::Json),
        (any::<[u8; 32]>(), any::<u64>(), ".*", ".*").prop_map(|(blob, size, name, media_type)| {
            Value::File(Box::new(FileRef { blob, size, name, media_type }))
        }),
    ]
}

fn values() -> impl Strategy<Value = Vec<(ElementId, Value)>> {
    vec((any::<u32>().prop_map(ElementId), value()), 0..4)
}

fn incident() -> impl Strategy<Value = Incident> {
    prop_oneof![
        ".*".prop_map(|rule| Incident::NobodyCanDoIt { rule }),
        ".*".prop_map(|values| Incident::NoBranchMatches { values }),
        vec(".*", 0..3).prop_map(|branches| Incident::SeveralBranchesMatch { branches }),
        (".*", ".*").prop_map(|(condition, error)| Incident::ConditionFailed { condition, error }),
        (any::<u32>(), ".*")
            .prop_map(|(attempts, error)| Incident::RetriesExhausted { attempts, error }),
        any::<u32>().prop_map(|limit| Incident::TooManyIterations { limit }),
    ]
}

fn created() -> impl Strategy<Value = Event> {
    (".{0,9}", any::<u32>(), performer(), values()).prop_map(|(process, version, by, inputs)| {
        let process = process.as_str().into();
        Event::Created(Box::new(Created { process, version, by, inputs, deadline: None }))
    })
}

fn completed() -> impl Strategy<Value = Event> {
    let request = option::of(any::<u64>().prop_map(RequestDigest));
    let decision = (option::of(any::<u32>()), request);
    (activity(), performer(), moment(), values(), decision).prop_map(
        |(activity, by, started_at, writes, (code, request))| {
            Event::Completed(Completed {
                activity,
                by,
                started_at,
                writes,
                code,
                request,
                home: None,
                channel: None,
            })
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        created(),
        completed(),
        (activity(), agent()).prop_map(|(activity, by)| Event::Claimed { activity, by }),
        (activity(), agent()).prop_map(|(activity, by)| Event::Released { activity, by }),
        (activity(), agent(), agent()).prop_map(|(activity, by, to)| Event::Delegated {
            activity,
            by,
            to
        }),
        (activity(), any::<u32>()).prop_map(|(activity, code)| Event::Decided { activity, code }),
        (activity(), performer(), ".*", option::of(moment())).prop_map(
            |(activity, by, error, retry_at)| Event::Failed { activity, by, error, retry_at }
        ),
        (activity(), incident())
            .prop_map(|(activity, incident)| Event::IncidentRaised { activity, incident }),
        (activity(), performer())
            .prop_map(|(activity, by)| Event::IncidentResolved { activity, by }),
        (performer(), option::of(".*")).prop_map(|(by, reason)| Event::Suspended { by, reason }),
        (performer(), option::of(".*")).prop_map(|(by, reason)| Event::Resumed { by, reason }),
        (performer(), ".*").prop_map(|(by, reason)| Event::Aborted { by, reason }),
    ]
}

fn site_event() -> impl Strategy<Value = SiteEvent> {
    prop_oneof![
        (".{0,9}", any::<u32>(), ".*", performer()).prop_map(|(process, version, source, by)| {
            let process = process.as_str().into();
            SiteEvent::DefinitionDeployed { process, version, source, by }
        }),
        (any::<u32>(), ".*", performer()).prop_map(|(version, source, by)| {
            SiteEvent::OrganisationPublished { version, source, by }
        }),
        (".*", any::<[u8; 32]>(), vec(".*", 0..3), performer()).prop_map(
            |(name, hash, scopes, by)| {
                SiteEvent::TokenIssued(TokenIssued { name, hash, scopes, by })
            }
        ),
        (".*", performer()).prop_map(|(name, by)| SiteEvent::TokenRevoked { name, by }),
    ]
}

fn record() -> impl Strategy<Value = Record<Event>> {
    (moment(), vec(event(), 0..4)).prop_map(|(at, events)| Record { at, events })
}

proptest! {
    #[test]
    fn what_was_written_comes_back(
        record in record(),
        at in moment(),
        events in vec(site_event(), 0..4),
    ) {
        prop_assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(record));
        let record = Record { at, events };
        prop_assert_eq!(Record::from_bytes(&record.to_bytes()), Ok(record));
    }

    #[test]
    fn torn_records_are_refused(record in record()) {
        let bytes = record.to_bytes();
        for end in 0..bytes.len() {
            prop_assert!(Record::<Event>::from_bytes(&bytes[..end]).is_err(), "{end}");
        }
        let mut longer = bytes;
        longer.push(0);
        prop_assert!(Record::<Event>::from_bytes(&longer).is_err());
    }

    #[test]
    fn damaged_records_and_any_bytes_are_read_or_refused(
        record in record(),
        flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        noise in vec(any::<u8>(), 0..200),
    ) {
        let mut bytes = record.to_bytes();
        for (place, with) in flips {
            let place = place.index(bytes.len());
            bytes[place] = with;
        }
        for bytes in [bytes, noise.clone(), [&[0x82, 0x00][..], &noise].concat()] {
            let _ = Record::<Event>::from_bytes(&bytes);
            let _ = Record::<SiteEvent>::from_bytes(&bytes);
        }
    }
}

fn read(bytes: &[u8]) -> Result<Record<Event>, String> {
    Record::from_bytes(bytes).map_err(|error| error.reason)
}

/// `{0}` events in a record of moment 0.
fn in_record(event: &[u8]) -> Vec<u8> {
    [&[0x82, 0x00, 0x81], event].concat()
}

#[test]
fn lengths_that_are_not_there_are_refused_without_room_for_them() {
    const HUGE: [u8; 8] = [0xFF; 8];
    for (head, what) in [
        (&[0x9B][..], "a record of so many fields"),
        (&[0x82, 0x00, 0x9B], "so many events"),
        (&[0x82, 0x00, 0x81, 0x9B], "an event of so many fields"),
        (&[0x82, 0x00, 0x81, 0x83, 0x01, 0x9B], "a node in so many loops"),
        (&[0x82, 0x00, 0x81, 0x83, 0x01, 0x05, 0x7B], "so long a name"),
        (&[0x82, 0x00, 0x81, 0x82, 0x04, 0x84, 0x05, 0x81, 0x00, 0x00, 0x9B], "so many writes"),
        (&[0x82, 0x00, 0x81, 0x83, 0x07, 0x05, 0x82, 0x02, 0x9B], "so many branches"),
        (&[0x83, 0x00, 0x80, 0x9B], "a later field of so many parts"),
    ] {
        let bytes = [head, &HUGE].concat();
        assert!(read(&bytes).is_err(), "{what}");
        // And with trailing bytes to read.
        assert!(read(&[&bytes[..], &[0x00; 64]].concat()).is_err(), "{what}");
    }
}

#[test]
fn deep_nesting_is_passed_over_without_a_stack() {
    let mut bytes = vec![0x83, 0x00, 0x80];
    bytes.extend(vec![0x81; 1_000_000]);
    bytes.push(0x00);
    assert_eq!(read(&bytes), Ok(Record { at: Timestamp(0), events: Vec::new() }));
}

#[test]
fn fields_of_a_later_program_are_passed_over() {
    let decided = Event::Decided { activity: Activity::once(NodeId(5)), code: 1 };
    let record = Record { at: Timestamp(0), events: vec![decided] };
    assert_eq!(read(&in_record(&[0x83, 0x05, 0x05, 0x01])), Ok(record.clone()));
    // A further field of the variant, and of the record: {"a": [1]}.
    let further = [0xA1, 0x61, 0x61, 0x81, 0x01];
    let event = [&[0x84, 0x05, 0x05, 0x01][..], &further].concat();
    assert_eq!(read(&in_record(&event)), Ok(record.clone()));
    let whole = [&[0x83, 0x00, 0x81, 0x83, 0x05, 0x05, 0x01][..], &further].concat();
    assert_eq!(read(&whole), Ok(record));
    // A further field of a completion, after its optional fields.
    let completed = [
        0x82, 0x04, 0x89, 0x05, 0x81, 0x00, 0x00, 0x80, 0xF6, 0xF6, 0xF6, 0xF6, 0x83, 0x01, 0x02,
        0x03,
    ];
    let expected = Completed {
        activity: Activity::once(NodeId(5)),
        by: Performer::System,
        started_at: Timestamp(0),
        writes: Vec::new(),
        code: None,
        request: None,
        home: None,
        channel: None,
    };
    let expected = Record { at: Timestamp(0), events: vec![Event::Completed(expected)] };
    assert_eq!(read(&in_record(&completed)), Ok(expected.clone()));
    // And the same without any optional field.
    assert_eq!(read(&in_record(&[0x82, 0x04, 0x83, 0x05, 0x81, 0x00, 0x00])), Ok(expected));
}

#[test]
fn what_is_not_a_record_is_refused_with_a_reason() {
    for (bytes, reason) in [
        (&[][..], "end of input bytes"),
        (&[0x81, 0x00], "decode error: not a record"),
        (&[0x00], "unexpected type u8 at position 0: expected array"),
        (&[0x82, 0x00, 0x80, 0x00], "it is followed by foreign bytes"),
        // A variant of a later version.
        (&[0x82, 0x00, 0x81, 0x82, 0x18, 0x63, 0x00], "unknown enum variant 99"),
        (&[0x82, 0x00, 0x81, 0x80], "flat enum requires non-empty array"),
        (&[0x82, 0x00, 0x81, 0x82, 0x05, 0x05], "Event::Decided::code"),
        (&[0x82, 0x00, 0x81, 0x83, 0x05, 0x80, 0x01], "an activity without a node"),
    ] {
        let error = read(bytes).unwrap_err();
        assert!(error.contains(reason), "{bytes:x?}: {error}");
    }
}
