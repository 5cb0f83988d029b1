//! Parcels on their way to other servers.
//!
//! Invariant: what is to be sent stands in the histories; here is only what is being done about it.
//! Of an instance one parcel at a time is on its way to a server, the oldest, and it is offered
//! again, with growing pauses, until it is taken.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use legwork_engine::{Command, Outgoing};
use legwork_model::event::{Entry, Parcel, RecordedAt};
use legwork_model::id::{Activity, InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_placement::Transfer;

use crate::Site;
use crate::cases::Cases;
use crate::message::length;
use crate::message::{self, Instance, Message, Offer, ParcelId};
use crate::migration::Migration;
use crate::migration::export::{Export, Extent, Missing};
use crate::output::Output;
use crate::retries::{Backoff, Retries};

/// Back-off before a parcel that was not acknowledged is offered again.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// How many parcels are offered again at a time: many can have waited for one server.
const OFFERS_AT_ONCE: usize = 256;

#[derive(Debug)]
pub(crate) struct Outbox {
    flights: Retries<(InstanceId, ServerId), Flight>,
    /// How many are on their way to each server; none is not told.
    waiting: BTreeMap<ServerId, usize>,
    /// Servers that cannot be reached: nothing is offered to them until they can.
    down: BTreeSet<ServerId>,
    /// What is offered as soon as the instance is in memory again.
    unloaded: BTreeSet<(InstanceId, ServerId)>,
    sent: Sent,
}

/// What went to other servers since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Entries of histories.
    pub entries: u64,
    /// Entries that did not have to go, as they are known there.
    pub entries_spared: u64,
    /// What the instances would have taken as a whole, with their history and all their values, sent
    /// with every parcel.
    pub bytes_whole: u64,
}

/// All parcels of an instance.
fn to_any(id: InstanceId) -> RangeInclusive<(InstanceId, ServerId)> {
    (id, ServerId(0))..=(id, ServerId(u16::MAX))
}

/// A parcel on its way.
#[derive(Debug)]
struct Flight {
    number: u32,
    /// What the receiver has said that it knows.
    last: Option<Vec<Activity>>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            flights: Retries::new(BACKOFF),
            waiting: BTreeMap::new(),
            down: BTreeSet::new(),
            unloaded: BTreeSet::new(),
            sent: Sent::default(),
        }
    }
}

impl Outbox {
    /// Whether an answer about an instance is awaited: then it stays in memory. What waits for a
    /// server that is away does not: that can be very much.
    pub(crate) fn concerns(&self, id: InstanceId) -> bool {
        let mut flights = self.flights.range(to_any(id));
        flights.any(|(key, _)| self.flights.attempts(key) > 0 && !self.down.contains(&key.1))
    }

    pub(crate) fn sent(&self) -> Sent {
        self.sent
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.flights.next_due()
    }

    fn begin(&mut self, instance: InstanceId, to: ServerId, number: u32, due: Timestamp) {
        let flight = Flight { number, last: None };
        if self.flights.insert((instance, to), flight, due).is_none() {
            *self.waiting.entry(to).or_default() += 1;
        }
    }

    fn end(&mut self, instance: InstanceId, to: ServerId) {
        if self.flights.remove(&(instance, to)).is_some()
            && let Some(waiting) = self.waiting.get_mut(&to)
        {
            *waiting -= 1;
            if *waiting == 0 {
                self.waiting.remove(&to);
            }
        }
    }

    pub(crate) fn is_down(&self, server: ServerId) -> bool {
        self.down.contains(&server)
    }
}

impl Migration {
    /// The topology has changed: what may go another way now, or to a server that is no longer
    /// locked, need not wait.
    pub(crate) fn hurry_redirected(&mut self, now: Timestamp) {
        self.outbox.flights.hurry(now);
    }
}

impl Cases {
    /// How much of the history a server is sure to know, from the beginning.
    fn told(&self, id: InstanceId, to: ServerId) -> Extent {
        let told = self.instances.get(id).and_then(|slot| slot.told.get(&to));
        told.copied().unwrap_or_default()
    }

    fn outgoing(&self, id: InstanceId, to: ServerId) -> Option<Outgoing> {
        let (_, state) = self.instances.state(id)?;
        state.peer(to)?.waiting.first().cloned()
    }

    /// The activities up to which the receiver must know the history.
    fn sources(&self, id: InstanceId, to: ServerId, parcel: &Parcel) -> Vec<Activity> {
        match parcel {
            Parcel::Control { passages, .. } => {
                passages.iter().map(|passage| passage.source.clone()).collect()
            }
            Parcel::Order(_) => Vec::new(),
            // Where it was started the whole history comes together.
            Parcel::Finished { .. } => match self.instances.state(id) {
                Some((schema, state)) if state.started_elsewhere() == Some(to) => {
                    vec![Activity::once(schema.end())]
                }
                Some(_) | None => Vec::new(),
            },
        }
    }
}

impl Site {
    /// How many instances have a parcel on its way to each server; none where none has.
    pub fn parcels_waiting(&self) -> &BTreeMap<ServerId, usize> {
        &self.migration.outbox.waiting
    }

    /// Sends what an instance has to send and what is not on its way yet.
    pub(crate) fn dispatch(&mut self, id: InstanceId, now: Timestamp) {
        let Some((_, state)) = self.cases.instances.state(id) else { return };
        let mut begun = Vec::new();
        for peer in state.peers() {
            let on_its_way = self.migration.outbox.flights.contains(&(id, peer.server));
            if let (Some(outgoing), false) = (peer.waiting.first(), on_its_way) {
                begun.push((peer.server, outgoing.number));
            }
        }
        for (to, number) in begun {
            self.migration.outbox.begin(id, to, number, now);
            self.offer(id, to, now);
        }
    }

    /// Takes up again what an earlier life was sending; it is offered with the next `Settle`.
    pub(crate) fn take_up(&mut self, id: InstanceId) {
        let Some((_, state)) = self.cases.instances.state(id) else { return };
        for peer in state.peers() {
            if let Some(outgoing) = peer.waiting.first() {
                self.migration.outbox.begin(id, peer.server, outgoing.number, Timestamp::default());
            }
        }
    }

    /// A server can be reached again, or cannot any more: what waits for it need not wait longer.
    pub(crate) fn link(&mut self, to: ServerId, is_up: bool, now: Timestamp) {
        self.clock.latest = now;
        if self.cluster.knows_only_file() {
            // It is told again under the numbers that count, as soon as they are known.
            return if is_up {
                self.ask_catalog(to)
            };
        }
        self.work.follow_link(to, is_up, now);
        self.planner_link(to, is_up, now);
        if !is_up {
            self.migration.outbox.down.insert(to);
        } else {
            self.migration.outbox.down.remove(&to);
            self.migration.outbox.flights.hurry_if(|(_, server)| *server == to, now);
            self.migration.fetching.hurry(now);
            self.migration.contents.hurry(now);
            self.ask_catalog(to);
            self.ask_about_cases(to);
            if self.cluster.registrar() == Some(to) {
                self.report_again(now);
            }
        }
    }

    /// Offers once more what has not been answered, a portion at a time.
    pub(crate) fn offer_again(&mut self, now: Timestamp) {
        for _ in 0..OFFERS_AT_ONCE {
            let Some((id, to)) = self.migration.outbox.flights.first_due(now) else { return };
            let can_wait =
                self.migration.outbox.is_down(to) && self.cluster.redirection(id, to).is_none();
            if self.cases.instances.state(id).is_some() || can_wait {
                self.offer(id, to, now);
            } else if self.cases.instances.get(id).is_some() {
                self.migration.outbox.flights.attempted(&(id, to), now);
                self.migration.outbox.unloaded.insert((id, to));
                self.ask_for(id.into(), false);
            } else {
                // Ended or broken meanwhile.
                self.migration.outbox.end(id, to);
            }
        }
    }

    /// An instance is in memory again: what was to be offered of it is offered.
    pub(crate) fn offer_loaded(&mut self, id: InstanceId, now: Timestamp) {
        let unloaded: Vec<_> = self.migration.outbox.unloaded.range(to_any(id)).copied().collect();
        for (id, to) in unloaded {
            self.migration.outbox.unloaded.remove(&(id, to));
            self.offer(id, to, now);
        }
    }

    /// Offers the oldest parcel: at once if nothing of the history goes with it or the receiver is
    /// to be asked what it lacks, else when the history is read.
    fn offer(&mut self, id: InstanceId, to: ServerId, now: Timestamp) {
        if self.redirect(id, to, now) {
            return;
        }
        let Some(flight) = self.migration.outbox.flights.attempted(&(id, to), now) else { return };
        flight.last = None;
        if self.migration.outbox.down.contains(&to) {
            return;
        }
        let Some(outgoing) = self.cases.outgoing(id, to) else {
            return self.migration.outbox.end(id, to);
        };
        let asks = self.cluster.transfer_to(to) == Transfer::Requested;
        if self.cases.sources(id, to, &outgoing.parcel).is_empty() {
            self.send_offer(id, to, Some(Vec::new()), false);
        } else if asks {
            self.send_offer(id, to, None, false);
        } else {
            self.read_entries(id, to, outgoing.number);
        }
    }

    /// Sends what is on its way to another server, if the weights have changed and nobody has had
    /// it yet. Whoever has had a part of the instance keeps its place.
    fn redirect(&mut self, id: InstanceId, to: ServerId, now: Timestamp) -> bool {
        let Some(other) = self.cluster.redirection(id, to) else { return false };
        let command = Command::Redirect { from: to, to: other };
        let is_redirected = self.command(id, command, now).is_ok();
        if is_redirected {
            self.migration.outbox.end(id, to);
        }
        is_redirected
    }

    /// Reads what of the history the receiver may lack.
    fn read_entries(&mut self, id: InstanceId, to: ServerId, number: u32) {
        let from = match self.cluster.transfer_to(to) {
            Transfer::Full => 0,
            Transfer::Sending | Transfer::Requested | Transfer::Proven => {
                self.cases.told(id, to).records
            }
        };
        self.out.push(Output::ReadEntries { instance: id, to, number, from });
    }

    /// The receiver has said what it knows: it gets the rest.
    pub(crate) fn on_known(
        &mut self,
        from: ServerId,
        parcel: ParcelId,
        last: Vec<Activity>,
        now: Timestamp,
    ) {
        let ParcelId { instance: Instance(id), number } = parcel;
        let Some(flight) = self.migration.outbox.flights.get_mut(&(id, from)) else { return };
        if flight.number == number {
            flight.last = Some(last);
            self.migration.outbox.flights.hold(&(id, from), now);
            self.read_entries(id, from, number);
        }
    }

    /// The history has been read: what the receiver lacks of it goes to it, or the question.
    pub(crate) fn entries_read(
        &mut self,
        id: InstanceId,
        to: ServerId,
        number: u32,
        (from, records): (u64, &[Vec<u8>]),
    ) {
        let Some(flight) = self.migration.outbox.flights.get(&(id, to)) else { return };
        if flight.number != number {
            // Read for an earlier parcel: what the present one is about may not be in it.
            return;
        }
        let (Some(seat), Some((schema, state))) =
            (&self.cluster.seat, self.cases.instances.state(id))
        else {
            return;
        };
        let Some(outgoing) = self.cases.outgoing(id, to) else { return };
        let sources = self.cases.sources(id, to, &outgoing.parcel);
        let export = Export {
            schema,
            known: seat.at(id).knowing(state),
            topology: &seat.topology,
            to,
            parcel: &outgoing.parcel,
            sources: &sources,
        };
        let missing = match &flight.last {
            Some(last) => Some(export.missing(records, last)),
            None => export.unasked(records, self.cluster.transfer_to(to)),
        };
        let told = self.cases.told(id, to);
        // Read from another point if it was asked for twice at a time.
        let before = if told.records == from { told } else { Extent::default() };
        let Some(Missing { mut entries, of, known }) = missing else {
            return self.send_offer(id, to, None, false);
        };
        let fits = fitting(&entries, self.config.part_bytes);
        let is_part = fits < entries.len();
        if !is_part && self.migration.outbox.flights.attempts(&(id, to)) <= 1 {
            let spared = before.entries + of.entries - entries.len() as u64;
            self.migration.outbox.sent.bytes_whole += before.bytes + of.bytes + state.file_bytes();
            self.migration.outbox.sent.entries_spared += spared;
        }
        if told.records == from
            && let Some(slot) = self.cases.instances.get_mut(id)
        {
            slot.told.entry(to).or_default().add(known);
        }
        entries.truncate(fits);
        self.migration.outbox.sent.entries += entries.len() as u64;
        self.send_offer(id, to, Some(entries), is_part);
    }

    /// The parcel is stored at the receiver: it is done with.
    pub(crate) fn on_ack(&mut self, from: ServerId, parcel: ParcelId, now: Timestamp) {
        let ParcelId { instance: Instance(id), number } = parcel;
        let Some(flight) = self.migration.outbox.flights.get(&(id, from)) else { return };
        if flight.number == number {
            self.migration.outbox.end(id, from);
            // A rejection says that it was noted before.
            drop(self.command(id, Command::Deliver { to: from, number }, now));
            self.dispatch(id, now);
        }
    }

    fn send_offer(
        &mut self,
        id: InstanceId,
        to: ServerId,
        entries: Option<Vec<Entry>>,
        is_part: bool,
    ) {
        let Some(Outgoing { number, parcel }) = self.cases.outgoing(id, to) else { return };
        let Some(slot) = self.cases.instances.get(id) else { return };
        let (process, version) = (slot.schema.process.clone(), slot.schema.version);
        let id = ParcelId { instance: Instance(id), number };
        let epoch =
            self.cluster.seat.as_ref().map(|seat| seat.topology.epoch).filter(|epoch| *epoch > 1);
        let offer = Box::new(Offer { id, process, version, parcel, entries, is_part, epoch });
        self.out.push(Output::Send {
            to,
            message: Message::Migration(message::Migration::Offer(offer)),
        });
    }
}

/// How many entries go in one message, one at least: knowledge is closed, so the first ones can go
/// before the others.
fn fitting(entries: &[Entry], bytes_max: usize) -> usize {
    let mut base = RecordedAt(entries.first().map_or(Timestamp::default(), |entry| entry.at));
    let mut bytes = 0;
    let fits = |entry: &&Entry| {
        bytes += length(*entry, &mut base);
        bytes <= bytes_max as u64
    };
    entries.iter().take_while(fits).count().max(1).min(entries.len())
}
