//! Learned speeds of executors, stored at intervals to survive a restart.
//!
//! They are a cache: the snapshot of a stream with a single record without events. Invariant: a snapshot that cannot be
//! read is dropped, and a crash loses at most what was learned in the last `STORE_EVERY`. Executors and types are
//! stored by name, since numbers differ between incarnations.

use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::{Record, SiteEvent};
use legwork_model::id::{StreamId, shared_text};
use legwork_model::time::Timestamp;
use legwork_schedule::{ExecutorId, ExecutorSnapshot, KindId, KindSnapshot, Usual};
use minicbor::{Decode, Encode};

use super::Executors;
use crate::Site;
use crate::input::Stream;
use crate::output::{Append, Output};

/// The least time between two snapshots.
const STORE_EVERY: Duration = Duration::from_secs(10);
/// The most pairs of executor and type that are stored, about a megabyte. Others are learned again; workers are dropped
/// first.
const PAIRS_MAX: usize = 5_000;
/// Version of the snapshot. Other versions cannot be read.
const FORMAT: u32 = 1;

#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// Number of records in the stream: 0 or 1.
    records: u64,
    /// The revision of the book in the snapshot.
    revision: u64,
    /// When the next snapshot may be written.
    due: Timestamp,
}

#[derive(Encode, Decode)]
struct Learned {
    #[n(0)]
    format: u32,
    #[n(1)]
    service_ms: Option<f64>,
    #[n(2)]
    size_max: f64,
    #[n(3)]
    executors: Vec<LearnedExecutor>,
}

#[derive(Encode, Decode)]
struct LearnedExecutor {
    #[cbor(n(0), with = "shared_text")]
    name: Arc<str>,
    /// A worker asks for jobs; an executor is called.
    #[n(1)]
    is_worker: bool,
    #[n(2)]
    taken_ms: f64,
    #[n(3)]
    expected_ms: f64,
    #[n(4)]
    types: Vec<LearnedType>,
}

#[derive(Encode, Decode)]
struct LearnedType {
    #[cbor(n(0), with = "shared_text")]
    job: Arc<str>,
    #[n(1)]
    recent: Vec<f32>,
    #[n(2)]
    rate_sum: f64,
    #[n(3)]
    rates: u32,
    #[n(4)]
    answers: u64,
    #[n(5)]
    timeouts: u64,
    #[n(6)]
    failures: u64,
}

impl Executors {
    /// When to store what was learned, if there is anything new.
    pub(super) fn next_store(&self) -> Option<Timestamp> {
        (self.book.revision() != self.stored.revision).then_some(self.stored.due)
    }

    fn learned(&self) -> Learned {
        let mut names: Vec<Option<&Arc<str>>> = vec![None; self.registry.kinds()];
        for (job, kind) in self.registry.types() {
            if let Some(place) = names.get_mut(kind.0 as usize) {
                *place = Some(job);
            }
        }
        let registered = self.registry.all().map(|(id, one)| (id, &one.name, false));
        let workers = self.workers.after(None).map(|(id, name)| (id, name, true));
        let mut room = PAIRS_MAX;
        let mut executors = Vec::new();
        for (id, name, is_worker) in registered.chain(workers) {
            let Some(ExecutorSnapshot { taken_ms, expected_ms, mut kinds }) =
                self.book.snapshot(id)
            else {
                continue;
            };
            kinds.truncate(room);
            room -= kinds.len();
            let types = kinds.into_iter().filter_map(|own| {
                let job = names.get(own.kind.0 as usize).copied().flatten()?;
                Some(LearnedType::new(job, own))
            });
            let (name, types) = (name.clone(), types.collect());
            executors.push(LearnedExecutor { name, is_worker, taken_ms, expected_ms, types });
            if room == 0 {
                break;
            }
        }
        let Usual { service_ms, size_max } = self.book.usual();
        Learned { format: FORMAT, service_ms, size_max, executors }
    }

    /// Restores what was learned, of executors that are still registered, and of workers that ask for types of
    /// executors.
    fn restore(&mut self, learned: Learned) {
        let Learned { format: _, service_ms, size_max, executors } = learned;
        self.book.restore_usual(Usual { service_ms, size_max });
        for LearnedExecutor { name, is_worker, taken_ms, expected_ms, types } in executors {
            let kinds = types.into_iter().filter_map(|own| {
                let kind = self.registry.kind(&own.job)?;
                Some(own.kept(kind))
            });
            let kinds: Vec<KindSnapshot> = kinds.collect();
            let id: Option<ExecutorId> = match is_worker {
                true => (!kinds.is_empty()).then(|| self.worker_number(&name)),
                false => self.registry.named(&name).map(|(id, _)| id),
            };
            if let Some(id) = id {
                self.book.restore(id, ExecutorSnapshot { taken_ms, expected_ms, kinds });
            }
        }
    }
}

impl LearnedType {
    fn new(job: &Arc<str>, kept: KindSnapshot) -> Self {
        let KindSnapshot { kind: _, recent, rate_sum, rates, answers, timeouts, failures } = kept;
        // A pace is not known to more than seven digits.
        let recent = recent.into_iter().map(|pace| pace as f32).collect();
        Self { job: job.clone(), recent, rate_sum, rates, answers, timeouts, failures }
    }

    fn kept(self, kind: KindId) -> KindSnapshot {
        let Self { job: _, recent, rate_sum, rates, answers, timeouts, failures } = self;
        let recent = recent.into_iter().map(f64::from).collect();
        KindSnapshot { kind, recent, rate_sum, rates, answers, timeouts, failures }
    }
}

impl Executors {
    /// Replays what was learned before a restart.
    pub(crate) fn recover_learned(&mut self, stream: &Stream) {
        let before = stream.snapshot.as_ref().map_or(0, |(version, _)| *version);
        self.stored.records = before + stream.records.len() as u64;
        let Some((_, bytes)) = &stream.snapshot else { return };
        let learned = minicbor::decode::<Learned>(bytes);
        if let Some(learned) = learned.ok().filter(|learned| learned.format == FORMAT) {
            self.restore(learned);
        }
    }
}

impl Site {
    /// Stores what was learned, if it is due.
    pub(crate) fn store_learned_if_due(&mut self, now: Timestamp) {
        if self.executors.next_store().is_some_and(|due| due <= now) {
            self.store_learned(now);
        }
    }

    /// Stores what was learned, if there is anything new.
    pub(crate) fn store_learned(&mut self, now: Timestamp) {
        if self.executors.next_store().is_none() {
            return;
        }
        self.executors.stored.due = now.plus(STORE_EVERY);
        let bytes = minicbor::to_vec(self.executors.learned()).unwrap_or_default();
        if !self.entailed.has_room_for(bytes.len()) {
            return;
        }
        let stream = StreamId::EXECUTORS.0;
        let stored = &mut self.executors.stored;
        stored.revision = self.executors.book.revision();
        if stored.records == 0 {
            let record = Record::<SiteEvent> { at: now, events: Vec::new() }.to_bytes();
            self.entailed.add_append(record.len());
            self.out.push(Output::Append(Append { stream, expected: 0, record, close: None }));
            stored.records = 1;
        }
        let version = stored.records;
        self.entailed.add_snapshot(bytes.len());
        self.out.push(Output::Snapshot { stream, version, bytes });
    }
}
