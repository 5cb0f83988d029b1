//! Creating: an instance begins with its inputs.
//!
//! The inputs are the writes of the start node and obey the same rules as the outputs of any step.

use legwork_model::event::{Created, Event};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;

use super::{Decision, Draft, Everywhere, Here};
use crate::data;
use crate::evolve;
use crate::rejection::Rejection;

/// Begins an instance of the given definition that one server controls.
pub fn create(schema: &Schema, created: Created, now: Timestamp) -> Result<Decision, Rejection> {
    create_at(&Everywhere, schema, created, now)
}

/// Begins an instance of the given definition at one of its servers.
pub fn create_at(
    here: &dyn Here,
    schema: &Schema,
    created: Created,
    now: Timestamp,
) -> Result<Decision, Rejection> {
    if (&created.process, created.version) != (&schema.process, schema.version) {
        let process = created.process.to_string();
        return Err(Rejection::WrongDefinition { process, version: created.version });
    }
    data::check(schema, schema.node(Schema::START), &created.inputs)?;
    let (mut changes, mut undecided) = (Vec::new(), Vec::new());
    let state = evolve::begin(schema, &created, now, &mut changes, &mut undecided, Vec::pop);
    let events = vec![Event::Created(Box::new(created))];
    Ok(Draft { here, schema, state, now, events, changes, undecided }.finish())
}
