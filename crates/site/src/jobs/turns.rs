//! Start-time fair queueing among the processes, or types, that share workers.
//!
//! The one that was served least is next. One that had nothing waiting, or could not be served, is next once and then
//! on a par with the others: it has no claim to what they got meanwhile.
//!
//! Invariant: each waiting one is in the order once, under its share.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// How many that have nothing waiting are remembered before old ones are removed.
const IDLE_MAX: usize = 64;

/// Amount served, in thousandths.
type Share = u64;

#[derive(Debug, Default)]
pub(super) struct Turns {
    shares: FxHashMap<Arc<str>, Share>,
    order: BTreeSet<(Share, Arc<str>)>,
    /// The share of the one served last, before it was served; if none has waited since, the largest share of all.
    reached: Share,
    most: Share,
    /// Size at which old entries are removed next.
    retained_max: usize,
}

impl Turns {
    /// It has something waiting from now on.
    pub(super) fn enter(&mut self, who: &Arc<str>) {
        if self.order.is_empty() {
            self.reached = self.most;
        }
        let had = self.shares.entry(who.clone()).or_default();
        *had = (*had).max(self.reached);
        self.order.insert((*had, who.clone()));
    }

    /// It has nothing waiting any more.
    pub(super) fn leave(&mut self, who: &Arc<str>) {
        if let Some(had) = self.shares.get(who) {
            self.order.remove(&(*had, who.clone()));
        }
    }

    /// It is served an amount.
    pub(super) fn charge(&mut self, who: &Arc<str>, amount: f64) {
        let had = self.shares.get(who).copied().unwrap_or_default();
        let begun = had.max(self.reached);
        self.reached = begun;
        self.set(who, had, begun.saturating_add(thousandths(amount)));
        if self.shares.len() > self.retained_max.max(IDLE_MAX + 2 * self.order.len()) {
            let Self { shares, order, reached, .. } = self;
            shares.retain(|who, had| *had > *reached || order.contains(&(*had, who.clone())));
            self.retained_max = 2 * self.shares.len();
        }
    }

    /// An amount was not served after all.
    pub(super) fn refund(&mut self, who: &Arc<str>, amount: f64) {
        if let Some(had) = self.shares.get(who).copied() {
            self.set(who, had, had.saturating_sub(thousandths(amount)));
        }
    }

    fn set(&mut self, who: &Arc<str>, had: Share, has: Share) {
        self.most = self.most.max(has);
        if self.order.remove(&(had, who.clone())) {
            self.order.insert((has, who.clone()));
        }
        self.shares.insert(who.clone(), has);
    }

    /// The one that was served least, and its share.
    pub(super) fn first(&self) -> Option<(Share, &Arc<str>)> {
        self.order.first().map(|(had, who)| (*had, who))
    }

    /// All that wait, least served first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.order.iter().map(|(_, who)| who)
    }
}

fn thousandths(amount: f64) -> Share {
    ((amount * 1_000.0) as Share).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(turns: &mut Turns, count: usize) -> Vec<String> {
        let mut served = Vec::new();
        for _ in 0..count {
            let (_, who) = turns.first().unwrap();
            let who = who.clone();
            turns.charge(&who, 1.0);
            served.push(who.to_string());
        }
        served
    }

    fn of(served: &[String], who: &str) -> usize {
        served.iter().filter(|own| *own == who).count()
    }

    #[test]
    fn a_late_arrival_has_an_equal_share_from_then_on() {
        let mut turns = Turns::default();
        turns.enter(&"first".into());
        served(&mut turns, 100);
        turns.enter(&"late".into());
        assert_eq!(of(&served(&mut turns, 20), "late"), 10);
    }

    #[test]
    fn a_large_job_is_charged_by_its_size_and_refunded_if_not_served() {
        let mut turns = Turns::default();
        let (large, small): (Arc<str>, Arc<str>) = ("large".into(), "small".into());
        turns.enter(&large);
        turns.enter(&small);
        turns.charge(&large, 10.0);
        assert_eq!(of(&served(&mut turns, 10), "small"), 10);
        turns.charge(&large, 10.0);
        turns.refund(&large, 10.0);
        assert_eq!(turns.first().map(|(_, who)| who), Some(&large));
    }

    #[test]
    fn idle_entries_are_removed() {
        let mut turns = Turns::default();
        for number in 0..10_000 {
            let who = format!("process-{number}").into();
            turns.enter(&who);
            turns.charge(&who, 1.0);
            turns.leave(&who);
        }
        assert!(turns.shares.len() <= 2 * IDLE_MAX + 2, "{}", turns.shares.len());
        assert!(turns.order.is_empty());
    }
}
