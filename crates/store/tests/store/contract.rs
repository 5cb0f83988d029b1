//! The contract of every store, as a list of cases.
//!
//! Invariant: a case uses only [`EventStore`]. A new store adds one test that runs the list.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use legwork_model::id::StreamId;
use legwork_store::embedded::Embedded;
use legwork_store::memory::Memory;
use legwork_store::postgres::{LEASE, Shared};
use legwork_store::{
    Append, Batch, BlobId, Error, EventStore, RECORD_BYTES_MAX, SUMMARY_BYTES_MAX, Snapshot,
    Version,
};
use legwork_testbed::database;

use crate::support::{
    A, B, C, D, append, batch, close, content, scratch, snapshot, snapshots, text,
};

#[test]
fn memory_keeps_the_contract() {
    for (name, case) in CASES {
        println!("{name}");
        let store = Arc::new(Memory::default());
        case(&mut Subject::new(false, || Box::new(store.clone())));
    }
}

#[test]
fn embedded_keeps_the_contract() {
    for (name, case) in CASES {
        println!("{name}");
        let dir = scratch();
        case(&mut Subject::new(false, || Box::new(Embedded::open(dir.path()).unwrap())));
    }
}

#[test]
fn embedded_keeps_the_contract_when_it_is_reopened_after_every_step() {
    for (name, case) in CASES {
        println!("{name}");
        let dir = scratch();
        case(&mut Subject::new(true, || Box::new(Embedded::open(dir.path()).unwrap())));
    }
}

#[test]
fn postgres_keeps_the_contract() {
    on_postgres(false);
}

#[test]
fn postgres_keeps_the_contract_when_it_is_reopened_after_every_step() {
    on_postgres(true);
}

/// Each case has its own server in one database, isolated from the others.
fn on_postgres(reopen: bool) {
    let database = database().unwrap();
    let shared = Shared::connect(database.url()).unwrap();
    for (name, case) in CASES {
        println!("{name}");
        let held = shared.acquire(name, "test", LEASE).unwrap();
        case(&mut Subject::new(reopen, || Box::new(held.open().unwrap())));
    }
}

type Case = fn(&mut Subject);

const CASES: &[(&str, Case)] = &[
    ("records_are_read_back_in_order_and_from_any_version", records_are_read_back),
    ("records_are_read_in_pages", records_are_read_in_pages),
    ("an_unknown_stream_is_empty", an_unknown_stream_is_empty),
    ("a_conflict_names_the_stream_and_both_versions", a_conflict_is_named),
    ("a_refused_batch_changes_nothing", a_refused_batch_changes_nothing),
    ("appends_to_one_stream_in_one_batch_count_up", appends_in_a_batch_count_up),
    ("a_closed_stream_refuses_more", a_closed_stream_refuses_more),
    ("closed_streams_are_listed_newest_first_by_page", closed_streams_are_paged),
    ("a_stream_can_begin_and_end_in_one_batch", a_stream_can_begin_and_end_at_once),
    ("a_snapshot_replaces_the_one_before", a_snapshot_replaces_the_one_before),
    ("a_snapshot_of_what_is_not_committed_is_refused", snapshots_ahead_are_refused),
    ("closing_drops_the_snapshot", closing_drops_the_snapshot),
    ("open_streams_come_in_order_with_what_follows_their_snapshot", open_streams_are_merged),
    ("a_visitor_may_stop_and_may_read", a_visitor_may_stop_and_may_read),
    ("long_streams_and_gaps_are_scanned_right", long_streams_and_gaps),
    ("empty_bytes_and_extreme_ids_are_kept", empty_bytes_and_extreme_ids),
    ("an_empty_batch_is_fine", an_empty_batch_is_fine),
    ("what_is_too_large_is_refused_by_name", too_large_is_refused),
    ("blobs_are_found_by_their_content", blobs_are_found_by_content),
];

/// A store that may be closed and opened again between any two steps of a case.
struct Subject<'a> {
    open: Box<dyn Fn() -> Box<dyn EventStore> + 'a>,
    store: Option<Box<dyn EventStore>>,
    reopen: bool,
}

impl<'a> Subject<'a> {
    fn new(reopen: bool, open: impl Fn() -> Box<dyn EventStore> + 'a) -> Self {
        Self { store: Some(open()), open: Box::new(open), reopen }
    }

    fn store(&self) -> &dyn EventStore {
        self.store.as_deref().unwrap()
    }

    fn commit(&mut self, batch: Batch) -> Result<(), Error> {
        let outcome = self.store().commit(batch);
        if self.reopen {
            self.store = None;
            self.store = Some((self.open)());
        }
        outcome
    }

    fn read(&self, stream: StreamId, from: u64) -> String {
        let records = self.store().read(stream, Version(from), usize::MAX).unwrap();
        records.iter().map(|record| text(record)).collect::<Vec<_>>().join(" ")
    }

    /// Open streams as `id[@version:snapshot]=records since`, closed ones as `id:summary`.
    fn streams(&self) -> String {
        let name = |stream: StreamId| format!("{:x}", stream.0 >> 100);
        let mut all = Vec::new();
        let mut visit = |open: legwork_store::OpenStream| {
            let cached = open.snapshot.as_ref();
            let cached = cached.map(|it| format!("@{}:{}", it.version, text(&it.bytes)));
            let since: Vec<_> = open.records.iter().map(|record| text(record)).collect();
            let cached = cached.unwrap_or_default();
            all.push(format!("{}{cached}={}", name(open.stream), since.join(",")));
            ControlFlow::Continue(())
        };
        self.store().open_streams(None, &mut visit).unwrap();
        let closed = self.store().closed_streams(None, 100).unwrap();
        all.extend(closed.iter().map(|it| format!("{}:{}", name(it.stream), text(&it.summary))));
        all.join(" ")
    }
}

fn records_are_read_back(subject: &mut Subject) {
    subject.commit(batch([append(A, 0, "a0")])).unwrap();
    subject.commit(batch([append(A, 1, "a1"), append(B, 0, "b0")])).unwrap();
    subject.commit(batch([append(A, 2, "a2")])).unwrap();
    assert_eq!(subject.read(A, 0), "a0 a1 a2");
    assert_eq!(subject.read(A, 1), "a1 a2");
    assert_eq!(subject.read(A, 3), "");
    assert_eq!(subject.read(A, u64::MAX), "");
    assert_eq!(subject.read(B, 0), "b0");
}

fn records_are_read_in_pages(subject: &mut Subject) {
    let appends: Vec<_> = (0..5).map(|at| append(A, at, &format!("a{at}"))).collect();
    subject.commit(batch(appends)).unwrap();
    subject.commit(batch([append(B, 0, "b0")])).unwrap();
    let page = |from, limit| {
        let records = subject.store().read(A, Version(from), limit).unwrap();
        records.iter().map(|record| text(record)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(page(0, 2), "a0 a1");
    assert_eq!(page(2, 2), "a2 a3");
    assert_eq!(page(4, 2), "a4", "and not on to the next stream");
    assert_eq!(page(5, 2), "");
    assert_eq!(page(0, 0), "");
    assert_eq!(page(1, usize::MAX), "a1 a2 a3 a4");
}

fn an_unknown_stream_is_empty(subject: &mut Subject) {
    subject.commit(batch([append(B, 0, "b0")])).unwrap();
    assert_eq!(subject.read(A, 0), "");
    assert_eq!(subject.store().snapshot(A).unwrap(), None);
    assert_eq!(subject.streams(), "b=b0");
}

fn a_conflict_is_named(subject: &mut Subject) {
    subject.commit(batch([append(A, 0, "a0"), append(A, 1, "a1")])).unwrap();
    for (stream, expected, found) in [(A, 0, 2), (A, 1, 2), (A, 3, 2), (B, 1, 0), (A, u64::MAX, 2)]
    {
        let refused = subject.commit(batch([append(stream, expected, "x")])).unwrap_err();
        let Error::Conflict { stream: named, expected: told, found: there } = refused else {
            panic!("{refused}")
        };
        assert_eq!((named, told, there), (stream, Version(expected), Version(found)));
    }
    let refused = subject.commit(batch([append(A, 1, "x")])).unwrap_err().to_string();
    assert!(refused.starts_with("version conflict on stream inst_"), "{refused}");
    assert!(refused.contains("expected 1, found 2; read the stream again"), "{refused}");
    let site = subject.commit(batch([append(StreamId::SITE, 4, "x")])).unwrap_err().to_string();
    assert!(site.contains("the site's stream: expected 4, found 0"), "{site}");
    assert_eq!(subject.streams(), "a=a0,a1");
}

fn a_refused_batch_changes_nothing(subject: &mut Subject) {
    subject.commit(batch([append(A, 0, "a0"), append(B, 0, "b0")])).unwrap();
    let good = [append(A, 1, "a1"), close(B, 1, "b1", "sum"), append(C, 0, "c0")];
    let refused = subject.commit(batch([&good[..], &[append(D, 5, "d5")]].concat()));
    assert!(matches!(refused, Err(Error::Conflict { stream: D, .. })));
    let ahead = Batch { appends: good.to_vec(), snapshots: vec![snapshot(A, 9, "s")] };
    assert!(matches!(subject.commit(ahead), Err(Error::Snapshot { stream: A, .. })));
    assert_eq!(subject.streams(), "a=a0 b=b0");
    subject.commit(batch(good)).unwrap();
    assert_eq!(subject.streams(), "a=a0,a1 c=c0 b:sum");
}

fn appends_in_a_batch_count_up(subject: &mut Subject) {
    let refused = subject.commit(batch([append(A, 0, "x"), append(A, 0, "y")])).unwrap_err();
    assert!(matches!(refused, Error::Conflict { found: Version(1), .. }), "{refused}");
    let appends = [append(A, 0, "0"), append(B, 0, "0"), append(A, 1, "1"), append(A, 2, "2")];
    let counted = Batch { appends: appends.to_vec(), snapshots: vec![snapshot(A, 2, "s")] };
    subject.commit(counted).unwrap();
    assert_eq!(subject.streams(), "a@2:s=2 b=0");
    assert_eq!(subject.read(A, 0), "0 1 2");
}

fn a_closed_stream_refuses_more(subject: &mut Subject) {
    subject.commit(batch([append(A, 0, "a0")])).unwrap();
    subject.commit(batch([close(A, 1, "a1", "sum")])).unwrap();
    for expected in [0, 1, 2] {
        let refused = subject.commit(batch([append(A, expected, "x")])).unwrap_err();
        assert!(matches!(refused, Error::Closed { stream: A }), "{refused}");
    }
    let refused = subject.commit(batch([close(B, 0, "x", "s"), append(B, 1, "y")])).unwrap_err();
    assert!(matches!(refused, Error::Closed { stream: B }), "{refused}");
    assert_eq!(subject.read(A, 0), "a0 a1");
    assert_eq!(subject.streams(), "a:sum");
}

fn closed_streams_are_paged(subject: &mut Subject) {
    let order = [3, 1, 7, 5, 2, 6];
    for id in order {
        let stream = StreamId(id << 100);
        subject.commit(batch([close(stream, 0, "r", &format!("s{id}"))])).unwrap();
    }
    subject.commit(batch([append(StreamId(4 << 100), 0, "open")])).unwrap();
    let page = |before: Option<u128>, limit| {
        let before = before.map(|id| StreamId(id << 100));
        let page = subject.store().closed_streams(before, limit).unwrap();
        page.iter().map(|it| text(&it.summary)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(page(None, 4), "s7 s6 s5 s3");
    assert_eq!(page(Some(3), 4), "s2 s1");
    assert_eq!(page(Some(4), 1), "s3");
    assert_eq!(page(Some(1), 4), "");
    assert_eq!(page(None, 0), "");
    assert_eq!(page(None, 100), "s7 s6 s5 s3 s2 s1");
}

fn a_stream_can_begin_and_end_at_once(subject: &mut Subject) {
    let whole = [append(A, 0, "a0"), append(A, 1, "a1"), close(A, 2, "a2", "sum")];
    subject.commit(batch(whole)).unwrap();
    assert_eq!(subject.streams(), "a:sum");
    assert_eq!(subject.read(A, 0), "a0 a1 a2");
}

fn a_snapshot_replaces_the_one_before(subject: &mut Subject) {
    subject.commit(batch([append(A, 0, "0"), append(A, 1, "1"), append(A, 2, "2")])).unwrap();
    assert_eq!(subject.store().snapshot(A).unwrap(), None);
    for (version, bytes, streams) in
        [(1, "x", "a@1:x=1,2"), (3, "y", "a@3:y="), (3, "w", "a@3:w="), (2, "z", "a@2:z=2")]
    {
        subject.commit(snapshots([snapshot(A, version, bytes)])).unwrap();
        assert_eq!(subject.store().snapshot(A).unwrap(), Some(snapshot(A, version, bytes)));
        assert_eq!(subject.streams(), streams);
    }
    subject.commit(snapshots([snapshot(A, 1, "p"), snapshot(A, 2, "q")])).unwrap();
    assert_eq!(subject.streams(), "a@2:q=2");
    subject.commit(batch([append(A, 3, "3")])).unwrap();
    assert_eq!(subject.streams(), "a@2:q=2,3");
    assert_eq!(subject.read(A, 0), "0 1 2 3");
}

fn snapshots_ahead_are_refused(subject: &mut Subject) {
    subject.commit(batch([append(A, 0, "0")])).unwrap();
    for (stream, version) in [(A, 2), (A, 0), (B, 0), (B, 1), (A, u64::MAX)] {
        let refused = subject.commit(snapshots([snapshot(stream, version, "s")])).unwrap_err();
        assert!(matches!(refused, Error::Snapshot { .. }), "{refused}");
    }
    assert_eq!(subject.streams(), "a=0");
}

fn closing_drops_the_snapshot(subject: &mut Subject) {
    let begun = Batch { appends: vec![append(A, 0, "0")], snapshots: vec![snapshot(A, 1, "s")] };
    subject.commit(begun).unwrap();
    let ended =
        Batch { appends: vec![close(A, 1, "1", "sum")], snapshots: vec![snapshot(A, 2, "t")] };
    subject.commit(ended).unwrap();
    assert_eq!(subject.store().snapshot(A).unwrap(), None);
    subject.commit(snapshots([snapshot(A, 2, "u")])).unwrap();
    assert_eq!(subject.store().snapshot(A).unwrap(), None);
    assert_eq!(subject.streams(), "a:sum");
}

fn open_streams_are_merged(subject: &mut Subject) {
    subject.commit(batch([append(D, 0, "d0"), append(B, 0, "b0"), append(B, 1, "b1")])).unwrap();
    subject.commit(batch([close(C, 0, "c0", "sc"), append(A, 0, "a0")])).unwrap();
    subject.commit(snapshots([snapshot(B, 1, "sb"), snapshot(D, 1, "sd")])).unwrap();
    subject.commit(batch([append(B, 2, "b2")])).unwrap();
    assert_eq!(subject.streams(), "a=a0 b@1:sb=b1,b2 d@1:sd= c:sc");
    let mut seen = Vec::new();
    let mut visit = |open: legwork_store::OpenStream| {
        seen.push(open.stream);
        ControlFlow::Continue(())
    };
    subject.store().open_streams(Some(A), &mut visit).unwrap();
    assert_eq!(seen, [B, D]);
}

fn a_visitor_may_stop_and_may_read(subject: &mut Subject) {
    subject.commit(batch([append(A, 0, "a0"), append(B, 0, "b0"), append(C, 0, "c0")])).unwrap();
    let seen = Cell::new(0);
    let store = subject.store();
    let mut visit = |open: legwork_store::OpenStream| {
        seen.set(seen.get() + 1);
        assert_eq!(open.version(), Version(1));
        assert_eq!(store.read(open.stream, Version(0), usize::MAX).unwrap(), open.records);
        if open.stream == B { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    store.open_streams(None, &mut visit).unwrap();
    assert_eq!(seen.get(), 2);
}

fn long_streams_and_gaps(subject: &mut Subject) {
    let id = |place: u128| StreamId(place << 100);
    let mut appends = Vec::new();
    for place in 0..60_u64 {
        for version in 0..=place {
            let ends = place % 4 != 0 && version == place;
            let close = ends.then(Vec::new);
            appends.push(Append { close, ..append(id(place.into()), version, "r") });
        }
    }
    subject.commit(batch(appends)).unwrap();
    let cached = (0..60).step_by(8).skip(1).map(|place| snapshot(id(place.into()), place / 2, "s"));
    subject.commit(snapshots(cached.collect::<Vec<_>>())).unwrap();
    let content = content(subject.store(), &[]).unwrap();
    let open: Vec<_> = content.open.iter().map(|(stream, ..)| stream.0 >> 100).collect();
    assert_eq!(open, (0..60).step_by(4).collect::<Vec<_>>());
    for (stream, _, records) in &content.open {
        assert_eq!(records.len() as u128, (stream.0 >> 100) + 1);
    }
    assert_eq!(content.closed.len(), 45);
}

fn empty_bytes_and_extreme_ids(subject: &mut Subject) {
    let (least, greatest) = (StreamId(0), StreamId(u128::MAX));
    let appends = [append(least, 0, ""), append(greatest, 0, ""), close(A, 0, "", "")];
    subject.commit(batch(appends)).unwrap();
    subject.commit(snapshots([snapshot(greatest, 1, "")])).unwrap();
    let content = content(subject.store(), &[]).unwrap();
    let cached = Some(Snapshot { stream: greatest, version: Version(1), bytes: Vec::new() });
    assert_eq!(content.open, [(least, None, vec![vec![]]), (greatest, cached, vec![vec![]])]);
    assert_eq!(content.closed, [(A, vec![], vec![vec![]])]);
}

fn an_empty_batch_is_fine(subject: &mut Subject) {
    subject.commit(Batch::default()).unwrap();
    assert_eq!(subject.streams(), "");
}

fn too_large_is_refused(subject: &mut Subject) {
    let long = |bytes| Append { record: vec![0; bytes], ..append(A, 0, "") };
    let summary = Append { close: Some(vec![0; SUMMARY_BYTES_MAX + 1]), ..append(A, 0, "") };
    let many = (0..9).map(|place| Append { stream: StreamId(place), ..long(RECORD_BYTES_MAX) });
    let cases = [
        (batch([long(RECORD_BYTES_MAX + 1)]), "record of 16777217 exceeds the limit of 16777216"),
        (batch([summary]), "summary of 65537 exceeds the limit of 65536"),
        (batch(many.collect::<Vec<_>>()), "batch of 150994944 exceeds the limit of 134217728"),
        (
            batch(vec![append(A, 0, ""); 65_537]),
            "number of appends of a batch of 65537 exceeds the limit of 65536",
        ),
    ];
    for (batch, message) in cases {
        let said = subject.commit(batch).unwrap_err().to_string();
        assert_eq!(said.split_once("; ").map(|(what, _)| what), Some(message));
    }
    assert_eq!(subject.streams(), "");
}

fn blobs_are_found_by_content(subject: &mut Subject) {
    let store = subject.store();
    for content in [&b"hello"[..], b"", &[7; 100_000]] {
        let id = store.put_blob(content).unwrap();
        assert_eq!(id, BlobId::of(content));
        assert_eq!(store.put_blob(content).unwrap(), id);
        assert_eq!(store.blob(id).unwrap().as_deref(), Some(content));
        assert_eq!(store.blob_size(id).unwrap(), Some(content.len() as u64));
    }
    assert_eq!(store.blob(BlobId([0; 32])).unwrap(), None);
    assert_eq!(store.blob_size(BlobId([0; 32])).unwrap(), None);
    let hello = BlobId::of(b"hello").to_string();
    assert_eq!(hello, "ea8f163db38682925e4491c5e58d4bb3506ef8c14eb78a86e908c5624a67200f");
    subject.commit(batch([append(A, 0, "a0")])).unwrap();
    assert_eq!(subject.store().blob(BlobId::of(b"hello")).unwrap().as_deref(), Some(&b"hello"[..]));
}
