//! What stands behind the question mark of a path, and what can stand there or in a header.
//!
//! Invariant: a parameter that is unknown, given twice or of the wrong form is refused by its
//! name; nothing is ignored.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::reply::{Refused, Result};

#[derive(Debug, Default)]
pub(crate) struct Query<'q> {
    parameters: Vec<(Cow<'q, str>, Cow<'q, str>)>,
}

impl<'q> Query<'q> {
    pub(crate) fn parse(text: Option<&'q str>, known: &[Parameter]) -> Result<Self> {
        let mut parameters: Vec<(Cow<'q, str>, Cow<'q, str>)> = Vec::new();
        for (name, value) in form_urlencoded::parse(text.unwrap_or_default().as_bytes()) {
            let shown: String = name.chars().take(64).collect();
            let known = known.iter().filter(|known| !known.is_header).map(|known| known.name);
            if !known.clone().any(|known| known == name) {
                let known: Vec<&str> = known.collect();
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

/// A parameter that an endpoint takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    /// Empty if the name is enough.
    pub(crate) about: &'static str,
    pub(crate) is_header: bool,
    pub(crate) is_required: bool,
    pub(crate) schema: fn() -> RefOr<Schema>,
}

pub(super) const LIMIT: Parameter = Parameter { schema: entries, ..text("limit", "") };
pub(super) const CURSOR: Parameter = text("cursor", NEXT);
const NEXT: &str = "`next` of the page before";
pub(super) const PAGE: &[Parameter] = &[LIMIT, CURSOR];
pub(super) const PAGE_BY_NUMBER: &[Parameter] = &[LIMIT, number("cursor", NEXT)];
pub(super) const WAIT: Parameter = Parameter { schema: millis, ..text("wait_ms", "") };
pub(super) const SINCE: Parameter = text("since", "A cursor: only what has changed since");
pub(super) const AGENT: Parameter =
    text("agent", "Who asks; may be left out when the token allows to work as exactly one agent");
pub(super) const AGENT_OF_LIST: Parameter =
    text("agent", "Whose list; may be left out when the token allows to work as exactly one agent");

pub(super) const fn text(name: &'static str, about: &'static str) -> Parameter {
    of::<String>(name, about)
}

pub(super) const fn number(name: &'static str, about: &'static str) -> Parameter {
    of::<u32>(name, about)
}

pub(super) const fn flag(name: &'static str, about: &'static str) -> Parameter {
    of::<bool>(name, about)
}

pub(super) const fn header(name: &'static str, about: &'static str) -> Parameter {
    Parameter { is_header: true, schema: text_or_null, ..text(name, about) }
}

/// A word of an enum of the API.
pub(super) const fn word<T: ToSchema>(name: &'static str, about: &'static str) -> Parameter {
    Parameter { schema: named::<T>, ..text(name, about) }
}

const fn of<T: PartialSchema>(name: &'static str, about: &'static str) -> Parameter {
    Parameter { name, about, is_header: false, is_required: false, schema: T::schema }
}

fn named<T: ToSchema>() -> RefOr<Schema> {
    Ref::from_schema_name(T::name()).into()
}

fn text_or_null() -> RefOr<Schema> {
    let types = SchemaType::from_iter([Type::String, Type::Null]);
    ObjectBuilder::new().schema_type(types).into()
}

fn entries() -> RefOr<Schema> {
    let number = ObjectBuilder::new().schema_type(Type::Integer);
    number.minimum(Some(1)).maximum(Some(LIMIT_MAX)).into()
}

fn millis() -> RefOr<Schema> {
    let number = ObjectBuilder::new().schema_type(Type::Integer);
    let format = SchemaFormat::KnownFormat(KnownFormat::Int64);
    number.format(Some(format)).minimum(Some(0)).maximum(Some(60_000)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_and_nothing_is_ignored() {
        let known = [AGENT, LIMIT, header("state", "")];
        let query = Query::parse(Some("agent=a%20b&limit=7"), &known).unwrap();
        assert_eq!(query.text("agent"), Some("a b"));
        assert_eq!(query.limit().unwrap(), 7);
        assert_eq!(query.parsed::<u32>("since").unwrap(), None);
        for (text, code) in [
            ("agnt=ann", "unknown_parameter"),
            ("state=open", "unknown_parameter"),
            ("limit=1&limit=2", "repeated_parameter"),
            ("limit=0", "bad_parameter"),
            ("limit=many", "bad_parameter"),
            ("limit=1001", "bad_parameter"),
        ] {
            let refused = Query::parse(Some(text), &known).and_then(|query| query.limit());
            assert_eq!(refused.unwrap_err().code(), code, "{text}");
        }
    }
}
