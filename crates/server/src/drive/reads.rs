//! Reads for a site, executed after the commit.
//!
//! Invariant: a read sees everything that the site has stored, also in this round.

use legwork_model::id::{InstanceId, ServerId, StreamId};
use legwork_model::time::Timestamp;
use legwork_site::{ClosedStream, FileWanted, Input, RequestId, Stream};
use legwork_store::{BlobId, Version};

use super::{Broken, Driver};
use crate::backend::Backend;

pub(super) enum Read {
    Stream { stream: StreamId, whole: bool },
    History { id: RequestId, instance: InstanceId, from: u64, limit: usize },
    Closed { id: RequestId, before: StreamId, limit: usize },
    Own { id: RequestId, record: u64 },
    Entries { instance: InstanceId, to: ServerId, number: u32, from: u64 },
    Files { instance: InstanceId, files: Vec<FileWanted> },
    Catalog { to: ServerId, from: u64, limit: usize },
}

impl Driver {
    pub(super) fn serve_reads(&mut self, now: Timestamp) -> Result<(), Broken> {
        for read in std::mem::take(&mut self.reads) {
            let input = match read {
                Read::Stream { stream, whole } => Input::Loaded(load(&*self.store, stream, whole)?),
                Read::History { id, instance, from, limit } => {
                    let first = self.store.read(instance.into(), Version(0), 1)?.pop();
                    let records = self.store.read(instance.into(), Version(from), limit)?;
                    Input::HistoryRead { id, instance, first, records }
                }
                Read::Own { id, record } => {
                    let record = self.store.read(StreamId::SITE, Version(record), 1)?.pop();
                    Input::OwnRead { id, record }
                }
                Read::Entries { instance, to, number, from } => {
                    let records = self.store.read(instance.into(), Version(from), usize::MAX)?;
                    Input::EntriesRead { instance, to, number, from, records }
                }
                Read::Files { instance, files } => {
                    let blobs = self.stored(instance, files)?;
                    Input::FilesHere { instance, blobs }
                }
                Read::Catalog { to, from, limit } => {
                    let records = self.store.read(StreamId::SITE, Version(from), limit)?;
                    Input::CatalogRead { to, from, records }
                }
                Read::Closed { id, before, limit } => {
                    let closed = self.store.closed_streams(Some(before), limit)?;
                    let streams = closed.into_iter().map(|closed| ClosedStream {
                        stream: closed.stream.0,
                        summary: closed.summary,
                    });
                    Input::ClosedRead { id, streams: streams.collect() }
                }
            };
            self.handle(input, now);
        }
        Ok(())
    }

    /// The contents that are here; the others are fetched.
    fn stored(
        &self,
        instance: InstanceId,
        files: Vec<FileWanted>,
    ) -> Result<Vec<[u8; 32]>, Broken> {
        let mut here = Vec::new();
        for file in files {
            if self.store.blob_size(BlobId(file.blob))?.is_some() {
                here.push(file.blob);
            } else if let Some(fetcher) = &self.around.fetcher {
                fetcher.want(instance, file);
            }
        }
        Ok(here)
    }
}

pub(crate) fn load(store: &dyn Backend, id: StreamId, whole: bool) -> Result<Stream, Broken> {
    let snapshot = if whole { None } else { store.snapshot(id)? };
    let from = snapshot.as_ref().map_or(Version(0), |snapshot| snapshot.version);
    let records = store.read(id, from, usize::MAX)?;
    let snapshot = snapshot.map(|snapshot| (snapshot.version.0, snapshot.bytes));
    Ok(Stream { id: id.0, snapshot, records })
}
