//! The removal module: less important tasks make way for a more important one.
//!
//! Room is held first and taken later. Whoever needs it at several places takes it when there is enough at all of
//! them, and those who make way do when it goes ahead (`suspense`), so nobody makes way for nothing. Whatever is promised
//! meanwhile fits beside those who would make way, and beside what they would make way for.

use std::cmp::Reverse;

use legwork_model::time::Timestamp;

use super::{Desk, Lane};
use crate::plan::{Plan, Ticket, Times, Window};
use crate::supply::Work;
use crate::task::{Promise, ResourceId, Task, TaskId};

/// Room in a lane for a task that is not in it yet, at the expense of others that still are.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub(super) task: Task,
    /// Of whoever does it.
    pub(super) window: Window,
    pub(super) others: Vec<Ticket>,
    /// The task is promised; the others do not know yet.
    pub(super) is_taken: bool,
}

impl Lane {
    /// Whether a task fits, whether or not the room that is held here will be taken, and whether or not there is something
    /// that nobody knows of.
    pub(super) fn fits(&mut self, window: Window, service: Work) -> bool {
        let fits = |plan: &mut Plan| plan.fits(window, service);
        // Both may be so at the same time.
        let fits_in_rooms = |lane: &Self| {
            let mut plan = lane.with_rooms_taken();
            fits(&mut plan) && lane.in_shade(&plan, fits)
        };
        fits(&mut self.plan)
            && self.in_shade(&self.plan, fits)
            && (self.rooms.is_empty() || fits_in_rooms(self))
    }

    /// The earliest moment for which something could be promised, whether or not that room will be taken, and whether or not
    /// there is something that nobody knows of.
    pub(super) fn earliest(&mut self, release: Timestamp, service: Work) -> Option<Timestamp> {
        let mut latest = self.plan.earliest(release, service)?;
        let taken = (!self.rooms.is_empty()).then(|| self.with_rooms_taken());
        let both = taken.as_ref().and_then(|plan| self.shaded(plan));
        for mut plan in [self.shaded(&self.plan), taken, both].into_iter().flatten() {
            latest = latest.max(plan.earliest(release, service)?);
        }
        Some(latest)
    }

    fn with_rooms_taken(&self) -> Plan {
        let mut plan = self.plan.clone();
        self.take_all(&mut plan, self.rooms.iter());
        plan
    }

    /// Takes those out of a plan of this lane who make way. What somebody was given meanwhile stays.
    pub(super) fn clear(&self, plan: &mut Plan, room: &Room) {
        for ticket in room.others.iter().filter(|ticket| !self.is_given(**ticket)) {
            plan.end(*ticket);
        }
    }

    /// Takes room in a plan of this lane, one after the other; false if there is not enough for all.
    pub(super) fn take_all<'a>(
        &self,
        plan: &mut Plan,
        rooms: impl Iterator<Item = &'a Room>,
    ) -> bool {
        let mut fit_all = true;
        for room in rooms {
            self.clear(plan, room);
            let fits = plan.reserve(room.window, room.task.service).is_some();
            // What is promised is to be done whether it fits or not.
            if !fits && room.is_taken {
                plan.restore(room.window, room.task.service, None);
            }
            fit_all &= fits;
        }
        fit_all
    }

    /// Those who hold room here are of the same instance, or there are none: beside others it would have to be
    /// seen what comes of each.
    fn has_room_for(&self, task: &Task) -> bool {
        self.rooms.iter().all(|room| room.task.id.instance == task.id.instance)
    }
}

impl Desk {
    /// Finds room for a task at the expense of others, and holds it: of those that have a later deadline and a lower
    /// priority, are not begun and may be taken back. As few as possible, of the least important; none if it does not
    /// help. Nothing changes for them before it is taken.
    pub fn hold_room(&mut self, task: &Task) -> Option<Promise> {
        let mut best: Option<(Vec<Ticket>, Times, ResourceId, usize, Window)> = None;
        for id in self.who_is_here(task) {
            let lanes = self.resources.get(&id).map_or(0, |resource| resource.lanes.len());
            for lane in 0..lanes {
                for window in task.windows_for(&id) {
                    let found = self.look_for_room(task, &id, lane, window);
                    let Some((others, times)) = found else { continue };
                    if best.as_ref().is_none_or(|(least, ..)| others.len() < least.len()) {
                        best = Some((others, times, id.clone(), lane, window));
                    }
                }
            }
        }
        let (others, times, by, lane, window) = best?;
        let room = Room { task: task.clone(), window, others, is_taken: false };
        self.resources.get_mut(&by)?.lanes[lane].rooms.push(room);
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
    ) -> Option<(Vec<Ticket>, Times)> {
        let lane = &self.resources.get(id)?.lanes[number];
        let lower = self.removable(task, lane);
        // Where nobody can make way the plan need not be looked at: it may be long.
        if !lane.has_room_for(task) || lower.is_empty() && lane.rooms.is_empty() {
            return None;
        }
        let mut plan = lane.with_rooms_taken();
        lane.shade_over(&mut plan);
        let mut fits = |plan: &mut Plan| plan.fits(window, task.service);
        let taken = clear(&mut plan, &mut fits, lower)?;
        let others = spare(&mut plan, fits, taken);
        let (_, times) = plan.reserve(window, task.service)?;
        Some((others, times))
    }

    /// Room that is held is not needed.
    pub fn drop_room(&mut self, id: TaskId) {
        if self.give_room_back(id).is_none() {
            self.let_room_go(id);
        }
    }

    pub(super) fn let_room_go(&mut self, id: TaskId) -> Option<(ResourceId, usize, Room)> {
        let (by, number) = self.room_of(id)?;
        let rooms = &mut self.resources.get_mut(&by)?.lanes[number].rooms;
        let at = rooms.iter().position(|room| room.task.id == id)?;
        Some((by, number, rooms.remove(at)))
    }

    /// Whose plan has room for a task, and which.
    pub(super) fn room_of(&self, id: TaskId) -> Option<(ResourceId, usize)> {
        let has_room = |lane: &Lane| lane.rooms.iter().any(|room| room.task.id == id);
        self.resources.iter().find_map(|(by, resource)| {
            Some((by.clone(), resource.lanes.iter().position(has_room)?))
        })
    }

    /// What may make way for a task, the least important first, among them the latest.
    fn removable(&self, task: &Task, lane: &Lane) -> Vec<Ticket> {
        let waiting =
            lane.plan.waiting().filter_map(|ticket| Some((ticket, lane.tasks.get(&ticket)?)));
        let mut lower: Vec<(u8, Reverse<Timestamp>, Ticket)> = waiting
            .filter_map(|(ticket, id)| Some((ticket, self.placed.get(id)?)))
            .filter(|(ticket, _)| !lane.is_given(*ticket))
            .map(|(ticket, placed)| (ticket, &placed.task))
            .filter(|(_, other)| {
                other.may_abort
                    && other.priority < task.priority
                    && other.window.deadline > task.window.deadline
            })
            .map(|(ticket, other)| (other.priority, Reverse(other.window.deadline), ticket))
            .collect();
        lower.sort_unstable();
        lower.into_iter().map(|(_, _, ticket)| ticket).collect()
    }
}

/// Sets reservations aside, in this order, until there is enough room. The plan is as before if nothing helps.
fn clear(
    plan: &mut Plan,
    mut fits: impl FnMut(&mut Plan) -> bool,
    lower: Vec<Ticket>,
) -> Option<Vec<Ticket>> {
    let mut taken = Vec::new();
    for ticket in lower {
        if fits(plan) {
            break;
        }
        if plan.set_aside(ticket) {
            taken.push(ticket);
        }
    }
    if !fits(plan) {
        plan.put_all_back();
        return None;
    }
    Some(taken)
}

/// Puts all back in that were set aside and need not be; answers the others.
pub(super) fn spare(
    plan: &mut Plan,
    mut fits: impl FnMut(&mut Plan) -> bool,
    taken: Vec<Ticket>,
) -> Vec<Ticket> {
    // The most important of them first: with it out of the way another may have been enough.
    let mut needed = Vec::new();
    for ticket in taken.into_iter().rev() {
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
