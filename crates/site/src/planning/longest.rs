//! How long jobs of a type take at the most, as far as definitions say it and was seen.
//!
//! Cases go on with the version they were started with, so every version counts that was ever deployed. Those that are
//! not in use are read for this alone, which is needed only after something has broken, and kept nowhere.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::event::ExecutorRegistered;
use legwork_model::schema::{Node, Schema};
use legwork_promise::Work;

use super::busy::{USUAL, millis};
use crate::Site;

/// By type, of how many versions of definitions.
#[derive(Debug, Default)]
pub(super) struct Longest {
    versions: usize,
    ms: BTreeMap<Arc<str>, i64>,
}

impl Site {
    /// The longest job of a type by definitions in use, those of all open jobs among them.
    pub(super) fn longest_in_use_ms(&self, job: &str) -> i64 {
        let mut longest = 0;
        for schema in self.catalog.schemas_in_use() {
            let own = schema.nodes.iter().filter(|node| node.job().is_some_and(|it| **it == *job));
            own.for_each(|node| longest = longest.max(self.takes_at_most_ms(schema, node)));
        }
        longest
    }

    /// The longest job that an executor may get from anybody.
    pub(super) fn longest_of_ms(&mut self, one: &ExecutorRegistered) -> i64 {
        self.read_all_definitions();
        let id = self.executors.registry.named(&one.name).map(|(id, _)| id);
        let takes = one.types.iter().map(|own| {
            let said = self.planning.longest.ms.get(&own.job).copied().unwrap_or(0);
            let kind = self.executors.registry.kind(&own.job);
            let seen =
                id.zip(kind).and_then(|(id, kind)| self.executors.book.seen(id, kind).pace_ms);
            said.max(seen.unwrap_or(0.0) as i64)
        });
        takes.max().unwrap_or(0)
    }

    fn read_all_definitions(&mut self) {
        let versions = self.catalog.versions_in_all();
        if self.planning.longest.versions == versions {
            return;
        }
        let mut ms: BTreeMap<Arc<str>, i64> = BTreeMap::new();
        self.catalog.for_each_schema(|schema| {
            for (node, job) in schema.nodes.iter().filter_map(|node| Some((node, node.job()?))) {
                let longest = ms.entry(job.clone()).or_default();
                *longest = self.takes_at_most_ms(schema, node).max(*longest);
            }
        });
        self.planning.longest = Longest { versions, ms };
    }

    /// What a definition says, or what was seen if that is more; without both as long as it may take.
    fn takes_at_most_ms(&self, schema: &Schema, node: &Node) -> i64 {
        let timeout = node.demand().and_then(|demand| demand.timeout);
        let Some(said) = node.takes.map(|takes| Work(millis(takes))) else {
            return millis(timeout.unwrap_or(USUAL));
        };
        let seen = self.planning.ledger.seen.get(&(schema.process.clone(), node.name.clone()));
        seen.map_or(said, |seen| seen.refine(said)).max(said).0
    }
}
