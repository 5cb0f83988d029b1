//! A plan beside another of the same resource: what both hold has the same ticket in both.
//!
//! Invariant: a ticket is new in both. Numbers are given also to what is done regularly, by each plan as it sees fit, so
//! whoever takes something into both has them count from the same number first.

use super::{Discipline, Plan, Ticket, Window};
use crate::supply::Work;

impl Plan {
    /// The next reservation, in this window, has a ticket that is new in another plan as well.
    pub(crate) fn count_beside(&mut self, other: &mut Self, window: Window, cost: Work) {
        let piece = other.piece(window, cost);
        // Nothing else has a number there before it is taken in.
        other.cover(piece.release, piece.deadline, cost);
        self.last = self.last.max(other.last);
    }

    /// Whether what another plan has under this ticket fits here as well; false if it is not there.
    pub(crate) fn fits_from(&mut self, other: &Self, ticket: Ticket) -> bool {
        let piece = other.entries.get(&ticket.0).copied();
        // Of what nothing is left nobody has to make way.
        piece.is_some_and(|piece| piece.cost <= 0 || self.piece_fits(piece))
    }

    /// Takes it in.
    pub(crate) fn take_from(&mut self, other: &Self, ticket: Ticket) {
        if let Some(piece) = other.entries.get(&ticket.0).copied() {
            self.last = self.last.max(piece.number);
            self.put_in(piece);
        }
    }

    /// Whether something is taken to be done while time passes, by the order of the plan: in two plans it would not be the
    /// same.
    pub(crate) fn is_worked_by_itself(&self) -> bool {
        self.discipline == Discipline::Preemptive && self.loads.has_unattended()
    }

    /// Something that is not in the plan takes the resource for as long as it does in another.
    pub(crate) fn occupy_as(&mut self, other: &Self) {
        self.busy = other.busy;
    }
}
