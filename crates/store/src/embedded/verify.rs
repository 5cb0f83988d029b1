//! Verifies the files of a store before the engine touches them.
//!
//! Invariant: reads only. A store that passes has every acknowledged commit; one that fails is
//! refused while it can still be examined, because the engine removes files that it has lost track
//! of.
//!
//! Checked against their checksums: the journals, the manifests, and the tables as far as
//! [`Options::verify_bytes_max`](super::Options) goes. Beyond it the blocks of the tables
//! are verified when they are read, by the engine.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::files::read;
use super::journal::{self, Journals};
use super::watermark::Watermark;
use crate::Error;

/// The engine numbers its keyspaces in the order of their creation; 0 is its own.
pub(super) const KEYSPACES: u64 = 4;

const ENGINE_MARKER: [u8; 4] = *b"FJL\x03";
const READ_BYTES: usize = 256 << 10;

/// Verifies everything; returns the contents of the journals.
pub(super) fn verify(
    data: &Path,
    watermark: Watermark,
    mut table_bytes_max: u64,
) -> Result<Journals, Error> {
    let marker = data.join("version");
    if read(&marker)? != ENGINE_MARKER {
        return Err(Error::damaged(&marker, "it does not name the format of the engine"));
    }
    for keyspace in 0..KEYSPACES {
        let dir = data.join("keyspaces").join(keyspace.to_string());
        verify_keyspace(&dir, &mut table_bytes_max)?;
    }
    let journals = journal::scan(data)?;
    check_watermark(data, &journals, watermark)?;
    Ok(journals)
}

/// An acknowledged commit is in a journal, or its journal is gone because the tables have all of
/// it.
fn check_watermark(data: &Path, journals: &Journals, acked: Watermark) -> Result<(), Error> {
    let present = match journals.last {
        Some(last) => last.sequence >= acked.sequence,
        None => acked.sequence == 0 || journals.files.first() > Some(&acked.journal),
    };
    if present {
        return Ok(());
    }
    let found = journals
        .last
        .map_or("holds no commit".into(), |last| format!("ends with commit {}", last.sequence));
    Err(Error::damaged(
        &journal::path(data, acked.journal),
        format!("commit {} was acknowledged, but the journal {found}", acked.sequence),
    ))
}

/// `current` names the manifest and its checksum; the manifest names the tables and theirs.
fn verify_keyspace(dir: &Path, table_bytes_max: &mut u64) -> Result<(), Error> {
    let current = dir.join("current");
    let pointer = read(&current)?;
    let (Some((version, rest)), 25) = (pointer.split_first_chunk(), pointer.len()) else {
        return Err(Error::damaged(&current, "it has the wrong length"));
    };
    let manifest = dir.join(format!("v{}", u64::from_le_bytes(*version)));
    let bytes = read(&manifest)?;
    if rest[..16] != xxh3_128(&bytes).to_le_bytes() || rest[16] != 0 {
        return Err(Error::damaged(&manifest, "its checksum does not fit"));
    }
    for (table, checksum) in tables(&manifest, &bytes)? {
        let path = dir.join("tables").join(table.to_string());
        verify_table(&path, checksum, table_bytes_max)?;
    }
    Ok(())
}

fn verify_table(path: &Path, checksum: [u8; 16], bytes_max: &mut u64) -> Result<(), Error> {
    let failed = || Error::io("reading", path);
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::damaged(path, "the table is missing"));
        }
        Err(error) => return Err(failed()(error)),
    };
    let length = file.metadata().map_err(failed())?.len();
    if length > *bytes_max {
        return Ok(());
    }
    *bytes_max -= length;
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = file.read(&mut buffer).map_err(failed())?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
    }
    if hash.digest128().to_le_bytes() != checksum {
        return Err(Error::damaged(path, "its checksum does not fit"));
    }
    Ok(())
}

/// The tables of a manifest: levels of runs of (id 8, checksum kind 1, checksum 16, number 8).
fn tables(path: &Path, manifest: &[u8]) -> Result<Vec<(u64, [u8; 16])>, Error> {
    let unreadable = || Error::damaged(path, "its list of tables cannot be read");
    let archive =
        sfa::Reader::from_reader(&mut io::Cursor::new(manifest)).map_err(|_| unreadable())?;
    let section = archive.toc().section(b"tables").ok_or_else(unreadable)?;
    let (from, length) = (section.pos() as usize, section.len() as usize);
    let list = from.checked_add(length).and_then(|to| manifest.get(from..to));
    parse_tables(list.ok_or_else(unreadable)?).ok_or_else(unreadable)
}

fn parse_tables(mut list: &[u8]) -> Option<Vec<(u64, [u8; 16])>> {
    fn take<const N: usize>(list: &mut &[u8]) -> Option<[u8; N]> {
        let (taken, rest) = list.split_first_chunk()?;
        *list = rest;
        Some(*taken)
    }
    let mut tables = Vec::new();
    let [levels] = take(&mut list)?;
    for _ in 0..levels {
        let [runs] = take(&mut list)?;
        for _ in 0..runs {
            for _ in 0..u32::from_le_bytes(take(&mut list)?) {
                let id = u64::from_le_bytes(take(&mut list)?);
                let [_kind] = take(&mut list)?;
                tables.push((id, take(&mut list)?));
                let _number: [u8; 8] = take(&mut list)?;
            }
        }
    }
    Some(tables)
}
