//! Checks the rules of a definition against an organisation.
//!
//! Z1, an error: a rule names what the organisation does not have. Z2, a warning: a rule can name
//! nobody, in some history.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::definition::{Block, ChoiceBy, Definition, Until, Work};
use legwork_model::finding::{Finding, Rule as RuleId, Severity, Spanned};
use legwork_model::id::AgentId;
use legwork_model::rule::{Actors, Rule};
use legwork_model::yaml::nearest;

use crate::organisation::Organisation;
use crate::resolve::Performers;
use crate::set::AgentSet;

/// The bound on combinations of people for one rule, and for all rules together.
const TRIALS_MAX: usize = 10_000;
const TRIALS_ALL_MAX: usize = 200_000;

/// The assignment rules of a definition: the part of it that the organisation can contradict, much
/// smaller than the definition.
#[derive(Clone, Debug, Default)]
pub struct Assignments {
    /// With the names of the steps they are written at.
    all: Vec<(Arc<str>, Spanned<Rule>)>,
    /// The index of the rule that chooses the performer of a step; steps done by programs have
    /// none.
    of_step: BTreeMap<Arc<str>, Option<usize>>,
}

impl Assignments {
    pub fn of(definition: &Definition) -> Self {
        let mut rules = Self::default();
        rules.collect(&definition.steps);
        rules.all.shrink_to_fit();
        rules
    }

    /// The findings, in the order of the text.
    pub fn check(&self, organisation: &Organisation) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut trials = Trials::new(self, organisation);
        for (step, rule) in &self.all {
            let unknown = unknown_names(rule, organisation);
            if unknown.is_empty() {
                let case = trials.of(&rule.value).nobody;
                findings.extend(case.map(|case| nobody_left(step, rule, &case)));
            }
            findings.extend(unknown);
        }
        findings.sort();
        findings.dedup();
        findings
    }

    fn rule_of(&self, step: &str) -> Option<&Rule> {
        let place = (*self.of_step.get(step)?)?;
        self.all.get(place).map(|(_, rule)| &rule.value)
    }

    fn is_of_program(&self, step: &str) -> bool {
        self.of_step.get(step) == Some(&None)
    }

    fn collect(&mut self, blocks: &[Block]) {
        for block in blocks {
            let name = &block.name().value;
            match block {
                Block::Step(step) => {
                    self.work(name, &step.work);
                    if let Some(Work::Manual { who }) = &step.undo {
                        self.all.push((name.clone(), who.clone()));
                    }
                }
                Block::Parallel(parallel) => {
                    parallel.branches.iter().for_each(|branch| self.collect(&branch.steps));
                }
                Block::Choice(choice) => {
                    if let ChoiceBy::Person(decider) = &choice.by {
                        self.person(name, &decider.who);
                    }
                    choice.branches.iter().for_each(|branch| self.collect(&branch.steps));
                }
                Block::Loop(l) => {
                    if let Until::Person(decider) = &l.until {
                        self.person(name, &decider.who);
                    }
                    self.collect(&l.body);
                }
            }
        }
    }

    fn work(&mut self, name: &Arc<str>, work: &Work) {
        match work {
            Work::Manual { who } => self.person(name, who),
            Work::Automatic { .. } => {
                self.of_step.insert(name.clone(), None);
            }
        }
    }

    fn person(&mut self, name: &Arc<str>, who: &Spanned<Rule>) {
        self.of_step.insert(name.clone(), Some(self.all.len()));
        self.all.push((name.clone(), who.clone()));
    }
}

fn unknown_names(rule: &Spanned<Rule>, organisation: &Organisation) -> Vec<Finding> {
    let mut findings = Vec::new();
    rule.value.for_each_actors(&mut |actors| {
        let sets = &organisation.sets;
        let (word, name, near) = match actors {
            Actors::Role(name) if !sets.roles.contains_key(name) => {
                ("role", name, nearest(name, sets.roles.keys().map(|name| &**name)))
            }
            Actors::OrgUnit(name, _) if !sets.units.contains_key(name) => {
                ("unit", name, nearest(name, sets.units.keys().map(|name| &**name)))
            }
            Actors::OrgPosition(name) if !sets.positions.contains_key(name) => {
                ("position", name, nearest(name, sets.positions.keys().map(|name| &**name)))
            }
            Actors::Ability(name) if !sets.abilities.contains_key(name) => {
                ("ability", name, nearest(name, sets.abilities.keys().map(|name| &**name)))
            }
            Actors::Agent(Some(name)) if organisation.roster.number_named(name).is_none() => {
                let agents = organisation.roster.agents().iter();
                ("agent", name, nearest(name, agents.map(AgentId::as_str)))
            }
            Actors::Role(_)
            | Actors::OrgUnit(..)
            | Actors::OrgPosition(_)
            | Actors::Ability(_)
            | Actors::Agent(_)
            | Actors::Performer(_)
            | Actors::UnitOfPerformer(_)
            | Actors::ManagerOfPerformer(_)
            | Actors::Starter => return,
        };
        let hint = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("add it to organisation `{}`", organisation.name()),
        };
        findings.push(Finding {
            span: rule.span,
            severity: Severity::Error,
            rule: RuleId::Z1,
            message: format!("organisation `{}` has no {word} `{name}`", organisation.name()),
            hint,
        });
    });
    findings
}

fn nobody_left(step: &str, rule: &Spanned<Rule>, case: &str) -> Finding {
    let message = match case {
        "" => format!("nobody can do `{step}`: `{}` names nobody", rule.value),
        case => format!("nobody can do `{step}` {case}: `{}` names nobody then", rule.value),
    };
    Finding {
        span: rule.span,
        severity: Severity::Warning,
        rule: RuleId::Z2,
        message,
        hint: "widen the rule with OR, or give the role, position or ability to more people; \
               otherwise the step becomes an incident"
            .to_owned(),
    }
}

/// Tries rules with every possible performer of the steps they refer to.
struct Trials<'d> {
    rules: &'d Assignments,
    organisation: &'d Organisation,
    /// The possible performers of a step, as far as known.
    performers: BTreeMap<Arc<str>, AgentSet>,
    left: usize,
}

struct Tried {
    /// The agents that the rule can name.
    named: AgentSet,
    /// A history in which it names nobody, in words; empty if every history does.
    nobody: Option<String>,
}

impl<'d> Trials<'d> {
    fn new(rules: &'d Assignments, organisation: &'d Organisation) -> Self {
        Self { rules, organisation, performers: BTreeMap::new(), left: TRIALS_ALL_MAX }
    }

    fn of(&mut self, rule: &Rule) -> Tried {
        let organisation = self.organisation;
        let asked = asked_by(rule);
        let possible: Vec<Vec<AgentId>> = asked
            .iter()
            .map(|step| match step {
                None => organisation.sets.everybody.iter().cloned().collect(),
                Some(step) => self.performers_of(step).iter().cloned().collect(),
            })
            .collect();
        let count = possible.iter().fold(1_usize, |count, all| count.saturating_mul(all.len()));
        if count == 0 {
            return self.without_performer(rule, &asked);
        }
        let tried = count.min(TRIALS_MAX).min(self.left);
        self.left -= tried;
        let nobody = organisation.sets.nobody.clone();
        let mut result = Tried { named: nobody, nobody: None };
        for trial in 0..tried {
            let past = Past { asked: &asked, agents: chosen(&possible, trial) };
            let actors = organisation.resolve(rule, &past).actors;
            if actors.is_empty() && result.nobody.is_none() {
                result.nobody = Some(past.to_string());
            }
            result.named = result.named.union(&actors);
        }
        if tried < count {
            result.named = widest(rule, organisation);
        }
        result
    }

    /// The possible performers of a step, from its own rule.
    fn performers_of(&mut self, step: &Arc<str>) -> AgentSet {
        if let Some(known) = self.performers.get(step) {
            return known.clone();
        }
        let Some(rule) = self.rules.rule_of(step) else {
            return self.organisation.sets.nobody.clone();
        };
        // Rules that refer to each other in a cycle end here.
        self.performers.insert(step.clone(), self.organisation.sets.everybody.clone());
        let performers = self.of(rule).named;
        self.performers.insert(step.clone(), performers.clone());
        performers
    }

    /// A performer that the rule refers to is unknown: a program does that step, which is reported
    /// here, or nobody can do it or there is no such step, which is reported elsewhere.
    fn without_performer(&self, rule: &Rule, asked: &[Option<Arc<str>>]) -> Tried {
        let past = Past { asked, agents: vec![None; asked.len()] };
        let named = self.organisation.resolve(rule, &past).actors;
        let by_program = |step: &&Arc<str>| self.rules.is_of_program(step);
        let step = asked.iter().flatten().find(by_program);
        let nobody = step.filter(|_| named.is_empty());
        Tried { nobody: nobody.map(|step| format!("because a program does `{step}`")), named }
    }
}

/// The steps whose performers a rule refers to; `None` stands for the start of the instance.
fn asked_by(rule: &Rule) -> Vec<Option<Arc<str>>> {
    let mut asked = Vec::new();
    rule.for_each_actors(&mut |actors| match actors.performer_of() {
        Some(step) => asked.push(Some(step.clone())),
        None if *actors == Actors::Starter => asked.push(None),
        None => {}
    });
    asked.sort();
    asked.dedup();
    asked
}

/// Picks one of each, differently for every trial; all combinations come before one repeats.
fn chosen(possible: &[Vec<AgentId>], mut trial: usize) -> Vec<Option<AgentId>> {
    let pick = |agents: &Vec<AgentId>| {
        let agent = agents.get(trial % agents.len().max(1)).cloned();
        trial /= agents.len().max(1);
        agent
    };
    possible.iter().map(pick).collect()
}

/// The agents that a rule can name at most: every dependent form counts at its widest.
fn widest(rule: &Rule, organisation: &Organisation) -> AgentSet {
    let nobody = || organisation.sets.nobody.clone();
    match rule {
        Rule::Any(rules) => rules
            .iter()
            .map(|rule| widest(rule, organisation))
            .reduce(|a, b| a.union(&b))
            .unwrap_or_else(nobody),
        Rule::All(rules) => rules
            .iter()
            .map(|rule| widest(rule, organisation))
            .reduce(|a, b| a.intersection(&b))
            .unwrap_or_else(nobody),
        Rule::Except(from, without) if without.depends_on_history() => widest(from, organisation),
        Rule::Except(from, without) => {
            let without = organisation.resolve(without, &Past { asked: &[], agents: Vec::new() });
            widest(from, organisation).minus(&without.actors)
        }
        Rule::Are(_) if rule.depends_on_history() => organisation.sets.everybody.clone(),
        Rule::Are(_) => organisation.resolve(rule, &Past { asked: &[], agents: Vec::new() }).actors,
    }
}

/// A made-up history to try a rule with.
struct Past<'p> {
    /// Steps; `None` stands for the start of the instance.
    asked: &'p [Option<Arc<str>>],
    agents: Vec<Option<AgentId>>,
}

impl Past<'_> {
    fn who(&self, asked: Option<&str>) -> Option<AgentId> {
        let place = self.asked.iter().position(|step| step.as_deref() == asked)?;
        self.agents.get(place).cloned().flatten()
    }
}

impl Performers for Past<'_> {
    fn performer(&self, step: &str) -> Option<AgentId> {
        self.who(Some(step))
    }

    fn starter(&self) -> Option<AgentId> {
        self.who(None)
    }
}

impl std::fmt::Display for Past<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self.asked.iter().zip(&self.agents);
        let known = known.filter_map(|(step, agent)| Some((step, agent.as_ref()?)));
        for (place, (step, agent)) in known.enumerate() {
            let and = if place == 0 { "if " } else { " and " };
            match step {
                Some(step) => write!(f, "{and}`{agent}` did `{step}`")?,
                None => write!(f, "{and}`{agent}` started the case")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::{HOSPITAL, organisation};

    /// Checks a process of steps `name: who` against the hospital.
    fn findings(steps: &[(&str, &str)]) -> String {
        let mut source = "process: p\nsteps:\n".to_owned();
        for (name, who) in steps {
            let work = if who.contains('(') { "who" } else { "job" };
            source.push_str(&format!("  - step: {name}\n    {work}: {who}\n"));
        }
        let (definition, findings) = legwork_model::yaml::parse(&source);
        let definition = definition.unwrap_or_else(|| panic!("{findings:?}"));
        let findings = Assignments::of(&definition).check(&organisation(HOSPITAL));
        findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn rules_that_always_name_an_agent_pass() {
        let steps = [
            ("admit", "Role(nurse)"),
            ("order", "Role(physician) AND OrgUnit(hospital*)"),
            ("sign", "Role(physician) EXCEPT NodePerformingAgent(order)"),
            ("note", "NodePerformingAgent(admit) OR StartingAgent()"),
            ("give", "OrgUnitOf(NodePerformingAgent(note)) OR Ability(chemotherapy)"),
        ];
        assert_eq!(findings(&steps), "");
    }

    #[test]
    fn unknown_names_are_errors_that_name_the_nearest() {
        insta::assert_snapshot!(
            findings(&[
                ("a", "Role(nurs) OR OrgUnit(oncologie*)"),
                ("b", "OrgPosition(surgeons) AND Ability(chemo) EXCEPT Agent(an)"),
            ]),
            @r#"
            4:10: error Z1: organisation `general-hospital` has no role `nurs`
                hint: did you mean `nurse`?
            4:10: error Z1: organisation `general-hospital` has no unit `oncologie`
                hint: did you mean `oncology`?
            6:10: error Z1: organisation `general-hospital` has no ability `chemo`
                hint: add it to organisation `general-hospital`
            6:10: error Z1: organisation `general-hospital` has no agent `an`
                hint: did you mean `ann`?
            6:10: error Z1: organisation `general-hospital` has no position `surgeons`
                hint: did you mean `surgeon`?
            "#
        );
    }

    #[test]
    fn a_rule_that_names_nobody_is_a_warning() {
        insta::assert_snapshot!(findings(&[("a", "Role(nurse) AND Agent(dan)")]), @r#"
            4:10: warning Z2: nobody can do `a`: `Role(nurse) AND Agent(dan)` names nobody
                hint: widen the rule with OR, or give the role, position or ability to more people; otherwise the step becomes an incident
            "#);
    }

    #[test]
    fn four_eyes_with_one_pair_are_a_warning_that_names_whom() {
        insta::assert_snapshot!(
            findings(&[
                ("order", "Role(nurse) AND Ability(chemotherapy) OR Agent(ben)"),
                ("sign", "Role(nurse) AND Ability(chemotherapy) EXCEPT NodePerformingAgent(order)"),
            ]),
            @r#"
            6:10: warning Z2: nobody can do `sign` if `ann` did `order`: `Role(nurse) AND Ability(chemotherapy) EXCEPT NodePerformingAgent(order)` names nobody then
                hint: widen the rule with OR, or give the role, position or ability to more people; otherwise the step becomes an incident
            "#
        );
    }

    #[test]
    fn a_manager_who_has_no_manager_is_a_warning() {
        insta::assert_snapshot!(
            findings(&[
                ("ask", "Role(physician)"),
                ("grant", "ManagerOf(NodePerformingAgent(ask))"),
            ]),
            @r#"
            6:10: warning Z2: nobody can do `grant` if `weber` did `ask`: `ManagerOf(NodePerformingAgent(ask))` names nobody then
                hint: widen the rule with OR, or give the role, position or ability to more people; otherwise the step becomes an incident
            "#
        );
    }

    #[test]
    fn only_those_who_can_have_done_a_step_count() {
        // Weber alone has no manager, and cannot have asked: managers of nurses are Lang and Roth.
        let steps = [
            ("ask", "Role(nurse)"),
            ("grant", "ManagerOf(NodePerformingAgent(ask))"),
            ("confirm", "ManagerOf(NodePerformingAgent(grant))"),
        ];
        assert_eq!(findings(&steps), "");
    }

    #[test]
    fn a_program_has_no_colleagues() {
        insta::assert_snapshot!(
            findings(&[("fetch", "http"), ("read", "OrgUnitOf(NodePerformingAgent(fetch))")]),
            @r#"
            6:10: warning Z2: nobody can do `read` because a program does `fetch`: `OrgUnitOf(NodePerformingAgent(fetch))` names nobody then
                hint: widen the rule with OR, or give the role, position or ability to more people; otherwise the step becomes an incident
            "#
        );
    }

    #[test]
    fn people_who_decide_and_people_who_undo_are_checked_too() {
        let source = "process: p
steps:
  - step: a
    who: Role(nurse)
    undo: { who: Role(nurses) }
  - choice: c
    who: Role(physicians)
    branches:
      - { name: x, steps: [{ step: b, who: Role(doctor) }] }
      - { name: y, steps: [] }
";
        let (definition, found) = legwork_model::yaml::parse(source);
        let definition = definition.unwrap_or_else(|| panic!("{found:?}"));
        let findings = Assignments::of(&definition).check(&organisation(HOSPITAL));
        assert_eq!(findings.len(), 3, "{findings:?}");
    }
}
