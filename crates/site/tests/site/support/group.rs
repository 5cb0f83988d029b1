//! Three servers of two domains that hear each other at once, for tests of changes of the topology.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use legwork_model::event::{ExecutorType, Method, Secret};
use legwork_model::id::{InstanceId, ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_site::*;

pub(crate) const ORGANISATION: &str =
    "organisation: o\nagents: { ann: { roles: [clerk], share: 100 } }\n";
pub(crate) const PLACED: &str =
    "process: visit\nsteps:\n  - step: go\n    who: Role(clerk)\n    at: north\n";
/// The highest spread: the second of two servers has it, and the first loses it first.
pub(crate) const HIGH: u32 = u32::MAX;

pub(crate) fn topology(first: u32, second: u32) -> String {
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
pub(crate) fn with_guest() -> String {
    let text = topology(1, 1);
    let (before, rest) = text.split_once("{ address: \"north:2\"").unwrap();
    let (_, after) = rest.split_once('}').unwrap();
    format!("{before}{{ host: north-1 }}{after}")
}

pub(crate) struct Server {
    pub(crate) site: Site,
    pub(crate) config: Config,
    pub(crate) streams: BTreeMap<u128, Vec<Vec<u8>>>,
}

/// Servers that hear each other at once; what is said to those who are away is lost.
pub(crate) struct Group {
    pub(crate) servers: Vec<Server>,
    pub(crate) away: BTreeSet<usize>,
    pub(crate) now: i64,
    pub(crate) last: u64,
    pub(crate) answers: BTreeMap<RequestId, Result<Answer, Refusal>>,
    /// What is lost on the way.
    pub(crate) is_lost: fn(&Message) -> bool,
    /// What was said to executors, and by which server.
    pub(crate) calls: Vec<(usize, Call)>,
    /// What schedules want started, and of which server.
    pub(crate) due: Vec<(usize, Due)>,
}

impl Group {
    /// North-1, which has the catalog, north-2 and south-1.
    pub(crate) fn new(first: u32, second: u32) -> Self {
        let (servers, away) = (Vec::new(), BTreeSet::new());
        let (answers, calls, due) = (BTreeMap::new(), Vec::new(), Vec::new());
        let (now, is_lost): (_, fn(&Message) -> bool) = (1_000_000, |_| false);
        let mut group = Self { servers, away, now, last: 0, answers, is_lost, calls, due };
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
    pub(crate) fn open(&mut self, place: usize) {
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

    pub(crate) fn feed(&mut self, place: usize, input: Input) {
        let mut inputs = VecDeque::from([(place, input)]);
        while let Some((place, input)) = inputs.pop_front() {
            if self.away.contains(&place) || place >= self.servers.len() {
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
                        if (self.is_lost)(&message) {
                            continue;
                        }
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
                    Output::ReadHistory { id, instance, from, limit } => {
                        let all = read(instance.0);
                        let first = all.first().cloned();
                        let records = all.into_iter().skip(from as usize).take(limit).collect();
                        Input::HistoryRead { id, instance, first, records }
                    }
                    Output::Snapshot { .. } => continue,
                    Output::Start(due) => {
                        self.due.push((place, *due));
                        continue;
                    }
                    Output::Call(call) => {
                        self.calls.push((place, *call));
                        continue;
                    }
                    other => panic!("{other:?}"),
                };
                inputs.push_back((place, input));
            }
        }
    }

    pub(crate) fn send(&mut self, place: usize, request: Request) -> RequestId {
        self.last += 1;
        let (id, credential) = (RequestId(self.last), Credential::None);
        self.feed(place, Input::Request { id, credential, request });
        id
    }

    pub(crate) fn ask(&mut self, place: usize, request: Request) -> Result<Answer, Refusal> {
        let id = self.send(place, request);
        self.answers.remove(&id).unwrap()
    }

    pub(crate) fn pass(&mut self, millis: i64) {
        self.now += millis;
        for place in 0..self.servers.len() {
            self.feed(place, Input::Settle);
        }
    }

    pub(crate) fn publish(&mut self, source: &str, method: Method) -> Result<Answer, Refusal> {
        self.ask(0, Request::PublishTopology(asked(source, method)))
    }

    pub(crate) fn status(&mut self) -> Reconfiguration {
        match self.ask(0, Request::Reconfiguration).unwrap() {
            Answer::Reconfiguration(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn epochs(&self) -> Vec<u32> {
        let seats = self.servers.iter().map(|server| server.site.seat().unwrap());
        seats.map(|seat| seat.topology.epoch).collect()
    }

    /// Where an instance is, by the servers that have a stream of it.
    pub(crate) fn holders(&self, id: InstanceId) -> Vec<usize> {
        let has = |place: &usize| self.servers[*place].streams.contains_key(&id.0);
        (0..self.servers.len()).filter(has).collect()
    }

    /// Starts an instance whose spread is this one.
    pub(crate) fn start(&mut self, place: usize, spread: u32) -> (InstanceId, RequestId) {
        let id = self.draw(place, spread);
        (id, self.send(place, start(id, None)))
    }

    pub(crate) fn draw(&mut self, place: usize, spread: u32) -> InstanceId {
        self.last += 1;
        InstanceId::new(self.now as u64, self.last as u32, spread, ServerId(place as u16))
    }
}

/// An executor of these types of jobs, with nothing else said of it.
pub(crate) fn executor(name: &str, jobs: &[&str]) -> RegisterExecutor {
    let kind = |job: &&str| ExecutorType { job: (*job).into(), limit: None, rate: None };
    RegisterExecutor {
        name: name.into(),
        url: format!("http://{name}.example").into(),
        secret: Secret("s".repeat(32)),
        types: jobs.iter().map(kind).collect(),
        limit: 1,
        at_once: None,
        regularly: Vec::new(),
        reserve: None,
        rate: None,
        weight: None,
        domain: None,
        verdicts: false,
        holds: None,
    }
}

pub(crate) fn asked(source: &str, method: Method) -> PublishTopology {
    PublishTopology { source: source.to_owned(), method: Some(method), ..Default::default() }
}

/// An idempotency key, of the same request each time.
pub(crate) fn key(number: u128) -> Option<Box<Key>> {
    Some(Box::new(Key { stream: StreamId::of_key(number), request: 1 }))
}

pub(crate) fn start(instance: InstanceId, key: Option<Box<Key>>) -> Request {
    Request::Start(Start {
        instance,
        process: "visit".into(),
        version: None,
        data: Data::new(),
        agent: None,
        key,
        wait_until: None,
        deadline: None,
    })
}

pub(crate) fn code(answer: Option<Result<Answer, Refusal>>) -> (&'static str, Option<ServerId>) {
    let refusal = answer.unwrap().unwrap_err();
    (refusal.code, refusal.at)
}
