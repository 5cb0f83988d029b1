//! Restoring a backup into a new directory.
//!
//! Invariant: the directory appears under its name only after the last byte of the backup has been
//! verified. Until then everything is written to a sibling, `.<name>.restoring`, which is removed
//! if the backup is unusable.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{self, Path, PathBuf};

use fjall::Keyspace;

use super::backup::{FORMAT, HASH_BYTES, Kind, MAGIC};
use super::files::{names, sync_parent};
use super::keys::{RECORD_KEY_BYTES, STREAM_BYTES};
use super::{Embedded, open};
use crate::admit::{BLOB_BYTES_MAX, RECORD_BYTES_MAX, SNAPSHOT_BYTES_MAX, SUMMARY_BYTES_MAX};
use crate::{Error, EventStore};

/// Restores a backup into `dir`, which must not exist or be empty. `progress` gets the number of
/// bytes written so far.
pub fn restore(
    input: &mut dyn Read,
    dir: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Error> {
    let dir = &path::absolute(dir).map_err(Error::io("finding", dir))?;
    if !names(dir)?.is_empty() {
        return Err(Error::NotEmpty { path: dir.to_path_buf() });
    }
    let mut input = check_header(input)?;
    let sibling = sibling(dir)?;
    fs::create_dir_all(&sibling).map_err(Error::io("creating", &sibling))?;
    // Held during the whole restore, so that another process does not remove the directory.
    let lock = open::lock(&sibling)?;
    sweep(&sibling)?;
    let restored = fill(&mut input, &sibling.join(INCOMING), progress).and_then(|()| {
        fs::rename(sibling.join(INCOMING), dir).map_err(Error::io("renaming to", dir))
    });
    let removed = fs::remove_dir_all(&sibling).map_err(Error::io("removing", &sibling));
    drop(lock);
    restored?;
    removed?;
    sync_parent(dir)
}

const INCOMING: &str = "store";
const PROGRESS_BYTES: u64 = 1 << 20;

fn sibling(dir: &Path) -> Result<PathBuf, Error> {
    let Some(name) = dir.file_name() else {
        let reason = "it has no name of its own".into();
        return Err(Error::NotAStore { path: dir.to_path_buf(), reason });
    };
    Ok(dir.with_file_name(format!(".{}.restoring", name.to_string_lossy())))
}

/// Removes the remains of a killed restore.
fn sweep(sibling: &Path) -> Result<(), Error> {
    let incoming = sibling.join(INCOMING);
    match fs::remove_dir_all(&incoming) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("removing", &incoming)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

fn check_header(input: &mut dyn Read) -> Result<Body<'_>, Error> {
    let mut hash = blake3::Hasher::new();
    let mut header = Vec::new();
    let longest = MAGIC.len() + "4294967295\n".len();
    let mut byte = [0];
    while header.len() < longest && !header.ends_with(b"\n") {
        if input.read(&mut byte).map_err(read_failed)? == 0 {
            break;
        }
        header.push(byte[0]);
    }
    hash.update(&header);
    let number = std::str::from_utf8(&header).ok();
    let number = number.and_then(|text| text.strip_prefix(MAGIC)?.strip_suffix('\n')?.parse().ok());
    match number {
        Some(FORMAT) => Ok(Body::new(input, hash)),
        Some(found) if found > FORMAT => {
            Err(bad(format!("it has format {found}, this program knows formats up to {FORMAT}")))
        }
        Some(_) | None => Err(bad("it does not begin like a backup of legwork")),
    }
}

fn fill(input: &mut Body<'_>, dir: &Path, progress: &mut dyn FnMut(u64)) -> Result<(), Error> {
    let store = Embedded::open(dir)?;
    let decoder = zstd::Decoder::with_buffer(&mut *input).map_err(decode_failed)?;
    let mut items = Items { decoder: BufReader::new(decoder), written: 0, told: 0, progress };
    let sequence = items.load(&store)?;
    let mut rest = [0];
    if items.decoder.read(&mut rest).map_err(decode_failed)? != 0 {
        return Err(bad("it goes on after its end"));
    }
    drop(items);
    input.verify()?;
    let mut writer = store.writer();
    writer.sequence = sequence;
    // An entry in the journal makes the watermark certain.
    store.write(&mut writer, |_| {})
}

struct Items<'a, R> {
    decoder: BufReader<R>,
    written: u64,
    told: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl<R: Read> Items<'_, R> {
    /// Loads everything; returns the sequence number of the last commit.
    fn load(&mut self, store: &Embedded) -> Result<u64, Error> {
        let (Kind::BEGIN, sequence) = (self.kind()?, self.take()?) else {
            return Err(bad("it has no beginning"));
        };
        let sequence = u64::from_be_bytes(sequence);
        let mut kind = self.kind()?;
        let values = RECORD_BYTES_MAX;
        self.keyspace::<RECORD_KEY_BYTES>(&mut kind, Kind::RECORD, &store.records, values)?;
        let values = SNAPSHOT_BYTES_MAX + 4;
        self.keyspace::<STREAM_BYTES>(&mut kind, Kind::OPEN, &store.open, values)?;
        let values = SUMMARY_BYTES_MAX;
        self.keyspace::<STREAM_BYTES>(&mut kind, Kind::CLOSED, &store.closed, values)?;
        while kind == Kind::BLOB {
            let content = self.value(BLOB_BYTES_MAX)?;
            store.put_blob(&content)?;
            kind = self.kind()?;
        }
        if kind != Kind::END {
            return Err(bad(format!("it holds an item of unknown kind {kind}")));
        }
        (self.progress)(self.written);
        Ok(sequence)
    }

    /// Loads the items of one kind, which come in the order of their keys.
    fn keyspace<const KEY: usize>(
        &mut self,
        kind: &mut u8,
        wanted: u8,
        keyspace: &Keyspace,
        bytes_max: usize,
    ) -> Result<(), Error> {
        if *kind != wanted {
            return Ok(());
        }
        let failed = |error| open::engine_error(keyspace.path(), error);
        let mut ingestion = keyspace.start_ingestion().map_err(failed)?;
        let mut last = None;
        while *kind == wanted {
            let key: [u8; KEY] = self.take()?;
            // The engine panics at keys out of order.
            if last.is_some_and(|last| last >= key) {
                return Err(bad("its keys are out of order"));
            }
            last = Some(key);
            let value = self.value(bytes_max)?;
            ingestion.write(key, value).map_err(failed)?;
            *kind = self.kind()?;
        }
        ingestion.finish().map_err(failed)
    }

    fn kind(&mut self) -> Result<u8, Error> {
        let [kind] = self.take()?;
        Ok(kind)
    }

    fn value(&mut self, bytes_max: usize) -> Result<Vec<u8>, Error> {
        let length = u32::from_be_bytes(self.take()?) as usize;
        if length > bytes_max {
            return Err(bad(format!("it holds an item of {length} bytes")));
        }
        let mut value = vec![0; length];
        self.decoder.read_exact(&mut value).map_err(decode_failed)?;
        self.written += length as u64;
        if self.written - self.told >= PROGRESS_BYTES {
            self.told = self.written;
            (self.progress)(self.written);
        }
        Ok(value)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.decoder.read_exact(&mut bytes).map_err(decode_failed)?;
        self.written += N as u64;
        Ok(bytes)
    }
}

/// The input without the hash at its end; the end is known only when it is reached.
struct Body<'a> {
    input: &'a mut dyn Read,
    hash: blake3::Hasher,
    buffer: Vec<u8>,
    /// Returned and hashed up to here.
    from: usize,
    ended: bool,
}

impl<'a> Body<'a> {
    const BUFFER_BYTES: usize = 256 << 10;

    fn new(input: &'a mut dyn Read, hash: blake3::Hasher) -> Self {
        Self { input, hash, buffer: Vec::new(), from: 0, ended: false }
    }

    /// After the end of the body: whether its hash matches.
    fn verify(&mut self) -> Result<(), Error> {
        if !self.fill_buf().map_err(read_failed)?.is_empty() {
            return Err(bad("it goes on after its end"));
        }
        if self.buffer[self.from..] != *self.hash.finalize().as_bytes() {
            return Err(bad("its checksum does not fit: it is truncated or damaged"));
        }
        Ok(())
    }
}

impl BufRead for Body<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while !self.ended && self.buffer.len() - self.from <= HASH_BYTES {
            self.buffer.drain(..self.from);
            self.from = 0;
            let room = Self::BUFFER_BYTES as u64;
            self.ended = (&mut *self.input).take(room).read_to_end(&mut self.buffer)? == 0;
        }
        let to = self.buffer.len().saturating_sub(HASH_BYTES).max(self.from);
        Ok(&self.buffer[self.from..to])
    }

    fn consume(&mut self, bytes: usize) {
        self.hash.update(&self.buffer[self.from..self.from + bytes]);
        self.from += bytes;
    }
}

impl Read for Body<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let ready = self.fill_buf()?;
        let bytes = ready.len().min(out.len());
        out[..bytes].copy_from_slice(&ready[..bytes]);
        self.consume(bytes);
        Ok(bytes)
    }
}

fn bad(detail: impl Into<String>) -> Error {
    Error::BadBackup { detail: detail.into() }
}

fn decode_failed(error: io::Error) -> Error {
    bad(format!("it is truncated or damaged ({error})"))
}

fn read_failed(error: io::Error) -> Error {
    Error::Io { action: "reading", path: PathBuf::from("the backup"), error }
}
