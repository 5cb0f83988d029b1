//! The relation of this process to the store of a server: a note next to the store, which survives the
//! process.
//!
//! Invariant: of all copies of a store in different folders, one is driven: the one that was never
//! given away, or that arrived completely. Without a note a store belongs to this process, from its
//! beginning.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use legwork_model::value::unhex;

use crate::moving::Hash;

const FILE: &str = "NOTE";
const INCOMING: &str = "NOTE.new";

/// The state of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Note {
    /// Driven here.
    #[default]
    Held,
    /// An incomplete copy from another host: a prefix of the original.
    Coming,
    /// A complete copy with this digest, by this change.
    Whole { change: u32, digest: Hash },
    /// Given to another host, by this change: its driver depends on how the change ends.
    Given { change: u32 },
    /// Driven elsewhere.
    Gone,
}

/// The note of one store.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// `None` for a store without a folder: then it lasts as long as the process.
    folder: Option<PathBuf>,
    last: Mutex<Option<Note>>,
}

impl Notes {
    /// Next to the store in a folder.
    pub(crate) fn beside(folder: &Path) -> io::Result<Self> {
        let last = match fs::read_to_string(folder.join(FILE)) {
            Ok(text) => Some(Note::parse(text.trim()).ok_or_else(|| {
                let path = folder.join(FILE);
                io::Error::other(format!("{} makes no sense: `{}`", path.display(), text.trim()))
            })?),
            // A file that is no folder is refused by the store, with a better error.
            Err(error) if is_absent(error.kind()) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { folder: Some(folder.to_owned()), last: Mutex::new(last) })
    }

    /// The folder of the store, if it has one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    pub(crate) fn last(&self) -> Note {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or_default()
    }

    /// Whether no note was ever written.
    pub(crate) fn is_new(&self) -> bool {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Durable on return.
    pub(crate) fn set(&self, note: Note) -> io::Result<()> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.unwrap_or_default() == note {
            return Ok(());
        }
        if let Some(folder) = &self.folder {
            let beside = folder.join(INCOMING);
            let mut file = fs::File::create(&beside)?;
            writeln!(file, "{}", note.text())?;
            file.sync_all()?;
            fs::rename(&beside, folder.join(FILE))?;
            fs::File::open(folder)?.sync_all()?;
        }
        *last = Some(note);
        Ok(())
    }
}

impl Note {
    fn text(self) -> String {
        match self {
            Self::Held => "held".to_owned(),
            Self::Coming => "coming".to_owned(),
            Self::Whole { change, digest } => {
                let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("whole {change} {hex}")
            }
            Self::Given { change } => format!("given {change}"),
            Self::Gone => "gone".to_owned(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        Some(match *words {
            ["held"] => Self::Held,
            ["coming"] => Self::Coming,
            ["whole", change, digest] => {
                Self::Whole { change: change.parse().ok()?, digest: unhex(digest)? }
            }
            ["given", change] => Self::Given { change: change.parse().ok()? },
            ["gone"] => Self::Gone,
            _ => return None,
        })
    }
}

fn is_absent(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_outlives_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let notes = Notes::beside(folder.path()).unwrap();
        assert_eq!(notes.last(), Note::Held);
        for note in [
            Note::Coming,
            Note::Whole { change: 7, digest: [0xA5; 32] },
            Note::Given { change: 8 },
            Note::Gone,
            Note::Held,
        ] {
            notes.set(note).unwrap();
            assert_eq!(Notes::beside(folder.path()).unwrap().last(), note);
        }
        fs::write(folder.path().join(FILE), "nonsense").unwrap();
        assert!(Notes::beside(folder.path()).is_err());
    }
}
