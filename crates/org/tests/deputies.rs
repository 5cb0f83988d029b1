//! Substitutes: chains end, and a substitute is present and may do the work.
//!
//! Compared with the literal reading of the rule: an agent's own substitutes, then those of the
//! absent ones among them, and so on; the first one present and not barred does the work.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a wrong assumption is a failed test")]

use std::fmt::Write;
use std::sync::Arc;

use legwork_model::compile::compile;
use legwork_model::id::{Activity, AgentId, InstanceId, NodeId};
use legwork_model::rule::Rule;
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_org::{ItemKey, Organisation, Performers, Resolved, Worklists};
use proptest::prelude::*;

const AGENTS: usize = 7;
const NOW: &str = "2026-06-01T00:00:00Z";

/// For each agent whether they are absent, and their substitutes.
type Plan = Vec<(bool, Vec<usize>)>;

struct Asked(AgentId);

impl Performers for Asked {
    fn performer(&self, _: &str) -> Option<AgentId> {
        Some(self.0.clone())
    }

    fn starter(&self) -> Option<AgentId> {
        None
    }
}

fn agent(number: usize) -> AgentId {
    AgentId::from(&*format!("p{number}"))
}

/// All are in one unit with one manager.
fn organisation(plan: &Plan, manager: usize) -> Organisation {
    let mut source = format!(
        "organisation: o\nunits: {{ all: {{ manager: p{manager} }} }}\n\
         positions: {{ staff: {{ unit: all }} }}\nagents:\n"
    );
    for (number, (away, substitutes)) in plan.iter().enumerate() {
        let mut named: Vec<String> = Vec::new();
        for &other in substitutes.iter().filter(|&&other| other != number) {
            let name = format!("p{other}");
            if !named.contains(&name) {
                named.push(name);
            }
        }
        let absent = if *away { "{ from: 2026-01-01 }" } else { "" };
        let named = named.join(", ");
        let staff = "positions: [staff]";
        writeln!(source, "  p{number}: {{ {staff}, substitutes: [{named}], absent: [{absent}] }}")
            .unwrap();
    }
    let (organisation, findings) = Organisation::parse(&source);
    organisation.unwrap_or_else(|| panic!("{source}\n{findings:?}"))
}

fn plans() -> impl Strategy<Value = Plan> {
    let one = (prop::bool::weighted(0.6), prop::collection::vec(0..AGENTS, 0..4));
    prop::collection::vec(one, AGENTS)
}

/// The literal rule, a round for each further step of the chain.
fn expected(organisation: &Organisation, absent: usize, step: &Resolved) -> Option<AgentId> {
    let now: Timestamp = NOW.parse().unwrap();
    let mut seen = vec![agent(absent)];
    let mut round = vec![agent(absent)];
    for _ in 0..AGENTS {
        let mut next = Vec::new();
        for one in &round {
            for other in &organisation.agent(one).unwrap().substitutes {
                if !seen.contains(other) {
                    seen.push(other.clone());
                    next.push(other.clone());
                }
            }
        }
        let fits = |one: &&AgentId| !organisation.is_absent(one, now) && !step.bars(one);
        if let Some(found) = next.iter().find(fits) {
            return Some(found.clone());
        }
        next.retain(|one| organisation.is_absent(one, now));
        round = next;
    }
    None
}

fn item() -> (Arc<Schema>, ItemKey) {
    let source = "process: p\nsteps: [{ step: a, who: Agent() }]\n";
    let (definition, _) = legwork_model::yaml::parse(source);
    let schema = Arc::new(compile(&definition.unwrap(), 1).unwrap());
    (schema, ItemKey { instance: InstanceId(1), activity: Activity::once(NodeId(1)) })
}

#[test]
fn when_the_first_deputy_leaves_as_well_the_next_is_told() {
    let (organisation, _) = Organisation::parse(
        "organisation: o\nagents:\n  \
         ann: { substitutes: [ben, cora], absent: [{ from: 2026-06-01, to: 2026-06-30 }] }\n  \
         ben: { absent: [{ from: 2026-06-10, to: 2026-06-12 }] }\n  cora: {}\n",
    );
    let organisation = organisation.unwrap();
    let at = |text: &str| -> Timestamp { text.parse().unwrap() };
    let step = organisation.resolve(&"Agent(ann)".parse().unwrap(), &Asked("nobody".into()));
    let (schema, key) = item();
    let mut lists = Worklists::new(1, &organisation);
    lists.offer(&key, &schema, &step, at("2026-06-02T00:00:00Z"));
    let mut has = Vec::new();
    let mut cursor = None;
    for day in ["2026-06-02", "2026-06-11", "2026-06-13"] {
        let now = at(&format!("{day}T12:00:00Z"));
        let delta = lists.list(&organisation, &"cora".into(), now, cursor, 10);
        has.push((delta.reset, delta.items.len()));
        cursor = Some(delta.cursor);
    }
    assert_eq!(has, [(true, 0), (true, 1), (true, 0)]);
}

proptest! {
    #[test]
    fn the_first_who_is_there_and_not_barred_stands_in_and_nobody_else(
        plan in plans(),
        asked in 0..AGENTS,
        approver in 0..AGENTS,
        kind in 0..3,
    ) {
        let organisation = organisation(&plan, approver);
        let now: Timestamp = NOW.parse().unwrap();
        let rule = match kind {
            0 => format!("Agent(p{approver}) EXCEPT NodePerformingAgent(ask)"),
            1 => format!("Agent(p{approver}) EXCEPT (NodePerformingAgent(ask) OR Agent(p0) OR Agent(p1))"),
            _ => "ManagerOf(NodePerformingAgent(ask))".to_owned(),
        };
        let step = organisation.resolve(&rule.parse::<Rule>().unwrap(), &Asked(agent(asked)));
        let found = organisation.stand_in_at(&agent(approver), &step, now);
        let is_absent = organisation.is_absent(&agent(approver), now);
        let wanted = if is_absent { expected(&organisation, approver, &step) } else { None };
        prop_assert_eq!(&found, &wanted);
        if let Some(found) = &found {
            prop_assert!(!organisation.is_absent(found, now));
            prop_assert!(*found != agent(approver) && !step.bars(found));
            prop_assert!(*found != agent(asked), "nobody approves what they have asked for");
            prop_assert!(organisation.may_stand_in_for(found, now).contains(&agent(approver)));
        }
        // The same people see the item, and may work on it.
        let (schema, key) = item();
        let mut lists = Worklists::new(1, &organisation);
        lists.offer(&key, &schema, &step, now);
        for number in 0..AGENTS {
            let one = agent(number);
            let own = step.actors.contains(&one);
            let stands_in = !step.actors.is_empty() && found.as_ref() == Some(&one);
            prop_assert_eq!(lists.sees(&organisation, &one, &key, now), own || stands_in, "{}", one);
            prop_assert_eq!(lists.may_work_on(&organisation, &one, &key, now), own || stands_in);
            let for_whom = (!own && stands_in).then(|| agent(approver));
            prop_assert_eq!(lists.on_behalf_of(&organisation, &one, &key, now), for_whom);
            let listed = lists.list(&organisation, &one, now, None, 10);
            prop_assert_eq!(listed.items.len(), usize::from(own || stands_in));
        }
    }
}
