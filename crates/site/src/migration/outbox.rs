//! Transfers to other servers.
//!
//! Invariant: what is to be sent is in the histories; here is only the progress of sending. For each instance one
//! transfer at a time is sent to a server, the oldest. It is offered again with back-off until acknowledged.

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

/// Back-off before a transfer is offered again.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// How many transfers are offered again at a time: many may have waited for one server.
const OFFERS_AT_ONCE: usize = 256;

#[derive(Debug)]
pub(crate) struct Outbox {
    in_flight: Retries<(InstanceId, ServerId), InFlight>,
    /// Number of instances with a transfer to each server; servers without any are left out.
    waiting: BTreeMap<ServerId, usize>,
    /// Servers that cannot be reached: nothing is offered to them until they can.
    down: BTreeSet<ServerId>,
    /// Transfers to offer as soon as the instance is in memory again.
    unloaded: BTreeSet<(InstanceId, ServerId)>,
    sent: Sent,
}

/// What was sent to other servers since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Entries of histories.
    pub entries: u64,
    /// Entries that were not sent, since the receivers knew them.
    pub entries_spared: u64,
    /// Size of the instances with their whole history and all values, if sent with every transfer.
    pub bytes_whole: u64,
}

/// All transfers of an instance.
fn to_any(id: InstanceId) -> RangeInclusive<(InstanceId, ServerId)> {
    (id, ServerId(0))..=(id, ServerId(u16::MAX))
}

/// A transfer in progress.
#[derive(Debug)]
struct InFlight {
    number: u32,
    /// The last activities the receiver has replied to know.
    last: Option<Vec<Activity>>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            in_flight: Retries::new(BACKOFF),
            waiting: BTreeMap::new(),
            down: BTreeSet::new(),
            unloaded: BTreeSet::new(),
            sent: Sent::default(),
        }
    }
}

impl Outbox {
    /// Whether an answer about an instance is awaited, which keeps the instance in memory. Transfers to an unreachable
    /// server do not: they may be many.
    pub(crate) fn concerns(&self, id: InstanceId) -> bool {
        let mut in_flight = self.in_flight.range(to_any(id));
        in_flight.any(|(key, _)| self.in_flight.attempts(key) > 0 && !self.down.contains(&key.1))
    }

    pub(crate) fn sent(&self) -> Sent {
        self.sent
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.in_flight.next_due()
    }

    fn begin(&mut self, instance: InstanceId, to: ServerId, number: u32, due: Timestamp) {
        let transfer = InFlight { number, last: None };
        if self.in_flight.insert((instance, to), transfer, due).is_none() {
            *self.waiting.entry(to).or_default() += 1;
        }
    }

    fn end(&mut self, instance: InstanceId, to: ServerId) {
        if self.in_flight.remove(&(instance, to)).is_some()
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
    /// The topology has changed: makes all transfers due, since they may be redirected, or their receiver is not locked
    /// any more.
    pub(crate) fn hurry_redirected(&mut self, now: Timestamp) {
        self.outbox.in_flight.hurry(now);
    }
}

impl Cases {
    /// The extent of the history that a server surely knows, from the beginning.
    fn known_extent(&self, id: InstanceId, to: ServerId) -> Extent {
        let known_before = self.instances.get(id).and_then(|slot| slot.known_extents.get(&to));
        known_before.copied().unwrap_or_default()
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
            // The server that started the instance collects the whole history.
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
    /// Number of instances with a transfer to each server; servers without any are left out.
    pub fn parcels_waiting(&self) -> &BTreeMap<ServerId, usize> {
        &self.migration.outbox.waiting
    }

    /// Sends the next transfers of an instance that are not in progress yet.
    pub(crate) fn dispatch(&mut self, id: InstanceId, now: Timestamp) {
        let Some((_, state)) = self.cases.instances.state(id) else { return };
        let mut begun = Vec::new();
        for peer in state.peers() {
            let on_its_way = self.migration.outbox.in_flight.contains(&(id, peer.server));
            if let (Some(outgoing), false) = (peer.waiting.first(), on_its_way) {
                begun.push((peer.server, outgoing.number));
            }
        }
        for (to, number) in begun {
            self.migration.outbox.begin(id, to, number, now);
            self.offer(id, to, now);
        }
    }

    /// Resumes the transfers that were in progress before a restart; they are offered with the next `Settle`.
    pub(crate) fn resume_transfers(&mut self, id: InstanceId) {
        let Some((_, state)) = self.cases.instances.state(id) else { return };
        for peer in state.peers() {
            if let Some(outgoing) = peer.waiting.first() {
                self.migration.outbox.begin(id, peer.server, outgoing.number, Timestamp::default());
            }
        }
    }

    /// A server can be reached again, or cannot any more.
    pub(crate) fn on_link(&mut self, to: ServerId, is_up: bool, now: Timestamp) {
        self.clock.latest = now;
        if self.cluster.knows_only_file() {
            // The link is reported again under the numbers of the catalog once they are known.
            return if is_up {
                self.ask_catalog(to)
            };
        }
        self.work.on_link(to, is_up, now);
        self.on_planner_link(to, is_up, now);
        if !is_up {
            self.migration.outbox.down.insert(to);
        } else {
            self.migration.outbox.down.remove(&to);
            self.migration.outbox.in_flight.hurry_if(|(_, server)| *server == to, now);
            self.migration.fetching.hurry(now);
            self.migration.contents.hurry(now);
            self.ask_catalog(to);
            self.ask_about_cases(to);
            if self.cluster.registrar() == Some(to) {
                self.report_at_once(now);
            }
        }
    }

    /// Offers unacknowledged transfers again, a batch at a time.
    pub(crate) fn resend_offers(&mut self, now: Timestamp) {
        for _ in 0..OFFERS_AT_ONCE {
            let Some((id, to)) = self.migration.outbox.in_flight.first_due(now) else { return };
            let can_wait =
                self.migration.outbox.is_down(to) && self.cluster.redirection(id, to).is_none();
            if self.cases.instances.state(id).is_some() || can_wait {
                self.offer(id, to, now);
            } else if self.cases.instances.get(id).is_some() {
                self.migration.outbox.in_flight.attempted(&(id, to), now);
                self.migration.outbox.unloaded.insert((id, to));
                self.ask_for(id.into(), false);
            } else {
                // Ended or broken meanwhile.
                self.migration.outbox.end(id, to);
            }
        }
    }

    /// An instance is in memory again: offers its pending transfers.
    pub(crate) fn offer_loaded(&mut self, id: InstanceId, now: Timestamp) {
        let unloaded: Vec<_> = self.migration.outbox.unloaded.range(to_any(id)).copied().collect();
        for (id, to) in unloaded {
            self.migration.outbox.unloaded.remove(&(id, to));
            self.offer(id, to, now);
        }
    }

    /// Offers the oldest transfer. This happens at once if no history accompanies it or the receiver is asked what it
    /// lacks, else when the history has been read.
    fn offer(&mut self, id: InstanceId, to: ServerId, now: Timestamp) {
        if self.redirect(id, to, now) {
            return;
        }
        let Some(transfer) = self.migration.outbox.in_flight.attempted(&(id, to), now) else {
            return;
        };
        transfer.last = None;
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

    /// Redirects a pending transfer if the weights have changed and the receiver has no part of the instance. A
    /// receiver that has a part keeps its place.
    fn redirect(&mut self, id: InstanceId, to: ServerId, now: Timestamp) -> bool {
        let Some(other) = self.cluster.redirection(id, to) else { return false };
        let command = Command::Redirect { from: to, to: other };
        let is_redirected = self.command(id, command, now).is_ok();
        if is_redirected {
            self.migration.outbox.end(id, to);
        }
        is_redirected
    }

    /// Reads the part of the history that the receiver may lack.
    fn read_entries(&mut self, id: InstanceId, to: ServerId, number: u32) {
        let from = match self.cluster.transfer_to(to) {
            Transfer::Full => 0,
            Transfer::Sending | Transfer::Requested | Transfer::Proven => {
                self.cases.known_extent(id, to).records
            }
        };
        self.out.push(Output::ReadEntries { instance: id, to, number, from });
    }

    /// The receiver replies what it knows: sends the rest.
    pub(crate) fn on_known(
        &mut self,
        from: ServerId,
        parcel: ParcelId,
        last: Vec<Activity>,
        now: Timestamp,
    ) {
        let ParcelId { instance: Instance(id), number } = parcel;
        let Some(transfer) = self.migration.outbox.in_flight.get_mut(&(id, from)) else { return };
        if transfer.number == number {
            transfer.last = Some(last);
            self.migration.outbox.in_flight.hold(&(id, from), now);
            self.read_entries(id, from, number);
        }
    }

    /// The history has been read: sends the entries the receiver lacks, or asks it.
    pub(crate) fn entries_read(
        &mut self,
        id: InstanceId,
        to: ServerId,
        number: u32,
        (from, records): (u64, &[Vec<u8>]),
    ) {
        let Some(transfer) = self.migration.outbox.in_flight.get(&(id, to)) else { return };
        if transfer.number != number {
            // Read for an earlier transfer: the present one may be missing in these records.
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
        let missing = match &transfer.last {
            Some(last) => Some(export.missing(records, last)),
            None => export.without_asking(records, self.cluster.transfer_to(to)),
        };
        let known_before = self.cases.known_extent(id, to);
        // Read from another point if it was requested twice at a time.
        let before = if known_before.records == from { known_before } else { Extent::default() };
        let Some(Missing { mut entries, of, known }) = missing else {
            return self.send_offer(id, to, None, false);
        };
        let fits = fitting(&entries, self.config.part_bytes);
        let is_part = fits < entries.len();
        if !is_part && self.migration.outbox.in_flight.attempts(&(id, to)) <= 1 {
            let spared = before.entries + of.entries - entries.len() as u64;
            self.migration.outbox.sent.bytes_whole += before.bytes + of.bytes + state.file_bytes();
            self.migration.outbox.sent.entries_spared += spared;
        }
        if known_before.records == from
            && let Some(slot) = self.cases.instances.get_mut(id)
        {
            slot.known_extents.entry(to).or_default().add(known);
        }
        entries.truncate(fits);
        self.migration.outbox.sent.entries += entries.len() as u64;
        self.send_offer(id, to, Some(entries), is_part);
    }

    /// The receiver acknowledges that the transfer is stored.
    pub(crate) fn on_ack(&mut self, from: ServerId, parcel: ParcelId, now: Timestamp) {
        let ParcelId { instance: Instance(id), number } = parcel;
        let Some(transfer) = self.migration.outbox.in_flight.get(&(id, from)) else { return };
        if transfer.number == number {
            self.migration.outbox.end(id, from);
            // A rejection means that the acknowledgement was recorded before.
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

/// How many entries fit into one message; at least one. Knowledge is closed, so the first entries can be sent before
/// the others.
fn fitting(entries: &[Entry], bytes_max: usize) -> usize {
    let mut base = RecordedAt(entries.first().map_or(Timestamp::default(), |entry| entry.at));
    let mut bytes = 0;
    let fits = |entry: &&Entry| {
        bytes += length(*entry, &mut base);
        bytes <= bytes_max as u64
    };
    entries.iter().take_while(fits).count().max(1).min(entries.len())
}
