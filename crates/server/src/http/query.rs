//! What stands behind the question mark of a path.
//!
//! Invariant: a parameter that is unknown, given twice or of the wrong form is refused by its
//! name; nothing is ignored.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use super::reply::{Refused, Result};

#[derive(Debug)]
pub(crate) struct Query<'q> {
    parameters: Vec<(Cow<'q, str>, Cow<'q, str>)>,
}

impl<'q> Query<'q> {
    pub(crate) fn parse(text: Option<&'q str>, known: &[&str]) -> Result<Self> {
        let mut parameters: Vec<(Cow<'q, str>, Cow<'q, str>)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.unwrap_or_default().as_bytes()) {
            let shown: String = name.chars().take(64).collect();
            if !known.contains(&&*name) {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let detail = format!("there is no parameter `{shown}` here; known are: {known}");
                return Err(Refused::bad_request("unknown_parameter", detail));
            }
            if parameters.iter().any(|(other, _)| *other == name) {
                let detail = format!("the parameter `{shown}` is given twice; give it once");
                return Err(Refused::bad_request("repeated_parameter", detail));
            }
            parameters.push((name, value));
        }
        Ok(Self { parameters })
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(other, _)| other == name)?;
        Some(&found.1)
    }

    pub(crate) fn parsed<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>> {
        self.text(name)
            .map(|text| {
                text.parse().map_err(|error| {
                    let text: String = text.chars().take(64).collect();
                    let detail = format!("the parameter `{name}` cannot be `{text}`: {error}");
                    Refused::bad_request("bad_parameter", detail)
                })
            })
            .transpose()
    }

    /// How many entries a page may have.
    pub(crate) fn limit(&self) -> Result<usize> {
        let limit = self.parsed("limit")?.unwrap_or(LIMIT_DEFAULT);
        if limit == 0 || limit > LIMIT_MAX {
            let detail = format!("the parameter `limit` must be between 1 and {LIMIT_MAX}");
            return Err(Refused::bad_request("bad_parameter", detail));
        }
        Ok(limit)
    }
}

pub(crate) const LIMIT_DEFAULT: usize = 100;
pub(crate) const LIMIT_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_nothing_is_ignored() {
        let query = Query::parse(Some("agent=a%20b&limit=7"), &["agent", "limit"]).unwrap();
        assert_eq!(query.text("agent"), Some("a b"));
        assert_eq!(query.limit().unwrap(), 7);
        assert_eq!(query.parsed::<u32>("since").unwrap(), None);
        for (text, code) in [
            ("agnt=ann", "unknown_parameter"),
            ("limit=1&limit=2", "repeated_parameter"),
            ("limit=0", "bad_parameter"),
            ("limit=many", "bad_parameter"),
            ("limit=1001", "bad_parameter"),
        ] {
            let refused =
                Query::parse(Some(text), &["agent", "limit"]).and_then(|query| query.limit());
            assert_eq!(refused.unwrap_err().code(), code, "{text}");
        }
    }
}
