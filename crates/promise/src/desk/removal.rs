//! The removal module: less important tasks make way for a more important one.
//!
//! Room is held first and taken later. Whoever needs it at several places takes it when there is enough at all of
//! them, and those who make way do when it goes ahead (`suspense`), so nobody makes way for nothing. Whatever is promised
//! meanwhile fits beside those who would make way, and beside what they would make way for (`rooms`).

use std::cmp::Reverse;

use legwork_model::time::Timestamp;

use super::Desk;
use super::lane::Lane;
use super::rooms::{Room, Rooms};
use crate::plan::{Plan, Ticket, Times, Window};
use crate::task::{Promise, ResourceId, Task, TaskId};

/// Room that was found for a task.
struct Found {
    /// The plan with it.
    ahead: Plan,
    ticket: Ticket,
    times: Times,
    /// Those who make way.
    others: Vec<Ticket>,
    window: Window,
}

impl Desk {
    /// Finds room for a task at the expense of others, and holds it: of those that have a later deadline and a lower
    /// priority, are not begun and may be taken back. As few as possible, of the least important; none if it does not
    /// help. Nothing changes for them before it is taken.
    pub fn hold_room(&mut self, task: &Task) -> Option<Promise> {
        let mut best: Option<(Found, ResourceId, usize)> = None;
        for id in self.who_is_here(task) {
            let lanes = self.resources.get(&id).map_or(0, |resource| resource.lanes.len());
            for lane in 0..lanes {
                for window in task.windows_for(&id) {
                    let Some(found) = self.look_for_room(task, &id, lane, window) else { continue };
                    let is_better =
                        |(best, ..): &(Found, _, _)| found.others.len() < best.others.len();
                    if best.as_ref().is_none_or(is_better) {
                        best = Some((found, id.clone(), lane));
                    }
                }
            }
        }
        let (Found { ahead, ticket, times, others, window }, by, lane) = best?;
        let lane = &mut self.resources.get_mut(&by)?.lanes[lane];
        let rooms = lane.rooms.take().map(|rooms| (rooms.all, rooms.others, rooms.bound));
        let (mut all, mut all_others, bound) = rooms.unwrap_or_default();
        let (is_taken, is_gone) = (false, false);
        all.push(Room { task: task.clone(), window, ticket, is_taken, is_gone });
        all_others.extend(others);
        lane.rooms = Some(Box::new(Rooms { ahead, all, others: all_others, bound }));
        Some(Promise { task: task.id, by, times })
    }

    /// Whether there is room for a task at the expense of others.
    pub fn could_make_room(&self, task: &Task) -> bool {
        self.who_is_here(task).iter().any(|id| {
            let lanes = self.resources.get(id).map_or(0, |resource| resource.lanes.len());
            let windows = task.windows_for(id);
            let mut all = (0..lanes).flat_map(|lane| windows.iter().map(move |it| (lane, *it)));
            all.any(|(lane, window)| self.look_for_room(task, id, lane, window).is_some())
        })
    }

    fn look_for_room(
        &self,
        task: &Task,
        id: &ResourceId,
        number: usize,
        window: Window,
    ) -> Option<Found> {
        let lane = &self.resources.get(id)?.lanes[number];
        let lower = self.removable(task, lane);
        // Where nobody can make way the plan need not be looked at: it may be long.
        if !lane.has_only_room_of(task) || lower.is_empty() && lane.rooms.is_none() {
            return None;
        }
        let before = lane.rooms.as_ref().map_or(&lane.plan, |rooms| &rooms.ahead);
        let mut ahead = before.clone();
        lane.shade_over(&mut ahead);
        let mut fits = |plan: &mut Plan| plan.fits(window, task.service);
        let aside = set_aside_until(&mut ahead, &mut fits, lower)?;
        let others = put_back_but(&mut ahead, fits, aside);
        let (ticket, times) = ahead.reserve(window, task.service)?;
        for ticket in &others {
            ahead.end(*ticket);
        }
        // What is in time in an order is in time in it also if it can begin sooner.
        ahead.occupy_as(before);
        Some(Found { ahead, ticket, times, others, window })
    }

    /// Room that is held is not needed.
    pub fn drop_room(&mut self, id: TaskId) {
        if self.give_room_back(id).is_none() {
            self.let_room_go(id);
        }
    }

    pub(super) fn let_room_go(&mut self, id: TaskId) -> Option<Room> {
        let (by, number) = self.room_of(id)?;
        self.resources.get_mut(&by)?.lanes[number].let_room_go(id)
    }

    /// Whose plan has room for a task, and which.
    pub(super) fn room_of(&self, id: TaskId) -> Option<(ResourceId, usize)> {
        let has_room = |lane: &Lane| lane.room(id).is_some();
        self.resources.iter().find_map(|(by, resource)| {
            Some((by.clone(), resource.lanes.iter().position(has_room)?))
        })
    }

    /// What may make way for a task, the least important first, among them the latest.
    fn removable(&self, task: &Task, lane: &Lane) -> Vec<Ticket> {
        let lower = lane.plan.waiting().filter(|ticket| {
            let other = lane.tasks.get(ticket).and_then(|id| self.placed.get(id));
            other.is_some_and(|placed| {
                placed.task.may_abort
                    && placed.task.priority < task.priority
                    && placed.task.window.deadline > task.window.deadline
            }) && !lane.is_given(*ticket)
        });
        self.by_importance(lane, lower)
    }

    /// Reservations of a lane in the order in which they make way.
    pub(super) fn by_importance(
        &self,
        lane: &Lane,
        tickets: impl Iterator<Item = Ticket>,
    ) -> Vec<Ticket> {
        let own = tickets.filter_map(|ticket| {
            let task = &self.placed.get(lane.tasks.get(&ticket)?)?.task;
            Some((task.priority, Reverse(task.window.deadline), ticket))
        });
        let mut own: Vec<(u8, Reverse<Timestamp>, Ticket)> = own.collect();
        own.sort_unstable();
        own.into_iter().map(|(_, _, ticket)| ticket).collect()
    }
}

impl Lane {
    /// Those who hold room here are of the same instance, or there are none: of others each may go ahead or not.
    fn has_only_room_of(&self, task: &Task) -> bool {
        let mut all = self.rooms.iter().flat_map(|rooms| &rooms.all);
        all.all(|room| room.task.id.instance == task.id.instance)
    }
}

/// Sets reservations aside, in this order, until there is enough room. The plan is as before if nothing helps.
fn set_aside_until(
    plan: &mut Plan,
    mut fits: impl FnMut(&mut Plan) -> bool,
    lower: Vec<Ticket>,
) -> Option<Vec<Ticket>> {
    let mut aside = Vec::new();
    for ticket in lower {
        if fits(plan) {
            break;
        }
        if plan.set_aside(ticket) {
            aside.push(ticket);
        }
    }
    if !fits(plan) {
        plan.put_all_back();
        return None;
    }
    Some(aside)
}

/// Puts all back in that were set aside and need not be; answers the others.
fn put_back_but(
    plan: &mut Plan,
    mut fits: impl FnMut(&mut Plan) -> bool,
    aside: Vec<Ticket>,
) -> Vec<Ticket> {
    // The most important of them first: with it out of the way another may have been enough.
    let mut needed = Vec::new();
    for ticket in aside.into_iter().rev() {
        let is_back = plan.put_back(ticket);
        if !is_back || !fits(plan) {
            plan.set_aside(ticket);
            needed.push(ticket);
        }
    }
    // In the order in which they were to be taken.
    needed.reverse();
    needed
}
