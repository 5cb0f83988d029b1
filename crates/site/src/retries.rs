//! Reliable delivery: entries to send, and to resend with back-off until acknowledged.
//!
//! A data structure and no transport: its user sends the messages.
//!
//! Invariant: every entry has one due time, and stays until it is removed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;
use std::time::Duration;

use legwork_model::time::Timestamp;

/// The pause before the next attempt: doubled after each, from `min` to `max`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
}

/// More doublings than lead from any `min` to any `max`, and fewer than overflow.
const DOUBLINGS_MAX: u32 = 16;

impl Backoff {
    pub(crate) const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max }
    }

    /// The same pause after each attempt.
    pub(crate) const fn constant(pause: Duration) -> Self {
        Self { min: pause, max: pause }
    }

    /// The pause after an attempt that was preceded by so many others.
    pub(crate) fn after(self, attempts: u32) -> Duration {
        self.min.saturating_mul(1 << attempts.min(DOUBLINGS_MAX)).min(self.max)
    }
}

#[derive(Debug)]
pub(crate) struct Retries<K, T> {
    backoff: Backoff,
    entries: BTreeMap<K, Entry<T>>,
    due: BTreeSet<(Timestamp, K)>,
}

#[derive(Debug)]
struct Entry<T> {
    what: T,
    due: Timestamp,
    attempts: u32,
}

impl<K: Ord + Clone, T> Retries<K, T> {
    pub(crate) const fn new(backoff: Backoff) -> Self {
        Self { backoff, entries: BTreeMap::new(), due: BTreeSet::new() }
    }

    /// Adds an entry due at a moment, replacing one with the same key.
    pub(crate) fn insert(&mut self, key: K, what: T, due: Timestamp) -> Option<T> {
        let before = self.remove(&key);
        self.due.insert((due, key.clone()));
        self.entries.insert(key, Entry { what, due, attempts: 0 });
        before
    }

    /// Adds an entry that has just been sent for the first time.
    pub(crate) fn insert_sent(&mut self, key: K, what: T, now: Timestamp) {
        self.insert(key.clone(), what, now);
        self.attempted(&key, now);
    }

    /// Removes an entry: it is acknowledged, or not wanted any more.
    pub(crate) fn remove(&mut self, key: &K) -> Option<T> {
        let entry = self.entries.remove(key)?;
        self.due.remove(&(entry.due, key.clone()));
        Some(entry.what)
    }

    pub(crate) fn remove_range(&mut self, range: impl RangeBounds<K>) -> Vec<(K, T)> {
        let Self { entries, due, .. } = self;
        let removed = entries.extract_if(range, |_, _| true);
        let removed = removed.map(|(key, entry)| {
            due.remove(&(entry.due, key.clone()));
            (key, entry.what)
        });
        removed.collect()
    }

    /// Notes an attempt: the next one is due after the back-off.
    pub(crate) fn attempted(&mut self, key: &K, now: Timestamp) -> Option<&mut T> {
        let entry = self.entries.get_mut(key)?;
        self.due.remove(&(entry.due, key.clone()));
        entry.due = now.plus(self.backoff.after(entry.attempts));
        entry.attempts += 1;
        self.due.insert((entry.due, key.clone()));
        Some(&mut entry.what)
    }

    /// The receiver is answering: the next attempt comes no earlier than after the shortest pause.
    pub(crate) fn hold(&mut self, key: &K, now: Timestamp) {
        if let Some(entry) = self.entries.get_mut(key) {
            self.due.remove(&(entry.due, key.clone()));
            entry.due = entry.due.max(now.plus(self.backoff.after(0)));
            self.due.insert((entry.due, key.clone()));
        }
    }

    /// Makes all entries due now, with short pauses again.
    pub(crate) fn hurry(&mut self, now: Timestamp) {
        self.hurry_if(|_| true, now);
    }

    pub(crate) fn hurry_if(&mut self, is_chosen: impl Fn(&K) -> bool, now: Timestamp) {
        for (key, entry) in &mut self.entries {
            if is_chosen(key) {
                self.due.remove(&(entry.due, key.clone()));
                (entry.due, entry.attempts) = (now, 0);
                self.due.insert((now, key.clone()));
            }
        }
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(due, _)| *due)
    }

    /// The key that is due first, if one is due.
    pub(crate) fn first_due(&self, now: Timestamp) -> Option<K> {
        self.due.first().filter(|(due, _)| *due <= now).map(|(_, key)| key.clone())
    }

    /// All due keys, the earliest first.
    pub(crate) fn all_due(&self, now: Timestamp) -> impl Iterator<Item = &K> {
        self.due.iter().take_while(move |(due, _)| *due <= now).map(|(_, key)| key)
    }

    pub(crate) fn due(&self, key: &K) -> Option<Timestamp> {
        self.entries.get(key).map(|entry| entry.due)
    }

    /// Notes an attempt for the entry that is due first, if one is due.
    pub(crate) fn attempt_next(&mut self, now: Timestamp) -> Option<(K, &mut T)> {
        let key = self.first_due(now)?;
        let what = self.attempted(&key, now)?;
        Some((key, what))
    }

    pub(crate) fn get(&self, key: &K) -> Option<&T> {
        self.entries.get(key).map(|entry| &entry.what)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut T> {
        self.entries.get_mut(key).map(|entry| &mut entry.what)
    }

    /// How many attempts were made since it was added or hurried.
    pub(crate) fn attempts(&self, key: &K) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.attempts)
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.values_mut().map(|entry| &mut entry.what)
    }

    pub(crate) fn range(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &T)> {
        self.entries.range(range).map(|(key, entry)| (key, &entry.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

    fn retries() -> Retries<u32, &'static str> {
        Retries::new(BACKOFF)
    }

    #[test]
    fn an_unacknowledged_entry_is_due_again_after_twice_the_pause() {
        let mut retries = retries();
        retries.insert(7, "offer", Timestamp(0));
        let mut moments = Vec::new();
        while moments.len() < 9 {
            let due = retries.next_due().unwrap();
            moments.push(due.0 / 1_000);
            assert_eq!(
                retries.attempt_next(due).map(|(key, what)| (key, *what)),
                Some((7, "offer"))
            );
            assert!(retries.attempt_next(due).is_none());
        }
        assert_eq!(moments, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
        assert_eq!(retries.remove(&7), Some("offer"));
        assert_eq!((retries.next_due(), retries.len()), (None, 0));
    }

    #[test]
    fn entries_for_a_reachable_receiver_are_due_at_once_with_short_pauses() {
        let mut retries = retries();
        for key in [1, 2] {
            retries.insert_sent(key, "offer", Timestamp(0));
            (0..5).for_each(|_| _ = retries.attempted(&key, Timestamp(0)));
        }
        retries.hurry_if(|key| *key == 2, Timestamp(10));
        assert_eq!(retries.first_due(Timestamp(10)), Some(2));
        assert_eq!((retries.attempts(&1), retries.attempts(&2)), (6, 0));
        retries.attempted(&2, Timestamp(10));
        assert_eq!(retries.next_due(), Some(Timestamp(1_010)));
    }

    #[test]
    fn a_receiver_that_answers_is_not_asked_again_too_soon() {
        let mut retries = retries();
        retries.insert_sent(1, "offer", Timestamp(0));
        retries.hold(&1, Timestamp(900));
        assert_eq!(retries.next_due(), Some(Timestamp(1_900)));
        retries.hold(&1, Timestamp(0));
        assert_eq!(retries.next_due(), Some(Timestamp(1_900)), "never earlier than before");
    }

    #[test]
    fn a_replaced_entry_starts_with_no_attempts() {
        let mut retries = retries();
        retries.insert_sent(1, "old", Timestamp(0));
        assert_eq!(retries.insert(1, "new", Timestamp(500)), Some("old"));
        assert_eq!((retries.attempts(&1), retries.next_due()), (0, Some(Timestamp(500))));
        retries.insert(2, "other", Timestamp(600));
        assert_eq!(retries.remove_range(..=1), vec![(1, "new")]);
        assert_eq!(retries.range(..).collect::<Vec<_>>(), [(&2, &"other")]);
    }

    #[test]
    fn no_number_of_attempts_leads_beyond_the_longest_pause() {
        assert_eq!(BACKOFF.after(u32::MAX), Duration::from_secs(60));
        let constant = Backoff::constant(Duration::from_secs(3));
        assert_eq!((constant.after(0), constant.after(9)), (constant.min, constant.min));
    }
}
