//! What will not be kept if nothing changes, and what of it is given up first.
//!
//! Invariant: nobody is given up because of what is given up itself a moment later.

use std::cmp::Reverse;

use legwork_model::time::Timestamp;

use super::{Desk, Lane, Placed, by_urgency};
use crate::plan::{Plan, Ticket};
use crate::supply::Work;
use crate::task::{ResourceId, TaskId};

/// How late something may seem to become before it is given up: nobody begins in the very moment in which they
/// could, and what is told takes a while. Who is a moment late mostly makes up for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leeway {
    /// A part of how long it takes: one in so many; none if 0.
    pub part: i64,
    /// In milliseconds.
    pub most: i64,
}

impl Leeway {
    fn of(self, service: Work) -> i64 {
        service.0.checked_div(self.part).map_or(0, |part| part.min(self.most))
    }

    /// The same for something in a plan.
    pub(super) fn for_one(self, plan: &Plan, ticket: Ticket, service: Work) -> i64 {
        // Who takes longer than was said does not make up for it.
        let is_longer = plan.left(ticket) == Some(Work(0));
        // Nor does anybody in the night: no working time passes then, and it would be late before anybody knows.
        if is_longer || plan.is_past_due(ticket) { 0 } else { self.of(service) }
    }
}

/// Something that will be late if nothing changes.
struct Late<'a> {
    placed: &'a Placed,
    /// How much further behind it is than may be.
    beyond: i64,
    left: i64,
    /// Nobody has begun it, and somebody could.
    is_let_lie: bool,
    goes_on: bool,
}

impl Desk {
    /// The plans in which something will not be kept if nothing changes: whose, and which of theirs.
    pub fn endangered_lanes(&mut self) -> Vec<(ResourceId, usize)> {
        let mut endangered = Vec::new();
        for (id, resource) in &mut self.resources {
            let lanes = resource.lanes.iter_mut().enumerate();
            let late = lanes.filter_map(|(lane, it)| (!it.plan.late().is_empty()).then_some(lane));
            endangered.extend(late.map(|lane| (id.clone(), lane)));
        }
        endangered
    }

    /// Of all that will not be kept in a plan if nothing changes, what is given up first. Where something can be put aside for
    /// what is due sooner, that is what is due first: whatever is due later is in nobody's way. Elsewhere it is the least
    /// important, and of those the longest. What is being worked on and cannot be put aside comes last, for it is in
    /// the way of the others all the same.
    pub fn first_to_give_up(
        &mut self,
        of: &ResourceId,
        lane: usize,
        now: Timestamp,
    ) -> Option<TaskId> {
        let Lane { plan, tasks, .. } = self.resources.get_mut(of)?.lanes.get_mut(lane)?;
        let all = plan.late().into_iter().filter_map(|(ticket, by)| {
            let placed = self.placed.get(tasks.get(&ticket)?)?;
            let beyond = by - self.leeway.for_one(plan, ticket, placed.task.service);
            let is_let_lie = placed.window.release <= now && !plan.is_begun(ticket);
            let left = plan.left(ticket).map_or(0, |left| left.0);
            let goes_on = plan.goes_on_with(ticket);
            Some(Late { placed, beyond, left, is_let_lie, goes_on })
        });
        let all: Vec<Late<'_>> = all.collect();
        let is_by_deadline = plan.is_preemptive();
        let has_time = |late: &Late<'_>| {
            late.placed.window.deadline.0.saturating_sub(now.0) > 2 * self.leeway.most
        };
        // Who should have begun what is due first may do so yet, or it is given up soon: the others are waited with if they would
        // be in time then.
        let mut let_lie = 0;
        let lost = all.iter().filter(|late| {
            let is_lost = late.beyond > 0;
            let is_waited_with = late.beyond <= let_lie && has_time(late);
            if is_by_deadline && !is_lost && late.is_let_lie {
                let_lie += late.left;
            }
            is_lost && !is_waited_with
        });
        let first = lost.min_by_key(|late| {
            let Placed { task, window, .. } = late.placed;
            let due = is_by_deadline.then_some(window.deadline);
            (late.goes_on, due, task.priority, Reverse(task.service), task.id)
        });
        first.map(|late| late.placed.task.id)
    }

    /// Promises that will not be kept if nothing changes, the most urgent first.
    pub fn endangered(&mut self, now: Timestamp) -> Vec<TaskId> {
        let lanes = self.resources.values_mut().flat_map(|resource| &mut resource.lanes);
        let late = lanes.flat_map(|Lane { plan, tasks, .. }| {
            let ids = plan.endangered().into_iter();
            ids.filter_map(|ticket| tasks.get(&ticket)).collect::<Vec<_>>()
        });
        let tasks = late.filter_map(|id| self.placed.get(id)).map(|placed| placed.task.clone());
        by_urgency(tasks.collect(), now).into_iter().map(|task| task.id).collect()
    }
}
