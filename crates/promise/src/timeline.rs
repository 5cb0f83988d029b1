//! The order of work under EDF where not everything can begin at once.
//!
//! A timeline tells who works when, all releases and deadlines regarded. Of what is not released yet it answers what
//! the sums of the tree cannot: whether more fits among it. Of everything, it is what a Gantt chart shows.
//!
//! Invariant: whatever changes, the turns are those that would come out if all were put in order anew. Only
//! the part is that a change reaches: from where it happens up to a point at which, with it and without it,
//! all is done that could be begun. If that is too far, nothing is changed, and whoever asked for it is told so.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::plan::Discipline;
use crate::tree::Key;

/// A change that reaches over more turns than this, and over more than such a part of all, is not made; nor is a question
/// answered that does. Few in tests, so
/// that both happens there.
const FAR: usize = if cfg!(test) { 6 } else { 24 };
const FAR_PART: usize = 8;

/// Work to be put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) number: u64,
    pub(crate) release: i64,
    pub(crate) deadline: i64,
    /// For how long nobody works from there until it is due by the clock. What is due in the same night has the same
    /// deadline, and people do that first which is due first.
    pub(crate) idle: i64,
    pub(crate) cost: i64,
}

impl Piece {
    /// Where it stands in the order of deadlines.
    pub(crate) fn key(&self) -> Key {
        let Self { number, deadline, idle, .. } = *self;
        Key { deadline, idle, number }
    }
}

/// Somebody's turn, from where it stands in the timeline until `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) piece: Piece,
    pub(crate) to: i64,
}

/// All turns by their beginning; between them nobody works.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    turns: BTreeMap<i64, Turn>,
}

/// A part of a timeline that something changes.
struct Reach {
    from: i64,
    /// Where it ends.
    end: i64,
    /// What is worked on in it, turn by turn, each with so much of its cost.
    pieces: Vec<Piece>,
}

impl Timeline {
    /// Puts pieces in order from `base` on. What is one piece may come in several.
    pub(crate) fn new(
        pieces: impl IntoIterator<Item = Piece>,
        base: i64,
        discipline: Discipline,
    ) -> Self {
        let mut coming: Vec<Piece> = pieces.into_iter().collect();
        coming.sort_unstable_by_key(|piece| Reverse((piece.release, piece.number)));
        let mut ready = BinaryHeap::new();
        let (mut line, mut now) = (Self::default(), base);
        loop {
            while let Some(piece) = coming.pop_if(|piece| piece.release <= now) {
                ready.push(Reverse((piece.key(), piece.cost, piece.release)));
            }
            let Some(Reverse((key, cost, release))) = ready.pop() else {
                match coming.last() {
                    Some(next) => now = next.release,
                    None => return line,
                }
                continue;
            };
            let interrupted = match discipline {
                Discipline::Preemptive => coming.last().map_or(i64::MAX, |next| next.release),
                Discipline::NonPreemptive => i64::MAX,
            };
            let to = interrupted.min(now + cost);
            let left = cost - (to - now);
            let Key { deadline, idle, number } = key;
            line.append(now, to, Piece { number, release, deadline, idle, cost });
            if left > 0 {
                ready.push(Reverse((key, left, release)));
            }
            now = to;
        }
    }

    fn append(&mut self, from: i64, to: i64, piece: Piece) {
        if let Some(mut last) = self.turns.last_entry() {
            let turn = last.get_mut();
            if turn.to == from && turn.piece.number == piece.number {
                turn.to = to;
                return;
            }
        }
        if from < to {
            self.turns.insert(from, Turn { piece, to });
        }
    }

    /// All turns with their beginnings.
    pub(crate) fn turns(&self) -> impl Iterator<Item = (i64, &Turn)> {
        self.turns.iter().map(|(from, turn)| (*from, turn))
    }

    /// What is to be done, each with all of its turns.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        let turns = self.turns.iter();
        let mut pieces: Vec<Piece> =
            turns.map(|(from, turn)| Piece { cost: turn.to - from, ..turn.piece }).collect();
        pieces.sort_by_key(|piece| piece.number);
        pieces.dedup_by(|turn, first| {
            let is_same = turn.number == first.number;
            first.cost += if is_same { turn.cost } else { 0 };
            is_same
        });
        pieces
    }

    /// When a piece is done.
    pub(crate) fn end_of(&self, piece: Piece) -> Option<i64> {
        let mut left = piece.cost;
        let own = self.turns_from(piece.release).filter(|(_, it)| it.piece.number == piece.number);
        let mut ends = own.map(|(from, turn)| {
            left -= turn.to - from;
            (left, turn.to)
        });
        ends.find(|(left, _)| *left <= 0).map(|(_, end)| end)
    }

    /// When each is done of which something is left.
    pub(crate) fn ends(&self) -> Vec<(Piece, i64)> {
        let mut seen = BTreeSet::new();
        let last = self.turns.values().rev().filter(|turn| seen.insert(turn.piece.number));
        last.map(|turn| (turn.piece, turn.to)).collect()
    }

    /// Whether new work fits if whoever can wait does. Exact for preemptive EDF.
    pub(crate) fn fits(&self, new: Piece) -> bool {
        self.fits_within(usize::MAX, new) == Some(true)
    }

    /// The same; `None` if that reaches too far.
    pub(crate) fn fits_nearby(&self, new: Piece) -> Option<bool> {
        self.fits_within(self.far(), new)
    }

    /// The same; `None` if that reaches over more turns.
    fn fits_within(&self, turns: usize, new: Piece) -> Option<bool> {
        let time = |deadline: i64| deadline - new.release;
        let (mut at, mut missing) = (new.release, new.cost);
        // What has to be done by its deadline, the new work with it; and what is due later.
        let (mut sooner, mut later) = (new.cost, Vec::new());
        for (number, (begin, turn)) in self.turns_from(new.release).enumerate() {
            if begin - at >= missing {
                break;
            }
            if number >= turns {
                return None;
            }
            missing -= begin - at;
            at = turn.to;
            if turn.piece.deadline <= new.deadline {
                sooner += turn.to - begin;
            } else {
                later.push((turn.piece.deadline, turn.to - begin));
            }
            if sooner > time(new.deadline) {
                return Some(false);
            }
        }
        let end = at + missing;
        if end <= new.deadline {
            return Some(true);
        }
        later.sort_unstable();
        // What is due behind the end of the reach is not disturbed.
        let disturbed = later.into_iter().take_while(|(deadline, _)| *deadline < end);
        let mut sum = sooner;
        Some(disturbed.into_iter().all(|(deadline, cost)| {
            sum += cost;
            sum <= time(deadline)
        }))
    }

    /// Whether all are done by their deadlines.
    pub(crate) fn is_in_time(&self) -> bool {
        self.turns.values().all(|turn| turn.to <= turn.piece.deadline)
    }

    /// Takes new work in; those that can wait do. False if that reaches too far.
    #[must_use]
    pub(crate) fn insert(&mut self, new: Piece) -> bool {
        let mut reach = Reach { from: new.release, end: new.release, pieces: vec![new] };
        let mut missing = new.cost;
        for (begin, turn) in self.turns_from(new.release) {
            if begin - reach.end >= missing {
                break;
            }
            missing -= begin - reach.end;
            reach.end = turn.to;
            reach.pieces.push(Piece { cost: turn.to - begin, ..turn.piece });
            if self.is_far(reach.pieces.len()) {
                return false;
            }
        }
        // As much as the new work was idle up to here.
        reach.end += missing;
        self.reorder(reach);
        true
    }

    /// Takes so much work of a piece out, that of its first turns. False if that reaches too far.
    #[must_use]
    pub(crate) fn remove(&mut self, piece: Piece) -> bool {
        if piece.cost == 0 {
            return true;
        }
        let mut behind = self.turns.range(piece.release..);
        let first = behind.find(|(_, turn)| turn.piece.number == piece.number);
        let Some(from) = first.map(|(from, _)| *from) else { return true };
        let mut too_much = piece.cost;
        self.reduce(from, |turn| {
            let less = if turn.number == piece.number { too_much.min(turn.cost) } else { 0 };
            too_much -= less;
            turn.cost - less
        })
    }

    /// Takes everything out that is released by now. False if that reaches too far.
    #[must_use]
    pub(crate) fn release(&mut self, now: i64) -> bool {
        while let Some(from) = self.turns.keys().next().copied().filter(|from| *from <= now) {
            if !self.reduce(from, |turn| if turn.release > now { turn.cost } else { 0 }) {
                return false;
            }
        }
        true
    }

    fn is_far(&self, turns: usize) -> bool {
        turns > self.far()
    }

    fn far(&self) -> usize {
        FAR.max(self.turns.len() / FAR_PART)
    }

    /// What is done from a point on, also by the turn that goes on there.
    fn turns_from(&self, from: i64) -> impl Iterator<Item = (i64, &Turn)> {
        let running = self.turns.range(..from).next_back().filter(|(_, turn)| turn.to > from);
        let behind = self.turns.range(from..).map(|(begin, turn)| (*begin, turn));
        running.map(|(_, turn)| (from, turn)).into_iter().chain(behind)
    }

    /// Leaves so much of each turn from a point on, up to the first pause. Others have less to wait for then: where
    /// nobody worked, nobody will.
    fn reduce(&mut self, from: i64, mut left: impl FnMut(Piece) -> i64) -> bool {
        let mut reach = Reach { from, end: from, pieces: Vec::new() };
        for (begin, turn) in self.turns.range(from..) {
            if *begin > reach.end {
                break;
            }
            reach.end = turn.to;
            let cost = left(Piece { cost: turn.to - begin, ..turn.piece });
            reach.pieces.extend((cost > 0).then_some(Piece { cost, ..turn.piece }));
            if self.is_far(reach.pieces.len()) {
                return false;
            }
        }
        self.reorder(reach);
        true
    }

    /// Puts a part in order anew.
    fn reorder(&mut self, reach: Reach) {
        let Reach { from, end, pieces } = reach;
        self.cut(from);
        let old: Vec<i64> = self.turns.range(from..end).map(|(begin, _)| *begin).collect();
        for begin in old {
            self.turns.remove(&begin);
        }
        self.turns.extend(Self::new(pieces, from, Discipline::Preemptive).turns);
        self.join(from);
    }

    /// Ends the turn that goes on at a point, and begins it anew there.
    fn cut(&mut self, at: i64) {
        let Some((_, turn)) = self.turns.range_mut(..at).next_back() else { return };
        if turn.to > at {
            let rest = *turn;
            turn.to = at;
            self.turns.insert(at, rest);
        }
    }

    /// Makes two turns one if the same is worked on before a point and behind it.
    fn join(&mut self, at: i64) {
        let Some(next) = self.turns.get(&at).copied() else { return };
        let Some((_, turn)) = self.turns.range_mut(..at).next_back() else { return };
        if turn.to == at && turn.piece.number == next.piece.number {
            turn.to = next.to;
            self.turns.remove(&at);
        }
    }
}
