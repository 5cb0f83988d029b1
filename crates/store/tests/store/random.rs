//! Random commands: the stores behave exactly alike.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use legwork_model::arbitrary::cases;
use legwork_model::id::StreamId;
use legwork_store::embedded::Embedded;
use legwork_store::memory::Memory;
use legwork_store::postgres::{Held, LEASE, Shared};
use legwork_store::{Append, Batch, EventStore, Snapshot, Version};
use legwork_testbed::{Database, database};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::{content, scratch};

#[derive(Clone, Debug)]
enum Step {
    Commit { appends: Vec<(u8, u8, bool)>, snapshots: Vec<(u8, u8)> },
    Reopen,
    Compact,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let append = (0..8_u8, prop_oneof![9 => Just(0_u8), 1 => 1..3_u8], prop::bool::weighted(0.1));
    let commit = (vec(append, 0..6), vec((0..8_u8, 0..4_u8), 0..2));
    let commit = commit.prop_map(|(appends, snapshots)| Step::Commit { appends, snapshots });
    vec(prop_oneof![12 => commit, 1 => Just(Step::Reopen), 1 => Just(Step::Compact)], 1..40)
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn memory_and_postgres_answer_alike(steps in steps()) {
        let held = server();
        let memory = Memory::default();
        let mut postgres = held.open().unwrap();
        for step in steps {
            match step {
                Step::Commit { appends, snapshots } => {
                    let batch = batch(&memory, &appends, &snapshots);
                    let expected = memory.commit(batch.clone()).map_err(|error| error.to_string());
                    let got = postgres.commit(batch).map_err(|error| error.to_string());
                    prop_assert_eq!(got, expected);
                }
                Step::Reopen | Step::Compact => postgres = held.open().unwrap(),
            }
            prop_assert_eq!(content(&postgres, &[]).unwrap(), content(&memory, &[]).unwrap());
        }
    }

    #[test]
    fn memory_and_embedded_answer_alike(steps in steps()) {
        let dir = scratch();
        let memory = Memory::default();
        let mut embedded = Embedded::open(dir.path()).unwrap();
        for step in steps {
            match step {
                Step::Commit { appends, snapshots } => {
                    let batch = batch(&memory, &appends, &snapshots);
                    let expected = memory.commit(batch.clone()).map_err(|error| error.to_string());
                    let got = embedded.commit(batch).map_err(|error| error.to_string());
                    prop_assert_eq!(got, expected);
                }
                Step::Reopen => {
                    drop(embedded);
                    embedded = Embedded::open(dir.path()).unwrap();
                }
                Step::Compact => embedded.compact().unwrap(),
            }
            prop_assert_eq!(content(&embedded, &[]).unwrap(), content(&memory, &[]).unwrap());
        }
    }
}

/// An unused server, in a database of all these cases.
fn server() -> Held {
    static SHARED: OnceLock<(Database, Shared)> = OnceLock::new();
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (_, shared) = SHARED.get_or_init(|| {
        let database = database().unwrap();
        let shared = Shared::connect(database.url()).unwrap();
        (database, shared)
    });
    let name = format!("server-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    shared.acquire(&name, "test", LEASE).unwrap()
}

/// Mostly valid: versions are taken from the store, sometimes off by a little.
fn batch(memory: &Memory, appends: &[(u8, u8, bool)], snapshots: &[(u8, u8)]) -> Batch {
    let mut grown = [0; 8];
    let head = |id: u8| memory.read(stream(id), Version(0), usize::MAX).unwrap().len() as u64;
    let appends = appends.iter().map(|&(id, off, ends)| {
        let expected = head(id) + grown[usize::from(id)] + u64::from(off);
        grown[usize::from(id)] += 1;
        let record = format!("{id}/{expected}").into_bytes();
        let close = ends.then(|| vec![id]);
        Append { stream: stream(id), expected: Version(expected), record, close }
    });
    let appends = appends.collect();
    let snapshots = snapshots.iter().map(|&(id, back)| Snapshot {
        stream: stream(id),
        version: Version((head(id) + grown[usize::from(id)]).saturating_sub(back.into())),
        bytes: vec![id, back],
    });
    Batch { appends, snapshots: snapshots.collect() }
}

fn stream(id: u8) -> StreamId {
    StreamId(u128::from(id) << 96)
}
