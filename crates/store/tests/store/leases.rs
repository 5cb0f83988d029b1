//! Two processes compete for one server: one gets it, the other waits, and the former holder is
//! fenced.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use legwork_store::postgres::{Held, LEASE, Shared};
use legwork_store::{Error, EventStore, Version};
use legwork_testbed::{Database, Session, database};

use crate::support::{A, append, batch, text};

/// A lease that has expired when it is acquired: these tests never wait.
const OVER: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(3_600);

fn shared() -> (Database, Shared) {
    let database = database().unwrap();
    let shared = Shared::connect(database.url()).unwrap();
    (database, shared)
}

fn read(store: &dyn EventStore) -> String {
    let records = store.read(A, Version(0), usize::MAX).unwrap();
    records.iter().map(|record| text(record)).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_lease_is_refused_while_another_holds_it_and_names_the_holder() {
    let (_database, shared) = shared();
    let held = shared.acquire("berlin", "ann", LONG).unwrap();
    assert!(held.is_valid());
    let refused = shared.acquire("berlin", "bob", LONG).unwrap_err();
    let Error::LeaseHeld { server, holder, left } = &refused else { panic!("{refused}") };
    assert_eq!((server.as_str(), holder.as_str()), ("berlin", "ann"));
    assert!(*left > LONG / 2 && *left <= LONG, "{left:?}");
    // Nor under the same name: it may be another process.
    assert!(matches!(shared.acquire("berlin", "ann", LONG), Err(Error::LeaseHeld { .. })));
    shared.acquire("hamburg", "bob", LONG).unwrap();
}

#[test]
fn a_lease_that_has_run_out_is_taken_and_the_old_holder_can_write_nothing_more() {
    let (_database, shared) = shared();
    let ann = shared.acquire("berlin", "ann", OVER).unwrap();
    let old = ann.open().unwrap();
    old.commit(batch([append(A, 0, "ann")])).unwrap();
    let bob = shared.acquire("berlin", "bob", LONG).unwrap();
    assert!(bob.epoch() > ann.epoch());
    let new = bob.open().unwrap();
    new.commit(batch([append(A, 1, "bob")])).unwrap();
    let fenced = old.commit(batch([append(A, 1, "late")])).unwrap_err();
    assert!(matches!(&fenced, Error::Fenced { server } if server == "berlin"), "{fenced}");
    let stopped = old.commit(batch([append(A, 2, "later")])).unwrap_err();
    assert!(matches!(stopped, Error::Stopped { .. }), "{stopped}");
    assert!(matches!(ann.open(), Err(Error::Fenced { .. })));
    assert_eq!(read(&new), "ann bob");
}

#[test]
fn a_lease_that_has_run_out_is_renewed_unless_another_has_taken_it() {
    let (_database, shared) = shared();
    let ann = shared.acquire("berlin", "ann", OVER).unwrap();
    assert!(!ann.is_valid() && !ann.is_lost());
    ann.renew().unwrap();
    let bob = shared.acquire("berlin", "bob", LONG).unwrap();
    let lost = ann.renew().unwrap_err();
    assert!(matches!(lost, Error::Fenced { .. }), "{lost}");
    assert!(ann.is_lost() && !ann.is_valid());
    bob.renew().unwrap();
    assert!(bob.is_valid());
}

#[test]
fn a_renewal_counts_from_before_it_was_sent() {
    let (_database, shared) = shared();
    let held = shared.acquire("berlin", "ann", LONG).unwrap();
    let first = held.valid_until();
    let before = std::time::Instant::now();
    held.renew().unwrap();
    let after = std::time::Instant::now();
    let valid_until = held.valid_until();
    assert!(valid_until >= first && valid_until >= before + LONG && valid_until <= after + LONG);
}

#[test]
fn a_lease_that_is_released_is_free_at_once() {
    let (_database, shared) = shared();
    let ann = shared.acquire("berlin", "ann", LONG).unwrap();
    let watched = ann.clone();
    ann.release().unwrap();
    assert!(!watched.is_valid());
    let bob = shared.acquire("berlin", "bob", LONG).unwrap();
    // Too late to release the lease of another holder.
    watched.release().unwrap();
    bob.renew().unwrap();
}

#[test]
fn the_lease_of_a_holder_that_is_known_to_be_dead_is_ended_once() {
    let (_database, shared) = shared();
    let ann = shared.acquire("berlin", "ann", LONG).unwrap();
    assert!(shared.break_lease("berlin", ann.epoch()).unwrap());
    let bob = shared.acquire("berlin", "bob", LONG).unwrap();
    assert!(!shared.break_lease("berlin", ann.epoch()).unwrap(), "that was ann's");
    assert!(!shared.break_lease("nowhere", 1).unwrap());
    bob.renew().unwrap();
    assert!(matches!(ann.renew(), Err(Error::Fenced { .. })));
}

#[test]
fn all_leases_are_listed_with_those_that_have_run_out() {
    let (_database, shared) = shared();
    let _ann = shared.acquire("hamburg", "ann", LONG).unwrap();
    let _bob = shared.acquire("berlin", "bob", OVER).unwrap();
    shared.acquire("munich", "cem", LONG).unwrap().release().unwrap();
    let leases = shared.leases().unwrap();
    let shown: Vec<_> = leases
        .iter()
        .map(|it| format!("{} {} {} {}", it.server, it.holder, it.epoch, it.left.is_some()))
        .collect();
    assert_eq!(shown, ["berlin bob 1 false", "hamburg ann 1 true", "munich  1 false"]);
}

#[test]
fn opening_again_ends_the_opening_before() {
    let (_database, shared) = shared();
    let held = shared.acquire("berlin", "ann", LONG).unwrap();
    let first = held.open().unwrap();
    first.commit(batch([append(A, 0, "0")])).unwrap();
    let second = held.open().unwrap();
    assert!(matches!(first.commit(batch([append(A, 1, "x")])), Err(Error::Fenced { .. })));
    second.commit(batch([append(A, 1, "1")])).unwrap();
    assert_eq!(read(&second), "0 1");
    assert!(held.is_valid(), "the lease is the same");
}

/// Takes the lock of a commit in progress.
fn commit_under_way(database: &Database) -> Session {
    let session = database.session().unwrap();
    session.ask("BEGIN; SELECT 1 FROM legwork.lease FOR KEY SHARE").unwrap();
    session
}

/// Returns once a session waits for a lock in this database.
fn until_a_session_waits(database: &Database) {
    const WAITING: &str = "SELECT count(*) FROM pg_stat_activity \
         WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while database.ask(WAITING).unwrap() == ["0"] {
        thread::yield_now();
    }
}

#[test]
fn a_take_over_waits_for_a_commit_under_way() {
    let (database, shared) = shared();
    let _ann = shared.acquire("berlin", "ann", OVER).unwrap();
    let commit = commit_under_way(&database);
    thread::scope(|scope| {
        let (taken, told) = mpsc::channel();
        let shared = &shared;
        scope.spawn(move || {
            let held: Result<Held, Error> = shared.acquire("berlin", "bob", LONG);
            taken.send(held.unwrap().epoch()).unwrap();
        });
        until_a_session_waits(&database);
        assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Empty));
        commit.ask("COMMIT").unwrap();
        assert_eq!(told.recv().unwrap(), 2);
    });
}

#[test]
fn a_renewal_during_a_pending_take_over_keeps_the_lease() {
    let (database, shared) = shared();
    let _ann = shared.acquire("berlin", "ann", OVER).unwrap();
    let commit = commit_under_way(&database);
    thread::scope(|scope| {
        let (refused, told) = mpsc::channel();
        let shared = &shared;
        scope.spawn(move || refused.send(shared.acquire("berlin", "bob", LONG)).unwrap());
        until_a_session_waits(&database);
        // Like a renewal of ann's, but for longer; it does not wait for the commit.
        let renewed =
            "UPDATE legwork.lease SET expires = now() + interval '1 hour' RETURNING epoch";
        assert_eq!(database.ask(renewed).unwrap(), ["1"]);
        commit.ask("COMMIT").unwrap();
        let refused = told.recv().unwrap().unwrap_err();
        assert!(
            matches!(&refused, Error::LeaseHeld { holder, .. } if holder == "ann"),
            "{refused}"
        );
    });
}

#[test]
fn a_renewal_does_not_wait_for_a_commit() {
    let (database, shared) = shared();
    let held = shared.acquire("berlin", "ann", LONG).unwrap();
    let commit = commit_under_way(&database);
    held.renew().unwrap();
    held.renew().unwrap();
    commit.ask("COMMIT").unwrap();
}

#[test]
fn a_commit_that_hangs_does_not_keep_others_from_taking_over() {
    let (database, shared) = shared();
    let ann = shared.acquire("berlin", "ann", OVER).unwrap();
    let store = ann.open().unwrap();
    store.commit(batch([append(A, 0, "0")])).unwrap();
    let blocked = database.session().unwrap();
    // The record that is about to be committed: the commit waits for it after it has locked the
    // lease.
    let record = "BEGIN; INSERT INTO legwork.record (version, server, stream, bytes) \
         SELECT version + 1, server, stream, bytes FROM legwork.record";
    blocked.ask(record).unwrap();
    thread::scope(|scope| {
        let hanging = scope.spawn(|| store.commit(batch([append(A, 1, "lost")])));
        until_a_session_waits(&database);
        let bob = shared.acquire("berlin", "bob", LONG).unwrap();
        let failed = hanging.join().unwrap().unwrap_err();
        // Its session was terminated; it would have waited for much longer.
        assert!(failed.to_string().contains("57P01"), "{failed}");
        blocked.ask("ROLLBACK").unwrap();
        assert_eq!(read(&bob.open().unwrap()), "0");
    });
}

#[test]
fn a_kept_lease_is_renewed_until_it_is_lost() {
    let (database, shared) = shared();
    let ann = shared.acquire("berlin", "ann", Duration::from_millis(40)).unwrap();
    let (tell, lost) = mpsc::channel();
    let keeping = ann.keep(move || tell.send(()).unwrap());
    let before = ann.valid_until();
    while ann.valid_until() == before {
        thread::yield_now();
    }
    database.ask("UPDATE legwork.lease SET epoch = epoch + 1").unwrap();
    lost.recv().unwrap();
    assert!(ann.is_lost());
    drop(keeping);
}

#[test]
fn names_have_a_limit() {
    let (_database, shared) = shared();
    let long = "x".repeat(257);
    let refused = shared.acquire(&long, "ann", LEASE).unwrap_err();
    assert!(matches!(refused, Error::TooLarge { max: 256, .. }), "{refused}");
}
