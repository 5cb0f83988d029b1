//! Backup during commits: the store as of one moment, in one file.
//!
//! Invariant: the file is self-contained and verifiable: reading it to the end shows whether it is
//! complete. It is written in one pass and may go to a pipe.
//!
//! ```text
//! `LEGWORK BACKUP 1\n`
//! zstd:  01 sequence(8)
//!        02 stream(16) version(4) length(4) record       in the order of their keys
//!        03 stream(16) length(4) `open` value            as in the table of `keys`
//!        04 stream(16) length(4) summary
//!        05 length(4) blob
//!        00
//! BLAKE3 of everything before (32)
//! ```

use std::io::{self, Write};
use std::path::PathBuf;

use fjall::Readable;

use super::keys::{self, COMMIT_KEY, Commit};
use super::{Embedded, View};
use crate::Error;

pub(super) const MAGIC: &str = "LEGWORK BACKUP ";
pub(super) const FORMAT: u32 = 1;
pub(super) const HASH_BYTES: usize = 32;

pub(super) struct Kind;

impl Kind {
    pub(super) const END: u8 = 0;
    pub(super) const BEGIN: u8 = 1;
    pub(super) const RECORD: u8 = 2;
    pub(super) const OPEN: u8 = 3;
    pub(super) const CLOSED: u8 = 4;
    pub(super) const BLOB: u8 = 5;
}

/// A fast level: a backup should not take the CPU from the server.
const LEVEL: i32 = 3;
const PROGRESS_BYTES: u64 = 1 << 20;

impl Embedded {
    /// Writes the store as of now. `progress` gets the number of bytes of the store read so far.
    pub fn backup(&self, out: &mut dyn Write, progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
        let view = self.view();
        let mut hashed = Hashed { out, hash: blake3::Hasher::new() };
        let header = format!("{MAGIC}{FORMAT}\n");
        hashed.write_all(header.as_bytes()).map_err(write_failed)?;
        let encoder = zstd::Encoder::new(&mut hashed, LEVEL).map_err(write_failed)?;
        let mut dump = Dump { encoder, read: 0, told: 0, progress };
        dump.streams(self, &view)?;
        // After the streams: each blob was durable before a stream named it.
        dump.blobs(self)?;
        dump.put(&[&[Kind::END]])?;
        (dump.progress)(dump.read);
        dump.encoder.finish().map_err(write_failed)?;
        let hash = hashed.hash.finalize();
        out.write_all(hash.as_bytes()).and_then(|()| out.flush()).map_err(write_failed)
    }
}

struct Dump<'a, W: Write> {
    encoder: zstd::Encoder<'static, W>,
    read: u64,
    told: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl<W: Write> Dump<'_, W> {
    fn streams(&mut self, store: &Embedded, view: &View) -> Result<(), Error> {
        let commit = view.get(&store.open, COMMIT_KEY).map_err(|error| store.failed(error))?;
        let commit = commit.and_then(|commit| Commit::decode(&commit));
        let sequence = commit.map_or(0, |commit| commit.sequence);
        self.put(&[&[Kind::BEGIN], &sequence.to_be_bytes()])?;
        self.items(store, Kind::RECORD, view.iter(&store.records))?;
        self.items(store, Kind::OPEN, view.range(&store.open, keys::STREAMS))?;
        self.items(store, Kind::CLOSED, view.iter(&store.closed))
    }

    fn items(&mut self, store: &Embedded, kind: u8, items: fjall::Iter) -> Result<(), Error> {
        for item in items {
            let (key, value) = item.into_inner().map_err(|error| store.failed(error))?;
            self.put(&[&[kind], &key, &length(&value), &value])?;
        }
        Ok(())
    }

    fn blobs(&mut self, store: &Embedded) -> Result<(), Error> {
        for id in store.blobs.list()? {
            if let Some(content) = store.blobs.get(id)? {
                self.put(&[&[Kind::BLOB], &length(&content), &content])?;
            }
        }
        Ok(())
    }

    fn put(&mut self, parts: &[&[u8]]) -> Result<(), Error> {
        for part in parts {
            self.encoder.write_all(part).map_err(write_failed)?;
            self.read += part.len() as u64;
        }
        if self.read - self.told >= PROGRESS_BYTES {
            self.told = self.read;
            (self.progress)(self.read);
        }
        Ok(())
    }
}

/// All values are admitted with far less than 4 GiB.
fn length(value: &[u8]) -> [u8; 4] {
    u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes()
}

struct Hashed<'a> {
    out: &'a mut dyn Write,
    hash: blake3::Hasher,
}

impl Write for Hashed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn write_failed(error: io::Error) -> Error {
    Error::Io { action: "writing", path: PathBuf::from("the backup"), error }
}
