//! Room that is taken while those who make way do not know of it yet: they are in suspense.
//!
//! Whoever takes room at several places may not get it at all of them, or may not want it any more when it has. So a
//! task whose room is taken is promised, but those who make way for it stay in the plan until it goes ahead; if it does
//! not, nothing has happened to them. An executor begins there meanwhile only what is promised besides, and not in the way.
//!
//! Invariant: a task is placed in a plan or its room is taken, not both; and as long as nobody begins what is to make way,
//! room that is taken is there.

use super::removal::{Room, spare};
use super::{Change, Desk, Lane, Placed, Reservation};
use crate::plan::{Plan, Ticket, Times, Window};
use crate::supply::Work;
use crate::task::{Promise, ResourceId, Task, TaskId};

/// Where room is taken for a task, and for when it is promised.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    lane: usize,
    pub(super) promise: Promise,
}

/// Rooms of a resource, each with its lane and those who make way.
pub(super) type Rooms = Vec<(usize, Room, Vec<TaskId>)>;

impl Lane {
    /// Whether somebody here does not know yet that they make way.
    pub(super) fn is_in_suspense(&self) -> bool {
        self.rooms.iter().any(|room| room.is_taken)
    }

    /// Whether it is one of those.
    pub(super) fn is_in_suspense_itself(&self, ticket: Ticket) -> bool {
        self.rooms.iter().any(|room| room.is_taken && room.others.contains(&ticket))
    }

    /// The plan with all room taken that is.
    pub(super) fn with_taken(&self) -> Plan {
        let mut plan = self.plan.clone();
        self.take_all(&mut plan, self.rooms.iter().filter(|room| room.is_taken));
        plan
    }

    /// When a task would be done with all room taken that is, and its own; `None` if it would not be in time.
    fn times_in_room(&self, id: TaskId) -> Option<Times> {
        let room = self.rooms.iter().find(|room| room.task.id == id)?;
        let mut plan = self.with_way_made(room);
        if !self.in_shade(&plan, |plan| plan.fits(room.window, room.task.service)) {
            return None;
        }
        plan.reserve(room.window, room.task.service).map(|(_, times)| times)
    }

    /// The plan with all room taken that is, and all gone who make way for one.
    fn with_way_made(&self, room: &Room) -> Plan {
        let taken = self.rooms.iter().filter(|other| other.is_taken);
        let mut plan = self.plan.clone();
        self.take_all(&mut plan, taken.filter(|other| other.task.id != room.task.id));
        self.clear(&mut plan, room);
        plan
    }

    /// Puts all back into a plan of this lane that need not make way for something; answers the others. Whatever is so
    /// while all are aside stays so with those who are back: that it fits, with the rest of the room here taken or not, and
    /// whether or not there is something that nobody knows of.
    fn spare_beside(
        &self,
        plan: &mut Plan,
        (window, service): (Window, Work),
        aside: Vec<Ticket>,
    ) -> Vec<Ticket> {
        let fits_in = |plan: &Plan, (with_rest, in_shade): (bool, bool)| {
            let mut plan = plan.clone();
            let has_rest = !with_rest || self.take_all(&mut plan, self.rooms.iter());
            if in_shade {
                self.shade_over(&mut plan);
            }
            has_rest && plan.fits(window, service)
        };
        let mut cases = vec![(false, false), (true, false), (false, true), (true, true)];
        cases.retain(|(with_rest, in_shade)| {
            let is_other =
                !(*with_rest && self.rooms.is_empty() || *in_shade && self.shade.is_none());
            is_other && fits_in(plan, (*with_rest, *in_shade))
        });
        let fits =
            |plan: &mut Plan| !cases.is_empty() && cases.iter().all(|case| fits_in(plan, *case));
        spare(plan, fits, aside)
    }
}

impl Desk {
    /// Takes room that is held: it is promised from now on. Those who make way are told when it goes ahead, by
    /// [`Desk::make_way`]; should it end before, nothing has changed for them. `None` if it is there no more, since
    /// somebody has begun what was to make way.
    pub fn take_room(&mut self, id: TaskId) -> Option<Promise> {
        let (by, number) = self.room_of(id)?;
        // What is promised anew is not promised twice.
        if self.placed.contains_key(&id) {
            self.end(id);
        }
        let lane = &mut self.resources.get_mut(&by)?.lanes[number];
        let Some(times) = lane.times_in_room(id) else {
            lane.rooms.retain(|room| room.task.id != id);
            return None;
        };
        lane.rooms.iter_mut().filter(|room| room.task.id == id).for_each(|it| it.is_taken = true);
        let promise = Promise { task: id, by, times };
        self.taken.insert(id, Taken { lane: number, promise: promise.clone() });
        self.changes.push(Change::Reserved(id));
        Some(promise)
    }

    /// What room is taken for goes ahead: the others make way now, as far as that is still needed. It is the task itself
    /// that does if somebody has begun what was to make way, or if it would be late all the same: time has passed.
    pub fn make_way(&mut self, id: TaskId) -> Option<Result<Vec<Task>, Task>> {
        if self.taken.contains_key(&id) && !self.can_be_kept(id) {
            return self.end(id).map(Err);
        }
        self.make_way_for_begun(id)
    }

    /// The same for what somebody works on already: nobody else can do it, so they go on with it.
    pub(crate) fn make_way_for_begun(&mut self, id: TaskId) -> Option<Result<Vec<Task>, Task>> {
        self.taken.get(&id)?;
        if !self.spare_given(id) {
            return self.end(id).map(Err);
        }
        self.taken.remove(&id);
        let (by, number, Room { task, window, others, .. }) = self.let_room_go(id)?;
        let lane = &mut self.resources.get_mut(&by)?.lanes[number];
        let mut plan = lane.plan.clone();
        let others = others.into_iter().filter(|ticket| !lane.is_given(*ticket));
        let aside: Vec<Ticket> = others.filter(|ticket| plan.set_aside(*ticket)).collect();
        let others = lane.spare_beside(&mut plan, (window, task.service), aside);
        let removed: Vec<TaskId> =
            others.iter().filter_map(|ticket| lane.tasks.get(ticket).copied()).collect();
        lane.plan = plan;
        if self.place(task.clone(), by.clone(), number, window).is_none() {
            // A moment has passed since it was promised: a promise is a promise.
            self.restore(Reservation { task, by, lane: number, window }, None);
            self.changes.push(Change::Reserved(id));
        }
        Some(Ok(removed.into_iter().filter_map(|id| self.end(id)).collect()))
    }

    /// Whether nothing is too late that was not before if all make way for a task whose room is taken.
    fn can_be_kept(&self, id: TaskId) -> bool {
        let Some((lane, room)) = self.taken_room(id) else { return false };
        let too_late = |plan: &mut Plan| -> Vec<Ticket> {
            let late = plan.late().into_iter();
            let late = late.filter(|(ticket, late)| {
                let placed = lane.tasks.get(ticket).and_then(|id| self.placed.get(id));
                // What room is taken for has no ticket in the lane, and all of it is left.
                let service = placed.map(|placed| placed.task.service).or(plan.left(*ticket));
                let leeway = self.leeway.for_one(plan, *ticket, service.unwrap_or_default());
                *late > leeway
            });
            late.map(|(ticket, _)| ticket).collect()
        };
        let mut plan = lane.with_way_made(room);
        let before = too_late(&mut plan);
        plan.restore(room.window, room.task.service, None);
        too_late(&mut plan).iter().all(|ticket| before.contains(ticket))
    }

    /// Whether somebody has begun, or may have, what was to make way for a task whose room is taken.
    pub fn is_disturbed(&self, id: TaskId) -> bool {
        let Some((lane, room)) = self.taken_room(id) else { return false };
        room.others.iter().any(|ticket| lane.is_given(*ticket))
    }

    /// What somebody was given meanwhile does not make way any more. Answers whether room that is taken is there all the same.
    pub fn spare_given(&mut self, id: TaskId) -> bool {
        if !self.is_disturbed(id) {
            return self.taken.contains_key(&id);
        }
        let Some(Taken { lane, promise }) = self.taken.get(&id) else { return false };
        let Some(resource) = self.resources.get_mut(&promise.by) else { return false };
        let lane = &mut resource.lanes[*lane];
        let Lane { plan, out, rooms, .. } = lane;
        for room in rooms.iter_mut().filter(|room| room.task.id == id) {
            room.others.retain(|ticket| !plan.is_begun(*ticket) && !out.contains(ticket));
        }
        lane.times_in_room(id).is_some()
    }

    /// Room that is taken for a task is not needed: nobody makes way.
    pub(super) fn give_room_back(&mut self, id: TaskId) -> Option<Task> {
        self.taken.remove(&id)?;
        let (_, _, room) = self.let_room_go(id)?;
        self.changes.push(Change::Ended(id));
        Some(room.task)
    }

    /// Tasks for which room is taken at a resource.
    pub(super) fn taken_at(&self, by: &ResourceId) -> Vec<TaskId> {
        let own = self.taken.iter().filter(|(_, taken)| taken.promise.by == *by);
        own.map(|(id, _)| *id).collect()
    }

    pub(super) fn taken_task(&self, id: TaskId) -> Option<&Task> {
        self.taken_room(id).map(|(_, room)| &room.task)
    }

    pub(super) fn taken_reservation(&self, id: TaskId) -> Option<Reservation> {
        let Taken { lane, promise } = self.taken.get(&id)?;
        let (_, Room { task, window, .. }) = self.taken_room(id)?;
        let (task, by) = (task.clone(), promise.by.clone());
        Some(Reservation { task, by, lane: *lane, window: *window })
    }

    /// The same task, with other circumstances than its window and its service time.
    pub(super) fn replace_taken(&mut self, task: Task) {
        let Some(Taken { lane, promise }) = self.taken.get(&task.id) else { return };
        let Some(resource) = self.resources.get_mut(&promise.by) else { return };
        let mut rooms = resource.lanes[*lane].rooms.iter_mut();
        if let Some(room) = rooms.find(|room| room.task.id == task.id) {
            if (&room.task.who, &room.task.only) != (&task.who, &task.only) {
                self.changes.push(Change::Reserved(task.id));
            }
            room.task = task;
        }
    }

    fn taken_room(&self, id: TaskId) -> Option<(&Lane, &Room)> {
        let Taken { lane, promise } = self.taken.get(&id)?;
        let lane = self.resources.get(&promise.by)?.lanes.get(*lane)?;
        Some((lane, lane.rooms.iter().find(|room| room.task.id == id)?))
    }

    /// A task that was to make way has another ticket.
    pub(super) fn rename_in_rooms(
        &mut self,
        (by, lane): (&ResourceId, usize),
        before: Ticket,
        id: TaskId,
    ) {
        let Some(Placed { ticket, .. }) = self.placed.get(&id) else { return };
        let Some(resource) = self.resources.get_mut(by) else { return };
        let others = resource.lanes[lane].rooms.iter_mut().flat_map(|room| &mut room.others);
        others.filter(|other| **other == before).for_each(|other| *other = *ticket);
    }

    /// All room that is held or taken at a resource, to be there again when it works otherwise.
    pub(super) fn rooms_at(&self, by: &ResourceId) -> Rooms {
        let lanes = self.resources.get(by).into_iter().flat_map(|resource| &resource.lanes);
        let all = lanes.enumerate().flat_map(|(number, lane)| {
            lane.rooms.iter().map(move |room| {
                let others = room.others.iter().filter_map(|ticket| lane.tasks.get(ticket));
                (number, room.clone(), others.copied().collect())
            })
        });
        all.collect()
    }

    pub(super) fn hold_again(&mut self, by: &ResourceId, rooms: Rooms) {
        for (number, room, others) in rooms {
            let placed = others.iter().filter_map(|id| self.placed.get(id));
            let others = placed.map(|Placed { ticket, .. }| *ticket).collect();
            let Some(resource) = self.resources.get_mut(by) else { return };
            let number = number.min(resource.lanes.len() - 1);
            if let Some(taken) = self.taken.get_mut(&room.task.id) {
                taken.lane = number;
            }
            resource.lanes[number].rooms.push(Room { others, ..room });
        }
    }
}
