//! Which streams were written to while a server is being copied.
//!
//! Invariant: whoever has asked for everything up to a mark hears of every stream that was committed
//! to after it, or that this is not known. Nothing is remembered while nobody copies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use legwork_model::id::StreamId;
use legwork_store::Batch;

use super::wire::Mark;

/// More is not remembered: then all streams are compared once more.
const STREAMS_MAX: usize = 1 << 20;
/// Whoever has not asked for so long does not copy any more.
const FORGOTTEN: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(crate) struct Written {
    is_copied: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When each was last written to.
    streams: BTreeMap<StreamId, u64>,
    mark: Mark,
    /// When somebody last asked.
    asked: Option<Instant>,
}

impl Written {
    /// From now on what is written is remembered. `life` is a number that was never given before.
    pub(crate) fn begin(&self, life: u64) -> Mark {
        let mut state = self.lock();
        if !self.is_copied.swap(true, Ordering::AcqRel) {
            let mark = Mark { life, number: 0 };
            *state = State { streams: BTreeMap::new(), mark, asked: None };
        }
        state.asked = Some(Instant::now());
        state.mark
    }

    /// The streams of a batch, if they are to be remembered once it is committed.
    pub(crate) fn streams_of(&self, batch: &Batch) -> Vec<StreamId> {
        if !self.is_copied.load(Ordering::Acquire) {
            return Vec::new();
        }
        batch.appends.iter().map(|append| append.stream).collect()
    }

    /// These were committed to.
    pub(crate) fn note(&self, streams: Vec<StreamId>) {
        if streams.is_empty() {
            return;
        }
        let mut state = self.lock();
        if state.asked.is_none_or(|asked| asked.elapsed() > FORGOTTEN) {
            // Nobody copies any more.
            self.is_copied.store(false, Ordering::Release);
            return *state = State::default();
        }
        state.mark.number += 1;
        let number = state.mark.number;
        state.streams.extend(streams.into_iter().map(|stream| (stream, number)));
        if state.streams.len() > STREAMS_MAX {
            // Whoever asks from an earlier mark compares all.
            state.streams.clear();
            state.mark.life = state.mark.life.wrapping_add(1);
        }
    }

    /// What was written to since, and from where to ask on; `None` if that is not known.
    pub(crate) fn since(&self, since: Mark) -> (Option<Vec<StreamId>>, Mark) {
        let mut state = self.lock();
        let mark = state.mark;
        if since.life != mark.life || !self.is_copied.load(Ordering::Acquire) {
            return (None, mark);
        }
        state.asked = Some(Instant::now());
        // One copies at a time, and has what it asks from on.
        state.streams.retain(|_, number| *number > since.number);
        (Some(state.streams.keys().copied().collect()), mark)
    }

    /// Nothing can panic while the lock is held, so a poisoned lock still guards a whole state.
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
        written.note(written.streams_of(&batch(streams)));
    }

    #[test]
    fn what_was_written_since_a_mark_is_told_until_a_later_one_is_asked_from() {
        let written = Written::default();
        commit(&written, &[9]);
        let begun = written.begin(7);
        assert_eq!(written.since(begun), (Some(vec![]), begun));
        commit(&written, &[1, 2]);
        commit(&written, &[2, 3]);
        let ids = |ids: &[u128]| Some(ids.iter().map(|id| StreamId(*id)).collect::<Vec<_>>());
        let (streams, mark) = written.since(begun);
        assert_eq!(streams, ids(&[1, 2, 3]));
        // The answer was lost: it is asked for again.
        assert_eq!(written.since(begun).0, ids(&[1, 2, 3]));
        commit(&written, &[3]);
        assert_eq!(written.since(mark).0, ids(&[3]));
    }

    #[test]
    fn what_is_not_known_is_told_to_be_so() {
        let written = Written::default();
        assert_eq!(written.since(Mark::default()).0, None);
        let mark = written.begin(7);
        assert_eq!(written.since(Mark { life: 6, ..mark }).0, None);
        commit(&written, &(0..=STREAMS_MAX as u128).collect::<Vec<_>>());
        assert_eq!(written.since(mark).0, None);
    }
}
