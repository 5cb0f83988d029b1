//! Other servers that are silent, slow, mistaken or many: nobody waits for them for ever, and
//! nothing they say brings this one down.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::{
    Completed, Created, Entry, Event, FetchedValue, Order, Orders, Parcel, Passage, Performer,
};
use legwork_model::id::{Activity, ElementId, InstanceId, Iteration, NodeId, ServerId};
use legwork_model::time::Timestamp;
use legwork_model::value::Value;
use legwork_site::*;

const TOPOLOGY: &str = r#"
topology: three
domains:
  s0: { servers: { s0: { address: "s0:1", api: "http://s0" } } }
  s1: { servers: { s1: { address: "s1:1", api: "http://s1" } } }
  s2: { servers: { s2: { address: "s2:1", api: "http://s2" } } }
"#;

/// Nodes: start 0, a 1, split 2, b 3, c 4, join 5, d 6, end 7.
const CASE: &str = "
process: case
data: { text: string }
steps:
  - { step: a, job: a, at: s1, writes: [text] }
  - parallel: p
    branches:
      - steps: [{ step: b, job: b, at: s1 }]
      - steps: [{ step: c, job: c, at: s2 }]
  - { step: d, job: d, at: s0, reads: [text] }
";

const AWAY: &str = "
process: away
steps:
  - { step: a, job: a, at: s1 }
";

/// Server 0; the others are played by the test.
struct Alone {
    site: Site,
    now: Timestamp,
    streams: BTreeMap<u128, Vec<Vec<u8>>>,
    /// Whether streams that are asked for are kept waiting.
    holds_loads: bool,
    said: Vec<(ServerId, Message)>,
    notices: Vec<String>,
    /// How often a history was read to be sent.
    reads: usize,
    last: u64,
}

impl Alone {
    fn new(definition: &str) -> Self {
        let member = Member { name: "s0".into(), topology: TOPOLOGY.into() };
        let site =
            Site::new(Config { member: Some(member), resident_max: 200, ..Config::default() });
        let mut alone = Self {
            site,
            now: Timestamp(1_000_000),
            streams: BTreeMap::new(),
            holds_loads: false,
            said: Vec::new(),
            notices: Vec::new(),
            reads: 0,
            last: 0,
        };
        alone.pass(Duration::ZERO);
        alone.ask(Request::Deploy { source: definition.to_owned() });
        alone.said.clear();
        alone
    }

    fn ask(&mut self, request: Request) {
        self.last += 1;
        let id = RequestId(self.last);
        self.feed(Input::Request { id, credential: Credential::None, request });
    }

    fn hears(&mut self, from: u16, message: Message) {
        self.feed(Input::Message { from: ServerId(from), message });
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.feed(Input::Settle);
    }

    fn feed(&mut self, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            for output in self.site.handle(input, self.now) {
                if let Output::Append(Append { stream, record, .. }) = output {
                    self.streams.entry(stream).or_default().push(record);
                } else if let Output::Send { to, message } = output {
                    self.said.push((to, message));
                } else if let Output::Notice { text } = output {
                    self.notices.push(text);
                } else if let Output::Broken { reason, .. } = output {
                    panic!("{reason}");
                } else if let Output::ReadEntries { .. } = output {
                    self.reads += 1;
                } else if let Output::Load { stream, .. } = output
                    && !self.holds_loads
                {
                    inputs.push(self.loaded(InstanceId(stream.0)));
                } else if let Output::Answer { answer, .. } = output {
                    answer.unwrap_or_else(|refusal| panic!("{refusal}"));
                }
            }
        }
    }

    fn loaded(&self, id: InstanceId) -> Input {
        let records = self.streams.get(&id.0).cloned().unwrap_or_default();
        Input::Loaded(Stream { id: id.0, snapshot: None, records })
    }

    fn start(&mut self, instances: u128) {
        for number in 0..instances {
            let start = Start {
                instance: InstanceId((100 + number) << 80),
                process: "away".into(),
                version: None,
                data: Data::new(),
                agent: None,
                key: None,
                wait_until: None,
                deadline: None,
            };
            self.ask(Request::Start(start));
        }
    }

    /// To whom something of a kind was said, since this was asked last.
    fn told(&mut self, is_kind: fn(&Message) -> bool) -> Vec<u16> {
        let said = std::mem::take(&mut self.said);
        said.into_iter().filter(|(_, message)| is_kind(message)).map(|(to, _)| to.0).collect()
    }
}

fn known(message: &Message) -> bool {
    matches!(message, Message::Migration(message::Migration::Known { .. }))
}

fn want(message: &Message) -> bool {
    matches!(message, Message::Migration(message::Migration::Want { .. }))
}

fn once(node: u32) -> Activity {
    Activity::once(NodeId(node))
}

/// Control comes from a source to a target of `case`.
fn offer(source: Activity, target: Activity, entries: Option<Vec<Entry>>) -> Box<Offer> {
    let passages = vec![Passage { source, target }];
    Box::new(Offer {
        id: ParcelId { instance: Instance(InstanceId(7 << 80 | 1)), number: 1 },
        process: "case".into(),
        version: 1,
        parcel: Parcel::Control { passages, order: None },
        entries,
        is_part: false,
        epoch: None,
    })
}

fn entry(event: Event, server: u16, elsewhere: Vec<ElementId>) -> Entry {
    Entry { event, at: Timestamp(5), server: ServerId(server), elsewhere }
}

fn completed(activity: Activity) -> Event {
    Event::Completed(Completed {
        activity,
        by: Performer::System,
        started_at: Timestamp(5),
        writes: Vec::new(),
        code: None,
        request: None,
        home: None,
        channel: None,
    })
}

/// Everything up to the end of both branches; what `a` has written stayed at its server.
fn entries() -> Vec<Entry> {
    let (process, by) = (Arc::from("case"), Performer::System);
    let created = Created { process, version: 1, by, inputs: Vec::new(), deadline: None };
    vec![
        entry(Event::Created(Box::new(created)), 1, Vec::new()),
        entry(completed(once(1)), 1, vec![ElementId(0)]),
        entry(completed(once(3)), 1, Vec::new()),
        entry(completed(once(4)), 2, Vec::new()),
    ]
}

#[test]
fn who_was_asked_and_is_silent_is_followed_by_who_waits() {
    let mut alone = Alone::new(CASE);
    alone.hears(1, Message::Migration(message::Migration::Offer(offer(once(3), once(5), None))));
    alone.hears(2, Message::Migration(message::Migration::Offer(offer(once(4), once(5), None))));
    assert_eq!(alone.told(known), [1], "one at a time");
    alone.pass(Duration::from_secs(9));
    assert!(alone.told(known).is_empty());
    let due = alone.site.next_timeout().unwrap();
    assert!(due <= alone.now + Duration::from_secs(1), "nobody has to remind this server");
    alone.pass(Duration::from_secs(1));
    assert_eq!(alone.told(known), [2]);
    alone.pass(Duration::from_secs(10));
    assert!(alone.told(known).is_empty(), "nobody else waits");
    assert_eq!(alone.site.next_timeout(), None, "and nothing is kept of it");
}

#[test]
fn what_does_not_fit_the_definition_is_not_listened_to() {
    let unknown = || once(99);
    let in_loop = || Activity { node: NodeId(3), iteration: Iteration(vec![4]) };
    let mut of_another = offer(once(3), once(5), None);
    of_another.process = "away".into();
    let wrong = || {
        vec![
            offer(unknown(), once(5), None),
            offer(once(3), in_loop(), None),
            offer(once(3), once(5), Some(vec![entry(completed(unknown()), 1, Vec::new())])),
            offer(once(3), once(5), Some(vec![entry(completed(in_loop()), 1, Vec::new())])),
            offer(once(3), once(5), Some(vec![entry(completed(once(3)), 1, vec![ElementId(9)])])),
            offer(once(3), once(5), Some(vec![entry(Event::Finished, 1, Vec::new())])),
        ]
    };
    let mut alone = Alone::new(CASE);
    alone.ask(Request::Deploy { source: AWAY.to_owned() });
    for (number, offer) in wrong().into_iter().enumerate() {
        alone.hears(1, Message::Migration(message::Migration::Offer(offer)));
        assert_eq!(alone.notices.len(), number + 1, "{:?}", alone.notices);
    }
    assert!(alone.streams.keys().all(|stream| *stream == 0), "nothing was stored");
    alone.hears(
        1,
        Message::Migration(message::Migration::Offer(offer(once(4), once(5), Some(entries())))),
    );
    let stored = alone.streams.clone();
    let id = Instance(InstanceId(7 << 80 | 1));
    let parcel = ParcelId { instance: id, number: 1 };
    let value = Value::String("x".into());
    let fetched = FetchedValue { element: ElementId(9), writer: once(1), value };
    let others = [
        Message::Migration(message::Migration::Known { parcel, last: vec![unknown()] }),
        Message::Migration(message::Migration::Have { instance: id, values: vec![fetched] }),
        Message::Migration(message::Migration::Want {
            instance: id,
            values: vec![Wanted { element: ElementId(0), writer: in_loop() }],
        }),
    ];
    alone.notices.clear();
    let mut second = of_another;
    second.id.number = 2;
    for message in wrong()
        .into_iter()
        .chain([second])
        .map(|offer| Message::Migration(message::Migration::Offer(offer)))
        .chain(others)
    {
        alone.hears(1, message);
    }
    assert_eq!(alone.notices.len(), 10, "{:?}", alone.notices);
    assert_eq!(alone.streams, stored, "nothing was stored");
    insta::assert_snapshot!(alone.notices[0], @"a message of server 1 about inst_00000000070000000000000001 does not fit the definition of that instance and is ignored; check that all servers run the same version");
}

#[test]
fn a_value_that_no_source_gives_is_asked_for_with_longer_pauses_until_a_link_comes_up() {
    let mut alone = Alone::new(CASE);
    alone.hears(
        1,
        Message::Migration(message::Migration::Offer(offer(once(4), once(5), Some(entries())))),
    );
    assert_eq!(alone.told(want), [1]);
    for _ in 0..120 {
        alone.pass(Duration::from_secs(5));
    }
    let asked = alone.told(want).len();
    assert!((10..20).contains(&asked), "{asked} times in 10 minutes");
    alone.feed(Input::Link { to: ServerId(1), is_up: true });
    alone.pass(Duration::ZERO);
    assert_eq!(alone.told(want), [1]);
    // Of a version that nobody has spoken of nothing is kept.
    let instance = Instance(InstanceId(7 << 80 | 1));
    let value = |writer| FetchedValue {
        element: ElementId(0),
        writer: once(writer),
        value: Value::String("long".into()),
    };
    let stored = alone.streams.clone();
    alone.hears(
        1,
        Message::Migration(message::Migration::Have { instance, values: vec![value(3)] }),
    );
    assert_eq!(alone.streams, stored);
    alone.hears(
        1,
        Message::Migration(message::Migration::Have { instance, values: vec![value(1)] }),
    );
    assert_eq!(alone.streams[&instance.0.0].len(), 2);
}

#[test]
fn messages_about_an_instance_that_is_being_loaded_are_kept_up_to_a_limit() {
    let mut alone = Alone::new(CASE);
    alone.holds_loads = true;
    for _ in 0..1_000 {
        alone
            .hears(1, Message::Migration(message::Migration::Offer(offer(once(3), once(5), None))));
    }
    let loaded = alone.loaded(InstanceId(7 << 80 | 1));
    alone.feed(loaded);
    assert_eq!(alone.told(known).len(), 32);
}

#[test]
fn what_has_waited_for_a_server_goes_to_it_in_portions() {
    let mut alone = Alone::new(AWAY);
    alone.start(1_000);
    assert_eq!(alone.site.parcels_waiting()[&ServerId(1)], 1_000);
    alone.feed(Input::Link { to: ServerId(1), is_up: true });
    let mut portions = Vec::new();
    while alone.site.next_timeout().is_some_and(|due| due <= alone.now) {
        let before = alone.reads;
        alone.pass(Duration::ZERO);
        portions.push(alone.reads - before);
    }
    assert_eq!(portions, [256, 256, 256, 232]);
}

#[test]
fn what_waits_for_a_server_that_is_away_neither_stays_in_memory_nor_is_tried() {
    let mut alone = Alone::new(AWAY);
    alone.feed(Input::Link { to: ServerId(1), is_up: false });
    alone.start(1_000);
    alone.pass(Duration::from_secs(600));
    let gauges = alone.site.gauges();
    assert_eq!((gauges.instances_open, gauges.instances_resident), (1_000, 200));
    assert_eq!(alone.reads, 0);
    alone.feed(Input::Link { to: ServerId(1), is_up: true });
    (0..10).for_each(|_| alone.pass(Duration::ZERO));
    assert_eq!(alone.reads, 1_000, "all are offered now");
    assert_eq!(alone.site.parcels_waiting()[&ServerId(1)], 1_000);
}

/// All that another server can say about an instance, from one that it has never been at to one
/// that waits for a value.
fn messages() -> Vec<Message> {
    let instance = Instance(InstanceId(7 << 80 | 1));
    let parcel = ParcelId { instance, number: 1 };
    let order = Order { number: 3, what: Orders::Suspend, by: Performer::System, reason: None };
    let mut ordered = offer(once(4), once(5), Some(entries()));
    ordered.parcel = Parcel::Control {
        passages: ordered.parcel.passages().to_vec(),
        order: Some(order.clone()),
    };
    let mut order_alone = offer(once(4), once(5), Some(Vec::new()));
    (order_alone.id.number, order_alone.parcel) = (2, Parcel::Order(order));
    let mut finished = offer(once(4), once(5), Some(Vec::new()));
    (finished.id.number, finished.parcel) =
        (2, Parcel::Finished { told: vec![ServerId(1)], at: None });
    let version = Wanted { element: ElementId(0), writer: once(1) };
    let Wanted { element, writer } = version.clone();
    let value = FetchedValue { element, writer, value: Value::String("x".into()) };
    vec![
        Message::Migration(message::Migration::Offer(offer(once(3), once(5), None))),
        Message::Migration(message::Migration::Offer(ordered)),
        Message::Migration(message::Migration::Offer(order_alone)),
        Message::Migration(message::Migration::Offer(finished)),
        Message::Migration(message::Migration::Known { parcel, last: vec![once(3)] }),
        Message::Migration(message::Migration::Ack { parcel }),
        Message::Migration(message::Migration::Want { instance, values: vec![version] }),
        Message::Migration(message::Migration::Have { instance, values: vec![value] }),
    ]
}

#[test]
fn whatever_comes_in_a_byte_the_server_goes_on() {
    let mut alone = Alone::new(CASE);
    for message in messages() {
        let bytes = message.to_bytes();
        for place in 0..bytes.len() {
            for change in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
                let mut wrong = bytes.clone();
                wrong[place] ^= change;
                let Ok(wrong) = Message::from_bytes(&wrong) else { continue };
                if alone.streams.len() > 1 {
                    alone = Alone::new(CASE);
                }
                if !matches!(message, Message::Migration(message::Migration::Offer(_)))
                    || change % 2 == 0
                {
                    alone.hears(
                        1,
                        Message::Migration(message::Migration::Offer(offer(
                            once(4),
                            once(5),
                            Some(entries()),
                        ))),
                    );
                }
                alone.hears(1, wrong);
                alone.pass(Duration::from_secs(1));
            }
        }
    }
}
