//! Replication of the catalog: records of the own stream, copied from any server that has more.
//!
//! Invariant: only the registrar writes the catalog. The own stream of every other server is a prefix of the
//! registrar's, byte for byte, so any server with more records can send them. A server whose stream is not such a
//! prefix has a history of its own: it reports that and accepts no records.

use std::collections::BTreeMap;
use std::time::Duration;

use legwork_model::event::{Record, RecordedAt, SiteEvent};
use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;
use minicbor::bytes::ByteVec;

use crate::Site;
use crate::catalog::Catalog;
use crate::catalog::chain::after;
use crate::cluster::locks::Mode;
use crate::message::length;
use crate::message::{self, Message, Offer, ParcelId};
use crate::output::Output;

/// How often a server other than the registrar announces how many records it has.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(30);
/// Minimum time between two requests to a server that has shown to have newer records.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most bytes of records in one message, unless a single record has more.
const PORTION_BYTES: usize = 256 << 10;
/// A larger record is not pushed: the receiver requests it.
const PUSHED_BYTES_MAX: usize = 64 << 10;
/// The most offers held for missing records of the catalog. Offers beyond that are resent by their senders.
const HELD_MAX: usize = 1_024;
/// An offer with a larger history is held without the history, which is then requested from the sender.
const HELD_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Replication {
    /// How many records each server has announced to have.
    have: BTreeMap<ServerId, u64>,
    /// How many records each server has if the last push arrived. A record is pushed only once.
    pushed: BTreeMap<ServerId, u64>,
    /// The earliest moment of the next request to each server.
    asked: BTreeMap<ServerId, Timestamp>,
    /// When to announce the number of records next, and to which server besides the registrar.
    announce_due: Timestamp,
    turn: usize,
    /// Offers that need records of the catalog that are missing here.
    held: BTreeMap<(ServerId, ParcelId), Box<Offer>>,
    /// The own stream is not a prefix of the registrar's.
    is_diverged: bool,
}

impl Catalog {
    /// Holds an offer until the records it needs have arrived.
    pub(crate) fn hold_offer(&mut self, from: ServerId, offer: Box<Offer>, now: Timestamp) {
        let (key, offer) = ((from, offer.id), small_enough(offer, now));
        let held = &mut self.replication.held;
        if held.len() < HELD_MAX || held.contains_key(&key) {
            held.insert(key, offer);
        }
    }

    /// Drops everything that is keyed by server numbers of the file.
    pub(crate) fn forget_file_numbers(&mut self) {
        let Replication { have, pushed, asked, .. } = &mut self.replication;
        have.clear();
        pushed.clear();
        asked.clear();
    }

    /// Whether another server has announced at least this many records.
    pub(crate) fn has_records(&self, server: ServerId, records: u64) -> bool {
        self.replication.have.get(&server).is_some_and(|have| *have >= records)
    }

    /// Whether another server has announced its records since this one started.
    pub(crate) fn has_announced_records(&self, server: ServerId) -> bool {
        self.replication.have.contains_key(&server)
    }

    /// Whether another server has announced no more records than there are here.
    pub(crate) fn has_announced_no_more(&self, server: ServerId) -> bool {
        self.replication.have.get(&server).is_some_and(|have| *have <= self.log.version)
    }

    pub(crate) fn forget_announcements(&mut self) {
        self.replication.have.clear();
    }
}

impl Site {
    /// Number of records of the catalog here.
    pub fn catalog_len(&self) -> u64 {
        self.catalog.log.version
    }

    pub(crate) fn on_catalog(&mut self, from: ServerId, message: message::Catalog, now: Timestamp) {
        match message {
            message::Catalog::Wanted { have, answer } => {
                self.on_catalog_wanted(from, have, answer, now);
                self.note_caught_up(now);
            }
            message::Catalog::Records { from: first, before, records } => {
                self.on_catalog_records(from, first, before, records, now);
            }
        }
    }

    /// Whether the definition and the topology an offer refers to are known here.
    pub(crate) fn understands(&self, offer: &Offer) -> bool {
        let epoch = self.cluster.seat.as_ref().map(|seat| seat.topology.epoch);
        (offer.epoch.is_none() || offer.epoch <= epoch)
            && self.catalog.find(&offer.process, Some(offer.version)).is_some()
    }

    /// Holds an offer until the records it needs have arrived, and requests them.
    pub(crate) fn hold(&mut self, from: ServerId, offer: Box<Offer>, now: Timestamp) {
        self.catalog.hold_offer(from, offer, now);
        self.ask_for_newer(from, now);
    }

    /// Requests records from a server that has shown to have newer ones, at most once per `PATIENCE`.
    pub(crate) fn ask_for_newer(&mut self, from: ServerId, now: Timestamp) {
        if self.catalog.replication.asked.get(&from).is_none_or(|due| *due <= now) {
            self.catalog.replication.asked.insert(from, now.plus(PATIENCE));
            self.ask_catalog(from);
        }
    }

    /// Records have arrived: handles the offers held for them.
    pub(crate) fn retry_held_offers(&mut self, now: Timestamp) {
        if self.mode() != Mode::Serving {
            return;
        }
        for ((from, _), offer) in std::mem::take(&mut self.catalog.replication.held) {
            self.receive(from, Message::Migration(message::Migration::Offer(offer)), now);
        }
    }

    /// Announces the number of records here; a server with more sends them.
    pub(crate) fn ask_catalog(&mut self, to: ServerId) {
        if self.cluster.seat().is_some() && !self.catalog.replication.is_diverged {
            let message = Message::Catalog(message::Catalog::Wanted {
                have: self.catalog.log.version,
                answer: self.cluster.wants_answer(),
            });
            self.out.push(Output::Send { to, message });
        }
    }

    /// From time to time every server but the registrar announces how many records it has. The announcement goes to the
    /// registrar and, in turn, to one other server, since the registrar may be out of reach.
    pub(crate) fn announce_catalog(&mut self, now: Timestamp) {
        if self.next_announcement().is_none_or(|due| due > now) {
            return;
        }
        self.catalog.replication.announce_due = now.plus(ANNOUNCE_EVERY);
        let Some(seat) = self.cluster.seat() else { return };
        let registrar = seat.topology.registrar();
        let is_other = |id: &ServerId| *id != seat.here && Some(*id) != registrar;
        let others: Vec<ServerId> =
            seat.topology.numbered().map(|(id, _)| id).filter(is_other).collect();
        self.catalog.replication.turn = self.catalog.replication.turn.wrapping_add(1);
        let one = others.get(self.catalog.replication.turn % others.len().max(1)).copied();
        for to in registrar.into_iter().chain(one) {
            self.ask_catalog(to);
        }
    }

    pub(crate) fn next_announcement(&self) -> Option<Timestamp> {
        let seat = self.cluster.seat()?;
        let follows = seat.topology.registrar() != Some(seat.here);
        (follows && !self.catalog.replication.is_diverged)
            .then_some(self.catalog.replication.announce_due)
    }

    /// Pushes a record that was written here to all other servers.
    pub(crate) fn push_record(&mut self, record: Vec<u8>) {
        let Some(from) = self.catalog.log.version.checked_sub(1) else { return };
        let Some(before) = self.catalog.log.chain.at(from) else { return };
        for to in self.cluster.other_servers().collect::<Vec<_>>() {
            let Replication { have, pushed, .. } = &mut self.catalog.replication;
            let is_next = have.get(&to).max(pushed.get(&to)) == Some(&from);
            if is_next && record.len() <= PUSHED_BYTES_MAX {
                pushed.insert(to, from + 1);
                let records = vec![ByteVec::from(record.clone())];
                self.out.push(Output::Send {
                    to,
                    message: Message::Catalog(message::Catalog::Records { from, before, records }),
                });
            } else {
                self.ask_catalog(to);
            }
        }
    }

    /// Another server announces how many records it has.
    fn on_catalog_wanted(&mut self, from: ServerId, have: u64, answer: bool, now: Timestamp) {
        if self.cluster.seat().is_none() || self.catalog.replication.is_diverged {
            return;
        }
        self.catalog.replication.have.insert(from, have);
        self.catalog.replication.pushed.insert(from, have);
        if have < self.catalog.log.version {
            let limit = self.catalog.log.chain.portion(have, PORTION_BYTES);
            self.out.push(Output::ReadCatalog { to: from, from: have, limit });
        } else if have > self.catalog.log.version {
            self.ask_catalog(from);
        } else if answer {
            let message = Message::Catalog(message::Catalog::Wanted {
                have: self.catalog.log.version,
                answer: false,
            });
            self.out.push(Output::Send { to: from, message });
        }
        if self.catalog.changes().pending().is_some() {
            self.coordinate(now);
        }
    }

    /// Sends the newer records to a server that acts on outdated ones.
    pub(crate) fn send_newer_records(&mut self, to: ServerId) {
        match self.catalog.replication.have.get(&to) {
            Some(&have) if have < self.catalog.log.version => {
                let limit = self.catalog.log.chain.portion(have, PORTION_BYTES);
                self.out.push(Output::ReadCatalog { to, from: have, limit });
            }
            Some(_) | None => self.ask_catalog(to),
        }
    }

    /// The records that another server lacks were read from the store.
    pub(crate) fn catalog_read(&mut self, to: ServerId, from: u64, records: Vec<Vec<u8>>) {
        // By now that server may have another number, or the records from elsewhere.
        let lacks = self
            .catalog
            .replication
            .have
            .get(&to)
            .is_some_and(|have| *have < self.catalog.log.version);
        let Some(before) = self.catalog.log.chain.at(from).filter(|_| lacks) else { return };
        let records = records.into_iter().map(ByteVec::from).collect();
        self.out.push(Output::Send {
            to,
            message: Message::Catalog(message::Catalog::Records { from, before, records }),
        });
    }

    /// Records from another server.
    fn on_catalog_records(
        &mut self,
        from: ServerId,
        first: u64,
        before: u64,
        records: Vec<ByteVec>,
        now: Timestamp,
    ) {
        if self.cluster.seat().is_none() || self.catalog.replication.is_diverged {
            return;
        }
        if first > self.catalog.log.version {
            return self.ask_catalog(from);
        }
        let (has_records, had) = (!records.is_empty(), self.catalog.log.version);
        let mut sum = before;
        let mut is_same = self.catalog.log.chain.at(first) == Some(sum);
        for (number, record) in (first..).zip(records) {
            if !is_same {
                break;
            }
            sum = after(sum, &record);
            if number == self.catalog.log.version
                && let Err(reason) = self.take_record(Vec::from(record))
            {
                let text = format!(
                    "record {number} of the catalog cannot be understood ({reason}); update this \
                     server"
                );
                self.out.push(Output::Notice { text });
                break;
            }
            is_same = self.catalog.log.chain.at(number + 1) == Some(sum);
        }
        if !is_same {
            return self.on_divergence(from, has_records);
        }
        let sender = self.cluster.name_of(from);
        if self.catalog.log.version > had {
            self.put_in_force(now);
        }
        // The new records may have changed the numbers of servers.
        let from = sender.and_then(|name| self.cluster.server_named(&name));
        if let Some(from) = from.filter(|_| has_records) {
            // Acknowledges the records, and requests more if there are any.
            self.ask_catalog(from);
        }
        if self.catalog.log.version > had {
            self.retry_held_offers(now);
        }
    }

    /// Appends a record unchanged, and folds it like a stored one.
    fn take_record(&mut self, bytes: Vec<u8>) -> Result<(), String> {
        let record = Record::<SiteEvent>::from_bytes(&bytes).map_err(|error| error.to_string())?;
        for event in record.events {
            self.replay_site_event(event, self.catalog.log.version, record.at)?;
        }
        self.clock.latest = self.clock.latest.max(record.at);
        self.append_own(bytes);
        Ok(())
    }

    /// Puts received records in force.
    fn put_in_force(&mut self, now: Timestamp) {
        let is_reorganised = self.catalog.awaits_organisation();
        for fault in self.catalog.put_in_force() {
            let text = format!("{fault}; update this server");
            self.out.push(Output::Notice { text });
        }
        self.follow_topology();
        self.follow_changes(now);
        if is_reorganised {
            self.reoffer_all(now);
        }
    }

    /// The catalog of another server and this one diverge: neither is a prefix of the other.
    fn on_divergence(&mut self, from: ServerId, has_records: bool) {
        if Some(from) == self.cluster.registrar() {
            self.catalog.replication.is_diverged = true;
            let text = format!(
                "the catalog of this server diverges from the registrar's: its {} records of \
                 definitions, organisation, topology and tokens are no prefix of the registrar's; \
                 no records are accepted; start this server with an empty store",
                self.catalog.log.version
            );
            self.out.push(Output::Notice { text });
        } else if has_records
            && let Some(before) = self.catalog.log.chain.at(self.catalog.log.version)
        {
            // The other server has to detect this by itself. A message without records is not answered.
            let message = Message::Catalog(message::Catalog::Records {
                from: self.catalog.log.version,
                before,
                records: Vec::new(),
            });
            self.out.push(Output::Send { to: from, message });
        }
    }
}

/// An offer without its history if that is too large to hold.
pub(crate) fn small_enough(mut offer: Box<Offer>, now: Timestamp) -> Box<Offer> {
    let mut base = RecordedAt(now);
    let entries = offer.entries.iter().flatten();
    if entries.map(|entry| length(entry, &mut base)).sum::<u64>() > HELD_BYTES_MAX {
        (offer.entries, offer.is_part) = (None, false);
    }
    offer
}
