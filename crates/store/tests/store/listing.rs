//! The listing of a store, for copying it.

use legwork_model::id::StreamId;
use legwork_store::embedded::Embedded;
use legwork_store::memory::Memory;
use legwork_store::{EventStore, Listed, Listing, Version};

use crate::support::{A, B, C, D, append, batch, close, scratch, snapshot, snapshots};

trait Store: EventStore + Listing {}
impl<S: EventStore + Listing> Store for S {}

fn fill(store: &dyn Store) {
    store.commit(batch([append(A, 0, "a0"), append(A, 1, "a1"), append(D, 0, "d0")])).unwrap();
    store.commit(batch([append(B, 0, "b0"), close(B, 1, "b1", "over")])).unwrap();
    store.commit(batch([close(C, 0, "c0", "at once")])).unwrap();
    store.commit(snapshots([snapshot(A, 2, "both")])).unwrap();
}

fn check(store: &dyn Store) {
    let listed = |stream, version, summary: Option<&str>| Listed {
        stream,
        version: Version(version),
        summary: summary.map(Into::into),
    };
    let all = [
        listed(A, 2, None),
        listed(B, 2, Some("over")),
        listed(C, 1, Some("at once")),
        listed(D, 1, None),
    ];
    assert_eq!(store.streams(None, 100).unwrap(), all);
    for one in &all {
        assert_eq!(store.stream(one.stream).unwrap().as_ref(), Some(one));
    }
    assert_eq!(store.stream(StreamId(u128::MAX)).unwrap(), None);
    for limit in 1..=4 {
        let (mut pages, mut after) = (Vec::new(), None);
        loop {
            let page = store.streams(after, limit).unwrap();
            let Some(last) = page.last() else { break };
            (after, pages) = (Some(last.stream), [pages, page].concat());
        }
        assert_eq!(pages, all, "{limit} at a time");
    }
    let mut names: Vec<_> = (0..40_u8).map(|n| store.put_blob(&[n]).unwrap()).collect();
    names.sort();
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = store.blobs(after, 7).unwrap();
        let Some(last) = page.last() else { break };
        (after, pages) = (Some(*last), [pages, page].concat());
    }
    assert_eq!(pages, names);
}

#[test]
fn streams_and_blobs_are_listed_once_and_in_order() {
    let memory = Memory::default();
    fill(&memory);
    check(&memory);
    let dir = scratch();
    let embedded = Embedded::open(dir.path()).unwrap();
    fill(&embedded);
    check(&embedded);
    drop(embedded);
    let embedded = Embedded::open(dir.path()).unwrap();
    embedded.compact().unwrap();
    assert_eq!(embedded.streams(Some(A), 2).unwrap().len(), 2);
}
