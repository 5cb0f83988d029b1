//! Whether something fits into a plan, and from when on it would.

use legwork_model::time::Timestamp;

use super::{Discipline, Plan, Window};
use crate::later::Later;
use crate::sequence::{Change, Sequence};
use crate::supply::Work;
use crate::timeline::Piece;

/// In so many periods of regular work a place is looked for behind everything else.
const PERIODS_TRIED: i64 = 64;

impl Plan {
    /// Whether so much can be done in the window, with everything that is promised already.
    pub fn fits(&mut self, window: Window, cost: Work) -> bool {
        let piece = self.piece(window, cost);
        self.piece_fits(piece)
    }

    /// The earliest moment for which so much could be promised if it is released then.
    pub fn earliest(&mut self, release: Timestamp, cost: Work) -> Option<Timestamp> {
        if cost.0 <= 0 {
            return None;
        }
        let from = self.supply.until(release).0.max(self.now);
        // Nobody knows of so much working time, if there ever is.
        self.supply.moment(Work(from.checked_add(cost.0)?))?;
        let least = self.earliest_by_sums(from, cost);
        if from == self.now && self.sums_are_exact() {
            return self.moment_promised(least);
        }
        // Twice as far until it fits, then between the last two.
        let furthest = self.furthest_place(from);
        let number = self.last + 1;
        let piece = |deadline| Piece { number, release: from, deadline, idle: 0, cost: cost.0 };
        let (mut short, mut long, mut step) = (least - 1, least, cost.0);
        while !self.piece_fits(piece(long)) {
            short = long;
            if short > furthest {
                return None;
            }
            self.supply.moment(Work(short))?;
            long = long.checked_add(step)?;
            step = step.checked_mul(2)?;
        }
        while long - short > 1 {
            let middle = short + (long - short) / 2;
            if self.piece_fits(piece(middle)) { long = middle } else { short = middle }
        }
        self.moment_promised(long)
    }

    /// Before this the sums have no room for it, as far as they tell.
    fn earliest_by_sums(&mut self, from: i64, cost: Work) -> i64 {
        let mut least = from + cost.0;
        if !self.sums_are_exact() {
            return least;
        }
        loop {
            self.cover(from, least, cost);
            let begin = self.begin();
            least = least.max(begin + self.tree.ahead_of(begin + cost.0) + cost.0);
            if least <= self.loads.covered() || self.loads.is_empty() {
                return least;
            }
        }
    }

    /// Up to where a place is looked for. What can be put aside has one somewhere; what cannot may have none between
    /// regular work, however far ahead.
    fn furthest_place(&self, from: i64) -> i64 {
        if self.discipline == Discipline::Preemptive || self.loads.is_empty() {
            return i64::MAX;
        }
        let last = self.entries.values().map(|piece| piece.deadline).max().unwrap_or(from);
        last.max(from).saturating_add(PERIODS_TRIED * self.loads.period_max())
    }

    /// How much more could be done by a moment if it can begin now. May be negative.
    pub(crate) fn room(&mut self, until: Timestamp) -> Work {
        let deadline = self.supply.until(until).0 - self.lag;
        self.cover(self.now, deadline, Work(0));
        Work(self.tree.room(deadline).saturating_sub(self.begin()))
    }

    pub(super) fn piece_fits(&mut self, piece: Piece) -> bool {
        let begin = self.begin();
        if piece.cost <= 0 || piece.deadline - piece.release.max(begin) < piece.cost {
            return false;
        }
        self.cover(piece.release, piece.deadline, Work(piece.cost));
        let room = self.tree.room(piece.deadline).saturating_sub(begin);
        if piece.release <= self.now && self.sums_are_exact() {
            return room >= piece.cost;
        }
        // All fit if, from any moment to any deadline, what is released and due between them does. From now on that is
        // everything, and sums tell. From any later moment on it is only what is released later, however much is to be
        // done before.
        room >= piece.cost
            && match self.discipline {
                Discipline::Preemptive => self.later().fits(piece),
                Discipline::NonPreemptive => self.change_for(piece).is_some(),
            }
    }

    /// Whether the sums alone tell if something fits that can begin at once: those that come later cannot
    /// be in its way, unless it cannot be put aside.
    fn sums_are_exact(&self) -> bool {
        self.discipline == Discipline::Preemptive || self.coming.is_empty()
    }

    /// How one more can be taken into the order of work that cannot be put aside.
    pub(super) fn change_for(&mut self, piece: Piece) -> Option<Change> {
        let begin = self.begin();
        self.ordered().with(piece, begin)
    }

    /// The order of work that cannot be put aside; by deadlines if none has been found yet.
    pub(super) fn ordered(&mut self) -> &mut Sequence {
        let begin = self.begin();
        let Self { entries, sequence, .. } = self;
        sequence.get_or_insert_with(|| Sequence::by_deadline(entries.values().copied(), begin))
    }

    /// What is not released yet, as if there were nothing else.
    pub(super) fn later(&mut self) -> &mut Later {
        let Self { entries, coming, later, .. } = self;
        let pieces = coming.iter().filter_map(|(_, number)| entries.get(number).copied());
        later.get_or_insert_with(|| Later::new(pieces))
    }
}
