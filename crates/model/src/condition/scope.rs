//! The data elements of one evaluation, as CEL sees them.
//!
//! Values are borrowed where they can be, converted once, and looked up without hashing. A loop
//! that would take too long over these values is refused before it starts.

use std::sync::Arc;

use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelTimestamp,
    CelUInt,
};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::{ExecutionError, OverloadError};
use chrono::DateTime;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde_json::Value as Json;

use super::ConditionError;
use super::profile::Facts;
use crate::time::Timestamp;
use crate::value::{FileRef, Value};

/// The most steps the loops of a condition may take over its values; about a tenth of a second.
pub const WORK_MAX: u64 = 2_000_000;
/// The cost of a text: one step for so many bytes.
const BYTES_PER_STEP: u64 = 64;

pub(super) struct Scope<'a> {
    names: &'a [Arc<str>],
    slots: Vec<Slot<'a>>,
}

/// A value converted for CEL. Scalars are kept inline, so that a lookup allocates nothing.
enum Slot<'a> {
    Absent(CelNull),
    Bool(CelBool),
    Int(CelInt),
    Decimal(CelDouble),
    String(CelString<'a>),
    DateTime(CelTimestamp),
    Json { content: Box<dyn Val>, items: u64 },
    File(CelMap<'a>),
}

impl<'a> Scope<'a> {
    pub(super) fn new(
        facts: &'a Facts,
        value_of: impl Fn(&str) -> Option<&'a Value>,
    ) -> Result<Self, ConditionError> {
        let names = facts.variables.as_slice();
        let slots =
            names.iter().map(|name| Slot::new(name, value_of(name))).collect::<Result<_, _>>()?;
        let scope = Self { names, slots };
        scope.admit_loops(facts)?;
        Ok(scope)
    }

    fn admit_loops(&self, facts: &Facts) -> Result<(), ConditionError> {
        let slots = |places: &[usize]| -> Vec<&Slot<'a>> {
            places.iter().filter_map(|place| self.slots.get(*place)).collect()
        };
        let work = facts.loops.iter().fold(0_u64, |work, l| {
            let items: u64 = slots(&l.range).iter().map(|slot| slot.items()).sum();
            let reads: u64 = slots(&l.body).iter().map(|slot| slot.steps()).sum();
            work.saturating_add(items.saturating_mul(l.body_size.saturating_add(reads)))
        });
        if work > WORK_MAX { Err(ConditionError::TooMuchWork { work }) } else { Ok(()) }
    }

    /// Explains why an evaluation failed, without the values: they may be long, or confidential.
    pub(super) fn explain(&self, error: &ExecutionError) -> String {
        let reason = explain(error);
        let absent: Vec<String> = (self.names.iter().zip(&self.slots))
            .filter(|(_, slot)| matches!(slot, Slot::Absent(_)))
            .map(|(name, _)| format!("`{name}`"))
            .collect();
        if absent.is_empty() {
            reason
        } else {
            format!("{reason} ({} without a value)", absent.join(", "))
        }
    }
}

impl VariableResolver for Scope<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let place = self.names.iter().position(|name| &**name == variable)?;
        self.slots.get(place).map(|slot| CowVal::Borrowed(slot.as_val()))
    }
}

impl<'a> Slot<'a> {
    fn new(name: &str, value: Option<&'a Value>) -> Result<Self, ConditionError> {
        let unusable = |what: &str| ConditionError::Evaluation {
            reason: format!("the value of `{name}` {what}"),
        };
        match value {
            None => Ok(Self::Absent(CelNull)),
            Some(Value::Bool(truth)) => Ok(Self::Bool(CelBool::from(*truth))),
            Some(Value::Int(number)) => Ok(Self::Int(CelInt::from(*number))),
            Some(Value::Decimal(number)) => Ok(Self::Decimal(CelDouble::from(double(*number)))),
            Some(Value::String(text)) => Ok(Self::String(CelString::from(text.as_str()))),
            Some(Value::DateTime(moment)) => timestamp(*moment)
                .map(Self::DateTime)
                .ok_or_else(|| unusable("lies outside of the years 1 to 9999")),
            Some(Value::Json(text)) => {
                let json = serde_json::from_str(text).map_err(|_| unusable("is not JSON"))?;
                let mut items = 0;
                let content = content(json, &mut items);
                Ok(Self::Json { content, items })
            }
            Some(Value::File(file)) => Ok(Self::File(fields(file))),
        }
    }

    fn as_val<'b>(&'b self) -> &'b (dyn Val + 'b) {
        match self {
            Self::Absent(value) => value,
            Self::Bool(value) => value,
            Self::Int(value) => value,
            Self::Decimal(value) => value,
            Self::String(value) => value,
            Self::DateTime(value) => value,
            Self::Json { content, .. } => content.as_ref(),
            Self::File(value) => value,
        }
    }

    /// The greatest number of items in a loop over it.
    fn items(&self) -> u64 {
        match self {
            Self::Json { items, .. } => *items,
            Self::File(fields) => fields.len() as u64,
            Self::Absent(_)
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Decimal(_)
            | Self::String(_)
            | Self::DateTime(_) => 1,
        }
    }

    /// The cost of reading all of it.
    fn steps(&self) -> u64 {
        match self {
            Self::String(text) => 1 + text.len() as u64 / BYTES_PER_STEP,
            Self::Absent(_)
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Decimal(_)
            | Self::DateTime(_)
            | Self::Json { .. }
            | Self::File(_) => self.items(),
        }
    }
}

/// The double nearest to a decimal.
pub(crate) fn double(number: Decimal) -> f64 {
    const EXACT: u128 = 1 << 53;
    const POWERS: [f64; 16] =
        [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let (digits, scale) = (number.mantissa(), number.scale() as usize);
    match POWERS.get(scale) {
        // Both are exact, and a division rounds correctly.
        Some(power) if digits.unsigned_abs() <= EXACT => digits as f64 / power,
        // The conversion of the decimal crate is not exact in the last digit; reading text is.
        Some(_) | None => {
            number.to_string().parse().unwrap_or_else(|_| number.to_f64().unwrap_or(f64::INFINITY))
        }
    }
}

fn timestamp(moment: Timestamp) -> Option<CelTimestamp> {
    if !is_in_range(moment) {
        return None;
    }
    DateTime::from_timestamp_millis(moment.0).map(|moment| moment.fixed_offset().into())
}

/// Whether a moment is in CEL's range. Beyond it, adding a duration could overflow.
pub(crate) fn is_in_range(moment: Timestamp) -> bool {
    const YEAR_1: i64 = -62_135_596_800_000;
    const YEAR_9999_END: i64 = 253_402_300_799_999;
    (YEAR_1..=YEAR_9999_END).contains(&moment.0)
}

fn content(json: Json, items: &mut u64) -> Box<dyn Val> {
    *items += 1;
    match json {
        Json::Null => Box::new(CelNull),
        Json::Bool(truth) => Box::new(CelBool::from(truth)),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(number), _, _) => Box::new(CelInt::from(number)),
            (None, Some(number), _) => Box::new(CelUInt::from(number)),
            (None, None, Some(number)) => Box::new(CelDouble::from(number)),
            (None, None, None) => Box::new(CelNull),
        },
        Json::String(text) => {
            *items += text.len() as u64 / BYTES_PER_STEP;
            Box::new(CelString::from(text))
        }
        Json::Array(list) => {
            let list: Vec<Box<dyn Val>> =
                list.into_iter().map(|item| content(item, items)).collect();
            Box::new(CelList::from(list))
        }
        Json::Object(fields) => {
            let fields = fields.into_iter().map(|(name, field)| (name, content(field, items)));
            Box::new(map(fields))
        }
    }
}

fn fields(file: &FileRef) -> CelMap<'_> {
    let text = |text| -> Box<dyn Val + '_> { Box::new(CelString::from(text)) };
    let size: Box<dyn Val> = match i64::try_from(file.size) {
        Ok(size) => Box::new(CelInt::from(size)),
        Err(_) => Box::new(CelUInt::from(file.size)),
    };
    map([
        ("name", text(file.name.as_str())),
        ("media_type", text(file.media_type.as_str())),
        ("size", size),
    ])
}

/// CEL's map, which hashes with a random seed. No condition can depend on its order.
fn map<'v, N>(fields: impl IntoIterator<Item = (N, Box<dyn Val + 'v>)>) -> CelMap<'v>
where
    CelString<'v>: From<N>,
{
    let mut map = CelMap::default().into_inner();
    map.extend(
        fields.into_iter().map(|(name, field)| (CelMapKey::String(CelString::from(name)), field)),
    );
    CelMap::from(map)
}

fn explain(error: &ExecutionError) -> String {
    const MESSAGE_CHARS_MAX: usize = 160;
    if let ExecutionError::NoSuchOverload(call) = error {
        return explain_call(call);
    }
    if let ExecutionError::UnsupportedBinaryOperator(operator, left, right) = error {
        let (left, right) = (left.type_of(), right.type_of());
        return format!("`{operator}` does not go with {left} and {right}");
    }
    if let ExecutionError::NoSuchKey(name) = error {
        let name: String = name.chars().take(MESSAGE_CHARS_MAX).collect();
        return format!("there is no field `{name}`; ask with has(…) first");
    }
    if let ExecutionError::IndexOutOfBounds(_) = error {
        return "the list has no item at that place".to_owned();
    }
    if let ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) = error {
        return "it divides by zero".to_owned();
    }
    if let ExecutionError::Overflow(operator, _, _) = error {
        return format!("the result of `{operator}` is too large");
    }
    if let ExecutionError::FunctionError { function, message } = error {
        let message: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
        return format!("`{function}` failed: {message}");
    }
    if let ExecutionError::UnexpectedType { got, want } = error {
        return format!("expected {want}, found {got}");
    }
    "its parts do not go together".to_owned()
}

fn explain_call(call: &OverloadError) -> String {
    // `_<_` is CEL's name of the operator `<`.
    let name = call.function().trim_matches(['_', '@']);
    format!("`{name}` does not go with {}", call.argument_types().join(" and "))
}
