//! How long jobs of a type take at the most, as far as definitions say it and was seen.
//!
//! Cases go on with the version they were started with, so every version counts that was ever deployed. Those that are
//! not in use are read for this alone, once, which is needed only after something has broken; what they say of jobs is
//! kept, and nothing else of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::definition::{Demand, Measure};
use legwork_model::event::ExecutorRegistered;
use legwork_model::id::ElementId;
use legwork_model::schema::{Node, Schema};
use legwork_promise::Work;

use super::busy::{USUAL, millis};
use crate::Site;

/// A process and a step of it.
type Step = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
pub(super) struct Longest {
    /// How many versions of each process were read, and of all.
    read: BTreeMap<Arc<str>, usize>,
    versions: usize,
    said: Said,
}

/// What definitions say of the steps that jobs of a type are for.
#[derive(Debug, Default)]
struct Said(BTreeMap<Arc<str>, BTreeMap<Step, Most>>);

/// The most that any version says of a step.
#[derive(Clone, Copy, Debug, Default)]
struct Most {
    takes_ms: Option<i64>,
    /// Where some version does not say how long it takes.
    unsaid: Option<Unsaid>,
}

#[derive(Clone, Copy, Debug)]
struct Unsaid {
    /// How long it may take.
    ms: i64,
    /// How much there is to do.
    size: f64,
    /// That is found in a value.
    is_read: bool,
}

/// How long jobs of a type take at the most, and how much the largest of those is of which nobody has said how long it takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Length {
    ms: i64,
    size: Option<f64>,
}

impl Length {
    fn max(self, other: Self) -> Self {
        let size = [self.size, other.size].into_iter().flatten().reduce(f64::max);
        Self { ms: self.ms.max(other.ms), size }
    }
}

impl Said {
    fn read(&mut self, schema: &Schema) {
        for (node, job) in schema.nodes.iter().filter_map(|node| Some((node, node.job()?))) {
            let step = (schema.process.clone(), node.name.clone());
            let steps = self.0.entry(job.clone()).or_default();
            steps.entry(step).or_default().read(node);
        }
    }
}

impl Most {
    fn read(&mut self, node: &Node) {
        if let Some(takes) = node.takes {
            self.takes_ms = self.takes_ms.max(Some(millis(takes)));
            return;
        }
        let usual = Demand::<ElementId>::default();
        let Demand { size, timeout, .. } = node.demand().unwrap_or(&usual);
        let (size, is_read) = match size {
            Measure::Number(number) => (f64::from(*number), false),
            Measure::Element(_) => (f64::from(Demand::<()>::SIZE_DEFAULT), true),
        };
        let ms = millis(timeout.unwrap_or(USUAL));
        let before = self.unsaid.unwrap_or(Unsaid { ms, size, is_read });
        let (ms, size) = (ms.max(before.ms), size.max(before.size));
        self.unsaid = Some(Unsaid { ms, size, is_read: is_read || before.is_read });
    }
}

impl Site {
    /// How long jobs take at the most by definitions in use, those of all open jobs among them, and by what was planned
    /// for open jobs: whoever promised that may have seen more of them.
    pub(super) fn longest_in_use(
        &self,
        planned: &BTreeMap<Arc<str>, i64>,
    ) -> BTreeMap<Arc<str>, Length> {
        let mut said = Said::default();
        self.catalog.schemas_in_use().for_each(|schema| said.read(schema));
        let lengths = said.0.iter().map(|(job, steps)| (job.clone(), self.length_of(steps)));
        let mut lengths: BTreeMap<Arc<str>, Length> = lengths.collect();
        for (job, ms) in planned {
            let length = lengths.entry(job.clone()).or_default();
            length.ms = length.ms.max(*ms);
        }
        lengths
    }

    /// The longest job that an executor may get from anybody.
    pub(super) fn longest_of_ms(&mut self, one: &ExecutorRegistered) -> i64 {
        self.read_all_definitions();
        let said = &self.planning.longest.said;
        self.longest_by_ms(one, |job| Some(self.length_of(said.0.get(job)?)))
    }

    /// The longest job of an executor's types.
    pub(super) fn longest_by_ms(
        &self,
        one: &ExecutorRegistered,
        length: impl Fn(&Arc<str>) -> Option<Length>,
    ) -> i64 {
        let id = self.executors.registry.named(&one.name).map(|(id, _)| id);
        let takes = one.types.iter().filter_map(|own| {
            let Length { ms, size } = length(&own.job)?;
            let kind = self.executors.registry.kind(&own.job);
            let seen = id.zip(kind).zip(size);
            let seen = seen.and_then(|((id, kind), size)| self.paced_ms(id, kind, size));
            Some(ms.max(seen.unwrap_or(0)))
        });
        takes.max().unwrap_or(0)
    }

    fn read_all_definitions(&mut self) {
        let versions = self.catalog.versions_in_all();
        let longest = &mut self.planning.longest;
        if longest.versions == versions {
            return;
        }
        let Longest { read, said, .. } = longest;
        let is_read = |process: &Arc<str>| read.get(process).copied().unwrap_or(0);
        self.catalog.for_each_schema(is_read, |schema| said.read(schema));
        longest.versions = versions;
        let all = self.catalog.versions_of_all();
        longest.read = all.map(|(process, count)| (process.clone(), count)).collect();
    }

    /// What definitions say, or what was seen if that is more; without both as long as it may take.
    fn length_of(&self, steps: &BTreeMap<Step, Most>) -> Length {
        let lengths = steps.iter().map(|(step, Most { takes_ms, unsaid })| {
            let said = takes_ms.map(Work);
            let seen = self.planning.ledger.seen.get(step);
            let said = said.map(|said| seen.map_or(said, |seen| seen.refine(said)).max(said).0);
            // As much as was ever seen.
            let read = |it: &Unsaid| if it.is_read { self.executors.book.size_max() } else { 0.0 };
            let size = unsaid.map(|it| it.size.max(read(&it)));
            Length { ms: said.max(unsaid.map(|it| it.ms)).unwrap_or(0), size }
        });
        lengths.fold(Length::default(), Length::max)
    }
}
