//! The demand of a job: size, priority and timeout, from its definition and the values it reads.

use std::ops::RangeInclusive;
use std::time::Duration;

use legwork_engine::State;
use legwork_model::definition::{Demand, Measure};
use legwork_model::id::{Activity, ElementId};
use legwork_model::schema::Schema;
use legwork_model::value::Value;

/// Valid sizes. A size of 0 would take no time at all.
const SIZES: RangeInclusive<f64> = 0.001..=1e12;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Demanded {
    pub(crate) size: f64,
    pub(crate) priority: u32,
    pub(crate) timeout: Option<Duration>,
}

/// The demand of an automatic step; default where a value is missing.
pub(crate) fn demanded(schema: &Schema, state: &State, activity: &Activity) -> Demanded {
    let usual = Demand::<ElementId>::default();
    let demand = schema.node(activity.node).demand().unwrap_or(&usual);
    let measured = |measure: &Measure<ElementId>, usual: u32| match measure {
        Measure::Number(number) => f64::from(*number),
        Measure::Element(element) => {
            let value = state.value_for(schema, activity, *element);
            value.and_then(number).unwrap_or(f64::from(usual))
        }
    };
    let size = measured(&demand.size, Demand::<()>::SIZE_DEFAULT);
    let priority = measured(&demand.priority, Demand::<()>::PRIORITY_DEFAULT);
    let most = f64::from(Demand::<()>::PRIORITY_MAX);
    Demanded {
        size: size.clamp(*SIZES.start(), *SIZES.end()),
        priority: priority.clamp(0.0, most) as u32,
        timeout: demand.timeout,
    }
}

/// The number a value stands for; for a file its length.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(number) => Some(*number as f64),
        Value::Decimal(number) => number.to_string().parse().ok(),
        Value::File(file) => Some(file.size as f64),
        Value::Bool(_) | Value::String(_) | Value::DateTime(_) | Value::Json(_) => None,
    }
}
