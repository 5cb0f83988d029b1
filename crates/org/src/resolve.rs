//! Evaluates assignment rules: which agents of the organisation may do a step.
//!
//! The answer depends only on the organisation, the rule and the performers of earlier steps. Absences
//! play no part: items are offered to a post and read by a person.

use legwork_model::id::AgentId;
use legwork_model::rule::{Actors, Rule, UnitReach};

use crate::organisation::Organisation;
use crate::set::AgentSet;

/// The performers of an instance, as far as rules refer to them.
pub trait Performers {
    /// The agent who did the step, in its latest iteration.
    fn performer(&self, step: &str) -> Option<AgentId>;
    /// The agent who started the instance.
    fn starter(&self) -> Option<AgentId>;
}

/// The agents who may do a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The agents to whom the step is offered.
    pub actors: AgentSet,
    /// The agents on the right of an EXCEPT, and those whose manager or unit is referred to. They must
    /// not do the step as a substitute either: four eyes stay four when one pair is on holiday.
    pub barred: AgentSet,
}

impl Organisation {
    /// Evaluates a rule; an unknown name stands for nobody.
    pub fn resolve(&self, rule: &Rule, history: &dyn Performers) -> Resolved {
        let mut barred = self.sets.nobody.clone();
        let actors = self.evaluate(rule, history, &mut barred);
        Resolved { actors, barred }
    }

    fn evaluate(&self, rule: &Rule, history: &dyn Performers, barred: &mut AgentSet) -> AgentSet {
        match rule {
            Rule::Are(actors) => {
                if let Actors::UnitOfPerformer(step) | Actors::ManagerOfPerformer(step) = actors {
                    *barred = barred.union(&self.just(self.performed(step, history)));
                }
                self.named(actors, history)
            }
            Rule::Any(rules) => rules
                .iter()
                .map(|rule| self.evaluate(rule, history, barred))
                .reduce(|a, b| a.union(&b))
                .unwrap_or_else(|| self.sets.nobody.clone()),
            Rule::All(rules) => rules
                .iter()
                .map(|rule| self.evaluate(rule, history, barred))
                .reduce(|a, b| a.intersection(&b))
                .unwrap_or_else(|| self.sets.nobody.clone()),
            Rule::Except(from, without) => {
                let from = self.evaluate(from, history, barred);
                // An exception to the exception bars nobody.
                let without = self.evaluate(without, history, &mut self.sets.nobody.clone());
                *barred = barred.union(&without);
                from.minus(&without)
            }
        }
    }

    fn named(&self, actors: &Actors, history: &dyn Performers) -> AgentSet {
        let found = match actors {
            Actors::Agent(None) => Some(&self.sets.everybody),
            Actors::Role(name) => self.sets.roles.get(name),
            Actors::Ability(name) => self.sets.abilities.get(name),
            Actors::OrgPosition(name) => self.sets.positions.get(name),
            Actors::OrgUnit(name, reach) => self.sets.units.get(name).map(|unit| match reach {
                UnitReach::Itself => &unit.itself,
                UnitReach::AndBelow => &unit.and_below,
                UnitReach::Below => &unit.below,
            }),
            Actors::Agent(Some(name)) => return self.just(self.roster.number_named(name)),
            Actors::Performer(step) => return self.just(self.performed(step, history)),
            Actors::Starter => {
                return self.just(history.starter().and_then(|agent| self.roster.number(&agent)));
            }
            Actors::UnitOfPerformer(step) => {
                let performer = self.performed(step, history);
                return performer.map_or_else(|| self.just(None), |agent| self.colleagues(agent));
            }
            Actors::ManagerOfPerformer(step) => {
                let performer = self.performed(step, history);
                return performer.map_or_else(|| self.just(None), |agent| self.managers(agent));
            }
        };
        found.unwrap_or(&self.sets.nobody).clone()
    }

    fn performed(&self, step: &str, history: &dyn Performers) -> Option<u32> {
        history.performer(step).and_then(|agent| self.roster.number(&agent))
    }

    fn just(&self, number: Option<u32>) -> AgentSet {
        match number {
            Some(number) => AgentSet::new(&self.roster, vec![number]),
            None => self.sets.nobody.clone(),
        }
    }

    /// All agents with a position in a unit of the agent.
    fn colleagues(&self, agent: u32) -> AgentSet {
        let units = self.units_of(agent).into_iter();
        units
            .filter_map(|unit| self.sets.units.get(&unit.name))
            .map(|sets| sets.itself.clone())
            .reduce(|a, b| a.union(&b))
            .unwrap_or_else(|| self.sets.nobody.clone())
    }

    /// The managers of an agent: of each of their units, or the next one above.
    pub fn managers_of(&self, agent: &AgentId) -> AgentSet {
        match self.roster.number(agent) {
            Some(number) => self.managers(number),
            None => self.sets.nobody.clone(),
        }
    }

    /// For every unit of the agent its manager; if there is none, or it is the agent, the next manager
    /// above.
    fn managers(&self, agent: u32) -> AgentSet {
        let managers = self.units_of(agent).into_iter().filter_map(|unit| {
            let mut place = Some(unit);
            while let Some(unit) = place {
                let manager = unit.manager.as_ref().and_then(|id| self.roster.number(id));
                if manager.is_some_and(|manager| manager != agent) {
                    return manager;
                }
                place = unit.parent.as_ref().and_then(|parent| self.unit(parent));
            }
            None
        });
        AgentSet::new(&self.roster, managers.collect())
    }
}

impl Resolved {
    /// Whether the agent must not do the step as a substitute.
    pub fn bars(&self, agent: &AgentId) -> bool {
        self.barred.contains(agent) && !self.actors.contains(agent)
    }

    pub(crate) fn bars_number(&self, agent: u32) -> bool {
        self.barred.has(agent) && !self.actors.has(agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{HOSPITAL, organisation, past};

    /// Evaluates a rule in the hospital; returns the actors and, after a `/`, the barred.
    fn resolve(rule: &str, history: &str) -> String {
        let rule: Rule = rule.parse().unwrap();
        let Resolved { actors, barred } = organisation(HOSPITAL).resolve(&rule, &past(history));
        let names = |set: &AgentSet| set.iter().map(AgentId::as_str).collect::<Vec<_>>().join(" ");
        let (actors, barred) = (names(&actors), names(&barred));
        if barred.is_empty() { actors } else { format!("{actors} / {barred}") }
    }

    fn check(rule: &str, history: &str, expected: &str) {
        assert_eq!(resolve(rule, history), expected, "{rule}, {history}");
    }

    #[test]
    fn agent_is_that_agent_or_anybody() {
        check("Agent()", "", "ann ben cora dan lang roth weber");
        check("Agent(ann)", "", "ann");
        check("Agent(nobody)", "", "");
    }

    #[test]
    fn a_role_is_played_through_a_position_or_held_directly() {
        check("Role(nurse)", "", "ann ben cora");
        check("Role(physician)", "", "cora lang weber");
        check("Role(gardener)", "", "");
    }

    #[test]
    fn a_unit_is_taken_alone_with_all_below_or_without_itself() {
        check("OrgUnit(oncology)", "", "lang");
        check("OrgUnit(oncology*)", "", "ann ben lang");
        check("OrgUnit(oncology+)", "", "ann ben");
        check("OrgUnit(hospital*)", "", "ann ben cora lang weber");
        check("OrgUnit(hospital+)", "", "ann ben cora lang");
        check("OrgUnit(ward-3+)", "", "");
        check("OrgUnit(kitchen*)", "", "");
    }

    #[test]
    fn a_position_is_all_who_hold_it_and_an_ability_all_who_have_it() {
        check("OrgPosition(ward-nurse)", "", "ann ben");
        check("Ability(chemotherapy)", "", "ann lang");
    }

    #[test]
    fn and_or_except_compute_as_sets_do() {
        check("Role(nurse) AND Ability(chemotherapy)", "", "ann");
        check("Role(nurse) OR Agent(roth)", "", "ann ben cora roth");
        check("Role(nurse) EXCEPT OrgUnit(surgery)", "", "ann ben / cora");
        check("Role(nurse) AND Role(physician) OR Agent(dan)", "", "cora dan");
        check("(Role(nurse) OR Role(physician)) AND OrgUnit(oncology*)", "", "ann ben lang");
    }

    #[test]
    fn the_performer_is_the_agent_who_did_the_step() {
        check("NodePerformingAgent(admit)", "ann did admit", "ann");
        check("NodePerformingAgent(admit)", "", "");
        check("NodePerformingAgent(admit)", "zoe did admit", "");
    }

    #[test]
    fn same_unit_as_the_performer_is_everybody_with_a_position_there() {
        check("OrgUnitOf(NodePerformingAgent(admit))", "ann did admit", "ann ben / ann");
        check("OrgUnitOf(NodePerformingAgent(admit))", "dan did admit", " / dan");
        // An agent without a position belongs to the units that they manage.
        check("OrgUnitOf(NodePerformingAgent(admit))", "roth did admit", "cora / roth");
    }

    #[test]
    fn the_manager_of_a_performer_is_the_nearest_other_manager_above() {
        check("ManagerOf(NodePerformingAgent(admit))", "lang did admit", "weber / lang");
        // The ward has no manager of its own.
        check("ManagerOf(NodePerformingAgent(admit))", "ann did admit", "lang / ann");
        check("ManagerOf(NodePerformingAgent(admit))", "cora did admit", "roth / cora");
        check("ManagerOf(NodePerformingAgent(admit))", "roth did admit", "weber / roth");
        check("ManagerOf(NodePerformingAgent(admit))", "weber did admit", " / weber");
        check("ManagerOf(NodePerformingAgent(admit))", "dan did admit", " / dan");
    }

    #[test]
    fn the_starter_is_the_agent_who_started_the_instance() {
        check("StartingAgent()", "dan started", "dan");
        check("StartingAgent()", "", "");
    }

    #[test]
    fn four_eyes_leave_the_performer_out_and_bar_them() {
        let rule = "Role(physician) EXCEPT NodePerformingAgent(order)";
        check(rule, "lang did order", "cora weber / lang");
        check(rule, "ann did order", "cora lang weber / ann");
    }

    #[test]
    fn an_exception_to_the_exception_bars_nobody() {
        let rule = "Role(nurse) EXCEPT (OrgUnit(hospital*) EXCEPT NodePerformingAgent(order))";
        check(rule, "ann did order", "ann / ben cora lang weber");
    }

    #[test]
    fn who_is_named_besides_the_exception_is_not_barred() {
        let rule: Rule = "(Role(nurse) EXCEPT OrgUnit(ward-3)) OR Agent(ann)".parse().unwrap();
        let resolved = organisation(HOSPITAL).resolve(&rule, &past(""));
        assert!(!resolved.bars(&"ann".into()));
        assert!(resolved.bars(&"ben".into()));
    }

    #[test]
    fn they_do_not_stand_in_for_their_manager_where_that_one_is_asked_for() {
        let bars = |rule: &str| {
            let rule: Rule = rule.parse().unwrap();
            organisation(HOSPITAL).resolve(&rule, &past("ann did ask")).bars(&"ann".into())
        };
        assert!(bars("ManagerOf(NodePerformingAgent(ask))"));
        assert!(bars("ManagerOf(NodePerformingAgent(ask)) OR Role(physician)"));
        assert!(bars("OrgUnitOf(NodePerformingAgent(ask)) AND Agent(ben)"));
        // The rule names her herself, or refers to others than her manager.
        assert!(!bars("OrgUnitOf(NodePerformingAgent(ask))"));
        assert!(!bars("ManagerOf(NodePerformingAgent(ask)) OR Role(nurse)"));
        assert!(!bars("Role(physician) EXCEPT ManagerOf(NodePerformingAgent(ask))"));
    }

    #[test]
    fn a_substitute_for_a_manager_is_the_performer_of_the_step() {
        // Whether Ann did it for Lang is not in the history; a rule can exclude him all the same.
        check("ManagerOf(NodePerformingAgent(ask))", "ann did ask", "lang / ann");
        let rule = "(ManagerOf(NodePerformingAgent(ask)) OR Agent(weber)) EXCEPT Agent(lang)";
        check(rule, "ann did ask", "weber / ann lang");
    }

    #[test]
    fn absence_does_not_change_who_the_actors_are() {
        // Ann is absent over Christmas; evaluation takes no time as an argument.
        check("Role(nurse) AND OrgPosition(ward-nurse)", "", "ann ben");
    }
}
