//! Who may do a step: the assignment language.
//!
//! A rule is text in the definition and a tree here. It names people only through the organisation
//! and through the performers of earlier steps, so it can be evaluated wherever the history is.

use std::fmt;
use std::sync::Arc;

/// An expression over sets of agents.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    Any(Vec<Rule>),
    All(Vec<Rule>),
    Except(Box<Rule>, Box<Rule>),
    Are(Actors),
}

/// A set of agents named directly.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Actors {
    /// `Agent(ann)`; without a name everybody.
    Agent(Option<Arc<str>>),
    Role(Arc<str>),
    OrgUnit(Arc<str>, UnitReach),
    OrgPosition(Arc<str>),
    Ability(Arc<str>),
    /// `NodePerformingAgent(step)`: the performer of that step, in its latest iteration.
    Performer(Arc<str>),
    /// `OrgUnitOf(NodePerformingAgent(step))`
    UnitOfPerformer(Arc<str>),
    /// `ManagerOf(NodePerformingAgent(step))`
    ManagerOfPerformer(Arc<str>),
    /// `StartingAgent()`
    Starter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnitReach {
    /// `OrgUnit(u)`
    Itself,
    /// `OrgUnit(u*)`: the unit and all below.
    AndBelow,
    /// `OrgUnit(u+)`: all below only.
    Below,
}

impl Rule {
    /// Visits every directly named set of agents, in the order of the text.
    pub fn for_each_actors<'r>(&'r self, visit: &mut impl FnMut(&'r Actors)) {
        match self {
            Self::Any(rules) | Self::All(rules) => {
                rules.iter().for_each(|rule| rule.for_each_actors(visit));
            }
            Self::Except(from, without) => {
                from.for_each_actors(visit);
                without.for_each_actors(visit);
            }
            Self::Are(actors) => visit(actors),
        }
    }

    /// Whether it refers to performers of earlier steps of the same instance.
    pub fn depends_on_history(&self) -> bool {
        let mut depends = false;
        self.for_each_actors(&mut |actors| {
            depends |= *actors == Actors::Starter || actors.performer_of().is_some();
        });
        depends
    }
}

impl Actors {
    /// The step whose performer it refers to.
    pub fn performer_of(&self) -> Option<&Arc<str>> {
        match self {
            Self::Performer(step)
            | Self::UnitOfPerformer(step)
            | Self::ManagerOfPerformer(step) => Some(step),
            Self::Agent(_)
            | Self::Role(_)
            | Self::OrgUnit(..)
            | Self::OrgPosition(_)
            | Self::Ability(_)
            | Self::Starter => None,
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, rules: &[Self], word: &str| {
            for (place, rule) in rules.iter().enumerate() {
                if place > 0 {
                    write!(f, " {word} ")?;
                }
                match rule {
                    Self::Any(_) | Self::All(_) => write!(f, "({rule})")?,
                    Self::Except(..) | Self::Are(_) => write!(f, "{rule}")?,
                }
            }
            Ok(())
        };
        let operand = |f: &mut fmt::Formatter<'_>, rule: &Self| match rule {
            Self::Are(actors) => write!(f, "{actors}"),
            Self::Any(_) | Self::All(_) | Self::Except(..) => write!(f, "({rule})"),
        };
        match self {
            Self::Any(rules) => list(f, rules, "OR"),
            Self::All(rules) => list(f, rules, "AND"),
            Self::Except(from, without) => {
                operand(f, from)?;
                f.write_str(" EXCEPT ")?;
                operand(f, without)
            }
            Self::Are(actors) => write!(f, "{actors}"),
        }
    }
}

impl fmt::Display for Actors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(None) => f.write_str("Agent()"),
            Self::Agent(Some(name)) => write!(f, "Agent({})", Name(name)),
            Self::Role(name) => write!(f, "Role({})", Name(name)),
            Self::OrgUnit(name, UnitReach::Itself) => write!(f, "OrgUnit({})", Name(name)),
            Self::OrgUnit(name, UnitReach::AndBelow) => write!(f, "OrgUnit({}*)", Name(name)),
            Self::OrgUnit(name, UnitReach::Below) => write!(f, "OrgUnit({}+)", Name(name)),
            Self::OrgPosition(name) => write!(f, "OrgPosition({})", Name(name)),
            Self::Ability(name) => write!(f, "Ability({})", Name(name)),
            Self::Performer(step) => write!(f, "NodePerformingAgent({})", Name(step)),
            Self::UnitOfPerformer(step) => {
                write!(f, "OrgUnitOf(NodePerformingAgent({}))", Name(step))
            }
            Self::ManagerOfPerformer(step) => {
                write!(f, "ManagerOf(NodePerformingAgent({}))", Name(step))
            }
            Self::Starter => f.write_str("StartingAgent()"),
        }
    }
}

/// A name in a rule: quoted if it has more than letters and digits.
struct Name<'n>(&'n str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.chars().all(is_bare) {
            return f.write_str(self.0);
        }
        let escaped = self.0.replace('\\', "\\\\").replace('"', "\\\"");
        write!(f, "\"{escaped}\"")
    }
}

/// Whether a name in a rule may have the character without quotes.
pub(crate) fn is_bare(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '@')
}
