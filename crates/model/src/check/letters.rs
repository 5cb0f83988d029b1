//! Rules D1 and D3 for the data shown in letters: elements that the step reads, and that fit into a line
//! of text.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::places::{Origin, Places};
use super::report::Report;
use crate::definition::{ChoiceBy, Until, Use, Work};
use crate::finding::{Rule, Spanned};
use crate::value::ValueType;

/// The step or block, its reads, and the elements shown in its letters.
type Shown<'d> = (&'d str, &'d [Use], &'d [Spanned<Arc<str>>]);

pub(super) fn check(places: &Places<'_>, report: &mut Report) {
    let elements = places.definition.data.iter();
    let kinds: BTreeMap<&str, ValueType> =
        elements.map(|element| (&*element.name.value, element.kind)).collect();
    for node in places.nodes() {
        let Some((of, reads, mail)) = shown(places.origin(node), report) else { continue };
        for name in mail {
            let known = &name.value;
            if !reads.iter().any(|read| read.element.value == *known) {
                let message =
                    format!("the letters of `{of}` are to show `{known}`, which it does not read");
                report.error(name.span, Rule::D1, message, format!("add `{known}` to its `reads`"));
            } else if let Some(kind) = kinds.get(&**known).copied().filter(|kind| !fits(*kind)) {
                let message = format!("the letters of `{of}` cannot show `{known}`: it is {kind}");
                let hint = "name elements that are bool, int, decimal, string or date-time";
                report.error(name.span, Rule::D3, message, hint);
            }
        }
    }
}

fn shown<'d>(origin: Origin<'d>, report: &mut Report) -> Option<Shown<'d>> {
    match origin {
        Origin::Step(step) => {
            let (name, mail) = (&*step.name.value, &step.mail[..]);
            if let (Work::Automatic { .. }, Some(first)) = (&step.work, mail.first()) {
                let message = format!("nobody gets letters about `{name}`: a program does it");
                report.error(first.span, Rule::Y2, message, "leave `mail` out");
                return None;
            }
            Some((name, &step.reads, mail))
        }
        Origin::Choice(choice) => match &choice.by {
            ChoiceBy::Person(decider) => Some((&choice.name.value, &decider.reads, &decider.mail)),
            ChoiceBy::Conditions => None,
        },
        Origin::Loop(l) => match &l.until {
            Until::Person(decider) => Some((&l.name.value, &decider.reads, &decider.mail)),
            Until::Condition(_) => None,
        },
        Origin::Start | Origin::Parallel(_) | Origin::Silent(_) | Origin::End => None,
    }
}

/// Whether a line of text can show it.
fn fits(kind: ValueType) -> bool {
    match kind {
        ValueType::Bool
        | ValueType::Int
        | ValueType::Decimal
        | ValueType::String
        | ValueType::DateTime => true,
        ValueType::Json | ValueType::File => false,
    }
}
