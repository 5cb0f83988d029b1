//! Whether something fits into a plan, and from when on it would.

use legwork_model::time::Timestamp;

use super::{Discipline, Plan, Window};
use crate::sequence::{Change, Sequence};
use crate::supply::Work;
use crate::timeline::{Piece, Timeline};

impl Plan {
    /// Whether so much can be done in the window, with everything that is promised already.
    pub fn fits(&mut self, window: Window, cost: Work) -> bool {
        let piece = self.piece(window, cost);
        self.piece_fits(piece)
    }

    /// The earliest moment for which so much could be promised if it is released then.
    pub fn earliest(&mut self, release: Timestamp, cost: Work) -> Option<Timestamp> {
        let from = self.supply.until(release).0.max(self.now);
        let mut deadline = from + cost.0;
        if from == self.now && self.sums_are_exact() {
            loop {
                self.cover(from, deadline, cost);
                let begin = self.begin();
                let found = begin + self.tree.ahead_of(begin + cost.0) + cost.0;
                if found <= self.loads.covered() || self.loads.is_empty() {
                    return self.moment_promised(found);
                }
                deadline = found;
            }
        }
        // Twice as far until it fits, then between the last two.
        let number = self.last + 1;
        let piece = |deadline| Piece { number, release: from, deadline, cost: cost.0 };
        let (mut short, mut length) = (from + cost.0 - 1, cost.0.max(1));
        while !self.piece_fits(piece(from + length)) {
            short = from + length;
            length = length.checked_mul(2)?;
            self.supply.moment(Work(short))?;
        }
        let mut long = from + length;
        while long - short > 1 {
            let middle = short + (long - short) / 2;
            if self.piece_fits(piece(middle)) { long = middle } else { short = middle }
        }
        self.moment_promised(long)
    }

    /// How much more could be done by a moment if it can begin now. May be negative.
    pub(crate) fn room(&mut self, until: Timestamp) -> Work {
        let deadline = self.supply.until(until).0 - self.lag;
        self.cover(self.now, deadline, Work(0));
        Work(self.tree.room(deadline).saturating_sub(self.begin()))
    }

    pub(super) fn piece_fits(&mut self, piece: Piece) -> bool {
        let begin = self.begin();
        if piece.deadline - piece.release.max(begin) < piece.cost {
            return false;
        }
        self.cover(piece.release, piece.deadline, Work(piece.cost));
        let room = self.tree.room(piece.deadline).saturating_sub(begin);
        if piece.release <= self.now && self.sums_are_exact() {
            return room >= piece.cost;
        }
        // What is too much from now on is too much from later on.
        room >= piece.cost
            && match self.discipline {
                Discipline::Preemptive => self.timeline().fits(piece),
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

    pub(super) fn timeline(&mut self) -> &Timeline {
        let Self { entries, now, discipline, timeline, .. } = self;
        timeline.get_or_insert_with(|| Timeline::new(entries.values().copied(), *now, *discipline))
    }
}
