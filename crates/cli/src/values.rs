//! Values given on the command line: `--set`, `--data` and `--file`.
//!
//! Invariant: text is turned into JSON by the declared type of the element. What does not fit the
//! type goes to the server as text, whose refusal says what was expected.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use legwork_api::Data;
use legwork_model::value::ValueType;
use serde_json::{Value as Json, json};

/// The declared types of data elements, as far as they are known.
pub(crate) type Types = BTreeMap<String, ValueType>;

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ValueArgs {
    /// A value; may be repeated. Written as its type demands: true, 12, 12.50, text, JSON
    #[arg(long = "set", value_name = "NAME=VALUE")]
    set: Vec<Setting>,
    /// All values as a JSON object, or @FILE that holds one
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// `--file contract=offer.pdf`
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct FileArgs {
    /// A file for an element of type `file`; may be repeated
    #[arg(long = "file", value_name = "NAME=PATH")]
    file: Vec<Setting>,
}

impl FromStr for Setting {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, value) = text
            .split_once('=')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| anyhow!("write the name, an equals sign and the value: amount=12.50"))?;
        Ok(Self { name: name.trim().to_owned(), value: value.to_owned() })
    }
}

impl ValueArgs {
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty() && self.data.is_none()
    }

    /// Whether types are needed.
    pub(crate) fn needs_types(&self) -> bool {
        !self.set.is_empty()
    }

    pub(crate) fn data(&self, types: &Types) -> Result<Data> {
        let mut data = match &self.data {
            None => Data::new(),
            Some(text) => object(text)?,
        };
        for Setting { name, value } in &self.set {
            if types.get(name) == Some(&ValueType::File) && value.starts_with('@') {
                let path = value.trim_start_matches('@');
                bail!("`{name}` is a file; use --file {name}={path}");
            }
            let value = match types.get(name) {
                Some(kind) => typed(*kind, value),
                None => guessed(value),
            };
            if data.insert(name.clone(), value).is_some() {
                bail!("`{name}` is given twice; give it once");
            }
        }
        Ok(data)
    }
}

impl FileArgs {
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, PathBuf)> {
        self.file.iter().map(|setting| (&*setting.name, PathBuf::from(&setting.value)))
    }
}

/// The declared types of a definition, by its text.
pub(crate) fn types_of(source: &str) -> Types {
    let (definition, _) = legwork_model::yaml::parse(source);
    let elements = definition.into_iter().flat_map(|definition| definition.data);
    elements.map(|element| (element.name.value.to_string(), element.kind)).collect()
}

/// A JSON object, or the content of a file after `@`.
fn object(text: &str) -> Result<Data> {
    let (text, origin) = match text.strip_prefix('@') {
        None => (text.to_owned(), "--data".to_owned()),
        Some(path) => {
            let text = std::fs::read_to_string(path);
            (text.with_context(|| format!("cannot read {path}"))?, path.to_owned())
        }
    };
    serde_json::from_str(&text).with_context(|| {
        format!("{origin} must be a JSON object such as {{\"amount\": \"12.50\"}}")
    })
}

fn typed(kind: ValueType, text: &str) -> Json {
    let as_text = || json!(text);
    match kind {
        ValueType::Bool => text.parse().map_or_else(|_| as_text(), Json::Bool),
        ValueType::Int => text.parse::<i64>().map_or_else(|_| as_text(), |number| json!(number)),
        ValueType::Json | ValueType::File => {
            serde_json::from_str(text).unwrap_or_else(|_| as_text())
        }
        // Decimals are sent as text: every digit counts.
        ValueType::Decimal | ValueType::String | ValueType::DateTime => as_text(),
    }
}

/// Without a type: booleans, whole numbers, objects and lists are recognised by their form.
fn guessed(text: &str) -> Json {
    let looks = |kind| Some(typed(kind, text)).filter(|json| !json.is_string());
    let structured = text.starts_with(['{', '[']).then(|| typed(ValueType::Json, text));
    looks(ValueType::Bool).or_else(|| looks(ValueType::Int)).or(structured).unwrap_or(json!(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(set: &[&str], data: Option<&str>, types: &[(&str, ValueType)]) -> String {
        let set = set.iter().map(|text| text.parse().unwrap()).collect();
        let types = types.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
        let args = ValueArgs { set, data: data.map(str::to_owned) };
        match args.data(&types) {
            Ok(data) => serde_json::to_string(&data).unwrap(),
            Err(error) => format!("{error:#}"),
        }
    }

    #[test]
    fn values_are_written_as_their_types_demand() {
        let types = [
            ("yes", ValueType::Bool),
            ("count", ValueType::Int),
            ("amount", ValueType::Decimal),
            ("zip", ValueType::String),
            ("due", ValueType::DateTime),
            ("lines", ValueType::Json),
        ];
        let set = [
            "yes=true",
            "count=-12",
            "amount=12.50",
            "zip=01234",
            "due=2026-03-01T09:30:00Z",
            "lines=[1, {\"a\": 2}]",
        ];
        insta::assert_snapshot!(
            check(&set, None, &types),
            @r#"{"amount":"12.50","count":-12,"due":"2026-03-01T09:30:00Z","lines":[1,{"a":2}],"yes":true,"zip":"01234"}"#
        );
    }

    #[test]
    fn what_does_not_fit_goes_to_the_server_as_text() {
        let types = [("yes", ValueType::Bool), ("count", ValueType::Int)];
        insta::assert_snapshot!(
            check(&["yes=maybe", "count=1.5"], None, &types),
            @r#"{"count":"1.5","yes":"maybe"}"#
        );
    }

    #[test]
    fn without_types_values_are_what_they_look_like() {
        insta::assert_snapshot!(
            check(&["a=true", "b=7", "c=12.50", "d=x=y", "e=[1]", "f=", "g={"], None, &[]),
            @r#"{"a":true,"b":7,"c":"12.50","d":"x=y","e":[1],"f":"","g":"{"}"#
        );
    }

    #[test]
    fn data_and_settings_add_up_but_never_overlap() {
        insta::assert_snapshot!(check(&["b=2"], Some(r#"{"a": 1}"#), &[]), @r#"{"a":1,"b":2}"#);
        insta::assert_snapshot!(
            check(&["a=2"], Some(r#"{"a": 1}"#), &[]),
            @"`a` is given twice; give it once"
        );
        insta::assert_snapshot!(
            check(&[], Some("[1]"), &[]),
            @r#"--data must be a JSON object such as {"amount": "12.50"}: invalid type: sequence, expected a map at line 1 column 0"#
        );
    }

    #[test]
    fn a_path_for_a_file_element_says_which_option_takes_it() {
        let types = [("photo", ValueType::File), ("note", ValueType::String)];
        insta::assert_snapshot!(
            check(&["photo=@roof.jpg"], None, &types),
            @"`photo` is a file; use --file photo=roof.jpg"
        );
        insta::assert_snapshot!(check(&["note=@home"], None, &types), @r#"{"note":"@home"}"#);
    }

    #[test]
    fn a_setting_without_a_name_is_refused() {
        assert!("=1".parse::<Setting>().is_err());
        assert!("amount".parse::<Setting>().is_err());
    }
}
