//! Damaged files: each flipped byte is either reported, with nothing changed, or harmless.
//!
//! Invariant under test: no silent loss of acknowledged commits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use legwork_store::embedded::{Embedded, Options};
use legwork_store::{Batch, BlobId, Error, EventStore, Version};

use crate::support::{
    A, B, C, Content, D, Numbers, append, batch, close, content, files, scratch, snapshot,
    write_files,
};

type Files = BTreeMap<PathBuf, Vec<u8>>;

const BLOB: &[u8] = b"a blob of some bytes";

#[test]
fn every_flipped_byte_is_told_or_harmless() {
    let (files, expected) = specimen();
    let mut numbers = Numbers(7);
    let (mut told, mut harmless) = (0, 0);
    for (path, bytes) in &files {
        for at in places(bytes.len(), &mut numbers) {
            let flipped = flip(&files, path, at, 1 << numbers.below(8));
            let name = format!("{} byte {at}", path.display());
            match outcome(&flipped, Options::default(), &name) {
                Err(error) => told += usize::from(tells_what_to_do(&error)),
                Ok(content) => {
                    assert_eq!(content, expected, "{name}");
                    harmless += 1;
                }
            }
        }
    }
    println!("told={told} harmless={harmless}");
    assert!(told > 300, "{told}");
}

#[test]
fn tables_that_are_not_verified_at_first_are_verified_when_read() {
    let (files, expected) = specimen();
    let options = Options { verify_bytes_max: 0, ..Options::default() };
    let mut numbers = Numbers(11);
    let mut told = 0;
    for (path, bytes) in files.iter().filter(|(path, _)| path.to_string_lossy().contains("tables/"))
    {
        for at in places(bytes.len(), &mut numbers).into_iter().step_by(4) {
            let dir = scratch();
            write_files(dir.path(), &flip(&files, path, at, 0x40));
            let opened = Embedded::open_with(dir.path(), options);
            match opened.and_then(|store| content(&store, &[BlobId::of(BLOB)])) {
                Err(error) => told += usize::from(tells_what_to_do(&error)),
                Ok(content) => assert_eq!(content, expected, "{} byte {at}", path.display()),
            }
        }
    }
    assert!(told > 20, "{told}");
}

#[test]
fn a_file_that_is_cut_short_is_told_or_harmless() {
    let (files, expected) = specimen();
    for (path, bytes) in &files {
        for kept in [0, bytes.len() / 2, bytes.len().saturating_sub(1)] {
            let mut cut = files.clone();
            cut.insert(path.clone(), bytes[..kept].to_vec());
            let name = format!("{} cut to {kept}", path.display());
            if let Ok(content) = outcome(&cut, Options::default(), &name) {
                assert_eq!(content, expected, "{name}");
            }
        }
    }
}

#[test]
fn a_torn_last_entry_is_healed_wherever_it_was_torn() {
    let Torn { before, after, journal, from } = torn();
    let whole = &after[&journal];
    let content_of = |files: &Files| outcome(files, Options::default(), "whole").unwrap();
    let (old, new) = (content_of(&before), content_of(&after));
    assert_ne!(old, new);
    for end in from..=whole.len() {
        let mut torn = before.clone();
        torn.insert(journal.clone(), whole[..end].to_vec());
        let healed = outcome(&torn, Options::default(), "torn").unwrap();
        assert_eq!(healed, if end == whole.len() { new.clone() } else { old.clone() }, "{end}");
    }
}

#[test]
fn a_last_entry_with_a_hole_is_healed_unless_it_was_acknowledged() {
    let Torn { before, after, journal, from } = torn();
    let old = outcome(&before, Options::default(), "before").unwrap();
    for at in (from..after[&journal].len()).step_by(7) {
        let mut holed = after[&journal].clone();
        let end = (at + 16).min(holed.len());
        holed[at..end].fill(0);
        if holed == after[&journal] {
            continue;
        }
        let mut unacknowledged = before.clone();
        unacknowledged.insert(journal.clone(), holed.clone());
        assert_eq!(outcome(&unacknowledged, Options::default(), "hole").unwrap(), old, "{at}");
        let mut acknowledged = after.clone();
        acknowledged.insert(journal.clone(), holed);
        let told = outcome(&acknowledged, Options::default(), "hole").unwrap_err();
        assert!(told.to_string().contains("was acknowledged"), "{at}: {told}");
    }
}

#[test]
fn damage_before_the_last_entry_is_told_even_without_the_watermark() {
    let Torn { before, after, journal, from } = torn();
    let watermark = Path::new("data/WATERMARK");
    let blank = scratch();
    Embedded::open(blank.path()).unwrap();
    let blank = files(blank.path());
    for at in (0..from).step_by(11) {
        let mut flipped = flip(&after, &journal, at, 0x10);
        flipped.insert(watermark.into(), blank[watermark].clone());
        let told = outcome(&flipped, Options::default(), &format!("byte {at}")).unwrap_err();
        assert!(matches!(told, Error::Damaged { .. }), "{told}");
    }
    drop(before);
}

#[test]
fn damage_in_either_of_two_journals_is_told() {
    let Torn { after, journal, from, .. } = torn();
    let expected = outcome(&after, Options::default(), "one journal").unwrap();
    let (first, second) = after[&journal].split_at(from);
    let mut split = after.clone();
    split.insert(journal.clone(), first.to_vec());
    split.insert("data/engine/1.jnl".into(), second.to_vec());
    assert_eq!(outcome(&split, Options::default(), "two journals").unwrap(), expected);
    for path in [journal, "data/engine/1.jnl".into()] {
        for at in (0..split[&path].len()).step_by(5) {
            let name = format!("{} byte {at}", path.display());
            let flipped = flip(&split, &path, at, 4);
            match outcome(&flipped, Options::default(), &name) {
                Err(error) => assert!(tells_what_to_do(&error)),
                Ok(content) => assert_eq!(content, expected, "{name}"),
            }
        }
    }
}

/// The engine begins a new journal and removes the old one when the tables have all of it. A torn
/// entry at the start of the new one is then judged by the watermark alone.
#[test]
fn a_new_journal_without_a_whole_entry_is_judged_by_the_watermark() {
    let dir = scratch();
    let store = Embedded::open(dir.path()).unwrap();
    store.commit(batch([append(A, 0, "a0"), append(B, 0, "b0")])).unwrap();
    store.compact().unwrap();
    let old = content(&store, &[BlobId::of(BLOB)]).unwrap();
    drop(store);
    let mut moved = trimmed(dir.path());
    moved.remove(Path::new("data/engine/0.jnl"));
    let journal = PathBuf::from("data/engine/1.jnl");
    moved.insert(journal.clone(), Vec::new());
    assert_eq!(outcome(&moved, Options::default(), "new journal").unwrap(), old);
    let dir = scratch();
    write_files(dir.path(), &moved);
    Embedded::open(dir.path()).unwrap().commit(batch([append(A, 1, "a1")])).unwrap();
    let after = trimmed(dir.path());
    for end in (1..after[&journal].len()).step_by(9) {
        let mut unacknowledged = moved.clone();
        unacknowledged.insert(journal.clone(), after[&journal][..end].to_vec());
        assert_eq!(outcome(&unacknowledged, Options::default(), "torn").unwrap(), old);
        let told =
            outcome(&flip(&after, &journal, end, 2), Options::default(), "flip").unwrap_err();
        assert!(matches!(told, Error::Damaged { .. }), "{end}: {told}");
    }
}

#[test]
fn the_rest_of_a_preallocated_journal_may_hold_anything() {
    let Torn { after, journal, .. } = torn();
    let expected = outcome(&after, Options::default(), "after").unwrap();
    let mut numbers = Numbers(3);
    for round in 0..20 {
        let mut dirty = after.clone();
        let bytes = dirty.get_mut(&journal).unwrap();
        let end = bytes.len();
        bytes.resize(end + 4096, 0);
        let at = end + numbers.below(4096) as usize;
        bytes[at] = 1 + (round % 4);
        assert_eq!(outcome(&dirty, Options::default(), "rest").unwrap(), expected);
    }
}

#[test]
fn a_damaged_blob_is_told_and_healed_by_putting_it_again() {
    let dir = scratch();
    let store = Embedded::open(dir.path()).unwrap();
    let id = store.put_blob(BLOB).unwrap();
    let name = id.to_string();
    let path = dir.path().join("data/blobs").join(&name[..2]).join(&name[2..]);
    fs::write(&path, b"something else").unwrap();
    let told = store.blob(id).unwrap_err();
    assert!(matches!(told, Error::Damaged { .. }), "{told}");
    store.put_blob(BLOB).unwrap();
    assert_eq!(store.blob(id).unwrap().as_deref(), Some(BLOB));
}

#[test]
fn what_blobs_occupy_is_kept_up_without_counting_again() {
    let dir = scratch();
    let store = Embedded::open(dir.path()).unwrap();
    let counted = |store: &Embedded| store.disk_use().unwrap().blobs;
    let before = counted(&store);
    store.put_blob(BLOB).unwrap();
    store.put_blob(&vec![7; 100_000]).unwrap();
    store.put_blob(BLOB).unwrap();
    let after = counted(&store);
    assert!(after >= before + 100_000, "{before} {after}");
    drop(store);
    assert_eq!(counted(&Embedded::open(dir.path()).unwrap()), after);
}

/// A store with all kinds of files: tables, journal entries, a blob.
fn specimen() -> (Files, Content) {
    let dir = scratch();
    let store = Embedded::open(dir.path()).unwrap();
    store.put_blob(BLOB).unwrap();
    for round in 0..20 {
        let many = (0..30).map(|lane| {
            let stream = legwork_model::id::StreamId(lane << 64);
            let record = format!("record {round} of stream {lane}");
            if round == 19 && lane % 3 == 0 {
                close(stream, round, &record, "the summary")
            } else {
                append(stream, round, &record)
            }
        });
        store.commit(batch(many.collect::<Vec<_>>())).unwrap();
        if round == 15 {
            store.compact().unwrap();
        }
    }
    let more = vec![append(A, 0, "a0"), append(B, 0, "b0"), close(C, 0, "c0", "sum")];
    store.commit(Batch { appends: more, snapshots: vec![snapshot(A, 1, "state")] }).unwrap();
    store.commit(batch([append(A, 1, "a1"), append(D, 0, "d0")])).unwrap();
    let expected = content(&store, &[BlobId::of(BLOB)]).unwrap();
    drop(store);
    (trimmed(dir.path()), expected)
}

struct Torn {
    before: Files,
    after: Files,
    journal: PathBuf,
    /// The offset of the last entry in the journal.
    from: usize,
}

/// A store before and after one more commit.
fn torn() -> Torn {
    let dir = scratch();
    let store = Embedded::open(dir.path()).unwrap();
    store.commit(batch([append(A, 0, "a0"), append(B, 0, "b0")])).unwrap();
    store.commit(batch([append(A, 1, "a1")])).unwrap();
    drop(store);
    let before = trimmed(dir.path());
    let store = Embedded::open(dir.path()).unwrap();
    assert_eq!(store.read(A, Version(0), usize::MAX).unwrap().len(), 2);
    store.commit(batch([append(A, 2, "a2 and some more"), close(B, 1, "b1", "sum")])).unwrap();
    drop(store);
    let after = trimmed(dir.path());
    let journal = PathBuf::from("data/engine/0.jnl");
    let from = before[&journal].len();
    assert!(after[&journal].starts_with(&before[&journal]));
    Torn { before, after, journal, from }
}

/// The files of a store, journals without their preallocated zeros.
fn trimmed(dir: &Path) -> Files {
    let mut files = files(dir);
    for (path, bytes) in &mut files {
        if path.extension().is_some_and(|extension| extension == "jnl") {
            let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
            bytes.truncate(end);
        }
    }
    files
}

/// All offsets of a small file, the ends and some more of a large one.
fn places(length: usize, numbers: &mut Numbers) -> Vec<usize> {
    if length <= 64 {
        return (0..length).collect();
    }
    let ends = (0..16).chain(length - 16..length);
    ends.chain((0..40).map(|_| numbers.below(length as u64) as usize)).collect()
}

fn flip(files: &Files, path: &Path, at: usize, bits: u8) -> Files {
    let mut flipped = files.clone();
    if let Some(byte) = flipped.get_mut(path).and_then(|bytes| bytes.get_mut(at)) {
        *byte ^= bits;
    }
    flipped
}

/// Opens and reads everything. A refused store must be left as it was.
fn outcome(files: &Files, options: Options, name: &str) -> Result<Content, Error> {
    let dir = scratch();
    write_files(dir.path(), files);
    let store = Embedded::open_with(dir.path(), options).inspect_err(|error| {
        assert_eq!(&crate::support::files(dir.path()), files, "{name}: {error}");
    })?;
    let found = content(&store, &[BlobId::of(BLOB)])?;
    // A healed store stays healed.
    drop(store);
    let store = Embedded::open_with(dir.path(), options).unwrap();
    assert_eq!(content(&store, &[BlobId::of(BLOB)]).unwrap(), found, "{name}");
    Ok(found)
}

fn tells_what_to_do(error: &Error) -> bool {
    let told = matches!(error, Error::Damaged { .. } | Error::NewerFormat { .. });
    assert!(told, "{error}");
    told
}
