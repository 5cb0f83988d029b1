//! Items in an order, with what any stretch of them comes to.
//!
//! Every subtree keeps the sums of its items, so that a question about all of them is one way down the tree. Its
//! shape follows from the items, not from the order of what happened.

/// What items come to that follow each other.
pub(crate) trait Sums: Copy + std::fmt::Debug {
    const EMPTY: Self;

    fn followed_by(self, next: Self) -> Self;
}

/// What stands in a treap.
pub(crate) trait Item: Copy {
    type Sums: Sums;

    /// What it comes to by itself.
    fn sums(&self) -> Self::Sums;

    /// Known apart from all others in the same treap.
    fn number(&self) -> u64;
}

#[derive(Clone, Debug)]
pub(crate) struct Treap<K, I: Item> {
    nodes: Vec<Node<K, I>>,
    /// Places in `nodes` that are not in use.
    free: Vec<Link>,
    root: Link,
}

/// A place in `nodes`, counted from 1; 0 is nobody.
pub(crate) type Link = u32;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<K, I: Item> {
    pub(crate) key: K,
    pub(crate) item: I,
    pub(crate) left: Link,
    pub(crate) right: Link,
    below: I::Sums,
}

impl<K, I: Item> Node<K, I> {
    /// Who stands above: like drawn by lot, and always the same.
    fn rank(&self) -> u64 {
        let mixed = self.item.number().wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 32)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }
}

impl<K, I: Item> Default for Treap<K, I> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), root: 0 }
    }
}

impl<K: Ord + Copy, I: Item> Treap<K, I> {
    pub(crate) fn insert(&mut self, key: K, item: I) {
        let node = Node { key, item, left: 0, right: 0, below: item.sums() };
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
        self.root = self.inserted(self.root, link);
    }

    /// False if there is no such key.
    pub(crate) fn remove(&mut self, key: K) -> bool {
        let before = self.free.len();
        self.root = self.removed(self.root, key);
        self.free.len() > before
    }

    pub(crate) fn root(&self) -> Link {
        self.root
    }

    pub(crate) fn node(&self, link: Link) -> Option<&Node<K, I>> {
        self.nodes.get((link as usize).wrapping_sub(1))
    }

    /// What a subtree comes to.
    pub(crate) fn sums(&self, link: Link) -> I::Sums {
        self.node(link).map_or(I::Sums::EMPTY, |node| node.below)
    }

    /// What all come to that are before a key, and all that are behind it.
    pub(crate) fn beside(&self, key: K) -> (I::Sums, I::Sums) {
        let (mut before, mut behind, mut link) = (I::Sums::EMPTY, I::Sums::EMPTY, self.root);
        while let Some(node) = self.node(link) {
            if node.key < key {
                before = before.followed_by(self.sums(node.left)).followed_by(node.item.sums());
                link = node.right;
            } else if key < node.key {
                behind = node.item.sums().followed_by(self.sums(node.right)).followed_by(behind);
                link = node.left;
            } else {
                before = before.followed_by(self.sums(node.left));
                behind = self.sums(node.right).followed_by(behind);
                break;
            }
        }
        (before, behind)
    }

    /// The last before a key.
    pub(crate) fn before(&self, key: K) -> Option<&Node<K, I>> {
        let (mut found, mut link) = (None, self.root);
        while let Some(node) = self.node(link) {
            let is_before = node.key < key;
            link = if is_before { node.right } else { node.left };
            found = if is_before { Some(node) } else { found };
        }
        found
    }

    pub(crate) fn first(&self) -> Option<&Node<K, I>> {
        self.outermost(|node| node.left)
    }

    pub(crate) fn last(&self) -> Option<&Node<K, I>> {
        self.outermost(|node| node.right)
    }

    fn outermost(&self, side: impl Fn(&Node<K, I>) -> Link) -> Option<&Node<K, I>> {
        let mut found = self.node(self.root)?;
        while let Some(next) = self.node(side(found)) {
            found = next;
        }
        Some(found)
    }

    /// All from a key on, in their order.
    pub(crate) fn from(&self, key: Option<K>) -> impl Iterator<Item = &Node<K, I>> {
        let (mut open, mut link) = (Vec::new(), self.root);
        while let Some(node) = self.node(link) {
            let counts = key.is_none_or(|key| node.key >= key);
            link = if counts { node.left } else { node.right };
            open.extend(counts.then_some(node));
        }
        std::iter::from_fn(move || {
            let next: &Node<K, I> = open.pop()?;
            let mut link = next.right;
            while let Some(node) = self.node(link) {
                link = node.left;
                open.push(node);
            }
            Some(next)
        })
    }

    fn set(&mut self, link: Link, change: impl FnOnce(&mut Node<K, I>)) {
        let Some(node) = self.nodes.get_mut((link as usize).wrapping_sub(1)) else { return };
        change(node);
        let (left, own, right) = (node.left, node.item.sums(), node.right);
        let below = self.sums(left).followed_by(own).followed_by(self.sums(right));
        self.nodes[link as usize - 1].below = below;
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
    fn split(&mut self, root: Link, key: K) -> (Link, Link) {
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

    fn removed(&mut self, root: Link, key: K) -> Link {
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
