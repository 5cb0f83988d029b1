//! The plans of all resources at home at one planner: the local scheduler.
//!
//! Invariant: a promise that was given is in a plan, or in the plan as it will be when others have made way for it, until
//! it is kept, given back or taken back, and whoever takes one back tells which.

mod answers;
mod busy;
mod endangered;
mod lane;
mod removal;
mod rooms;
mod shade;
mod suspense;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use legwork_model::time::Timestamp;

pub use self::endangered::Leeway;
use self::lane::Lane;
use self::suspense::Taken;
use crate::periodic::Load;
use crate::plan::{Discipline, Plan, Ticket, Window};
use crate::supply::{Supply, Work};
use crate::task::{Promise, ResourceId, Task, TaskId};

#[derive(Clone, Debug, Default)]
pub struct Desk {
    resources: BTreeMap<ResourceId, Resource>,
    placed: BTreeMap<TaskId, Placed>,
    /// Tasks that are promised, and those who make way for them do not know yet.
    taken: BTreeMap<TaskId, Taken>,
    changes: Vec<Change>,
    leeway: Leeway,
}

/// What has changed in the plans, for whoever keeps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Reserved(TaskId),
    Begun(TaskId),
    /// Whoever had begun it does not work on it any more.
    Left(TaskId),
    Ended(TaskId),
}

/// A task in somebody's plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub task: Task,
    pub by: ResourceId,
    /// In which of their plans.
    pub lane: usize,
    /// In which of their windows.
    pub window: Window,
}

/// A person, or an executor with as many plans as it does tasks at a time.
#[derive(Clone, Debug)]
struct Resource {
    lanes: Vec<Lane>,
}

#[derive(Clone, Debug)]
struct Placed {
    task: Task,
    by: ResourceId,
    lane: usize,
    window: Window,
    ticket: Ticket,
}

impl Placed {
    fn reservation(&self) -> Reservation {
        let Self { task, by, lane, window, .. } = self;
        Reservation { task: task.clone(), by: by.clone(), lane: *lane, window: *window }
    }
}

/// How a resource works.
#[derive(Clone, Debug)]
pub struct Setup {
    pub supply: Supply,
    pub discipline: Discipline,
    /// How many tasks it does at a time.
    pub at_once: usize,
    pub loads: Vec<Load>,
    /// What it does regularly at times that do not follow each other in the same distance: a window of the
    /// clock, and how much it is.
    pub jobs: Vec<(Window, Work)>,
    /// How far behind its plans it can fall although nothing takes longer than was said: it does other things as
    /// well, at times that nobody knows.
    pub lag: Work,
}

impl Desk {
    /// What is promised here is not given up at once when it seems to become late.
    pub fn with_leeway(leeway: Leeway) -> Self {
        Self { leeway, ..Self::default() }
    }

    /// A resource is here from now on, or works otherwise; false if what it does regularly leaves it too little time.
    pub fn add(&mut self, id: ResourceId, setup: &Setup, now: Timestamp) -> bool {
        let plan = Plan::new(setup.supply.clone(), setup.discipline, now);
        let mut plan = plan.with_lag(setup.lag);
        let fits = setup.loads.iter().all(|load| plan.regularly(*load));
        let before = self.resources.get(&id).and_then(|resource| resource.lanes.first());
        let shade = before.and_then(|before| before.shade);
        match before {
            Some(before) => plan.occupy_as_before(&setup.jobs, &before.plan),
            None => setup.jobs.iter().for_each(|(window, cost)| plan.occupy(*window, *cost)),
        }
        let lane = Lane::new(plan, shade);
        self.resources.insert(id, Resource { lanes: vec![lane; setup.at_once.max(1)] });
        fits
    }

    /// A resource is lost, or works otherwise from now on: what it had promised, the most urgent first.
    pub fn lose(&mut self, id: &ResourceId, now: Timestamp) -> Vec<Task> {
        let taken: Vec<Task> =
            self.taken_at(id).into_iter().filter_map(|id| self.give_room_back(id)).collect();
        let lanes = self.resources.remove(id).into_iter().flat_map(|resource| resource.lanes);
        let lost: Vec<TaskId> = lanes.flat_map(|lane| lane.tasks.into_values()).collect();
        self.changes.extend(lost.iter().map(|id| Change::Ended(*id)));
        let tasks = lost.iter().filter_map(|id| self.placed.remove(id)).map(|placed| placed.task);
        by_urgency(tasks.chain(taken).collect(), now)
    }

    pub fn has(&self, id: &ResourceId) -> bool {
        self.resources.contains_key(id)
    }

    pub fn resources(&self) -> impl Iterator<Item = &ResourceId> {
        self.resources.keys()
    }

    /// How many promises there are.
    pub fn len(&self) -> usize {
        self.placed.len() + self.taken.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn pass(&mut self, now: Timestamp) {
        for lane in self.resources.values_mut().flat_map(|resource| &mut resource.lanes) {
            lane.pass(now);
        }
    }

    /// Promises a task if one of those who can do it has the time: the one with the most of it, in the first of their
    /// windows in which it fits.
    pub fn guarantee(&mut self, task: &Task) -> Option<Promise> {
        let mut best: Option<(Work, ResourceId, usize, Window)> = None;
        for id in self.who_is_here(task) {
            let Some(resource) = self.resources.get_mut(&id) else { continue };
            let windows = task.windows_for(&id);
            let Some(last) = windows.last() else { continue };
            for (number, lane) in resource.lanes.iter_mut().enumerate() {
                let room = lane.plan.room(last.deadline);
                if best.as_ref().is_some_and(|(most, ..)| room <= *most) {
                    continue;
                }
                if let Some(window) = windows.iter().find(|it| lane.fits(**it, task.service)) {
                    best = Some((room, id.clone(), number, *window));
                }
            }
        }
        let (_, by, lane, window) = best?;
        self.place(task.clone(), by, lane, window)
    }

    /// All of them, or none.
    pub fn guarantee_all(&mut self, tasks: &[Task]) -> Option<Vec<Promise>> {
        let mut promises = Vec::with_capacity(tasks.len());
        for task in tasks {
            match self.guarantee(task) {
                Some(promise) => promises.push(promise),
                None => {
                    promises.iter().for_each(|promise| drop(self.end(promise.task)));
                    return None;
                }
            }
        }
        Some(promises)
    }

    fn place(
        &mut self,
        task: Task,
        by: ResourceId,
        lane: usize,
        window: Window,
    ) -> Option<Promise> {
        // What is promised anew is not promised twice.
        self.end(task.id);
        let resource = self.resources.get_mut(&by)?;
        let its = &mut resource.lanes[lane];
        let (ticket, times) = its.reserve(window, task.service)?;
        its.tasks.insert(ticket, task.id);
        self.changes.push(Change::Reserved(task.id));
        let promise = Promise { task: task.id, by: by.clone(), times };
        self.placed.insert(task.id, Placed { task, by, lane, window, ticket });
        Some(promise)
    }

    /// Those at home here who can do it.
    fn who_is_here(&self, task: &Task) -> Vec<ResourceId> {
        task.who.iter().filter(|id| self.has(id)).cloned().collect()
    }

    /// Somebody works on it from now on.
    pub fn begin(&mut self, id: TaskId) {
        let Some(Placed { by, lane, ticket, .. }) = self.placed.get(&id) else { return };
        let Some(resource) = self.resources.get_mut(by) else { return };
        let lane = &mut resource.lanes[*lane];
        // What is told twice was begun when it was told first.
        if !lane.plan.is_begun(*ticket) {
            self.changes.push(Change::Begun(id));
            lane.begin(*ticket);
        }
    }

    /// Whoever had begun it has left it: it waits again, as if nothing of it were done.
    pub fn leave(&mut self, id: TaskId) {
        let Some(Placed { by, lane, ticket, .. }) = self.placed.get(&id) else { return };
        let Some(resource) = self.resources.get_mut(by) else { return };
        let lane = &mut resource.lanes[*lane];
        lane.undoubt(*ticket);
        if lane.plan.is_begun(*ticket) {
            self.changes.push(Change::Left(id));
            self.put_anew(id, None);
        }
    }

    /// Takes a task out of its plan and in again, as begun or not. Whoever was to make way still is.
    fn put_anew(&mut self, id: TaskId, begun: Option<Timestamp>) {
        let Some(placed) = self.placed.get(&id) else { return };
        let (reservation, before) = (placed.reservation(), placed.ticket);
        let (by, lane) = (placed.by.clone(), placed.lane);
        let Some(resource) = self.resources.get_mut(&by) else { return };
        let its = &mut resource.lanes[lane];
        let (makes_way, is_bound) = (its.makes_way(before), its.is_bound(before));
        its.end(before);
        self.restore(reservation, begun);
        let after = self.placed.get(&id).filter(|_| makes_way).map(|placed| placed.ticket);
        if let Some((ticket, resource)) = after.zip(self.resources.get_mut(&by)) {
            resource.lanes[lane].makes_way_as(ticket, is_bound && begun.is_some());
        }
    }

    /// Whoever was given it may not have begun it yet: it waits again, and nothing takes its place.
    pub fn doubt(&mut self, id: TaskId) {
        self.leave(id);
        let Some(Placed { by, lane, ticket, .. }) = self.placed.get(&id) else { return };
        if let Some(resource) = self.resources.get_mut(by) {
            resource.lanes[*lane].doubt(*ticket);
        }
    }

    /// It is done, or not wanted any more.
    pub fn end(&mut self, id: TaskId) -> Option<Task> {
        let Some(placed) = self.placed.remove(&id) else { return self.give_room_back(id) };
        let Placed { task, by, lane, ticket, .. } = placed;
        self.changes.push(Change::Ended(id));
        if let Some(resource) = self.resources.get_mut(&by) {
            resource.lanes[lane].end(ticket);
        }
        Some(task)
    }

    /// Somebody works at other times from now on; what they have promised stays promised, and what else takes them goes on.
    pub fn refit(&mut self, id: &ResourceId, setup: &Setup, now: Timestamp) {
        let (mut begun, mut busy, mut free) = (BTreeMap::new(), Vec::new(), Vec::new());
        for lane in self.resources.get(id).into_iter().flat_map(|resource| &resource.lanes) {
            busy.push(lane.plan.occupied_until());
            free.push(lane.plan.free_since());
            let tasks = lane.tasks.iter().filter(|(ticket, _)| lane.plan.is_begun(**ticket));
            begun.extend(tasks.map(|(ticket, id)| (*id, lane.plan.left(*ticket))));
        }
        let (promised, rooms) = (self.in_order(id), self.rooms_at(id));
        let out: Vec<TaskId> =
            promised.iter().map(|it| it.task.id).filter(|id| self.is_out(*id)).collect();
        self.add(id.clone(), setup, now);
        self.occupy(id, &busy);
        let lanes = self.resources.get_mut(id).into_iter().flat_map(|resource| &mut resource.lanes);
        for (lane, since) in lanes.zip(free) {
            since.into_iter().for_each(|since| lane.plan.note_free_since(since));
        }
        for reservation in promised {
            match begun.get(&reservation.task.id).copied().flatten() {
                // What was done of it stays done.
                Some(left) => self.put_back(reservation, left, Some(now)),
                None => self.restore(reservation, None),
            }
        }
        self.hold_again(id, rooms);
        out.into_iter().for_each(|id| self.doubt(id));
    }

    /// The promises of a resource, in each lane in the order in which they are to be worked on.
    fn in_order(&self, of: &ResourceId) -> Vec<Reservation> {
        let lanes = self.resources.get(of).into_iter().flat_map(|resource| &resource.lanes);
        let own = lanes.flat_map(|lane| {
            let order = lane.plan.order().into_iter();
            let rest = order.filter(|ticket| !lane.plan.is_begun(*ticket));
            lane.plan.begun().chain(rest).filter_map(|ticket| lane.tasks.get(&ticket))
        });
        own.filter_map(|id| self.reservation(*id)).collect()
    }

    /// What has changed since this was asked last.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Takes in what was promised before, whether it fits or not: a promise is a promise. `begun` is since when
    /// it is worked on.
    pub fn restore(&mut self, reservation: Reservation, begun: Option<Timestamp>) {
        let service = reservation.task.service;
        self.put_back(reservation, service, begun);
    }

    fn put_back(&mut self, reservation: Reservation, left: Work, begun: Option<Timestamp>) {
        let Reservation { task, by, lane, window } = reservation;
        let Some(resource) = self.resources.get_mut(&by) else { return };
        let lane = lane.min(resource.lanes.len() - 1);
        let its = &mut resource.lanes[lane];
        let ticket = its.restore(window, left, begun);
        its.tasks.insert(ticket, task.id);
        self.placed.insert(task.id, Placed { task, by, lane, window, ticket });
    }

    /// All promises of a resource that are in its plans: not what room is taken for, while others have not made way.
    pub fn reservations(&self, of: &ResourceId) -> Vec<Reservation> {
        let lanes = self.resources.get(of).into_iter().flat_map(|resource| &resource.lanes);
        let own = lanes.flat_map(|lane| lane.tasks.values());
        own.filter_map(|id| self.reservation(*id)).collect()
    }

    pub fn reservation(&self, id: TaskId) -> Option<Reservation> {
        let placed = self.placed.get(&id).map(Placed::reservation);
        placed.or_else(|| self.taken_reservation(id))
    }

    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.placed.get(&id).map(|placed| &placed.task).or_else(|| self.taken_task(id))
    }

    /// Whether a task is promised as it is wanted: by one of those who can do it, when they can.
    pub(crate) fn is_promised_as(&self, wanted: &Task) -> bool {
        self.placed.get(&wanted.id).is_some_and(|Placed { task, by, window, .. }| {
            let is_same = (task.window, task.service) == (wanted.window, wanted.service);
            is_same && wanted.who.contains(by) && wanted.windows_for(by).contains(window)
        })
    }

    /// The same task, with other circumstances than its window and its service time. If others can do it, or at other
    /// times, that has to be put down.
    pub(crate) fn replace(&mut self, task: Task) {
        let id = task.id;
        let Some(placed) = self.placed.get_mut(&id) else { return self.replace_taken(task) };
        let is_other = (&placed.task.who, &placed.task.only) != (&task.who, &task.only);
        placed.window = task.window_near(&placed.by, placed.window);
        placed.task = task;
        if is_other {
            self.note_again(id);
        }
    }

    /// Whoever keeps the plans has to put a task down anew: it is promised otherwise.
    pub(crate) fn note_again(&mut self, id: TaskId) {
        let placed = self.placed.get(&id);
        let plan =
            |it: &Placed| Some(self.resources.get(&it.by)?.lanes[it.lane].plan.is_begun(it.ticket));
        // What is begun is not put down as if it were not.
        if placed.and_then(plan) == Some(false) {
            self.changes.push(Change::Reserved(id));
        }
    }

    pub fn promise(&mut self, id: TaskId) -> Option<Promise> {
        let Some(Placed { by, lane, ticket, .. }) = self.placed.get(&id) else {
            return self.taken.get(&id).map(|taken| taken.promise.clone());
        };
        let times = self.resources.get_mut(by)?.lanes[*lane].plan.times(*ticket)?;
        Some(Promise { task: id, by: by.clone(), times })
    }

    /// The plan of a resource, of one of those it does at a time. It is to be looked at: where somebody is in suspense there
    /// is another, which does not see what is changed here.
    pub fn plan_mut(&mut self, id: &ResourceId, lane: usize) -> Option<&mut Plan> {
        self.resources.get_mut(id)?.lanes.get_mut(lane).map(|lane| &mut lane.plan)
    }

    /// Which task a reservation is of.
    pub fn task_of(&self, id: &ResourceId, lane: usize, ticket: Ticket) -> Option<TaskId> {
        self.resources.get(id)?.lanes.get(lane)?.tasks.get(&ticket).copied()
    }
}

/// The least time to spare first.
pub(crate) fn by_urgency(mut tasks: Vec<Task>, now: Timestamp) -> Vec<Task> {
    tasks.sort_by_key(|task| (task.slack(now), std::cmp::Reverse(task.priority), task.id));
    tasks
}
