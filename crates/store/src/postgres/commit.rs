//! A batch in one statement.
//!
//! Invariant: the statement locks the lease and does nothing without it; the database executes it
//! atomically. An unknown stream is assumed to be new: if it is not, the database refuses the whole
//! batch, and only then is the stream looked up.

use legwork_model::id::StreamId;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio_postgres::error::SqlState;

use super::session::{ANSWER_MAX, Failure};
use super::store::{Fence, Postgres, Writer};
use super::values::{Id, Parameter, to_integer, to_version};
use crate::admit::{Admitted, Head, admit, check_sizes};
use crate::heads::Heads;
use crate::{Batch, Error, Snapshot, Version};

/// A key-share lock: renewals do not conflict with it, a take-over waits for it. If the lease has
/// changed meanwhile the lock is not acquired, as the condition is evaluated again on the current
/// row.
const COMMIT: &str = "
    WITH held AS MATERIALIZED (
        SELECT 1 FROM legwork.lease
         WHERE server = $1 AND epoch = $2 AND opening = $3 FOR KEY SHARE
    ), added AS (
        INSERT INTO legwork.record (version, server, stream, bytes)
        SELECT one.version, $1, one.stream, one.bytes
          FROM held, unnest($4::uuid[], $5::integer[], $6::bytea[]) AS one (stream, version, bytes)
    ), begun AS (
        INSERT INTO legwork.open_stream (version, server, stream, snapshot)
        SELECT one.version, $1, one.stream, one.bytes
          FROM held, unnest($7::uuid[], $8::integer[], $9::bytea[]) AS one (stream, version, bytes)
    ), ended AS (
        DELETE FROM legwork.open_stream AS open
         USING held, unnest($10::uuid[]) AS one (stream)
         WHERE open.server = $1 AND open.stream = one.stream
    ), closed AS (
        INSERT INTO legwork.closed_stream (server, stream, summary)
        SELECT $1, one.stream, one.bytes
          FROM held, unnest($11::uuid[], $12::bytea[]) AS one (stream, bytes)
    ), cached AS (
        UPDATE legwork.open_stream AS open SET version = one.version, snapshot = one.bytes
          FROM held, unnest($13::uuid[], $14::integer[], $15::bytea[])
               AS one (stream, version, bytes)
         WHERE open.server = $1 AND open.stream = one.stream
    )
    SELECT FROM held";

const HEADS: &str = "
    SELECT one.stream,
           (SELECT max(version) FROM legwork.record WHERE server = $1 AND stream = one.stream),
           EXISTS (SELECT FROM legwork.open_stream WHERE server = $1 AND stream = one.stream)
      FROM unnest($2::uuid[]) AS one (stream)";

pub(super) fn commit(store: &Postgres, writer: &mut Writer, batch: &Batch) -> Result<(), Error> {
    check_sizes(batch)?;
    let failed = |failure: Failure| failure.told("committing to", store.shared.place());
    let mut known = look_up(store, writer, unknown(&writer.heads, batch))?;
    let mut assumed = Vec::new();
    let admitted = admit_with(batch, &writer.heads, &known, &mut assumed);
    let rows = match &admitted {
        Ok(admitted) => Some(Rows::of(batch, admitted)),
        Err(_) => None,
    };
    let written = rows.map(|rows| rows.write(store.fence, writer));
    let refused = match &written {
        None => true,
        Some(Err(failure)) => failure.is(&SqlState::UNIQUE_VIOLATION),
        Some(Ok(_)) => false,
    };
    if refused && !assumed.is_empty() {
        // One of the streams assumed to be new is not: now it is looked up.
        known.extend(look_up(store, writer, assumed)?);
        admit_with(batch, &writer.heads, &known, &mut Vec::new())?;
    }
    let admitted = admitted?;
    if !written.transpose().map_err(failed)?.unwrap_or(false) {
        return Err(Error::Fenced { server: store.server().to_owned() });
    }
    for change in admitted.changes {
        match change.after {
            Head { closed: true, .. } => writer.heads.remove(change.stream),
            Head { version, closed: false } => writer.heads.insert(change.stream, version),
        }
    }
    Ok(())
}

type Known = FxHashMap<StreamId, Head>;

fn admit_with(
    batch: &Batch,
    heads: &Heads,
    known: &Known,
    assumed: &mut Vec<StreamId>,
) -> Result<Admitted, Error> {
    admit(batch, |stream, _| {
        let cached = heads.get(stream).map(|version| Head { version, closed: false });
        Ok(known.get(&stream).copied().or(cached).unwrap_or_else(|| {
            assumed.push(stream);
            Head::NEW
        }))
    })
}

/// The streams of a batch that must be looked up: existing streams that are not cached.
fn unknown(heads: &Heads, batch: &Batch) -> Vec<StreamId> {
    let mut seen = FxHashSet::default();
    let appends = batch.appends.iter().map(|append| (append.stream, append.expected));
    // A snapshot is never of a new stream, unless the batch begins it.
    let snapshots = batch.snapshots.iter().map(|snapshot| (snapshot.stream, Version(1)));
    let first = appends.chain(snapshots).filter(|(stream, _)| seen.insert(*stream));
    let unknown = first.filter(|&(stream, expected)| expected.0 > 0 && heads.get(stream).is_none());
    unknown.map(|(stream, _)| stream).collect()
}

fn look_up(store: &Postgres, writer: &Writer, streams: Vec<StreamId>) -> Result<Known, Error> {
    let mut known = Known::default();
    if streams.is_empty() {
        return Ok(known);
    }
    let ids: Vec<Id> = streams.into_iter().map(Id).collect();
    let rows = writer.session.query(HEADS, &[&store.fence.number, &ids]);
    let rows =
        rows.map_err(|failure| failure.told("looking up streams in", store.shared.place()))?;
    for row in rows {
        let (Id(stream), last, open): (Id, Option<i32>, bool) =
            (row.get(0), row.get(1), row.get(2));
        let head = last.map_or(Head::NEW, |last| Head {
            version: Version(to_version(last).0 + 1),
            closed: !open,
        });
        known.insert(stream, head);
    }
    Ok(known)
}

/// The rows of a batch, by table and column.
#[derive(Default)]
struct Rows<'a> {
    added: Columns<&'a [u8]>,
    begun: Columns<Option<&'a [u8]>>,
    ended: Vec<Id>,
    closed: Columns<&'a [u8]>,
    cached: Columns<Option<&'a [u8]>>,
}

#[derive(Default)]
struct Columns<T> {
    streams: Vec<Id>,
    versions: Vec<Option<i32>>,
    bytes: Vec<T>,
}

impl<T> Columns<T> {
    fn push(&mut self, stream: StreamId, version: Option<Version>, bytes: T) {
        self.streams.push(Id(stream));
        self.versions.push(version.and_then(to_integer));
        self.bytes.push(bytes);
    }
}

impl<'a> Rows<'a> {
    /// Each row at most once: the parts of a statement have no order.
    fn of(batch: &'a Batch, admitted: &Admitted) -> Self {
        let mut rows = Self::default();
        for append in &batch.appends {
            rows.added.push(append.stream, Some(append.expected), &append.record[..]);
            if let Some(summary) = &append.close {
                rows.closed.push(append.stream, None, &summary[..]);
            }
        }
        for change in &admitted.changes {
            let snapshot = change.snapshot.and_then(|place| batch.snapshots.get(place));
            let columns =
                |snapshot: &'a Snapshot| (Some(snapshot.version), Some(&snapshot.bytes[..]));
            let born = change.before == Head::NEW;
            if change.after.closed {
                if !born && !change.before.closed {
                    rows.ended.push(Id(change.stream));
                }
            } else if born {
                let (version, bytes) = snapshot.map_or((None, None), columns);
                rows.begun.push(change.stream, version, bytes);
            } else if let Some((version, bytes)) = snapshot.map(columns) {
                rows.cached.push(change.stream, version, bytes);
            }
        }
        rows
    }

    /// Whether the lease was held; otherwise nothing was written.
    fn write(&self, fence: Fence, writer: &Writer) -> Result<bool, Failure> {
        let Self { added, begun, ended, closed, cached } = self;
        let parameters: [Parameter<'_>; 15] = [
            &fence.number,
            &fence.epoch,
            &fence.opening,
            &added.streams,
            &added.versions,
            &added.bytes,
            &begun.streams,
            &begun.versions,
            &begun.bytes,
            ended,
            &closed.streams,
            &closed.bytes,
            &cached.streams,
            &cached.versions,
            &cached.bytes,
        ];
        let rows = writer.session.query_within(ANSWER_MAX, COMMIT, &parameters)?;
        Ok(!rows.is_empty())
    }
}
