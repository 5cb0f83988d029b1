//! Recovery: folding stored records back into memory.
//!
//! The same replay serves a restart, the loading of an evicted instance, and a look at an ended one.

use std::sync::Arc;

use legwork_engine::{self as engine, State};
use legwork_model::event::{Event, Record, SiteEvent};
use legwork_model::id::{InstanceId, StreamId, StreamKind};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;

use crate::cases::Cases;
use crate::cases::instances::Slot;
use crate::cases::step::guarded;
use crate::catalog::Catalog;
use crate::input::{Request, Stream, Subject};
use crate::output::Output;
use crate::{Held, Site};

/// An instance rebuilt from its records.
struct Rebuilt {
    schema: Arc<Schema>,
    state: State,
    version: u64,
}

enum Failure {
    /// The snapshot was written by another version: only the records count.
    SnapshotUnreadable,
    Broken(String),
}

impl Cases {
    /// The stream that a request needs and that is not in memory.
    pub(crate) fn needs_loading(&self, request: &Request) -> Option<StreamId> {
        if let Request::Start(start) = request {
            // Only the key's stream shows whether a start with a key is a repetition.
            return start.key.as_ref().map(|key| key.stream);
        }
        let instance = match request.subject() {
            Subject::Instance(instance) | Subject::Order(instance) | Subject::Task(instance) => {
                instance
            }
            Subject::Activity(activity, _) => activity.instance,
            Subject::Other => return None,
        };
        let at_hand = self.instances.state(instance).is_some();
        (!at_hand && self.instances.broken(instance).is_none()).then_some(instance.into())
    }
}

impl Catalog {
    fn rebuild(&self, stream: &Stream) -> Result<Rebuilt, Failure> {
        let broken = |reason: String| Failure::Broken(reason);
        let records = stream
            .records
            .iter()
            .map(|bytes| Record::from_bytes(bytes))
            .collect::<Result<Vec<Record<Event>>, _>>()
            .map_err(|error| broken(error.to_string()))?;
        let (schema, state, before) = match &stream.snapshot {
            Some((version, bytes)) => {
                let state = State::from_bytes(bytes).map_err(|_| Failure::SnapshotUnreadable)?;
                let schema = self.schema_of(state.process(), state.version()).map_err(broken)?;
                (schema.clone(), replay_on(&schema, state, &records), *version)
            }
            None => {
                let first = records.first().and_then(|record| record.events.first());
                let Some(created) = first.and_then(Event::beginning) else {
                    return Err(broken("its history does not begin with its start".to_owned()));
                };
                let schema = self.schema_of(&created.process, created.version).map_err(broken)?;
                let state = engine::replay(&schema, records.iter())
                    .ok_or_else(|| broken("its history cannot be replayed".to_owned()))?;
                (schema, state, 0)
            }
        };
        let version = before + records.len() as u64;
        Ok(Rebuilt { schema, state, version })
    }

    pub(crate) fn schema_of(&self, process: &str, version: u32) -> Result<Arc<Schema>, String> {
        let deployed = self
            .find(process, Some(version))
            .ok_or_else(|| format!("process `{process}` version {version} is not known here"))?;
        deployed.schema().cloned().map_err(str::to_owned)
    }
}

impl Site {
    /// Replays a stream that was open when the site last stopped.
    pub(crate) fn recover(&mut self, stream: Stream) {
        match StreamId(stream.id).kind() {
            StreamKind::Site => return self.recover_site(&stream),
            StreamKind::Instance(id) => {
                self.work.recovering = true;
                if self.take_in(id, &stream, true, Timestamp::default()) {
                    self.recover_promises(id);
                    self.recover_deadline(id);
                } else {
                    self.cases.unread.insert(id);
                }
            }
            // Closed with their only record, so never open.
            StreamKind::Key => {}
            StreamKind::Plans => {
                self.cases.loads.remove(&StreamId::PLANS);
                return self.recover_plans(&stream);
            }
            StreamKind::Mail => self.recover_mail(&stream),
            StreamKind::Executors => self.executors.recover_learned(&stream),
            StreamKind::Schedules => {
                self.cases.loads.remove(&StreamId::SCHEDULES);
                return self.recover_schedules(&stream);
            }
        }
        self.evict();
    }

    fn recover_site(&mut self, stream: &Stream) {
        for bytes in &stream.records {
            let number = self.catalog.log.version;
            self.catalog.log.version += 1;
            self.catalog.log.chain.push(bytes);
            match Record::<SiteEvent>::from_bytes(bytes) {
                Ok(Record { at, events }) => {
                    self.clock.latest = self.clock.latest.max(at);
                    for event in events {
                        if let Err(reason) = self.replay_site_event(event, number, at) {
                            self.catalog.log.faults.push(reason);
                        }
                    }
                }
                Err(unreadable) => self.catalog.log.faults.push(unreadable.to_string()),
            }
        }
    }

    /// The site's own stream is complete. There are no instances yet, and so no items to keep.
    pub(crate) fn site_recovered(&mut self) {
        let faults = self.catalog.put_in_force();
        self.catalog.log.faults.extend(faults);
        self.follow_topology();
        self.work.worklists = Self::empty_worklists(&self.config, &self.catalog);
    }

    pub(crate) fn load(&mut self, stream: StreamId, held: Held) {
        self.cases.loading.entry(stream).or_default().push(held);
        self.ask_for(stream, false);
    }

    pub(crate) fn ask_for(&mut self, stream: StreamId, whole: bool) {
        if self.cases.loads.insert(stream) {
            self.out.push(Output::Load { stream, whole });
        }
    }

    /// A requested stream was loaded: serves everything that waited for it.
    pub(crate) fn loaded(&mut self, stream: &Stream, now: Timestamp) {
        let id = StreamId(stream.id);
        self.cases.loads.remove(&id);
        match id.kind() {
            StreamKind::Instance(id) => self.instance_loaded(id, stream, now),
            StreamKind::Key => self.key_loaded(id, stream, now),
            StreamKind::Mail => self.recover_mail(stream),
            StreamKind::Schedules => self.recover_schedules(stream),
            StreamKind::Plans => self.recover_plans(stream),
            // Always in memory, and never requested.
            StreamKind::Site | StreamKind::Executors => {}
        }
    }

    fn instance_loaded(&mut self, id: InstanceId, stream: &Stream, now: Timestamp) {
        let is_there = !stream.records.is_empty() || stream.snapshot.is_some();
        // An instance that is not known here has been closed.
        let was_unread = self.cases.unread.remove(&id);
        let is_open = was_unread || self.cases.instances.get(id).is_some();
        if is_there && !self.take_in(id, stream, is_open, now) {
            return;
        }
        if was_unread {
            self.recover_promises(id);
            self.recover_deadline(id);
        }
        self.cases.deadline_loaded(id);
        for held in self.cases.loading.remove(&id.into()).unwrap_or_default() {
            self.carry_out(held, now);
        }
        self.offer_loaded(id, now);
        for (from, message) in self.cases.unread_messages.remove(&id).unwrap_or_default() {
            self.receive_loaded(from, id, message, now);
        }
        for repeated in self.cases.repeated.remove(&id).unwrap_or_default() {
            self.answer_or_wait(repeated.id, id, repeated.wait_until, Some(true), now);
        }
        if is_open || self.cases.instances.get(id).is_some_and(|slot| !slot.is_over()) {
            self.cases.drop_questions(id.into());
        } else {
            self.answer_key_questions(id.into(), is_there);
        }
        if self.cases.instances.get(id).is_some_and(Slot::is_over)
            && !self.migration.contents.concerns(id)
        {
            self.forget_over(id);
        }
    }

    /// Replays a stream into its slot. Returns false if it has to be loaded again, without its snapshot.
    fn take_in(&mut self, id: InstanceId, stream: &Stream, is_open: bool, now: Timestamp) -> bool {
        let rebuilt = guarded(|| self.catalog.rebuild(stream));
        match rebuilt.unwrap_or_else(|panic| Err(Failure::Broken(panic))) {
            Ok(Rebuilt { schema, state, version }) => {
                self.clock.latest = self.clock.latest.max(state.latest());
                if let Some(slot) = self.cases.instances.get(id) {
                    if slot.version != version {
                        let reason = format!("it has {version} records, not {}", slot.version);
                        self.isolate(id, reason);
                        return true;
                    }
                    self.cases.instances.restore(id, state);
                    if self.work.reoffering.remove(&id) {
                        self.reoffer(id, now);
                    }
                } else {
                    let mut slot = Slot::new(schema, version, state);
                    slot.ended_at = slot.state.as_ref().and_then(|state| state.ended_at());
                    let ended = slot.has_ended();
                    self.cases.instances.insert(id, slot);
                    if !ended {
                        self.offer_open(id, self.clock.latest.max(now));
                        self.requeue_verdicts(id, self.clock.latest.max(now));
                    }
                    self.fetch_lacking(id, now);
                    if is_open {
                        self.fetch_contents(id, self.clock.latest.max(now));
                    }
                    self.resume_transfers(id);
                }
                true
            }
            Err(Failure::SnapshotUnreadable) => {
                self.ask_for(id.into(), true);
                false
            }
            Err(Failure::Broken(reason)) => {
                self.isolate(id, reason);
                true
            }
        }
    }
}

fn replay_on(schema: &Schema, mut state: State, records: &[Record<Event>]) -> State {
    let mut changes = Vec::new();
    for record in records {
        for event in &record.events {
            engine::evolve(schema, &mut state, event, record.at, &mut changes);
            changes.clear();
        }
    }
    state
}
