//! Rules D1 and D3 for the demands of a job: a size or a priority in a data element is a number, and
//! the step reads the element.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::places::{Origin, Places};
use super::report::Report;
use crate::definition::{Measure, Step, Work};
use crate::finding::{Rule, Spanned};
use crate::value::ValueType;

pub(super) fn check(places: &Places<'_>, report: &mut Report) {
    let elements = places.definition.data.iter();
    let kinds: BTreeMap<&str, ValueType> =
        elements.map(|element| (&*element.name.value, element.kind)).collect();
    for node in places.nodes() {
        let Origin::Step(step) = places.origin(node) else { continue };
        let Work::Automatic { demand, .. } = &step.work else { continue };
        if let Measure::Element(name) = &demand.size {
            let fits = |kind| matches!(kind, ValueType::Int | ValueType::Decimal | ValueType::File);
            check_element(step, ("size", name), "int, decimal or file", fits, &kinds, report);
        }
        if let Measure::Element(name) = &demand.priority {
            let fits = |kind| kind == ValueType::Int;
            check_element(step, ("priority", name), "int", fits, &kinds, report);
        }
    }
}

fn check_element(
    step: &Step,
    (what, name): (&str, &Spanned<Arc<str>>),
    wanted: &str,
    fits: impl Fn(ValueType) -> bool,
    kinds: &BTreeMap<&str, ValueType>,
    report: &mut Report,
) {
    let step_name = &step.name.value;
    if !step.reads.iter().any(|read| read.element.value == name.value) {
        let message = format!(
            "the {what} of `{step_name}` is `{name}`, which it does not read",
            name = name.value
        );
        report.error(name.span, Rule::D1, message, format!("add `{}` to its `reads`", name.value));
    } else if let Some(kind) = kinds.get(&*name.value).copied().filter(|kind| !fits(*kind)) {
        let message =
            format!("the {what} of `{step_name}` cannot be `{}`: it is {kind}", name.value);
        report.error(
            name.span,
            Rule::D3,
            message,
            format!("name an element that is {wanted}, or write a number"),
        );
    }
}
