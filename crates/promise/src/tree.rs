//! Amounts in the order of their deadlines, with the sums that the test of a deadline needs.
//!
//! Under EDF, work with earlier deadlines goes first: an entry is done when everything up to it is
//! done, and in time if its deadline minus that sum is not before the beginning. The least such
//! difference of every subtree is kept with it, so that "does one more fit" is one way down the tree.
//!
//! A treap: its shape follows from the numbers of the entries, not from the order of what happened.

/// Where an entry stands: by deadline, then by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) deadline: i64,
    pub(crate) number: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    /// Places in `nodes` that are not in use.
    free: Vec<Link>,
    root: Link,
}

/// A place in `nodes`, counted from 1; 0 is nobody.
type Link = u32;

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
    cost: i64,
    left: Link,
    right: Link,
    below: Sums,
}

/// What a subtree comes to.
#[derive(Clone, Copy, Debug)]
struct Sums {
    cost: i64,
    /// The least of all deadlines minus what is done up to them.
    least: i64,
}

const EMPTY: Sums = Sums { cost: 0, least: i64::MAX };

impl Sums {
    fn followed_by(self, next: Self) -> Self {
        let least = self.least.min(next.least.saturating_sub(self.cost));
        Self { cost: self.cost + next.cost, least }
    }
}

impl Node {
    fn own(&self) -> Sums {
        Sums { cost: self.cost, least: self.key.deadline - self.cost }
    }

    /// Who stands above: like drawn by lot, and always the same.
    fn rank(&self) -> u64 {
        let mixed = self.key.number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 32)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }
}

impl Tree {
    pub(crate) fn insert(&mut self, key: Key, cost: i64) {
        let node = Node { key, cost, left: 0, right: 0, below: EMPTY };
        let link = match self.free.pop() {
            Some(link) => {
                self.nodes[link as usize - 1] = node;
                link
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as Link
            }
        };
        self.sum_up(link);
        self.root = self.inserted(self.root, link);
    }

    /// False if there is no such entry.
    pub(crate) fn remove(&mut self, key: Key) -> bool {
        let before = self.free.len();
        self.root = self.removed(self.root, key);
        self.free.len() > before
    }

    /// Of all entries.
    pub(crate) fn cost(&self) -> i64 {
        self.sums(self.root).cost
    }

    /// Of the entries that are due until then.
    pub(crate) fn cost_until(&self, deadline: i64) -> i64 {
        let (mut sum, mut link) = (0, self.root);
        while let Some(node) = self.node(link) {
            if node.key.deadline <= deadline {
                sum += self.sums(node.left).cost + node.cost;
                link = node.right;
            } else {
                link = node.left;
            }
        }
        sum
    }

    /// By how much the one with the least time to spare could begin later, counted from 0.
    pub(crate) fn least(&self) -> i64 {
        self.sums(self.root).least
    }

    /// How much more could be done by the deadline, counted from 0, with all entries in time.
    pub(crate) fn room(&self, deadline: i64) -> i64 {
        let (mut sooner, mut least, mut link) = (0_i64, i64::MAX, self.root);
        while let Some(node) = self.node(link) {
            let up_to = sooner + self.sums(node.left).cost;
            if node.key.deadline <= deadline {
                sooner = up_to + node.cost;
                link = node.right;
            } else {
                let rest = node.own().followed_by(self.sums(node.right));
                least = least.min(rest.least.saturating_sub(up_to));
                link = node.left;
            }
        }
        least.min(deadline - sooner)
    }

    /// What has to be done before more of this amount fits: it can be promised for the sum of both, and
    /// for nothing sooner.
    pub(crate) fn ahead_of(&self, cost: i64) -> i64 {
        let (mut sum, mut link, mut ahead) = (0_i64, self.root, 0);
        // The last entry that would be too late if this amount went before it.
        while let Some(node) = self.node(link) {
            let up_to = sum + self.sums(node.left).cost;
            let here = up_to + node.cost;
            let right = self.sums(node.right).least.saturating_sub(here);
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
        let (mut sum, mut link) = (0, self.root);
        while let Some(node) = self.node(link) {
            let here = sum + self.sums(node.left).cost + node.cost;
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
        self.collect_late(self.root, base, &mut late);
        late
    }

    fn collect_late(&self, link: Link, base: i64, late: &mut Vec<Key>) {
        let Some(node) = self.node(link) else { return };
        if node.below.least >= base {
            return;
        }
        self.collect_late(node.left, base, late);
        let here = base + self.sums(node.left).cost + node.cost;
        late.extend((node.key.deadline < here).then_some(node.key));
        self.collect_late(node.right, here, late);
    }

    fn node(&self, link: Link) -> Option<&Node> {
        self.nodes.get((link as usize).wrapping_sub(1))
    }

    fn sums(&self, link: Link) -> Sums {
        self.node(link).map_or(EMPTY, |node| node.below)
    }

    fn sum_up(&mut self, link: Link) {
        let Some(node) = self.node(link) else { return };
        let sums = self.sums(node.left).followed_by(node.own()).followed_by(self.sums(node.right));
        self.nodes[link as usize - 1].below = sums;
    }

    fn set(&mut self, link: Link, change: impl FnOnce(&mut Node)) {
        change(&mut self.nodes[link as usize - 1]);
        self.sum_up(link);
    }

    fn inserted(&mut self, root: Link, new: Link) -> Link {
        let (Some(top), Some(node)) = (self.node(root).copied(), self.node(new).copied()) else {
            return new;
        };
        if node.rank() > top.rank() {
            let (left, right) = self.split(root, node.key);
            self.set(new, |node| (node.left, node.right) = (left, right));
            return new;
        }
        if node.key < top.key {
            let left = self.inserted(top.left, new);
            self.set(root, |node| node.left = left);
        } else {
            let right = self.inserted(top.right, new);
            self.set(root, |node| node.right = right);
        }
        root
    }

    /// Those before a key, and the others.
    fn split(&mut self, root: Link, key: Key) -> (Link, Link) {
        let Some(top) = self.node(root).copied() else { return (0, 0) };
        if top.key < key {
            let (middle, right) = self.split(top.right, key);
            self.set(root, |node| node.right = middle);
            (root, right)
        } else {
            let (left, middle) = self.split(top.left, key);
            self.set(root, |node| node.left = middle);
            (left, root)
        }
    }

    fn removed(&mut self, root: Link, key: Key) -> Link {
        let Some(top) = self.node(root).copied() else { return 0 };
        match key.cmp(&top.key) {
            std::cmp::Ordering::Less => {
                let left = self.removed(top.left, key);
                self.set(root, |node| node.left = left);
                root
            }
            std::cmp::Ordering::Greater => {
                let right = self.removed(top.right, key);
                self.set(root, |node| node.right = right);
                root
            }
            std::cmp::Ordering::Equal => {
                self.free.push(root);
                self.joined(top.left, top.right)
            }
        }
    }

    /// All of the left are before all of the right.
    fn joined(&mut self, left: Link, right: Link) -> Link {
        let (Some(first), Some(second)) = (self.node(left).copied(), self.node(right).copied())
        else {
            return left.max(right);
        };
        if first.rank() > second.rank() {
            let joined = self.joined(first.right, right);
            self.set(left, |node| node.right = joined);
            left
        } else {
            let joined = self.joined(left, second.left);
            self.set(right, |node| node.left = joined);
            right
        }
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
                    let key = Key { deadline, number };
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
        let key = Key { deadline: 5, number: 1 };
        tree.insert(key, 2);
        assert!(tree.remove(key));
        assert!(!tree.remove(key));
        assert_eq!((tree.cost(), tree.least()), (0, i64::MAX));
    }
}
