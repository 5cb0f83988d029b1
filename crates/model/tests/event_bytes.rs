//! The stored bytes of events. They must never change: existing stores have them.
//!
//! A case that fails here is a change of the format, not a test to be adapted: give the new field
//! or variant a new number instead.

use legwork_model::event::{
    Answered, Assigned, Channel, Completed, Created, Deadline, Entry, Event, ExecutorRegistered,
    ExecutorType, FetchedValue, Fired, Incident, KeyEvent, Leg, MailEvent, Method, Order, Orders,
    Owed, Parcel, Passage, Performer, Period, PlanEvent, Planned, PolicySet, Received, Record,
    RegularWork, Replanned, RequestDigest, Reserved, ScheduleEvent, SchedulePut, Secret, SiteEvent,
    StandsIn, TaskKey, Then, TokenIssued, Validity, Within,
};
use legwork_model::id::{Activity, DomainId, ElementId, InstanceId, Iteration, NodeId, ServerId};
use legwork_model::time::Timestamp;
use legwork_model::value::{FileRef, Value, hex};

/// 2026-03-01T09:30:05.123Z
const AT: Timestamp = Timestamp(1_772_357_405_123);

fn activity() -> Activity {
    Activity::once(NodeId(5))
}

fn in_loops() -> Activity {
    Activity { node: NodeId(300), iteration: Iteration(vec![2, 0]) }
}

fn worker() -> Performer {
    Performer::Worker("worker-1".into())
}

fn ann() -> Performer {
    Performer::Agent("ann".into())
}

fn completed() -> Completed {
    Completed {
        activity: activity(),
        by: worker(),
        started_at: Timestamp(AT.0 - 12),
        writes: Vec::new(),
        code: None,
        request: None,
        home: None,
        channel: None,
    }
}

/// One value of each type, on the elements 0 to 6.
fn values() -> Vec<(ElementId, Value)> {
    let file =
        FileRef { blob: [7; 32], size: 9, name: "a.txt".to_owned(), media_type: "t/p".to_owned() };
    let values = [
        Value::Bool(true),
        Value::Int(-1),
        Value::Decimal(rust_decimal::Decimal::new(1250, 2)),
        Value::String("ä".to_owned()),
        Value::DateTime(AT),
        Value::Json("{\"a\":1}".to_owned()),
        Value::File(Box::new(file)),
    ];
    (0..).map(ElementId).zip(values).collect()
}

/// Compares an event of an instance with its bytes; all are in a record of the same moment.
fn check(event: Event, bytes: &str) {
    let record = Record { at: AT, events: vec![event] };
    let stored = record.to_bytes();
    let head = "821b0000019ca8bbc9c381";
    assert_eq!(hex(&stored), format!("{head}{bytes}"), "{record:?}");
    assert_eq!(Record::from_bytes(&stored), Ok(record));
}

/// The same for an event of the site.
fn check_site(event: SiteEvent, bytes: &str) {
    let record = Record { at: Timestamp(0), events: vec![event] };
    let stored = record.to_bytes();
    assert_eq!(hex(&stored), format!("820081{bytes}"), "{record:?}");
    assert_eq!(Record::from_bytes(&stored), Ok(record));
}

#[test]
fn beginnings() {
    let created =
        Created { process: "loan".into(), version: 3, by: ann(), inputs: values(), deadline: None };
    check(
        Event::Created(Box::new(created.clone())),
        "820084646c6f616e03820163616e6e878200820081f582018201812082028202816531322e3530820382038162c3a482048204811b0000019ca8bbc9c38205820581677b2261223a317d820682068184582007070707070707070707070707070707070707070707070707070707070707070965612e74787463742f70",
    );
    let plain = Created { by: Performer::System, inputs: vec![], ..created };
    check(Event::Created(Box::new(plain)), "820083646c6f616e038100");
}

#[test]
fn work_of_people() {
    check(Event::Claimed { activity: activity(), by: "ann".into() }, "83010563616e6e");
    check(Event::Claimed { activity: in_loops(), by: "ann".into() }, "83018319012c020063616e6e");
    check(Event::Released { activity: activity(), by: "ann".into() }, "83020563616e6e");
    check(
        Event::Delegated { activity: activity(), by: "ann".into(), to: "bob".into() },
        "84030563616e6e63626f62",
    );
}

#[test]
fn completions() {
    check(Event::Completed(completed()), "82048305820268776f726b65722d310c");
    let decided = Completed { by: ann(), code: Some(1), ..completed() };
    check(Event::Completed(decided), "82048505820163616e6e0c8001");
    let written = Completed {
        activity: in_loops(),
        writes: vec![(ElementId(2), Value::Int(1000))],
        request: Some(RequestDigest(7)),
        ..completed()
    };
    check(
        Event::Completed(written),
        "8204868319012c0200820268776f726b65722d310c8182028201811903e8f607",
    );
    let odd = Completed { started_at: Timestamp(i64::MIN), by: Performer::System, ..completed() };
    check(Event::Completed(odd), "8204830581003b7ffffe635744363c");
}

#[test]
fn results_that_count() {
    let answered = Answered {
        activity: activity(),
        by: worker(),
        started_at: Timestamp(AT.0 - 12),
        writes: vec![(ElementId(2), Value::Int(1000))],
        lease: 7,
    };
    check(
        Event::Answered(Box::new(answered)),
        "82128505820268776f726b65722d310c8182028201811903e807",
    );
    let (to, why) = ("crm".into(), "ours".to_owned());
    check(
        Event::Assigned(Box::new(Assigned { activity: activity(), to, lease: 7, why })),
        "821384056363726d07646f757273",
    );
}

#[test]
fn decisions() {
    check(Event::Decided { activity: activity(), code: 0 }, "83050500");
    check(Event::Decided { activity: in_loops(), code: 1 }, "83058319012c020001");
}

#[test]
fn failures_and_incidents() {
    let failed = |retry_at| Event::Failed {
        activity: activity(),
        by: worker(),
        error: "no".to_owned(),
        retry_at,
    };
    check(failed(Some(Timestamp(AT.0 + 1000))), "850605820268776f726b65722d31626e6f3903e7");
    check(failed(None), "840605820268776f726b65722d31626e6f");
    let (by, error) = (Performer::Executor("crm".into()), "no".to_owned());
    let called = Event::Failed { activity: activity(), by, error, retry_at: None };
    check(called, "84060582036363726d626e6f");
    let raised = |incident| Event::IncidentRaised { activity: activity(), incident };
    check(raised(Incident::NobodyCanDoIt { rule: "r".to_owned() }), "83070582006172");
    check(raised(Incident::NoBranchMatches { values: "v".to_owned() }), "83070582016176");
    let branches = vec!["a".to_owned(), "b".to_owned()];
    check(raised(Incident::SeveralBranchesMatch { branches }), "83070582028261616162");
    let (condition, error) = ("c".to_owned(), "e".to_owned());
    check(raised(Incident::ConditionFailed { condition, error }), "830705830361636165");
    check(
        raised(Incident::RetriesExhausted { attempts: 4, error: "e".to_owned() }),
        "8307058304046165",
    );
    check(raised(Incident::TooManyIterations { limit: 1000 }), "83070582051903e8");
    check(Event::IncidentResolved { activity: activity(), by: ann() }, "830805820163616e6e");
}

#[test]
fn lifecycle() {
    check(Event::Suspended { by: ann(), reason: None }, "8209820163616e6e");
    let reason = Some("no".to_owned());
    check(Event::Suspended { by: ann(), reason: reason.clone() }, "8309820163616e6e626e6f");
    check(Event::Resumed { by: Performer::System, reason: None }, "820a8100");
    check(Event::Resumed { by: Performer::System, reason }, "830a8100626e6f");
    check(
        Event::Aborted { by: worker(), reason: "stop".to_owned() },
        "830b820268776f726b65722d316473746f70",
    );
}

/// The history of two steps, as another server sends it.
fn entries() -> Vec<Entry> {
    let created = Created {
        process: "loan".into(),
        version: 3,
        by: Performer::System,
        inputs: vec![],
        deadline: None,
    };
    let entry = |event, at, elsewhere| Entry { event, at, server: ServerId(1), elsewhere };
    let decided = Event::Decided { activity: in_loops(), code: 1 };
    vec![
        entry(Event::Created(Box::new(created)), Timestamp(AT.0 - 60_000), vec![]),
        entry(Event::Completed(completed()), Timestamp(AT.0 - 12), vec![ElementId(2)]),
        entry(decided, AT, vec![]),
    ]
}

#[test]
fn control_that_moves() {
    let passages = vec![Passage { source: activity(), target: in_loops() }];
    let order = Order { number: 2, what: Orders::Suspend, by: ann(), reason: None };
    let control = Parcel::Control { passages: passages.clone(), order: None };
    let sent = |number, parcel| Event::Sent { to: ServerId(2), number, parcel };
    check(sent(1, control.clone()), "840c020182008182058319012c0200");
    check(
        sent(2, Parcel::Control { passages, order: Some(order.clone()) }),
        "840c020283008182058319012c0200830200820163616e6e",
    );
    check(sent(3, Parcel::Order(order.clone())), "840c02038201830200820163616e6e");
    let reason = Some("no".to_owned());
    let abort = Order { number: 300, what: Orders::Abort, by: Performer::System, reason };
    check(sent(4, Parcel::Order(abort)), "840c020482018419012c028100626e6f");
    let resume = Order { what: Orders::Resume, ..order };
    check(sent(5, Parcel::Order(resume)), "840c02058201830201820163616e6e");
    check(
        sent(6, Parcel::Finished { told: vec![ServerId(0), ServerId(300)], at: None }),
        "840c02068202820019012c",
    );
    check(Event::Delivered { to: ServerId(300), number: 7 }, "830d19012c07");
    let received = |entries, parcel| {
        Event::Received(Box::new(Received { from: ServerId(1), number: 8, parcel, entries }))
    };
    check(
        received(entries(), control),
        "820e84010882008182058319012c02008383820083646c6f616e03810019ea60018482048305820268776f726b65722d310c0c0181028383058319012c0200010001",
    );
    check(received(vec![], Parcel::Finished { told: vec![], at: None }), "820e830108820280");
    let late = Parcel::Finished { told: vec![], at: Some(Timestamp(300)) };
    check(received(vec![], late), "820e83010883028019012c");
    let value = Value::String("yes".to_owned());
    let values = vec![FetchedValue { element: ElementId(1), writer: in_loops(), value }];
    check(Event::Fetched { values }, "820f8183018319012c020082038163796573");
    check(Event::Finished, "8110");
    let (from, to) = (ServerId(2), Some(ServerId(3)));
    check(Event::Redirected { from, to }, "83110203");
    check(Event::Redirected { from, to: None }, "821102");
    let elsewhere = Completed { home: Some(DomainId(3)), by: ann(), ..completed() };
    check(Event::Completed(elsewhere), "82048705820163616e6e0c80f6f603");
    let by_mail = Completed { channel: Some(Channel::MAIL), by: ann(), ..completed() };
    check(Event::Completed(by_mail), "82048805820163616e6e0c80f6f6f600");
}

#[test]
fn events_of_the_site() {
    let source = "process: p".to_owned();
    check_site(
        SiteEvent::DefinitionDeployed { process: "p".into(), version: 1, source, by: ann() },
        "85006170016a70726f636573733a2070820163616e6e",
    );
    check_site(
        SiteEvent::OrganisationPublished {
            version: 2,
            source: "o".to_owned(),
            by: Performer::System,
        },
        "840102616f8100",
    );
    let issued = TokenIssued {
        name: "ci".to_owned(),
        hash: [0xAB; 32],
        scopes: vec!["admin".to_owned()],
        by: ann(),
    };
    check_site(
        SiteEvent::TokenIssued(issued),
        "8202846263695820abababababababababababababababababababababababababababababababab816561646d696e820163616e6e",
    );
    check_site(
        SiteEvent::TokenRevoked { name: "ci".to_owned(), by: ann() },
        "8303626369820163616e6e",
    );
    check_site(
        SiteEvent::TopologyPublished {
            epoch: 3,
            source: "t".to_owned(),
            by: ann(),
            rules: Vec::new(),
        },
        "8404036174820163616e6e",
    );
}

#[test]
fn changes_of_the_topology() {
    let source = || "t".to_owned();
    let rules = vec![
        (DomainId(1), Validity::Since { ms: 1_772_357_405_123 }),
        (DomainId(2), Validity::Except { ids: 2 }),
    ];
    check_site(
        SiteEvent::TopologyPublished { epoch: 3, source: source(), by: ann(), rules },
        "8504036174820163616e6e82820182001b0000019ca8bbc9c38202820102",
    );
    let begun = |method, without| SiteEvent::ChangeBegun {
        number: 2,
        source: source(),
        method,
        by: ann(),
        without,
    };
    check_site(begun(Method::Since, Vec::new()), "850502617400820163616e6e");
    check_site(begun(Method::Except, vec![ServerId(4)]), "860502617401820163616e6e8104");
    let (domain, ids) = (DomainId(1), vec![InstanceId(1), InstanceId(2)]);
    check_site(
        SiteEvent::Excepted { domain, ids: ids.clone() },
        "83060158200000000000000000000000000000000100000000000000000000000000000002",
    );
    check_site(
        SiteEvent::ChangeUndone { number: 2, why: "no".to_owned(), by: ann() },
        "840702626e6f820163616e6e",
    );
    check_site(
        SiteEvent::Unexcepted { domain, ids },
        "83080158200000000000000000000000000000000100000000000000000000000000000002",
    );
}

#[test]
fn executors_come_and_go() {
    let registered = |rate: Option<&str>, weight, at_once, regularly: &[RegularWork], reserve| {
        let rate = rate.map(|rate| rate.parse().unwrap());
        SiteEvent::ExecutorRegistered(Box::new(ExecutorRegistered {
            name: "crm".into(),
            url: "u".into(),
            secret: Secret("s".to_owned()),
            types: vec![
                ExecutorType { job: "a".into(), limit: Some(4), rate: None },
                ExecutorType { job: "b".into(), limit: None, rate: None },
            ],
            limit: 16,
            domain: Some("north".to_owned()),
            verdicts: true,
            by: ann(),
            rate,
            weight,
            at_once,
            regularly: regularly.into(),
            reserve,
        }))
    };
    check_site(
        registered(None, None, None, &[], None),
        "8209886363726d61756173828261610481616210656e6f727468f5820163616e6e",
    );
    check_site(
        registered(Some("7/m"), Some(3), Some(2), &[], None),
        "82098b6363726d61756173828261610481616210656e6f727468f5820163616e6e8207010302",
    );
    check_site(
        registered(None, None, None, &[RegularWork { every_ms: 9, takes_ms: 2 }], None),
        "82098c6363726d61756173828261610481616210656e6f727468f5820163616e6ef6f6f681820902",
    );
    check_site(
        registered(None, None, None, &[], Some(10)),
        "82098d6363726d61756173828261610481616210656e6f727468f5820163616e6ef6f6f6800a",
    );
    check_site(
        SiteEvent::ExecutorRemoved { name: "crm".into(), by: ann() },
        "830a6363726d820163616e6e",
    );
    let (job, policy) = ("scan".into(), "oxthas-3".into());
    check_site(
        SiteEvent::PolicySet(Box::new(PolicySet { job, policy, recorded: true, by: ann() })),
        "820b84647363616e686f78746861732d33f5820163616e6e",
    );
}

#[test]
fn schedules() {
    let put = |period, agent, within| {
        SiteEvent::SchedulePut(Box::new(SchedulePut {
            name: "nightly".into(),
            process: "report".into(),
            period,
            data: "{}".to_owned(),
            by: ann(),
            agent,
            within,
        }))
    };
    let cron = Period::Cron { text: "0 2 * * *".into(), zone: "UTC".into() };
    check_site(
        put(cron, None, None),
        "820c85676e696768746c79667265706f7274830069302032202a202a202a63555443627b7d820163616e6e",
    );
    let within = Some(Within { ms: 7, priority: 5 });
    check_site(
        put(Period::Every { ms: 1_000 }, Some("ann".into()), within),
        "820c87676e696768746c79667265706f727482011903e8627b7d820163616e6e63616e6e820705",
    );
    let name = || "nightly".into();
    check_site(
        SiteEvent::ScheduleRemoved { name: name(), by: ann() },
        "830d676e696768746c79820163616e6e",
    );
    check_site(
        SiteEvent::SchedulePaused { name: name(), is_paused: true, by: ann() },
        "840e676e696768746c79f5820163616e6e",
    );
}

#[test]
fn events_of_periodic_starts() {
    let instance = InstanceId(0x0192_3456_789A_BCDE_F012_3456_789A_BCDE);
    let fired = |outcome| ScheduleEvent::Fired { name: "a".into(), moment: Timestamp(9), outcome };
    let refused = Fired::Refused { code: "b".to_owned(), message: "c".to_owned() };
    let events = vec![
        fired(Fired::Started { instance, promised: None }),
        fired(Fired::Started { instance, promised: Some(false) }),
        fired(refused),
        fired(Fired::Missed { reason: "d".to_owned() }),
    ];
    let record = Record { at: Timestamp(0), events };
    let stored = record.to_bytes();
    let expected = "820084840061610982005001923456789abcdef0123456789abcde840061610983005001923456789abcdef0123456789abcdef48400616109830161626163840061610982026164";
    assert_eq!(hex(&stored), expected);
    assert_eq!(Record::from_bytes(&stored), Ok(record));
}

#[test]
fn events_of_idempotency_keys() {
    let instance = InstanceId(0x0192_3456_789A_BCDE_F012_3456_789A_BCDE);
    let started = KeyEvent::Started { instance, request: u64::MAX };
    let record = Record { at: Timestamp(0), events: vec![started] };
    let stored = record.to_bytes();
    let expected = "82008183005001923456789abcdef0123456789abcde1bffffffffffffffff";
    assert_eq!(hex(&stored), expected);
    assert_eq!(Record::from_bytes(&stored), Ok(record));
}

#[test]
fn events_of_mail() {
    let instance = InstanceId(0x0192_3456_789A_BCDE_F012_3456_789A_BCDE);
    let told =
        |activity, at| MailEvent::Told { instance, activity, agent: "ann".into(), kind: 1, at };
    let events = vec![told(activity(), AT), told(in_loops(), Timestamp(AT.0 - 12))];
    let record = Record { at: AT, events };
    let stored = record.to_bytes();
    let expected = "821b0000019ca8bbc9c38286005001923456789abcdef0123456789abcde0563616e6e0100\
                    86005001923456789abcdef0123456789abcde8319012c020063616e6e010c";
    assert_eq!(hex(&stored), expected);
    assert_eq!(Record::from_bytes(&stored), Ok(record));
}

#[test]
fn letters_that_are_owed() {
    let owed = Owed {
        instance: InstanceId(0x0192_3456_789A_BCDE_F012_3456_789A_BCDE),
        agent: "ann".into(),
        process: "Loan".to_owned(),
        steps: vec!["Check".to_owned()],
        deadline: Timestamp(9),
        is_own: true,
    };
    let record = Record { at: AT, events: vec![MailEvent::Owed(Box::new(owed))] };
    let stored = record.to_bytes();
    let expected = "821b0000019ca8bbc9c381820186\
                    5001923456789abcdef0123456789abcde63616e6e644c6f616e8165436865636b09f5";
    assert_eq!(hex(&stored), expected);
    assert_eq!(Record::from_bytes(&stored), Ok(record));
}

#[test]
fn several_events_share_one_moment() {
    let record = Record {
        at: AT,
        events: vec![
            Event::Completed(completed()),
            Event::Decided { activity: Activity::once(NodeId(6)), code: 1 },
        ],
    };
    assert_eq!(
        hex(&record.to_bytes()),
        "821b0000019ca8bbc9c38282048305820268776f726b65722d310c83050601"
    );
}

#[test]
fn the_commonest_record_is_small() {
    let record = Record { at: AT, events: vec![Event::Completed(completed())] };
    // Of these, 8 are the name of the worker and 9 the moment.
    assert_eq!(record.to_bytes().len(), 27);
}

#[test]
fn deadlines() {
    let leg = Leg {
        node: NodeId(5),
        round: 0,
        release: Timestamp(1),
        due: Timestamp(9),
        takes_ms: 4,
        planned: Some(Planned {
            by: ann(),
            start: Timestamp(2),
            end: Timestamp(6),
            planner: ServerId(3),
        }),
    };
    let legs = vec![leg.clone()];
    let deadline = Deadline { legs, ..Deadline::new(Timestamp(10), Deadline::PRIORITY_DEFAULT) };
    let process = "loan".into();
    let created = Created {
        process,
        version: 3,
        by: Performer::System,
        inputs: vec![],
        deadline: Some(Box::new(deadline)),
    };
    check(
        Event::Created(Box::new(created)),
        "820085646c6f616e03810080830a8186050001090484820163616e6e020603f4",
    );
    let lost = Leg { planned: None, ..leg };
    let replanned = Replanned { legs: vec![lost], reason: "ill".to_owned() };
    check(Event::Replanned(Box::new(replanned)), "8214828185050001090463696c6c");
    let passed = |then| Event::DeadlinePassed { at: Timestamp(10), then };
    check(passed(Then::Tell), "83150a8100");
    check(passed(Then::Abort), "83150a8101");
    check(passed(Then::Extend { to: Timestamp(19) }), "83150a820213");
}

#[test]
fn plans() {
    let task = TaskKey { instance: InstanceId(7), node: NodeId(5), round: 1, part: 0 };
    let reserved = Reserved {
        task,
        by: ann(),
        lane: 0,
        release: Timestamp(1),
        due: Timestamp(9),
        takes_ms: 4,
        priority: 5,
        may_abort: true,
        asker: ServerId(3),
        who: vec![ann()],
        deputies: vec![],
        only: vec![],
        start: Timestamp(5),
        attempt: 7,
        step: "".into(),
    };
    let stands_in = StandsIn { who: ann(), from: Timestamp(2), to: Timestamp(8) };
    let for_a_while = Reserved { only: vec![stands_in], ..reserved.clone() };
    check_plan(
        PlanEvent::Reserved(Box::new(for_a_while)),
        "82008e845000000000000000000000000000000007050100820163616e6e0001090405f50381820163616e6e808183820163616e6e02080507",
    );
    check_plan(
        PlanEvent::Reserved(Box::new(Reserved { step: "pay".into(), ..reserved.clone() })),
        "82008f845000000000000000000000000000000007050100820163616e6e0001090405f50381820163616e6e8080050763706179",
    );
    check_plan(
        PlanEvent::Reserved(Box::new(reserved)),
        "82008e845000000000000000000000000000000007050100820163616e6e0001090405f50381820163616e6e80800507",
    );
    check_plan(PlanEvent::Begun(task), "8201845000000000000000000000000000000007050100");
    check_plan(PlanEvent::Ended(task), "8202845000000000000000000000000000000007050100");
    let took = PlanEvent::Took { process: "loan".into(), step: "pay".into(), ms: 7 };
    check_plan(took, "8403646c6f616e6370617907");
    let (asker, is_lost, attempt) = (ServerId(3), true, 7);
    let back = |goes_on| PlanEvent::TakenBack { task, asker, is_lost, attempt, goes_on };
    check_plan(back(false), "850484500000000000000000000000000000000705010003f507");
    check_plan(back(true), "860484500000000000000000000000000000000705010003f507f5");
    check_plan(PlanEvent::Told(task), "8205845000000000000000000000000000000007050100");
    check_plan(PlanEvent::Left(task), "8206845000000000000000000000000000000007050100");
}

/// The same for an event of a plan.
fn check_plan(event: PlanEvent, bytes: &str) {
    let record = Record { at: Timestamp(0), events: vec![event] };
    let stored = record.to_bytes();
    assert_eq!(hex(&stored), format!("820081{bytes}"), "{record:?}");
    assert_eq!(Record::from_bytes(&stored), Ok(record));
}
