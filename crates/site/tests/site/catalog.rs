//! One catalog at several servers: who writes it, and how the others get it.

use std::collections::BTreeMap;
use std::time::Duration;

use legwork_model::id::{InstanceId, ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_site::*;

const TOPOLOGY: &str = r#"topology: group
domains:
  north: { servers: { north-1: { address: "north:1", api: "http://north" } }, people: [ann] }
  south: { servers: { south-1: { address: "south:1", api: "http://south" } } }
"#;
const WEST: &str =
    "  west: { servers: { west-1: { address: \"west:1\", api: \"http://west\" } } }\n";
const ORGANISATION: &str = "organisation: o\nagents: { ann: { roles: [clerk] } }\n";
const PLACED: &str = "process: visit\nsteps:\n  - step: go\n    who: Role(clerk)\n    at: south\n";

struct Server {
    site: Site,
    config: Config,
    streams: BTreeMap<u128, Vec<Vec<u8>>>,
    notices: Vec<String>,
}

/// Servers that hear each other at once; what is said to those who are not there is lost.
#[derive(Default)]
struct Group {
    servers: Vec<Server>,
    /// One that is not to be reached.
    away: Option<usize>,
    now: i64,
    last: u64,
}

impl Group {
    fn of(names: &[&str], topology: &str) -> Self {
        let mut group = Self { now: 1_000, ..Self::default() };
        for name in names {
            let member = Member { name: (*name).into(), topology: topology.into() };
            group.join(Config { member: Some(member), ..Config::default() });
        }
        group
    }

    fn join(&mut self, config: Config) {
        let site = Site::new(config.clone());
        let (streams, notices) = (BTreeMap::new(), Vec::new());
        self.servers.push(Server { site, config, streams, notices });
    }

    /// A server dies and comes up again, as something else perhaps.
    fn restart(&mut self, place: usize, change: impl FnOnce(&mut Config)) {
        let server = &mut self.servers[place];
        change(&mut server.config);
        server.site = Site::new(server.config.clone());
        for (id, records) in server.streams.clone() {
            let stream = Stream { id, snapshot: None, records };
            server.site.handle(Input::Recovered(stream), Timestamp(self.now));
            if id == StreamId::SITE.0 {
                server.site.handle(Input::SiteRecovered, Timestamp(self.now));
            }
        }
    }

    fn feed(&mut self, place: usize, input: Input) -> Vec<(RequestId, Result<Answer, Refusal>)> {
        let mut answers = Vec::new();
        let mut inputs = std::collections::VecDeque::from([(place, input)]);
        while let Some((place, input)) = inputs.pop_front() {
            let server = self.servers.get_mut(place).filter(|_| self.away != Some(place));
            let Some(server) = server else { continue };
            for output in server.site.handle(input, Timestamp(self.now)) {
                match output {
                    Output::Append(append) => {
                        let records = server.streams.entry(append.stream).or_default();
                        assert_eq!(records.len() as u64, append.expected);
                        records.push(append.record);
                    }
                    Output::Answer { id, answer } => answers.push((id, answer)),
                    Output::Send { to, message } => {
                        let message = Message::from_bytes(&message.to_bytes()).unwrap();
                        let from = ServerId(place as u16);
                        inputs.push_back((usize::from(to.0), Input::Message { from, message }));
                    }
                    Output::ReadCatalog { to, from, limit } => {
                        let own = server.streams.get(&0).into_iter().flatten();
                        let records = own.skip(from as usize).take(limit).cloned().collect();
                        inputs.push_back((place, Input::CatalogRead { to, from, records }));
                    }
                    Output::ReadOwn { id, record } => {
                        let record = server.streams[&0].get(record as usize).cloned();
                        inputs.push_back((place, Input::OwnRead { id, record }));
                    }
                    Output::Notice { text } => server.notices.push(text),
                    Output::Load { stream, .. } => {
                        let records = server.streams.get(&stream.0).cloned().unwrap_or_default();
                        let loaded = Stream { id: stream.0, snapshot: None, records };
                        inputs.push_back((place, Input::Loaded(loaded)));
                    }
                    // Nobody is there to take cases.
                    Output::Snapshot { .. } | Output::ReadEntries { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        answers
    }

    fn ask(&mut self, place: usize, request: Request) -> Result<Answer, Refusal> {
        self.last += 1;
        let (id, credential) = (RequestId(self.last), Credential::None);
        let mut answers = self.feed(place, Input::Request { id, credential, request });
        answers.pop().unwrap().1
    }

    fn code(&mut self, place: usize, request: Request) -> &'static str {
        self.ask(place, request).unwrap_err().code
    }

    /// Everybody has their say.
    fn pass(&mut self, time: Duration) {
        self.now += time.as_millis() as i64;
        for place in 0..self.servers.len() {
            self.feed(place, Input::Settle);
        }
    }

    fn catalog(&self, place: usize) -> &[Vec<u8>] {
        self.servers[place].streams.get(&0).map_or(&[], Vec::as_slice)
    }

    fn epoch(&self, place: usize) -> u32 {
        self.servers[place].site.seat().unwrap().topology.epoch
    }
}

fn publish(source: &str) -> Request {
    Request::PublishTopology(PublishTopology { source: source.to_owned(), ..Default::default() })
}

fn deploy(source: &str) -> Request {
    Request::Deploy { source: source.to_owned() }
}

fn start(number: u128, version: Option<u32>) -> Request {
    start_at(0, number, version)
}

/// A start at this server.
fn start_at(place: u128, number: u128, version: Option<u32>) -> Request {
    let (instance, process) = (InstanceId(number << 16 | place), "visit".into());
    let (data, agent, key, wait_until) = (Data::new(), None, None, None);
    Request::Start(Start {
        instance,
        process,
        version,
        data,
        agent,
        key,
        wait_until,
        deadline: None,
    })
}

#[test]
fn the_first_registrar_publishes_what_it_was_started_with_and_the_others_copy_it() {
    let mut group = Group::of(&["north-1", "south-1"], TOPOLOGY);
    assert_eq!(group.code(1, start(1, None)), "not_joined");
    // An instance that it does not know may be elsewhere.
    let show = Request::Show { instance: InstanceId(7 << 16), wait_until: None };
    assert_eq!(group.code(1, show), "not_joined");
    let Request::Start(plain) = start(1, None) else { panic!("a start") };
    let key = Some(Box::new(Key { stream: StreamId::of_key(5 << 64), request: 1 }));
    assert_eq!(group.code(1, Request::Start(Start { key, ..plain })), "not_joined");
    // Nor does it know whether the others have an organisation.
    assert_eq!(group.code(1, Request::Organisation { version: None }), "not_joined");
    group.pass(Duration::ZERO);
    let source = ORGANISATION.to_owned();
    group.ask(0, Request::PublishOrganisation { source }).unwrap();
    group.ask(0, deploy(PLACED)).unwrap();
    assert_eq!(group.catalog(0).len(), 3);
    assert_eq!(group.catalog(1), group.catalog(0), "told at once");
    let Ok(Answer::Topology { topology, here, .. }) =
        group.ask(1, Request::Topology { epoch: None })
    else {
        panic!("no topology")
    };
    assert_eq!((topology.epoch, here), (1, Some(ServerId(1))));
    group.ask(1, start_at(1, 1, None)).unwrap();
}

#[test]
fn only_the_registrar_changes_the_catalog_and_the_others_name_it() {
    let mut group = Group::of(&["north-1", "south-1"], TOPOLOGY);
    for _ in 0..2 {
        let name = "ci".to_owned();
        let requests = [
            publish(TOPOLOGY),
            deploy(PLACED),
            Request::PublishOrganisation { source: ORGANISATION.to_owned() },
            Request::IssueToken { name: name.clone(), hash: [0; 32], scopes: vec![Scope::Admin] },
            Request::RevokeToken { name },
        ];
        for request in requests {
            let refusal = group.ask(1, request).unwrap_err();
            assert_eq!((refusal.code, refusal.at), ("not_registrar", Some(ServerId(0))));
        }
        // The same when it has joined.
        group.pass(Duration::ZERO);
    }
    assert_eq!(group.catalog(1).len(), 1);
}

#[test]
fn a_new_epoch_is_in_force_at_once_and_everywhere() {
    let mut group = Group::of(&["north-1", "south-1"], TOPOLOGY);
    group.pass(Duration::ZERO);
    let placed = PLACED.replace("at: south", "at: west");
    let refusal = group.ask(0, deploy(&placed)).unwrap_err();
    assert_eq!(
        refusal.findings[0].to_string().lines().next(),
        Some("5:9: error Z1: the topology has no domain `west`")
    );
    let wider = format!("{TOPOLOGY}{WEST}");
    let Ok(Answer::Published { version, unchanged, .. }) = group.ask(0, publish(&wider)) else {
        panic!("not published")
    };
    assert_eq!((version, unchanged), (2, false));
    assert_eq!((group.epoch(0), group.epoch(1)), (2, 2));
    group.ask(0, deploy(&placed)).unwrap();
    assert_eq!(group.code(0, publish(TOPOLOGY)), "check_failed");
    let Ok(Answer::Published { unchanged: true, .. }) = group.ask(0, publish(&wider)) else {
        panic!("published twice")
    };
    let Ok(Answer::TopologyText { epoch: 1, source }) =
        group.ask(1, Request::Topology { epoch: Some(1) })
    else {
        panic!("no first epoch")
    };
    assert_eq!(&*source, TOPOLOGY);
    let Ok(Answer::Versions { versions, more: false }) =
        group.ask(1, Request::TopologyVersions { after: 1, limit: 9 })
    else {
        panic!("no epochs")
    };
    assert_eq!(versions.len(), 1);
    // The one that was added comes later, with nothing but the file.
    let member = Member { name: "west-1".into(), topology: wider.as_str().into() };
    group.join(Config { member: Some(member), ..Config::default() });
    group.pass(Duration::ZERO);
    assert_eq!(group.catalog(2), group.catalog(0));
    assert_eq!(group.servers[2].site.seat().unwrap().here, ServerId(2));
}

#[test]
fn what_was_lost_is_made_up_for_also_from_one_who_only_copied_it() {
    let topology = format!("{TOPOLOGY}{WEST}");
    let mut group = Group::of(&["north-1", "south-1"], &topology);
    group.pass(Duration::ZERO);
    let source = ORGANISATION.to_owned();
    group.ask(0, Request::PublishOrganisation { source }).unwrap();
    group.away = Some(0);
    let member = Member { name: "west-1".into(), topology: topology.as_str().into() };
    group.join(Config { member: Some(member), ..Config::default() });
    for _ in 0..2 {
        group.pass(Duration::from_secs(31));
    }
    assert_eq!(group.catalog(2).len(), 2);
    assert_eq!(group.catalog(2), group.catalog(1));
}

#[test]
fn a_long_catalog_comes_in_portions() {
    let mut group = Group::of(&["north-1"], TOPOLOGY);
    group.pass(Duration::ZERO);
    for number in 0..12 {
        let title = "x".repeat(400);
        let padding = format!("# {}\n", "y".repeat(100_000));
        let source = format!("process: p{number}\ntitle: \"{title}\"\nsteps: []\n{padding}");
        group.ask(0, deploy(&source)).unwrap();
    }
    let member = Member { name: "south-1".into(), topology: TOPOLOGY.into() };
    group.join(Config { member: Some(member), ..Config::default() });
    group.pass(Duration::ZERO);
    assert_eq!(group.catalog(1), group.catalog(0));
    let Ok(Answer::Definitions { definitions, .. }) =
        group.ask(1, Request::Definitions { after: None, limit: 100 })
    else {
        panic!("no definitions")
    };
    assert_eq!(definitions.len(), 12);
    assert!(definitions[0].title.starts_with("xx"));
}

#[test]
fn what_was_copied_is_there_after_a_restart() {
    let mut group = Group::of(&["north-1", "south-1"], TOPOLOGY);
    group.pass(Duration::ZERO);
    group.ask(0, Request::PublishOrganisation { source: ORGANISATION.to_owned() }).unwrap();
    group.ask(0, deploy(PLACED)).unwrap();
    group.restart(1, |_| {});
    assert_eq!(group.servers[1].site.faults(), [""; 0]);
    assert_eq!(group.servers[1].site.seat().unwrap().here, ServerId(1));
    group.ask(1, start_at(1, 3, None)).unwrap();
    group.ask(0, deploy(&PLACED.replace("go", "run"))).unwrap();
    assert_eq!(group.catalog(1), group.catalog(0));
}

#[test]
fn a_server_with_a_life_of_its_own_says_so_and_keeps_it() {
    let mut group = Group::of(&["north-1"], TOPOLOGY);
    group.pass(Duration::ZERO);
    group.join(Config::default());
    for source in ["process: a\nsteps: []\n", "process: b\nsteps: []\n"] {
        group.ask(1, deploy(source)).unwrap();
    }
    let own = group.catalog(1).to_vec();
    let member = Member { name: "south-1".into(), topology: TOPOLOGY.into() };
    group.restart(1, |config| config.member = Some(member));
    group.pass(Duration::ZERO);
    group.pass(Duration::from_secs(60));
    assert_eq!(group.catalog(1), own);
    assert_eq!(group.catalog(0).len(), 1, "nor does it bring others its own");
    assert_eq!(group.servers[1].notices.len(), 1, "once: {:?}", group.servers[1].notices);
    assert!(group.servers[1].notices[0].contains("had a life of its own"));
    assert_eq!(group.servers[0].notices, [""; 0]);
    assert_eq!(group.code(1, start(1, None)), "not_joined");
}

#[test]
fn a_registrar_that_lost_its_latest_records_gets_them_back() {
    let mut group = Group::of(&["north-1", "south-1"], TOPOLOGY);
    group.pass(Duration::ZERO);
    group.ask(0, deploy("process: a\nsteps: []\n")).unwrap();
    group.servers[0].streams.get_mut(&0).unwrap().pop();
    group.restart(0, |_| {});
    group.pass(Duration::from_secs(31));
    assert_eq!(group.catalog(0), group.catalog(1));
    assert_eq!(group.catalog(0).len(), 2);
}

#[test]
fn a_server_that_was_alone_becomes_the_first_if_what_it_has_fits() {
    let mut group = Group::default();
    group.join(Config::default());
    group.ask(0, Request::PublishOrganisation { source: ORGANISATION.to_owned() }).unwrap();
    assert_eq!(group.code(0, publish(TOPOLOGY)), "not_a_member");
    group.ask(0, deploy(&PLACED.replace("south", "east"))).unwrap();
    let member = Member { name: "north-1".into(), topology: TOPOLOGY.into() };
    group.restart(0, |config| config.member = Some(member));
    group.pass(Duration::ZERO);
    assert!(group.servers[0].notices[0].contains("the topology has no domain `east`"));
    assert_eq!(group.code(0, publish(TOPOLOGY)), "check_failed");
    group.ask(0, deploy(PLACED)).unwrap();
    group.ask(0, start(1, None)).unwrap();
    assert_eq!(group.code(0, publish(TOPOLOGY)), "begun_alone");
    let (instance, reason) = (InstanceId(1 << 16), "moving".to_owned());
    group.ask(0, Request::Abort { instance, reason }).unwrap();
    let swapped = TOPOLOGY.replace("north", "x").replace("south", "north").replace("x", "south");
    assert_eq!(group.code(0, publish(&swapped)), "check_failed", "it is not its first server");
    group.ask(0, publish(TOPOLOGY)).unwrap();
    // The first version still names what is not there.
    assert_eq!(group.code(0, start(2, Some(1))), "no_such_domain");
    group.ask(0, start(3, None)).unwrap();
}

#[test]
fn the_store_of_a_member_is_not_run_alone() {
    let mut group = Group::of(&["north-1"], TOPOLOGY);
    group.pass(Duration::ZERO);
    group.restart(0, |config| config.member = None);
    let topology = group.servers[0].site.member_alone().map(|topology| topology.name.clone());
    assert_eq!(topology.as_deref(), Some("group"));
    group.restart(0, |config| {
        config.member = Some(Member { name: "east-1".into(), topology: TOPOLOGY.into() });
    });
    let faults = group.servers[0].site.faults();
    assert!(faults[0].contains("has no server `east-1`"), "{faults:?}");
}
