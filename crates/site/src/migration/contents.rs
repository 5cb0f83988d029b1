//! Contents of files that were written at other servers and are read here: Algorithm 4.
//!
//! Invariant: a step is offered only when the contents of all files it reads are here, and a content is fetched only
//! when a step that reads it is activated. For each instance a content is fetched once at a time. A file written here
//! is here: it is stored before the step that writes it is completed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use legwork_engine::{Command, Lifecycle, State};
use legwork_model::id::{Activity, ElementId, InstanceId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;
use legwork_model::value::{FileRef, Value, ValueType};
use legwork_placement::{Reader, sources};

use crate::Site;
use crate::cluster::seat::At;
use crate::output::{FileWanted, Output};
use crate::retries::{Backoff, Retries};

/// Back-off before missing contents are requested again; a fetch in progress continues.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
/// For how many instances contents are requested again at a time.
const ASKED_AT_ONCE: usize = 256;
/// How many other versions of an element are named as a source of unchanged parts.
const SIMILAR_MAX: usize = 4;

type Blob = [u8; 32];

/// Contents known to be here, and contents being fetched.
#[derive(Debug)]
pub(crate) struct Contents {
    here: BTreeMap<InstanceId, BTreeSet<Blob>>,
    requests: Retries<InstanceId, BTreeSet<Blob>>,
}

impl Default for Contents {
    fn default() -> Self {
        Self { here: BTreeMap::new(), requests: Retries::new(BACKOFF) }
    }
}

impl Contents {
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.requests.next_due()
    }

    /// Whether a fetch is in progress for an instance, which keeps the instance in memory.
    pub(crate) fn concerns(&self, id: InstanceId) -> bool {
        self.requests.contains(&id)
    }

    /// Makes all requests due: a server can be reached again.
    pub(crate) fn hurry(&mut self, now: Timestamp) {
        self.requests.hurry(now);
    }

    /// The instance is over.
    pub(crate) fn forget(&mut self, id: InstanceId) {
        self.requests.remove(&id);
        self.here.remove(&id);
    }

    fn is_here(&self, id: InstanceId, blob: &Blob) -> bool {
        self.here.get(&id).is_some_and(|here| here.contains(blob))
    }

    /// Notes requested contents.
    fn ask(&mut self, id: InstanceId, blobs: impl Iterator<Item = Blob>, now: Timestamp) {
        match self.requests.get_mut(&id) {
            Some(asked) => asked.extend(blobs),
            None => self.requests.insert_sent(id, blobs.collect(), now),
        }
    }
}

impl Site {
    /// Requests the contents that the activated steps of an instance read, unless they are here or being fetched.
    pub(crate) fn fetch_contents(&mut self, id: InstanceId, now: Timestamp) {
        let mut files = self.lacking_contents(id);
        if let Some(asked) = self.migration.contents.requests.get(&id) {
            files.retain(|file| !asked.contains(&file.blob));
        }
        if !files.is_empty() {
            self.migration.contents.ask(id, files.iter().map(|file| file.blob), now);
            self.out.push(Output::FetchFiles { instance: id, files });
        }
    }

    /// Requests missing contents again. Each attempt tries all sources, cheapest first.
    pub(crate) fn retry_content_fetches(&mut self, now: Timestamp) {
        for _ in 0..ASKED_AT_ONCE {
            let Some(id) = self.migration.contents.requests.first_due(now) else { return };
            let files = self.lacking_contents(id);
            let requests = &mut self.migration.contents.requests;
            if files.is_empty() {
                // No step reads them any more.
                requests.remove(&id);
                continue;
            }
            if let Some(asked) = requests.attempted(&id, now) {
                *asked = files.iter().map(|file| file.blob).collect();
            }
            self.out.push(Output::FetchFiles { instance: id, files });
        }
    }

    /// Requested contents have arrived.
    pub(crate) fn files_here(&mut self, id: InstanceId, blobs: Vec<Blob>, now: Timestamp) {
        let Some(asked) = self.migration.contents.requests.get_mut(&id) else { return };
        let come: Vec<Blob> = blobs.into_iter().filter(|blob| asked.remove(blob)).collect();
        if asked.is_empty() {
            self.migration.contents.requests.remove(&id);
        }
        if come.is_empty() {
            return;
        }
        self.migration.contents.here.entry(id).or_default().extend(come);
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        if !state.lifecycle().has_ended() {
            return self.offer_open(id, now);
        }
        if !state.has_results(schema) || self.lacks_result_files(id, schema, state) {
            return;
        }
        if state.is_over(schema) {
            // These were the last missing contents: the stream ends with this record.
            drop(self.command(id, Command::Fetch { values: Vec::new() }, now));
        } else {
            self.answer_end_of(id);
        }
    }

    /// Whether the contents of all files that a step reads are here.
    pub(crate) fn has_contents(
        &self,
        id: InstanceId,
        schema: &Schema,
        state: &State,
        activity: &Activity,
    ) -> bool {
        self.lacking_of(id, schema, state, activity).is_empty()
    }

    /// Whether an instance that was started here is completed, and the content of a file among its results is missing
    /// here.
    pub(crate) fn lacks_result_files(
        &self,
        id: InstanceId,
        schema: &Schema,
        state: &State,
    ) -> bool {
        state.lifecycle() == Lifecycle::Completed
            && state.started_elsewhere().is_none()
            && !self.has_contents(id, schema, state, &Activity::once(schema.end()))
    }

    /// All contents that activated steps of an instance lack, without repetition.
    fn lacking_contents(&self, id: InstanceId) -> Vec<FileWanted> {
        let (Some(seat), Some((schema, state))) =
            (&self.cluster.seat, self.cases.instances.state(id))
        else {
            return Vec::new();
        };
        if !state.is_shared() {
            return Vec::new();
        }
        let is_offered = |activity: &Activity| {
            let node = schema.node(activity.node);
            (node.who().is_some() || node.job().is_some())
                && seat.at(id).controls(schema, state, activity.node)
        };
        let ends = state.has_results(schema) && self.lacks_result_files(id, schema, state);
        let end = ends.then(|| Activity::once(schema.end()));
        let mut wanted: BTreeMap<Blob, FileWanted> = BTreeMap::new();
        for activity in state.due(schema).filter(is_offered).chain(end) {
            for (element, file) in self.lacking_of(id, schema, state, &activity) {
                wanted.entry(file.blob).or_insert_with(|| FileWanted {
                    blob: file.blob,
                    size: file.size,
                    similar: similar(state, element, file),
                    sources: sources_of(
                        seat.at(id),
                        schema,
                        state,
                        Reader { activity: &activity, element },
                    ),
                });
            }
        }
        wanted.into_values().collect()
    }

    /// The files an activity reads that were written elsewhere and whose contents are missing here.
    fn lacking_of<'a>(
        &self,
        id: InstanceId,
        schema: &Schema,
        state: &'a State,
        activity: &Activity,
    ) -> Vec<(ElementId, &'a FileRef)> {
        if self.cluster.seat.is_none() || !state.is_shared() {
            return Vec::new();
        }
        let reads = schema.node(activity.node).reads.iter().map(|access| access.element);
        let files = reads.filter(|element| schema.element(*element).kind == ValueType::File);
        let lacking = |element: ElementId| {
            let (writer, server) = state.last_writer(schema, activity, element)?;
            server?;
            match state.value_by(element, &writer)? {
                Value::File(file) if !self.migration.contents.is_here(id, &file.blob) => {
                    Some((element, &**file))
                }
                Value::File(_)
                | Value::Bool(_)
                | Value::Int(_)
                | Value::Decimal(_)
                | Value::String(_)
                | Value::DateTime(_)
                | Value::Json(_) => None,
            }
        };
        files.filter_map(lacking).collect()
    }
}

/// Other versions of an element, newest first.
fn similar(state: &State, element: ElementId, file: &FileRef) -> Vec<Blob> {
    let mut blobs = Vec::new();
    for version in state.versions(element).into_iter().rev() {
        if let Value::File(other) = version.value
            && other.blob != file.blob
            && !blobs.contains(&other.blob)
            && blobs.len() < SIMILAR_MAX
        {
            blobs.push(other.blob);
        }
    }
    blobs
}

/// The servers that have the content, cheapest first.
fn sources_of(
    at: At<'_>,
    schema: &Schema,
    state: &State,
    reader: Reader<'_>,
) -> Vec<legwork_model::id::ServerId> {
    let seat = at.seat;
    let last_writer = |element, reader: &_| {
        let (writer, server) = state.last_writer(schema, reader, element)?;
        Some((writer, server.unwrap_or(seat.here)))
    };
    let cost = |server| seat.topology.cost(seat.here, server);
    sources(schema, &at.knowing(state), reader, last_writer, cost, seat.here)
}
