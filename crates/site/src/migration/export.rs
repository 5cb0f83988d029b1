//! The part of the history that accompanies a transfer: Algorithms 2 and 3.
//!
//! Invariant: an entry is sent to a server once. A value is sent at most with the entry of its writer, and only if it
//! is the version valid for the target of the transfer.

use std::collections::BTreeMap;

use legwork_model::event::{Entry, Event, FetchedValue, Parcel, Record};
use legwork_model::id::{Activity, ElementId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::value::Value;
use legwork_placement::{
    Move, Topology, Transfer, is_known_up_to, is_missing, is_proven, last_activities_of,
};

use crate::cluster::seat::Knowledge;

pub(crate) struct Export<'a> {
    pub(crate) schema: &'a Schema,
    pub(crate) known: Knowledge<'a>,
    pub(crate) topology: &'a Topology,
    pub(crate) to: ServerId,
    pub(crate) parcel: &'a Parcel,
    pub(crate) sources: &'a [Activity],
}

/// The entries that a receiver lacks.
pub(crate) struct Missing {
    pub(crate) entries: Vec<Entry>,
    /// The extent of all entries read.
    pub(crate) of: Extent,
    /// The extent of the first entries, which the receiver surely knows: they need not be read for it again.
    pub(crate) known: Extent,
}

/// What was read of a history.
#[derive(Default)]
struct Read {
    entries: Vec<Entry>,
    fetched: BTreeMap<(ElementId, Activity), Value>,
    /// The extent of each record.
    extents: Vec<Extent>,
}

/// An extent of a history, from its beginning or from where it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) records: u64,
    pub(crate) entries: u64,
    pub(crate) bytes: u64,
}

impl Extent {
    pub(crate) fn add(&mut self, other: Self) {
        self.records += other.records;
        self.entries += other.entries;
        self.bytes += other.bytes;
    }
}

impl Export<'_> {
    /// The entries to send without asking the receiver; `None` if the receiver has to be asked.
    pub(crate) fn without_asking(
        &self,
        records: &[Vec<u8>],
        transfer: Transfer,
    ) -> Option<Missing> {
        let read = self.read(records);
        let surely_known = self.surely_known(&read.entries);
        match transfer {
            Transfer::Full => Some(self.lacking(read, &[])),
            Transfer::Sending => Some(self.lacking(read, &surely_known)),
            Transfer::Requested => None,
            Transfer::Proven => {
                let missing = self.lacking(read, &surely_known);
                self.is_proven(&missing.entries).then_some(missing)
            }
        }
    }

    /// Algorithm 2: the entries lacking at a receiver that knows everything up to `last`.
    pub(crate) fn missing(&self, records: &[Vec<u8>], last: &[Activity]) -> Missing {
        self.lacking(self.read(records), last)
    }

    /// The last activities the receiver surely knows. They include activities it controlled in past iterations, which
    /// only the history shows.
    fn surely_known(&self, entries: &[Entry]) -> Vec<Activity> {
        let told = self.known.state.peer(self.to).map_or(&[][..], |peer| &peer.told);
        let own = entries.iter().filter(|entry| entry.server == self.to);
        let own = own.filter_map(|entry| entry.event.ends());
        let told: Vec<Activity> = told.iter().cloned().chain(own).collect();
        last_activities_of(self.schema, &self.known, self.to, &told, self.sources)
    }

    /// The history up to the record of the transfer. Later records are left out: when the transfer is offered again,
    /// they would bring entries that the next transfer brings as well.
    fn read(&self, records: &[Vec<u8>]) -> Read {
        let mut read = Read::default();
        for record in records {
            // An instance with an unreadable record would not have been loaded.
            let Ok(Record { at, events }) = Record::<Event>::from_bytes(record) else { continue };
            let (before, mut is_last) = (read.entries.len(), false);
            for event in events {
                if event.ends().is_some() {
                    let server = self.known.here;
                    read.entries.push(Entry { event, at, server, elsewhere: Vec::new() });
                } else if let Event::Received(received) = event {
                    read.entries.extend(received.entries);
                } else if let Event::Fetched { values } = event {
                    let of = |value: FetchedValue| ((value.element, value.writer), value.value);
                    read.fetched.extend(values.into_iter().map(of));
                } else if let Event::Sent { parcel, .. } = event {
                    // Redirection may have changed its number since.
                    is_last |= parcel == *self.parcel;
                }
            }
            let entries = (read.entries.len() - before) as u64;
            read.extents.push(Extent { records: 1, entries, bytes: record.len() as u64 });
            if is_last {
                break;
            }
        }
        read
    }

    fn lacking(&self, read: Read, last: &[Activity]) -> Missing {
        let Read { mut entries, fetched, extents } = read;
        let (mut of, mut known) = (Extent::default(), Extent::default());
        extents.iter().for_each(|extent| of.add(*extent));
        let first_unknown = entries.iter().position(|entry| !self.is_known_up_to(entry, last));
        let surely_known = first_unknown.unwrap_or(entries.len()) as u64;
        // The last record is read again with the transfer, so that reading ends there again.
        for extent in extents.split_last().map_or(&[][..], |(_, before)| before) {
            if known.entries + extent.entries > surely_known {
                break;
            }
            known.add(*extent);
        }
        entries.retain(|entry| {
            let activity = entry.event.ends();
            activity.is_some_and(|activity| is_missing(self.schema, &activity, self.sources, last))
        });
        let with_values = |entry| self.with_values(entry, &fetched);
        Missing { entries: entries.into_iter().map(with_values).collect(), of, known }
    }

    fn is_known_up_to(&self, entry: &Entry, last: &[Activity]) -> bool {
        let activity = entry.event.ends();
        activity.is_some_and(|activity| is_known_up_to(self.schema, &activity, last))
    }

    fn is_proven(&self, missing: &[Entry]) -> bool {
        let passages = self.parcel.passages().to_vec();
        let missing: Vec<Activity> =
            missing.iter().filter_map(|entry| entry.event.ends()).collect();
        let movement = Move { to: self.to, passages };
        is_proven(self.schema, &self.known, self.topology, &movement, &missing)
    }

    /// Algorithm 3: an entry with the values that are sent along, and a note of those that stay here.
    fn with_values(
        &self,
        mut entry: Entry,
        fetched: &BTreeMap<(ElementId, Activity), Value>,
    ) -> Entry {
        let Some(writer) = entry.event.ends() else { return entry };
        let writes = if let Event::Created(created) = &mut entry.event {
            // The deadline as planned now.
            created.deadline = self.known.state.deadline().cloned().map(Box::new);
            &mut created.inputs
        } else if let Event::Completed(done) = &mut entry.event {
            // A repeated request goes to the server that carried out the first one.
            done.request = None;
            &mut done.writes
        } else {
            return entry;
        };
        for element in std::mem::take(&mut entry.elsewhere) {
            match fetched.get(&(element, writer.clone())) {
                Some(value) => writes.push((element, value.clone())),
                None => entry.elsewhere.push(element),
            }
        }
        let (goes, stays): (Vec<_>, Vec<_>) = std::mem::take(writes)
            .into_iter()
            .partition(|(element, value)| self.is_wanted(*element, &writer, value));
        *writes = goes;
        entry.elsewhere.extend(stays.into_iter().map(|(element, _)| element));
        entry
    }

    /// Whether a version is small, and valid for the target of the transfer. Whether the target reads it is irrelevant.
    fn is_wanted(&self, element: ElementId, writer: &Activity, value: &Value) -> bool {
        let targets: Vec<&Activity> = match self.parcel.passages() {
            [] => self.sources.iter().collect(),
            passages => passages.iter().map(|passage| &passage.target).collect(),
        };
        let state = self.known.state;
        let is_valid = |target: &&Activity| {
            let last = state.last_writer(self.schema, target, element);
            last.is_some_and(|(last, _)| last == *writer)
        };
        // Larger values are fetched by their readers.
        let small = self.topology.small_values.0 as usize;
        value.content_bytes() <= small && targets.iter().any(is_valid)
    }
}

#[cfg(test)]
mod tests;
