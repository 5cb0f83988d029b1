//! One catalog at several servers: who writes it, and how the others get it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
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

impl Server {
    /// Nothing, if it is alone.
    fn name(&self) -> Arc<str> {
        self.config.member.as_ref().map(|member| member.name.clone()).unwrap_or_default()
    }
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
        let mut inputs: VecDeque<(usize, Option<Arc<str>>, Input)> = [(place, None, input)].into();
        while let Some((place, from, mut input)) = inputs.pop_front() {
            let names = self.servers.iter().map(Server::name);
            let places: BTreeMap<Arc<str>, usize> = names.zip(0..).collect();
            let server = self.servers.get_mut(place).filter(|_| self.away != Some(place));
            let Some(server) = server else { continue };
            // Others are known by their names: numbers are looked up when something is heard or said.
            if let (Input::Message { from: number, .. }, Some(name)) = (&mut input, &from) {
                let Some(known) = server.site.server_named(name) else { continue };
                *number = known;
            }
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
                        let to =
                            server.site.name_of(to).and_then(|name| places.get(&name).copied());
                        let from = ServerId(u16::MAX);
                        let input = Input::Message { from, message };
                        inputs.extend(to.map(|to| (to, Some(server.name()), input)));
                    }
                    Output::ReadCatalog { to, from, limit } => {
                        let own = server.streams.get(&0).into_iter().flatten();
                        let records = own.skip(from as usize).take(limit).cloned().collect();
                        inputs.push_back((place, None, Input::CatalogRead { to, from, records }));
                    }
                    Output::ReadOwn { id, record } => {
                        let record = server.streams[&0].get(record as usize).cloned();
                        inputs.push_back((place, None, Input::OwnRead { id, record }));
                    }
                    Output::Notice { text } => server.notices.push(text),
                    Output::Load { stream, .. } => {
                        let records = server.streams.get(&stream.0).cloned().unwrap_or_default();
                        let loaded = Stream { id: stream.0, snapshot: None, records };
                        inputs.push_back((place, None, Input::Loaded(loaded)));
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
    assert!(group.servers[1].notices[0].contains("diverges from the registrar's"));
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

/// Two domains whose first servers are as old as the cluster, and one that has joined later: the file
/// has it second, the catalog last.
fn grown(more: &str) -> String {
    format!(
        r#"topology: group
domains:
  east:
    servers:
      east-1: {{ address: "east:1", api: "http://east-1" }}
      east-2: {{ address: "east:2", api: "http://east-2", weight: 0 }}
  west:
    servers:
      west-1: {{ address: "west:1", api: "http://west-1" }}
{more}"#
    )
}

/// West-2 joins after east-2 has, with the registrar and its neighbour away.
fn joined_last() -> Group {
    let is_first = |line: &&str| !line.contains("east-2");
    let first: Vec<String> = grown("").lines().filter(is_first).map(str::to_owned).collect();
    let mut group = Group::of(&["east-1"], &(first.join("\n") + "\n"));
    group.pass(Duration::ZERO);
    group.ask(0, publish(&grown(""))).unwrap();
    let larger =
        grown("      west-2: { address: \"west:2\", api: \"http://west-2\", weight: 0 }\n");
    group.ask(0, publish(&larger)).unwrap();
    let member = |name: &str| Member { name: name.into(), topology: larger.as_str().into() };
    group.join(Config { member: Some(member("east-2")), ..Config::default() });
    let source = ORGANISATION.to_owned();
    group.ask(0, Request::PublishOrganisation { source }).unwrap();
    group.ask(0, deploy(&PLACED.replace("south", "east"))).unwrap();
    let registrar = Input::Link { to: ServerId(0), is_up: true };
    group.feed(1, registrar);
    assert_eq!(group.catalog(1), group.catalog(0));
    group.away = Some(0);
    group.join(Config { member: Some(member("west-2")), ..Config::default() });
    group
}

#[test]
fn a_server_that_joins_goes_by_the_numbers_of_the_catalog_and_not_by_those_of_its_file() {
    let mut group = joined_last();
    let named = |group: &Group| {
        let names = ["east-1", "east-2", "west-1", "west-2"];
        names.map(|name| group.servers[2].site.server_named(name).unwrap().0)
    };
    assert!(group.servers[2].site.joined().is_none());
    assert_eq!(named(&group), [0, 1, 2, 3], "as they stand in the file");
    assert_eq!(group.code(2, start_at(3, 1, None)), "not_joined");
    // It hears of the catalog and of nothing else, and says nothing else.
    for to in [1, 2] {
        group.feed(2, Input::Link { to: ServerId(to), is_up: false });
    }
    assert_eq!(group.servers[2].streams.len(), 0);
    group.feed(2, Input::Link { to: ServerId(1), is_up: true });
    assert_eq!(group.catalog(2), group.catalog(1));
    assert_eq!(group.servers[2].site.joined().unwrap().here, ServerId(3));
    assert_eq!(named(&group), [0, 2, 1, 3], "as they are old");
}

#[test]
fn what_others_were_said_to_have_by_the_numbers_of_the_file_counts_for_nothing() {
    let mut group = joined_last();
    // East-2 says how much it has, as number 1 of the file. That is the number of the neighbour.
    group.feed(1, Input::Link { to: ServerId(3), is_up: true });
    assert_eq!(group.servers[2].site.server_named("west-1"), Some(ServerId(1)));
    group.last += 1;
    let (id, credential) = (RequestId(group.last), Credential::None);
    let request = start_at(3, 1, None);
    let answers = group.feed(2, Input::Request { id, credential, request });
    assert_eq!(
        answers.len(),
        0,
        "it may have been declared down: its neighbour has not said anything"
    );
}
