//! The watermark: the last acknowledged commit and its journal file.
//!
//! Invariant: it is written after its commit is on disk, so it never claims more than the journal
//! holds. The journal alone cannot tell a torn last entry from a damaged one; the watermark can.
//!
//! The file is two slots of 4096 bytes. Slots are written in turn, so that a torn write leaves the
//! other one. It is not synced: after a crash of the process it is exact; after a power cut it may
//! be behind, which loses only the proof that the very last entry was acknowledged.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::Error;

pub(super) const FILE_NAME: &str = "WATERMARK";

const SLOT_BYTES: u64 = 4096;
const ENTRY_BYTES: usize = 24;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Watermark {
    /// The sequence number of the commit; 0 before the first.
    pub(super) sequence: u64,
    /// The number of its journal file.
    pub(super) journal: u64,
}

#[derive(Debug)]
pub(super) struct WatermarkFile {
    file: File,
    path: PathBuf,
    turn: u64,
}

impl WatermarkFile {
    pub(super) fn create(dir: &Path) -> Result<(), Error> {
        let path = dir.join(FILE_NAME);
        let file = File::create(&path).map_err(Error::io("creating", &path))?;
        file.set_len(2 * SLOT_BYTES).map_err(Error::io("writing", &path))?;
        let mut created = Self { file, path, turn: 0 };
        created.write(Watermark::default())?;
        created.write(Watermark::default())?;
        created.file.sync_all().map_err(Error::io("syncing", &created.path))
    }

    /// Reads the later of the two slots; does not change the file.
    pub(super) fn open(dir: &Path) -> Result<(Self, Watermark), Error> {
        let path = dir.join(FILE_NAME);
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::damaged(&path, "it is missing"));
            }
            opened => opened.map_err(Error::io("opening", &path))?,
        };
        let slots = [0, 1].map(|slot| read_slot(&file, slot));
        let [Some(first), Some(second)] = slots else {
            let (slot, good) = match slots {
                [Some(good), _] => (1, good),
                [None, Some(good)] => (0, good),
                [None, None] => return Err(Error::damaged(&path, "neither of its slots is valid")),
            };
            return Ok((Self { file, path, turn: slot }, good));
        };
        let (turn, last) = if first.sequence > second.sequence { (1, first) } else { (0, second) };
        Ok((Self { file, path, turn }, last))
    }

    pub(super) fn write(&mut self, watermark: Watermark) -> Result<(), Error> {
        let at = (self.turn % 2) * SLOT_BYTES;
        self.file.write_all_at(&encode(watermark), at).map_err(Error::io("writing", &self.path))?;
        self.turn += 1;
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<(), Error> {
        self.file.sync_data().map_err(Error::io("syncing", &self.path))
    }
}

fn read_slot(file: &File, slot: u64) -> Option<Watermark> {
    let mut entry = [0; ENTRY_BYTES];
    file.read_exact_at(&mut entry, slot * SLOT_BYTES).ok()?;
    let sequence = u64::from_be_bytes(entry[..8].try_into().ok()?);
    let journal = u64::from_be_bytes(entry[8..16].try_into().ok()?);
    let watermark = Watermark { sequence, journal };
    (encode(watermark) == entry).then_some(watermark)
}

fn encode(watermark: Watermark) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..8].copy_from_slice(&watermark.sequence.to_be_bytes());
    entry[8..16].copy_from_slice(&watermark.journal.to_be_bytes());
    let hash = blake3::hash(&entry[..16]);
    entry[16..].copy_from_slice(&hash.as_bytes()[..8]);
    entry
}
