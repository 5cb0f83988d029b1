//! A stretch of work in a fixed order: when it ends, and by when it has to begin.
//!
//! Begun at *t*, pieces one after the other end at the later of *t* and all their costs, and of when they would end
//! if everything before them had been done for ever: whoever is not released yet makes all behind it wait. Both
//! follow from the same two of its halves, and so does the latest beginning with which all are in time.

use crate::timeline::Piece;
use crate::treap::Sums;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    cost: i64,
    /// When it ends at the soonest, for the sake of releases.
    soonest: i64,
    /// When it has to begin at the latest.
    latest: i64,
    /// How late somebody is whenever it begins; negative if nobody is.
    late: i64,
    first_release: i64,
    last_deadline: i64,
    /// The most that could go between two of its pieces with nobody late, or more than that.
    gap: i64,
}

impl Stretch {
    pub(crate) fn of(piece: &Piece) -> Self {
        let soonest = piece.release + piece.cost;
        Self {
            cost: piece.cost,
            soonest,
            latest: piece.deadline - piece.cost,
            late: soonest - piece.deadline,
            first_release: piece.release,
            last_deadline: piece.deadline,
            gap: i64::MIN,
        }
    }

    fn is_empty(&self) -> bool {
        self.soonest == i64::MIN
    }

    /// When it ends if it begins then, or as soon as it can.
    pub(crate) fn end(&self, begin: i64) -> i64 {
        self.soonest.max(begin + self.cost)
    }

    /// When it has to begin at the latest if what is behind it has to by then.
    pub(crate) fn latest_before(&self, next: i64) -> i64 {
        self.latest.min(next.saturating_sub(self.cost))
    }

    /// By how much it can begin later with nobody late; negative if somebody is.
    pub(crate) fn spare(&self, begin: i64) -> i64 {
        self.latest.saturating_sub(begin).min(self.late.saturating_neg())
    }

    /// False if one more makes somebody late before whichever of its pieces it comes.
    pub(crate) fn may_have_room(&self, begin: i64, next: i64, new: Piece) -> bool {
        let end = begin.max(new.release) + new.cost;
        if end <= self.latest_before(next) {
            return true;
        }
        let behind = next.saturating_sub(self.cost);
        let most = self.gap.min(behind.saturating_sub(self.first_release.max(begin)));
        let most = most.min(self.last_deadline - self.cost - begin);
        end <= self.last_deadline.min(next) && new.cost <= most
    }
}

impl Sums for Stretch {
    const EMPTY: Self = Self {
        cost: 0,
        soonest: i64::MIN,
        latest: i64::MAX,
        late: i64::MIN,
        first_release: i64::MAX,
        last_deadline: i64::MIN,
        gap: i64::MIN,
    };

    fn followed_by(self, next: Self) -> Self {
        if self.is_empty() || next.is_empty() {
            return if self.is_empty() { next } else { self };
        }
        // What fits between two of one half may not for the sake of the other.
        let here = self.gap.min(next.latest.saturating_sub(self.first_release + self.cost));
        let there = next.gap.min(next.last_deadline - next.cost - self.soonest);
        Self {
            cost: self.cost + next.cost,
            soonest: next.end(self.soonest),
            latest: self.latest_before(next.latest),
            late: self.late.max(next.late).max(self.soonest.saturating_sub(next.latest)),
            first_release: self.first_release,
            last_deadline: next.last_deadline,
            gap: here.max(next.latest.saturating_sub(self.soonest)).max(there),
        }
    }
}
