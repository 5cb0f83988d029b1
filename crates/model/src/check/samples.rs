//! Sample values of conditions: enough of them to decide for all values.
//!
//! Where conditions only compare elements with literals, their truth is constant between the
//! literals. One value for each literal, one between neighbours and one beyond each end then
//! represent all values.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};
use rust_decimal::Decimal;

use crate::condition::Condition;
use crate::time::Timestamp;
use crate::value::{FileRef, Value, ValueType};

/// The most combinations of values that are tried.
pub const POINTS_MAX: usize = 20_000;
/// Integers up to here are exact as doubles.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Why conditions cannot be decided by trying values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Undecidable {
    /// The condition does more than compare elements with literals.
    Condition(String),
    TooManyPoints,
}

/// For each element the conditions read, the values to try; `None` is no value.
pub(super) struct Samples {
    axes: Vec<(Arc<str>, Vec<Option<Value>>)>,
}

/// One combination of values.
pub(super) struct Point<'s> {
    samples: &'s Samples,
    places: Vec<usize>,
}

impl Samples {
    pub(super) fn new<'c>(
        conditions: impl Iterator<Item = &'c Condition>,
        kind_of: &dyn Fn(&str) -> Option<ValueType>,
        may_be_absent: &dyn Fn(&str) -> bool,
    ) -> Result<Self, Undecidable> {
        let mut literals = Literals { kind_of, of: BTreeMap::new() };
        for condition in conditions {
            literals
                .truth(condition.expression())
                .ok_or_else(|| Undecidable::Condition(condition.source().to_owned()))?;
        }
        let mut axes = Vec::new();
        let mut points = 1_usize;
        for (name, (kind, literals)) in literals.of {
            let mut values: Vec<Option<Value>> =
                values(kind, &literals).into_iter().map(Some).collect();
            if may_be_absent(name) {
                values.push(None);
            }
            points = points.saturating_mul(values.len());
            axes.push((Arc::from(name), values));
        }
        if points > POINTS_MAX { Err(Undecidable::TooManyPoints) } else { Ok(Self { axes }) }
    }

    /// How many combinations there are.
    pub(super) fn count(&self) -> u64 {
        self.axes.iter().map(|(_, values)| values.len() as u64).product()
    }

    /// All combinations.
    pub(super) fn points(&self) -> impl Iterator<Item = Point<'_>> {
        let first = Some(vec![0; self.axes.len()]);
        std::iter::successors(first, |places| {
            let mut next = places.clone();
            for (place, (_, values)) in next.iter_mut().zip(&self.axes) {
                *place += 1;
                if *place < values.len() {
                    return Some(next);
                }
                *place = 0;
            }
            None
        })
        .map(|places| Point { samples: self, places })
    }
}

impl Point<'_> {
    pub(super) fn value(&self, name: &str) -> Option<&Value> {
        let axes = self.samples.axes.iter().zip(&self.places);
        let ((_, values), place) = axes.into_iter().find(|((axis, _), _)| **axis == *name)?;
        values.get(*place)?.as_ref()
    }

    /// The point in words, as far as these conditions read it: `amount = 1000`.
    pub(super) fn describe(&self, conditions: &[&Condition]) -> String {
        let read = |name: &&Arc<str>| {
            conditions.iter().any(|condition| condition.variables().contains(name))
        };
        let parts: Vec<String> = self
            .samples
            .axes
            .iter()
            .map(|(name, _)| name)
            .filter(read)
            .map(|name| match self.value(name) {
                None => format!("no `{name}`"),
                Some(Value::String(text)) => format!("{name} = {text:?}"),
                Some(Value::Decimal(number)) => format!("{name} = {}", number.normalize()),
                Some(Value::DateTime(moment)) => format!("{name} = {moment}"),
                Some(Value::Json(_) | Value::File(_)) => format!("any `{name}`"),
                Some(other @ (Value::Bool(_) | Value::Int(_))) => {
                    format!("{name} = {}", other.to_json())
                }
            })
            .collect();
        if parts.is_empty() { "any value".to_owned() } else { parts.join(", ") }
    }
}

#[derive(Clone, Debug)]
enum Literal {
    Null,
    Bool,
    Int(i64),
    Double(f64),
    String(String),
    /// Milliseconds, the first at or before and the first at or after the moment.
    Moment(i64, i64),
}

/// The literals each element is compared with.
struct Literals<'c> {
    kind_of: &'c dyn Fn(&str) -> Option<ValueType>,
    of: BTreeMap<&'c str, (ValueType, Vec<Literal>)>,
}

/// Returns `None` if the condition does more than can be decided here.
impl<'c> Literals<'c> {
    /// Visits an expression that yields true or false.
    fn truth(&mut self, expression: &'c IdedExpr) -> Option<()> {
        match &expression.expr {
            Expr::Literal(LiteralValue::Boolean(_)) => Some(()),
            Expr::Ident(_) => self.note(expression, Literal::Bool),
            Expr::Call(call) => self.call(call),
            Expr::Literal(_)
            | Expr::Comprehension(_)
            | Expr::List(_)
            | Expr::Map(_)
            | Expr::Select(_)
            | Expr::Struct(_)
            | Expr::Unspecified => None,
        }
    }

    fn call(&mut self, call: &'c CallExpr) -> Option<()> {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (
                operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::CONDITIONAL,
                parts,
            ) => parts.iter().try_for_each(|part| self.truth(part)),
            (
                operators::EQUALS
                | operators::NOT_EQUALS
                | operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS,
                [left, right],
            ) => match (literal(left), literal(right)) {
                (Some(_), Some(_)) => Some(()),
                (None, Some(literal)) => self.note(left, literal),
                (Some(literal), None) => self.note(right, literal),
                (None, None) => {
                    self.truth(left)?;
                    self.truth(right)
                }
            },
            (operators::IN, [item, IdedExpr { expr: Expr::List(list), .. }]) => {
                list.elements.iter().try_for_each(|member| self.note(item, literal(member)?))
            }
            _ => None,
        }
    }

    /// Records that an element, or an expression that yields true or false, is compared with a
    /// literal.
    fn note(&mut self, compared: &'c IdedExpr, literal: Literal) -> Option<()> {
        let Expr::Ident(name) = &compared.expr else {
            return matches!(literal, Literal::Bool).then(|| self.truth(compared)).flatten();
        };
        let kind = (self.kind_of)(name)?;
        let fits = match (kind, &literal) {
            (_, Literal::Null)
            | (ValueType::Bool, Literal::Bool)
            | (ValueType::Int | ValueType::Decimal, Literal::Int(_))
            | (ValueType::String, Literal::String(_))
            | (ValueType::DateTime, Literal::Moment(..)) => true,
            (ValueType::Int, Literal::Double(number)) => number.abs() < EXACT_MAX,
            (ValueType::Decimal, Literal::Double(number)) => decimal(*number).is_some(),
            (_, _) => false,
        };
        self.of.entry(name).or_insert((kind, Vec::new())).1.push(literal);
        fits.then_some(())
    }
}

fn literal(expression: &IdedExpr) -> Option<Literal> {
    match &expression.expr {
        Expr::Literal(LiteralValue::Null) => Some(Literal::Null),
        Expr::Literal(LiteralValue::Boolean(_)) => Some(Literal::Bool),
        Expr::Literal(LiteralValue::Int(number)) => Some(Literal::Int(*number.inner())),
        Expr::Literal(LiteralValue::Double(number)) => Some(Literal::Double(*number.inner())),
        Expr::Literal(LiteralValue::String(text)) => Some(Literal::String(text.to_string())),
        Expr::Call(call) if call.target.is_none() => constant(expression, call),
        Expr::Literal(LiteralValue::Bytes(_) | LiteralValue::UInt(_))
        | Expr::Call(_)
        | Expr::Ident(_)
        | Expr::Comprehension(_)
        | Expr::List(_)
        | Expr::Map(_)
        | Expr::Select(_)
        | Expr::Struct(_)
        | Expr::Unspecified => None,
    }
}

/// A negative number, or a moment written as `timestamp("…")`.
fn constant(expression: &IdedExpr, call: &CallExpr) -> Option<Literal> {
    if !matches!(call.func_name.as_str(), operators::NEGATE | "timestamp") {
        return None;
    }
    let [IdedExpr { expr: Expr::Literal(_), .. }] = call.args.as_slice() else { return None };
    match crate::condition::constant(expression)? {
        cel::Value::Int(number) => Some(Literal::Int(number)),
        cel::Value::Float(number) => Some(Literal::Double(number)),
        cel::Value::Timestamp(moment) => {
            let millis = moment.timestamp_millis();
            let exact = moment.timestamp_subsec_nanos() % 1_000_000 == 0;
            Some(Literal::Moment(millis, if exact { millis } else { millis.saturating_add(1) }))
        }
        cel::Value::List(_)
        | cel::Value::Map(_)
        | cel::Value::Function(..)
        | cel::Value::UInt(_)
        | cel::Value::String(_)
        | cel::Value::Bytes(_)
        | cel::Value::Bool(_)
        | cel::Value::Duration(_)
        | cel::Value::Opaque(_)
        | cel::Value::Struct(_)
        | cel::Value::Null => None,
    }
}

/// A double as the decimal with the same shortest text, if there is one.
fn decimal(number: f64) -> Option<Decimal> {
    let decimal = Decimal::from_str_exact(&number.to_string()).ok()?;
    (crate::condition::double(decimal) == number).then_some(decimal)
}

/// The values to try for an element compared with these literals.
fn values(kind: ValueType, literals: &[Literal]) -> Vec<Value> {
    match kind {
        ValueType::Bool => vec![Value::Bool(false), Value::Bool(true)],
        ValueType::Int => around_integers(literals).into_iter().map(Value::Int).collect(),
        ValueType::Decimal => around_decimals(literals).into_iter().map(Value::Decimal).collect(),
        ValueType::String => around_texts(literals).into_iter().map(Value::String).collect(),
        // Moments that conditions cannot express need no sample.
        ValueType::DateTime => around_integers(literals)
            .into_iter()
            .map(Timestamp)
            .filter(|moment| crate::condition::is_in_range(*moment))
            .map(Value::DateTime)
            .collect(),
        ValueType::Json => vec![Value::Json("{}".to_owned())],
        ValueType::File => vec![Value::File(Box::new(FileRef {
            blob: [0; 32],
            size: 0,
            name: String::new(),
            media_type: String::new(),
        }))],
    }
}

fn around_integers(literals: &[Literal]) -> Vec<i64> {
    let mut values = Vec::new();
    for literal in literals {
        let (low, high) = match literal {
            Literal::Int(number) => (*number, *number),
            Literal::Double(number) => (number.floor() as i64, number.ceil() as i64),
            Literal::Moment(low, high) => (*low, *high),
            Literal::Null | Literal::Bool | Literal::String(_) => continue,
        };
        values.extend([low.saturating_sub(1), low, high, high.saturating_add(1)]);
    }
    if values.is_empty() {
        values.push(0);
    }
    values.sort_unstable();
    values.dedup();
    values
}

fn around_decimals(literals: &[Literal]) -> Vec<Decimal> {
    let mut exact: Vec<Decimal> = literals
        .iter()
        .filter_map(|literal| match literal {
            Literal::Int(number) => Some(Decimal::from(*number)),
            Literal::Double(number) => decimal(*number),
            Literal::Null | Literal::Bool | Literal::String(_) | Literal::Moment(..) => None,
        })
        .collect();
    exact.sort_unstable();
    exact.dedup();
    let (Some(first), Some(last)) = (exact.first(), exact.last()) else {
        return vec![Decimal::ZERO];
    };
    let ends = [first.saturating_sub(Decimal::ONE), last.saturating_add(Decimal::ONE)];
    let between = exact.windows(2).filter_map(|pair| {
        pair[1].checked_sub(pair[0]).map(|gap| pair[0].saturating_add(gap / Decimal::TWO))
    });
    let mut values: Vec<Decimal> = ends.into_iter().chain(between).collect();
    values.extend(&exact);
    values.sort_unstable();
    values.dedup();
    values
}

fn around_texts(literals: &[Literal]) -> Vec<String> {
    let mut texts: Vec<String> = literals
        .iter()
        .filter_map(|literal| match literal {
            Literal::String(text) => Some(text.clone()),
            Literal::Null
            | Literal::Bool
            | Literal::Int(_)
            | Literal::Double(_)
            | Literal::Moment(..) => None,
        })
        .collect();
    // The very next text after each: nothing lies between the two.
    let next: Vec<String> = texts.iter().map(|text| format!("{text}\0")).collect();
    // First one that reads well in a finding, and the least possible one.
    texts.extend(["something else".to_owned(), String::new()]);
    texts.extend(next);
    let mut seen = BTreeSet::new();
    texts.retain(|text| seen.insert(text.clone()));
    texts
}
