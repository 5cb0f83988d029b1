//! From which servers a missing value can be fetched: Algorithm 4.
//!
//! Invariant: only servers that have, or must have had, the version that is valid for the reader are named:
//! the server of its writer, and those of earlier steps that read the same version.

use std::collections::BTreeSet;

use legwork_model::id::{Activity, ElementId, ServerId};
use legwork_model::schema::Schema;

use crate::history::Known;

/// The reader of an element.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    pub activity: &'a Activity,
    pub element: ElementId,
}

/// The servers that have a version, cheapest first. `last_writer` returns whose version of an element is valid
/// for an activity, and which server controlled the writer.
pub fn sources(
    schema: &Schema,
    known: &impl Known,
    reader: Reader<'_>,
    last_writer: impl Fn(ElementId, &Activity) -> Option<(Activity, ServerId)>,
    cost: impl Fn(ServerId) -> u32,
    here: ServerId,
) -> Vec<ServerId> {
    let Some(valid) = last_writer(reader.element, reader.activity) else { return Vec::new() };
    let reads = |activity: &Activity| {
        let reads = &schema.node(activity.node).reads;
        reads.iter().any(|access| access.element == reader.element)
    };
    let has_it = |activity: &Activity| {
        reads(activity) && last_writer(reader.element, activity).as_ref() == Some(&valid)
    };
    let readers = known.lasts().filter(|last| has_it(&last.activity)).map(|last| last.server);
    let servers: BTreeSet<ServerId> = readers.chain([valid.1]).collect();
    cheapest_first(servers.into_iter().filter(|at| *at != here), None, cost)
}

/// The order in which servers are asked for a content: the server known to have it, if any, then by cost. Of
/// equal costs the lower number comes first.
pub fn cheapest_first(
    servers: impl Iterator<Item = ServerId>,
    known: Option<ServerId>,
    cost: impl Fn(ServerId) -> u32,
) -> Vec<ServerId> {
    let mut servers: Vec<ServerId> = servers.collect();
    servers.sort_by_key(|server| (Some(*server) != known, cost(*server), *server));
    servers
}
