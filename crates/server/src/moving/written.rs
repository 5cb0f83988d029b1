//! Tracks writes for another process while it copies a server: the streams written to meanwhile, and
//! cached reads.
//!
//! Invariant: a process that has asked for everything up to a mark is told of every stream that was
//! committed to after it, or that this is unknown. Nothing is tracked while no process copies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use legwork_model::id::StreamId;
use legwork_store::{Batch, BlobId};

use super::digest::Sums;
use super::wire::Mark;

/// The most tracked streams; with more, all streams are compared once more. So many fit into an
/// answer.
pub(crate) const STREAMS_MAX: usize = 1 << 19;
/// A process that is almost done asks several times in this time.
const RECENT: Duration = Duration::from_secs(10);
/// A process that has not asked for so long does not copy any more.
const FORGOTTEN: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(crate) struct Written {
    is_copied: AtomicBool,
    state: Mutex<State>,
    /// Computed hashes.
    sums: Mutex<Sums>,
    /// The file being copied.
    content: Mutex<Option<(BlobId, Vec<u8>)>>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the last write of each stream.
    streams: BTreeMap<StreamId, u64>,
    mark: Mark,
    /// The time of the last request.
    asked: Option<Instant>,
    /// Whether the copy is almost complete.
    is_close: bool,
}

impl Written {
    /// Begins to track writes. `life` is a number that was never given before.
    pub(crate) fn begin(&self, life: u64, is_close: bool) -> Mark {
        let mut state = self.lock();
        if !self.is_copied.swap(true, Ordering::AcqRel) {
            let mark = Mark { life, number: 0 };
            *state = State { mark, ..State::default() };
        }
        (state.asked, state.is_close) = (Some(Instant::now()), is_close);
        state.mark
    }

    /// A request of the copying process.
    pub(crate) fn touch(&self) {
        if self.is_copied.load(Ordering::Acquire) {
            self.lock().asked = Some(Instant::now());
        }
    }

    /// Whether the copy is almost complete; `None` without a recent request.
    pub(crate) fn is_close(&self) -> Option<bool> {
        let state = self.lock();
        let is_recent = |asked: Instant| asked.elapsed() < RECENT;
        state.asked.is_some_and(is_recent).then_some(state.is_close)
    }

    /// The streams of a batch, to be recorded after its commit: a copy may begin before.
    pub(crate) fn streams_of(batch: &Batch) -> Vec<StreamId> {
        batch.appends.iter().map(|append| append.stream).collect()
    }

    /// Records committed streams.
    pub(crate) fn note(&self, streams: Vec<StreamId>) {
        self.note_at(streams, Instant::now());
    }

    fn note_at(&self, streams: Vec<StreamId>, now: Instant) {
        if streams.is_empty() || !self.is_copied.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.lock();
        let is_over = |asked| now.saturating_duration_since(asked) > FORGOTTEN;
        if state.asked.is_none_or(is_over) {
            drop(state);
            return self.forget();
        }
        state.mark.number += 1;
        let number = state.mark.number;
        state.streams.extend(streams.into_iter().map(|stream| (stream, number)));
        if state.streams.len() > STREAMS_MAX {
            // A request from an earlier mark compares everything.
            state.streams.clear();
            state.mark.life = state.mark.life.wrapping_add(1);
        }
    }

    /// The streams written to since, and the next mark; `None` if unknown.
    pub(crate) fn since(&self, since: Mark) -> (Option<Vec<StreamId>>, Mark) {
        let mut state = self.lock();
        let mark = state.mark;
        if since.life != mark.life || !self.is_copied.load(Ordering::Acquire) {
            return (None, mark);
        }
        // Only one process copies at a time, and has everything before its mark.
        state.streams.retain(|_, number| *number > since.number);
        (Some(state.streams.keys().copied().collect()), mark)
    }

    /// No process copies any more.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        self.is_copied.store(false, Ordering::Release);
        *state = State::default();
        drop(state);
        // A holder of the lock is answering a request: the sums are still of use, and not waited
        // for.
        if let Ok(mut sums) = self.sums.try_lock() {
            *sums = Sums::default();
        }
        if let Ok(mut content) = self.content.try_lock() {
            *content = None;
        }
    }

    /// Computed hashes for the copying process.
    pub(super) fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece of a file, which is read once for all its pieces, and kept until the last one.
    pub(super) fn piece<E>(
        &self,
        blob: BlobId,
        from: usize,
        length: usize,
        read: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let mut kept = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        let content = match kept.take() {
            Some((known, content)) if known == blob => content,
            Some(_) | None => read()?,
        };
        let from = from.min(content.len());
        let to = content.len().min(from.saturating_add(length));
        let piece = content[from..to].to_vec();
        *kept = (to < content.len()).then_some((blob, content));
        Ok(piece)
    }

    /// Nothing can panic while the lock is held, so a poisoned lock still guards a consistent state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use legwork_store::{Append, Version};

    use super::*;

    fn batch(streams: &[u128]) -> Batch {
        let append = |stream: &u128| Append {
            stream: StreamId(*stream),
            expected: Version(0),
            record: Vec::new(),
            close: None,
        };
        Batch { appends: streams.iter().map(append).collect(), ..Batch::default() }
    }

    fn commit(written: &Written, streams: &[u128]) {
        written.note(Written::streams_of(&batch(streams)));
    }

    #[test]
    fn what_was_written_since_a_mark_is_told_until_a_later_one_is_asked_from() {
        let written = Written::default();
        commit(&written, &[9]);
        let begun = written.begin(7, false);
        assert_eq!(written.since(begun), (Some(vec![]), begun));
        commit(&written, &[1, 2]);
        commit(&written, &[2, 3]);
        let ids = |ids: &[u128]| Some(ids.iter().map(|id| StreamId(*id)).collect::<Vec<_>>());
        let (streams, mark) = written.since(begun);
        assert_eq!(streams, ids(&[1, 2, 3]));
        // The answer was lost: it is requested again.
        assert_eq!(written.since(begun).0, ids(&[1, 2, 3]));
        commit(&written, &[3]);
        assert_eq!(written.since(mark).0, ids(&[3]));
    }

    #[test]
    fn any_request_shows_that_the_copy_continues() {
        let written = Written::default();
        written.touch();
        assert_eq!(written.is_close(), None);
        written.begin(7, false);
        assert_eq!(written.is_close(), Some(false));
        written.lock().asked = Instant::now().checked_sub(RECENT);
        assert_eq!(written.is_close(), None);
        written.touch();
        assert_eq!(written.is_close(), Some(false));
    }

    #[test]
    fn what_is_being_committed_when_copying_begins_is_told() {
        let written = Written::default();
        let streams = Written::streams_of(&batch(&[4]));
        let begun = written.begin(7, false);
        written.note(streams);
        assert_eq!(written.since(begun).0, Some(vec![StreamId(4)]));
    }

    #[test]
    fn what_was_kept_for_a_copy_that_was_given_up_is_forgotten() {
        let written = Written::default();
        written.begin(7, false);
        let store = legwork_store::memory::Memory::default();
        legwork_store::EventStore::commit(&store, batch(&[3])).unwrap();
        written.sums().digest(&store).unwrap();
        let read = |content: &[u8]| Ok::<_, ()>(content.to_vec());
        let piece = |content| written.piece(BlobId([1; 32]), 0, 1, || read(content)).unwrap();
        assert_eq!(piece(b"one"), b"o");
        assert_eq!((piece(b"two"), written.sums().is_empty()), (b"o".to_vec(), false));
        written.note_at(vec![StreamId(3)], Instant::now() + FORGOTTEN + Duration::from_secs(1));
        assert_eq!((piece(b"two"), written.sums().is_empty()), (b"t".to_vec(), true));
        // And from now on nothing is tracked.
        assert_eq!(written.since(Mark { life: 7, number: 0 }).0, None);
    }

    #[test]
    fn what_is_not_known_is_told_to_be_so() {
        let written = Written::default();
        assert_eq!(written.since(Mark::default()).0, None);
        let mark = written.begin(7, false);
        assert_eq!(written.since(Mark { life: 6, ..mark }).0, None);
        commit(&written, &(0..=STREAMS_MAX as u128).collect::<Vec<_>>());
        assert_eq!(written.since(mark).0, None);
    }
}
