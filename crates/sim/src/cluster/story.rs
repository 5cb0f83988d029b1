//! The history of one instance at every site, for debugging.

use std::fmt::Write;

use legwork_engine::State;
use legwork_model::event::{Event, Record};
use legwork_model::id::{InstanceId, StreamKind};
use legwork_model::schema::Schema;

use super::Cluster;

/// The story of the first instance that has not ended everywhere.
pub(crate) fn of_first_open(cluster: &Cluster) -> String {
    let all = cluster.worlds.iter().filter_map(|world| world.streams().ok()).flatten();
    let open = all.filter_map(|(stream, records)| match stream.kind() {
        StreamKind::Instance(id) => {
            let schema = cluster.schema(id);
            let state = state(&schema, &records_of(&records))?;
            (!state.is_over(&schema)).then_some(id)
        }
        StreamKind::Key
        | StreamKind::Plans
        | StreamKind::Site
        | StreamKind::Mail
        | StreamKind::Schedules
        | StreamKind::Executors => None,
    });
    open.min().map_or_else(String::new, |id| of(cluster, id))
}

pub(crate) fn of(cluster: &Cluster, id: InstanceId) -> String {
    let mut text = format!("{id}\n");
    let schema = cluster.schema(id);
    for node in &schema.nodes {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {} at {:?}", node.id.0, node.name, node.control);
    }
    for (place, world) in cluster.worlds.iter().enumerate() {
        let streams = world.streams().unwrap_or_default();
        let Some(bytes) = streams.get(&id.into()) else { continue };
        let _ = writeln!(text, "at site {place}:");
        let records = records_of(bytes);
        for event in records.iter().flat_map(|record| &record.events) {
            let _ = writeln!(text, "  {event:?}");
        }
        if let Some(state) = state(&schema, &records) {
            let due: Vec<_> = state.due(&schema).collect();
            let _ = writeln!(text, "  due {due:?}, peers {:?}", state.peers());
        }
    }
    text
}

fn records_of(bytes: &[Vec<u8>]) -> Vec<Record<Event>> {
    bytes.iter().filter_map(|bytes| Record::from_bytes(bytes).ok()).collect()
}

fn state(schema: &Schema, records: &[Record<Event>]) -> Option<State> {
    legwork_engine::replay(schema, records.iter())
}
