//! Amounts in the order of their deadlines, with the sums that the test of a deadline needs.
//!
//! Under EDF, work with earlier deadlines goes first: an entry is done when everything up to it is
//! done, and in time if its deadline minus that sum is not before the beginning. The least such
//! difference of every subtree is kept with it, so that "does one more fit" is one way down the tree.

use crate::treap::{Item, Link, Sums as _, Treap};

/// Where an entry stands: by deadline, then by the clock, then by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) deadline: i64,
    /// As of its piece: deadlines in the same night are one point of working time.
    pub(crate) idle: i64,
    pub(crate) number: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    entries: Treap<Key, Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    cost: i64,
}

/// What entries come to.
#[derive(Clone, Copy, Debug)]
struct Sums {
    cost: i64,
    /// The least of all deadlines minus what is done up to them.
    least: i64,
}

impl crate::treap::Sums for Sums {
    const EMPTY: Self = Self { cost: 0, least: i64::MAX };

    fn followed_by(self, next: Self) -> Self {
        let least = self.least.min(next.least.saturating_sub(self.cost));
        Self { cost: self.cost + next.cost, least }
    }
}

impl Item for Entry {
    type Sums = Sums;

    fn sums(&self) -> Sums {
        Sums { cost: self.cost, least: self.key.deadline - self.cost }
    }

    fn number(&self) -> u64 {
        self.key.number
    }
}

impl Tree {
    pub(crate) fn insert(&mut self, key: Key, cost: i64) {
        self.entries.insert(key, Entry { key, cost });
    }

    /// False if there is no such entry.
    pub(crate) fn remove(&mut self, key: Key) -> bool {
        self.entries.remove(key)
    }

    /// Of all entries.
    pub(crate) fn cost(&self) -> i64 {
        self.entries.sums(self.entries.root()).cost
    }

    /// Of the entries that are due until then.
    pub(crate) fn cost_until(&self, deadline: i64) -> i64 {
        let (mut sum, mut link) = (0, self.entries.root());
        while let Some(node) = self.entries.node(link) {
            if node.key.deadline <= deadline {
                sum += self.entries.sums(node.left).cost + node.item.cost;
                link = node.right;
            } else {
                link = node.left;
            }
        }
        sum
    }

    /// By how much the one with the least time to spare could begin later, counted from 0.
    pub(crate) fn least(&self) -> i64 {
        self.entries.sums(self.entries.root()).least
    }

    /// How much more could be done by the deadline, counted from 0, with all entries in time.
    pub(crate) fn room(&self, deadline: i64) -> i64 {
        let (mut sooner, mut least, mut link) = (0_i64, i64::MAX, self.entries.root());
        while let Some(node) = self.entries.node(link) {
            let up_to = sooner + self.entries.sums(node.left).cost;
            if node.key.deadline <= deadline {
                sooner = up_to + node.item.cost;
                link = node.right;
            } else {
                let rest = node.item.sums().followed_by(self.entries.sums(node.right));
                least = least.min(rest.least.saturating_sub(up_to));
                link = node.left;
            }
        }
        least.min(deadline - sooner)
    }

    /// What has to be done before more of this amount fits: it can be promised for the sum of both, and
    /// for nothing sooner.
    pub(crate) fn ahead_of(&self, cost: i64) -> i64 {
        let (mut sum, mut link, mut ahead) = (0_i64, self.entries.root(), 0);
        // The last entry that would be too late if this amount went before it.
        while let Some(node) = self.entries.node(link) {
            let up_to = sum + self.entries.sums(node.left).cost;
            let here = up_to + node.item.cost;
            let right = self.entries.sums(node.right).least.saturating_sub(here);
            if right < cost {
                sum = here;
                link = node.right;
            } else if node.key.deadline - here < cost {
                ahead = here;
                break;
            } else {
                link = node.left;
            }
        }
        ahead
    }

    /// The sum up to and with an entry; `None` if it is not here.
    pub(crate) fn up_to(&self, key: Key) -> Option<i64> {
        let (mut sum, mut link) = (0, self.entries.root());
        while let Some(node) = self.entries.node(link) {
            let here = sum + self.entries.sums(node.left).cost + node.item.cost;
            match key.cmp(&node.key) {
                std::cmp::Ordering::Less => link = node.left,
                std::cmp::Ordering::Equal => return Some(here),
                std::cmp::Ordering::Greater => {
                    sum = here;
                    link = node.right;
                }
            }
        }
        None
    }

    /// All entries that are late if they begin at `base`, in their order.
    pub(crate) fn late(&self, base: i64) -> Vec<Key> {
        let mut late = Vec::new();
        self.collect_late(self.entries.root(), base, &mut late);
        late
    }

    fn collect_late(&self, link: Link, base: i64, late: &mut Vec<Key>) {
        let Some(node) = self.entries.node(link) else { return };
        if self.entries.sums(link).least >= base {
            return;
        }
        self.collect_late(node.left, base, late);
        let here = base + self.entries.sums(node.left).cost + node.item.cost;
        late.extend((node.key.deadline < here).then_some(node.key));
        self.collect_late(node.right, here, late);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The same by adding everything up anew.
    #[derive(Default)]
    struct Plain(BTreeMap<Key, i64>);

    impl Plain {
        /// The entries with the sum up to each.
        fn sums(&self) -> Vec<(Key, i64)> {
            let mut sum = 0;
            let add = |(key, cost): (&Key, &i64)| {
                sum += cost;
                (*key, sum)
            };
            self.0.iter().map(add).collect()
        }

        fn room(&self, deadline: i64) -> i64 {
            let sums = self.sums();
            let later = sums.iter().filter(|(key, _)| key.deadline > deadline);
            let least = later.map(|(key, sum)| key.deadline - sum).min().unwrap_or(i64::MAX);
            let sooner = sums.iter().rev().find(|(key, _)| key.deadline <= deadline);
            least.min(deadline - sooner.map_or(0, |(_, sum)| *sum))
        }
    }

    proptest! {
        #[test]
        fn it_answers_as_adding_up_anew_would(
            steps in prop::collection::vec((any::<bool>(), 0_i64..60, 1_i64..9), 1..60),
            asked in 0_i64..80,
            cost in 1_i64..20,
        ) {
            let (mut tree, mut plain) = (Tree::default(), Plain::default());
            for (number, (takes_out, deadline, cost)) in (0..).zip(steps) {
                let any = plain.0.keys().nth(deadline as usize % plain.0.len().max(1)).copied();
                if let (true, Some(key)) = (takes_out, any) {
                    plain.0.remove(&key);
                    prop_assert!(tree.remove(key));
                } else {
                    let key = Key { deadline, idle: 0, number };
                    plain.0.insert(key, cost);
                    tree.insert(key, cost);
                }
            }
            prop_assert_eq!(tree.room(asked), plain.room(asked));
            let sums = plain.sums();
            prop_assert_eq!(tree.cost(), sums.last().map_or(0, |(_, sum)| *sum));
            let sooner = plain.0.iter().filter(|(key, _)| key.deadline <= asked);
            prop_assert_eq!(tree.cost_until(asked), sooner.map(|(_, cost)| cost).sum::<i64>());
            let late = sums.iter().filter(|(key, sum)| key.deadline < asked + sum);
            prop_assert_eq!(tree.late(asked), late.map(|(key, _)| *key).collect::<Vec<_>>());
            for (key, sum) in &sums {
                prop_assert_eq!(tree.up_to(*key), Some(*sum));
            }
            // The earliest deadline is the first at which there is room enough.
            let earliest = tree.ahead_of(cost) + cost;
            prop_assert!(plain.room(earliest) >= cost);
            for sooner in 0..earliest {
                prop_assert!(plain.room(sooner) < cost, "{sooner} before {earliest}");
            }
        }
    }

    #[test]
    fn a_gone_entry_is_not_removed_twice() {
        let mut tree = Tree::default();
        let key = Key { deadline: 5, idle: 0, number: 1 };
        tree.insert(key, 2);
        assert!(tree.remove(key));
        assert!(!tree.remove(key));
        assert_eq!((tree.cost(), tree.least()), (0, i64::MAX));
    }
}
