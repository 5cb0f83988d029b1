//! Work that waits at a resource in an order nobody knows: it came from several sides, before anybody was asked.
//!
//! Whatever the order is, as long as something waits every hand is at work. So what is done last begins when the others
//! are through at the latest, shared among all hands; that bounds when everything is over.
//!
//! Invariant: the bound gets no later unless something joins, or something takes longer than it was said to. So
//! whatever is planned behind it stays in time.

use std::collections::BTreeMap;

use legwork_model::time::Timestamp;

use crate::supply::Work;
use crate::task::TaskId;

/// What waits, and by when all of it is over.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    waiting: BTreeMap<TaskId, Work>,
    until: Option<Timestamp>,
}

impl Queue {
    /// All that waits now or may do so, for so many hands that have to finish other things first: by when everything is over.
    pub fn note(
        &mut self,
        waiting: BTreeMap<TaskId, Work>,
        others: &[Work],
        hands: usize,
        now: Timestamp,
    ) -> Timestamp {
        let all = waiting.values().chain(others).copied();
        let any_order = now.0.saturating_add(in_any_order(all, hands));
        let joined = waiting.iter().filter(|(id, _)| !self.waiting.contains_key(id));
        let joined: i64 = joined.map(|(_, takes)| takes.0).fold(0, i64::saturating_add);
        // What joins comes behind the others.
        let behind = self.until.map(|until| match joined {
            0 => until.0,
            _ => until.0.max(now.0).saturating_add(joined),
        });
        let until = Timestamp(behind.map_or(any_order, |behind| behind.min(any_order)));
        (self.waiting, self.until) = (waiting, Some(until));
        until
    }

    /// Everything is over later than that: something takes longer than it was said to.
    pub fn put_off(&mut self, until: Timestamp) {
        self.until = Some(until);
    }
}

/// How long it takes at most until all hands are free, in whatever order they do it.
fn in_any_order(all: impl Iterator<Item = Work>, hands: usize) -> i64 {
    let (mut sum, mut longest) = (0_i64, 0);
    for Work(takes) in all {
        sum = sum.saturating_add(takes);
        longest = longest.max(takes);
    }
    let hands = i64::try_from(hands.max(1)).unwrap_or(i64::MAX);
    // Rounded up.
    let shared = (sum - longest) / hands + i64::from((sum - longest) % hands > 0);
    shared.saturating_add(longest)
}

#[cfg(test)]
mod tests {
    use legwork_model::id::InstanceId;
    use proptest::prelude::*;

    use super::*;

    fn id(number: usize) -> TaskId {
        TaskId { instance: InstanceId(number as u128), step: 0, round: 0, part: 0 }
    }

    fn works(takes: &[i64]) -> BTreeMap<TaskId, Work> {
        takes.iter().enumerate().map(|(number, takes)| (id(number), Work(*takes))).collect()
    }

    #[test]
    fn one_hand_does_one_after_the_other() {
        let mut queue = Queue::default();
        assert_eq!(queue.note(works(&[3, 5]), &[Work(2)], 1, Timestamp(10)), Timestamp(20));
        // The one of five may have been done first: that changes nothing.
        let mut rest = works(&[3, 5]);
        rest.remove(&id(1));
        assert_eq!(queue.note(rest, &[], 1, Timestamp(15)), Timestamp(18));
    }

    #[test]
    fn two_hands_may_have_the_longest_last() {
        let mut queue = Queue::default();
        assert_eq!(queue.note(works(&[4, 4, 10]), &[], 2, Timestamp(0)), Timestamp(14));
        assert_eq!(queue.note(works(&[4, 4, 10]), &[], 2, Timestamp(3)), Timestamp(14));
        assert_eq!(queue.note(works(&[4, 4, 10, 1]), &[], 2, Timestamp(3)), Timestamp(15));
    }

    /// When each is begun and over, by as many hands as there are, in the order in which they came.
    fn worked(jobs: &[(i64, i64, i64)], hands: usize) -> Vec<i64> {
        let mut free = vec![0; hands];
        let mut over = Vec::new();
        for (came, takes, percent) in jobs {
            let hand = (0..hands).min_by_key(|hand| free[*hand]).unwrap();
            free[hand] = free[hand].max(*came) + takes * percent / 100;
            over.push(free[hand]);
        }
        over
    }

    proptest! {
        /// Whoever knows only what is there and what each takes at most says no moment that is too early, whenever asked, and
        /// none that is later than before if nothing has joined.
        #[test]
        fn all_is_over_by_then_in_whatever_order(
            mut jobs in prop::collection::vec((0..60_i64, 1..40_i64, 0..=100_i64), 1..10),
            hands in 1..4_usize,
            mut looks in prop::collection::vec(0..200_i64, 1..8),
        ) {
            jobs.sort_by_key(|(came, ..)| *came);
            looks.sort_unstable();
            let over = worked(&jobs, hands);
            let mut queue = Queue::default();
            let mut before: Option<(usize, Timestamp)> = None;
            for now in looks {
                let known = jobs.iter().filter(|(came, ..)| *came <= now).count();
                let left = (0..known).filter(|number| over[*number] > now);
                let left: BTreeMap<TaskId, Work> =
                    left.map(|number| (id(number), Work(jobs[number].1))).collect();
                let last = over[..known].iter().copied().max().unwrap_or(0);
                if left.is_empty() {
                    (queue, before) = (Queue::default(), None);
                    continue;
                }
                let until = queue.note(left, &[], hands, Timestamp(now));
                prop_assert!(last <= until.0, "{last} after {until:?}, looked at {now}");
                if let Some((_, before)) = before.filter(|(count, _)| *count == known) {
                    prop_assert!(until <= before);
                }
                before = Some((known, until));
            }
        }
    }
}
