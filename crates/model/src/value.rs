//! The typed values of data elements, and their JSON forms.
//!
//! A value read from JSON has exactly the declared type or is refused; writing it back gives JSON
//! that reads as the same value.

use std::fmt;

use minicbor::{Decode, Encode};
use rust_decimal::Decimal;
use serde_json::{Value as Json, json};

use crate::time::Timestamp;

/// The most bytes one value may take in its JSON form; larger content belongs in a file.
pub const VALUE_BYTES_MAX: usize = 256 * 1024;
/// The greatest depth of a `json` element.
pub const JSON_DEPTH_MAX: usize = 64;

/// The type of a data element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ValueType {
    Bool,
    Int,
    Decimal,
    String,
    DateTime,
    Json,
    File,
}

/// One value of a data element.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Value {
    #[n(0)]
    Bool(#[n(0)] bool),
    #[n(1)]
    Int(#[n(0)] i64),
    #[n(2)]
    Decimal(#[cbor(n(0), with = "decimal")] Decimal),
    #[n(3)]
    String(#[n(0)] String),
    #[n(4)]
    DateTime(#[n(0)] Timestamp),
    /// Compact JSON text; kept as text because only conditions look inside.
    #[n(5)]
    Json(#[n(0)] String),
    /// Boxed: very many values are held in memory, and few of them are files.
    #[n(6)]
    File(#[n(0)] Box<FileRef>),
}

/// A file whose content is stored separately, identified by its content hash.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct FileRef {
    #[cbor(n(0), with = "minicbor::bytes")]
    pub blob: [u8; 32],
    #[n(1)]
    pub size: u64,
    #[n(2)]
    pub name: String,
    #[n(3)]
    pub media_type: String,
}

/// JSON that does not match the declared type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("expected {expected}, found {found}")]
    Type { expected: &'static str, found: String },
    #[error(
        "{bytes} bytes are more than the {VALUE_BYTES_MAX} a value may have; upload it as a file"
    )]
    TooLarge { bytes: usize },
    #[error("nested deeper than {JSON_DEPTH_MAX} levels")]
    TooDeep,
}

impl ValueType {
    pub const ALL: [Self; 7] = [
        Self::Bool,
        Self::Int,
        Self::Decimal,
        Self::String,
        Self::DateTime,
        Self::Json,
        Self::File,
    ];

    /// The word in definitions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Decimal => "decimal",
            Self::String => "string",
            Self::DateTime => "date-time",
            Self::Json => "json",
            Self::File => "file",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    fn expectation(self) -> &'static str {
        match self {
            Self::Bool => "true or false",
            Self::Int => "a whole number of at most 64 bits",
            Self::Decimal => "a decimal number, as a number or as text such as \"12.50\"",
            Self::String => "text",
            Self::DateTime => "a date and time such as \"2026-03-01T09:30:00Z\"",
            Self::Json => "any JSON but null",
            Self::File => "a file, as answered by its upload",
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Value {
    /// Reads a value of the declared type.
    pub fn from_json(kind: ValueType, json: &Json) -> Result<Self, Mismatch> {
        let value = match kind {
            ValueType::Bool => json.as_bool().map(Self::Bool),
            ValueType::Int => json.as_i64().map(Self::Int),
            ValueType::Decimal => decimal_from_json(json).map(Self::Decimal),
            ValueType::String => json.as_str().map(|text| Self::String(text.to_owned())),
            ValueType::DateTime => {
                json.as_str().and_then(|text| text.parse().ok()).map(Self::DateTime)
            }
            ValueType::Json if depth(json) > JSON_DEPTH_MAX => return Err(Mismatch::TooDeep),
            ValueType::Json => (!json.is_null()).then(|| Self::Json(json.to_string())),
            ValueType::File => file_from_json(json).map(Box::new).map(Self::File),
        };
        let value = value.ok_or_else(|| Mismatch::Type {
            expected: kind.expectation(),
            found: json.to_string().chars().take(80).collect(),
        })?;
        match &value {
            Self::String(text) | Self::Json(text) if text.len() > VALUE_BYTES_MAX => {
                Err(Mismatch::TooLarge { bytes: text.len() })
            }
            Self::File(file) if file.name.len() + file.media_type.len() > VALUE_BYTES_MAX => {
                Err(Mismatch::TooLarge { bytes: file.name.len() + file.media_type.len() })
            }
            Self::Bool(_)
            | Self::Int(_)
            | Self::Decimal(_)
            | Self::String(_)
            | Self::DateTime(_)
            | Self::Json(_)
            | Self::File(_) => Ok(value),
        }
    }

    pub fn to_json(&self) -> Json {
        match self {
            Self::Bool(truth) => json!(truth),
            Self::Int(number) => json!(number),
            // Text keeps every digit; a JSON number would pass through binary floating point.
            Self::Decimal(number) => json!(number.to_string()),
            Self::String(text) => json!(text),
            Self::DateTime(moment) => json!(moment.to_string()),
            Self::Json(text) => serde_json::from_str(text).unwrap_or(Json::Null),
            Self::File(file) => json!({
                "blob": hex(&file.blob),
                "size": file.size,
                "name": file.name,
                "media_type": file.media_type,
            }),
        }
    }

    /// The bytes of its content; of a file, of its description.
    pub fn content_bytes(&self) -> usize {
        match self {
            Self::Bool(_) => size_of::<bool>(),
            Self::Int(_) => size_of::<i64>(),
            Self::Decimal(_) => size_of::<Decimal>(),
            Self::DateTime(_) => size_of::<Timestamp>(),
            Self::String(text) | Self::Json(text) => text.len(),
            Self::File(file) => size_of::<FileRef>() + file.name.len() + file.media_type.len(),
        }
    }

    pub fn kind(&self) -> ValueType {
        match self {
            Self::Bool(_) => ValueType::Bool,
            Self::Int(_) => ValueType::Int,
            Self::Decimal(_) => ValueType::Decimal,
            Self::String(_) => ValueType::String,
            Self::DateTime(_) => ValueType::DateTime,
            Self::Json(_) => ValueType::Json,
            Self::File(_) => ValueType::File,
        }
    }
}

fn decimal_from_json(json: &Json) -> Option<Decimal> {
    let text = match json {
        Json::String(text) => text.clone(),
        Json::Number(number) => number.to_string(),
        Json::Null | Json::Bool(_) | Json::Array(_) | Json::Object(_) => return None,
    };
    Decimal::from_str_exact(&text).or_else(|_| Decimal::from_scientific(&text)).ok()
}

fn file_from_json(json: &Json) -> Option<FileRef> {
    Some(FileRef {
        blob: unhex(json.get("blob")?.as_str()?)?,
        size: json.get("size")?.as_u64()?,
        name: json.get("name").and_then(Json::as_str).unwrap_or("file").to_owned(),
        media_type: json
            .get("media_type")
            .and_then(Json::as_str)
            .unwrap_or("application/octet-stream")
            .to_owned(),
    })
}

fn depth(json: &Json) -> usize {
    match json {
        Json::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Json::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => 0,
    }
}

/// Lowercase hexadecimal, the text form of content hashes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads exactly 32 bytes of hexadecimal.
pub fn unhex(text: &str) -> Option<[u8; 32]> {
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(place * 2..place * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}

/// Decimals as CBOR text: exact and independent of any layout.
mod decimal {
    use super::Decimal;
    use minicbor::{Decoder, Encoder};

    pub(super) fn encode<C, W: minicbor::encode::Write>(
        value: &Decimal,
        e: &mut Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.str(&value.to_string())?.ok()
    }

    pub(super) fn decode<C>(
        d: &mut Decoder<'_>,
        _: &mut C,
    ) -> Result<Decimal, minicbor::decode::Error> {
        Decimal::from_str_exact(d.str()?)
            .map_err(|_| minicbor::decode::Error::message("not a decimal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: ValueType, input: Json, output: Json) {
        let value = Value::from_json(kind, &input).unwrap_or_else(|e| panic!("{input}: {e}"));
        assert_eq!(value.kind(), kind);
        assert_eq!(value.to_json(), output);
        assert_eq!(Value::from_json(kind, &output), Ok(value.clone()));
        let bytes = minicbor::to_vec(&value).unwrap();
        assert_eq!(minicbor::decode::<Value>(&bytes).unwrap(), value);
    }

    #[test]
    fn values_round_trip_through_json_and_bytes() {
        check(ValueType::Bool, json!(true), json!(true));
        check(ValueType::Int, json!(-7), json!(-7));
        check(ValueType::Decimal, json!(12.5), json!("12.5"));
        check(ValueType::Decimal, json!("0.10"), json!("0.10"));
        check(ValueType::Decimal, json!(1e3), json!("1000.0"));
        check(ValueType::String, json!("ä"), json!("ä"));
        let moment = json!("2026-03-01T09:30:00.000Z");
        check(ValueType::DateTime, json!("2026-03-01T10:30:00+01:00"), moment);
        check(ValueType::Json, json!({"a": [1, null]}), json!({"a": [1, null]}));
        let file = json!({"blob": "ab".repeat(32), "size": 3, "name": "x", "media_type": "text/a"});
        check(ValueType::File, file.clone(), file);
    }

    #[test]
    fn a_value_of_another_type_is_refused_with_what_was_expected() {
        for (kind, json) in [
            (ValueType::Bool, json!("true")),
            (ValueType::Int, json!(1.5)),
            (ValueType::Int, json!(u64::MAX)),
            (ValueType::Decimal, json!("twelve")),
            (ValueType::String, json!(1)),
            (ValueType::DateTime, json!("tomorrow")),
            (ValueType::Json, json!(null)),
            (ValueType::File, json!({"blob": "zz", "size": 1})),
        ] {
            let refusal = Value::from_json(kind, &json);
            assert!(matches!(refusal, Err(Mismatch::Type { .. })), "{kind} {json}: {refusal:?}");
        }
    }

    #[test]
    fn values_have_limits() {
        let long = json!("x".repeat(VALUE_BYTES_MAX + 1));
        assert!(matches!(
            Value::from_json(ValueType::String, &long),
            Err(Mismatch::TooLarge { .. })
        ));
        let deep = (0..=JSON_DEPTH_MAX).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(Value::from_json(ValueType::Json, &deep), Err(Mismatch::TooDeep));
    }
}
