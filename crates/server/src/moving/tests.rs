//! A store is copied while it is written to, with failures at every point.

use std::sync::Arc;
use std::time::{Duration, Instant};

use legwork_model::id::StreamId;
use legwork_store::memory::Memory;
use legwork_store::{Append, Batch, BlobId, EventStore, Listing, Snapshot, Version};
use tokio::sync::watch;

use super::pull::{NotCopied, Pull};
use super::*;
use crate::backend::{Backend, Slot};

/// The old host, which can be made to die, and works on while it is asked.
struct Old {
    store: Arc<Memory>,
    source: Source,
    written: Arc<Written>,
    /// How many requests are answered before the link breaks.
    patience: usize,
    /// How many writes happen between two requests.
    busy: usize,
    /// Whether answers with records are damaged.
    damages: bool,
    sealed: Option<u32>,
}

impl Old {
    fn new(store: &Arc<Memory>) -> Self {
        let slot = Arc::new(Slot::default());
        slot.set(Some(store.clone()));
        let written = Arc::new(Written::default());
        let source = Source::new(slot, written.clone());
        let (store, patience) = (store.clone(), usize::MAX);
        Self { store, source, written, patience, busy: 0, damages: false, sealed: None }
    }

    fn write(&self, stream: u128, record: &str, close: Option<&str>) {
        write(&self.store, &self.written, stream, record, close);
    }
}

fn write(store: &Memory, written: &Written, stream: u128, record: &str, close: Option<&str>) {
    let stream = StreamId(stream);
    let expected = Version(store.read(stream, Version(0), usize::MAX).unwrap().len() as u64);
    let (record, close) = (record.into(), close.map(Into::into));
    let batch =
        Batch { appends: vec![Append { stream, expected, record, close }], ..Batch::default() };
    let streams = Written::streams_of(&batch);
    store.commit(batch).unwrap();
    written.note(streams);
}

impl Origin for &mut Old {
    async fn ask(&mut self, request: StoreRequest) -> Result<StoreReply, Unanswered> {
        let Some(patience) = self.patience.checked_sub(1) else {
            return Err(Unanswered("broken".to_owned()));
        };
        self.patience = patience;
        if self.sealed.is_none()
            && let Some(busy) = self.busy.checked_sub(1)
        {
            self.busy = busy;
            self.write(0, "catalog", None);
            self.write(1_000 + busy as u128 % 7, "more", None);
        }
        if let StoreRequest::Seal { change } = request {
            self.sealed = Some(change);
            return Ok(StoreReply::Sealed);
        }
        let mut reply = self.source.answer(request, Some(5));
        if let StoreReply::Records { hash, .. } = &mut reply
            && self.damages
        {
            *hash = [0; 32];
        }
        Ok(reply)
    }
}

/// Streams open and closed, of one record and of many, and blobs.
fn filled() -> Arc<Memory> {
    let (store, written) = (Arc::new(Memory::default()), Written::default());
    for number in 0..600 {
        write(&store, &written, number, "first", None);
        if number % 3 == 0 {
            write(&store, &written, number, "second", (number % 2 == 1).then_some("over"));
        }
    }
    let long = (1..10_000).map(|number| Append {
        stream: StreamId(7),
        expected: Version(number),
        record: b"long".repeat(100),
        close: None,
    });
    store.commit(Batch { appends: long.collect(), ..Batch::default() }).unwrap();
    let snapshot = Snapshot { stream: StreamId(7), version: Version(9_000), bytes: b"s".to_vec() };
    store.commit(Batch { snapshots: vec![snapshot], ..Batch::default() }).unwrap();
    for number in 0..5_u8 {
        store.put_blob(&vec![number; 700_000 * usize::from(number)]).unwrap();
    }
    store
}

fn same(one: &Memory, other: &Memory) {
    let all = |store: &Memory| {
        let streams = store.streams(None, usize::MAX).unwrap();
        let records = |id| store.read(id, Version(0), usize::MAX).unwrap();
        let whole = streams.into_iter().map(|listed| (records(listed.stream), listed));
        (whole.collect::<Vec<_>>(), store.blobs(None, usize::MAX).unwrap())
    };
    assert!(all(one) == all(other), "the copy is not what was copied");
    let snapshot = |store: &Memory| store.snapshot(StreamId(7)).unwrap();
    assert_eq!(snapshot(one), snapshot(other));
}

async fn copy(old: &mut Old, store: &Arc<Memory>) -> Result<Hash, NotCopied> {
    let (progress, _) = watch::channel(Progress::default());
    let backend: Arc<dyn Backend> = store.clone();
    let mut pull = Pull::new(old, backend, progress);
    pull.bulk().await?;
    let change = pull.frozen_by().await?.unwrap();
    pull.finish(change).await
}

#[tokio::test]
async fn a_store_is_copied_while_it_is_written_to() {
    let store = filled();
    let copied = Arc::new(Memory::default());
    let mut old = Old { busy: 40, ..Old::new(&store) };
    assert_eq!(old.written.is_close(), None, "nobody copies yet");
    copy(&mut old, &copied).await.unwrap();
    assert_eq!((old.sealed, old.written.is_close()), (Some(5), Some(true)));
    same(&store, &copied);
}

#[tokio::test]
async fn a_copy_that_breaks_off_anywhere_is_gone_on_with() {
    let store = filled();
    let copied = Arc::new(Memory::default());
    let (mut tries, mut asked) = (0, 3);
    loop {
        tries += 1;
        // Every time it is another process that answers, with nothing tracked.
        let mut old = Old { patience: asked, busy: 2, ..Old::new(&store) };
        match copy(&mut old, &copied).await {
            Ok(_) => break,
            Err(NotCopied::Unanswered(_)) => asked += 2,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(tries > 5, "{tries}");
    same(&store, &copied);
}

#[tokio::test]
async fn a_large_file_is_read_once_however_many_pieces_it_comes_in() {
    let store = Arc::new(Memory::default());
    let content: Vec<u8> = (0..2_500_000_u32).map(|place| place as u8).collect();
    let blob = wire::Blob::from(store.put_blob(&content).unwrap());
    let (slot, written) = (Arc::new(Slot::default()), Arc::new(Written::default()));
    let source = Source::new(slot.clone(), written);
    slot.set(Some(store));
    let piece = |from: usize| {
        let asked = StoreRequest::Content { blob, from: from as u64 };
        let StoreReply::Content(piece) = source.answer(asked, None) else { panic!("no content") };
        Vec::from(piece)
    };
    let mut come = piece(0);
    assert!(!come.is_empty() && come.len() < content.len());
    // Nothing can be read from now on.
    slot.set(Some(Arc::new(Memory::default())));
    while come.len() < content.len() {
        let next = piece(come.len());
        assert!(!next.is_empty(), "it was to be read again");
        come.extend(next);
    }
    assert!(come == content);
    // It is not kept any longer than that.
    assert_eq!(piece(0), b"");
}

#[tokio::test]
async fn what_comes_damaged_is_not_stored() {
    let store = filled();
    let copied = Arc::new(Memory::default());
    let mut old = Old { damages: true, ..Old::new(&store) };
    assert!(matches!(copy(&mut old, &copied).await, Err(NotCopied::Damaged)));
    assert!(copied.streams(None, 1).unwrap().is_empty());
}

#[tokio::test]
async fn a_copy_of_something_else_is_noticed() {
    let store = filled();
    // More than the original.
    let other = Arc::new(Memory::default());
    for _ in 0..3 {
        write(&other, &Written::default(), 3, "mine", None);
    }
    let outcome = copy(&mut Old::new(&store), &other).await;
    assert!(matches!(outcome, Err(NotCopied::Differs(_))), "{outcome:?}");
    // As much as the original, but different.
    let other = Arc::new(Memory::default());
    write(&other, &Written::default(), 1, "mine", None);
    let outcome = copy(&mut Old::new(&store), &other).await;
    assert!(matches!(outcome, Err(NotCopied::Differs(_))), "{outcome:?}");
}

#[tokio::test]
async fn a_copy_of_before_is_brought_up_to_date() {
    let store = filled();
    let copied = Arc::new(Memory::default());
    copy(&mut Old::new(&store), &copied).await.unwrap();
    let written = Written::default();
    write(&store, &written, 1, "later", Some("over"));
    write(&store, &written, 5_000, "new", None);
    let blob = store.put_blob(b"another").unwrap();
    let mut old = Old::new(&store);
    copy(&mut old, &copied).await.unwrap();
    assert_eq!(copied.blob(blob).unwrap().as_deref(), Some(&b"another"[..]));
    assert_eq!(blob, BlobId::of(b"another"));
    same(&store, &copied);
}

#[test]
fn how_long_a_copy_takes_is_told_by_its_pace() {
    let begun = Instant::now();
    let now = begun + Duration::from_secs(20);
    let some = Progress { begun: Some(begun), bytes: 1_000, ..Progress::default() };
    assert_eq!(some.left(now), None, "nothing has come yet");
    let half = Progress { bytes_copied: 400, ..some.clone() };
    assert_eq!(half.left(now), Some(Duration::from_secs(31)));
    let more = Progress { bytes_copied: 2_000, ..some.clone() };
    assert_eq!(
        more.left(now),
        Some(Duration::from_secs(1)),
        "what it occupies is not what is sent"
    );
    let close = Progress { is_close: true, ..some };
    assert_eq!(close.left(now), Some(Duration::from_secs(1)));
}
