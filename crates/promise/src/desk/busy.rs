//! What resources do besides what they have promised, and when they may begin something.

use legwork_model::time::Timestamp;

use super::{Change, Desk, Lane, Placed};
use crate::plan::Plan;
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
            lane.plan.occupy_until(*moment);
            lane.factor.refresh(&lane.plan);
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
        lanes.iter_mut().for_each(|lane| lane.plan.pass(now));
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
        let goes_on = lane.plan.give_up(*ticket);
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
        found.plan.pass(now);
        let is_turn_behind = |lane: &Lane, plan: &Plan| {
            plan.is_next(*ticket) || lane.in_shade(plan, |plan| plan.is_turn_behind(*ticket))
        };
        let may_begin = |lane: &Lane| {
            let mut plan = lane.with_taken();
            !lane.is_in_suspense_itself(*ticket)
                && plan.is_turn_of(*ticket)
                && is_turn_behind(lane, &plan)
        };
        let is_turn = found.plan.is_turn_of(*ticket)
            && is_turn_behind(found, &found.plan)
            && (!found.is_in_suspense() || found.plan.is_begun(*ticket) || may_begin(found));
        is_turn.then_some(*lane)
    }
}
