//! A person's list over several servers: a client that follows the deltas has the same list as a
//! full read, whatever the servers report, oldest items first.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::arbitrary::cases;
use legwork_model::compile::compile;
use legwork_model::id::{Activity, ActivityId, AgentId, InstanceId, Iteration, NodeId, ServerId};
use legwork_model::rule::Rule;
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_org::{
    Elsewhere, ItemKey, MergedCursor, MergedDelta, MergedItem, MergedRead, Organisation,
    Performers, Worklists,
};
use proptest::prelude::*;

const HERE: ServerId = ServerId(1);

#[derive(Clone, Debug)]
enum Op {
    Offer {
        item: u128,
        at: i64,
    },
    Claim {
        item: u128,
        by: &'static str,
    },
    Withdraw {
        item: u128,
    },
    Put {
        server: u16,
        item: u128,
        at: i64,
        text: u8,
    },
    Remove {
        server: u16,
        item: u128,
    },
    /// A server sends a full report.
    Reset {
        server: u16,
        items: Vec<(u128, i64, u8)>,
    },
    Mark {
        server: u16,
        unreachable: bool,
    },
    Forget {
        server: u16,
    },
    /// The person was not followed for a while.
    Lapse,
    Read {
        limit: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let (own, foreign, at) = (0..6_u128, 10..16_u128, 0..20_i64);
    let server = prop_oneof![Just(0_u16), Just(2)];
    let told = prop::collection::vec((foreign.clone(), at.clone(), 0..2_u8), 0..4);
    prop_oneof![
        4 => (own.clone(), at.clone()).prop_map(|(item, at)| Op::Offer { item, at }),
        2 => (own.clone(), prop_oneof![Just("ann"), Just("bob")])
            .prop_map(|(item, by)| Op::Claim { item, by }),
        2 => own.prop_map(|item| Op::Withdraw { item }),
        6 => (server.clone(), foreign.clone(), at, 0..2_u8)
            .prop_map(|(server, item, at, text)| Op::Put { server, item, at, text }),
        3 => (server.clone(), foreign).prop_map(|(server, item)| Op::Remove { server, item }),
        1 => (server.clone(), told).prop_map(|(server, items)| Op::Reset { server, items }),
        1 => (server.clone(), any::<bool>())
            .prop_map(|(server, unreachable)| Op::Mark { server, unreachable }),
        1 => server.prop_map(|server| Op::Forget { server }),
        1 => Just(Op::Lapse),
        8 => (1..5_usize).prop_map(|limit| Op::Read { limit }),
    ]
}

struct Bench {
    organisation: Organisation,
    schema: Arc<Schema>,
    worklists: Worklists,
    elsewhere: Elsewhere<u8>,
    numbers: u64,
    agent: AgentId,
}

struct Nobody;

impl Performers for Nobody {
    fn performer(&self, _: &str) -> Option<AgentId> {
        None
    }

    fn starter(&self) -> Option<AgentId> {
        None
    }
}

/// When it was offered, at which server, and its description.
type Line = (Timestamp, ServerId, String);

#[derive(Default)]
struct Client {
    cursor: Option<MergedCursor>,
    lines: BTreeMap<InstanceId, Line>,
}

impl Bench {
    fn new() -> Self {
        let source = "organisation: o\nagents:\n  ann: { roles: [r] }\n  bob: { roles: [r] }\n";
        let organisation = Organisation::parse(source).0.unwrap();
        let text = "process: p\nsteps:\n  - step: a\n    who: Role(r)\n";
        let definition = legwork_model::yaml::parse(text).0.unwrap();
        Self {
            worklists: Worklists::new(7, &organisation),
            organisation,
            schema: Arc::new(compile(&definition, 1).unwrap()),
            elsewhere: Elsewhere::new(1),
            numbers: 1,
            agent: AgentId::from("ann"),
        }
    }

    fn key(&self, item: u128) -> ItemKey {
        let node = self.schema.node_named("a").map_or(NodeId(0), |node| node.id);
        ItemKey { instance: InstanceId(item + 1), activity: Activity::once(node) }
    }

    fn act(&mut self, op: Op) {
        match op {
            Op::Offer { item, at } => {
                let rule: Rule = "Role(r)".parse().unwrap();
                let resolved = self.organisation.resolve(&rule, &Nobody);
                self.worklists.offer(&self.key(item), &self.schema, &resolved, Timestamp(at));
            }
            Op::Claim { item, by } => {
                let key = self.key(item);
                self.worklists.claim(&key, &AgentId::from(by), Timestamp(50));
            }
            Op::Withdraw { item } => {
                let key = self.key(item);
                self.worklists.withdraw(&key);
            }
            Op::Put { server, item, at, text } => {
                self.elsewhere.put(ServerId(server), named(item), Timestamp(at), text);
            }
            Op::Remove { server, item } => self.elsewhere.remove(ServerId(server), &named(item)),
            Op::Reset { server, items } => {
                self.elsewhere.begin(ServerId(server));
                for (item, at, text) in items {
                    self.elsewhere.put(ServerId(server), named(item), Timestamp(at), text);
                }
                self.elsewhere.end(ServerId(server));
            }
            Op::Mark { server, unreachable } => {
                self.elsewhere.mark(ServerId(server), unreachable.then_some(Timestamp(1)));
            }
            Op::Forget { server } => self.elsewhere.forget(ServerId(server)),
            Op::Lapse => {
                self.numbers += 1;
                self.elsewhere = Elsewhere::new(self.numbers);
            }
            Op::Read { .. } => {}
        }
    }

    fn read(&self, since: Option<MergedCursor>, limit: usize) -> MergedDelta<'_, u8> {
        let read = self.merged();
        // A cursor survives the way to the client and back.
        let since = since.map(|cursor| cursor.to_string().parse().unwrap());
        let told = self.worklists.list_merged(&read, since, limit);
        let is_news = told.reset
            || !told.items.is_empty()
            || !told.removed.is_empty()
            || !told.removed_there.is_empty();
        let may_be = since.is_none_or(|cursor| self.worklists.merged_changed_since(&read, cursor));
        assert!(may_be || !is_news, "a waiting reader is told of each change");
        told
    }

    fn merged(&self) -> MergedRead<'_, u8> {
        let agent = &self.agent;
        let (organisation, elsewhere) = (&self.organisation, &self.elsewhere);
        MergedRead { organisation, agent, now: Timestamp(60), here: HERE, elsewhere }
    }

    /// The whole list, a few items at a time.
    fn afresh(&self, limit: usize) -> Client {
        let mut client = Client::default();
        let mut last = None;
        loop {
            let delta = self.read(client.cursor, limit);
            let places: Vec<_> = delta.items.iter().map(place).collect();
            assert!(places.is_sorted() && last <= places.first().copied(), "the oldest first");
            last = places.last().copied().or(last);
            let more = delta.more;
            client.apply(delta, limit);
            if !more {
                return client;
            }
        }
    }
}

impl Client {
    fn apply(&mut self, delta: MergedDelta<'_, u8>, limit: usize) {
        assert!(delta.items.len() <= limit, "a page is no longer than was asked for");
        if delta.reset {
            self.lines.clear();
        }
        for gone in &delta.removed {
            self.lines.remove(&gone.key.instance);
        }
        for gone in &delta.removed_there {
            self.lines.remove(&gone.instance);
        }
        for item in &delta.items {
            let (at, server) = place(item);
            let (instance, shown) = match item {
                MergedItem::Here(view) => {
                    (view.key.instance, format!("{:?}", view.item.claimed_by))
                }
                MergedItem::There(there) => {
                    (there.activity.instance, format!("{} {}", there.item, there.stale))
                }
            };
            self.lines.insert(instance, (at, server, shown));
        }
        self.cursor = Some(delta.cursor);
    }
}

fn place(item: &MergedItem<'_, u8>) -> (Timestamp, ServerId) {
    match item {
        MergedItem::Here(view) => (view.item.offered_at, HERE),
        MergedItem::There(there) => (there.offered_at, there.server),
    }
}

fn named(item: u128) -> ActivityId {
    let iteration = Iteration::default();
    ActivityId { instance: InstanceId(item + 1), step: "a".into(), iteration }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn deltas_over_several_servers_give_what_a_full_read_gives(
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let (mut bench, mut client) = (Bench::new(), Client::default());
        for op in ops {
            if let Op::Read { limit } = op {
                let delta = bench.read(client.cursor, limit);
                let more = delta.more;
                client.apply(delta, limit);
                if !more {
                    let fresh = bench.afresh(limit);
                    prop_assert_eq!(&client.lines, &fresh.lines);
                    prop_assert_eq!(&fresh.lines, &bench.afresh(1_000).lines);
                }
            } else {
                bench.act(op);
            }
        }
    }
}

#[test]
fn an_item_is_where_it_was_told_of_last() {
    let mut elsewhere = Elsewhere::new(1);
    elsewhere.put(ServerId(0), named(1), Timestamp(1), 0);
    elsewhere.put(ServerId(2), named(1), Timestamp(1), 0);
    elsewhere.remove(ServerId(0), &named(1));
    assert_eq!(elsewhere.server_of(&named(1)), Some(ServerId(2)));
    assert_eq!((elsewhere.len_at(ServerId(0)), elsewhere.len_at(ServerId(2))), (0, 1));
}

#[test]
fn what_is_told_again_unchanged_is_no_news() {
    let mut elsewhere = Elsewhere::new(1);
    elsewhere.put(ServerId(0), named(1), Timestamp(1), 0);
    let before = elsewhere.revision();
    elsewhere.begin(ServerId(0));
    elsewhere.put(ServerId(0), named(1), Timestamp(1), 0);
    elsewhere.end(ServerId(0));
    assert_eq!(elsewhere.revision(), before);
}

#[test]
fn foreign_cursors_are_refused() {
    for text in
        ["", "1-2-3-4-5", "1-2-3-4-5-6-7-8-9", "1-2-3-4-5-6-7-10000-9-a", "1-2-3-4-5-6-7-8-9-g"]
    {
        assert!(text.parse::<MergedCursor>().is_err(), "{text}");
    }
}
