//! Checks whether a definition is correct: what would go wrong when it runs, and how to correct it.
//!
//! A definition without an error here cannot get stuck, read data that is not there, lose an
//! update, or ask for the performer of a step that was not done. Where that cannot be proven the
//! author is warned. Checking ends quickly and never panics, whatever the definition.

mod blocks;
mod choices;
mod data;
mod demands;
mod facts;
mod graph;
mod letters;
mod people;
mod places;
mod report;
mod rounds;
mod samples;
mod servers;
mod syncs;
mod undo;

use crate::compile::compile;
use crate::definition::{Block, Definition};
use crate::finding::{Finding, Rule};
use crate::schema::Schema;
use facts::Facts;
pub use graph::graph;
use places::Places;
#[cfg(feature = "arbitrary")]
pub(crate) use places::for_each_step;
use report::Report;
pub use report::{ERRORS_MAX, WARNINGS_MAX};
pub use samples::POINTS_MAX;

/// Finds everything wrong with a definition, in the order of its text.
pub fn check(definition: &Definition) -> Vec<Finding> {
    let mut report = Report::default();
    check_into(definition, &mut report);
    report.into_findings()
}

fn check_into(definition: &Definition, report: &mut Report) {
    places::check_names(definition, report);
    blocks::check(definition, report);
    rounds::check(definition, report);
    let places = Places::new(definition);
    demands::check(&places, report);
    letters::check(&places, report);
    undo::check(&places, report);
    if report.has_errors() {
        // With broken names or blocks, every further finding would follow from those.
        return;
    }
    data::check_types(definition, report);
    let Some(schema) = draw(definition, &places, report) else { return };
    let facts = Facts::new(&schema, &places);
    syncs::check_effects(&schema, &places, &facts, report);
    data::check(&schema, &places, &facts, report);
    people::check(&schema, &places, &facts, report);
    servers::check(&schema, &places, &facts, report);
    choices::check(&schema, &places, &facts, report);
}

/// Draws the graph without the wrong sync edges, so that the rest can be checked too.
fn draw(definition: &Definition, places: &Places<'_>, report: &mut Report) -> Option<Schema> {
    let mut sound = definition.clone();
    without_syncs(&mut sound.steps);
    let sequence = compile(&sound, 0).map_err(|error| report.unexpected(&error)).ok()?;
    let wrong = syncs::check(&sequence, places, report);
    if wrong.is_empty() {
        sound = definition.clone();
    } else {
        sound.steps.clone_from(&definition.steps);
        places::remove_syncs(&mut sound.steps, &wrong);
    }
    compile(&sound, 0).map_err(|error| report.unexpected(&error)).ok()
}

fn without_syncs(blocks: &mut [Block]) {
    places::for_each_step(blocks, &mut |step| step.after.clear());
}

impl Report {
    /// Names were checked and cycles removed, so compiling cannot fail; a failure is reported
    /// rather than hidden.
    fn unexpected(&mut self, error: &crate::compile::CompileError) {
        let hint = "this is a mistake in the check itself; please report it";
        self.error(crate::finding::Span::default(), Rule::K1, error.to_string(), hint);
    }
}
