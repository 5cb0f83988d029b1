//! Killed at any moment: everything acknowledged is there, exactly once, in order.
//!
//! With PostgreSQL there are two to kill: the process that commits, and the database.

use std::env;
use std::io::{BufRead, BufReader, Write, stdout};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use legwork_model::id::StreamId;
use legwork_store::embedded::Embedded;
use legwork_store::postgres::{LEASE, Shared};
use legwork_store::{Append, Batch, Error, EventStore, Snapshot, Version};
use legwork_testbed::{Cluster, database};

use crate::support::{Numbers, text};

const KILLS: u64 = 15;
const STREAMS: u64 = 5;
/// Passes the store to the child: this test binary, started again.
const PLACE: &str = "LEGWORK_STORE_CRASH_PLACE";

#[test]
fn what_was_acknowledged_before_a_kill_is_there_exactly_once_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    kill_repeatedly(&dir.path().display().to_string());
}

#[test]
fn what_was_acknowledged_before_a_kill_is_in_postgres_exactly_once_and_in_order() {
    let database = database().unwrap();
    kill_repeatedly(database.url());
}

fn kill_repeatedly(place: &str) {
    let mut numbers = Numbers(42);
    let mut acknowledged = 0;
    for kill in 0..KILLS {
        let (mut child, mut output) = start(place);
        // The child runs on while its lines are read, so the kill can hit any point of a commit.
        for _ in 0..numbers.below(150) {
            acknowledged = next(&mut output).unwrap_or(acknowledged);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        while let Some(line) = next(&mut output) {
            acknowledged = line;
        }
        let there = check(&*open(place));
        println!("kill {kill}: acknowledged {acknowledged}, there {there}");
        assert!(there >= acknowledged, "lost: {acknowledged} acknowledged, {there} there");
        assert!(there <= acknowledged + 1, "{acknowledged} acknowledged, {there} there");
        acknowledged = there;
    }
    assert!(acknowledged > KILLS);
}

/// The database loses its power; the committing process reopens the store and goes on.
#[test]
fn what_was_acknowledged_before_the_database_was_killed_is_there_exactly_once() {
    let mut cluster = Cluster::start().unwrap();
    let database = cluster.database("crash").unwrap();
    let shared = Shared::connect(database.url()).unwrap();
    let held = shared.acquire("berlin", "test", LEASE).unwrap();
    let mut numbers = Numbers(7);
    let mut acknowledged = 0;
    for kill in 0..KILLS {
        let store = held.open().unwrap();
        let there = check(&store);
        assert!(there == acknowledged || there == acknowledged + 1, "{acknowledged}, {there}");
        let (tell, told) = mpsc::sync_channel(1_000);
        acknowledged = thread::scope(|scope| {
            let committing = scope.spawn(move || {
                let mut round = there;
                loop {
                    match store.commit(commit(round)) {
                        Ok(()) => round += 1,
                        Err(error) => return (round, error),
                    }
                    let _ = tell.try_send(());
                }
            });
            for _ in 0..numbers.below(150) {
                let _ = told.recv();
            }
            cluster.kill().unwrap();
            let (acknowledged, error) = committing.join().unwrap();
            assert!(matches!(error, Error::Database { .. }), "{error}");
            println!("kill {kill}: acknowledged {acknowledged}");
            acknowledged
        });
        cluster.run().unwrap();
    }
    assert!(acknowledged > KILLS);
}

/// Not a separate test: the child's work until it is killed.
#[test]
fn child_that_commits_until_it_is_killed() {
    let Ok(place) = env::var(PLACE) else { return };
    let store = open(&place);
    let mut round = count(&*store);
    loop {
        store.commit(commit(round)).unwrap();
        round += 1;
        let mut out = stdout().lock();
        writeln!(out, "acknowledged {round}").unwrap();
        out.flush().unwrap();
    }
}

/// Opens this store, whose last user is dead.
fn open(place: &str) -> Box<dyn EventStore> {
    if !place.contains("://") {
        return Box::new(Embedded::open(Path::new(place)).unwrap());
    }
    let shared = Shared::connect(place).unwrap();
    for lease in shared.leases().unwrap() {
        shared.break_lease(&lease.server, lease.epoch).unwrap();
    }
    Box::new(shared.acquire("berlin", "test", LEASE).unwrap().open().unwrap())
}

/// Commit `round` appends `round` to three of five streams, so that each stream has gaps it knows.
fn commit(round: u64) -> Batch {
    let touched = (0..STREAMS).filter(|stream| touches(*stream, round));
    let mut batch = Batch::default();
    for stream in touched {
        let expected = (0..round).filter(|before| touches(stream, *before)).count() as u64;
        // Of very different lengths: entries of the journal begin and end anywhere in a page.
        let padding = "x".repeat((round * 37 % 9000) as usize);
        let record = format!("{round} {padding}").into_bytes();
        let id = StreamId(stream.into());
        let append = Append { stream: id, expected: Version(expected), record, close: None };
        batch.appends.push(append);
        if round % 10 == stream {
            let bytes = vec![0; 5000];
            batch.snapshots.push(Snapshot { stream: id, version: Version(expected + 1), bytes });
        }
    }
    batch
}

fn touches(stream: u64, round: u64) -> bool {
    (round + stream) % STREAMS < 3
}

/// The number of commits. Fails if one of them is incomplete, doubled or out of order.
fn check(store: &dyn EventStore) -> u64 {
    let rounds = count(store);
    for stream in 0..STREAMS {
        let records = store.read(StreamId(stream.into()), Version(0), usize::MAX).unwrap();
        let numbers: Vec<u64> = records.iter().map(|record| number(record)).collect();
        let expected: Vec<u64> = (0..rounds).filter(|round| touches(stream, *round)).collect();
        assert_eq!(numbers, expected, "stream {stream}");
    }
    rounds
}

fn count(store: &dyn EventStore) -> u64 {
    let last = (0..STREAMS).filter_map(|stream| {
        let records = store.read(StreamId(stream.into()), Version(0), usize::MAX).unwrap();
        records.last().map(|record| number(record) + 1)
    });
    last.max().unwrap_or(0)
}

fn number(record: &[u8]) -> u64 {
    text(record).split(' ').next().unwrap().parse().unwrap()
}

fn start(place: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "crash::child_that_commits_until_it_is_killed", "--nocapture"])
        .env(PLACE, place)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output)
}

/// The number of the next acknowledgement; a truncated line does not count.
fn next(output: &mut BufReader<ChildStdout>) -> Option<u64> {
    loop {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let line = line.strip_suffix('\n')?;
        if let Some(number) = line.strip_prefix("acknowledged ") {
            return Some(number.parse().unwrap());
        }
    }
}
