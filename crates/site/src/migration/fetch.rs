//! Values that were written elsewhere and are read here.
//!
//! Invariant: a version is requested only if it is missing here, and once at a time; requests for different versions
//! overlap. If a source does not answer, the next one is asked, in rounds with back-off between them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use legwork_engine::{Command, Lacking};
use legwork_model::event::FetchedValue;
use legwork_model::id::{Activity, ElementId, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_placement::{Reader, sources};

use crate::Site;
use crate::message::{self, Instance, Message, Wanted};
use crate::output::Output;
use crate::retries::{Backoff, Retries};

/// How long a source may take to answer; longer after each round in which no source answered.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(60));
/// For how many instances sources are asked again at a time.
const ASKED_AT_ONCE: usize = 256;

type Version = (ElementId, Activity);
type Key = (InstanceId, u64);

#[derive(Debug)]
pub(crate) struct Fetching {
    requests: Retries<Key, Request>,
    last: u64,
}

/// Versions of one writer that were requested from one source.
#[derive(Debug)]
struct Request {
    versions: BTreeSet<Version>,
    /// How many sources have not answered by the due time.
    next: usize,
}

impl Default for Fetching {
    fn default() -> Self {
        Self { requests: Retries::new(BACKOFF), last: 0 }
    }
}

impl Fetching {
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.requests.next_due()
    }

    pub(crate) fn concerns(&self, id: InstanceId) -> bool {
        self.of(id).next().is_some()
    }

    /// Makes all requests due: a server can be reached again.
    pub(crate) fn hurry(&mut self, now: Timestamp) {
        self.requests.hurry(now);
        self.requests.values_mut().for_each(|request| request.next = 0);
    }

    pub(crate) fn end(&mut self, id: InstanceId) {
        self.requests.remove_range(all_of(id));
    }

    fn end_if(&mut self, id: InstanceId, ends: impl Fn(&Request) -> bool) {
        let ended: Vec<Key> =
            self.of(id).filter(|(_, request)| ends(request)).map(|(key, _)| *key).collect();
        ended.iter().for_each(|key| drop(self.requests.remove(key)));
    }

    fn of(&self, id: InstanceId) -> impl Iterator<Item = (&Key, &Request)> {
        self.requests.range(all_of(id))
    }

    fn is_under_way(&self, id: InstanceId, version: &Version) -> bool {
        self.of(id).any(|(_, request)| request.versions.contains(version))
    }
}

fn all_of(id: InstanceId) -> RangeInclusive<Key> {
    (id, 0)..=(id, u64::MAX)
}

impl Site {
    /// Requests the values that activated activities of an instance lack, unless they are already requested.
    pub(crate) fn fetch_lacking(&mut self, id: InstanceId, now: Timestamp) {
        for (versions, servers) in self.lacking(id) {
            let is_new = |version: &Version| !self.migration.fetching.is_under_way(id, version);
            let versions = versions.into_iter().filter(is_new).collect();
            self.ask_source(id, versions, &servers, 0, now);
        }
    }

    /// Asks the next source for each request that was not answered.
    pub(crate) fn retry_fetches(&mut self, now: Timestamp) {
        for _ in 0..ASKED_AT_ONCE {
            let Some(key) = self.migration.fetching.requests.first_due(now) else { return };
            let Some(request) = self.migration.fetching.requests.remove(&key) else { continue };
            for (mut versions, servers) in self.lacking(key.0) {
                versions.retain(|version| request.versions.contains(version));
                self.ask_source(key.0, versions, &servers, request.next, now);
            }
        }
    }

    fn ask_source(
        &mut self,
        id: InstanceId,
        versions: BTreeSet<Version>,
        servers: &[ServerId],
        attempts: usize,
        now: Timestamp,
    ) {
        let Some(to) = servers.get(attempts % servers.len().max(1)).copied() else { return };
        if versions.is_empty() {
            return;
        }
        let rounds = attempts / servers.len();
        let due = now.plus(BACKOFF.after(rounds as u32));
        let wanted =
            |(element, writer): &Version| Wanted { element: *element, writer: writer.clone() };
        let values = versions.iter().map(wanted).collect();
        self.migration.fetching.last += 1;
        let key = (id, self.migration.fetching.last);
        let request = Request { versions, next: attempts + 1 };
        self.migration.fetching.requests.insert(key, request, due);
        let message =
            Message::Migration(message::Migration::Want { instance: Instance(id), values });
        self.out.push(Output::Send { to, message });
    }

    /// The versions lacking to activated activities, without repetition, with their sources. Elements of one writer
    /// that one activity reads are grouped.
    fn lacking(&self, id: InstanceId) -> Vec<(BTreeSet<Version>, Vec<ServerId>)> {
        let (Some(seat), Some((schema, state))) =
            (&self.cluster.seat, self.cases.instances.state(id))
        else {
            return Vec::new();
        };
        let known = seat.at(id).knowing(state);
        let due = state.due(schema);
        let due = due.filter(|due| seat.at(id).controls(schema, state, due.node));
        let end = state.lacks_results(schema).then(|| Activity::once(schema.end()));
        let last_writer = |element, reader: &_| {
            let (writer, server) = state.last_writer(schema, reader, element)?;
            Some((writer, server.unwrap_or(seat.here)))
        };
        let cost = |server| seat.topology.cost(seat.here, server);
        let (mut seen, mut groups) = (BTreeSet::new(), Vec::new());
        for activity in due.chain(end) {
            let mut by_writer: BTreeMap<Activity, BTreeSet<Version>> = BTreeMap::new();
            for Lacking { element, writer } in state.lacking(schema, &activity) {
                if seen.insert((element, writer.clone())) {
                    by_writer.entry(writer.clone()).or_default().insert((element, writer));
                }
            }
            for versions in by_writer.into_values() {
                let Some(element) = versions.first().map(|(element, _)| *element) else { continue };
                let reader = Reader { activity: &activity, element };
                let servers = sources(schema, &known, reader, last_writer, cost, seat.here);
                groups.push((versions, servers));
            }
        }
        groups
    }

    /// Another server requests values from here.
    pub(crate) fn on_want(&mut self, from: ServerId, instance: Instance, values: &[Wanted]) {
        let Some((_, state)) = self.cases.instances.state(instance.0) else { return };
        let value = |wanted: &Wanted| {
            let value = state.value_by(wanted.element, &wanted.writer)?.clone();
            Some(FetchedValue { element: wanted.element, writer: wanted.writer.clone(), value })
        };
        let mut values: Vec<FetchedValue> = values.iter().filter_map(value).collect();
        // At least one; the requester asks again for the others.
        let mut bytes = 0;
        let fits = |value: &&FetchedValue| {
            bytes += value.value.content_bytes();
            bytes <= self.config.part_bytes
        };
        let fitting = values.iter().take_while(fits).count().max(1);
        values.truncate(fitting);
        let message = Message::Migration(message::Migration::Have { instance, values });
        self.out.push(Output::Send { to: from, message });
    }

    /// Requested values have arrived.
    pub(crate) fn on_have(
        &mut self,
        Instance(id): Instance,
        values: Vec<FetchedValue>,
        now: Timestamp,
    ) {
        let Some((schema, state)) = self.cases.instances.state(id) else { return };
        // A duplicate, or too late: nothing is recorded after the end.
        if !self.migration.fetching.concerns(id) || state.is_over(schema) {
            return;
        }
        let is_lacking = |value: &FetchedValue| state.is_elsewhere(value.element, &value.writer);
        let values: Vec<FetchedValue> = values.into_iter().filter(is_lacking).collect();
        if values.is_empty() {
            return;
        }
        // Versions that did not fit into the answer are requested again at once.
        let has_come = |request: &Request| {
            values.iter().any(|v| request.versions.contains(&(v.element, v.writer.clone())))
        };
        self.migration.fetching.end_if(id, has_come);
        if self.command(id, Command::Fetch { values }, now).is_ok() {
            self.offer_open(id, now);
        }
        self.fetch_lacking(id, now);
    }
}
