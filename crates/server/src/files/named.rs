//! Files in data.

use legwork_model::value::{FileRef, Value, ValueType};
use legwork_site::Data;

/// The values that have the exact form of a file.
pub(crate) fn named(data: &Data) -> Vec<FileRef> {
    data.values().filter_map(file).collect()
}

fn file(value: &serde_json::Value) -> Option<FileRef> {
    const FIELDS: [&str; 4] = ["blob", "size", "name", "media_type"];
    if !value.as_object()?.keys().all(|field| FIELDS.contains(&field.as_str())) {
        return None;
    }
    match Value::from_json(ValueType::File, value).ok()? {
        Value::File(file) => Some(*file),
        Value::Bool(_)
        | Value::Int(_)
        | Value::Decimal(_)
        | Value::String(_)
        | Value::DateTime(_)
        | Value::Json(_) => None,
    }
}
