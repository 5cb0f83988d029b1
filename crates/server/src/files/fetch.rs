//! Fetches contents of files from other servers.
//!
//! Invariant: a reported content is stored durably and matches its hash. A content is fetched once
//! at a time, from one source after the other; received chunks are kept for the next source. A
//! fetch may fail: it is then requested again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use legwork_model::id::{InstanceId, ServerId};
use legwork_site::FileWanted;
use legwork_store::{BLOB_BYTES_MAX, BlobId};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::chunks::{Assembly, Hash, Have, Lie};
use super::serve::read;
use super::spool::Spool;
use super::wire::{FileReply, FileRequest};
use crate::backend::Slot;

/// How many contents are fetched concurrently, and how many wait.
const BRINGS_MAX: usize = 4;
const WAITING_MAX: usize = 65_536;
/// Portions of one content requested concurrently.
const PORTIONS_MAX: usize = 4;
/// How long one answer may take: enough for a portion over a slow link; a broken link is noticed
/// before.
const PATIENCE: Duration = Duration::from_secs(300);
/// The bytes of similar contents that are searched for chunks.
const SIMILAR_BYTES_MAX: u64 = 64 << 20;
/// The bytes kept of incomplete contents.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// The connection to other servers.
pub(crate) trait Peers: Send + Sync + 'static {
    fn ask(
        &self,
        to: ServerId,
        request: FileRequest,
    ) -> impl Future<Output = Result<FileReply, Unreachable>> + Send;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server cannot be reached")]
pub(crate) struct Unreachable;

/// Why a content was not fetched from a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotBrought {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error("the server does not have it")]
    NotThere,
    #[error("the server contradicts itself: {0}")]
    Lie(#[from] Lie),
    #[error("the file has {0} bytes, at most {BLOB_BYTES_MAX} are stored")]
    TooLarge(u64),
    #[error("it could not be stored: {0}")]
    NotStored(String),
    #[error("no other server is known to have it")]
    NoSource,
}

pub(crate) struct Fetcher<P> {
    peers: Arc<P>,
    slot: Arc<Slot>,
    places: Semaphore,
    under_way: Mutex<BTreeMap<Hash, Vec<InstanceId>>>,
    kept: Mutex<Kept>,
    spool: Arc<Spool>,
    runtime: Handle,
    /// Called when a wanted content is here.
    tell: Box<dyn Fn(InstanceId, Hash) + Send + Sync>,
}

impl<P: Peers> Fetcher<P> {
    /// Created in a runtime; used from anywhere.
    pub(crate) fn new(
        peers: Arc<P>,
        slot: Arc<Slot>,
        spool: Spool,
        tell: Box<dyn Fn(InstanceId, Hash) + Send + Sync>,
    ) -> Self {
        let spool = Arc::new(spool);
        let places = Semaphore::new(BRINGS_MAX);
        let (under_way, kept) = (Mutex::default(), Mutex::default());
        Self { peers, slot, places, under_way, kept, spool, runtime: Handle::current(), tell }
    }

    /// Fetches a content in the background, unless that is in progress.
    pub(crate) fn want(self: &Arc<Self>, instance: InstanceId, file: FileWanted) {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = under_way.len();
        if let Some(instances) = under_way.get_mut(&file.blob) {
            if !instances.contains(&instance) {
                instances.push(instance);
            }
            return;
        }
        // Beyond the limit it is requested again later.
        if waiting < WAITING_MAX {
            under_way.insert(file.blob, vec![instance]);
            let this = self.clone();
            self.runtime.spawn(async move { this.fetch(&file).await });
        }
    }

    async fn fetch(&self, file: &FileWanted) {
        let brought = self.bring(file).await;
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let instances = under_way.remove(&file.blob).unwrap_or_default();
        drop(under_way);
        match brought {
            Ok(()) => instances.into_iter().for_each(|instance| (self.tell)(instance, file.blob)),
            Err(error) => {
                let blob = BlobId(file.blob);
                tracing::warn!(%blob, reason = %error, "cannot fetch a file; it is requested again");
            }
        }
    }

    /// Fetches a content from the first source that has it, and stores it.
    pub(crate) async fn bring(&self, file: &FileWanted) -> Result<(), NotBrought> {
        if file.size > BLOB_BYTES_MAX as u64 {
            return Err(NotBrought::TooLarge(file.size));
        }
        self.bring_sized(file, Some(file.size)).await
    }

    /// Fetches a content by its name alone.
    pub(crate) async fn find(&self, blob: Hash, sources: Vec<ServerId>) -> Result<(), NotBrought> {
        self.bring_sized(&FileWanted { blob, size: 0, similar: Vec::new(), sources }, None).await
    }

    async fn bring_sized(&self, file: &FileWanted, size: Option<u64>) -> Result<(), NotBrought> {
        let Ok(_place) = self.places.acquire().await else { return Err(NotBrought::NoSource) };
        let blob = file.blob;
        let mut have = self.kept().take(file.blob);
        if have.is_empty() {
            // From an earlier process.
            have = self.spooled(move |spool| spool.read(blob)).await.unwrap_or_default();
        }
        let mut last = NotBrought::NoSource;
        for source in &file.sources {
            let (brought, come) = self.bring_from(*source, file, size, have).await;
            match brought {
                Ok(content) => {
                    self.store(blob, content).await?;
                    self.spooled(move |spool| spool.remove(blob)).await;
                    return Ok(());
                }
                Err(error) => last = error,
            }
            have = come;
        }
        self.kept().put(blob, have);
        Err(last)
    }

    /// The content, or the chunks received so far.
    async fn bring_from(
        &self,
        source: ServerId,
        file: &FileWanted,
        size: Option<u64>,
        have: Have,
    ) -> (Result<Vec<u8>, NotBrought>, Have) {
        let blob = file.blob;
        let chunks = match self.ask(source, FileRequest::List { blob }).await {
            Ok(FileReply::List(chunks)) => chunks,
            Ok(FileReply::NotHere) => return (Err(NotBrought::NotThere), have),
            Ok(FileReply::Chunks(_)) => return (Err(Lie::Answer.into()), have),
            Err(unreachable) => return (Err(unreachable.into()), have),
        };
        let assembly = match Assembly::new(chunks, size, have) {
            Ok(assembly) => assembly,
            Err((lie, have)) => return (Err(lie.into()), have),
        };
        let mut assembly = match self.with_similar(assembly, file).await {
            Ok(assembly) => assembly,
            Err(error) => return (Err(error), Have::new()),
        };
        let brought = self.portions_from(source, blob, &mut assembly).await;
        let brought = brought.and_then(|()| Ok(assembly.finish(blob)?));
        (brought, assembly.into_have())
    }

    /// Takes unchanged chunks from other local versions.
    async fn with_similar(
        &self,
        mut assembly: Assembly,
        file: &FileWanted,
    ) -> Result<Assembly, NotBrought> {
        let (slot, similar) = (self.slot.clone(), file.similar.clone());
        let look = move || {
            let Some(store) = slot.borrow() else { return assembly };
            let mut room = SIMILAR_BYTES_MAX;
            for blob in similar {
                let size = store.blob_size(BlobId(blob)).ok().flatten();
                let Some(left) = size.and_then(|size| room.checked_sub(size)) else { continue };
                if assembly.portions().is_empty() {
                    break;
                }
                room = left;
                if let Some(content) = read(&*store, blob) {
                    assembly.take_from(&Bytes::from(content));
                }
            }
            assembly
        };
        tokio::task::spawn_blocking(look)
            .await
            .map_err(|error| NotBrought::NotStored(error.to_string()))
    }

    /// Some portions are requested concurrently, so that the latency of a far server counts less.
    async fn portions_from(
        &self,
        source: ServerId,
        blob: Hash,
        assembly: &mut Assembly,
    ) -> Result<(), NotBrought> {
        let mut portions = VecDeque::from(assembly.portions());
        let mut asked = JoinSet::new();
        loop {
            while asked.len() < PORTIONS_MAX
                && let Some(portion) = portions.pop_front()
            {
                let request = FileRequest::Chunks { blob, places: portion.clone() };
                let peers = self.peers.clone();
                asked.spawn(async move { (portion, patiently(&*peers, source, request).await) });
            }
            let Some(answered) = asked.join_next().await else { return Ok(()) };
            let (portion, reply) = answered.map_err(|_| Unreachable)?;
            match reply? {
                FileReply::Chunks(packed) => {
                    assembly.put(&portion, packed)?;
                    let come: Vec<(Hash, Bytes)> = assembly.chunks_at(&portion).collect();
                    let add =
                        move |spool: &Spool| spool.add(blob, come.iter().map(|(h, b)| (h, b)));
                    self.spooled(add).await;
                }
                FileReply::NotHere => return Err(NotBrought::NotThere),
                FileReply::List(_) => return Err(Lie::Answer.into()),
            }
        }
    }

    /// Runs reads and writes where they block no other task.
    async fn spooled<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Spool) -> T + Send + 'static,
    ) -> Option<T> {
        let spool = self.spool.clone();
        tokio::task::spawn_blocking(move || act(&spool)).await.ok()
    }

    async fn ask(&self, to: ServerId, request: FileRequest) -> Result<FileReply, Unreachable> {
        patiently(&*self.peers, to, request).await
    }

    async fn store(&self, blob: Hash, content: Vec<u8>) -> Result<(), NotBrought> {
        let not_stored = |reason: String| NotBrought::NotStored(reason);
        let Some(store) = self.slot.borrow() else {
            return Err(not_stored("the store is being opened again".to_owned()));
        };
        let stored = tokio::task::spawn_blocking(move || store.put_blob(&content)).await;
        let stored = stored.map_err(|error| not_stored(error.to_string()))?;
        let stored = stored.map_err(|error| not_stored(error.to_string()))?;
        if stored == BlobId(blob) { Ok(()) } else { Err(Lie::Whole.into()) }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn patiently(
    peers: &impl Peers,
    to: ServerId,
    request: FileRequest,
) -> Result<FileReply, Unreachable> {
    tokio::time::timeout(PATIENCE, peers.ask(to, request)).await.unwrap_or(Err(Unreachable))
}

/// Received chunks of incomplete contents, oldest first.
#[derive(Default)]
struct Kept(VecDeque<(Hash, Have)>);

impl Kept {
    fn take(&mut self, blob: Hash) -> Have {
        let place = self.0.iter().position(|(kept, _)| *kept == blob);
        place.and_then(|place| self.0.remove(place)).map(|(_, have)| have).unwrap_or_default()
    }

    fn put(&mut self, blob: Hash, have: Have) {
        if have.is_empty() {
            return;
        }
        self.take(blob);
        self.0.push_back((blob, have));
        let bytes = |kept: &VecDeque<(Hash, Have)>| -> usize {
            kept.iter().flat_map(|(_, have)| have.values()).map(Bytes::len).sum()
        };
        while bytes(&self.0) > KEPT_BYTES_MAX {
            self.0.pop_front();
        }
    }
}
