//! Worklists over several servers: what a person sees where, when they are told, and what it costs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use legwork_model::id::{ActivityId, AgentId, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_site::*;

const NAMES: [&str; 3] = ["north", "south", "lab"];
const BANK: &str = "
organisation: bank
agents:
  ann: { roles: [clerk], substitutes: [dan], absent: [{ from: 2026-02-01, to: 2026-02-28 }] }
  ben: { roles: [clerk] }
  dan: { roles: [guard] }
";
const LOAN: &str = "process: loan\nsteps:\n  - step: sign\n    who: Role(clerk)\n";

/// Servers whose messages arrive at once, but for those to and from the ones that are cut off.
struct Group {
    sites: Vec<Site>,
    /// The own stream of each.
    own: Vec<Vec<Vec<u8>>>,
    now: Timestamp,
    cut: BTreeSet<u16>,
    /// Messages about worklists, in all.
    said: usize,
    replies: BTreeMap<RequestId, Result<Answer, Refusal>>,
    last: u64,
}

impl Group {
    fn new() -> Self {
        Self::of((0..3).map(|at| site(at, u64::from(at + 1) << 40)).collect())
    }

    fn of(sites: Vec<Site>) -> Self {
        let mut group = Self {
            own: vec![Vec::new(); sites.len()],
            sites,
            now: "2026-01-31T23:00:00Z".parse().unwrap(),
            cut: BTreeSet::new(),
            said: 0,
            replies: BTreeMap::new(),
            last: 0,
        };
        for at in 0..group.sites.len() {
            group.feed(at as u16, Input::Settle);
        }
        group.ask(0, Request::PublishOrganisation { source: BANK.to_owned() }).unwrap();
        group.ask(0, Request::Deploy { source: LOAN.to_owned() }).unwrap();
        group
    }

    fn feed(&mut self, at: u16, input: Input) {
        let mut inputs = vec![(at, input)];
        while let Some((at, input)) = inputs.pop() {
            let settles = !matches!(input, Input::Settle);
            let site = &mut self.sites[usize::from(at)];
            let mut outputs = site.handle(input, self.now);
            if settles {
                outputs.extend(site.handle(Input::Settle, self.now));
            }
            for output in outputs {
                match output {
                    Output::Answer { id, answer } => {
                        assert!(self.replies.insert(id, answer).is_none(), "answered once");
                    }
                    Output::Send { to, message } => {
                        let bytes = message.to_bytes();
                        assert_eq!(Message::from_bytes(&bytes).as_ref(), Ok(&message));
                        let about_catalog = matches!(
                            message,
                            Message::Catalog(message::Catalog::Wanted { .. })
                                | Message::Catalog(message::Catalog::Records { .. })
                        );
                        self.said += usize::from(!about_catalog);
                        if !self.cut.contains(&at) && !self.cut.contains(&to.0) {
                            inputs
                                .insert(0, (to.0, Input::Message { from: ServerId(at), message }));
                        }
                    }
                    Output::Append(Append { stream: 0, record, .. }) => {
                        self.own[usize::from(at)].push(record);
                    }
                    Output::ReadCatalog { to, from, limit } => {
                        let own = self.own[usize::from(at)].iter().skip(from as usize);
                        let records = own.take(limit).cloned().collect();
                        inputs.push((at, Input::CatalogRead { to, from, records }));
                    }
                    Output::Load { stream, .. } => {
                        let stream = Stream { id: stream.0, ..Stream::default() };
                        inputs.push((at, Input::Loaded(stream)));
                    }
                    _ => {}
                }
            }
        }
    }

    fn send(&mut self, at: u16, request: Request) -> RequestId {
        self.last += 1;
        let id = RequestId(self.last);
        self.feed(at, Input::Request { id, credential: Credential::None, request });
        id
    }

    fn ask(&mut self, at: u16, request: Request) -> Result<Answer, Refusal> {
        let id = self.send(at, request);
        self.replies.remove(&id).unwrap()
    }

    /// Time passes: each site acts when something is due.
    fn pass(&mut self, length: Duration) {
        let end = self.now.plus(length);
        loop {
            let due = self.sites.iter().filter_map(Site::next_timeout).min();
            let Some(next) = due.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            for at in 0..3 {
                if self.sites[usize::from(at)].next_timeout().is_some_and(|due| due <= self.now) {
                    self.feed(at, Input::Settle);
                }
            }
        }
        self.now = end;
    }

    fn start(&mut self, at: u16, number: u128) -> ActivityId {
        self.now = self.now.plus(Duration::from_millis(1));
        let instance = InstanceId(1_000 << 80 | number << 16 | u128::from(at));
        let start = Start {
            instance,
            process: "loan".into(),
            version: None,
            data: Data::default(),
            agent: None,
            key: None,
            wait_until: None,
            deadline: None,
        };
        self.ask(at, Request::Start(start)).unwrap();
        format!("{instance}:sign").parse().unwrap()
    }

    fn view(&mut self, at: u16, agent: &str) -> WorklistView {
        match self.ask(at, Request::Worklist(worklist(agent, None, None))).unwrap() {
            Answer::Worklist(view) => view,
            other => panic!("{other:?}"),
        }
    }

    /// What somebody sees: the servers of the items, oldest first.
    fn sees(&mut self, at: u16, agent: &str) -> Vec<String> {
        let view = self.view(at, agent);
        let line = |item: &ItemInfo| {
            let stale = if item.stale { " stale" } else { "" };
            format!("{}{stale}", item.server.as_deref().unwrap_or_default())
        };
        view.items.iter().map(line).collect()
    }
}

fn topology(names: &[&str]) -> String {
    let domain = |name: &&str| {
        let reached = format!("{{ address: \"{name}:1\", api: \"http://{name}\" }}");
        format!("  {name}: {{ servers: {{ {name}-1: {reached} }} }}\n")
    };
    format!("topology: three\ndomains:\n{}", names.iter().map(domain).collect::<String>())
}

fn site(at: u16, life: u64) -> Site {
    let topology = topology(&NAMES).into();
    let name = format!("{}-1", NAMES[usize::from(at)]).into();
    Site::new(Config { member: Some(Member { name, topology }), life, ..Config::default() })
}

fn worklist(agent: &str, since: Option<String>, wait_until: Option<Timestamp>) -> Worklist {
    Worklist { agent: AgentId::from(agent), since, limit: 1_000, wait_until }
}

fn claim(agent: &str, activity: &ActivityId) -> Request {
    Request::Claim { agent: AgentId::from(agent), activity: activity.clone() }
}

#[test]
fn who_waits_at_a_server_that_was_alone_is_told_to_begin_anew_among_others() {
    let member = Member { name: "north-1".into(), topology: topology(&NAMES[..1]).into() };
    let alone = Site::new(Config { member: Some(member), life: 1 << 40, ..Config::default() });
    let mut group = Group::of(vec![alone]);
    group.cut.extend([1, 2]);
    let Answer::Worklist(list) =
        group.ask(0, Request::Worklist(worklist("ann", None, None))).unwrap()
    else {
        panic!("no worklist")
    };
    let until = Some(group.now.plus(Duration::from_secs(60)));
    let watch = group.send(0, Request::Worklist(worklist("ann", Some(list.cursor), until)));
    group
        .ask(
            0,
            Request::PublishTopology(PublishTopology {
                source: topology(&NAMES),
                ..Default::default()
            }),
        )
        .unwrap();
    assert!(!group.replies.contains_key(&watch), "nothing has changed for ann yet");

    group.send(0, Request::Worklist(worklist("ann", None, None)));
    match group.replies.remove(&watch) {
        Some(Ok(Answer::Worklist(list))) => assert!(list.reset),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_person_sees_at_any_server_what_all_have_the_oldest_first() {
    let mut group = Group::new();
    for (number, at) in [2, 0, 1, 0].into_iter().enumerate() {
        group.start(at, number as u128 + 1);
    }
    for at in 0..3 {
        assert_eq!(group.sees(at, "ann"), ["lab-1", "north-1", "south-1", "north-1"]);
    }
    assert_eq!(group.sees(0, "dan"), [""; 0]);
}

#[test]
fn the_first_who_asks_waits_for_the_others_but_not_for_long() {
    let mut group = Group::new();
    group.start(1, 1);
    group.cut.insert(2);
    let id = group.send(0, Request::Worklist(worklist("ann", None, None)));
    assert!(group.replies.is_empty(), "one has not answered");
    group.pass(Duration::from_millis(1_000));
    let Some(Ok(Answer::Worklist(view))) = group.replies.remove(&id) else { panic!("no answer") };
    assert_eq!(view.items.len(), 1, "what has come so far");
    assert_eq!(group.sees(0, "ann"), ["south-1"], "the next need not wait");
}

#[test]
fn a_list_that_does_not_change_costs_nothing_but_its_renewal() {
    let mut group = Group::new();
    group.start(1, 1);
    group.sees(0, "ann");
    let before = group.said;
    for _ in 0..50 {
        group.sees(0, "ann");
        group.pass(Duration::from_secs(1));
    }
    assert_eq!(group.said, before);
    group.pass(Duration::from_secs(30));
    assert_eq!(group.said, before + 4, "both are asked again, and answer");
    group.pass(Duration::from_secs(600));
    let after = group.said;
    group.start(1, 2);
    group.pass(Duration::from_secs(600));
    assert_eq!(group.said, after, "nobody has asked for long: nobody is told");
    assert_eq!(group.sees(0, "ann").len(), 2);
}

#[test]
fn who_waits_is_told_of_what_comes_and_goes_elsewhere() {
    let mut group = Group::new();
    let view = group.view(0, "ann");
    let until = Some(group.now.plus(Duration::from_secs(60)));
    let id = group.send(0, Request::Worklist(worklist("ann", Some(view.cursor), until)));
    assert!(group.replies.is_empty());
    let activity = group.start(2, 1);
    let Some(Ok(Answer::Worklist(view))) = group.replies.remove(&id) else { panic!("not told") };
    assert!(!view.reset);
    assert_eq!(view.items[0].activity, activity);
    let id = group.send(0, Request::Worklist(worklist("ann", Some(view.cursor), until)));
    group.ask(2, claim("ben", &activity)).unwrap();
    let Some(Ok(Answer::Worklist(view))) = group.replies.remove(&id) else { panic!("not told") };
    assert_eq!((view.items.len(), view.removed), (0, vec![activity]));
}

#[test]
fn an_item_of_another_server_is_worked_on_there() {
    let mut group = Group::new();
    let activity = group.start(2, 1);
    group.sees(0, "ann");
    let refusal = group.ask(0, claim("ann", &activity)).unwrap_err();
    assert_eq!((refusal.code, refusal.at), ("elsewhere", Some(ServerId(2))));
    group.ask(2, claim("ann", &activity)).unwrap();
    assert_eq!(group.view(0, "ann").items[0].claimed_by, Some(AgentId::from("ann")));
}

#[test]
fn a_server_that_cannot_be_reached_is_shown_with_the_items_it_had() {
    let mut group = Group::new();
    group.start(0, 1);
    group.start(2, 2);
    assert_eq!(group.sees(0, "ann"), ["north-1", "lab-1"]);
    group.cut.insert(2);
    let since = group.now;
    group.feed(0, Input::Link { to: ServerId(2), is_up: false });
    group.start(2, 3);
    assert_eq!(group.sees(0, "ann"), ["north-1", "lab-1 stale"]);
    let lab = Unreachable { server: "lab-1".into(), since };
    assert_eq!(group.view(0, "ann").unreachable, [lab]);
    assert_eq!(group.sees(0, "ben"), ["north-1"], "nobody waits for one that is known to be away");
    group.cut.clear();
    group.feed(0, Input::Link { to: ServerId(2), is_up: true });
    assert_eq!(group.sees(0, "ann"), ["north-1", "lab-1", "lab-1"]);
    assert_eq!(group.view(0, "ann").unreachable, []);
}

#[test]
fn what_a_server_had_is_shown_when_it_goes_away_long_after_somebody_has_looked() {
    let mut group = Group::new();
    group.start(2, 1);
    assert_eq!(group.sees(0, "ann"), ["lab-1"]);
    group.pass(Duration::from_secs(3_600));
    group.cut.insert(2);
    group.feed(0, Input::Link { to: ServerId(2), is_up: false });
    let since = group.now;
    group.start(1, 2);
    let view = group.view(0, "ann");
    assert_eq!(view.unreachable, [Unreachable { server: "lab-1".into(), since }]);
    assert_eq!(group.sees(0, "ann"), ["lab-1 stale", "south-1"], "what is new elsewhere too");
    assert_eq!(group.sees(0, "ben"), ["south-1"], "nobody has asked for him before");
    // It is back before anybody looks: nothing is stale then.
    group.pass(Duration::from_secs(3_600));
    group.cut.clear();
    group.feed(0, Input::Link { to: ServerId(2), is_up: true });
    group.start(2, 3);
    assert_eq!(group.sees(0, "ann"), ["lab-1", "south-1", "lab-1"]);
    assert_eq!(group.view(0, "ann").unreachable, []);
}

#[test]
fn of_too_many_items_elsewhere_the_list_that_was_not_asked_for_longest_goes() {
    let site = |at: u16| {
        let member = Member {
            name: format!("{}-1", NAMES[usize::from(at)]).into(),
            topology: topology(&NAMES).into(),
        };
        let life = u64::from(at + 1) << 40;
        Site::new(Config { member: Some(member), life, followed_items_max: 4, ..Config::default() })
    };
    let mut group = Group::of((0..3).map(site).collect());
    group.start(2, 1);
    group.start(2, 2);
    for agent in ["ann", "ben", "ann"] {
        assert_eq!(group.sees(0, agent), ["lab-1", "lab-1"], "all fit");
        group.pass(Duration::from_secs(1));
    }
    // Five and six items of two people.
    group.start(2, 3);
    assert_eq!(group.sees(0, "ann").len(), 3);
    group.cut.insert(2);
    group.feed(0, Input::Link { to: ServerId(2), is_up: false });
    assert_eq!(group.sees(0, "ann"), ["lab-1 stale"; 3]);
    assert_eq!(group.sees(0, "ben"), [""; 0], "his was not asked for longest");
}

#[test]
fn silence_is_noticed_where_nobody_tells_of_the_link() {
    let mut group = Group::new();
    group.start(2, 1);
    group.sees(0, "ann");
    group.cut.insert(2);
    for _ in 0..7 {
        group.pass(Duration::from_secs(10));
        group.sees(0, "ann");
    }
    assert_eq!(group.sees(0, "ann"), ["lab-1 stale"]);
    group.cut.clear();
    group.pass(Duration::from_secs(60));
    assert_eq!(group.sees(0, "ann"), ["lab-1"]);
}

#[test]
fn a_substitute_sees_what_the_absent_has_elsewhere_from_the_moment_on() {
    let mut group = Group::new();
    let activity = group.start(2, 1);
    group.ask(2, claim("ann", &activity)).unwrap();
    let view = group.view(0, "dan");
    assert_eq!(view.items.len(), 0);
    let until = Some(group.now.plus(Duration::from_secs(7_200)));
    let id = group.send(0, Request::Worklist(worklist("dan", Some(view.cursor), until)));
    group.pass(Duration::from_secs(3_700));
    let told = group.replies.remove(&id).is_some();
    assert!(told, "ann is away since midnight");
    assert_eq!(group.view(0, "dan").items[0].on_behalf_of, Some(AgentId::from("ann")));
}

#[test]
fn a_long_list_comes_in_several_messages() {
    let mut group = Group::new();
    for number in 1..=450 {
        group.start(1, number);
    }
    assert_eq!(group.sees(0, "ann").len(), 450);
    let before = group.said;
    group.start(1, 451);
    assert_eq!((group.sees(0, "ann").len(), group.said), (451, before + 1), "only what is new");
}

#[test]
fn a_server_that_has_begun_anew_is_asked_for_everything() {
    let mut group = Group::new();
    let view = group.view(0, "ann");
    // The entry forgets nothing of it: the next answers do not fit what it has.
    group.sites[1] = site(1, 99 << 40);
    group.own[1].clear();
    group.feed(1, Input::Settle);
    group.start(1, 1);
    group.feed(0, Input::Link { to: ServerId(1), is_up: true });
    let answer = group.ask(0, Request::Worklist(worklist("ann", Some(view.cursor), None)));
    let Ok(Answer::Worklist(view)) = answer else { panic!("{answer:?}") };
    assert_eq!((view.reset, view.items.len()), (false, 1), "to the client it is one more item");
}
