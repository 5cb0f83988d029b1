//! Reads for a site: some take longer than others.

use legwork_model::id::StreamId;
use legwork_site::{ClosedStream, Input, Output, Stream};
use legwork_store::{self as store, EventStore, Version};

use super::{World, broken};
use crate::dice::Dice;

impl World {
    /// Executes reads requested in earlier turns, before or among newer input.
    pub(super) fn serve_reads(&mut self, dice: &mut Dice) -> Result<(), String> {
        for read in std::mem::take(&mut self.reads) {
            if !self.calm && dice.chance(30) {
                self.reads.push(read);
                continue;
            }
            let input = self.read(read)?;
            let place = dice.below(self.inbox.len() + 1);
            self.inbox.insert(place, input.into());
        }
        Ok(())
    }

    pub(super) fn read(&self, read: Output) -> Result<Input, String> {
        let failed = |error: store::Error| format!("read: {error}");
        Ok(match read {
            Output::Load { stream, whole } => {
                Input::Loaded(self.stream(stream, !whole).map_err(failed)?)
            }
            Output::ReadHistory { id, instance, from, limit } => {
                let first = self.store.read(instance.into(), Version(0), 1).map_err(failed)?.pop();
                let records =
                    self.store.read(instance.into(), Version(from), limit).map_err(failed)?;
                Input::HistoryRead { id, instance, first, records }
            }
            Output::ReadClosed { id, before, limit } => {
                let streams = self.store.closed_streams(Some(before), limit).map_err(failed)?;
                let streams = streams
                    .into_iter()
                    .map(|closed| ClosedStream { stream: closed.stream.0, summary: closed.summary })
                    .collect();
                Input::ClosedRead { id, streams }
            }
            Output::ReadOwn { id, record } => {
                let records = self.store.read(StreamId::SITE, Version(record), 1);
                Input::OwnRead { id, record: records.map_err(failed)?.pop() }
            }
            Output::ReadEntries { instance, to, number, from } => {
                let records =
                    self.store.read(instance.into(), Version(from), usize::MAX).map_err(failed)?;
                Input::EntriesRead { instance, to, number, from, records }
            }
            Output::FetchFiles { instance, files } => {
                let blobs = files.into_iter().map(|file| file.blob);
                let blobs = blobs.filter(|blob| self.blobs.contains(blob)).collect();
                Input::FilesHere { instance, blobs }
            }
            Output::ReadCatalog { to, from, limit } => {
                let records = self.store.read(StreamId::SITE, Version(from), limit);
                Input::CatalogRead { to, from, records: records.map_err(failed)? }
            }
            Output::Broken { instance, reason } => return Err(broken(instance, &reason)),
            Output::Notice { text } => return Err(text),
            Output::Append(_)
            | Output::Snapshot { .. }
            | Output::Answer { .. }
            | Output::Call(_)
            | Output::Start(_)
            | Output::Send { .. } => Input::Settle,
        })
    }

    pub(super) fn stream(&self, id: StreamId, with_snapshot: bool) -> Result<Stream, store::Error> {
        let snapshot = if with_snapshot { self.store.snapshot(id)? } else { None };
        let from = snapshot.as_ref().map_or(Version(0), |snapshot| snapshot.version);
        Ok(Stream {
            id: id.0,
            snapshot: snapshot.map(|snapshot| (snapshot.version.0, snapshot.bytes)),
            records: self.store.read(id, from, usize::MAX)?,
        })
    }
}
