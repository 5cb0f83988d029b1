//! One of the plans of a resource, and what is in it.
//!
//! Invariant: while there is room for something at the expense of others, there are two plans, one with those who make way
//! and one with what they make way for ([`Rooms`]). All else is in both, so whatever comes of it, nothing has to be put in
//! order anew.

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::time::Timestamp;

use super::rooms::Rooms;
use crate::factor::Factor;
use crate::plan::{Plan, Ticket, Times, Window};
use crate::supply::Work;
use crate::task::TaskId;

#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) plan: Plan,
    pub(super) tasks: BTreeMap<Ticket, TaskId>,
    /// Somebody was given these, and may be at work or not.
    pub(super) out: BTreeSet<Ticket>,
    pub(super) factor: Factor,
    pub(super) rooms: Option<Box<Rooms>>,
    /// Until then it may be busy with something that nobody knows of.
    pub(super) shade: Option<Timestamp>,
}

impl Lane {
    pub(super) fn new(plan: Plan, shade: Option<Timestamp>) -> Self {
        let (tasks, out) = (BTreeMap::new(), BTreeSet::new());
        let mut lane = Self { plan, tasks, out, factor: Factor::default(), rooms: None, shade };
        lane.refresh();
        lane
    }

    /// Whether a task fits, whether or not the room that is held here will be taken, and whether or not there is something
    /// that nobody knows of.
    pub(super) fn fits(&mut self, window: Window, service: Work) -> bool {
        let fits = |plan: &mut Plan| plan.fits(window, service);
        // Both may be so at the same time.
        fits(&mut self.plan)
            && self.in_shade(&self.plan, fits)
            && (self.rooms.is_none() || self.is_so_ahead(fits))
    }

    /// The earliest moment for which something could be promised, whether or not that room will be taken, and whether or not
    /// there is something that nobody knows of.
    pub(super) fn earliest(&mut self, release: Timestamp, service: Work) -> Option<Timestamp> {
        let mut latest = self.plan.earliest(release, service)?;
        self.drop_rooms_that_are_gone();
        let ahead = self.rooms.as_ref().map(|rooms| rooms.ahead.clone());
        let both = ahead.as_ref().and_then(|plan| self.shaded(plan));
        for mut plan in [self.shaded(&self.plan), ahead, both].into_iter().flatten() {
            latest = latest.max(plan.earliest(release, service)?);
        }
        Some(latest)
    }

    /// Reserves so much if it fits where nobody makes way.
    pub(super) fn reserve(&mut self, window: Window, service: Work) -> Option<(Ticket, Times)> {
        if let Some(rooms) = &mut self.rooms {
            self.plan.count_beside(&mut rooms.ahead, window, service);
        }
        let (ticket, times) = self.plan.reserve(window, service)?;
        if let Some(rooms) = &mut self.rooms {
            rooms.ahead.restore_as(ticket, window, service, None);
        }
        self.refresh();
        Some((ticket, times))
    }

    pub(super) fn restore(
        &mut self,
        window: Window,
        left: Work,
        begun: Option<Timestamp>,
    ) -> Ticket {
        if let Some(rooms) = &mut self.rooms {
            self.plan.count_beside(&mut rooms.ahead, window, left);
        }
        let ticket = self.plan.restore(window, left, begun);
        if let Some(rooms) = &mut self.rooms {
            rooms.ahead.restore_as(ticket, window, left, begun);
        }
        self.refresh();
        ticket
    }

    pub(super) fn begin(&mut self, ticket: Ticket) {
        let is_bound = self.is_bound(ticket);
        self.both().for_each(|plan| plan.begin_with(ticket));
        match self.rooms.as_mut().filter(|_| is_bound) {
            Some(rooms) => drop(rooms.bound.insert(ticket)),
            None => self.given_or_not(ticket),
        }
        self.refresh();
    }

    /// Somebody was given it, and may be at work or not.
    pub(super) fn doubt(&mut self, ticket: Ticket) {
        self.out.insert(ticket);
        self.given_or_not(ticket);
    }

    pub(super) fn undoubt(&mut self, ticket: Ticket) {
        if self.out.remove(&ticket) {
            self.given_or_not(ticket);
        }
    }

    pub(super) fn end(&mut self, ticket: Ticket) {
        for plan in self.both() {
            plan.end(ticket);
        }
        self.tasks.remove(&ticket);
        self.out.remove(&ticket);
        let was_other = |rooms: &mut Box<Rooms>| {
            rooms.bound.remove(&ticket);
            rooms.others.remove(&ticket)
        };
        if self.rooms.as_mut().is_some_and(was_other) {
            self.see_what_is_gone();
        }
        self.refresh();
    }

    /// Nobody counts on it any more; answers whether whoever works on it goes on all the same.
    pub(super) fn give_up(&mut self, ticket: Ticket) -> bool {
        if let Some(rooms) = &mut self.rooms {
            rooms.ahead.give_up(ticket);
        }
        self.plan.give_up(ticket)
    }

    pub(super) fn pass(&mut self, now: Timestamp) {
        let has_passed = self.rooms.is_some() && self.plan.time_until(now).0 > 0;
        self.both().for_each(|plan| plan.pass(now));
        // Who works on what makes way works on nothing else.
        let is_bound = self.rooms.as_ref().is_some_and(|rooms| !rooms.bound.is_empty());
        if has_passed && (is_bound || self.plan.is_worked_by_itself()) {
            self.look_ahead_again();
        }
    }

    pub(super) fn occupy_until(&mut self, moment: Option<Timestamp>) {
        self.both().for_each(|plan| plan.occupy_until(moment));
        self.refresh();
    }

    pub(super) fn stop(&mut self) {
        self.plan.stop();
        // What waits again makes way again.
        self.look_ahead_again();
        self.see_what_is_gone();
        self.refresh();
    }

    /// Somebody has begun it, or was given it and may have: it makes way for nothing any more, unless that was promised before.
    pub(super) fn is_given(&self, ticket: Ticket) -> bool {
        let is_bound = self.rooms.as_ref().is_some_and(|rooms| rooms.bound.contains(&ticket));
        !is_bound && (self.plan.is_begun(ticket) || self.out.contains(&ticket))
    }

    pub(super) fn refresh(&mut self) {
        self.factor.refresh(&self.plan);
    }

    fn both(&mut self) -> impl Iterator<Item = &mut Plan> {
        let ahead = self.rooms.iter_mut().map(|rooms| &mut rooms.ahead);
        std::iter::once(&mut self.plan).chain(ahead)
    }
}
