//! The worked examples of the paper on migrating instance data, figure by figure.
//!
//! Steps have one letter, as in the paper; a history is the letters of its entries.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::collections::BTreeMap;

use legwork_model::compile::compile;
use legwork_model::event::Passage;
use legwork_model::id::{Activity, DomainId, InstanceId, NodeId, ServerId};
use legwork_model::schema::{LoopId, NodeKind, Schema};
use legwork_model::yaml;
use legwork_placement::{
    Known, Last, Map, Move, Reader, cheapest_first, is_missing, is_proven, knows, last_activities,
    last_activities_of, place, sources,
};

/// Figure 4: after `d` two branches, the ends of both controlled by server 2.
const FIGURE_4: &str = "
process: figure-4
steps:
  - { step: a, job: j, at: s1 }
  - { step: b, job: j, at: s2 }
  - { step: c, job: j, at: s1 }
  - { step: d, job: j, at: s1 }
  - parallel: p
    branches:
      - steps: [{ step: e, job: j, at: s3 }, { step: f, job: j, at: s3 }, { step: g, job: j, at: s2 }]
      - steps: [{ step: h, job: j, at: s1 }, { step: i, job: j, at: s2 }]
";

/// Figure 3: the branches c and d-e come together at f.
const FIGURE_3: &str = "
process: figure-3
steps:
  - { step: a, job: j, at: s1 }
  - { step: b, job: j, at: s1 }
  - parallel: p
    branches:
      - steps: [{ step: c, job: j, at: s1 }]
      - steps: [{ step: d, job: j, at: s2 }, { step: e, job: j, at: s2 }]
  - { step: f, job: j, at: s1 }
";

/// Figure 5: d1 written by a, d2 by c, both branches end at d on server 2.
const FIGURE_5: &str = "
process: figure-5
data: { d1: string, d2: string }
steps:
  - { step: a, job: j, at: s1, writes: [d1] }
  - parallel: p
    branches:
      - steps: [{ step: b, job: j, at: s1 }]
      - steps: [{ step: c, job: j, at: s3, writes: [d2] }]
  - { step: d, job: j, at: s2, reads: [d1, d2] }
";

/// Figure 6: d1 goes from a to its readers, whichever path control takes.
const FIGURE_6: &str = "
process: figure-6
data: { d1: string, yes: bool }
start: [yes]
steps:
  - { step: a, job: j, at: s1, writes: [d1] }
  - { step: b, job: j, at: s2 }
  - parallel: p
    branches:
      - steps: [{ step: c, job: j, at: s3, reads: [d1] }, { step: d, job: j, at: s3 }]
      - steps: [{ step: e, job: j, at: s4, reads: [d1] }, { step: f, job: j, at: s4, reads: [d1] }]
  - { step: g, job: j, at: s5 }
  - choice: x
    branches:
      - { name: read, when: yes, steps: [{ step: h, job: j, at: s5, reads: [d1] }] }
      - { name: leave, otherwise: true }
";

struct Case {
    schema: Schema,
}

/// What a server knows: some entries of a process without loops.
struct Knowledge<'c> {
    case: &'c Case,
    entries: Vec<Activity>,
}

struct Servers;

impl Map for Servers {
    fn domain_named(&self, name: &str) -> Option<DomainId> {
        name.strip_prefix('s')?.parse().ok().map(DomainId)
    }

    fn domain_of(&self, server: ServerId) -> Option<DomainId> {
        Some(DomainId(server.0))
    }

    fn server_in(&self, domain: DomainId, _: InstanceId) -> Option<ServerId> {
        Some(ServerId(domain.0))
    }
}

impl Case {
    fn new(text: &str) -> Self {
        let (definition, findings) = yaml::parse(text);
        assert_eq!(findings, []);
        Self { schema: compile(&definition.unwrap(), 1).unwrap() }
    }

    fn knowing(&self, entries: &str) -> Knowledge<'_> {
        let start = Activity::once(Schema::START);
        let entries = [start].into_iter().chain(entries.chars().map(|name| self.of(name)));
        Knowledge { case: self, entries: entries.collect() }
    }

    fn of(&self, name: char) -> Activity {
        Activity::once(self.schema.node_named(&name.to_string()).unwrap().id)
    }

    fn names(&self, activities: &[Activity]) -> String {
        let named = |activity: &Activity| self.schema.node(activity.node).name.clone();
        activities.iter().map(named).filter(|name| name.len() == 1).map(|n| n.to_string()).collect()
    }

    fn movement(&self, source: char, target: NodeId, to: u16) -> Move {
        let target = Activity::once(target);
        Move { to: ServerId(to), passages: vec![Passage { source: self.of(source), target }] }
    }
}

impl Knowledge<'_> {
    /// Algorithm 2 over everything that is known here.
    fn to_send(&self, source: char, last: &[Activity]) -> Vec<Activity> {
        let (schema, source) = (&self.case.schema, [self.case.of(source)]);
        let entries = self.entries.iter();
        entries.filter(|entry| is_missing(schema, entry, &source, last)).cloned().collect()
    }

    fn take(&mut self, entries: &[Activity]) {
        let unknown: Vec<Activity> = entries
            .iter()
            .filter(|entry| !knows(&self.case.schema, self, entry))
            .cloned()
            .collect();
        self.entries.extend(unknown);
    }
}

impl Known for Knowledge<'_> {
    fn instance(&self) -> InstanceId {
        InstanceId(1)
    }

    fn is_completed(&self, node: NodeId) -> bool {
        let node = self.case.schema.node(node);
        let mut into = node.incoming.iter().map(|edge| self.is_completed(edge.from));
        if node.has_entry() {
            self.entries.contains(&Activity::once(node.id))
        } else if matches!(node.kind, NodeKind::AndJoin) {
            into.all(|completed| completed)
        } else {
            into.any(|completed| completed)
        }
    }

    fn is_skipped(&self, _: NodeId) -> bool {
        false
    }

    fn round(&self, _: LoopId) -> u32 {
        0
    }

    fn lasts(&self) -> impl Iterator<Item = Last> {
        let server = |activity: &Activity| {
            place(&self.case.schema, &Nowhere, &Servers, activity.node).unwrap()
        };
        let last = move |activity: &Activity| Last {
            activity: activity.clone(),
            server: server(activity),
            home: None,
        };
        self.entries.iter().map(last)
    }

    fn start(&self) -> ServerId {
        ServerId(1)
    }
}

/// Static places depend on no history.
struct Nowhere;

impl Known for Nowhere {
    fn instance(&self) -> InstanceId {
        InstanceId(1)
    }

    fn is_completed(&self, _: NodeId) -> bool {
        false
    }

    fn is_skipped(&self, _: NodeId) -> bool {
        false
    }

    fn round(&self, _: LoopId) -> u32 {
        0
    }

    fn lasts(&self) -> impl Iterator<Item = Last> {
        std::iter::empty()
    }

    fn start(&self) -> ServerId {
        ServerId(1)
    }
}

#[test]
fn a3_1_and_a3_2_each_entry_is_sent_once_whichever_branch_comes_first() {
    let case = Case::new(FIGURE_4);
    let (server_3, server_1) = (case.knowing("abcdef"), case.knowing("abcdh"));
    for f_first in [true, false] {
        let mut target = case.knowing("ab");
        let mut sent = BTreeMap::new();
        let moves = if f_first { ['f', 'h'] } else { ['h', 'f'] };
        for source in moves {
            let last = last_activities(&case.schema, &target, &[case.of(source)]);
            let from = if source == 'f' { &server_3 } else { &server_1 };
            let entries = from.to_send(source, &last);
            sent.insert(source, (case.names(&last), case.names(&entries)));
            target.take(&entries);
        }
        let expected = if f_first {
            [('f', ("b", "cdef")), ('h', ("d", "h"))]
        } else {
            [('f', ("d", "ef")), ('h', ("b", "cdh"))]
        };
        let expected = expected.map(|(m, (last, sent))| (m, (last.to_owned(), sent.to_owned())));
        assert_eq!(sent, BTreeMap::from(expected));
        assert_eq!(target.entries.len(), 1 + "abcdefh".len());
    }
}

#[test]
fn a3_3_unknown_entries_are_appended_in_the_order_received() {
    let case = Case::new(FIGURE_3);
    let mut target = case.knowing("abc");
    target.take(&case.knowing("abde").entries);
    assert_eq!(case.names(&target.entries), "abcde");
}

#[test]
fn a3_4_an_element_goes_along_with_the_entry_of_its_writer() {
    let case = Case::new(FIGURE_5);
    let mut target = case.knowing("");
    target.entries.clear();
    let last = last_activities(&case.schema, &target, &[case.of('b')]);
    let first = case.knowing("ab").to_send('b', &last);
    assert_eq!(case.names(&first), "ab", "with d1");
    target.take(&first);
    let last = last_activities(&case.schema, &target, &[case.of('c')]);
    let second = case.knowing("ac").to_send('c', &last);
    assert_eq!(case.names(&second), "c", "with d2 and not with d1");
}

#[test]
fn a3_5_a_large_element_comes_from_the_cheapest_server_that_has_it() {
    let case = Case::new(FIGURE_6);
    let element = case.schema.element_named("d1").unwrap();
    let last_writer = |_, _: &Activity| Some((case.of('a'), ServerId(1)));
    let from = |entries: &str, reader: char, here: u16, cheapest: &[u16]| -> Vec<u16> {
        let known = case.knowing(entries);
        let reader = Reader { activity: &case.of(reader), element };
        let cost =
            |server: ServerId| cheapest.iter().position(|at| *at == server.0).unwrap() as u32;
        let servers = sources(&case.schema, &known, reader, last_writer, cost, ServerId(here));
        servers.into_iter().map(|server| server.0).collect()
    };
    assert_eq!(from("ab", 'c', 3, &[1, 2, 3, 4, 5]), [1], "not by way of server 2");
    assert_eq!(from("abcdefg", 'h', 5, &[4, 3, 1, 2, 5]), [4, 3, 1]);
    assert_eq!(from("abcdefg", 'h', 5, &[1, 2, 3, 4, 5]), [1, 3, 4]);
}

#[test]
fn a_content_is_asked_of_the_server_that_has_it_and_then_of_the_cheapest() {
    let cost = |server: ServerId| [9, 4, 7, 4][usize::from(server.0)];
    let asked = |servers: &[u16], known: Option<u16>| -> Vec<u16> {
        let servers = servers.iter().copied().map(ServerId);
        let order = cheapest_first(servers, known.map(ServerId), cost);
        order.into_iter().map(|server| server.0).collect()
    };
    assert_eq!(asked(&[0, 1, 2, 3], None), [1, 3, 2, 0]);
    assert_eq!(asked(&[0, 1, 2, 3], Some(0)), [0, 1, 3, 2]);
    assert_eq!(asked(&[2, 0], None), [2, 0], "the cheaper ones are down");
    assert_eq!(asked(&[2, 0], Some(1)), [2, 0]);
}

#[test]
fn only_where_nobody_else_can_have_told_the_target_it_need_not_be_asked() {
    let case = Case::new(FIGURE_4);
    let node = |name| case.of(name).node;
    let proven = |known: &Knowledge<'_>, source: char, target: char, to: u16| {
        let told = [];
        let sources = [case.of(source)];
        let last = last_activities_of(&case.schema, known, ServerId(to), &told, &sources);
        let missing = known.to_send(source, &last);
        is_proven(&case.schema, known, &Servers, &case.movement(source, node(target), to), &missing)
    };
    assert!(proven(&case.knowing("a"), 'a', 'b', 2), "there is one way only");
    assert!(proven(&case.knowing("ab"), 'b', 'c', 1), "and one way back");
    assert!(!proven(&case.knowing("abcdef"), 'f', 'g', 2), "i may have been reached before");
    assert!(!proven(&case.knowing("abcdh"), 'h', 'i', 2), "g may have been reached before");
    let split = case.schema.node_named("p").unwrap().id;
    let known = case.knowing("abcd");
    let edge = Passage { source: Activity::once(split), target: case.of('e') };
    let movement = Move { to: ServerId(3), passages: vec![edge] };
    let missing = known.entries.clone();
    assert!(is_proven(&case.schema, &known, &Servers, &movement, &missing), "3 is nowhere else");
}
