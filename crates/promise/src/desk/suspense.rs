//! Room that is taken while those who make way do not know of it yet: they are in suspense.
//!
//! Whoever takes room at several places may not get it at all of them, or may not want it any more when it has. So a
//! task whose room is taken is promised, but those who make way for it stay in the plan until it goes ahead; if it does
//! not, nothing has happened to them. An executor begins there meanwhile only what is promised besides, and not in the way.
//!
//! A case goes ahead with all its steps. So when the first of them does, others make way for all that have taken room in
//! the same plan: between two of them nobody is late.
//!
//! Invariant: a task is placed in a plan or its room is taken, not both. As long as nobody begins what is to make way and
//! nothing takes longer than was said, room that is taken is there, whether or not the rest of it is given back.

use std::collections::BTreeSet;

use super::lane::Lane;
use super::rooms::{Room, Rooms};
use super::{Change, Desk, Placed, Reservation};
use crate::plan::{Plan, Ticket};
use crate::task::{Promise, ResourceId, Task, TaskId};

/// Where room is taken for a task, and for when it is promised.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    lane: usize,
    pub(super) promise: Promise,
}

#[cfg(test)]
impl Taken {
    pub(super) fn in_lane<'a>(&self, lanes: &'a [Lane]) -> Option<&'a Lane> {
        lanes.get(self.lane)
    }
}

/// Room in a lane, and those who make way; of each whether also if it is begun.
pub(super) type RoomsOf = (usize, Vec<Room>, Vec<(TaskId, bool)>);

impl Desk {
    /// Takes room that is held: it is promised from now on. Those who make way are told when it goes ahead, by
    /// [`Desk::make_way`]; should it end before, nothing has changed for them. `None` if it is there no more, since
    /// somebody has begun what was to make way: what was promised for the task before stays promised.
    pub fn take_room(&mut self, id: TaskId) -> Option<Promise> {
        // What is told twice was taken when it was told first.
        if let Some(taken) = self.taken.get(&id) {
            return Some(taken.promise.clone());
        }
        let (by, number) = self.room_of(id)?;
        let lane = &mut self.resources.get_mut(&by)?.lanes[number];
        lane.drop_rooms_that_are_gone();
        if !lane.has_room(id) {
            lane.let_room_go(id);
            return None;
        }
        // What is promised anew is not promised twice.
        if self.placed.contains_key(&id) {
            self.end(id);
        }
        let lane = &mut self.resources.get_mut(&by)?.lanes[number];
        let room = lane.room_mut(id)?;
        room.is_taken = true;
        let ticket = room.ticket;
        let times = lane.rooms.as_mut()?.ahead.times(ticket)?;
        let promise = Promise { task: id, by, times };
        self.taken.insert(id, Taken { lane: number, promise: promise.clone() });
        self.changes.push(Change::Reserved(id));
        Some(promise)
    }

    /// What room is taken for goes ahead, and so does all of its case that has taken room in the same plan: the others make
    /// way now, as far as that is still needed. It is the task itself that does if somebody has begun what was to make
    /// way, or if it would be late all the same: time has passed. `None` if no room is taken for it, or not any more since
    /// it went ahead with the rest.
    pub fn make_way(&mut self, id: TaskId) -> Option<Result<Vec<Task>, Task>> {
        self.taken.get(&id)?;
        match self.goes_ahead_with(id) {
            Some(all) => Some(Ok(self.make_way_for(&all))),
            None => self.end(id).map(Err),
        }
    }

    /// The same for what somebody works on already: nobody else can do it, so they go on with it, in time or not.
    pub(crate) fn make_way_for_begun(&mut self, id: TaskId) -> Vec<Task> {
        if !self.taken.contains_key(&id) {
            return Vec::new();
        }
        let all = self.goes_ahead_with(id).unwrap_or_else(|| BTreeSet::from([id]));
        self.make_way_for(&all)
    }

    /// Whether room is taken for a task, and it has not gone ahead.
    pub(crate) fn is_in_room(&self, id: TaskId) -> bool {
        self.taken.contains_key(&id)
    }

    /// All of the same case for which room is taken in the same plan; only the task itself if not all of that can be kept, and
    /// `None` if it cannot either.
    fn goes_ahead_with(&self, id: TaskId) -> Option<BTreeSet<TaskId>> {
        let (lane, rooms) = self.taken_room(id).filter(|_| !self.has_lost_room(id))?;
        let is_one =
            |room: &&Room| room.is_taken && !room.is_gone && room.task.id.instance == id.instance;
        let all: BTreeSet<TaskId> =
            rooms.all.iter().filter(is_one).map(|room| room.task.id).collect();
        let ways = [all, BTreeSet::from([id])];
        ways.into_iter().find(|these| self.can_be_kept(lane, rooms, these))
    }

    /// Whether nothing is too late that was not before if all make way for some of what room is taken for.
    fn can_be_kept(&self, lane: &Lane, rooms: &Rooms, these: &BTreeSet<TaskId>) -> bool {
        let too_late = |mut plan: Plan| -> Vec<Ticket> {
            let late = plan.late().into_iter();
            let late = late.filter(|(ticket, late)| {
                let placed = lane.tasks.get(ticket).and_then(|id| self.placed.get(id));
                // What room is taken for has no ticket in the lane, and all of it is left.
                let service = placed.map(|placed| placed.task.service).or(plan.left(*ticket));
                let leeway = self.leeway.for_one(&plan, *ticket, service.unwrap_or_default());
                *late > leeway
            });
            late.map(|(ticket, _)| ticket).collect()
        };
        let before = too_late(lane.plan.clone());
        let after = too_late(rooms.ahead_with(|room| these.contains(&room.task.id)));
        after.iter().all(|ticket| before.contains(ticket))
    }

    /// Others make way for these, which are in one plan; answers who.
    fn make_way_for(&mut self, these: &BTreeSet<TaskId>) -> Vec<Task> {
        let Some(Taken { lane: number, promise }) = these.first().and_then(|it| self.taken.get(it))
        else {
            return Vec::new();
        };
        let (number, by) = (*number, promise.by.clone());
        let Some(resource) = self.resources.get(&by) else { return Vec::new() };
        let lane = &resource.lanes[number];
        let Some(rooms) = &lane.rooms else { return Vec::new() };
        let others = rooms.others.iter().copied().filter(|ticket| !lane.is_given(*ticket));
        let others = self.by_importance(lane, others);
        let (plan, removed) = lane.with_way_made(rooms, these, others);
        let removed: Vec<TaskId> =
            removed.iter().filter_map(|ticket| lane.tasks.get(ticket).copied()).collect();
        if let Some(resource) = self.resources.get_mut(&by) {
            resource.lanes[number].plan = plan;
        }
        these.iter().for_each(|id| self.place_in_room(*id, &by, number));
        let removed = removed.into_iter().filter_map(|id| self.end(id)).collect();
        if let Some(resource) = self.resources.get_mut(&by) {
            resource.lanes[number].free_bound();
        }
        removed
    }

    /// What room was taken for is in the plan now.
    fn place_in_room(&mut self, id: TaskId, by: &ResourceId, number: usize) {
        self.taken.remove(&id);
        let Some(resource) = self.resources.get_mut(by) else { return };
        let Some(Room { task, window, ticket, .. }) = resource.lanes[number].place_room(id) else {
            return;
        };
        self.changes.push(Change::Reserved(id));
        let placed = Placed { task, by: by.clone(), lane: number, window, ticket };
        self.placed.insert(id, placed);
    }

    /// Whether room that is taken is there no more, since somebody has begun what was to make way, or may have.
    pub fn has_lost_room(&self, id: TaskId) -> bool {
        let room = self.taken_room(id).and_then(|(lane, _)| lane.room(id));
        room.is_some_and(|room| room.is_gone)
    }

    /// Room that is taken for a task is not needed: nobody makes way.
    pub(super) fn give_room_back(&mut self, id: TaskId) -> Option<Task> {
        self.taken.remove(&id)?;
        let room = self.let_room_go(id)?;
        self.changes.push(Change::Ended(id));
        Some(room.task)
    }

    /// Tasks for which room is taken at a resource.
    pub(super) fn taken_at(&self, by: &ResourceId) -> Vec<TaskId> {
        let own = self.taken.iter().filter(|(_, taken)| taken.promise.by == *by);
        own.map(|(id, _)| *id).collect()
    }

    pub(super) fn taken_task(&self, id: TaskId) -> Option<&Task> {
        self.taken_room(id)?.0.room(id).map(|room| &room.task)
    }

    pub(super) fn taken_reservation(&self, id: TaskId) -> Option<Reservation> {
        let Taken { lane, promise } = self.taken.get(&id)?;
        let Room { task, window, .. } = self.taken_room(id)?.0.room(id)?;
        let (task, by) = (task.clone(), promise.by.clone());
        Some(Reservation { task, by, lane: *lane, window: *window })
    }

    /// The same task, with other circumstances than its window and its service time.
    pub(super) fn replace_taken(&mut self, task: Task) {
        let Some(Taken { lane, promise }) = self.taken.get(&task.id) else { return };
        let Some(resource) = self.resources.get_mut(&promise.by) else { return };
        let Some(room) = resource.lanes[*lane].room_mut(task.id) else { return };
        if (&room.task.who, &room.task.only) != (&task.who, &task.only) {
            self.changes.push(Change::Reserved(task.id));
        }
        room.task = task;
    }

    fn taken_room(&self, id: TaskId) -> Option<(&Lane, &Rooms)> {
        let Taken { lane, promise } = self.taken.get(&id)?;
        let lane = self.resources.get(&promise.by)?.lanes.get(*lane)?;
        Some((lane, lane.rooms.as_ref()?))
    }

    /// All room that is held or taken at a resource, to be there again when it works otherwise.
    pub(super) fn rooms_at(&self, by: &ResourceId) -> Vec<RoomsOf> {
        let lanes = self.resources.get(by).into_iter().flat_map(|resource| &resource.lanes);
        let all = lanes.enumerate().filter_map(|(number, lane)| {
            let rooms = lane.rooms.as_ref()?;
            let others = rooms.others.iter().filter_map(|ticket| {
                Some((*lane.tasks.get(ticket)?, rooms.bound.contains(ticket)))
            });
            Some((number, rooms.all.clone(), others.collect()))
        });
        all.collect()
    }

    pub(super) fn hold_again(&mut self, by: &ResourceId, rooms: Vec<RoomsOf>) {
        for (number, all, others) in rooms {
            let placed = others
                .iter()
                .filter_map(|(id, is_bound)| Some((self.placed.get(id)?.ticket, *is_bound)));
            let others: Vec<(Ticket, bool)> = placed.collect();
            let Some(resource) = self.resources.get_mut(by) else { return };
            let number = number.min(resource.lanes.len() - 1);
            for room in &all {
                if let Some(taken) = self.taken.get_mut(&room.task.id) {
                    taken.lane = number;
                }
            }
            resource.lanes[number].hold_again(all, others);
        }
    }
}

impl Lane {
    /// The plan when those have made way who have to for some of what room is taken for, in the order in which they do; and
    /// who that is.
    fn with_way_made(
        &self,
        rooms: &Rooms,
        these: &BTreeSet<TaskId>,
        others: Vec<Ticket>,
    ) -> (Plan, Vec<Ticket>) {
        let mut plan = rooms.ahead_with(|room| these.contains(&room.task.id));
        // What is in time with something that nobody knows of stays so.
        let mut shaded = self.shaded(&plan);
        shaded.take_if(|plan| !plan.is_all_in_time());
        let mut removed = Vec::new();
        // The most important of them first: with it out of the way another may have been enough.
        for ticket in others.into_iter().rev() {
            let fits = plan.fits_from(&self.plan, ticket)
                && shaded.as_mut().is_none_or(|plan| plan.fits_from(&self.plan, ticket));
            if fits {
                [Some(&mut plan), shaded.as_mut()].into_iter().flatten().for_each(|plan| {
                    plan.take_from(&self.plan, ticket);
                    if self.plan.is_begun(ticket) {
                        plan.begin_with(ticket);
                    }
                });
            } else {
                removed.push(ticket);
            }
        }
        removed.reverse();
        (plan, removed)
    }

    /// A task for which others have made way is in the plan from now on.
    fn place_room(&mut self, id: TaskId) -> Option<Room> {
        let rooms = self.rooms.as_mut()?;
        let at = rooms.all.iter().position(|room| room.task.id == id)?;
        let room = rooms.all.remove(at);
        if rooms.all.is_empty() {
            self.rooms = None;
        }
        self.tasks.insert(room.ticket, id);
        self.refresh();
        Some(room)
    }

    /// Room is held again, with others who make way.
    fn hold_again(&mut self, all: Vec<Room>, others: Vec<(Ticket, bool)>) {
        let ahead = self.plan.clone();
        let (others_before, bound) = (BTreeSet::new(), BTreeSet::new());
        let none = || Box::new(Rooms { ahead, all: Vec::new(), others: others_before, bound });
        let rooms = self.rooms.get_or_insert_with(none);
        rooms.all.extend(all);
        rooms.bound.extend(others.iter().filter(|(_, is_bound)| *is_bound).map(|(it, _)| *it));
        rooms.others.extend(others.into_iter().map(|(ticket, _)| ticket));
        self.look_ahead_again();
    }
}
