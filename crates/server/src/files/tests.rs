//! Contents between in-process servers: requested, served, interrupted, falsified.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use legwork_model::id::{InstanceId, ServerId};
use legwork_site::FileWanted;
use legwork_store::memory::Memory;
use legwork_store::{BlobId, EventStore};
use tokio::sync::mpsc;

use super::{Fetcher, FileReply, FileRequest, NotBrought, Offered, Peers, Spool, Unreachable};
use crate::backend::Slot;

/// Servers that answer at once, some of them incorrectly.
#[derive(Default)]
struct Near {
    servers: BTreeMap<ServerId, (Offered, Conduct)>,
    /// Bytes of all answers on the wire.
    bytes: AtomicUsize,
    lists: AtomicUsize,
    asked: Mutex<Vec<ServerId>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Conduct {
    Good,
    /// Gone after so many answers.
    Leaves(usize),
    Lies,
}

impl Peers for Near {
    async fn ask(&self, to: ServerId, request: FileRequest) -> Result<FileReply, Unreachable> {
        tokio::task::yield_now().await;
        let asked = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(to);
            asked.iter().filter(|server| **server == to).count()
        };
        let (offered, conduct) = self.servers.get(&to).ok_or(Unreachable)?;
        if matches!(conduct, Conduct::Leaves(after) if asked > *after) {
            return Err(Unreachable);
        }
        let mut reply = offered.answer(&request);
        if let (Conduct::Lies, FileReply::Chunks(chunks)) = (conduct, &mut reply) {
            chunks.reverse();
            chunks.push(super::chunks::pack(b"nonsense"));
            chunks.remove(0);
        }
        let lists = usize::from(matches!(reply, FileReply::List(_)));
        self.lists.fetch_add(lists, Ordering::Relaxed);
        self.bytes.fetch_add(minicbor::to_vec(&reply).unwrap().len(), Ordering::Relaxed);
        Ok(reply)
    }
}

fn slot() -> (Arc<Slot>, Arc<Memory>) {
    let (slot, store) = (Arc::new(Slot::default()), Arc::new(Memory::default()));
    slot.set(Some(store.clone()));
    (slot, store)
}

/// Servers 1, 2, … that all have these contents, and one without that fetches.
struct Scene {
    fetcher: Arc<Fetcher<Near>>,
    near: Arc<Near>,
    store: Arc<Memory>,
    told: mpsc::UnboundedReceiver<(InstanceId, [u8; 32])>,
}

fn scene(conducts: &[Conduct], contents: &[&[u8]]) -> Scene {
    let mut near = Near::default();
    for (number, conduct) in (1..).zip(conducts) {
        let (slot, store) = slot();
        for content in contents {
            store.put_blob(content).unwrap();
        }
        near.servers.insert(ServerId(number), (Offered::new(slot), *conduct));
    }
    let (near, (slot, store)) = (Arc::new(near), slot());
    let (tell, told) = mpsc::unbounded_channel();
    let tell = Box::new(move |instance, blob| tell.send((instance, blob)).unwrap());
    let fetcher = Arc::new(Fetcher::new(near.clone(), slot, Spool::default(), tell));
    Scene { fetcher, near, store, told }
}

fn wanted(content: &[u8], sources: &[u16], similar: &[&[u8]]) -> FileWanted {
    FileWanted {
        blob: BlobId::of(content).0,
        size: content.len() as u64,
        similar: similar.iter().map(|content| BlobId::of(content).0).collect(),
        sources: sources.iter().map(|server| ServerId(*server)).collect(),
    }
}

fn noise(seed: u64, size: usize) -> Vec<u8> {
    super::chunks::noise(seed, size)
}

#[tokio::test]
async fn a_content_comes_whole_and_is_stored() {
    for size in [0, 1, 1_000, 3_000_000] {
        let content = noise(1, size);
        let s = scene(&[Conduct::Good], &[&content]);
        s.fetcher.bring(&wanted(&content, &[1], &[])).await.unwrap();
        assert_eq!(s.store.blob(BlobId::of(&content)).unwrap(), Some(content));
    }
}

#[tokio::test]
async fn of_five_megabytes_that_changed_a_little_little_comes() {
    let old = noise(1, 5_000_000);
    let mut new = old.clone();
    new.splice(1_000_000..1_000_000, *b"an inserted word");
    let s = scene(&[Conduct::Good], &[&old, &new]);
    s.fetcher.bring(&wanted(&old, &[1], &[])).await.unwrap();
    let first = s.near.bytes.swap(0, Ordering::Relaxed);
    assert!((5_000_000..5_050_000).contains(&first), "{first}");
    s.fetcher.bring(&wanted(&new, &[1], &[&old])).await.unwrap();
    let second = s.near.bytes.load(Ordering::Relaxed);
    assert!(second < 500_000, "{second}");
    assert_eq!(s.store.blob(BlobId::of(&new)).unwrap(), Some(new));
}

#[tokio::test]
async fn when_a_source_goes_away_the_next_gives_the_rest() {
    let content = noise(2, 4_000_000);
    let s = scene(&[Conduct::Leaves(9), Conduct::Good], &[&content]);
    s.fetcher.bring(&wanted(&content, &[1, 2], &[])).await.unwrap();
    assert_eq!(s.near.asked.lock().unwrap().last(), Some(&ServerId(2)));
    let bytes = s.near.bytes.load(Ordering::Relaxed);
    assert!(bytes < 4_100_000, "{bytes} bytes: nothing came twice");
}

#[tokio::test]
async fn what_came_before_all_sources_were_gone_is_kept_for_the_next_attempt() {
    let content = noise(3, 4_000_000);
    let s = scene(&[Conduct::Leaves(9), Conduct::Good], &[&content]);
    let failed = s.fetcher.bring(&wanted(&content, &[1], &[])).await;
    assert_eq!(failed, Err(NotBrought::Unreachable(Unreachable)));
    s.fetcher.bring(&wanted(&content, &[2], &[])).await.unwrap();
    let bytes = s.near.bytes.load(Ordering::Relaxed);
    assert!(bytes < 4_100_000, "{bytes} bytes: nothing came twice");
}

#[tokio::test]
async fn a_transfer_whose_target_dies_goes_on_with_the_chunks_that_it_had() {
    let content = noise(3, 4_000_000);
    let s = scene(&[Conduct::Leaves(9), Conduct::Good], &[&content]);
    let folder = tempfile::tempdir().unwrap();
    let life = || {
        let (slot, store) = slot();
        let spool = Spool::beside(Some(folder.path()));
        (Fetcher::new(s.near.clone(), slot, spool, Box::new(|_, _| {})), store)
    };
    let (before, _) = life();
    let failed = before.bring(&wanted(&content, &[1], &[])).await;
    assert_eq!(failed, Err(NotBrought::Unreachable(Unreachable)));
    drop(before);
    // Truncated in the middle of a chunk, as by a crash.
    let kept = std::fs::read_dir(folder.path().join("transfers")).unwrap().next().unwrap().unwrap();
    let bytes = std::fs::read(kept.path()).unwrap();
    std::fs::write(kept.path(), &bytes[..bytes.len() - 10]).unwrap();
    let (after, store) = life();
    after.bring(&wanted(&content, &[2], &[])).await.unwrap();
    assert_eq!(store.blob(BlobId::of(&content)).unwrap(), Some(content));
    let bytes = s.near.bytes.load(Ordering::Relaxed);
    assert!(bytes < 4_400_000, "{bytes} bytes: but for a portion nothing came twice");
    assert!(!kept.path().exists(), "nothing is kept of what has come");
}

#[tokio::test]
async fn a_source_that_lies_is_found_out_and_the_next_is_asked() {
    let content = noise(4, 1_000_000);
    let s = scene(&[Conduct::Lies, Conduct::Good], &[&content]);
    let alone = s.fetcher.bring(&wanted(&content, &[1], &[])).await;
    assert!(matches!(alone, Err(NotBrought::Lie(_))), "{alone:?}");
    s.fetcher.bring(&wanted(&content, &[1, 2], &[])).await.unwrap();
    assert_eq!(s.store.blob(BlobId::of(&content)).unwrap(), Some(content));
}

#[tokio::test]
async fn who_does_not_have_it_says_so() {
    let content = noise(5, 1_000);
    let s = scene(&[Conduct::Good], &[]);
    let not_there = s.fetcher.bring(&wanted(&content, &[1], &[])).await;
    assert_eq!(not_there, Err(NotBrought::NotThere));
    let nobody = s.fetcher.bring(&wanted(&content, &[], &[])).await;
    assert_eq!(nobody, Err(NotBrought::NoSource));
    let size = FileWanted { size: 1 << 40, ..wanted(&content, &[1], &[]) };
    assert_eq!(s.fetcher.bring(&size).await, Err(NotBrought::TooLarge(1 << 40)));
}

#[tokio::test]
async fn what_two_instances_want_comes_once_and_both_are_told() {
    let content = noise(6, 1_000_000);
    let mut s = scene(&[Conduct::Good], &[&content]);
    for instance in [1, 2, 2] {
        s.fetcher.want(InstanceId(instance), wanted(&content, &[1], &[]));
    }
    let blob = BlobId::of(&content).0;
    assert_eq!(s.told.recv().await, Some((InstanceId(1), blob)));
    assert_eq!(s.told.recv().await, Some((InstanceId(2), blob)));
    assert!(s.told.try_recv().is_err());
    assert_eq!(s.near.lists.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_says_nothing_is_not_waited_for_for_ever() {
    struct Silent;
    impl Peers for Silent {
        async fn ask(&self, _: ServerId, _: FileRequest) -> Result<FileReply, Unreachable> {
            std::future::pending().await
        }
    }
    let fetcher = Fetcher::new(Arc::new(Silent), slot().0, Spool::default(), Box::new(|_, _| {}));
    let silent = fetcher.bring(&wanted(b"x", &[1], &[])).await;
    assert_eq!(silent, Err(NotBrought::Unreachable(Unreachable)));
}
