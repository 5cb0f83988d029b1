//! Room in a lane at the expense of others: how the plan will be when they have made way.
//!
//! The steps of a case go ahead together, and one may have its room in what others make way for another. So there is one
//! plan ahead for all of them, and those who make way do so for any of them that is there in the end.
//!
//! Invariant: nobody is late in the plan ahead as long as nobody begins what is to make way and nothing takes longer than
//! was said; so also if only some of what they make way for is there in the end.

use std::collections::BTreeSet;

use super::lane::Lane;
use crate::plan::{Plan, Ticket, Window};
use crate::task::{Task, TaskId};

#[derive(Clone, Debug)]
pub(super) struct Rooms {
    /// The plan without those who make way, and with what they make way for.
    pub(super) ahead: Plan,
    pub(super) all: Vec<Room>,
    /// Those who make way, as far as it is needed when it goes ahead. What somebody was given meanwhile does not.
    pub(super) others: BTreeSet<Ticket>,
    /// Of these, who were begun when room was taken already and can be put aside: they make way all the same, because what
    /// they make way for is promised, and may have gone ahead before anybody began.
    pub(super) bound: BTreeSet<Ticket>,
}

/// Room for a task that is not in the plan yet.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) task: Task,
    /// Of whoever does it.
    pub(super) window: Window,
    /// In the plan ahead.
    pub(super) ticket: Ticket,
    /// The task is promised; those who make way do not know yet.
    pub(super) is_taken: bool,
    /// There is not enough any more, since somebody has begun what was to make way.
    pub(super) is_gone: bool,
}

impl Rooms {
    fn room(&self, id: TaskId) -> Option<&Room> {
        self.all.iter().find(|room| room.task.id == id)
    }

    /// The plan ahead with only some of what others make way for.
    pub(super) fn ahead_with(&self, is_there: impl Fn(&Room) -> bool) -> Plan {
        let mut plan = self.ahead.clone();
        for room in self.all.iter().filter(|room| !is_there(room)) {
            plan.end(room.ticket);
        }
        plan
    }
}

impl Lane {
    pub(super) fn room(&self, id: TaskId) -> Option<&Room> {
        self.rooms.as_ref()?.room(id)
    }

    pub(super) fn room_mut(&mut self, id: TaskId) -> Option<&mut Room> {
        self.rooms.as_mut()?.all.iter_mut().find(|room| room.task.id == id)
    }

    /// Whether somebody here does not know yet that they make way.
    pub(super) fn is_in_suspense(&self) -> bool {
        self.rooms.as_ref().is_some_and(|rooms| rooms.all.iter().any(|room| room.is_taken))
    }

    /// Whether it is one of those who make way.
    pub(super) fn makes_way(&self, ticket: Ticket) -> bool {
        self.rooms.as_ref().is_some_and(|rooms| rooms.others.contains(&ticket))
    }

    /// Whether it makes way also if somebody begins it.
    pub(super) fn is_bound(&self, ticket: Ticket) -> bool {
        self.plan.is_preemptive()
            && self.is_in_suspense()
            && self.makes_way(ticket)
            && !self.is_given(ticket)
    }

    /// When no room is taken any more, nobody makes way who has begun.
    pub(super) fn free_bound(&mut self) {
        let is_in_suspense = self.is_in_suspense();
        let Some(rooms) = self.rooms.as_mut().filter(|_| !is_in_suspense) else { return };
        if !std::mem::take(&mut rooms.bound).is_empty() {
            self.look_ahead_again();
            self.see_what_is_gone();
        }
    }

    /// Whether something is so if all room here goes ahead, and whether or not there is something that nobody knows of.
    pub(super) fn is_so_ahead(&mut self, is_so: impl Fn(&mut Plan) -> bool + Copy) -> bool {
        self.drop_rooms_that_are_gone();
        let Some(rooms) = &mut self.rooms else { return true };
        is_so(&mut rooms.ahead)
            && self.rooms.as_ref().is_none_or(|rooms| self.in_shade(&rooms.ahead, is_so))
    }

    /// Whether there is room for a task beside that which is taken.
    pub(super) fn has_room(&self, id: TaskId) -> bool {
        let Some((rooms, room)) = self.rooms.as_ref().zip(self.room(id)) else { return false };
        let is_other = |it: &Room| it.is_taken && !it.is_gone && it.task.id != id;
        let with = rooms.ahead_with(|it| is_other(it) || it.task.id == id);
        let shaded = self.shaded(&with);
        let is_there = |mut with: Plan, in_shade: bool| {
            if with.is_all_in_time() {
                return true;
            }
            // Where somebody is late anyway it may make nobody later.
            let mut without = rooms.ahead_with(is_other);
            if in_shade {
                self.shade_over(&mut without);
            }
            !without.is_all_in_time()
                && without.fits(room.window, room.task.service)
                && makes_nobody_later(&mut with, &mut without)
        };
        is_there(with, false) && shaded.is_none_or(|with| is_there(with, true))
    }

    /// Room that is held and would make somebody late by now is let go: it is in nobody's way.
    pub(super) fn drop_rooms_that_are_gone(&mut self) {
        if self.rooms.as_mut().is_none_or(|rooms| rooms.ahead.is_all_in_time()) {
            return;
        }
        // What has its turn is begun without regard to what is only held, so there may be another order by now.
        if !self.is_in_suspense() {
            self.look_ahead_again();
        }
        let Some(rooms) = &self.rooms else { return };
        let held = rooms.all.iter().filter(|room| !room.is_taken).map(|room| room.task.id);
        for id in held.collect::<Vec<_>>() {
            if !self.has_room(id) {
                self.let_room_go(id);
            }
        }
    }

    pub(super) fn let_room_go(&mut self, id: TaskId) -> Option<Room> {
        let rooms = self.rooms.as_mut()?;
        let at = rooms.all.iter().position(|room| room.task.id == id)?;
        let room = rooms.all.remove(at);
        // Those who make way do so for the rest, as far as that needs it.
        rooms.ahead.end(room.ticket);
        if rooms.all.is_empty() {
            self.rooms = None;
        }
        self.free_bound();
        Some(room)
    }

    /// Somebody was given what is to make way, or does not have it any more. Room that is held and not there then is let go.
    pub(super) fn given_or_not(&mut self, ticket: Ticket) {
        if self.makes_way(ticket) {
            self.look_ahead_again();
            self.see_what_is_gone();
        }
    }

    /// The same of what is to make way and has another ticket now; whether it makes way also if it is begun.
    pub(super) fn makes_way_as(&mut self, ticket: Ticket, is_bound: bool) {
        if let Some(rooms) = &mut self.rooms {
            rooms.others.insert(ticket);
            rooms.bound.extend(is_bound.then_some(ticket));
        }
        self.given_or_not(ticket);
    }

    /// Makes the plan ahead anew, with all there is room for or not.
    pub(super) fn look_ahead_again(&mut self) {
        let Some(rooms) = &self.rooms else { return };
        let mut ahead = self.plan.clone();
        for ticket in rooms.others.iter().filter(|ticket| !self.is_given(**ticket)) {
            ahead.end(*ticket);
        }
        let Some(rooms) = &mut self.rooms else { return };
        for room in &mut rooms.all {
            room.ticket = ahead.restore(room.window, room.task.service, None);
        }
        rooms.ahead = ahead;
    }

    /// Who of those for whom there is room still has it.
    pub(super) fn see_what_is_gone(&mut self) {
        let all = self.rooms.iter_mut().flat_map(|rooms| &mut rooms.all);
        let all: Vec<(TaskId, bool)> = all
            .map(|room| {
                room.is_gone = false;
                (room.task.id, room.is_taken)
            })
            .collect();
        // What was there first stays if there is not enough for all.
        for (id, is_taken) in all.into_iter().rev() {
            let is_gone = !self.has_room(id);
            if is_gone && !is_taken {
                self.let_room_go(id);
            } else if let Some(room) = self.room_mut(id) {
                room.is_gone = is_gone;
            }
        }
    }
}

fn makes_nobody_later(with: &mut Plan, without: &mut Plan) -> bool {
    let before = without.late();
    let is_no_later = |(ticket, by): (Ticket, i64)| {
        before.iter().any(|(other, before)| *other == ticket && *before >= by)
    };
    with.late().into_iter().all(is_no_later)
}
