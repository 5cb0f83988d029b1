//! Absences and substitutes.
//!
//! A substitute is present. An agent's own substitutes come first, in order, then the substitutes of absent
//! substitutes; the first of all these who is not barred does the work. So at any moment an item of an absent
//! agent has at most one substitute.

use std::collections::{BTreeSet, VecDeque};

use legwork_model::id::AgentId;
use legwork_model::time::Timestamp;

use crate::organisation::Organisation;
use crate::resolve::Resolved;

/// An absent agent for whom another agent may stand in.
pub(crate) struct Standing {
    pub(crate) absent: u32,
    /// The present substitutes before this one: this one acts only if all of them are barred.
    pub(crate) before: Vec<u32>,
}

/// An agent who stands in for another for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandIn {
    pub agent: AgentId,
    pub from: Timestamp,
    /// Exclusive.
    pub to: Timestamp,
}

/// The bound on absence changes in a long chain of substitutes.
const CHANGES_MAX: usize = 256;

impl Organisation {
    pub fn is_absent(&self, agent: &AgentId, now: Timestamp) -> bool {
        self.roster.number(agent).is_some_and(|number| self.away(number, now))
    }

    /// The substitute for an absent agent at a step now: the first one who is not barred.
    pub fn stand_in_at(&self, agent: &AgentId, step: &Resolved, now: Timestamp) -> Option<AgentId> {
        let number = self.roster.number(agent).filter(|&number| self.away(number, now))?;
        let mut all = self.stand_ins(number, now).map(|number| self.roster.agent(number));
        all.find(|agent| !step.bars(agent)).cloned()
    }

    /// The substitutes for an agent who will be absent: for each part of an absence between two moments the first
    /// one who is not barred, ascending.
    pub fn stand_ins_between(
        &self,
        agent: &AgentId,
        step: &Resolved,
        from: Timestamp,
        to: Timestamp,
    ) -> Vec<StandIn> {
        let Some(number) = self.roster.number(agent) else { return Vec::new() };
        let mut found: Vec<StandIn> = Vec::new();
        let moments = self.changes_for(number, from, to);
        let ends = moments.iter().skip(1).copied().chain([to]);
        for (from, to) in moments.iter().copied().zip(ends) {
            let Some(agent) = self.stand_in_at(agent, step, from) else { continue };
            match found.last_mut().filter(|last| last.to == from && last.agent == agent) {
                Some(last) => last.to = to,
                None => found.push(StandIn { agent, from, to }),
            }
        }
        found
    }

    /// When an agent's substitute may change, beginning with the first moment of all; empty if the agent is never
    /// absent.
    fn changes_for(&self, number: u32, from: Timestamp, to: Timestamp) -> BTreeSet<Timestamp> {
        let periods = |number: u32| {
            let all = self.agent_numbered(number).absent.iter();
            all.filter(move |period| period.from < to && period.to.is_none_or(|end| end > from))
        };
        let mut moments = BTreeSet::new();
        if from >= to || periods(number).next().is_none() {
            return moments;
        }
        moments.insert(from);
        let (mut seen, mut open) = (BTreeSet::from([number]), vec![number]);
        while let Some(number) = open.pop() {
            for period in periods(number) {
                let ends = [Some(period.from), period.to].into_iter().flatten();
                moments.extend(ends.filter(|moment| from < *moment && *moment < to));
                let substitutes = &self.absences.substitutes[number as usize];
                open.extend(substitutes.iter().filter(|other| seen.insert(**other)));
            }
            if moments.len() > CHANGES_MAX {
                break;
            }
        }
        moments
    }

    /// The absent agents for whom an agent may have to act now, by name: those who lead to the agent through
    /// absent substitutes, also if another substitute comes first.
    pub fn may_stand_in_for(&self, agent: &AgentId, now: Timestamp) -> Vec<AgentId> {
        let Some(number) = self.roster.number(agent) else { return Vec::new() };
        let absent = self.absent_before(number, now);
        absent.into_iter().map(|number| self.roster.agent(number).clone()).collect()
    }

    /// The next moment after `now` at which an absence begins or ends.
    pub fn next_absence_change(&self, now: Timestamp) -> Option<Timestamp> {
        let moments = &self.absences.moments;
        moments.get(moments.partition_point(|&moment| moment <= now)).copied()
    }

    /// The same with the substitutes who come first.
    pub(crate) fn standing(&self, agent: &AgentId, now: Timestamp) -> Vec<Standing> {
        let Some(number) = self.roster.number(agent) else { return Vec::new() };
        let standing = |absent: u32| {
            let before = self.stand_ins(absent, now).take_while(|&other| other != number);
            Standing { absent, before: before.collect() }
        };
        self.absent_before(number, now).into_iter().map(standing).collect()
    }

    fn absent_before(&self, number: u32, now: Timestamp) -> BTreeSet<u32> {
        let direct = &self.absences.substituted[number as usize];
        let mut found = BTreeSet::new();
        if direct.is_empty() || self.away(number, now) {
            return found;
        }
        // Backwards over the absent agents: no other agent can lead to this one.
        let mut open: Vec<u32> = direct.clone();
        while let Some(candidate) = open.pop() {
            if self.away(candidate, now) && found.insert(candidate) {
                open.extend(&self.absences.substituted[candidate as usize]);
            }
        }
        found
    }

    /// All possible substitutes of an absent agent, in order, each once.
    fn stand_ins(&self, absent: u32, now: Timestamp) -> impl Iterator<Item = u32> + '_ {
        let substitutes = &self.absences.substitutes;
        let mut seen = BTreeSet::from([absent]);
        let mut open: VecDeque<u32> = substitutes[absent as usize].iter().copied().collect();
        std::iter::from_fn(move || {
            while let Some(candidate) = open.pop_front() {
                if !seen.insert(candidate) {
                    continue;
                }
                if !self.away(candidate, now) {
                    return Some(candidate);
                }
                open.extend(&substitutes[candidate as usize]);
            }
            None
        })
    }

    fn away(&self, number: u32, now: Timestamp) -> bool {
        self.agent_numbered(number).absent.iter().any(|period| period.covers(now))
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::rule::Rule;

    use super::*;
    use crate::resolve::Performers;
    use crate::support::{HOSPITAL, organisation};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// The substitute of an agent for a step that bars nobody.
    fn stand_in(organisation: &Organisation, agent: &AgentId, moment: &str) -> Option<AgentId> {
        let nobody = organisation.resolve(&Rule::Any(Vec::new()), &Nobody);
        organisation.stand_in_at(agent, &nobody, at(moment))
    }

    /// All substitutes, as `ben for ann`.
    fn standing_in(organisation: &Organisation, moment: &str) -> String {
        let pairs = organisation.agents().iter().flat_map(|agent| {
            let all = organisation.may_stand_in_for(&agent.id, at(moment)).into_iter();
            let own = move |absent: &AgentId| {
                stand_in(organisation, absent, moment).as_ref() == Some(&agent.id)
            };
            all.filter(own).map(|absent| format!("{} for {absent}", agent.id))
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
    fn it_is_known_before_who_will_stand_in_and_until_when() {
        let hospital = organisation(HOSPITAL);
        let nobody = hospital.resolve(&Rule::Any(Vec::new()), &Nobody);
        let between = |agent: &str, from: &str, to: &str| {
            let all = hospital.stand_ins_between(&agent.into(), &nobody, at(from), at(to));
            let short = |moment: Timestamp| moment.to_string()[5..13].replace('T', " ");
            let all =
                all.iter().map(|it| format!("{} {}-{}", it.agent, short(it.from), short(it.to)));
            all.collect::<Vec<_>>().join(", ")
        };
        // Ann is away from the 20th to the 6th, Ben from noon on the 24th.
        let (before, after) = ("2026-12-01T00:00:00Z", "2027-02-01T00:00:00Z");
        assert_eq!(between("ann", before, after), "ben 12-20 00-12-24 12, cora 12-24 12-01-07 00");
        assert_eq!(
            between("ann", "2026-12-23T00:00:00Z", "2026-12-25T00:00:00Z"),
            "ben 12-23 00-12-24 12, cora 12-24 12-12-25 00"
        );
        assert_eq!(between("ann", before, "2026-12-20T00:00:00Z"), "");
        assert_eq!(between("ben", before, after), "dan 12-24 12-02-01 00");
        assert_eq!(between("cora", before, after), "");
        // The same as the substitute at each moment.
        for hour in 0..24 * 60 {
            let moment = at(before) + std::time::Duration::from_secs(hour * 3600);
            for agent in ["ann", "ben", "cora", "dan"] {
                let agent: AgentId = agent.into();
                let all = hospital.stand_ins_between(&agent, &nobody, at(before), at(after));
                let then = all.into_iter().find(|it| it.from <= moment && moment < it.to);
                assert_eq!(then.map(|it| it.agent), hospital.stand_in_at(&agent, &nobody, moment));
            }
        }
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
        assert_eq!(stand_in(&chain, &"ann".into(), moment), Some("dan".into()));
        assert_eq!(stand_in(&chain, &"dan".into(), moment), None);
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
    fn the_moments_at_which_absences_begin_or_end_are_known() {
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
