//! Sets of agents, optimised for sharing: a million items are offered to the same few sets.
//!
//! A set is a shared base without a few exceptions, so that `Role(clerk) EXCEPT` one person costs a
//! word and not a copy of the role. Every set carries the roster that its numbers belong to: sets
//! of two versions of an organisation are compared by names, never by numbers.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use legwork_model::id::AgentId;
use rustc_hash::FxHasher;

/// A set with more exceptions than this is written out.
const LESS_MAX: usize = 8;

/// The agents of one version of an organisation, numbered by name.
#[derive(Debug)]
pub(crate) struct Roster(Vec<AgentId>);

/// Some of the agents of one organisation, by name.
#[derive(Clone)]
pub struct AgentSet {
    roster: Arc<Roster>,
    base: Arc<Members>,
    /// Exceptions: sorted, all of them in the base.
    less: Box<[u32]>,
}

/// Sorted numbers with a hash that is computed once.
#[derive(Debug)]
pub(crate) struct Members {
    numbers: Box<[u32]>,
    hash: u64,
}

impl Roster {
    /// The names must be sorted and distinct.
    pub(crate) fn new(names: Vec<AgentId>) -> Self {
        assert!(names.is_sorted_by(|a, b| a < b), "agents are sorted and distinct");
        Self(names)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn number(&self, agent: &AgentId) -> Option<u32> {
        self.0.binary_search(agent).ok().map(|place| place as u32)
    }

    pub(crate) fn number_named(&self, name: &str) -> Option<u32> {
        self.0.binary_search_by(|agent| agent.as_str().cmp(name)).ok().map(|place| place as u32)
    }

    pub(crate) fn agent(&self, number: u32) -> &AgentId {
        &self.0[number as usize]
    }

    pub(crate) fn agents(&self) -> &[AgentId] {
        &self.0
    }
}

impl Members {
    fn new(numbers: Vec<u32>) -> Arc<Self> {
        debug_assert!(numbers.is_sorted_by(|a, b| a < b), "members are sorted and distinct");
        let mut hasher = FxHasher::default();
        numbers.hash(&mut hasher);
        Arc::new(Self { numbers: numbers.into(), hash: hasher.finish() })
    }

    pub(crate) fn numbers(&self) -> &[u32] {
        &self.numbers
    }
}

impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || (self.hash == other.hash && self.numbers == other.numbers)
    }
}

impl Eq for Members {}

impl Hash for Members {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl AgentSet {
    pub(crate) fn new(roster: &Arc<Roster>, mut numbers: Vec<u32>) -> Self {
        numbers.sort_unstable();
        numbers.dedup();
        Self { roster: roster.clone(), base: Members::new(numbers), less: Box::default() }
    }

    pub fn len(&self) -> usize {
        self.base.numbers.len() - self.less.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn contains(&self, agent: &AgentId) -> bool {
        self.roster.number(agent).is_some_and(|number| self.has(number))
    }

    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = &AgentId> {
        self.numbers().map(|number| self.roster.agent(number))
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.base.numbers.binary_search(&number).is_ok() && !self.lacks(number)
    }

    /// Whether an agent of the base is excepted.
    pub(crate) fn lacks(&self, number: u32) -> bool {
        self.less.binary_search(&number).is_ok()
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.base.numbers.iter().copied().filter(|&number| !self.lacks(number))
    }

    pub(crate) fn base(&self) -> &Arc<Members> {
        &self.base
    }

    pub(crate) fn less(&self) -> &[u32] {
        &self.less
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        if other.is_empty() {
            return self.clone();
        }
        if self.is_empty() {
            return other.clone();
        }
        let base = if self.base == other.base {
            self.base.clone()
        } else {
            Members::new(merge(&self.base.numbers, &other.base.numbers))
        };
        let less = self.less.iter().chain(&other.less).copied();
        let less = less.filter(|&number| !self.has(number) && !other.has(number)).collect();
        self.with(base, less)
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let base = if self.base == other.base {
            self.base.clone()
        } else {
            let (few, many) = if self.base.numbers.len() <= other.base.numbers.len() {
                (&self.base, &other.base)
            } else {
                (&other.base, &self.base)
            };
            let shared = |number: &u32| many.numbers.binary_search(number).is_ok();
            Members::new(few.numbers.iter().copied().filter(shared).collect())
        };
        let less = self.less.iter().chain(&other.less).copied();
        let less = less.filter(|number| base.numbers.binary_search(number).is_ok()).collect();
        self.with(base, less)
    }

    pub(crate) fn minus(&self, other: &Self) -> Self {
        if other.len() <= LESS_MAX {
            let more = other.numbers().filter(|&number| self.has(number));
            let less = self.less.iter().copied().chain(more).collect();
            return self.with(self.base.clone(), less);
        }
        let left = self.numbers().filter(|&number| !other.has(number)).collect();
        self.with(Members::new(left), Vec::new())
    }

    /// The same agents on another roster; agents that it lacks are dropped.
    pub(crate) fn on(&self, roster: &Arc<Roster>) -> Self {
        if Arc::ptr_eq(&self.roster, roster) {
            return self.clone();
        }
        Self::new(roster, self.iter().filter_map(|agent| roster.number(agent)).collect())
    }

    fn with(&self, base: Arc<Members>, mut less: Vec<u32>) -> Self {
        less.sort_unstable();
        less.dedup();
        let set = Self { roster: self.roster.clone(), base, less: less.into() };
        if set.less.len() <= LESS_MAX {
            return set;
        }
        Self { base: Members::new(set.numbers().collect()), less: Box::default(), ..set }
    }
}

impl PartialEq for AgentSet {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for AgentSet {}

impl fmt::Debug for AgentSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(AgentId::as_str)).finish()
    }
}

fn merge(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut merged = Vec::with_capacity(a.len() + b.len());
    merged.extend_from_slice(a);
    merged.extend_from_slice(b);
    // Two sorted runs: the stable sort merges them in one pass.
    merged.sort();
    merged.dedup();
    merged
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn roster() -> Arc<Roster> {
        Arc::new(Roster::new((0..40).map(|n| AgentId::from(&*format!("a{n:02}"))).collect()))
    }

    fn members() -> impl Strategy<Value = BTreeSet<u32>> {
        prop::collection::btree_set(0..40_u32, 0..40)
    }

    proptest! {
        #[test]
        fn sets_compute_as_sets_do(a in members(), b in members(), c in members(), d in members()) {
            let roster = roster();
            let set = |numbers: &BTreeSet<u32>| {
                AgentSet::new(&roster, numbers.iter().copied().collect())
            };
            let few: BTreeSet<u32> = c.iter().copied().take(3).collect();
            let left = set(&a).minus(&set(&few));
            let right = set(&b).minus(&set(&d));
            let plain_left = &a - &few;
            let plain_right = &b - &d;
            for (computed, plain) in [
                (left.union(&right), &plain_left | &plain_right),
                (left.intersection(&right), &plain_left & &plain_right),
                (left.minus(&right), &plain_left - &plain_right),
                (right.minus(&left), &plain_right - &plain_left),
                (left.minus(&set(&few)).minus(&set(&d)), &plain_left - &d),
            ] {
                prop_assert_eq!(computed.len(), plain.len());
                prop_assert!(computed.numbers().eq(plain.iter().copied()));
                prop_assert!((0..40).all(|n| computed.has(n) == plain.contains(&n)));
                prop_assert!(computed.less().len() <= LESS_MAX);
            }
        }
    }

    #[test]
    fn one_exception_shares_the_base() {
        let roster = roster();
        let all = AgentSet::new(&roster, (0..40).collect());
        let one = AgentSet::new(&roster, vec![7]);
        let others = all.minus(&one);
        assert!(Arc::ptr_eq(others.base(), all.base()));
        assert_eq!(others.less(), [7]);
    }

    #[test]
    fn a_set_moves_to_another_roster_by_name() {
        let old = roster();
        let new = Arc::new(Roster::new(vec!["a03".into(), "a05".into(), "b".into()]));
        let set = AgentSet::new(&old, vec![1, 5]).on(&new);
        assert_eq!(format!("{set:?}"), r#"{"a05"}"#);
        assert!(set.has(1));
    }
}
