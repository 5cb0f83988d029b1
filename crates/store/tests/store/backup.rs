//! Backup while the store is in use, and restore: all of it, or nothing.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use legwork_model::id::StreamId;
use legwork_store::embedded::{Embedded, restore};
use legwork_store::{Batch, BlobId, Error, EventStore, Version};

use crate::support::{A, B, C, Content, append, batch, close, content, scratch, snapshot};

const BLOB: &[u8] = &[9; 10_000];

#[test]
fn a_restored_store_has_the_same_content_and_goes_on() {
    let (backup, expected) = sample();
    let parent = scratch();
    let dir = parent.path().join("restored");
    let mut heard = Vec::new();
    restore(&mut backup.as_slice(), &dir, &mut |bytes| heard.push(bytes)).unwrap();
    assert!(heard.last() > Some(&BLOB.len().try_into().unwrap()), "{heard:?}");
    for _ in 0..2 {
        let store = Embedded::open(&dir).unwrap();
        assert_eq!(content(&store, &[BlobId::of(BLOB)]).unwrap(), expected);
    }
    let store = Embedded::open(&dir).unwrap();
    store.commit(batch([append(A, 2, "a2")])).unwrap();
    assert!(matches!(store.commit(batch([append(C, 1, "x")])), Err(Error::Closed { .. })));
    drop(store);
    let store = Embedded::open(&dir).unwrap();
    assert_eq!(store.read(A, Version(0), usize::MAX).unwrap().len(), 3);
    assert_eq!(names(parent.path()), ["restored"]);
}

#[test]
fn an_empty_store_can_be_backed_up_and_restored() {
    let dir = scratch();
    let backup = back_up(&Embedded::open(dir.path()).unwrap());
    // Into a directory that exists and is empty.
    let target = scratch();
    restore(&mut backup.as_slice(), target.path(), &mut |_| {}).unwrap();
    let store = Embedded::open(target.path()).unwrap();
    assert_eq!(content(&store, &[]).unwrap(), Content::default());
    store.commit(batch([append(A, 0, "a0")])).unwrap();
}

#[test]
fn a_backup_beside_commits_shows_one_moment() {
    let dir = scratch();
    let store = Embedded::open(dir.path()).unwrap();
    let (left, right) = (StreamId(1), StreamId(u128::MAX));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for version in 0.. {
                store
                    .commit(batch([append(left, version, "l"), append(right, version, "r")]))
                    .unwrap();
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for round in 0..5 {
            let backup = back_up(&store);
            let target = scratch();
            restore(&mut backup.as_slice(), target.path(), &mut |_| {}).unwrap();
            let restored = Embedded::open(target.path()).unwrap();
            let count = |stream| restored.read(stream, Version(0), usize::MAX).unwrap().len();
            assert_eq!(count(left), count(right), "round {round}");
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_truncated_backup_is_refused_and_leaves_nothing() {
    let (backup, _) = sample();
    let length = backup.len();
    let ends = [0, 1, 16, 17, 18].into_iter().chain((20..length).step_by(length / 15));
    let ends = ends.chain([length - 33, length - 32, length - 31, length - 1]);
    for end in ends {
        refused(&backup[..end], &format!("cut to {end}"));
    }
}

#[test]
fn a_flipped_byte_of_a_backup_is_refused_and_leaves_nothing() {
    let (backup, _) = sample();
    let length = backup.len();
    let places = [0, 14, 15, 16].into_iter().chain((17..length).step_by(length / 25));
    let places = places.chain((length - 34..length).step_by(6)).chain([length - 1]);
    for at in places {
        let mut flipped = backup.clone();
        flipped[at] ^= 1 << (at % 8);
        refused(&flipped, &format!("byte {at}"));
    }
}

#[test]
fn what_follows_a_backup_is_refused() {
    let (backup, _) = sample();
    refused(&[&backup[..], b"x"].concat(), "more");
    refused(&[&backup[..], &backup[..]].concat(), "twice");
    refused(b"", "nothing");
    refused(b"PK\x03\x04 some other file that is no backup at all, and longer", "other");
}

#[test]
fn a_newer_backup_is_refused_by_its_format() {
    let (backup, _) = sample();
    let newer = [b"LEGWORK BACKUP 2\n", &backup[17..]].concat();
    let error = refused(&newer, "newer");
    assert!(error.to_string().contains("it has format 2"), "{error}");
}

#[test]
fn a_directory_that_is_not_empty_is_not_restored_into() {
    let (backup, _) = sample();
    let dir = scratch();
    fs::write(dir.path().join("precious"), "x").unwrap();
    let error = restore(&mut backup.as_slice(), dir.path(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::NotEmpty { .. }), "{error}");
    assert_eq!(names(dir.path()), ["precious"]);
}

#[test]
fn a_backup_that_cannot_be_written_fails() {
    let dir = scratch();
    let store = Embedded::open(dir.path()).unwrap();
    let mut full = fs::File::options().write(true).open("/dev/full").unwrap();
    let error = store.backup(&mut full, &mut |_| {}).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

fn sample() -> (Vec<u8>, Content) {
    let dir = scratch();
    let store = Embedded::open(dir.path()).unwrap();
    store.put_blob(BLOB).unwrap();
    let key = close(StreamId::of_key(7), 0, "k0", "");
    let appends = vec![append(A, 0, "a0"), append(B, 0, "b0"), close(C, 0, "c0", "sum"), key];
    store.commit(Batch { appends, snapshots: vec![snapshot(A, 1, "state")] }).unwrap();
    store.commit(batch([append(A, 1, "a1")])).unwrap();
    (back_up(&store), content(&store, &[BlobId::of(BLOB)]).unwrap())
}

fn back_up(store: &Embedded) -> Vec<u8> {
    let mut backup = Vec::new();
    store.backup(&mut backup, &mut |_| {}).unwrap();
    backup
}

fn refused(backup: &[u8], name: &str) -> Error {
    let parent = scratch();
    let dir = parent.path().join("restored");
    let error = restore(&mut { backup }, &dir, &mut |_| {}).expect_err(name);
    assert!(matches!(error, Error::BadBackup { .. }), "{name}: {error}");
    assert_eq!(names(parent.path()), [""; 0], "{name}");
    error
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
