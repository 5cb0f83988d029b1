//! What resources do besides what they have promised, and when they may begin something.

use legwork_model::time::Timestamp;

use super::lane::Lane;
use super::{Change, Desk, Placed};
use crate::plan::{Plan, Ticket, Window};
use crate::supply::Work;
use crate::task::{ResourceId, Task, TaskId};

impl Desk {
    /// How many tasks a resource is planned for at a time; none if it has no plan here.
    pub fn lanes(&self, id: &ResourceId) -> usize {
        self.resources.get(id).map_or(0, |resource| resource.lanes.len())
    }

    /// Other work takes a resource until then, lane by lane.
    pub fn occupy(&mut self, id: &ResourceId, until: &[Option<Timestamp>]) {
        let Some(resource) = self.resources.get_mut(id) else { return };
        for (lane, moment) in resource.lanes.iter_mut().zip(until) {
            lane.occupy_until(*moment);
        }
    }

    /// Takes so much time of a resource for something that is not promised; false if it has none.
    pub(crate) fn spend(&mut self, id: &ResourceId, window: Window, cost: Work) -> bool {
        let lane = self.resources.get_mut(id).and_then(|resource| resource.lanes.first_mut());
        lane.is_some_and(|lane| lane.reserve(window, cost).is_some())
    }

    /// Nobody works there any more: what was begun waits, with what is left of it.
    pub fn stop(&mut self, id: &ResourceId, lane: usize) {
        let resource = self.resources.get_mut(id);
        if let Some(lane) = resource.and_then(|resource| resource.lanes.get_mut(lane)) {
            lane.stop();
        }
    }

    /// What is left of what a resource has promised and works on, lane by lane.
    pub fn works_on(&self, id: &ResourceId) -> Vec<Option<Work>> {
        let lanes = self.resources.get(id).into_iter().flat_map(|resource| &resource.lanes);
        let begun = lanes.map(|Lane { plan, .. }| {
            let running = plan.left(plan.running()?)?;
            Some(running.max(plan.left_at_hand()))
        });
        begun.collect()
    }

    /// Whether a resource has promised anything.
    pub fn has_promised(&self, id: &ResourceId) -> bool {
        let lanes = self.resources.get(id).into_iter().flat_map(|resource| &resource.lanes);
        lanes.into_iter().any(|lane| !lane.tasks.is_empty() || lane.is_in_suspense())
    }

    /// Where a resource can begin something now that is not promised, and make no promise late: if possible
    /// where it has promised nothing. Where somebody is in suspense nothing is begun for that moment.
    pub fn turn_for(&mut self, id: &ResourceId, cost: Work, now: Timestamp) -> Option<usize> {
        let lanes = &mut self.resources.get_mut(id)?.lanes;
        lanes.iter_mut().for_each(|lane| lane.pass(now));
        let is_free = |lane: &Lane| {
            lane.tasks.is_empty() && !lane.plan.is_occupied() && !lane.is_in_suspense()
        };
        let free = lanes.iter().position(is_free);
        let has_turn = |lane: &mut Lane| {
            !lane.is_in_suspense()
                && lane.plan.has_turn_for(cost)
                && lane.in_shade(&lane.plan, |plan| plan.has_turn_behind(cost))
        };
        free.or_else(|| lanes.iter_mut().position(has_turn))
    }

    /// Who has promised a task.
    pub fn promised_by(&self, id: TaskId) -> Option<&ResourceId> {
        let placed = self.placed.get(&id).map(|placed| &placed.by);
        placed.or_else(|| self.taken.get(&id).map(|taken| &taken.promise.by))
    }

    /// Somebody works on it since then, which is told only now. What was done since is not to be done any more, unless
    /// they had begun something else: then nobody knows what they worked on.
    pub fn begin_since(&mut self, id: TaskId, since: Timestamp) {
        let Some(placed) = self.placed.get(&id) else { return };
        let Some(resource) = self.resources.get(&placed.by) else { return };
        if resource.lanes[placed.lane].plan.running().is_some() {
            return self.begin(id);
        }
        self.changes.push(Change::Begun(id));
        self.put_anew(id, Some(since));
    }

    /// Whether somebody works on a task that was promised.
    pub fn is_begun(&self, id: TaskId) -> bool {
        let Some(Placed { by, lane, ticket, .. }) = self.placed.get(&id) else { return false };
        let lane = self.resources.get(by).and_then(|resource| resource.lanes.get(*lane));
        lane.is_some_and(|lane| lane.plan.is_begun(*ticket))
    }

    /// Whether somebody was given a task that was promised, and may be at work or not.
    pub fn is_out(&self, id: TaskId) -> bool {
        let Some(Placed { by, lane, ticket, .. }) = self.placed.get(&id) else { return false };
        let lane = self.resources.get(by).and_then(|resource| resource.lanes.get(*lane));
        lane.is_some_and(|lane| lane.out.contains(ticket))
    }

    /// It will not be done in time. Answers whether whoever works on it goes on all the same.
    pub(crate) fn give_up(&mut self, id: TaskId) -> Option<(Task, bool)> {
        let Placed { by, lane, ticket, .. } = self.placed.get(&id)?;
        let lane = self.resources.get_mut(by)?.lanes.get_mut(*lane)?;
        let goes_on = lane.give_up(*ticket);
        Some((self.end(id)?, goes_on))
    }

    /// In which of the plans of whoever has promised it a task is.
    pub fn lane_of(&self, id: TaskId) -> Option<(&ResourceId, usize)> {
        self.placed.get(&id).map(|placed| (&placed.by, placed.lane))
    }

    /// Where a task that was promised can be begun now, if it can. What is in suspense cannot, for it makes way or not in a
    /// moment; what is beside it can if the room that is taken is there all the same.
    pub fn turn_of(&mut self, id: TaskId, now: Timestamp) -> Option<usize> {
        let Placed { by, lane, ticket, .. } = self.placed.get(&id)?;
        let found = self.resources.get_mut(by)?.lanes.get_mut(*lane)?;
        found.pass(now);
        found.has_turn(*ticket).then_some(*lane)
    }
}

impl Lane {
    fn has_turn(&mut self, ticket: Ticket) -> bool {
        self.plan.is_turn_of(ticket)
            && self.is_turn_behind(&self.plan, ticket)
            && (!self.is_in_suspense() || self.plan.is_begun(ticket) || self.has_turn_ahead(ticket))
    }

    /// Whether it can be begun whatever comes of room that is taken.
    fn has_turn_ahead(&mut self, ticket: Ticket) -> bool {
        let makes_way = self.makes_way(ticket);
        let Some(rooms) = self.rooms.as_mut().filter(|_| !makes_way) else { return false };
        rooms.ahead.is_turn_of(ticket)
            && self.rooms.as_ref().is_some_and(|rooms| self.is_turn_behind(&rooms.ahead, ticket))
    }

    /// Whether it is next in a plan of this lane, or makes nobody late also if there is something that nobody knows of.
    fn is_turn_behind(&self, plan: &Plan, ticket: Ticket) -> bool {
        plan.is_next(ticket) || self.in_shade(plan, |plan| plan.is_turn_behind(ticket))
    }
}
