//! Reads the journal of the storage engine before the engine does, and changes nothing.
//!
//! Invariant: an entry counts only if it is whole, its checksum fits and it follows the one before.
//! The engine itself cuts the journal off at the first entry that it cannot parse, whatever follows;
//! here a broken entry is tolerated only at the very end, where a crash can leave one.
//!
//! An entry of the journal (numbers little-endian, as the engine writes them):
//! `01 items(4) number(8)`, then each item
//! `02 kind(1) compression(1) keyspace(8) key-length(2) length(4) stored-length(4) key value`,
//! then `03 xxh3-of-the-items(8) "FJL" 03`. The file is allocated in advance and ends with zeros.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::keys::{COMMIT_KEY, Commit};
use crate::Error;

/// The contents of all journal files.
#[derive(Debug, Default)]
pub(super) struct Journals {
    /// The numbers of the files, ascending.
    pub(super) files: Vec<u64>,
    pub(super) last: Option<Entry>,
    /// Files with a broken entry at the end, and their valid length.
    pub(super) torn: Vec<(PathBuf, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) sequence: u64,
    /// The engine's own number of the entry: it grows, with gaps.
    number: u64,
    pub(super) file: u64,
}

/// The engine also draws entry numbers for its own work, between reading the counter and writing the
/// entry: far fewer than this.
const ENTRY_NUMBER_SLACK: u64 = 1 << 20;

const READ_BYTES: usize = 1 << 20;
const ITEM_HEADER_BYTES: usize = 20;
const TRAILER: [u8; 4] = *b"FJL\x03";

pub(super) fn path(data: &Path, file: u64) -> PathBuf {
    data.join(format!("{file}.jnl"))
}

pub(super) fn scan(data: &Path) -> Result<Journals, Error> {
    let mut journals = Journals { files: list(data)?, ..Journals::default() };
    for file in journals.files.clone() {
        scan_file(&path(data, file), file, &mut journals)?;
    }
    Ok(journals)
}

/// Cuts off entries of unacknowledged commits. Only after everything else has been verified.
pub(super) fn heal(journals: &Journals) -> Result<(), Error> {
    for (path, good) in &journals.torn {
        let file = File::options().write(true).open(path).map_err(Error::io("opening", path))?;
        file.set_len(*good).map_err(Error::io("truncating", path))?;
        file.sync_all().map_err(Error::io("syncing", path))?;
    }
    Ok(())
}

/// The numbers of the journal files, ascending.
pub(super) fn list(data: &Path) -> Result<Vec<u64>, Error> {
    let mut files = Vec::new();
    for entry in fs::read_dir(data).map_err(Error::io("listing", data))? {
        let name = entry.map_err(Error::io("listing", data))?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.strip_suffix(".jnl")) else {
            continue;
        };
        files.push(number.parse().map_err(|_| {
            Error::damaged(&data.join(&name), "a journal file with an unknown name")
        })?);
    }
    files.sort_unstable();
    Ok(files)
}

fn scan_file(path: &Path, number: u64, journals: &mut Journals) -> Result<(), Error> {
    let failed = || Error::io("reading", path);
    let mut file = File::open(path).map_err(failed())?;
    let length = file.metadata().map_err(failed())?.len();
    let mut reader = Reader::new(BufReader::with_capacity(READ_BYTES, &file), length);
    let mut good = 0;
    while let Some((entry_number, commit)) = reader.entry().map_err(failed())? {
        let entry = Entry { sequence: commit.sequence, number: entry_number, file: number };
        check_order(path, journals.last, entry, commit)?;
        journals.last = Some(entry);
        good = length - reader.left;
    }
    drop(reader);
    file.seek(SeekFrom::Start(good)).map_err(failed())?;
    if is_zero(&mut BufReader::with_capacity(READ_BYTES, &file)).map_err(failed())? {
        return Ok(());
    }
    refuse_entries_beyond(path, good, &mut file, journals.last)?;
    journals.torn.push((path.to_path_buf(), good));
    Ok(())
}

/// A complete entry that is out of order was not torn by a crash. The engine's number is checked
/// because no checksum covers it.
fn check_order(
    path: &Path,
    last: Option<Entry>,
    entry: Entry,
    commit: Commit,
) -> Result<(), Error> {
    let drift = entry.number.checked_sub(commit.entry_number_min);
    let placed = drift.is_some_and(|drift| drift <= ENTRY_NUMBER_SLACK)
        && last
            .is_none_or(|last| entry.number > last.number && entry.sequence == last.sequence + 1);
    if placed {
        return Ok(());
    }
    let (sequence, number) = (entry.sequence, entry.number);
    let after = last.map_or("the beginning".into(), |last| format!("commit {}", last.sequence));
    let detail = format!("commit {sequence} with entry number {number} comes after {after}");
    Err(Error::damaged(path, detail))
}

/// Every entry is on disk before the next one is written. So a broken entry that others follow
/// was not torn by a crash: it was acknowledged, and then it was damaged.
fn refuse_entries_beyond(
    path: &Path,
    good: u64,
    file: &mut File,
    last: Option<Entry>,
) -> Result<(), Error> {
    let failed = || Error::io("reading", path);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(good)).map_err(failed())?;
    file.read_to_end(&mut tail).map_err(failed())?;
    for (at, _) in tail.iter().enumerate().skip(1).filter(|(_, byte)| **byte == Tag::START) {
        let rest = &tail[at..];
        let found = Reader::new(rest, rest.len() as u64).entry().map_err(failed())?;
        if let Some((_, commit)) = found
            && last.is_none_or(|last| commit.sequence > last.sequence)
        {
            let at = good + at as u64;
            return Err(Error::damaged(
                path,
                format!(
                    "the entry at byte {good} is broken, but commit {} at byte {at} is whole",
                    commit.sequence
                ),
            ));
        }
    }
    Ok(())
}

static ZEROS: [u8; 4096] = [0; 4096];

fn is_zero(reader: &mut impl io::BufRead) -> io::Result<bool> {
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(true);
        }
        // Compared in blocks: this reads 64 MiB each time that a store is opened after a crash.
        if bytes.chunks(ZEROS.len()).any(|block| *block != ZEROS[..block.len()]) {
            return Ok(false);
        }
        let read = bytes.len();
        reader.consume(read);
    }
}

struct Tag;

impl Tag {
    const START: u8 = 1;
    const ITEM: u8 = 2;
    const END: u8 = 3;
}

struct Reader<R> {
    source: R,
    left: u64,
    item: Vec<u8>,
}

impl<R: Read> Reader<R> {
    fn new(source: R, left: u64) -> Self {
        Self { source, left, item: Vec::new() }
    }

    /// The next entry: its number and its commit. `None` where there is no whole, valid entry.
    fn entry(&mut self) -> io::Result<Option<(u64, Commit)>> {
        let Some([Tag::START, start @ ..]) = self.take::<13>()? else { return Ok(None) };
        let (items, number) = start.split_at(4);
        let (Ok(items), Ok(number)) = (items.try_into(), number.try_into()) else {
            return Ok(None);
        };
        let mut hash = Xxh3::new();
        let mut commit = None;
        for place in 0..u32::from_le_bytes(items) {
            let Some((key, value)) = self.item(&mut hash)? else { return Ok(None) };
            if place == 0 && key == COMMIT_KEY {
                commit = Commit::decode(value);
            }
        }
        let Some([Tag::END, end @ ..]) = self.take::<13>()? else { return Ok(None) };
        let whole = end[..8] == hash.digest().to_le_bytes() && end[8..] == TRAILER;
        Ok(commit.filter(|_| whole).map(|commit| (u64::from_le_bytes(number), commit)))
    }

    fn item(&mut self, hash: &mut Xxh3) -> io::Result<Option<(&[u8], &[u8])>> {
        let Some([Tag::ITEM]) = self.take::<1>()? else { return Ok(None) };
        let Some(header) = self.take::<ITEM_HEADER_BYTES>()? else { return Ok(None) };
        let [_kind, 0, rest @ ..] = header else { return Ok(None) };
        let key_length = usize::from(u16::from_le_bytes([rest[8], rest[9]]));
        let length = u32::from_le_bytes([rest[10], rest[11], rest[12], rest[13]]);
        let stored = u32::from_le_bytes([rest[14], rest[15], rest[16], rest[17]]);
        let size = key_length as u64 + u64::from(stored);
        if length != stored || size > self.left {
            return Ok(None);
        }
        self.item.resize(key_length + stored as usize, 0);
        self.source.read_exact(&mut self.item)?;
        self.left -= size;
        hash.update(&[Tag::ITEM]);
        hash.update(&header);
        hash.update(&self.item);
        Ok(Some(self.item.split_at(key_length)))
    }

    fn take<const N: usize>(&mut self) -> io::Result<Option<[u8; N]>> {
        if self.left < N as u64 {
            return Ok(None);
        }
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes)?;
        self.left -= N as u64;
        Ok(Some(bytes))
    }
}
