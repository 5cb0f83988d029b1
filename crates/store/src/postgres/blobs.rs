//! Blobs: contents by their hash, in chunks, shared by all servers of a database.
//!
//! Invariant: a blob is stored atomically, and verified against its hash when it is read.

use super::Shared;
use super::session::{Failure, Session};
use crate::admit::check_blob;
use crate::{BlobId, Error};

const SIZE: &str = "SELECT size FROM legwork.blob WHERE id = $1";
/// Waits for a concurrent insert of the same blob.
const ADD: &str =
    "INSERT INTO legwork.blob (id, size) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING 1";
const ADD_CHUNK: &str = "INSERT INTO legwork.chunk (id, number, bytes) VALUES ($1, $2, $3)";
const CHUNKS: &str = "SELECT bytes FROM legwork.chunk WHERE id = $1 ORDER BY number";

const CHUNK_BYTES: usize = 1 << 20;

pub(super) fn put(shared: &Shared, content: &[u8]) -> Result<BlobId, Error> {
    check_blob(content)?;
    let id = BlobId::of(content);
    ask(shared, "storing a file in", |session| {
        if !session.query(SIZE, &[&&id.0[..]])?.is_empty() {
            return Ok(());
        }
        session.transaction(|| add(session, id, content))
    })?;
    Ok(id)
}

fn add(session: &Session, id: BlobId, content: &[u8]) -> Result<(), Failure> {
    let size = content.len() as i64;
    if session.query(ADD, &[&&id.0[..], &size])?.is_empty() {
        return Ok(());
    }
    for (number, chunk) in (0_i32..).zip(content.chunks(CHUNK_BYTES)) {
        session.query(ADD_CHUNK, &[&&id.0[..], &number, &chunk])?;
    }
    Ok(())
}

pub(super) fn get(shared: &Shared, id: BlobId) -> Result<Option<Vec<u8>>, Error> {
    let Some(size) = size(shared, id)? else { return Ok(None) };
    let rows = ask(shared, "reading a file of", |session| session.query(CHUNKS, &[&&id.0[..]]))?;
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    for row in &rows {
        content.extend_from_slice(row.get(0));
    }
    if BlobId::of(&content) != id {
        let path = shared.place().name().as_ref();
        return Err(Error::damaged(path, format!("the content of file {id} is another one")));
    }
    Ok(Some(content))
}

pub(super) fn size(shared: &Shared, id: BlobId) -> Result<Option<u64>, Error> {
    let rows = ask(shared, "reading a file of", |session| session.query(SIZE, &[&&id.0[..]]))?;
    let size: Option<i64> = rows.first().map(|row| row.get(0));
    Ok(size.and_then(|size| u64::try_from(size).ok()))
}

fn ask<T>(
    shared: &Shared,
    action: &'static str,
    ask: impl Fn(&Session) -> Result<T, Failure>,
) -> Result<T, Error> {
    shared.inner.pool.ask(shared.place(), action, ask)
}
