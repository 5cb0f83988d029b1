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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{HOSPITAL, organisation};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// For whom everybody stands in, as `ben for ann`.
    fn standing_in(organisation: &Organisation, moment: &str) -> String {
        let pairs = organisation.agents().iter().flat_map(|agent| {
            let absent = organisation.stands_in_for(&agent.id, at(moment));
            absent.into_iter().map(|absent| format!("{} for {absent}", agent.id))
        });
        pairs.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn the_first_substitute_who_is_there_stands_in() {
        let hospital = organisation(HOSPITAL);
        assert_eq!(standing_in(&hospital, "2026-12-19T23:59:59.999Z"), "");
        assert_eq!(standing_in(&hospital, "2026-12-20T00:00:00Z"), "ben for ann");
        // From noon on Christmas Eve Ben is away until further notice.
        assert_eq!(standing_in(&hospital, "2026-12-24T12:00:00Z"), "cora for ann, dan for ben");
        // The last day is part of the absence.
        assert_eq!(standing_in(&hospital, "2027-01-06T23:59:59.999Z"), "cora for ann, dan for ben");
        assert_eq!(standing_in(&hospital, "2027-01-07T00:00:00Z"), "dan for ben");
    }

    #[test]
    fn substitutes_of_substitutes_stand_in_only_when_all_of_ones_own_are_away() {
        let away = "absent: [{ from: 2026-01-01 }]";
        let chain = organisation(&format!(
            "organisation: chain\nagents:\n  \
             ann: {{ substitutes: [ben, cora], {away} }}\n  \
             ben: {{ substitutes: [dan], {away} }}\n  \
             cora: {{ substitutes: [eve], {away} }}\n  \
             dan: {{}}\n  eve: {{}}\n"
        ));
        let moment = "2026-06-01T00:00:00Z";
        assert_eq!(standing_in(&chain, moment), "dan for ann, dan for ben, eve for cora");
        assert_eq!(chain.stand_in(&"ann".into(), at(moment)), Some("dan".into()));
        assert_eq!(chain.stand_in(&"dan".into(), at(moment)), None);
        assert!(chain.is_absent(&"cora".into(), at(moment)));
    }

    #[test]
    fn a_ring_of_absent_substitutes_ends() {
        let away = "absent: [{ from: 2026-01-01 }]";
        let ring = organisation(&format!(
            "organisation: ring\nagents:\n  \
             ann: {{ substitutes: [ben], {away} }}\n  \
             ben: {{ substitutes: [cora], {away} }}\n  \
             cora: {{ substitutes: [ann], {away} }}\n  \
             dan: {{ substitutes: [ann] }}\n"
        ));
        assert_eq!(standing_in(&ring, "2026-06-01T00:00:00Z"), "");
    }

    #[test]
    fn the_moments_at_which_somebody_leaves_or_returns_are_known() {
        let hospital = organisation(HOSPITAL);
        let mut now = at("2026-01-01T00:00:00Z");
        let mut moments = Vec::new();
        while let Some(next) = hospital.next_absence_change(now) {
            moments.push(next.to_string());
            now = next;
        }
        assert_eq!(
            moments,
            ["2026-12-20T00:00:00.000Z", "2026-12-24T12:00:00.000Z", "2027-01-07T00:00:00.000Z"]
        );
    }
}
