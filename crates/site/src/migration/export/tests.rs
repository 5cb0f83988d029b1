//! Histories written as the entries of some servers: `2 answer` is a step done at server 2.

use std::sync::Arc;

use legwork_model::compile::compile;
use legwork_model::event::{Completed, Created, Passage, Performer, Received};
use legwork_model::id::{DomainId, InstanceId, Iteration};
use legwork_model::time::Timestamp;
use legwork_model::yaml;

use super::*;

const TOPOLOGY: &str = r#"
topology: four
domains:
  s0: { servers: { s0: { address: "s0:1", api: "http://s0" } } }
  s1: { servers: { s1: { address: "s1:1", api: "http://s1" } } }
  s2: { servers: { s2: { address: "s2:1", api: "http://s2" } } }
  s3: { servers: { s3: { address: "s3:1", api: "http://s3" } } }
"#;

/// `answer` is controlled at the home of the performer of `ask`.
const ROUNDS: &str = "
process: rounds
steps:
  - loop: l
    steps:
      - { step: ask, job: j, at: s0 }
      - { step: answer, job: j, at: Domain(Actor(ask)) }
    who: Role(clerk)
  - { step: file, job: j, at: s2 }
";

/// The join of `b` and `c` is at the home of the performer of `ask`, and no later step is there.
const JOINED: &str = "
process: joined
steps:
  - loop: l
    steps:
      - { step: ask, job: j, at: s0 }
      - choice: x
        who: Role(clerk)
        branches:
          - name: both
            steps:
              - { step: answer, job: j, at: Domain(Actor(ask)) }
              - parallel: p
                branches:
                  - steps: [{ step: b, job: j, at: s1 }]
                  - steps: [{ step: c, job: j, at: s1 }]
          - { name: none }
      - { step: go, job: j, at: s0 }
    who: Role(clerk)
  - { step: near, job: j, at: s3 }
  - { step: file, job: j, at: s2 }
";

/// `b` would wait for `a` if it were done.
const WAITING: &str = "
process: waiting
steps:
  - parallel: p
    branches:
      - steps: [{ step: a, job: j, at: s1 }]
      - steps:
          - choice: x
            who: Role(clerk)
            branches:
              - { name: do, steps: [{ step: b, job: j, after: [a] }] }
              - { name: leave }
          - { step: c, job: j }
  - { step: d, job: j, at: s2 }
";

struct Case {
    schema: Schema,
    topology: Topology,
    records: Vec<Record<Event>>,
}

impl Case {
    fn new(text: &str) -> Self {
        let (definition, findings) = yaml::parse(text);
        assert_eq!(findings, []);
        let schema = compile(&definition.unwrap(), 1).unwrap();
        let topology = Topology::parse(TOPOLOGY).0.unwrap();
        Self { schema, topology, records: Vec::new() }
    }

    fn of(&self, name: &str, iteration: &[u32]) -> Activity {
        let node = self.schema.node_named(name).unwrap().id;
        Activity { node, iteration: Iteration(iteration.to_vec()) }
    }

    fn created(&self) -> Event {
        let (process, by) = (Arc::clone(&self.schema.process), Performer::System);
        let created = Created { process, version: 1, by, inputs: Vec::new(), deadline: None };
        Event::Created(Box::new(created))
    }

    /// With the code of a decision, or the home of the performer.
    fn done(&self, activity: &Activity, code: Option<u32>, home: Option<u16>) -> Event {
        Event::Completed(Completed {
            activity: activity.clone(),
            by: Performer::System,
            started_at: Timestamp(5),
            writes: Vec::new(),
            code,
            request: None,
            home: home.map(DomainId),
            channel: None,
        })
    }

    fn entry(server: u16, event: Event) -> Entry {
        Entry { event, at: Timestamp(5), server: ServerId(server), elsewhere: Vec::new() }
    }

    fn add(&mut self, events: Vec<Event>) {
        self.records.push(Record { at: Timestamp(5), events });
    }

    /// Control arrives from server 0, with the start and the entries.
    fn came(&mut self, done: Vec<(u16, Event)>, parcel: Parcel) {
        let created = (0, self.created());
        let entries = [created].into_iter().chain(done);
        let entries = entries.map(|(server, event)| Self::entry(server, event)).collect();
        let (from, number) = (ServerId(0), 1);
        self.add(vec![Event::Received(Box::new(Received { from, number, parcel, entries }))]);
    }

    /// A step is done here, and control is handed over to server 2.
    fn hands_over(&mut self, done: Event, number: u32, parcel: &Parcel) {
        let (to, parcel) = (ServerId(2), parcel.clone());
        self.add(vec![done, Event::Sent { to, number, parcel }]);
    }

    /// The entries sent to server 2 with a transfer, as computed by `export` from the history.
    fn names(
        &self,
        here: u16,
        parcel: &Parcel,
        export: impl Fn(&Export<'_>, &[Vec<u8>]) -> Option<Missing>,
    ) -> Option<Vec<String>> {
        let state = legwork_engine::replay(&self.schema, self.records.iter()).unwrap();
        let sources: Vec<Activity> =
            parcel.passages().iter().map(|passage| passage.source.clone()).collect();
        let exporting = Export {
            schema: &self.schema,
            known: Knowledge { instance: InstanceId(1), state: &state, here: ServerId(here) },
            topology: &self.topology,
            to: ServerId(2),
            parcel,
            sources: &sources,
        };
        let records: Vec<Vec<u8>> = self.records.iter().map(Record::to_bytes).collect();
        let missing = export(&exporting, &records)?;
        let named = |entry: &Entry| {
            let Activity { node, iteration } = entry.event.ends().unwrap();
            let name = &self.schema.node(node).name;
            if iteration.0.is_empty() { name.to_string() } else { format!("{name}:{iteration}") }
        };
        Some(missing.entries.iter().map(named).collect())
    }
}

fn control(source: Activity, target: Activity) -> Parcel {
    Parcel::Control { passages: vec![Passage { source, target }], order: None }
}

fn without_asking(export: &Export<'_>, records: &[Vec<u8>]) -> Option<Missing> {
    export.without_asking(records, Transfer::Proven)
}

#[test]
fn entries_a_server_controlled_in_an_earlier_round_are_not_sent_to_it() {
    let mut case = Case::new(ROUNDS);
    let of = |case: &Case, name: &str, round: u32| case.of(name, &[round]);
    let (ask, answer, end) = (of(&case, "ask", 0), of(&case, "answer", 0), of(&case, "l", 0));
    let earlier = vec![
        (0, case.done(&ask, None, Some(2))),
        (2, case.done(&answer, None, None)),
        (2, case.done(&end, Some(0), None)),
    ];
    let (ask, answer, end) = (of(&case, "ask", 1), of(&case, "answer", 1), of(&case, "l", 1));
    let now = (0, case.done(&ask, None, Some(1)));
    case.came([earlier, vec![now]].concat(), control(ask, answer.clone()));
    case.add(vec![case.done(&answer, None, None)]);
    let parcel = control(end.clone(), case.of("file", &[]));
    case.hands_over(case.done(&end, Some(1), None), 1, &parcel);
    // Server 1 was never involved with server 2.
    let missing = case.names(1, &parcel, without_asking).expect("it need not be asked");
    assert_eq!(missing, ["ask:1", "answer:1", "l:1"]);
}

#[test]
fn a_server_that_may_know_entries_of_an_earlier_round_is_asked() {
    let mut case = Case::new(JOINED);
    let (first, second) = ([0], [1]);
    let mut done = Vec::new();
    for (name, round, server, code, home) in [
        ("ask", first, 0, None, Some(2)),
        ("x", first, 0, Some(0), None),
        ("answer", first, 2, None, None),
        ("b", first, 1, None, None),
        ("c", first, 1, None, None),
        ("go", first, 0, None, None),
        ("l", first, 0, Some(0), None),
        ("ask", second, 0, None, Some(1)),
        ("x", second, 0, Some(1), None),
        ("go", second, 0, None, None),
        ("l", second, 0, Some(1), None),
    ] {
        done.push((server, case.done(&case.of(name, &round), code, home)));
    }
    let (near, file) = (case.of("near", &[]), case.of("file", &[]));
    case.came(done, control(case.of("l", &second), near.clone()));
    let parcel = control(near.clone(), file);
    case.hands_over(case.done(&near, None, None), 1, &parcel);
    assert_eq!(case.names(3, &parcel, without_asking), None, "server 1 has told it of b and c");
}

#[test]
fn a_transfer_offered_again_brings_no_later_entries() {
    let mut case = Case::new(WAITING);
    let (a, c, join) = (case.of("a", &[]), case.of("c", &[]), case.of("p/join", &[]));
    case.add(vec![case.created()]);
    case.add(vec![case.done(&case.of("x", &[]), Some(1), None)]);
    let parcel = control(c.clone(), join.clone());
    case.hands_over(case.done(&c, None, None), 1, &parcel);
    let missing = |export: &Export<'_>, records: &[Vec<u8>]| Some(export.missing(records, &[]));
    let first = case.names(1, &parcel, missing);
    let next = control(a.clone(), join);
    case.hands_over(case.done(&a, None, None), 2, &next);
    // By the definition `a` may precede `c`.
    assert_eq!(case.names(1, &parcel, missing), first);
    assert_eq!(first.unwrap(), ["start", "x", "c"]);
    assert_eq!(case.names(1, &next, missing).unwrap(), ["start", "a"]);
}
