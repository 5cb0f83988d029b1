//! Opening a directory as a store: format, lock, creation, verification, then the engine.
//!
//! Invariant: a refused directory is left as it was found, except for its lock file. A store is
//! created atomically: it exists from the moment its `FORMAT` file does.
//!
//! ```text
//! FORMAT            `legwork store format 1`
//! LOCK              held by the process that has the store open
//! data/WATERMARK    the last acknowledged commit
//! data/engine/      fjall: journals and tables
//! data/blobs/       blobs by their hash
//! ```

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{self, Path};
use std::sync::{Arc, Mutex, RwLock};

use fjall::{Database, LsmError};

use super::blobs::Blobs;
use super::files::{names, sync_dir, sync_parent, write_atomic};
use super::journal::{self, Journals};
use super::keys::{COMMIT_KEY, Commit};
use super::watermark::{Watermark, WatermarkFile};
use super::{Embedded, Writer, tuning, verify};
use crate::Error;
use crate::heads::Heads;

/// The format that this program writes. It opens no other.
pub const FORMAT: u32 = 1;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The memory for blocks of tables.
    pub cache_bytes: u64,
    /// How many bytes of tables are verified when the store is opened. A larger store opens without
    /// delay; damage in the skipped part is reported when it is read.
    pub verify_bytes_max: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache_bytes: 32 << 20, verify_bytes_max: 2 << 30 }
    }
}

pub(super) const ENGINE: &str = "engine";
pub(super) const BLOBS: &str = "blobs";

const FORMAT_FILE: &str = "FORMAT";
const FORMAT_INCOMING: &str = "FORMAT.new";
const FORMAT_PREFIX: &str = "legwork store format ";
const LOCK_FILE: &str = "LOCK";
const DATA: &str = "data";
const DATA_INCOMING: &str = "data.new";

const RECORDS: &str = "records";
const OPEN: &str = "open";
const CLOSED: &str = "closed";

pub(super) fn open(dir: &Path, options: Options) -> Result<Embedded, Error> {
    let dir = &path::absolute(dir).map_err(Error::io("finding", dir))?;
    if dir.exists() && !dir.is_dir() {
        let reason = "it is not a directory".to_owned();
        return Err(Error::NotAStore { path: dir.to_path_buf(), reason });
    }
    // Twice: a store of a later format is not even locked, and the format may change while waiting
    // for the lock.
    has_format(dir)?;
    if !dir.exists() {
        fs::create_dir_all(dir).map_err(Error::io("creating", dir))?;
        sync_parent(dir)?;
    }
    let lock = lock(dir)?;
    if has_format(dir)? {
        finish_creation(dir)?;
    } else {
        create(dir)?;
    }
    let data = dir.join(DATA);
    let (mut watermark, acked) = WatermarkFile::open(&data)?;
    let engine = data.join(ENGINE);
    let journals = verify::verify(&engine, acked, options.verify_bytes_max)?;
    journal::heal(&journals)?;
    let db = tuning::database(&engine, options.cache_bytes).open();
    let db = db.map_err(|error| engine_error(&engine, error))?;
    let [records, open, closed] = open_keyspaces(&engine, &db)?;
    let last = open.get(COMMIT_KEY).map_err(|error| engine_error(&engine, error))?;
    let sequence = last.and_then(|last| Commit::decode(&last)).map_or(0, |last| last.sequence);
    check_recovered(&engine, sequence, &journals, acked)?;
    if let Some(last) = journals.last {
        watermark.write(Watermark { sequence, journal: last.file })?;
    }
    let journal = journals.files.last().copied().unwrap_or(0);
    let writer = Writer { sequence, journal, heads: Heads::default(), watermark, stopped: None };
    Ok(Embedded {
        view: RwLock::new(Arc::new(db.snapshot())),
        writer: Mutex::new(writer),
        records,
        open,
        closed,
        db,
        blobs: Blobs::open(data.join(BLOBS)),
        data,
        _lock: lock,
    })
}

/// The lock of a directory, held until it is dropped.
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that another thread is just starting has a copy
        // of it for a moment, and would keep the directory locked.
        let _ = self.0.unlock();
    }
}

/// Takes the lock of a directory.
pub(super) fn lock(dir: &Path) -> Result<Lock, Error> {
    let path = dir.join(LOCK_FILE);
    let opened = File::options().create(true).truncate(false).write(true).open(&path);
    let file = opened.map_err(Error::io("opening", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path: dir.to_path_buf() }),
        Err(TryLockError::Error(error)) => Err(Error::io("locking", &path)(error)),
    }
}

pub(super) fn engine_error(path: &Path, error: fjall::Error) -> Error {
    if let fjall::Error::Io(source) | fjall::Error::Storage(LsmError::Io(source)) = error {
        if source.kind() == io::ErrorKind::UnexpectedEof {
            return Error::damaged(path, "a file ends too early");
        }
        return Error::io("using", path)(source);
    }
    if let fjall::Error::Poisoned = error {
        return Error::Stopped { cause: "earlier writing failed".into() };
    }
    if let fjall::Error::Locked = error {
        return Error::Locked { path: path.to_path_buf() };
    }
    Error::damaged(path, format!("{error:?}"))
}

/// Whether the directory holds a store of our format.
fn has_format(dir: &Path) -> Result<bool, Error> {
    let path = dir.join(FORMAT_FILE);
    let content = match fs::read(&path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io("reading", &path)(error)),
    };
    let text = std::str::from_utf8(&content).ok();
    let number = text
        .and_then(|text| text.strip_prefix(FORMAT_PREFIX))
        .and_then(|text| text.strip_suffix('\n'))
        .and_then(|text| text.parse::<u32>().ok());
    match number {
        Some(FORMAT) => Ok(true),
        Some(found) if found > FORMAT => {
            Err(Error::NewerFormat { path: dir.to_path_buf(), found, known: FORMAT })
        }
        Some(_) | None => Err(Error::damaged(&path, "it does not name a format")),
    }
}

fn create(dir: &Path) -> Result<(), Error> {
    let known = [LOCK_FILE, FORMAT_INCOMING, DATA_INCOMING];
    if let Some(name) = names(dir)?.into_iter().find(|name| !known.contains(&name.as_str())) {
        let reason = format!("it has no file {FORMAT_FILE}, but {name}");
        return Err(Error::NotAStore { path: dir.to_path_buf(), reason });
    }
    let data = dir.join(DATA_INCOMING);
    if data.exists() {
        // Left by a crash during creation: nothing was ever committed to it.
        fs::remove_dir_all(&data).map_err(Error::io("removing", &data))?;
    }
    Blobs::create(&data.join(BLOBS))?;
    WatermarkFile::create(&data)?;
    let engine = data.join(ENGINE);
    {
        let db = tuning::database(&engine, 0).open();
        let db = db.map_err(|error| engine_error(&engine, error))?;
        create_keyspaces(&db).map_err(|error| engine_error(&engine, error))?;
    }
    sync_dir(&engine.join("keyspaces"))?;
    sync_dir(&data)?;
    let format = format!("{FORMAT_PREFIX}{FORMAT}\n");
    write_atomic(&dir.join(FORMAT_FILE), &dir.join(FORMAT_INCOMING), format.as_bytes())?;
    finish_creation(dir)
}

fn finish_creation(dir: &Path) -> Result<(), Error> {
    let (data, incoming) = (dir.join(DATA), dir.join(DATA_INCOMING));
    if data.exists() {
        return Ok(());
    }
    if !incoming.exists() {
        return Err(Error::damaged(&data, "it is missing"));
    }
    fs::rename(&incoming, &data).map_err(Error::io("renaming", &incoming))?;
    sync_dir(dir)
}

/// The order must never change: the engine numbers them, see [`verify::KEYSPACES`].
fn create_keyspaces(db: &Database) -> fjall::Result<()> {
    db.keyspace(RECORDS, tuning::records)?;
    db.keyspace(OPEN, tuning::open)?;
    db.keyspace(CLOSED, tuning::closed)?;
    Ok(())
}

fn open_keyspaces(engine: &Path, db: &Database) -> Result<[fjall::Keyspace; 3], Error> {
    // The engine would create what it does not find.
    for name in [RECORDS, OPEN, CLOSED] {
        if !db.keyspace_exists(name) {
            return Err(Error::damaged(engine, format!("the keyspace {name} is missing")));
        }
    }
    let opened = || {
        let records = db.keyspace(RECORDS, tuning::records)?;
        let open = db.keyspace(OPEN, tuning::open)?;
        Ok([records, open, db.keyspace(CLOSED, tuning::closed)?])
    };
    opened().map_err(|error| engine_error(engine, error))
}

/// A second check: what the engine recovered ends where the files end.
fn check_recovered(
    engine: &Path,
    sequence: u64,
    journals: &Journals,
    acked: Watermark,
) -> Result<(), Error> {
    let complete = match journals.last {
        Some(last) => sequence == last.sequence,
        None => sequence >= acked.sequence,
    };
    if complete {
        return Ok(());
    }
    let expected = journals.last.map_or(acked.sequence, |last| last.sequence);
    Err(Error::damaged(engine, format!("commit {sequence} was recovered instead of {expected}")))
}
