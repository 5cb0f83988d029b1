//! A client that follows the deltas has the same list as a full read, whatever happens.
//!
//! Random offers, claims, releases, delegations and withdrawals, absences that begin and end,
//! clocks that jump, new organisations and restarts, against a model that keeps one plain map and
//! answers every question from scratch. Few removals are remembered, so that resets happen too.

#![expect(clippy::unwrap_used, reason = "a wrong assumption is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use legwork_model::arbitrary::cases;
use legwork_model::compile::compile;
use legwork_model::id::{Activity, AgentId, InstanceId, Iteration, NodeId};
use legwork_model::rule::Rule;
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_org::{
    Cursor, Delta, ItemKey, Organisation, Performers, Resolved, Retention, Worklists,
};
use proptest::prelude::*;

const AGENTS: usize = 6;
const ITEMS: usize = 8;
const RULES: [&str; 9] = [
    "Role(r)",
    "Role(s)",
    "Role(r) EXCEPT NodePerformingAgent(x)",
    "Agent() EXCEPT NodePerformingAgent(x)",
    "NodePerformingAgent(x)",
    "(Role(r) EXCEPT NodePerformingAgent(x)) OR Agent(p0)",
    "Role(r) AND Role(s)",
    "Role(r) EXCEPT Role(s)",
    "OrgUnitOf(NodePerformingAgent(x))",
];

#[derive(Clone, Debug)]
enum Op {
    Offer { item: usize, rule: usize, performer: usize },
    Claim { item: usize, agent: usize },
    Delegate { item: usize, agent: usize },
    Release { item: usize },
    Withdraw { item: usize },
    Time { now: i64 },
    Publish(Plan),
    Forget,
    Restart,
    Read { client: usize, limit: usize },
}

/// A generated organisation.
#[derive(Clone, Debug)]
struct Plan(Vec<AgentPlan>);

/// Bits of the roles, the unit, substitutes, and absences with their lengths.
type AgentPlan = (u8, u8, Vec<usize>, Vec<(i64, i64)>);

fn plan() -> impl Strategy<Value = Plan> {
    let substitutes = prop::collection::vec(0..AGENTS, 0..3);
    let absences = prop::collection::vec((0..60_i64, 1..40_i64), 0..3);
    let agent = (0..8_u8, 0..3_u8, substitutes, absences);
    prop::collection::vec(agent, 2..=AGENTS).prop_map(Plan)
}

fn op() -> impl Strategy<Value = Op> {
    let (item, agent) = (0..ITEMS, 0..AGENTS);
    prop_oneof![
        6 => (item.clone(), 0..RULES.len(), agent.clone())
            .prop_map(|(item, rule, performer)| Op::Offer { item, rule, performer }),
        6 => (item.clone(), agent.clone()).prop_map(|(item, agent)| Op::Claim { item, agent }),
        2 => (item.clone(), agent).prop_map(|(item, agent)| Op::Delegate { item, agent }),
        3 => item.clone().prop_map(|item| Op::Release { item }),
        3 => item.prop_map(|item| Op::Withdraw { item }),
        2 => (0..100_i64).prop_map(|now| Op::Time { now }),
        1 => plan().prop_map(Op::Publish),
        1 => Just(Op::Forget),
        1 => Just(Op::Restart),
        12 => (0..AGENTS * 2, 1..4_usize).prop_map(|(client, limit)| Op::Read { client, limit }),
    ]
}

fn retention() -> impl Strategy<Value = Retention> {
    (0..4_usize, 1..6_usize, 0..4_usize).prop_map(|(min, max, idle_lists_max)| Retention {
        removals_min: min,
        removals_max: max,
        idle_lists_max,
    })
}

impl Plan {
    fn organisation(&self) -> Organisation {
        let mut source = "organisation: o\nunits: { u0: , u1: }\npositions:\n".to_owned();
        source.push_str("  q0: { unit: u0 }\n  q1: { unit: u1 }\nagents:\n");
        for (number, (roles, unit, substitutes, absences)) in self.0.iter().enumerate() {
            let roles: Vec<&str> = [(1, "r"), (2, "s")]
                .into_iter()
                .filter(|(bit, _)| roles & bit != 0)
                .map(|(_, role)| role)
                .collect();
            let position = if *unit < 2 { format!("q{unit}") } else { String::new() };
            let mut substitutes = substitutes.clone();
            substitutes.retain(|&other| other != number && other < self.0.len());
            substitutes.dedup();
            if substitutes.first() == substitutes.last() {
                substitutes.truncate(1);
            }
            let substitutes: Vec<String> =
                substitutes.iter().map(|other| format!("p{other}")).collect();
            let absences: Vec<String> = absences
                .iter()
                .map(|(from, length)| {
                    let (from, to) = (Timestamp(*from), Timestamp(from + length));
                    format!("{{ from: '{from}', to: '{to}' }}")
                })
                .collect();
            let _ = writeln!(
                source,
                "  p{number}: {{ roles: [{}], positions: [{position}], substitutes: [{}], \
                 absent: [{}] }}",
                roles.join(", "),
                substitutes.join(", "),
                absences.join(", ")
            );
        }
        let (organisation, findings) = Organisation::parse(&source);
        assert!(organisation.is_some(), "{source}\n{findings:?}");
        organisation.unwrap()
    }
}

/// The truth, kept as plainly as possible.
struct Model {
    organisation: Organisation,
    now: Timestamp,
    items: Items,
    /// All items since the organisation was last replaced, after each change.
    before: Vec<Items>,
    offers: u64,
}

type Items = BTreeMap<usize, ModelItem>;

#[derive(Clone)]
struct ModelItem {
    rule: usize,
    performer: AgentId,
    holder: Option<AgentId>,
    offered_at: Timestamp,
    /// Grows with every new item.
    order: u64,
}

struct Client {
    agent: AgentId,
    cursor: Option<Cursor>,
    has: BTreeMap<ItemKey, Seen>,
    /// Whether the last page was complete.
    complete: bool,
}

/// Holder, and for whom it is seen.
type Seen = (Option<AgentId>, Option<AgentId>);

impl Performers for ModelItem {
    fn performer(&self, _: &str) -> Option<AgentId> {
        Some(self.performer.clone())
    }

    fn starter(&self) -> Option<AgentId> {
        None
    }
}

impl ModelItem {
    fn resolve(&self, organisation: &Organisation) -> Resolved {
        let rule: Rule = RULES[self.rule].parse().unwrap();
        organisation.resolve(&rule, self)
    }
}

impl Model {
    fn sight(&self, agent: &AgentId, item: &ModelItem) -> Option<Seen> {
        if !self.organisation.contains(agent) {
            return None;
        }
        let resolved = item.resolve(&self.organisation);
        let actors = &resolved.actors;
        let concerns = |person: &AgentId| match &item.holder {
            Some(holder) => holder == person,
            None => actors.contains(person),
        };
        if concerns(agent) {
            return Some((item.holder.clone(), None));
        }
        let absent = self.organisation.agents().iter().map(|other| &other.id).find(|other| {
            let stand_in = self.organisation.stand_in_at(other, &resolved, self.now);
            stand_in.as_ref() == Some(agent) && concerns(other)
        });
        absent.map(|absent| (item.holder.clone(), Some(absent.clone())))
    }

    fn list(&self, agent: &AgentId) -> BTreeMap<ItemKey, Seen> {
        self.list_of(&self.items, agent)
    }

    fn list_of(&self, items: &Items, agent: &AgentId) -> BTreeMap<ItemKey, Seen> {
        let seen = items
            .iter()
            .filter_map(|(number, item)| Some((key(*number), self.sight(agent, item)?)));
        seen.collect()
    }

    /// Whether the agent could have seen it at some time, in the agent's current position.
    fn could_see(&self, agent: &AgentId, key: &ItemKey) -> bool {
        self.before.iter().any(|items| self.list_of(items, agent).contains_key(key))
    }
}

impl Client {
    fn take(&mut self, delta: Delta, limit: usize) {
        assert!(delta.items.len() <= limit && delta.removed.len() <= limit.max(2));
        if delta.reset {
            self.has.clear();
        }
        for removed in &delta.removed {
            self.has.remove(&removed.key);
        }
        let keys: BTreeSet<&ItemKey> = delta.items.iter().map(|view| &view.key).collect();
        assert_eq!(keys.len(), delta.items.len(), "told twice in one page");
        for view in delta.items {
            self.has.insert(view.key, (view.item.claimed_by, view.on_behalf_of));
        }
        self.cursor = Some(delta.cursor);
        self.complete = !delta.more;
    }
}

fn key(number: usize) -> ItemKey {
    let node = NodeId(number as u32 % 3);
    let iteration = Iteration(if number.is_multiple_of(2) { vec![] } else { vec![number as u32] });
    ItemKey { instance: InstanceId(number as u128 / 3), activity: Activity { node, iteration } }
}

fn agent(number: usize) -> AgentId {
    AgentId::from(&*format!("p{number}"))
}

fn schema() -> Arc<Schema> {
    let (definition, _) =
        legwork_model::yaml::parse("process: p\nsteps: [{ step: a, who: Agent() }]\n");
    Arc::new(compile(&definition.unwrap(), 1).unwrap())
}

fn apply(op: &Op, model: &mut Model, lists: &mut Worklists, schema: &Arc<Schema>) {
    let at = model.now;
    match op {
        Op::Offer { item, rule, performer } => {
            model.offers += 1;
            let new = ModelItem {
                rule: *rule,
                performer: agent(*performer),
                holder: None,
                offered_at: at,
                order: model.items.get(item).map_or(model.offers, |before| before.order),
            };
            lists.offer(&key(*item), schema, &new.resolve(&model.organisation), at);
            model.items.insert(*item, new);
        }
        Op::Claim { item, agent: by } | Op::Delegate { item, agent: by } => {
            let known = if matches!(op, Op::Delegate { .. }) {
                lists.delegate(&key(*item), &agent(*by), at)
            } else {
                lists.claim(&key(*item), &agent(*by), at)
            };
            assert_eq!(known, model.items.contains_key(item));
            if let Some(item) = model.items.get_mut(item) {
                item.holder = Some(agent(*by));
            }
        }
        Op::Release { item } => {
            lists.release(&key(*item));
            if let Some(item) = model.items.get_mut(item) {
                item.holder = None;
            }
        }
        Op::Withdraw { item } => {
            assert_eq!(lists.withdraw(&key(*item)), model.items.remove(item).is_some());
        }
        Op::Time { now } => model.now = Timestamp(*now),
        Op::Publish(plan) => {
            model.organisation = plan.organisation();
            model.before.clear();
            let organisation = &model.organisation;
            let by_key: BTreeMap<ItemKey, &ModelItem> =
                model.items.iter().map(|(number, item)| (key(*number), item)).collect();
            let told = lists.reoffer(organisation, |key, item| {
                assert_eq!(item.claimed_by, by_key[key].holder);
                by_key[key].resolve(organisation)
            });
            for (key, item) in &by_key {
                let gone = item.holder.as_ref().is_some_and(|h| !organisation.contains(h));
                assert_eq!(told.without_holder.contains(key), gone);
                let nobody = item.holder.is_none() && item.resolve(organisation).actors.is_empty();
                assert_eq!(told.without_actors.contains(key), nobody);
            }
        }
        Op::Forget => lists.start_afresh(),
        Op::Restart | Op::Read { .. } => {}
    }
}

/// The start of a site: offers what waits, in any order, and claims what is held.
fn restart(model: &mut Model, epoch: u64, retention: Retention, schema: &Arc<Schema>) -> Worklists {
    let Model { organisation, items, now, .. } = model;
    let mut lists = Worklists::with_retention(epoch, organisation, retention);
    for (order, (number, item)) in (1..).zip(items) {
        item.order = order;
        lists.offer(&key(*number), schema, &item.resolve(organisation), item.offered_at);
        if let Some(holder) = &item.holder {
            lists.claim(&key(*number), holder, *now);
        }
    }
    if epoch.is_multiple_of(2) {
        lists.start_afresh();
    }
    lists
}

fn check_lists(model: &Model, lists: &Worklists) {
    assert_eq!(lists.len(), model.items.len());
    assert_eq!(lists.claimed(), model.items.values().filter(|item| item.holder.is_some()).count());
    for agent in (0..AGENTS).map(agent) {
        let list = model.list(&agent);
        let (mut cursor, mut read, mut ages) = (None, BTreeMap::new(), Vec::new());
        for page in 0.. {
            assert!(page < 100, "reading never ends");
            let delta = lists.list(&model.organisation, &agent, model.now, cursor, 2);
            assert_eq!(delta.reset, page == 0);
            for view in delta.items {
                let number = (0..ITEMS).find(|number| key(*number) == view.key).unwrap();
                let item = &model.items[&number];
                ages.push((item.offered_at, item.order));
                let before = read.insert(view.key, (view.item.claimed_by, view.on_behalf_of));
                assert!(before.is_none(), "told twice");
            }
            cursor = Some(delta.cursor);
            if !delta.more {
                break;
            }
        }
        assert_eq!(read, list, "a full read by {agent}");
        assert!(ages.is_sorted(), "oldest first: {ages:?}");
        for (number, item) in &model.items {
            let key = key(*number);
            let sees = lists.sees(&model.organisation, &agent, &key, model.now);
            assert_eq!(sees, list.contains_key(&key));
            let may = lists.may_work_on(&model.organisation, &agent, &key, model.now);
            assert!(may || !sees, "{agent} sees what they may not work on");
            let actors = item.resolve(&model.organisation).actors;
            assert!(may || !actors.contains(&agent));
            assert_eq!(lists.item(&key).unwrap().claimed_by, item.holder);
        }
    }
}

fn run(first: Plan, ops: Vec<Op>, retention: Retention) {
    let schema = schema();
    let organisation = first.organisation();
    let mut lists = Worklists::with_retention(0, &organisation, retention);
    let (now, items, before) = (Timestamp(0), BTreeMap::new(), Vec::new());
    let mut model = Model { organisation, now, items, before, offers: 0 };
    let mut clients: Vec<Client> = (0..AGENTS * 2)
        .map(|number| Client {
            agent: agent(number % AGENTS),
            cursor: None,
            has: BTreeMap::new(),
            complete: false,
        })
        .collect();
    for (epoch, op) in (1..).zip(ops) {
        apply(&op, &mut model, &mut lists, &schema);
        model.before.push(model.items.clone());
        match op {
            Op::Restart => {
                lists = restart(&mut model, epoch, retention, &schema);
                check_lists(&model, &lists);
            }
            Op::Read { client, limit } => {
                let client = &mut clients[client];
                let (agent, now) = (client.agent.clone(), model.now);
                let delta = lists.list(&model.organisation, &agent, now, client.cursor, limit);
                for gone in &delta.removed {
                    assert!(model.could_see(&agent, &gone.key), "{agent} never saw {:?}", gone.key);
                }
                client.take(delta, limit);
                if client.complete {
                    assert_eq!(client.has, model.list(&agent), "{agent} has read to the end");
                }
            }
            Op::Offer { .. }
            | Op::Claim { .. }
            | Op::Delegate { .. }
            | Op::Release { .. }
            | Op::Withdraw { .. }
            | Op::Time { .. }
            | Op::Publish(_)
            | Op::Forget => check_lists(&model, &lists),
        }
        for client in clients.iter().filter(|client| client.complete) {
            let cursor = client.cursor.unwrap();
            let agent = &client.agent;
            if !lists.changed_since(&model.organisation, agent, model.now, cursor) {
                assert_eq!(client.has, model.list(agent), "a change {agent} was not woken for");
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn following_deltas_gives_the_list_of_a_full_read(
        first in plan(),
        ops in prop::collection::vec(op(), 1..80),
        retention in retention(),
    ) {
        run(first, ops, retention);
    }

    #[test]
    fn it_also_does_with_the_default_retention(
        first in plan(),
        ops in prop::collection::vec(op(), 1..80),
    ) {
        run(first, ops, Retention::default());
    }
}
