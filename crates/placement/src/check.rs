//! Checks the domains that a definition names against a topology, and what it requires of them.
//!
//! Invariant: a definition that passes without an error keeps passing, as nothing is ever removed
//! from a topology.

use std::sync::Arc;

use legwork_model::assignment::Assignment;
use legwork_model::definition::{Availability, Block, ChoiceBy, Definition, Until};
use legwork_model::finding::{Finding, Rule, Severity, Span, Spanned};
use legwork_model::schema::{Control, Schema};
use legwork_model::yaml::nearest;

use crate::place::Map;
use crate::topology::{Domain, Store, Topology};

/// The domains that a definition names, and where.
#[derive(Clone, Debug, Default)]
pub struct Domains {
    named: Vec<(Arc<str>, Span)>,
    /// Where it requires that its cases go on when a server is down.
    high: Option<Span>,
}

impl Domains {
    pub fn of(definition: &Definition) -> Self {
        let mut domains = Self::default();
        domains.collect(&definition.steps);
        domains.named.shrink_to_fit();
        let asked = definition.availability.as_ref();
        let high = asked.filter(|asked| asked.value == Availability::High);
        domains.high = high.map(|asked| asked.span);
        domains
    }

    /// Z1, an error: a domain that the topology does not have. Z6, a warning: cases are to go on when
    /// a server is down, and a domain has no server to take over.
    pub fn check(&self, topology: &Topology) -> Vec<Finding> {
        let unknown = self.named.iter().filter(|(name, _)| topology.domain_named(name).is_none());
        let mut findings: Vec<Finding> = unknown
            .map(|(name, span)| {
                let known = topology.domains.iter().map(|domain| &*domain.name);
                Finding {
                    span: *span,
                    severity: Severity::Error,
                    rule: Rule::Z1,
                    message: format!("the topology has no domain `{name}`"),
                    hint: match nearest(name, known) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "name another, or add it to the topology first".to_owned(),
                    },
                }
            })
            .collect();
        findings.extend(self.unavailable(topology));
        findings.sort();
        findings.dedup();
        findings
    }

    fn unavailable(&self, topology: &Topology) -> Vec<Finding> {
        let Some(high) = self.high else { return Vec::new() };
        let finding = |span, message| Finding {
            span,
            severity: Severity::Warning,
            rule: Rule::Z6,
            message,
            hint: "give the domain `store: shared`, or leave out `availability: high`".to_owned(),
        };
        let is_embedded = |domain: &&Domain| domain.store == Store::Embedded;
        if self.named.is_empty() {
            // The step stays where the case is started, which may be any domain.
            let first = topology.domains.iter().find(is_embedded);
            let message = |domain: &Domain| {
                format!(
                    "cases that are started in domain `{}` wait while their server is down",
                    domain.name
                )
            };
            return first.map(|domain| finding(high, message(domain))).into_iter().collect();
        }
        let named = self.named.iter().filter_map(|(name, span)| {
            let domain = topology.domain(topology.domain_named(name)?)?;
            let message = format!("steps in domain `{name}` wait while their server is down");
            is_embedded(&domain).then(|| finding(*span, message))
        });
        named.collect()
    }

    fn collect(&mut self, blocks: &[Block]) {
        for block in blocks {
            match block {
                Block::Step(step) => self.add(step.at.as_ref()),
                Block::Parallel(parallel) => {
                    parallel.branches.iter().for_each(|branch| self.collect(&branch.steps));
                }
                Block::Choice(choice) => {
                    if let ChoiceBy::Person(decider) = &choice.by {
                        self.add(decider.at.as_ref());
                    }
                    choice.branches.iter().for_each(|branch| self.collect(&branch.steps));
                }
                Block::Loop(l) => {
                    if let Until::Person(decider) = &l.until {
                        self.add(decider.at.as_ref());
                    }
                    self.collect(&l.body);
                }
            }
        }
    }

    fn add(&mut self, at: Option<&Spanned<Assignment>>) {
        if let Some(at) = at {
            self.named.extend(at.value.domains().map(|name| (name.clone(), at.span)));
        }
    }
}

/// Whether a definition names any place.
pub fn is_placed(schema: &Schema) -> bool {
    schema.nodes.iter().any(|node| *node.control != Control::Start)
}

/// A domain that a definition in its executable form names and the topology does not have.
pub fn unknown_domain<'s>(schema: &'s Schema, topology: &Topology) -> Option<&'s Arc<str>> {
    let named = schema.nodes.iter().flat_map(|node| {
        let (domain, exceptions) = match &*node.control {
            Control::Start => (None, None),
            Control::Domain(name) => (Some(name), None),
            Control::Server { exceptions, .. } | Control::ActorsDomain { exceptions, .. } => {
                (None, Some(exceptions))
            }
        };
        let exceptions = exceptions.into_iter().flatten().flat_map(|(from, to)| [from, to]);
        domain.into_iter().chain(exceptions)
    });
    named.into_iter().find(|name| topology.domain_named(name).is_none())
}

#[cfg(test)]
mod tests {
    use legwork_model::yaml;

    use super::*;

    const TOPOLOGY: &str = "\
topology: t
domains:
  ulm: { servers: { ulm-1: { address: \"u:1\", api: \"http://u\" } } }
  bonn: { servers: { bonn-1: { address: \"b:1\", api: \"http://b\" } } }
";
    const PROCESS: &str = "\
process: visit
steps:
  - step: come
    who: Role(nurse)
    at: ulm
  - choice: way
    who: Role(nurse)
    at: Domain(Actor(come)) WITH ulm = bonn
    branches:
      - name: a
        steps:
          - step: go
            who: Role(nurse)
            at: bonn
      - name: b
        steps: []
";

    fn checked(text: &str) -> (Vec<String>, Option<String>) {
        let (topology, definition) = (Topology::parse(TOPOLOGY).0.unwrap(), yaml::parse(text).0);
        let definition = definition.unwrap();
        let schema = legwork_model::compile::compile(&definition, 1).unwrap();
        let findings = Domains::of(&definition).check(&topology);
        assert!(is_placed(&schema));
        let unknown = unknown_domain(&schema, &topology).map(ToString::to_string);
        (findings.iter().map(ToString::to_string).collect(), unknown)
    }

    #[test]
    fn a_domain_that_the_topology_does_not_have_is_told_with_its_place() {
        assert_eq!(checked(PROCESS), (Vec::new(), None));
        let (findings, unknown) = checked(&PROCESS.replace("at: bonn", "at: bon"));
        assert_eq!(
            findings,
            ["14:17: error Z1: the topology has no domain `bon`\n    hint: did you mean `bonn`?"]
        );
        assert_eq!(unknown.as_deref(), Some("bon"));
        let (findings, unknown) = checked(&PROCESS.replace("ulm = bonn", "ulm = stuttgart"));
        assert!(findings[0].starts_with("8:9: error Z1"), "{findings:?}");
        assert_eq!(unknown.as_deref(), Some("stuttgart"));
    }

    #[test]
    fn a_process_that_asks_for_more_than_its_domains_offer_is_warned() {
        let high =
            PROCESS.replace("steps:\n  - step: come", "availability: high\nsteps:\n  - step: come");
        let check = |text: &str, topology: &str| {
            let (topology, definition) =
                (Topology::parse(topology).0.unwrap(), yaml::parse(text).0);
            let findings = Domains::of(&definition.unwrap()).check(&topology);
            findings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            check(&high, &TOPOLOGY.replace("bonn: {", "bonn: { store: shared,")),
            [
                "6:9: warning Z6: steps in domain `ulm` wait while their server is down\n    hint: \
                 give the domain `store: shared`, or leave out `availability: high`",
                "9:9: warning Z6: steps in domain `ulm` wait while their server is down\n    hint: \
                 give the domain `store: shared`, or leave out `availability: high`",
            ]
        );
        let shared = TOPOLOGY.replace(": { servers", ": { store: shared, servers");
        assert_eq!(check(&high, &shared), [""; 0]);
        assert_eq!(check(&high.replace("high", "normal"), TOPOLOGY), [""; 0]);
        let anywhere = "process: p\navailability: high\nsteps: [{ step: s, who: Role(nurse) }]\n";
        assert_eq!(check(anywhere, &shared), [""; 0]);
        let told = check(anywhere, TOPOLOGY);
        assert!(
            told[0].starts_with("2:15: warning Z6: cases that are started in domain `ulm`"),
            "{told:?}"
        );
        assert_eq!(told.len(), 1);
    }
}
