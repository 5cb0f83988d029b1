//! The order of work that cannot be put aside while some of it is not released yet.
//!
//! There, to be done sooner than said can do harm: whoever is free takes something long, and what is
//! released next has to wait for it. So an order that was found good is kept: in a fixed order nobody is
//! later because somebody else was sooner.
//!
//! A stretch of the order that is begun at some time ends at a time that follows from two sums, and is in time
//! if it is begun before a third ([`Stretch`]). So a place for one more is found by going down a tree.

use std::collections::BTreeMap;

use crate::orders::{TRIED_MAX, best_order};
use crate::plan::Discipline;
use crate::stretch::Stretch;
use crate::timeline::{Piece, Timeline};
use crate::treap::{Item, Link, Node, Sums as _, Treap};

pub(crate) type Pieces = BTreeMap<u64, Piece>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Sequence {
    line: Treap<Place, Piece>,
    places: BTreeMap<u64, Place>,
}

/// Where a piece stands. Between any two there is mostly room for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(u128);

/// How far apart neighbours stand at first.
const APART: u128 = 1 << 64;

/// How many pieces are put in another order for one that has no place in this one.
const REORDERED_MAX: usize = 256;

/// How one more can be taken into an order.
#[derive(Debug)]
pub(crate) enum Change {
    /// Before a piece, or behind all.
    Before(Option<u64>),
    /// With some of the others in another order.
    Reorder(Vec<Piece>),
}

/// A part of an order that is put in another.
struct Near {
    pieces: Vec<Piece>,
    /// When it begins.
    free: i64,
    /// What comes behind it and stays as it is.
    behind: Stretch,
}

impl Near {
    /// Whether nobody is late, in it and behind it.
    fn is_good(&self, order: &[Piece]) -> bool {
        let whole = order.iter().fold(Stretch::EMPTY, |all, piece| all.followed_by(piece.sums()));
        whole.followed_by(self.behind).spare(self.free) >= 0
    }
}

impl Item for Piece {
    type Sums = Stretch;

    fn sums(&self) -> Stretch {
        Stretch::of(self)
    }

    fn number(&self) -> u64 {
        self.number
    }
}

impl Sequence {
    /// By deadlines, as soon as each is released.
    pub(crate) fn by_deadline(pieces: impl IntoIterator<Item = Piece>, begin: i64) -> Self {
        let mut order = Self::default();
        in_order(pieces, begin).into_iter().for_each(|piece| order.push(piece));
        order
    }

    pub(crate) fn first(&self) -> Option<u64> {
        self.line.first().map(|node| node.item.number)
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.line.from(None).map(|node| node.item.number)
    }

    /// One more behind all others.
    pub(crate) fn push(&mut self, piece: Piece) {
        let place = self.line.last().map_or(Place(APART), |last| Place(last.key.0 + APART));
        self.put(place, piece);
    }

    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(place) = self.places.remove(&number) {
            self.line.remove(place);
        }
    }

    /// One more, in a way that was found for it.
    pub(crate) fn insert(&mut self, piece: Piece, change: Change) {
        match change {
            Change::Before(None) => self.push(piece),
            Change::Before(Some(next)) => self.insert_before(next, piece),
            Change::Reorder(pieces) => {
                let old = pieces.iter().filter_map(|piece| self.places.get(&piece.number));
                let next = old.max().and_then(|last| {
                    self.line.from(Some(*last)).nth(1).map(|node| node.item.number)
                });
                pieces.iter().for_each(|piece| self.remove(piece.number));
                for piece in pieces {
                    match next {
                        Some(next) => self.insert_before(next, piece),
                        None => self.push(piece),
                    }
                }
            }
        }
    }

    fn insert_before(&mut self, next: u64, piece: Piece) {
        let Some(behind) = self.places.get(&next).copied() else { return self.push(piece) };
        let before = self.line.before(behind).map_or(0, |node| node.key.0);
        let middle = before + (behind.0 - before) / 2;
        if middle > before {
            return self.put(Place(middle), piece);
        }
        self.spread_out();
        self.insert_before(next, piece);
    }

    fn put(&mut self, place: Place, piece: Piece) {
        self.line.insert(place, piece);
        self.places.insert(piece.number, place);
    }

    /// All get room between them again.
    fn spread_out(&mut self) {
        let pieces: Vec<Piece> = self.line.from(None).map(|node| node.item).collect();
        *self = Self::default();
        pieces.into_iter().for_each(|piece| self.push(piece));
    }

    /// When each is worked on: its piece, from, to.
    pub(crate) fn turns(&self, begin: i64) -> impl Iterator<Item = (Piece, i64, i64)> + '_ {
        self.line.from(None).scan(begin, |at, node| {
            let from = node.item.release.max(*at);
            *at = from + node.item.cost;
            Some((node.item, from, *at))
        })
    }

    /// When a piece is done.
    pub(crate) fn end_of(&self, number: u64, begin: i64) -> Option<i64> {
        let place = *self.places.get(&number)?;
        let own = self.line.from(Some(place)).next()?.item.sums();
        Some(self.line.beside(place).0.followed_by(own).end(begin))
    }

    /// By how much all of it can begin later with nobody late; negative if somebody is.
    pub(crate) fn spare(&self, begin: i64) -> i64 {
        self.line.sums(self.line.root()).spare(begin)
    }

    /// The same with one more behind all others.
    pub(crate) fn spare_with(&self, piece: Piece, begin: i64) -> i64 {
        self.line.sums(self.line.root()).followed_by(piece.sums()).spare(begin)
    }

    /// The same without a piece.
    pub(crate) fn spare_without(&self, number: u64, begin: i64) -> i64 {
        let Some(place) = self.places.get(&number) else { return self.spare(begin) };
        let (before, behind) = self.line.beside(*place);
        before.followed_by(behind).spare(begin)
    }

    /// How a new piece can be taken in with nobody late: at the first place where it makes nobody late; else with
    /// those in another order that are worked on in its time, by their deadlines, or in any if there are few. `None` if
    /// somebody is late there as well.
    pub(crate) fn with(&self, new: Piece, begin: i64) -> Option<Change> {
        if let Some(next) = self.place_for(new, self.line.root(), begin, i64::MAX) {
            return Some(Change::Before(Some(next)));
        }
        let all = self.line.sums(self.line.root());
        if all.end(begin).max(new.release) + new.cost <= new.deadline {
            return Some(Change::Before(None));
        }
        self.reordered(new, begin)
    }

    /// The piece in a subtree before which a new one makes nobody late, the first of them. The subtree is begun at
    /// `begin`, and what is behind it not later than `latest`.
    fn place_for(&self, new: Piece, link: Link, begin: i64, latest: i64) -> Option<u64> {
        let node = self.line.node(link)?;
        let below = self.line.sums(link);
        let end = begin.max(new.release) + new.cost;
        if end > new.deadline || !below.may_have_room(begin, latest, new) {
            return None;
        }
        let behind = node.item.sums().followed_by(self.line.sums(node.right));
        if let Some(found) = self.place_for(new, node.left, begin, behind.latest_before(latest)) {
            return Some(found);
        }
        let free = self.line.sums(node.left).end(begin);
        let end = free.max(new.release) + new.cost;
        if end <= new.deadline && end <= behind.latest_before(latest) {
            return Some(node.item.number);
        }
        let free = node.item.sums().end(free);
        self.place_for(new, node.right, free, latest)
    }

    /// Those that are worked on in the time of a new piece, with it: by deadlines, or if there are few in whichever order
    /// ends first. `None` if somebody is late then.
    fn reordered(&self, new: Piece, begin: i64) -> Option<Change> {
        let count = self.places.len();
        let mut near = self.near(new, begin, count <= REORDERED_MAX)?;
        let by_deadline = in_order(near.pieces.iter().copied(), near.free);
        if near.is_good(&by_deadline) {
            return Some(Change::Reorder(by_deadline));
        }
        if near.pieces.len() > TRIED_MAX && count <= REORDERED_MAX {
            near = self.near(new, begin, false)?;
        }
        let first = best_order(&near.pieces, near.free)?;
        near.is_good(&first).then_some(Change::Reorder(first))
    }

    /// Those that are worked on in the time of a new piece, with it; or all.
    fn near(&self, new: Piece, begin: i64, takes_all: bool) -> Option<Near> {
        let from = if takes_all { self.line.first() } else { self.first_after(new.release, begin) };
        let from = from?.key;
        let free = self.line.beside(from).0.end(begin);
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut at, mut missing) = (free, new.cost);
        for node in self.line.from(Some(from)).take(REORDERED_MAX) {
            missing -= (node.item.release - at.max(new.release)).max(0);
            // Behind as much idle time as it costs nobody is in its way.
            if !takes_all && at >= new.deadline && missing <= 0 {
                break;
            }
            at = node.item.sums().end(at);
            pieces.push(node.item);
        }
        let last = self.places.get(&pieces.last()?.number)?;
        let (_, behind) = self.line.beside(*last);
        pieces.push(new);
        Some(Near { pieces, free, behind })
    }

    /// The first that is done behind a moment.
    fn first_after(&self, moment: i64, begin: i64) -> Option<&Node<Place, Piece>> {
        let (mut found, mut link, mut free) = (None, self.line.root(), begin);
        while let Some(node) = self.line.node(link) {
            let own = self.line.sums(node.left).followed_by(node.item.sums()).end(free);
            if own > moment {
                found = Some(node);
                link = node.left;
            } else {
                free = own;
                link = node.right;
            }
        }
        found.or_else(|| self.line.last())
    }
}

fn in_order(pieces: impl IntoIterator<Item = Piece>, begin: i64) -> Vec<Piece> {
    let line = Timeline::new(pieces, begin, Discipline::NonPreemptive);
    line.turns().map(|(_, turn)| turn.piece).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The first place that makes nobody late, looked for from the beginning.
    fn first_place(order: &[Piece], new: Piece, begin: i64) -> Option<usize> {
        let ends = |order: &[Piece]| {
            let mut at = begin;
            let end = |piece: &Piece| {
                at = piece.release.max(at) + piece.cost;
                at
            };
            order.iter().map(end).collect::<Vec<i64>>()
        };
        let is_good = |order: &[Piece], from: usize| {
            let late = |(piece, end): (&Piece, i64)| end > piece.deadline;
            !order.iter().zip(ends(order)).skip(from).any(late)
        };
        (0..=order.len()).find(|place| {
            let mut with = order.to_vec();
            with.insert(*place, new);
            is_good(&with, *place)
        })
    }

    fn piece() -> impl Strategy<Value = (i64, i64, i64)> {
        (0_i64..60, 0_i64..40, 1_i64..6)
    }

    fn of(number: u64, (release, more, cost): (i64, i64, i64)) -> Piece {
        Piece { number, release, deadline: release + cost + more, idle: 0, cost }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn a_place_is_found_where_looking_at_all_finds_one(
            pieces in prop::collection::vec((piece(), any::<prop::sample::Index>()), 1..40),
            gone in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
            new in piece(),
            begin in 0_i64..10,
            is_good: bool,
        ) {
            let (mut sequence, mut plain) = (Sequence::default(), Vec::<Piece>::new());
            for (number, (one, at)) in (1..).zip(pieces) {
                let (one, place) = (of(number, one), at.index(plain.len() + 1));
                sequence.insert(one, Change::Before(plain.get(place).map(|next| next.number)));
                plain.insert(place, one);
            }
            for at in gone {
                if !plain.is_empty() {
                    sequence.remove(plain.remove(at.index(plain.len())).number);
                }
            }
            if is_good {
                let ends: Vec<i64> = sequence.turns(begin).map(|(_, _, to)| to).collect();
                for (piece, end) in plain.iter_mut().zip(ends) {
                    piece.deadline = piece.deadline.max(end);
                }
                sequence = Sequence::default();
                plain.iter().for_each(|piece| sequence.push(*piece));
            }
            let order: Vec<u64> = plain.iter().map(|piece| piece.number).collect();
            prop_assert_eq!(sequence.numbers().collect::<Vec<_>>(), order);
            let turns: Vec<(Piece, i64, i64)> = sequence.turns(begin).collect();
            let spare = turns.iter().map(|(piece, _, to)| piece.deadline - to).min();
            let later = |by: i64| sequence.turns(begin + by).all(|(it, _, to)| to <= it.deadline);
            let found = sequence.spare(begin);
            prop_assert_eq!(found >= 0, spare.is_none_or(|spare| spare >= 0));
            prop_assert!(!(0..=1_000).contains(&found) || later(found));
            for (piece, _, to) in &turns {
                prop_assert_eq!(sequence.end_of(piece.number, begin), Some(*to));
                let mut without = sequence.clone();
                without.remove(piece.number);
                prop_assert_eq!(sequence.spare_without(piece.number, begin), without.spare(begin));
            }
            if !is_good {
                return Ok(());
            }
            let new = of(1_000, new);
            let expected = first_place(&plain, new, begin);
            let place = match sequence.with(new, begin) {
                Some(Change::Before(None)) => Some(plain.len()),
                Some(Change::Before(Some(next))) => plain.iter().position(|it| it.number == next),
                Some(Change::Reorder(order)) => {
                    sequence.insert(new, Change::Reorder(order));
                    prop_assert!(sequence.spare(begin) >= 0);
                    prop_assert_eq!(sequence.numbers().count(), plain.len() + 1);
                    None
                }
                None => None,
            };
            prop_assert_eq!(place, expected);
        }
    }

    #[test]
    fn neighbours_find_room_between_each_other_for_ever() {
        let mut sequence = Sequence::default();
        sequence.push(of(0, (0, 9, 1)));
        for number in 1..500 {
            sequence.insert(of(number, (0, 9, 1)), Change::Before(Some(0)));
        }
        let expected: Vec<u64> = (1..500).chain([0]).collect();
        assert_eq!(sequence.numbers().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn where_there_are_many_only_those_near_it_are_put_in_another_order() {
        let mut sequence = Sequence::default();
        // Each has its time, and one hour to spare behind it.
        (0..1_000).for_each(|at| sequence.push(of(at as u64, (at * 10, 4, 6))));
        let long = of(5_000, (5_000, 9, 9));
        assert!(sequence.with(long, 0).is_none());
        // Two that can change places, and something that fits only then.
        sequence.remove(500);
        sequence.remove(501);
        let (first, second) = (of(2_000, (5_000, 14, 4)), of(2_001, (5_004, 0, 4)));
        sequence.insert(first, Change::Before(Some(502)));
        sequence.insert(second, Change::Before(Some(502)));
        assert_eq!(sequence.spare(0), 0);
        let urgent = of(2_002, (5_000, 0, 4));
        let change = sequence.with(urgent, 0).unwrap();
        assert!(matches!(&change, Change::Reorder(order) if order.len() < 8), "{change:?}");
        sequence.insert(urgent, change);
        assert!(sequence.spare(0) >= 0);
        let order: Vec<u64> = sequence.numbers().skip(499).take(5).collect();
        assert_eq!(order, [499, 2_002, 2_001, 2_000, 502]);
    }
}
