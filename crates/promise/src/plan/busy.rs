//! Work that nobody was promised and that goes on all the same: it takes the resource until it is done.

use legwork_model::time::Timestamp;

use super::{Discipline, Plan, Ticket};
use crate::supply::Work;

impl Plan {
    /// Something that is not in the plan takes the resource until then; nothing does if `None`.
    pub fn occupy_until(&mut self, moment: Option<Timestamp>) {
        self.busy = moment.map_or(i64::MIN, |moment| self.supply.until(moment).0);
    }

    /// It is not free before then, with all that takes it and all that was begun.
    pub(crate) fn occupy_no_less_than_until(&mut self, moment: Timestamp) {
        let until = self.supply.until(moment).0;
        self.busy = self.busy.max(until - self.left_at_hand().0);
    }

    /// Whether something that is not in the plan takes the resource now.
    pub fn is_occupied(&self) -> bool {
        self.busy > self.now
    }

    /// Until when something that is not in the plan takes the resource, by the clock.
    pub(crate) fn occupied_until(&self) -> Option<Timestamp> {
        self.supply.moment(Work(self.busy)).filter(|_| self.is_occupied())
    }

    /// Since when nobody works on what they had begun before, by the clock.
    pub(crate) fn free_since(&self) -> Option<Timestamp> {
        self.supply.moment(Work(self.free_since)).filter(|_| self.free_since > i64::MIN)
    }

    /// What was worked before is known, in a plan that was before this one.
    pub(crate) fn note_free_since(&mut self, moment: Timestamp) {
        // By another calendar it may seem to be ahead.
        self.free_since = self.supply.until(moment).0.min(self.now);
    }

    /// From when on it can do something else.
    pub(super) fn begin(&self) -> i64 {
        let free = self.busy.max(self.now);
        match self.discipline {
            Discipline::NonPreemptive => free + self.left_at_hand().0,
            Discipline::Preemptive => self.now,
        }
    }

    /// How much is left of what was begun and cannot be put aside.
    pub(crate) fn left_at_hand(&self) -> Work {
        Work(self.at_hand().map(|(piece, _)| piece.cost).sum())
    }

    /// Whether something can begin now that is not in the plan and takes so long, and makes nobody late.
    pub fn has_turn_for(&mut self, cost: Work) -> bool {
        if self.running.is_some() || self.is_occupied() {
            return false;
        }
        self.has_turn_behind(cost)
    }

    /// Whether nobody is late if something that is not in the plan is done as soon as the resource is free.
    pub(crate) fn has_turn_behind(&mut self, cost: Work) -> bool {
        let until = self.busy.max(self.now).saturating_add(cost.0);
        let before = std::mem::replace(&mut self.busy, until);
        let has_turn = !self.is_endangered();
        self.busy = before;
        has_turn
    }

    /// The same of a reservation that is taken out of its turn.
    pub(crate) fn is_turn_behind(&mut self, ticket: Ticket) -> bool {
        let Some(left) = self.left(ticket) else { return false };
        self.set_aside(ticket);
        let is_turn = self.has_turn_behind(left);
        self.put_all_back();
        is_turn
    }

    /// Whether nothing else is to be worked on before it.
    pub(crate) fn is_next(&self, ticket: Ticket) -> bool {
        self.is_begun(ticket) || self.next() == Some(ticket)
    }

    /// Whether a reservation can be begun now: it is next, or makes nobody late. What was begun before, and is
    /// worked on by nobody, can be.
    pub fn is_turn_of(&mut self, ticket: Ticket) -> bool {
        if self.is_occupied() || self.running.is_some_and(|running| running.number != ticket.0) {
            return false;
        }
        if self.is_next(ticket) {
            return true;
        }
        let Some(left) = self.left(ticket) else { return false };
        if let Some(sequence) = &self.sequence {
            return sequence.spare_without(ticket.0, self.now.saturating_add(left.0)) >= 0;
        }
        self.set_aside(ticket);
        let is_turn = self.has_turn_for(left);
        self.put_all_back();
        is_turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Window;
    use crate::supply::Supply;

    fn plan() -> Plan {
        let supply = Supply::always(Timestamp(0));
        Plan::new(supply, Discipline::NonPreemptive, Timestamp(0))
    }

    fn window(release: i64, deadline: i64) -> Window {
        Window { release: Timestamp(release), deadline: Timestamp(deadline) }
    }

    #[test]
    fn what_goes_on_is_finished_before_anything_is_promised() {
        let mut plan = plan();
        plan.occupy_until(Some(Timestamp(10)));
        assert!(!plan.fits(window(0, 19), Work(10)));
        assert!(plan.fits(window(0, 20), Work(10)));
        assert_eq!(plan.earliest(Timestamp(0), Work(10)), Some(Timestamp(20)));
        plan.occupy_until(None);
        assert!(plan.fits(window(0, 10), Work(10)));
    }

    #[test]
    fn what_nobody_promised_begins_only_where_it_is_done_in_time() {
        let mut plan = plan();
        plan.reserve(window(5, 15), Work(8)).unwrap();
        assert!(plan.has_turn_for(Work(7)));
        assert!(!plan.has_turn_for(Work(8)));
        plan.occupy_until(Some(Timestamp(7)));
        assert!(!plan.has_turn_for(Work(1)), "somebody is at it");
        assert!(plan.endangered().is_empty());
        plan.occupy_until(Some(Timestamp(8)));
        assert_eq!(plan.endangered().len(), 1, "it takes longer than was said");
    }

    #[test]
    fn a_reservation_waits_for_one_that_comes_later_and_is_due_sooner() {
        let mut plan = plan();
        let (long, _) = plan.reserve(window(0, 30), Work(10)).unwrap();
        let (urgent, _) = plan.reserve(window(5, 10), Work(5)).unwrap();
        assert!(!plan.is_turn_of(long));
        plan.pass(Timestamp(5));
        assert!(plan.is_turn_of(urgent));
        plan.begin_with(urgent);
        plan.pass(Timestamp(9));
        assert!(!plan.is_turn_of(long), "the other is not done");
        plan.end(urgent);
        assert!(plan.is_turn_of(long));
        assert_eq!(plan.len(), 1, "to look changes nothing");
    }
}
