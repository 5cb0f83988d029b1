//! The people of an organisation: agents, units, positions, roles, abilities, substitutes.
//!
//! Invariant: a value of this type is consistent: every name in it exists, the units form trees,
//! and the sets for rules are computed once, when it is read. It is immutable; a new version is a
//! new value.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::finding::Finding;
use legwork_model::id::AgentId;
use legwork_model::time::Timestamp;
use legwork_model::zone::Zone;

use crate::calendar::{Calendar, Regular};
use crate::set::{AgentSet, Roster};

#[derive(Clone, Debug)]
pub struct Organisation {
    name: Arc<str>,
    pub(crate) roster: Arc<Roster>,
    /// By their numbers in the roster.
    agents: Vec<Agent>,
    units: BTreeMap<Arc<str>, Unit>,
    positions: BTreeMap<Arc<str>, Position>,
    calendars: BTreeMap<Arc<str>, Calendar>,
    pub(crate) sets: Sets,
    pub(crate) absences: Absences,
}

/// A person, or a program acting as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    pub id: AgentId,
    /// For people to read.
    pub name: String,
    /// Their mail address.
    pub mail: Option<String>,
    pub positions: Vec<Arc<str>>,
    /// Held directly, not through a position.
    pub roles: Vec<Arc<str>>,
    pub abilities: Vec<Arc<str>>,
    /// Their working hours; without one, any hour is working time.
    pub calendar: Option<Arc<str>>,
    /// The share of their working time, in per cent, that is available for planned work.
    pub share: u32,
    /// The part of that share, in per cent, that is promised only after a fault.
    pub reserve: u32,
    pub regularly: Vec<Regular>,
    /// In order: the first one who is present stands in.
    pub substitutes: Vec<AgentId>,
    pub absent: Vec<Absence>,
}

/// From the first moment until the second, exclusive; without an end until further notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absence {
    pub from: Timestamp,
    pub to: Option<Timestamp>,
}

/// A unit of the organisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub name: Arc<str>,
    pub title: Option<String>,
    /// The parent unit.
    pub parent: Option<Arc<str>>,
    pub manager: Option<AgentId>,
}

/// A post in a unit; its holders have its roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub name: Arc<str>,
    pub title: Option<String>,
    pub unit: Arc<str>,
    pub roles: Vec<Arc<str>>,
}

/// The sets of agents that rules name.
#[derive(Clone, Debug)]
pub(crate) struct Sets {
    pub(crate) everybody: AgentSet,
    pub(crate) nobody: AgentSet,
    pub(crate) roles: BTreeMap<Arc<str>, AgentSet>,
    pub(crate) abilities: BTreeMap<Arc<str>, AgentSet>,
    pub(crate) positions: BTreeMap<Arc<str>, AgentSet>,
    pub(crate) units: BTreeMap<Arc<str>, UnitSets>,
}

#[derive(Clone, Debug)]
pub(crate) struct UnitSets {
    pub(crate) itself: AgentSet,
    pub(crate) and_below: AgentSet,
    pub(crate) below: AgentSet,
}

/// The inverse of the substitutes, and when absences change.
#[derive(Clone, Debug)]
pub(crate) struct Absences {
    pub(crate) substitutes: Vec<Vec<u32>>,
    /// For each agent those who name the agent as a substitute.
    pub(crate) substituted: Vec<Vec<u32>>,
    /// The moments at which an absence begins or ends, sorted.
    pub(crate) moments: Vec<Timestamp>,
}

/// The parts of an organisation before they are known to be consistent.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) name: Arc<str>,
    pub(crate) agents: BTreeMap<AgentId, Agent>,
    pub(crate) units: BTreeMap<Arc<str>, Unit>,
    pub(crate) positions: BTreeMap<Arc<str>, Position>,
    pub(crate) calendars: BTreeMap<Arc<str>, Calendar>,
}

/// Nobody: the organisation of a site before one is published.
impl Default for Organisation {
    fn default() -> Self {
        Self::new(Parts::default())
    }
}

impl Organisation {
    /// Reads an organisation and reports all mistakes, in the order of the text. Without an error
    /// among the findings there is an organisation.
    pub fn parse(source: &str) -> (Option<Self>, Vec<Finding>) {
        crate::read::parse(source)
    }

    /// Every name in the parts must exist and the units must form trees, which `read` sees to.
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { name, agents, units, positions, calendars } = parts;
        let roster = Arc::new(Roster::new(agents.keys().cloned().collect()));
        let agents: Vec<Agent> = agents.into_values().collect();
        let sets = Sets::new(&roster, &agents, &units, &positions);
        let absences = Absences::new(&roster, &agents);
        Self { name, roster, agents, units, positions, calendars, sets, absences }
    }

    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// By name.
    pub fn agents(&self) -> &[Agent] {
        &self.agents
    }

    pub fn agent(&self, id: &AgentId) -> Option<&Agent> {
        self.roster.number(id).map(|number| &self.agents[number as usize])
    }

    pub fn contains(&self, id: &AgentId) -> bool {
        self.roster.number(id).is_some()
    }

    pub fn units(&self) -> impl Iterator<Item = &Unit> {
        self.units.values()
    }

    pub fn positions(&self) -> impl Iterator<Item = &Position> {
        self.positions.values()
    }

    /// The zone of an agent's calendar; UTC without one.
    pub fn zone_of(&self, agent: &AgentId) -> Zone {
        let calendar =
            self.agent(agent).and_then(|agent| self.calendar(agent.calendar.as_deref()?));
        calendar.map_or(Zone::UTC, |calendar| calendar.zone.shown())
    }

    pub(crate) fn calendar(&self, name: &str) -> Option<&Calendar> {
        self.calendars.get(name)
    }

    /// Every role of a position or an agent, with its holders.
    pub fn roles(&self) -> impl Iterator<Item = (&Arc<str>, &AgentSet)> {
        self.sets.roles.iter()
    }

    /// Every ability of an agent, with those who have it.
    pub fn abilities(&self) -> impl Iterator<Item = (&Arc<str>, &AgentSet)> {
        self.sets.abilities.iter()
    }

    pub(crate) fn unit(&self, name: &str) -> Option<&Unit> {
        self.units.get(name)
    }

    /// The units of an agent's positions; without positions, the units that the agent manages.
    pub(crate) fn units_of(&self, number: u32) -> Vec<&Unit> {
        let agent = &self.agents[number as usize];
        let held = agent.positions.iter().filter_map(|position| self.positions.get(position));
        let mut units: Vec<&Unit> =
            held.filter_map(|position| self.units.get(&position.unit)).collect();
        if agent.positions.is_empty() {
            units.extend(
                self.units.values().filter(|unit| unit.manager.as_ref() == Some(&agent.id)),
            );
        }
        units
    }

    pub(crate) fn agent_numbered(&self, number: u32) -> &Agent {
        &self.agents[number as usize]
    }
}

impl Absence {
    pub fn covers(&self, moment: Timestamp) -> bool {
        self.from <= moment && self.to.is_none_or(|to| moment < to)
    }
}

impl Sets {
    fn new(
        roster: &Arc<Roster>,
        agents: &[Agent],
        units: &BTreeMap<Arc<str>, Unit>,
        positions: &BTreeMap<Arc<str>, Position>,
    ) -> Self {
        let mut roles = Collected::default();
        let mut abilities = Collected::default();
        let mut holders = Collected::default();
        let mut members = Collected::default();
        for position in positions.values() {
            holders.know(&position.name);
            position.roles.iter().for_each(|role| roles.know(role));
        }
        units.keys().for_each(|unit| members.know(unit));
        for (number, agent) in (0..).zip(agents) {
            agent.roles.iter().for_each(|role| roles.add(role, number));
            agent.abilities.iter().for_each(|ability| abilities.add(ability, number));
            for position in agent.positions.iter().filter_map(|name| positions.get(name)) {
                holders.add(&position.name, number);
                members.add(&position.unit, number);
                position.roles.iter().for_each(|role| roles.add(role, number));
            }
        }
        let nobody = AgentSet::new(roster, Vec::new());
        Self {
            everybody: AgentSet::new(roster, (0..roster.len() as u32).collect()),
            nobody,
            roles: roles.finish(roster),
            abilities: abilities.finish(roster),
            positions: holders.finish(roster),
            units: unit_sets(roster, units, members),
        }
    }
}

/// Adds the members of every unit to all units above it.
fn unit_sets(
    roster: &Arc<Roster>,
    units: &BTreeMap<Arc<str>, Unit>,
    members: Collected,
) -> BTreeMap<Arc<str>, UnitSets> {
    let mut below = Collected::default();
    for (name, numbers) in &members.0 {
        below.know(name);
        let mut unit = units.get(name);
        while let Some(parent) = unit.and_then(|unit| unit.parent.as_ref()) {
            below.0.entry(parent.clone()).or_default().extend(numbers);
            unit = units.get(parent);
        }
    }
    let below = below.finish(roster);
    let itself = members.finish(roster);
    let both = itself.into_iter().zip(below.into_values());
    both.map(|((name, itself), below)| {
        let and_below = itself.union(&below);
        (name, UnitSets { itself, and_below, below })
    })
    .collect()
}

#[derive(Default)]
struct Collected(BTreeMap<Arc<str>, Vec<u32>>);

impl Collected {
    fn know(&mut self, name: &Arc<str>) {
        self.0.entry(name.clone()).or_default();
    }

    fn add(&mut self, name: &Arc<str>, number: u32) {
        self.0.entry(name.clone()).or_default().push(number);
    }

    fn finish(self, roster: &Arc<Roster>) -> BTreeMap<Arc<str>, AgentSet> {
        let set = |(name, numbers)| (name, AgentSet::new(roster, numbers));
        self.0.into_iter().map(set).collect()
    }
}

impl Absences {
    fn new(roster: &Roster, agents: &[Agent]) -> Self {
        let substitutes: Vec<Vec<u32>> = agents
            .iter()
            .map(|agent| agent.substitutes.iter().filter_map(|id| roster.number(id)).collect())
            .collect();
        let mut substituted = vec![Vec::new(); agents.len()];
        for (number, substitutes) in (0..).zip(&substitutes) {
            for &substitute in substitutes {
                substituted[substitute as usize].push(number);
            }
        }
        let periods = agents.iter().flat_map(|agent| &agent.absent);
        let mut moments: Vec<Timestamp> =
            periods.flat_map(|period| [Some(period.from), period.to]).flatten().collect();
        moments.sort_unstable();
        moments.dedup();
        Self { substitutes, substituted, moments }
    }
}
