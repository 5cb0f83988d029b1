//! Values that were written elsewhere and are needed here.
//!
//! Invariant: of one instance one request is under way at a time, and only for versions that are
//! not here. A source that does not answer is followed by the next, over and over, with growing
//! pauses when none of them does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use legwork_engine::{Command, Lacking};
use legwork_model::event::FetchedValue;
use legwork_model::id::{Activity, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_placement::{Reader, sources};

use crate::Site;
use crate::message::{Instance, Message, Wanted};
use crate::output::Output;

/// How long a source may take to answer: at first, and at most when none of them has answered.
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// For how many instances sources are asked again at a time.
const ASKED_AT_ONCE: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Fetching {
    requests: BTreeMap<InstanceId, Request>,
    due: BTreeSet<(Timestamp, InstanceId)>,
}

#[derive(Debug)]
struct Request {
    due: Timestamp,
    /// How many were asked in vain when it is due.
    next: usize,
}

impl Fetching {
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    pub(crate) fn concerns(&self, id: InstanceId) -> bool {
        self.requests.contains_key(&id)
    }

    /// Makes everything due: somebody can be reached again.
    pub(crate) fn hurry(&mut self, now: Timestamp) {
        self.due = self.requests.keys().map(|id| (now, *id)).collect();
        for request in self.requests.values_mut() {
            (request.next, request.due) = (0, now);
        }
    }

    pub(crate) fn end(&mut self, id: InstanceId) {
        if let Some(request) = self.requests.remove(&id) {
            self.due.remove(&(request.due, id));
        }
    }
}

impl Site {
    /// Asks for what the due activities of an instance lack, if nothing is under way.
    pub(crate) fn fetch_lacking(&mut self, id: InstanceId, now: Timestamp) {
        if !self.fetching.requests.contains_key(&id) {
            self.ask_source(id, 0, now);
        }
    }

    /// Asks the next source where one has not answered.
    pub(crate) fn fetch_again(&mut self, now: Timestamp) {
        for _ in 0..ASKED_AT_ONCE {
            let first = self.fetching.due.first().copied().filter(|(at, _)| *at <= now);
            let Some((due, id)) = first else { return };
            self.fetching.due.remove(&(due, id));
            let attempts = self.fetching.requests.remove(&id).map_or(0, |request| request.next);
            self.ask_source(id, attempts, now);
        }
    }

    fn ask_source(&mut self, id: InstanceId, attempts: usize, now: Timestamp) {
        let Some((lacking, servers)) = self.lacking(id) else { return };
        let Some(to) = servers.get(attempts % servers.len().max(1)).copied() else { return };
        let rounds = (attempts / servers.len()).min(5);
        let due = now.plus(PAUSE_MIN.saturating_mul(1 << rounds).min(PAUSE_MAX));
        self.fetching.requests.insert(id, Request { due, next: attempts + 1 });
        self.fetching.due.insert((due, id));
        let values = lacking
            .into_iter()
            .map(|Lacking { element, writer }| Wanted { element, writer })
            .collect();
        let message = Message::Want { instance: Instance(id), values };
        self.out.push(Output::Send { to, message });
    }

    /// What the first due activity that lacks something lacks, and where it can be had.
    fn lacking(&self, id: InstanceId) -> Option<(Vec<Lacking>, Vec<ServerId>)> {
        let seat = self.seat.as_ref()?;
        let (schema, state) = self.instances.state(id)?;
        let known = seat.at(id).knowing(state);
        let due = state.due(schema);
        let due = due.filter(|due| seat.at(id).controls(schema, state, due.node));
        let end = state.lacks_results(schema).then(|| Activity::once(schema.end()));
        for activity in due.chain(end) {
            let lacking = state.lacking(schema, &activity);
            let Some(first) = lacking.first() else { continue };
            let last_writer = |element, reader: &_| {
                let (writer, server) = state.last_writer(schema, reader, element)?;
                Some((writer, server.unwrap_or(seat.here)))
            };
            let reader = Reader { activity: &activity, element: first.element };
            let cost = |server| seat.topology.cost(seat.here, server);
            let servers = sources(schema, &known, reader, last_writer, cost, seat.here);
            // Elements of one writer come together; the others in the next round.
            let same = |other: &Lacking| other.writer == first.writer;
            return Some((lacking.iter().filter(|other| same(other)).cloned().collect(), servers));
        }
        None
    }

    /// Another server needs values from here.
    pub(crate) fn wanted(&mut self, from: ServerId, instance: Instance, values: &[Wanted]) {
        let Some((_, state)) = self.instances.state(instance.0) else { return };
        let value = |wanted: &Wanted| {
            let value = state.value_by(wanted.element, &wanted.writer)?.clone();
            Some(FetchedValue { element: wanted.element, writer: wanted.writer.clone(), value })
        };
        let mut values: Vec<FetchedValue> = values.iter().filter_map(value).collect();
        // At least one; for the others it is asked again.
        let mut bytes = 0;
        let fits = |value: &&FetchedValue| {
            bytes += value.value.content_bytes();
            bytes <= self.config.part_bytes
        };
        let fitting = values.iter().take_while(fits).count().max(1);
        values.truncate(fitting);
        let message = Message::Have { instance, values };
        self.out.push(Output::Send { to: from, message });
    }

    /// Values have come.
    pub(crate) fn have(
        &mut self,
        Instance(id): Instance,
        values: Vec<FetchedValue>,
        now: Timestamp,
    ) {
        let Some((schema, state)) = self.instances.state(id) else { return };
        // Come twice, or too late: nothing is recorded behind the end.
        if !self.fetching.concerns(id) || state.is_over(schema) {
            return;
        }
        let is_lacking = |value: &FetchedValue| state.is_elsewhere(value.element, &value.writer);
        let values: Vec<FetchedValue> = values.into_iter().filter(is_lacking).collect();
        if values.is_empty() {
            return;
        }
        self.fetching.end(id);
        if self.command(id, Command::Fetch { values }, now).is_ok() {
            self.offer_open(id, now);
        }
        self.fetch_lacking(id, now);
    }
}
