//! Databases that can be a store and those that cannot; connections that are lost; TLS.

use std::net::TcpListener;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use legwork_model::id::StreamId;
use legwork_store::postgres::{FORMAT, LEASE, Shared};
use legwork_store::{BlobId, Error, EventStore, Version};
use legwork_testbed::{Cluster, database};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::support::{A, B, append, batch, content};

#[test]
fn many_that_start_at_once_make_the_tables_once() {
    let database = database().unwrap();
    thread::scope(|scope| {
        let all: Vec<_> = (0..6)
            .map(|number| {
                let url = database.url();
                scope.spawn(move || {
                    let shared = Shared::connect(url).unwrap();
                    let held = shared.acquire(&format!("server-{number}"), "test", LEASE).unwrap();
                    held.open().unwrap().commit(batch([append(A, 0, "a0")])).unwrap();
                })
            })
            .collect();
        all.into_iter().for_each(|it| it.join().unwrap());
    });
    assert_eq!(database.ask("SELECT max(version) FROM legwork.format").unwrap(), ["1"]);
    assert_eq!(database.ask("SELECT count(DISTINCT server) FROM legwork.record").unwrap(), ["6"]);
}

#[test]
fn a_newer_format_is_refused_and_nothing_is_changed() {
    let database = database().unwrap();
    Shared::connect(database.url()).unwrap();
    database.ask("INSERT INTO legwork.format (version) VALUES (7)").unwrap();
    let refused = Shared::connect(database.url()).unwrap_err();
    assert!(matches!(refused, Error::NewerFormat { found: 7, known: FORMAT, .. }), "{refused}");
    assert_eq!(database.ask("SELECT version FROM legwork.format").unwrap(), ["1", "7"]);
}

#[test]
fn a_user_who_may_only_use_the_tables_can_start() {
    let database = database().unwrap();
    Shared::connect(database.url()).unwrap();
    let user = format!("clerk_{}", std::process::id());
    let made = format!(
        "CREATE ROLE {user} LOGIN; GRANT USAGE ON SCHEMA legwork TO {user}; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA legwork TO {user}"
    );
    database.ask(&made).unwrap();
    let url = database.url().replace("://legwork@", &format!("://{user}@"));
    let held = Shared::connect(&url).unwrap().acquire("berlin", "clerk", LEASE).unwrap();
    let store = held.open().unwrap();
    store.commit(batch([append(A, 0, "a0")])).unwrap();
    store.put_blob(b"hello").unwrap();
    database.ask(&format!("DROP OWNED BY {user}; DROP ROLE {user}")).unwrap();
}

#[test]
fn a_database_that_does_not_sync_is_refused() {
    let cluster = Cluster::start_with(&[("fsync", "off")]).unwrap();
    let refused = Shared::connect(&cluster.url("postgres")).unwrap_err();
    assert!(matches!(refused, Error::Unsuitable { .. }), "{refused}");
    assert!(refused.to_string().contains("its fsync is off"), "{refused}");
}

#[test]
fn commits_are_durable_even_if_the_server_would_not_wait_for_its_disk() {
    let database = database().unwrap();
    database
        .ask(
            "DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || \
              ' SET synchronous_commit = off'; END $$",
        )
        .unwrap();
    let shared = Shared::connect(database.url()).unwrap();
    let store = shared.acquire("berlin", "ann", LEASE).unwrap().open().unwrap();
    // A trigger that records the settings of the commits that fire it.
    database
        .ask(
            "CREATE TABLE public.seen (how text); CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN INSERT INTO public.seen VALUES (current_setting('synchronous_commit')); \
             RETURN NULL; END $$; \
             CREATE TRIGGER note AFTER INSERT ON legwork.record EXECUTE FUNCTION public.note()",
        )
        .unwrap();
    store.commit(batch([append(A, 0, "a0")])).unwrap();
    assert_eq!(database.ask("SELECT how FROM public.seen").unwrap(), ["on"]);
}

#[test]
fn nobody_there_is_told_with_the_address_and_without_the_password() {
    let refused = Shared::connect("postgres://ann:s3cret@127.0.0.1:1/db").unwrap_err();
    let said = refused.to_string();
    assert!(said.starts_with("connecting to postgres://ann@127.0.0.1:1/db failed: "), "{said}");
    assert!(said.contains("see that PostgreSQL runs") && !said.contains("s3cret"), "{said}");
}

#[test]
fn a_restart_of_the_database_stops_the_store_and_opening_it_again_heals() {
    let mut cluster = Cluster::start().unwrap();
    let database = cluster.database("kept").unwrap();
    let shared = Shared::connect(database.url()).unwrap();
    let held = shared.acquire("berlin", "ann", LEASE).unwrap();
    let store = held.open().unwrap();
    store.commit(batch([append(A, 0, "a0")])).unwrap();
    assert_eq!(store.read(A, Version(0), 9).unwrap().len(), 1);
    cluster.stop().unwrap();
    let failed = store.commit(batch([append(A, 1, "a1")])).unwrap_err();
    assert!(matches!(failed, Error::Database { .. }), "{failed}");
    let stopped = store.commit(batch([append(A, 1, "a1")])).unwrap_err();
    assert!(matches!(stopped, Error::Stopped { .. }), "{stopped}");
    assert!(matches!(held.open(), Err(Error::Database { .. })));
    assert!(matches!(held.renew(), Err(Error::Database { .. })));
    cluster.run().unwrap();
    // Reading only needs the database.
    assert_eq!(store.read(A, Version(0), 9).unwrap().len(), 1);
    let store = held.open().unwrap();
    store.commit(batch([append(A, 1, "a1")])).unwrap();
    assert!(held.is_valid());
    assert_eq!(shared.leases().unwrap().len(), 1);
}

#[test]
fn servers_of_one_database_see_nothing_of_each_other_but_share_files() {
    let database = database().unwrap();
    let shared = Shared::connect(database.url()).unwrap();
    let open = |name: &str| shared.acquire(name, "test", LEASE).unwrap().open().unwrap();
    let (berlin, hamburg) = (open("berlin"), open("hamburg"));
    berlin.commit(batch([append(A, 0, "berlin"), append(B, 0, "b")])).unwrap();
    hamburg.commit(batch([append(A, 0, "hamburg")])).unwrap();
    assert_eq!(hamburg.read(A, Version(0), 9).unwrap(), [b"hamburg"]);
    assert_eq!(content(&hamburg, &[]).unwrap().open.len(), 1);
    let file = vec![7; 3 << 20];
    let id = berlin.put_blob(&file).unwrap();
    assert_eq!(hamburg.blob(id).unwrap(), Some(file));
    assert_eq!(hamburg.put_blob(&vec![7; 3 << 20]).unwrap(), id);
    assert_eq!(database.ask("SELECT count(*) FROM legwork.chunk").unwrap(), ["3"]);
    assert!(berlin.disk_use().unwrap() > 3 << 20);
}

#[test]
fn the_same_file_stored_by_many_at_once_is_there_once() {
    let database = database().unwrap();
    let shared = Shared::connect(database.url()).unwrap();
    let store = Arc::new(shared.acquire("berlin", "test", LEASE).unwrap().open().unwrap());
    let file = vec![1; 2 << 20];
    thread::scope(|scope| {
        let all: Vec<_> = (0..12).map(|_| scope.spawn(|| store.put_blob(&file).unwrap())).collect();
        assert!(all.into_iter().all(|it| it.join().unwrap() == BlobId::of(&file)));
    });
    assert_eq!(database.ask("SELECT count(*) FROM legwork.chunk").unwrap(), ["2"]);
}

#[test]
fn a_file_that_was_changed_in_the_database_is_not_handed_out() {
    let database = database().unwrap();
    let shared = Shared::connect(database.url()).unwrap();
    let store = shared.acquire("berlin", "test", LEASE).unwrap().open().unwrap();
    let id = store.put_blob(b"hello").unwrap();
    database.ask("UPDATE legwork.chunk SET bytes = 'hullo'").unwrap();
    assert!(matches!(store.blob(id), Err(Error::Damaged { .. })));
    store.commit(batch([append(A, 0, "a0"), append(A, 1, "a1"), append(A, 2, "a2")])).unwrap();
    database.ask("DELETE FROM legwork.record WHERE version = 1").unwrap();
    assert!(matches!(store.read(A, Version(0), 9), Err(Error::Damaged { .. })));
    let visited = store.open_streams(None, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(visited, Err(Error::Damaged { .. })));
}

#[test]
fn open_streams_are_read_in_portions_of_few_and_of_many_rows() {
    let database = database().unwrap();
    let shared = Shared::connect(database.url()).unwrap();
    let store = shared.acquire("berlin", "test", LEASE).unwrap().open().unwrap();
    let id = |place: u64| StreamId(u128::from(place) << 64);
    let long = "x".repeat(1 << 20);
    for from in (0..2_000).step_by(500) {
        let short = (from..from + 500).flat_map(|place| {
            (0..1 + place % 5).map(move |version| append(id(place), version, "r"))
        });
        store.commit(batch(short.collect::<Vec<_>>())).unwrap();
    }
    let appends: Vec<_> = (0..20).map(|version| append(id(2_000), version, &long)).collect();
    store.commit(batch(appends)).unwrap();
    let mut next = 0;
    store
        .open_streams(None, &mut |open| {
            assert_eq!(open.stream, id(next));
            let expected = if next == 2_000 { 20 } else { 1 + next % 5 };
            assert_eq!(open.version(), Version(expected));
            next += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(next, 2_001);
    let past = store.open_streams(Some(StreamId(u128::MAX)), &mut |_| panic!("nothing is above"));
    past.unwrap();
}

#[test]
fn tls_is_used_with_the_authority_that_is_named_and_no_other() {
    let (authority, certificate, key) = certificates("localhost");
    let (stranger, ..) = certificates("localhost");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut cluster = Cluster::start().unwrap();
    for (name, text) in [("cert.pem", &certificate), ("key.pem", &key)] {
        cluster.file(name, text.as_bytes()).unwrap();
    }
    let path = |name: &str| cluster.folder().join(name).display().to_string();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    cluster.stop().unwrap();
    cluster.set("ssl_cert_file", &cert);
    cluster.set("ssl_key_file", &key);
    cluster.set("ssl", "on");
    cluster.set("listen_addresses", "localhost");
    cluster.set("port", &port);
    let ca = cluster.file("ca.pem", authority.as_bytes()).unwrap();
    let other = cluster.file("other.pem", stranger.as_bytes()).unwrap();
    cluster.run().unwrap();
    let url = |rest: &str| format!("postgres://legwork@localhost:{port}/postgres{rest}");
    let with = |file: &std::path::Path| url(&format!("?sslrootcert={}", file.display()));
    let shared = Shared::connect(&with(&ca)).unwrap();
    let held = shared.acquire("berlin", "ann", LEASE).unwrap();
    held.open().unwrap().commit(batch([append(A, 0, "a0")])).unwrap();
    let refused = Shared::connect(&with(&other)).unwrap_err().to_string();
    assert!(refused.contains("certificate"), "{refused}");
    let elsewhere = with(&ca).replace("@localhost", "@127.0.0.1");
    let refused = Shared::connect(&elsewhere).unwrap_err().to_string();
    assert!(refused.contains("certificate"), "{refused}");
    Shared::connect(&url("")).unwrap();
}

/// An authority, a certificate that it signed for a host, and its key.
fn certificates(host: &str) -> (String, String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new([host.to_owned()]).unwrap();
    (authority, params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
}
