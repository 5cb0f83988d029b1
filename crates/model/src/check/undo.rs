//! Rule Y4 for `undo`: it is stored with the definition, but no step is undone by it.

use super::places::{Origin, Places};
use super::report::Report;
use crate::definition::Work;
use crate::finding::Rule;

pub(super) fn check(places: &Places<'_>, report: &mut Report) {
    for node in places.nodes() {
        let Origin::Step(step) = places.origin(node) else { continue };
        let span = match &step.undo {
            None => continue,
            Some(Work::Manual { who }) => who.span,
            Some(Work::Automatic { job, .. }) => job.span,
        };
        let message =
            format!("`undo` of `{}` has no effect yet: nothing undoes the step", step.name.value);
        let hint = "leave it out, or undo the work in a step of its own";
        report.warning(span, Rule::Y4, message, hint);
    }
}
