//! Who is away, and who stands in for them.
//!
//! At any moment an absent agent has at most one stand-in, somebody who is there: the first of
//! their own substitutes, and only if all of those are away the substitutes of the substitutes.

use std::collections::{BTreeSet, VecDeque};

use legwork_model::id::AgentId;
use legwork_model::time::Timestamp;

use crate::organisation::Organisation;

impl Organisation {
    pub fn is_absent(&self, agent: &AgentId, now: Timestamp) -> bool {
        self.roster.number(agent).is_some_and(|number| self.away(number, now))
    }

    /// Who stands in for an agent who is absent now.
    pub fn stand_in(&self, agent: &AgentId, now: Timestamp) -> Option<AgentId> {
        let number = self.roster.number(agent).filter(|&number| self.away(number, now))?;
        self.stand_in_of(number, now).map(|number| self.roster.agent(number).clone())
    }

    /// For whom an agent acts now: the absent whose stand-in they are, in the order of names.
    pub fn stands_in_for(&self, agent: &AgentId, now: Timestamp) -> Vec<AgentId> {
        let Some(number) = self.roster.number(agent) else { return Vec::new() };
        let numbers = self.stands_in_for_numbers(number, now);
        numbers.into_iter().map(|number| self.roster.agent(number).clone()).collect()
    }

    /// The next moment after `now` at which somebody leaves or comes back.
    pub fn next_absence_change(&self, now: Timestamp) -> Option<Timestamp> {
        let moments = &self.absences.moments;
        moments.get(moments.partition_point(|&moment| moment <= now)).copied()
    }

    pub(crate) fn stands_in_for_numbers(&self, number: u32, now: Timestamp) -> Vec<u32> {
        let direct = &self.absences.substituted[number as usize];
        if direct.is_empty() || self.away(number, now) {
            return Vec::new();
        }
        // Backwards over the absent: nobody else can lead to this agent.
        let mut found = BTreeSet::new();
        let mut open: Vec<u32> = direct.clone();
        while let Some(candidate) = open.pop() {
            if self.away(candidate, now) && found.insert(candidate) {
                open.extend(&self.absences.substituted[candidate as usize]);
            }
        }
        found.retain(|&absent| self.stand_in_of(absent, now) == Some(number));
        found.into_iter().collect()
    }

    fn stand_in_of(&self, absent: u32, now: Timestamp) -> Option<u32> {
        let substitutes = &self.absences.substitutes;
        let mut seen = BTreeSet::from([absent]);
        let mut open: VecDeque<u32> = substitutes[absent as usize].iter().copied().collect();
        while let Some(candidate) = open.pop_front() {
            if !self.away(candidate, now) {
                return Some(candidate);
            }
            if seen.insert(candidate) {
                open.extend(&substitutes[candidate as usize]);
            }
        }
        None
    }

    fn away(&self, number: u32, now: Timestamp) -> bool {
        self.agent_numbered(number).absent.iter().any(|period| period.covers(now))
    }
}
