//! The restart path: all open streams with their records, by one pass over each.
//!
//! Invariant: open streams and records are visited in the same order, so that they are merged
//! without a lookup per stream; the records of closed streams in between are skipped by steps or
//! seeks.

use std::ops::ControlFlow;

use fjall::{Readable, UserValue};
use legwork_model::id::StreamId;

use super::{Embedded, View, keys};
use crate::{Error, OpenStream, Version};

/// How many records are stepped over before seeking. A seek costs about as much as this many steps.
const STEPS_MAX: usize = 32;

pub(super) fn open_streams(
    store: &Embedded,
    after: Option<StreamId>,
    visit: &mut dyn FnMut(OpenStream) -> ControlFlow<()>,
) -> Result<(), Error> {
    let view = store.view();
    let mut records = Records { store, view: view.clone(), iter: None, next: None };
    for item in view.range(&store.open, keys::STREAMS) {
        let (key, value) = item.into_inner().map_err(|error| store.failed(error))?;
        let stream = store.parse_stream(&key)?;
        if after.is_some_and(|after| stream <= after) {
            continue;
        }
        let snapshot = store.parse_snapshot(stream, &value)?;
        let from = snapshot.as_ref().map_or(Version(0), |snapshot| snapshot.version);
        let records = records.of(stream, from)?;
        if snapshot.is_none() && records.is_empty() {
            return Err(store.damaged(format!("{stream:?} is open, but has no records")));
        }
        if visit(OpenStream { stream, snapshot, records }).is_break() {
            break;
        }
    }
    Ok(())
}

type Key = (StreamId, Version);

/// A forward cursor over the records.
struct Records<'a> {
    store: &'a Embedded,
    view: View,
    iter: Option<fjall::Iter>,
    next: Option<(Key, UserValue)>,
}

impl Records<'_> {
    /// The records of the stream from the version on. Streams must be requested in ascending order.
    fn of(&mut self, stream: StreamId, from: Version) -> Result<Vec<Vec<u8>>, Error> {
        self.advance_to((stream, from))?;
        let mut records = Vec::new();
        while let Some(((_, version), record)) = self.next.take_if(|(key, _)| key.0 == stream) {
            let expected = Version(from.0 + records.len() as u64);
            if version != expected {
                let detail = format!("record {expected} of {stream:?} is missing");
                return Err(self.store.damaged(detail));
            }
            records.push(record.to_vec());
            self.step()?;
        }
        Ok(records)
    }

    fn advance_to(&mut self, key: Key) -> Result<(), Error> {
        if self.iter.is_some() {
            for _ in 0..STEPS_MAX {
                match &self.next {
                    Some((next, _)) if *next < key => self.step()?,
                    Some(_) | None => return Ok(()),
                }
            }
        }
        let start = keys::record(key.0, key.1);
        self.iter = Some(self.view.range(&self.store.records, start..));
        self.step()
    }

    fn step(&mut self) -> Result<(), Error> {
        self.next = None;
        let Some(item) = self.iter.as_mut().and_then(Iterator::next) else { return Ok(()) };
        let (key, record) = item.into_inner().map_err(|error| self.store.failed(error))?;
        let key = keys::parse_record(&key)
            .ok_or_else(|| self.store.damaged("a key is not that of a record"))?;
        self.next = Some((key, record));
        Ok(())
    }
}
