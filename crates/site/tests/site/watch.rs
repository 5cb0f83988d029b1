//! The watch-dog: servers tell what they do, and the registrar proposes other weights or puts them
//! in force.

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use legwork_site::*;

const MINUTE: i64 = 60_000;

/// A registrar whose other server does all the work.
struct Registrar {
    site: Site,
    now: i64,
    notices: Vec<String>,
}

impl Registrar {
    fn new(watchdog: &str) -> Self {
        let server = |number| format!("{{ address: \"n:{number}\", api: \"http://n{number}\" }}");
        let topology = format!(
            "topology: group\ndomains: {{ north: {{ servers: {{ n1: {}, n2: {} }} }} }}\n{watchdog}",
            server(1),
            server(2)
        );
        let member = Member { name: "n1".into(), topology: topology.into() };
        let site = Site::new(Config { member: Some(member), ..Config::default() });
        Self { site, now: 1_000_000, notices: Vec::new() }
    }

    fn feed(&mut self, input: Input) -> Vec<Output> {
        let outputs = self.site.handle(input, Timestamp(self.now));
        let notice = |output: &Output| match output {
            Output::Notice { text } => Some(text.clone()),
            _ => None,
        };
        self.notices.extend(outputs.iter().filter_map(notice));
        outputs
    }

    /// For so many minutes the other server tells that it has done so much in each half of one.
    fn pass(&mut self, minutes: i64, written: u64) {
        (0..2 * minutes).for_each(|_| self.pass_half(written));
    }

    fn pass_half(&mut self, written: u64) {
        self.now += MINUTE / 2;
        self.feed(Input::Message {
            from: ServerId(1),
            message: Message::Registrar(message::Registrar::Load { written }),
        });
        self.feed(Input::Settle);
    }

    fn changes(&mut self) -> Reconfiguration {
        let (id, credential) = (RequestId(1), Credential::None);
        let asked = self.feed(Input::Request { id, credential, request: Request::Reconfiguration });
        let answer = asked.into_iter().find_map(|output| match output {
            Output::Answer { answer: Ok(Answer::Reconfiguration(now)), .. } => Some(*now),
            _ => None,
        });
        answer.unwrap()
    }
}

#[test]
fn without_a_word_in_the_topology_nothing_is_watched() {
    let mut registrar = Registrar::new("");
    registrar.pass(300, 1_000);
    assert_eq!(registrar.notices, [""; 0]);
    assert!(registrar.changes().proposals.is_empty());
}

#[test]
fn load_that_is_off_for_long_enough_leads_to_a_proposal_and_to_nothing_else() {
    let mut registrar =
        Registrar::new("watchdog: { mode: propose, window_minutes: 20, pause_minutes: 30 }\n");
    registrar.pass(25, 1_000);
    assert!(registrar.changes().proposals.is_empty(), "not yet: what is new is to show first");
    registrar.pass(15, 1_000);
    let changes = registrar.changes();
    assert!(changes.change.is_none() && changes.epoch == 1, "{changes:?}");
    let said = "n1 0.0 % of the load where 50.0 % is meant";
    assert!(changes.proposals[0].starts_with(said), "{:?}", changes.proposals);
    assert!(registrar.notices[0].contains(said), "{:?}", registrar.notices);
}

#[test]
fn where_it_may_the_watch_dog_begins_a_change_like_any_other() {
    let mut registrar =
        Registrar::new("watchdog: { mode: apply, window_minutes: 20, pause_minutes: 30 }\n");
    let begun = (0..80).find(|_| {
        registrar.pass_half(1_000);
        registrar.site.change().is_some()
    });
    assert!(begun.is_some(), "{:?}", registrar.notices);
    let next = registrar.site.change().unwrap().next.clone();
    let weights: Vec<_> = next.servers.iter().map(|one| (one.weight, one.meant())).collect();
    assert!(weights[0].0 > weights[1].0, "{weights:?}");
    assert_eq!((weights[0].1, weights[1].1), (1, 1), "what is meant stays what it was");
    registrar.pass(2, 1_000);
    // All of the domain take part in a change, and here the other one does not answer.
    let last = registrar.changes().last.unwrap();
    assert_eq!((last.number, last.epoch), (1, None));
    assert!(last.why.unwrap().starts_with("`n2` did not report"));
}

#[test]
fn a_server_that_says_nothing_is_not_taken_for_one_that_does_nothing() {
    let mut registrar =
        Registrar::new("watchdog: { mode: propose, window_minutes: 20, pause_minutes: 30 }\n");
    for _ in 0..120 {
        registrar.now += MINUTE / 2;
        registrar.feed(Input::Settle);
    }
    assert!(registrar.changes().proposals.is_empty());
}
