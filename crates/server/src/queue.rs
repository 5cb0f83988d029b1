//! The queue to the drive thread: bounded, and emptied as a whole.
//!
//! Invariant: every item is taken once, in order. The receiver pays one lock for all items since
//! its last visit, so that batches grow with the load and an idle server answers at once.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    wake: Condvar,
    len_max: usize,
}

#[derive(Debug)]
struct State<T> {
    waiting: VecDeque<T>,
    /// The receiver sleeps: the next push wakes it.
    asleep: bool,
}

/// The queue is full; the value is returned.
#[derive(Debug)]
pub(crate) struct Full<T>(pub(crate) T);

impl<T> Queue<T> {
    pub(crate) fn new(len_max: usize) -> Self {
        let state = State { waiting: VecDeque::new(), asleep: false };
        Self { state: Mutex::new(state), wake: Condvar::new(), len_max }
    }

    pub(crate) fn push(&self, value: T) -> Result<(), Full<T>> {
        let state = self.lock();
        if state.waiting.len() >= self.len_max {
            return Err(Full(value));
        }
        self.put(state, value);
        Ok(())
    }

    /// For items that follow from earlier ones and are bounded by them.
    pub(crate) fn push_beyond_limit(&self, value: T) {
        self.put(self.lock(), value);
    }

    /// Waits for items, at most for `patience`, and takes all of them. `into` must be empty.
    pub(crate) fn take_all(&self, into: &mut VecDeque<T>, patience: Option<Duration>) {
        let mut state = self.lock();
        let deadline = patience.map(|patience| Instant::now() + patience);
        while state.waiting.is_empty() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            state.asleep = true;
            state = self.sleep(state, left);
            state.asleep = false;
        }
        std::mem::swap(&mut state.waiting, into);
    }

    fn put(&self, mut state: MutexGuard<'_, State<T>>, value: T) {
        state.waiting.push_back(value);
        let wake = std::mem::take(&mut state.asleep);
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    fn sleep<'a>(
        &self,
        state: MutexGuard<'a, State<T>>,
        left: Option<Duration>,
    ) -> MutexGuard<'a, State<T>> {
        match left {
            Some(left) => {
                let woken = self.wake.wait_timeout(state, left);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Nothing can panic while the lock is held, so a poisoned lock still guards a consistent
    /// state.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn everything_is_taken_once_and_in_order() {
        let queue = Arc::new(Queue::new(100_000));
        let pushers: Vec<_> = (0..4)
            .map(|pusher| {
                let queue = queue.clone();
                std::thread::spawn(move || {
                    (0..1_000).for_each(|n| queue.push((pusher, n)).unwrap());
                })
            })
            .collect();
        let (mut seen, mut batch) = (Vec::new(), VecDeque::new());
        while seen.len() < 4_000 {
            queue.take_all(&mut batch, None);
            seen.extend(batch.drain(..));
        }
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        for pusher in 0..4 {
            let own = seen.iter().filter(|(from, _)| *from == pusher).map(|(_, n)| *n);
            assert!(own.eq(0..1_000));
        }
    }

    #[test]
    fn a_full_queue_gives_the_value_back() {
        let queue = Queue::new(1);
        queue.push('a').unwrap();
        assert!(matches!(queue.push('b'), Err(Full('b'))));
        queue.push_beyond_limit('c');
        let mut taken = VecDeque::new();
        queue.take_all(&mut taken, None);
        assert_eq!(taken, ['a', 'c']);
    }

    #[test]
    fn the_taker_goes_on_when_its_patience_is_over() {
        let queue = Queue::<()>::new(1);
        let mut taken = VecDeque::new();
        queue.take_all(&mut taken, Some(Duration::ZERO));
        assert!(taken.is_empty());
    }
}
