//! Where a step is controlled: the server assignment that stands after `at:`.
//!
//! ```text
//! assignment := domain | dependent [WITH domain '=' domain {',' domain '=' domain}]
//! dependent  := 'executor' | 'Server' '(' step ')' | 'Domain' '(' 'Actor' '(' step ')' ')'
//! ```
//!
//! An assignment refers only to the history, so that every server with the same history finds the same
//! place without messages. The best place of an executor is decided once, just before the step, and
//! recorded. What `Display` writes reads as the same assignment.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest assignment, in characters.
pub const ASSIGNMENT_LEN_MAX: usize = 2_000;
/// The most exceptions after `WITH`.
pub const EXCEPTIONS_MAX: usize = 64;

/// The word for the home of an executor. No domain has this name.
pub const EXECUTOR: &str = "executor";

/// Where a step is controlled, as its author wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub place: Place,
    /// Replacements of domains: where the natural one has no server, or another one is cheaper.
    pub exceptions: BTreeMap<Arc<str>, Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A domain by its name.
    Domain(Arc<str>),
    /// `executor`: the home of the executor that is expected to do the step best.
    Executor,
    /// `Server(step)`: where that step was controlled, in its latest iteration.
    Server(Arc<str>),
    /// `Domain(Actor(step))`: the home of the person or worker who did that step; without a home, where
    /// the step was controlled.
    ActorsDomain(Arc<str>),
}

/// A text that is not an assignment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    #[error("expected {expected}, found {found}")]
    Unexpected { expected: &'static str, found: String },
    #[error("`{domain}` stands twice before a `=`")]
    Twice { domain: Arc<str> },
    #[error("there are more than {EXCEPTIONS_MAX} exceptions")]
    TooMany,
    #[error("it is longer than {ASSIGNMENT_LEN_MAX} characters")]
    TooLong,
}

impl Assignment {
    /// The step it depends on.
    pub fn step(&self) -> Option<&Arc<str>> {
        match &self.place {
            Place::Domain(_) | Place::Executor => None,
            Place::Server(step) | Place::ActorsDomain(step) => Some(step),
        }
    }

    /// All domains it names.
    pub fn domains(&self) -> impl Iterator<Item = &Arc<str>> {
        let named = match &self.place {
            Place::Domain(domain) => Some(domain),
            Place::Executor | Place::Server(_) | Place::ActorsDomain(_) => None,
        };
        named.into_iter().chain(self.exceptions.iter().flat_map(|(from, to)| [from, to]))
    }
}

impl fmt::Display for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Domain(domain) => f.write_str(domain)?,
            Place::Executor => f.write_str(EXECUTOR)?,
            Place::Server(step) => write!(f, "Server({step})")?,
            Place::ActorsDomain(step) => write!(f, "Domain(Actor({step}))")?,
        }
        for (n, (from, to)) in self.exceptions.iter().enumerate() {
            write!(f, "{} {from} = {to}", if n == 0 { " WITH" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Assignment {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Self, SyntaxError> {
        if text.chars().count() > ASSIGNMENT_LEN_MAX {
            return Err(SyntaxError::TooLong);
        }
        let mut words = Words { rest: text };
        let place = words.place()?;
        let mut exceptions = BTreeMap::new();
        if !matches!(place, Place::Domain(_)) && words.keyword("WITH") {
            loop {
                let from = words.name("the name of a domain")?;
                words.sign('=', "`=`")?;
                let to = words.name("the name of a domain")?;
                if exceptions.len() == EXCEPTIONS_MAX {
                    return Err(SyntaxError::TooMany);
                }
                if exceptions.insert(from.clone(), to).is_some() {
                    return Err(SyntaxError::Twice { domain: from });
                }
                if words.sign(',', "`,`").is_err() {
                    break;
                }
            }
        }
        match words.peek() {
            "" => Ok(Self { place, exceptions }),
            _ => Err(words.unexpected("nothing more")),
        }
    }
}

struct Words<'t> {
    rest: &'t str,
}

impl<'t> Words<'t> {
    fn place(&mut self) -> Result<Place, SyntaxError> {
        let word = self.name("a domain, executor, Server(step) or Domain(Actor(step))")?;
        if self.sign('(', "`(`").is_err() {
            return Ok(if &*word == EXECUTOR { Place::Executor } else { Place::Domain(word) });
        }
        let place = match &*word {
            "Server" => Place::Server(self.name("the name of a step")?),
            "Domain" => {
                if !self.keyword("Actor") {
                    return Err(self.unexpected("Actor(step)"));
                }
                self.sign('(', "`(`")?;
                let step = self.name("the name of a step")?;
                self.sign(')', "`)`")?;
                Place::ActorsDomain(step)
            }
            _ => {
                let found = format!("`{word}(`");
                let expected = "Server(step) or Domain(Actor(step))";
                return Err(SyntaxError::Unexpected { expected, found });
            }
        };
        self.sign(')', "`)`")?;
        Ok(place)
    }

    /// The next word or sign, without taking it.
    fn peek(&mut self) -> &'t str {
        self.rest = self.rest.trim_start();
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        match self.rest.find(|c: char| !is_name(c)) {
            Some(0) => self.rest.chars().next().map_or("", |c| &self.rest[..c.len_utf8()]),
            Some(end) => &self.rest[..end],
            None => self.rest,
        }
    }

    fn keyword(&mut self, keyword: &str) -> bool {
        let word = self.peek();
        let is_it = word == keyword;
        if is_it {
            self.rest = &self.rest[word.len()..];
        }
        is_it
    }

    fn name(&mut self, expected: &'static str) -> Result<Arc<str>, SyntaxError> {
        let word = self.peek();
        if !word.starts_with(|c: char| c.is_alphanumeric()) {
            return Err(self.unexpected(expected));
        }
        self.rest = &self.rest[word.len()..];
        Ok(Arc::from(word))
    }

    fn sign(&mut self, sign: char, expected: &'static str) -> Result<(), SyntaxError> {
        self.peek();
        let rest = self.rest.strip_prefix(sign).ok_or_else(|| self.unexpected(expected))?;
        self.rest = rest;
        Ok(())
    }

    fn unexpected(&self, expected: &'static str) -> SyntaxError {
        let found = self.rest.trim_start();
        let found = if found.is_empty() {
            "the end".to_owned()
        } else {
            format!("`{}`", found.chars().take(24).collect::<String>())
        };
        SyntaxError::Unexpected { expected, found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Assignment, String> {
        text.parse().map_err(|error: SyntaxError| error.to_string())
    }

    #[test]
    fn what_is_written_reads_as_the_same_assignment() {
        for text in [
            "ulm",
            "branch-office.2",
            "executor",
            "executor WITH bonn = berlin",
            "Server(examine)",
            "Domain(Actor(examine))",
            "Domain(Actor(examine)) WITH bonn = berlin, ulm = stuttgart",
            "Server(examine) WITH ulm = ulm",
        ] {
            assert_eq!(read(text).unwrap().to_string(), text);
        }
        let spread = read("  Domain ( Actor( examine ) )WITH ulm=stuttgart ").unwrap();
        assert_eq!(spread.to_string(), "Domain(Actor(examine)) WITH ulm = stuttgart");
        assert_eq!(spread.step().map(|step| &**step), Some("examine"));
        assert_eq!(spread.domains().map(|d| &**d).collect::<Vec<_>>(), ["ulm", "stuttgart"]);
    }

    #[test]
    fn what_is_no_assignment_is_told_what_was_expected() {
        for (text, error) in [
            ("", "expected a domain, executor, Server(step) or Domain(Actor(step)), found the end"),
            ("Site(x)", "expected Server(step) or Domain(Actor(step)), found `Site(`"),
            ("Domain(x)", "expected Actor(step), found `x)`"),
            ("Server(x", "expected `)`, found the end"),
            ("ulm WITH a = b", "expected nothing more, found `WITH a = b`"),
            ("Server(x) WITH a b", "expected `=`, found `b`"),
            ("Server(x) WITH a = b, a = c", "`a` stands twice before a `=`"),
            ("Server(x) WITH a = b,", "expected the name of a domain, found the end"),
        ] {
            assert_eq!(read(text), Err(error.to_owned()), "{text}");
        }
        assert_eq!(read(&"x".repeat(2_001)), Err(SyntaxError::TooLong.to_string()));
        let many: Vec<String> = (0..65).map(|n| format!("a{n} = b")).collect();
        let many = format!("Server(x) WITH {}", many.join(", "));
        assert_eq!(read(&many), Err(SyntaxError::TooMany.to_string()));
    }
}
