//! Reads: records, snapshots, closed streams, and all open streams for a restart.
//!
//! Invariant: each answer is from one statement, and so shows one moment. Open streams are read
//! through a portal in portions, so that their number and length do not matter.

use std::ops::ControlFlow;

use legwork_model::id::StreamId;
use tokio_postgres::{Portal, Row, Transaction};

use super::session::{ANSWER_MAX, Failure, Session};
use super::store::Postgres;
use super::values::{Id, to_integer, to_limit, to_version};
use crate::{ClosedStream, Error, OpenStream, Snapshot, Version};

const RECORDS: &str = "SELECT version, bytes FROM legwork.record \
     WHERE server = $1 AND stream = $2 AND version >= $3 ORDER BY version LIMIT $4";
const SNAPSHOT: &str = "SELECT version, snapshot FROM legwork.open_stream \
     WHERE server = $1 AND stream = $2 AND version IS NOT NULL";
const CLOSED: &str = "SELECT stream, summary FROM legwork.closed_stream \
     WHERE server = $1 AND stream < $2 ORDER BY stream DESC LIMIT $3";
const CLOSED_LAST: &str = "SELECT stream, summary FROM legwork.closed_stream \
     WHERE server = $1 ORDER BY stream DESC LIMIT $2";
/// A snapshot comes with the first of the rows of its stream only.
const OPEN: &str = "
    SELECT open.stream, open.version, record.version, record.bytes,
           CASE WHEN record.version IS NULL OR record.version = coalesce(open.version, 0)
                THEN open.snapshot END
      FROM legwork.open_stream AS open
      LEFT JOIN LATERAL (
           SELECT version, bytes FROM legwork.record
            WHERE server = $1 AND stream = open.stream AND version >= coalesce(open.version, 0)
            ORDER BY version
           ) AS record ON true
     WHERE open.server = $1 AND open.stream >= $2
     ORDER BY open.stream, record.version";

/// The number of rows in a portion: few if they are long.
const PORTION_MIN: i32 = 16;
const PORTION_MAX: i32 = 8_192;
const PORTION_BYTES: usize = 4 << 20;

pub(super) fn records(
    store: &Postgres,
    stream: StreamId,
    from: Version,
    limit: usize,
) -> Result<Vec<Vec<u8>>, Error> {
    let Some(first) = to_integer(from) else { return Ok(Vec::new()) };
    let (number, id, limit) = (store.fence.number, Id(stream), to_limit(limit));
    let rows = ask(store, |session| session.query(RECORDS, &[&number, &id, &first, &limit]))?;
    let mut records = Vec::with_capacity(rows.len());
    for row in rows {
        let expected = Version(from.0 + records.len() as u64);
        if to_version(row.get(0)) != expected {
            return Err(store.damaged(format!("record {expected} of {stream:?} is missing")));
        }
        records.push(row.get(1));
    }
    Ok(records)
}

pub(super) fn snapshot(store: &Postgres, stream: StreamId) -> Result<Option<Snapshot>, Error> {
    let (number, id) = (store.fence.number, Id(stream));
    let rows = ask(store, |session| session.query(SNAPSHOT, &[&number, &id]))?;
    Ok(rows.first().map(|row| {
        let bytes: Option<Vec<u8>> = row.get(1);
        Snapshot { stream, version: to_version(row.get(0)), bytes: bytes.unwrap_or_default() }
    }))
}

pub(super) fn closed_streams(
    store: &Postgres,
    before: Option<StreamId>,
    limit: usize,
) -> Result<Vec<ClosedStream>, Error> {
    let (number, limit) = (store.fence.number, to_limit(limit));
    let rows = ask(store, |session| match before {
        Some(before) => session.query(CLOSED, &[&number, &Id(before), &limit]),
        None => session.query(CLOSED_LAST, &[&number, &limit]),
    })?;
    let closed = |row: &Row| {
        let Id(stream) = row.get(0);
        ClosedStream { stream, summary: row.get(1) }
    };
    Ok(rows.iter().map(closed).collect())
}

pub(super) fn open_streams(
    store: &Postgres,
    after: Option<StreamId>,
    visit: &mut dyn FnMut(OpenStream) -> ControlFlow<()>,
) -> Result<(), Error> {
    let first = match after {
        None => StreamId(0),
        Some(StreamId(u128::MAX)) => return Ok(()),
        Some(StreamId(after)) => StreamId(after + 1),
    };
    // Not a shared connection: the visitor may read meanwhile.
    let mut session = store.shared.place().connect()?;
    let failed = |failure: Failure| failure.told("reading", store.shared.place());
    let scan = Scan::begin(&mut session, store.fence.number, first).map_err(failed)?;
    let mut reading: Option<OpenStream> = None;
    let mut portion = PORTION_MIN;
    loop {
        let rows = scan.next(portion).map_err(failed)?;
        if rows.is_empty() {
            break;
        }
        let mut bytes = 0;
        for row in &rows {
            let part = Part::of(row);
            bytes += part.len();
            let is_next = reading.as_ref().is_none_or(|open| open.stream != part.stream);
            if is_next && let Some(whole) = reading.replace(part.begin()) {
                check(store, &whole)?;
                if visit(whole).is_break() {
                    return Ok(());
                }
            }
            if let Some(open) = &mut reading {
                part.add_to(store, open)?;
            }
        }
        portion = if bytes > PORTION_BYTES { portion / 2 } else { portion * 2 };
        portion = portion.clamp(PORTION_MIN, PORTION_MAX);
    }
    if let Some(whole) = reading {
        check(store, &whole)?;
        let _ = visit(whole);
    }
    Ok(())
}

fn check(store: &Postgres, open: &OpenStream) -> Result<(), Error> {
    if open.snapshot.is_none() && open.records.is_empty() {
        return Err(store.damaged(format!("{:?} is open, but has no records", open.stream)));
    }
    Ok(())
}

/// A row of the scan.
struct Part<'a> {
    stream: StreamId,
    cached: Option<Version>,
    record: Option<(Version, &'a [u8])>,
    snapshot: Option<&'a [u8]>,
}

impl<'a> Part<'a> {
    fn of(row: &'a Row) -> Self {
        let Id(stream) = row.get(0);
        let cached: Option<i32> = row.get(1);
        let version: Option<i32> = row.get(2);
        let bytes: Option<&[u8]> = row.get(3);
        Self {
            stream,
            cached: cached.map(to_version),
            record: version.map(to_version).zip(bytes),
            snapshot: row.get(4),
        }
    }

    fn len(&self) -> usize {
        self.record.map_or(0, |(_, bytes)| bytes.len()) + self.snapshot.map_or(0, <[u8]>::len)
    }

    fn begin(&self) -> OpenStream {
        let &Self { stream, cached, snapshot, .. } = self;
        let snapshot = cached.map(|version| {
            let bytes = snapshot.unwrap_or_default().to_vec();
            Snapshot { stream, version, bytes }
        });
        OpenStream { stream, snapshot, records: Vec::new() }
    }

    fn add_to(&self, store: &Postgres, open: &mut OpenStream) -> Result<(), Error> {
        let Some((version, bytes)) = self.record else { return Ok(()) };
        let expected = open.version();
        if version != expected {
            let stream = open.stream;
            return Err(store.damaged(format!("record {expected} of {stream:?} is missing")));
        }
        open.records.push(bytes.to_vec());
        Ok(())
    }
}

/// All open streams, as of one moment.
struct Scan<'a> {
    transaction: Transaction<'a>,
    portal: Portal,
    runtime: &'a tokio::runtime::Runtime,
}

impl<'a> Scan<'a> {
    fn begin(session: &'a mut Session, number: i16, first: StreamId) -> Result<Self, Failure> {
        let (client, runtime) = session.client_mut();
        let beginning = async {
            let transaction = client.transaction().await?;
            let portal = transaction.bind(OPEN, &[&number, &Id(first)]).await?;
            Ok((transaction, portal))
        };
        let begun = runtime.block_on(async { tokio::time::timeout(ANSWER_MAX, beginning).await });
        let (transaction, portal) = begun.map_err(|_| Failure::Late)?.map_err(Failure::Database)?;
        Ok(Self { transaction, portal, runtime })
    }

    fn next(&self, rows: i32) -> Result<Vec<Row>, Failure> {
        let asked = self.transaction.query_portal(&self.portal, rows);
        let answer = self.runtime.block_on(async { tokio::time::timeout(ANSWER_MAX, asked).await });
        answer.map_err(|_| Failure::Late)?.map_err(Failure::Database)
    }
}

fn ask(
    store: &Postgres,
    ask: impl Fn(&Session) -> Result<Vec<Row>, Failure>,
) -> Result<Vec<Row>, Error> {
    store.shared.inner.pool.ask(store.shared.place(), "reading", ask)
}
