//! The order of work that cannot be put aside while some of it is not released yet.
//!
//! There, to be done sooner than said can do harm: whoever is free takes something long, and what is
//! released next has to wait for it. So an order that was found good is kept: in a fixed order nobody is
//! later because somebody else was sooner.

use std::collections::BTreeMap;

use crate::plan::Discipline;
use crate::timeline::{Piece, Timeline};

pub(crate) type Pieces = BTreeMap<u64, Piece>;

#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    numbers: Vec<u64>,
}

impl Sequence {
    /// By deadlines, as soon as each is released.
    pub(crate) fn by_deadline(pieces: &Pieces, begin: i64) -> Self {
        let all = pieces.values().copied();
        let line = Timeline::new(all, begin, Discipline::NonPreemptive);
        Self { numbers: line.turns().map(|(_, turn)| turn.piece.number).collect() }
    }

    pub(crate) fn first(&self) -> Option<u64> {
        self.numbers.first().copied()
    }

    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.numbers.iter().copied()
    }

    /// The same with one more behind all others.
    pub(crate) fn and_then(mut self, number: u64) -> Self {
        self.numbers.push(number);
        self
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.numbers.retain(|of| *of != number);
    }

    /// When each is worked on: its piece, from, to.
    pub(crate) fn turns<'a>(
        &'a self,
        pieces: &'a Pieces,
        begin: i64,
    ) -> impl Iterator<Item = (Piece, i64, i64)> + 'a {
        let known = self.numbers.iter().filter_map(|number| pieces.get(number).copied());
        known.scan(begin, |at, piece| {
            let from = piece.release.max(*at);
            *at = from + piece.cost;
            Some((piece, from, *at))
        })
    }

    /// Those that are late in this order.
    pub(crate) fn late<'a>(
        &'a self,
        pieces: &'a Pieces,
        begin: i64,
    ) -> impl Iterator<Item = u64> + 'a {
        let turns = self.turns(pieces, begin);
        turns.filter(|(piece, _, to)| *to > piece.deadline).map(|(piece, _, _)| piece.number)
    }

    /// The order with a new piece at the first place where it makes nobody late; else by deadlines, if that
    /// does; `None` if it makes somebody late there as well.
    pub(crate) fn with(&self, new: Piece, pieces: &Pieces, begin: i64) -> Option<Self> {
        let turns: Vec<_> = self.turns(pieces, begin).collect();
        // The latest that each and all behind it can begin.
        let mut latest = vec![i64::MAX; turns.len() + 1];
        for (place, (piece, _, _)) in turns.iter().enumerate().rev() {
            latest[place] = piece.deadline.min(latest[place + 1]) - piece.cost;
        }
        let ends = std::iter::once(begin).chain(turns.iter().map(|(_, _, to)| *to));
        let place = ends.zip(&latest).position(|(free, latest)| {
            let end = free.max(new.release) + new.cost;
            end <= new.deadline && end <= *latest
        });
        if let Some(place) = place {
            let mut numbers: Vec<u64> = turns.iter().map(|(piece, _, _)| piece.number).collect();
            numbers.insert(place, new.number);
            return Some(Self { numbers });
        }
        let mut all = pieces.clone();
        all.insert(new.number, new);
        let anew = Self::by_deadline(&all, begin);
        let is_good = anew.late(&all, begin).next().is_none();
        is_good.then_some(anew)
    }
}
