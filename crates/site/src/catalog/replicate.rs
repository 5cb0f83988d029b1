//! The catalog at every server: the records of the own stream, copied from who has more.
//!
//! Invariant: one server writes the catalog, the registrar; the own stream of every other one is a
//! beginning of its stream, byte for byte. So anybody who has more can pass it on. A server whose
//! stream is not such a beginning had a life of its own: it says so, and takes nothing.

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

/// How often a server that is not the registrar says how much it has.
const BEAT: Duration = Duration::from_secs(30);
/// How often one server is asked because of what it has said.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most bytes of records in one message, unless one alone has more.
const PORTION_BYTES: usize = 256 << 10;
/// A longer record is not sent before it is asked for.
const PUSHED_BYTES_MAX: usize = 64 << 10;
/// The most offers that wait for records of the catalog; others come again.
const HELD_MAX: usize = 1_024;
/// An offer with a longer history waits without it, and the sender is asked for it.
const HELD_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Replication {
    /// How many records the others have said that they have.
    have: BTreeMap<ServerId, u64>,
    /// How many records they have if what was told last has come: a record is told once.
    pushed: BTreeMap<ServerId, u64>,
    /// Whom to ask again, when.
    asked: BTreeMap<ServerId, Timestamp>,
    /// When to say next how much is here, and to whom besides the registrar.
    beat_due: Timestamp,
    turn: usize,
    /// Offers of what is not known here yet.
    held: BTreeMap<(ServerId, ParcelId), Box<Offer>>,
    /// The own stream is not a beginning of the registrar's.
    is_estranged: bool,
}

impl Catalog {
    /// Keeps an offer until records have come.
    pub(crate) fn hold_offer(&mut self, from: ServerId, offer: Box<Offer>, now: Timestamp) {
        let (key, offer) = ((from, offer.id), small_enough(offer, now));
        let held = &mut self.replication.held;
        if held.len() < HELD_MAX || held.contains_key(&key) {
            held.insert(key, offer);
        }
    }

    /// What others have said that they have was noted by the numbers of the file.
    pub(crate) fn forget_file_numbers(&mut self) {
        let Replication { have, pushed, asked, .. } = &mut self.replication;
        have.clear();
        pushed.clear();
        asked.clear();
    }

    /// Whether another server has said that it has so many records.
    pub(crate) fn has_records(&self, server: ServerId, records: u64) -> bool {
        self.replication.have.get(&server).is_some_and(|have| *have >= records)
    }

    /// Whether another server has said how many records it has, since this one started.
    pub(crate) fn has_said_records(&self, server: ServerId) -> bool {
        self.replication.have.contains_key(&server)
    }

    /// Whether another server has said that it has no more records than there are here.
    pub(crate) fn has_no_more(&self, server: ServerId) -> bool {
        self.replication.have.get(&server).is_some_and(|have| *have <= self.log.version)
    }

    /// What others have said that they have counts no more.
    pub(crate) fn forget_records_of_others(&mut self) {
        self.replication.have.clear();
    }
}

impl Site {
    /// How many records the catalog has here.
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

    /// Whether all that an offer speaks of is known here.
    pub(crate) fn understands(&self, offer: &Offer) -> bool {
        let epoch = self.cluster.seat.as_ref().map(|seat| seat.topology.epoch);
        (offer.epoch.is_none() || offer.epoch <= epoch)
            && self.catalog.find(&offer.process, Some(offer.version)).is_some()
    }

    /// Keeps an offer until the records that it needs have come.
    pub(crate) fn hold(&mut self, from: ServerId, offer: Box<Offer>, now: Timestamp) {
        self.catalog.hold_offer(from, offer, now);
        self.ask_for_newer(from, now);
    }

    /// Asks another server for the records that it has shown to have, not every time it shows it.
    pub(crate) fn ask_for_newer(&mut self, from: ServerId, now: Timestamp) {
        if self.catalog.replication.asked.get(&from).is_none_or(|due| *due <= now) {
            self.catalog.replication.asked.insert(from, now.plus(PATIENCE));
            self.ask_catalog(from);
        }
    }

    /// Records have come: what was kept for want of them gets its turn.
    pub(crate) fn hear_held(&mut self, now: Timestamp) {
        if self.mode() != Mode::Serving {
            return;
        }
        for ((from, _), offer) in std::mem::take(&mut self.catalog.replication.held) {
            self.receive(from, Message::Migration(message::Migration::Offer(offer)), now);
        }
    }

    /// Says how much is here: who has more sends it.
    pub(crate) fn ask_catalog(&mut self, to: ServerId) {
        if self.cluster.seat().is_some() && !self.catalog.replication.is_estranged {
            let message = Message::Catalog(message::Catalog::Wanted {
                have: self.catalog.log.version,
                answer: self.cluster.wants_answer(),
            });
            self.out.push(Output::Send { to, message });
        }
    }

    /// From time to time everybody but the registrar says how much they have, to it and to one of
    /// the others: it may be out of reach.
    pub(crate) fn beat(&mut self, now: Timestamp) {
        if self.next_beat().is_none_or(|due| due > now) {
            return;
        }
        self.catalog.replication.beat_due = now.plus(BEAT);
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

    pub(crate) fn next_beat(&self) -> Option<Timestamp> {
        let seat = self.cluster.seat()?;
        let follows = seat.topology.registrar() != Some(seat.here);
        (follows && !self.catalog.replication.is_estranged)
            .then_some(self.catalog.replication.beat_due)
    }

    /// Tells all others of a record that was written here.
    pub(crate) fn announce(&mut self, record: Vec<u8>) {
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

    /// Another server has so many records.
    fn on_catalog_wanted(&mut self, from: ServerId, have: u64, answer: bool, now: Timestamp) {
        if self.cluster.seat().is_none() || self.catalog.replication.is_estranged {
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

    /// Brings a server that acts on what is out of date the newer records.
    pub(crate) fn bring_newer(&mut self, to: ServerId) {
        match self.catalog.replication.have.get(&to) {
            Some(&have) if have < self.catalog.log.version => {
                let limit = self.catalog.log.chain.portion(have, PORTION_BYTES);
                self.out.push(Output::ReadCatalog { to, from: have, limit });
            }
            Some(_) | None => self.ask_catalog(to),
        }
    }

    /// The records that another server lacks are read.
    pub(crate) fn catalog_read(&mut self, to: ServerId, from: u64, records: Vec<Vec<u8>>) {
        // Who lacked them may have another number by now, or has got them elsewhere.
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

    /// Records have come from another server.
    fn on_catalog_records(
        &mut self,
        from: ServerId,
        first: u64,
        before: u64,
        records: Vec<ByteVec>,
        now: Timestamp,
    ) {
        if self.cluster.seat().is_none() || self.catalog.replication.is_estranged {
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
            return self.differ(from, has_records);
        }
        let sender = self.cluster.name_of(from);
        if self.catalog.log.version > had {
            self.put_in_force(now);
        }
        // The records may have told the numbers that count.
        let from = sender.and_then(|name| self.cluster.server_named(&name));
        if let Some(from) = from.filter(|_| has_records) {
            // Tells that they have come, and asks whether there are more.
            self.ask_catalog(from);
        }
        if self.catalog.log.version > had {
            self.hear_held(now);
        }
    }

    /// Appends a record as it came, and folds it like one that was stored before.
    fn take_record(&mut self, bytes: Vec<u8>) -> Result<(), String> {
        let record = Record::<SiteEvent>::from_bytes(&bytes).map_err(|error| error.to_string())?;
        for event in record.events {
            self.replay_site_event(event, self.catalog.log.version, record.at)?;
        }
        self.clock.latest = self.clock.latest.max(record.at);
        self.append_own(bytes);
        Ok(())
    }

    /// What follows from records that have come.
    fn put_in_force(&mut self, now: Timestamp) {
        let is_reorganised = self.catalog.awaits_organisation();
        for fault in self.catalog.put_in_force() {
            let text = format!("{fault}; update this server");
            self.out.push(Output::Notice { text });
        }
        self.follow_topology();
        self.follow_changes(now);
        if is_reorganised {
            self.offer_anew(now);
        }
    }

    /// Another server's catalog is not a part of this one, nor this one of that.
    fn differ(&mut self, from: ServerId, has_records: bool) {
        if Some(from) == self.cluster.registrar() {
            self.catalog.replication.is_estranged = true;
            let text = format!(
                "this server has had a life of its own: its {} records of definitions, \
                 organisation, topology and tokens are not those of the server that keeps them; \
                 it takes nothing from the others; start it with an empty store",
                self.catalog.log.version
            );
            self.out.push(Output::Notice { text });
        } else if has_records
            && let Some(before) = self.catalog.log.chain.at(self.catalog.log.version)
        {
            // Whoever it was has to find out. One without records is not answered.
            let message = Message::Catalog(message::Catalog::Records {
                from: self.catalog.log.version,
                before,
                records: Vec::new(),
            });
            self.out.push(Output::Send { to: from, message });
        }
    }
}

/// An offer to be kept for some time: a large one as a question only.
pub(crate) fn small_enough(mut offer: Box<Offer>, now: Timestamp) -> Box<Offer> {
    let mut base = RecordedAt(now);
    let entries = offer.entries.iter().flatten();
    if entries.map(|entry| length(entry, &mut base)).sum::<u64>() > HELD_BYTES_MAX {
        (offer.entries, offer.is_part) = (None, false);
    }
    offer
}
