//! Weights and hosts change while cases run: what is locked, what is reported, what becomes of it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a wrong assumption is a failed test"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use legwork_model::event::{Event, Method, Record};
use legwork_model::id::{InstanceId, ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_site::*;

const ORGANISATION: &str = "organisation: o\nagents: { ann: { roles: [clerk] } }\n";
const PLACED: &str = "process: visit\nsteps:\n  - step: go\n    who: Role(clerk)\n    at: north\n";
/// The highest spread: the second of two servers has it, and the first loses it first.
const HIGH: u32 = u32::MAX;

fn topology(first: u32, second: u32) -> String {
    format!(
        r#"topology: group
domains:
  north:
    servers:
      north-1: {{ address: "north:1", api: "http://north:1", weight: {first} }}
      north-2: {{ address: "north:2", api: "http://north:2", weight: {second} }}
  south: {{ servers: {{ south-1: {{ address: "south:1", api: "http://south" }} }} }}
"#
    )
}

/// North-2 has no process of its own any more.
fn with_guest() -> String {
    let text = topology(1, 1);
    let (before, rest) = text.split_once("{ address: \"north:2\"").unwrap();
    let (_, after) = rest.split_once('}').unwrap();
    format!("{before}{{ host: north-1 }}{after}")
}

struct Server {
    site: Site,
    config: Config,
    streams: BTreeMap<u128, Vec<Vec<u8>>>,
}

/// Servers that hear each other at once; what is said to those who are away is lost.
struct Group {
    servers: Vec<Server>,
    away: BTreeSet<usize>,
    now: i64,
    last: u64,
    answers: BTreeMap<RequestId, Result<Answer, Refusal>>,
}

impl Group {
    /// North-1, which has the catalog, north-2 and south-1.
    fn new(first: u32, second: u32) -> Self {
        let (servers, away) = (Vec::new(), BTreeSet::new());
        let mut group = Self { servers, away, now: 1_000_000, last: 0, answers: BTreeMap::new() };
        for name in ["north-1", "north-2", "south-1"] {
            let member = Member { name: name.into(), topology: topology(first, second).into() };
            let config = Config { member: Some(member), ..Config::default() };
            let (site, streams) = (Site::new(config.clone()), BTreeMap::new());
            group.servers.push(Server { site, config, streams });
        }
        group.pass(0);
        let source = ORGANISATION.to_owned();
        group.ask(0, Request::PublishOrganisation { source }).unwrap();
        group.ask(0, Request::Deploy { source: PLACED.to_owned() }).unwrap();
        group.pass(2_000);
        group
    }

    /// A server with what another one has stored.
    fn open(&mut self, place: usize) {
        let server = &mut self.servers[place];
        server.config.life += 1 << 40;
        server.site = Site::new(server.config.clone());
        for (id, records) in server.streams.clone() {
            let stream = Stream { id, snapshot: None, records };
            server.site.handle(Input::Recovered(stream), Timestamp(self.now));
            if id == StreamId::SITE.0 {
                server.site.handle(Input::SiteRecovered, Timestamp(self.now));
            }
        }
    }

    fn feed(&mut self, place: usize, input: Input) {
        let mut inputs = VecDeque::from([(place, input)]);
        while let Some((place, input)) = inputs.pop_front() {
            if self.away.contains(&place) {
                continue;
            }
            let server = &mut self.servers[place];
            for output in server.site.handle(input, Timestamp(self.now)) {
                let read = |stream: u128| server.streams.get(&stream).cloned().unwrap_or_default();
                let input = match output {
                    Output::Append(append) => {
                        let records = server.streams.entry(append.stream).or_default();
                        assert_eq!(records.len() as u64, append.expected);
                        records.push(append.record);
                        continue;
                    }
                    Output::Answer { id, answer } => {
                        assert!(self.answers.insert(id, answer).is_none(), "answered once");
                        continue;
                    }
                    Output::Send { to, message } => {
                        let message = Message::from_bytes(&message.to_bytes()).unwrap();
                        let from = ServerId(place as u16);
                        inputs.push_back((usize::from(to.0), Input::Message { from, message }));
                        continue;
                    }
                    Output::Load { stream, .. } => {
                        let (id, records) = (stream.0, read(stream.0));
                        Input::Loaded(Stream { id, snapshot: None, records })
                    }
                    Output::ReadCatalog { to, from, limit } => {
                        let records = read(0).into_iter().skip(from as usize).take(limit).collect();
                        Input::CatalogRead { to, from, records }
                    }
                    Output::ReadEntries { instance, to, number, from } => {
                        let records = read(instance.0).split_off(from as usize);
                        Input::EntriesRead { instance, to, number, from, records }
                    }
                    Output::Snapshot { .. } => continue,
                    other => panic!("{other:?}"),
                };
                inputs.push_back((place, input));
            }
        }
    }

    fn send(&mut self, place: usize, request: Request) -> RequestId {
        self.last += 1;
        let (id, credential) = (RequestId(self.last), Credential::None);
        self.feed(place, Input::Request { id, credential, request });
        id
    }

    fn ask(&mut self, place: usize, request: Request) -> Result<Answer, Refusal> {
        let id = self.send(place, request);
        self.answers.remove(&id).unwrap()
    }

    fn pass(&mut self, millis: i64) {
        self.now += millis;
        for place in 0..self.servers.len() {
            self.feed(place, Input::Settle);
        }
    }

    fn publish(&mut self, source: &str, method: Method) -> Result<Answer, Refusal> {
        self.ask(0, Request::PublishTopology(asked(source, method)))
    }

    fn status(&mut self) -> Reconfiguration {
        match self.ask(0, Request::Reconfiguration).unwrap() {
            Answer::Reconfiguration(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    fn epochs(&self) -> Vec<u32> {
        let seats = self.servers.iter().map(|server| server.site.seat().unwrap());
        seats.map(|seat| seat.topology.epoch).collect()
    }

    /// Where an instance is, by the servers that have a stream of it.
    fn holders(&self, id: InstanceId) -> Vec<usize> {
        let has = |place: &usize| self.servers[*place].streams.contains_key(&id.0);
        (0..self.servers.len()).filter(has).collect()
    }

    /// Starts an instance whose spread is this one.
    fn start(&mut self, place: usize, spread: u32) -> (InstanceId, RequestId) {
        let id = self.draw(place, spread);
        (id, self.send(place, start(id, None)))
    }

    fn draw(&mut self, place: usize, spread: u32) -> InstanceId {
        self.last += 1;
        InstanceId::new(self.now as u64, self.last as u32, spread, ServerId(place as u16))
    }
}

fn asked(source: &str, method: Method) -> PublishTopology {
    PublishTopology { source: source.to_owned(), method: Some(method), ..Default::default() }
}

fn start(instance: InstanceId, key: Option<Box<Key>>) -> Request {
    Request::Start(Start {
        instance,
        process: "visit".into(),
        version: None,
        data: Data::new(),
        agent: None,
        key,
        wait_until: None,
    })
}

fn code(answer: Option<Result<Answer, Refusal>>) -> (&'static str, Option<ServerId>) {
    let refusal = answer.unwrap().unwrap_err();
    (refusal.code, refusal.at)
}

#[test]
fn by_time_stamp_new_weights_count_for_what_is_created_from_then_on() {
    let mut group = Group::new(1, 0);
    let (old, _) = group.start(2, HIGH);
    assert_eq!(group.holders(old), [0, 2]);
    group.pass(1);
    group.publish(&topology(1, 1), Method::Since).unwrap();
    assert_eq!(group.epochs(), [2, 2, 2], "all in one go: everybody hears at once");
    let draws = [(group.draw(2, HIGH), 0), (old, 0)];
    group.pass(1);
    let new = group.start(2, HIGH).0;
    assert_eq!(group.holders(new), [1, 2]);
    let topology = group.servers[2].site.seat().unwrap().topology.clone();
    for (id, server) in draws {
        assert_eq!(topology.domains[0].chain.server(id), ServerId(server), "{id}");
    }
}

#[test]
fn by_exceptions_they_count_for_all_but_what_is_there() {
    let mut group = Group::new(1, 0);
    let (here, _) = group.start(0, HIGH);
    let elsewhere = group.draw(2, HIGH);
    group.publish(&topology(1, 1), Method::Except).unwrap();
    assert_eq!(group.epochs(), [2, 2, 2]);
    let chain = group.servers[2].site.seat().unwrap().topology.domains[0].chain.clone();
    assert_eq!(chain.server(here), ServerId(0), "it is there");
    assert_eq!(chain.server(elsewhere), ServerId(1), "created before, and not there yet");
    let status = group.status();
    assert_eq!(status.last, Some(LastChange { number: 1, epoch: Some(2), why: None }));
}

#[test]
fn what_a_locked_server_may_not_start_waits_and_may_belong_elsewhere_then() {
    let mut group = Group::new(1, 0);
    group.away.insert(1);
    group.publish(&topology(1, 1), Method::Except).unwrap();
    let (stays, first) = group.start(0, 0);
    let (goes, second) = group.start(0, HIGH);
    assert_eq!((group.answers.len(), group.servers[0].site.held()), (0, 2));
    let change = group.status().change.unwrap();
    assert_eq!((change.phase, change.missing), (Phase::Locking, vec!["north-2".into()]));
    assert_eq!((change.domains, change.reported), (vec!["north".into()], vec!["north-1".into()]));
    group.away.clear();
    group.pass(1_000);
    assert_eq!(group.epochs(), [2, 2, 2], "who does not seem to have heard is told again");
    group.pass(1);
    assert!(group.answers.remove(&first).unwrap().is_ok());
    assert_eq!(code(group.answers.remove(&second)), ("placed_elsewhere", Some(ServerId(1))));
    assert_eq!((group.holders(stays), group.holders(goes)), (vec![0], vec![]));
}

#[test]
fn who_does_not_report_is_named_and_the_change_undone() {
    let mut group = Group::new(1, 0);
    group.away.insert(1);
    group.publish(&topology(1, 1), Method::Since).unwrap();
    let (id, held) = group.start(0, HIGH);
    group.pass(29_000);
    assert!(group.status().change.is_some());
    group.pass(1_000);
    let last = group.status().last.unwrap();
    let why = "`north-2` did not report within 30 s";
    assert_eq!((last.epoch, last.why.as_deref()), (None, Some(why)));
    group.pass(1);
    assert!(group.answers.remove(&held).unwrap().is_ok(), "what waited goes on as before");
    assert_eq!(group.holders(id), [0]);
    assert!(group.publish(&topology(1, 1), Method::Since).is_ok(), "and it can be tried again");
}

#[test]
fn a_server_that_is_declared_down_is_not_waited_for_but_nobody_knows_what_it_has() {
    let mut group = Group::new(1, 1);
    group.away.insert(1);
    let mut asked = asked(&topology(1, 0), Method::Except);
    asked.without = vec!["north-2".into()];
    let refusal = group.ask(0, Request::PublishTopology(asked)).unwrap_err();
    assert_eq!(refusal.code, "exceptions_unknown");
    let mut asked = self::asked(&topology(1, 0), Method::Since);
    asked.without = vec!["north-2".into()];
    group.ask(0, Request::PublishTopology(asked)).unwrap();
    group.pass(2_000);
    assert_eq!(group.epochs(), [2, 1, 2]);
}

#[test]
fn a_change_goes_on_when_the_registrar_has_died() {
    let mut group = Group::new(1, 0);
    let (id, _) = group.start(0, HIGH);
    group.away.insert(1);
    group.publish(&topology(1, 1), Method::Except).unwrap();
    group.open(0);
    group.away.clear();
    group.pass(1_000);
    group.pass(1_000);
    assert_eq!(group.epochs(), [2, 2, 2]);
    let chain = &group.servers[1].site.seat().unwrap().topology.domains[0].chain;
    assert_eq!(chain.server(id), ServerId(0));
}

#[test]
fn what_was_sent_under_the_old_weights_goes_to_the_new_server() {
    let mut group = Group::new(1, 0);
    // South does not hear of the change, and sends what it starts to where it belonged.
    group.away.insert(2);
    group.publish(&topology(0, 1), Method::Except).unwrap();
    group.pass(2_000);
    assert_eq!(group.epochs(), [2, 2, 1]);
    group.away = BTreeSet::from([0]);
    let (id, _) = group.start(2, HIGH);
    group.away.clear();
    group.pass(2_000);
    group.pass(2_000);
    assert_eq!((group.epochs(), group.holders(id)), (vec![2, 2, 2], vec![1, 2]));
    let redirected = |bytes: &Vec<u8>| {
        let events = Record::<Event>::from_bytes(bytes).unwrap().events;
        events.iter().any(|event| matches!(event, Event::Redirected { .. }))
    };
    assert!(group.servers[2].streams[&id.0].iter().any(redirected));
}

#[test]
fn a_server_that_moves_waits_and_goes_on_at_its_new_host_alone() {
    let mut group = Group::new(1, 1);
    let (id, _) = group.start(1, HIGH);
    group.publish(&with_guest(), Method::Since).unwrap();
    assert_eq!(group.servers[1].site.mode(), Mode::Frozen { change: 1 });
    let (other, held) = group.start(1, HIGH);
    let before = group.servers[1].streams.clone();
    group.feed(1, Input::GivenAway { change: 1 });
    assert_eq!(group.servers[1].streams, before, "nothing is appended");
    // The new host has what the old one had.
    let (config, streams) = (group.servers[1].config.clone(), before);
    let old = std::mem::replace(
        &mut group.servers[1],
        Server { site: Site::new(config.clone()), config, streams },
    );
    group.open(1);
    group.feed(1, moved(1));
    group.pass(2_000);
    assert_eq!(group.epochs(), [2, 2, 2]);
    assert_eq!(group.servers[1].site.mode(), Mode::Serving);
    let show = Request::Show { instance: id, wait_until: None };
    assert!(group.ask(1, show).is_ok());
    // The old one hears of it, and sends those who have waited there to the new one.
    group.servers.push(old);
    let records = group.servers[0].streams[&0].clone();
    let behind = group.servers[3].streams[&0].len();
    assert!(behind < records.len());
    group.feed(3, Input::Message { from: ServerId(0), message: catalog(&records, 0) });
    assert_eq!(group.servers[3].site.mode(), Mode::Gone { change: 1 });
    assert_eq!(code(group.answers.remove(&held)), ("server_moved", Some(ServerId(1))));
    assert!(!group.servers[3].streams.contains_key(&other.0));
    // Also if it comes up again.
    group.open(3);
    group.feed(3, Input::GivenAway { change: 1 });
    assert_eq!(group.servers[3].site.mode(), Mode::Gone { change: 1 });
}

fn moved(server: u16) -> Input {
    Input::Moved { change: 1, server: ServerId(server), digest: [1; 32] }
}

/// All records in one message.
fn catalog(records: &[Vec<u8>], from: usize) -> Message {
    let records = records[from..].iter().map(|record| record.clone().into()).collect();
    Message::Catalog { from: 0, before: 0x9E37_79B9_7F4A_7C15, records }
}

#[test]
fn a_move_that_is_undone_goes_on_where_it_was_and_not_at_the_new_host() {
    let mut group = Group::new(1, 1);
    group.publish(&with_guest(), Method::Since).unwrap();
    let (id, held) = group.start(1, HIGH);
    let (config, streams) = (group.servers[1].config.clone(), group.servers[1].streams.clone());
    group.servers.push(Server { site: Site::new(config.clone()), config, streams });
    group.open(3);
    group.feed(1, Input::GivenAway { change: 1 });
    group.ask(0, Request::Undo { why: Some("no room".to_owned()) }).unwrap();
    group.pass(1);
    assert_eq!(group.servers[1].site.mode(), Mode::Serving);
    assert!(group.answers.remove(&held).unwrap().is_ok());
    assert_eq!(group.holders(id), [1]);
    assert_eq!(group.epochs()[..3], [1, 1, 1]);
    group.servers[3].site.handle(moved(1), Timestamp(group.now));
    let records = group.servers[0].streams[&0].clone();
    group.feed(3, Input::Message { from: ServerId(0), message: catalog(&records, 0) });
    assert_eq!(group.servers[3].site.mode(), Mode::Gone { change: 1 });
}

#[test]
fn a_registrar_that_moves_publishes_at_its_new_host() {
    let mut group = Group::new(1, 1);
    let address = topology(1, 1).replace("north:1\", api", "north:9\", api");
    group.publish(&address, Method::Since).unwrap();
    group.feed(0, Input::GivenAway { change: 1 });
    let refusal = group.ask(0, Request::Undo { why: None }).unwrap_err();
    assert_eq!(refusal.code, "store_given_away");
    group.pass(700_000);
    assert_eq!(group.epochs(), [1, 1, 1], "where it was it does nothing any more");
    group.open(0);
    group.feed(0, moved(0));
    group.pass(2_000);
    group.pass(30_000);
    assert_eq!(group.epochs(), [2, 2, 2]);
}

#[test]
fn who_comes_up_among_others_starts_nothing_before_it_knows_how_much_catalog_there_is() {
    let mut group = Group::new(1, 1);
    group.away = BTreeSet::from([0, 2]);
    group.open(1);
    let (id, held) = group.start(1, HIGH);
    group.pass(5_000);
    assert!(group.answers.is_empty());
    group.away.clear();
    group.pass(1_000);
    group.pass(1);
    assert!(group.answers.remove(&held).unwrap().is_ok());
    assert_eq!(group.holders(id), [1]);
    // One that is alone in its domain goes on at once.
    group.open(2);
    group.away = BTreeSet::from([0, 1]);
    let (_, started) = group.start(2, HIGH);
    assert!(group.answers.remove(&started).unwrap().is_ok());
}

#[test]
fn a_key_that_was_used_under_other_weights_starts_nothing_twice() {
    let mut group = Group::new(1, 0);
    let key = || Some(Box::new(Key { stream: StreamId::of_key(7), request: 1 }));
    let first = group.draw(0, HIGH);
    group.ask(0, start(first, key())).unwrap();
    group.publish(&topology(1, 1), Method::Except).unwrap();
    let again = group.draw(1, HIGH);
    let refusal = group.ask(1, start(again, key())).unwrap_err();
    assert_eq!((refusal.code, refusal.at), ("elsewhere", Some(ServerId(0))));
    let Ok(Answer::Started { instance, repeated }) = group.ask(0, start(again, key())) else {
        panic!("not found")
    };
    assert_eq!((instance.instance, repeated), (first, true));
    // One that was not used starts where it belongs now.
    let other = || Some(Box::new(Key { stream: StreamId::of_key(8), request: 1 }));
    let id = group.draw(1, HIGH);
    assert_eq!(group.ask(0, start(id, other())).unwrap_err().at, Some(ServerId(1)));
    group.ask(1, start(id, other())).unwrap();
    assert_eq!(group.holders(id), [1]);
}

#[test]
fn while_a_server_that_may_have_used_a_key_is_away_the_start_is_refused_and_not_repeated() {
    let mut group = Group::new(1, 0);
    group.publish(&topology(0, 1), Method::Except).unwrap();
    group.away.insert(0);
    let key = Some(Box::new(Key { stream: StreamId::of_key(7), request: 1 }));
    let id = group.draw(1, HIGH);
    let held = group.send(1, start(id, key));
    (0..11).for_each(|_| group.pass(1_000));
    assert_eq!(code(group.answers.remove(&held)).0, "idempotency_key_unclear");
    assert_eq!(group.holders(id), [0; 0]);
}

#[test]
fn an_exception_ends_with_its_instance() {
    let mut group = Group::new(1, 0);
    let ids: Vec<InstanceId> = (0..3).map(|_| group.start(0, HIGH).0).collect();
    group.publish(&topology(0, 1), Method::Except).unwrap();
    let exceptions = |group: &Group| {
        let seats = group.servers.iter().map(|server| server.site.seat().unwrap());
        let chains = seats.map(|seat| seat.topology.domains[0].chain.clone());
        chains.map(|chain| chain.versions().count()).collect::<Vec<_>>()
    };
    assert_eq!(exceptions(&group), [2, 2, 2]);
    for instance in ids {
        group.ask(0, Request::Abort { instance, reason: "done".to_owned() }).unwrap();
        group.pass(30_000);
    }
    assert_eq!(exceptions(&group), [1, 1, 1], "no instance comes to the older weights any more");
}

#[test]
fn a_dry_run_tells_what_would_be_and_changes_nothing() {
    let mut group = Group::new(1, 0);
    for spread in [0, HIGH, HIGH] {
        group.start(0, spread);
    }
    let mut asked = asked(&topology(1, 1), Method::Except);
    asked.dry_run = true;
    let Ok(Answer::DryRun(told)) = group.ask(0, Request::PublishTopology(asked)) else {
        panic!("no dry run")
    };
    assert_eq!(
        *told,
        DryRun {
            domains: vec!["north".into()],
            servers: vec![],
            open: 3,
            moved: 0,
            excepted: 2,
            bytes: 32,
        }
    );
    assert_eq!(group.epochs(), [1, 1, 1]);
}

#[test]
fn what_cannot_be_brought_to_an_end_is_refused() {
    let mut group = Group::new(1, 0);
    let undo = group.ask(0, Request::Undo { why: None }).unwrap_err();
    assert_eq!(undo.code, "no_change");
    let text = topology(1, 0);
    let more = text.replace(
        "  south:",
        "      north-3: { address: \"north:3\", api: \"http://north:3\" }\n  south:",
    );
    assert_eq!(group.publish(&more, Method::Since).unwrap_err().code, "server_not_joined");
    let both = topology(1, 1).replace("north:1\", api", "north:9\", api");
    assert_eq!(group.publish(&both, Method::Since).unwrap_err().code, "registrar_moves_alone");
    group.away.insert(1);
    group.publish(&topology(1, 1), Method::Since).unwrap();
    assert!(group.publish(&topology(1, 1), Method::Since).is_ok(), "the same is under way");
    let another = group.publish(&topology(2, 1), Method::Since).unwrap_err();
    assert_eq!(another.code, "change_under_way");
    assert_eq!(group.status().change.unwrap().estimate, Some(Duration::from_secs(1)));
}
