//! The best performer for a task, and the tasks that are displaced for it.

use legwork_model::time::Timestamp;

use super::{Held, Planner, Reservation};
use crate::plan::{Depth, Plan, Window};
use crate::supply::Work;
use crate::task::{How, ResourceId, Task, TaskId};

/// The best place for a task.
pub(super) struct Fit {
    pub(super) end: Timestamp,
    pub(super) load: Work,
    pub(super) by: ResourceId,
    pub(super) hand: usize,
    pub(super) window: Window,
    pub(super) displaced: Vec<TaskId>,
}

impl Planner {
    /// The best place for a task: with a due date, the performer with the least work; without one, the performer
    /// that is done first. The performer that has begun the task needs only the rest.
    pub(super) fn fit(&self, task: &Task, rest: Option<(&ResourceId, Work)>) -> Option<Fit> {
        let mut best: Option<Fit> = None;
        for candidate in &task.who {
            let rest = rest.filter(|(by, _)| **by == candidate.who).map(|(_, rest)| rest);
            let task = &Task { cost: rest.unwrap_or(task.cost), ..task.clone() };
            let hands = self.resources.get(&candidate.who).into_iter().flatten();
            for (hand, plan) in hands.enumerate() {
                let any = [Window { release: task.release, due: Timestamp(i64::MAX) }];
                let windows =
                    if candidate.within.is_empty() { &any[..] } else { &candidate.within };
                for within in windows {
                    let release = within.release.max(task.release);
                    let window = Window { release, due: within.due };
                    let Some(fit) = self.fit_in(task, &candidate.who, (hand, plan), window) else {
                        continue;
                    };
                    let rank = |fit: &Fit| match task.due {
                        Some(_) => (fit.displaced.len(), fit.load.0, fit.end.0),
                        None => (0, fit.end.0, fit.load.0),
                    };
                    if best.as_ref().is_none_or(|best| rank(&fit) < rank(best)) {
                        best = Some(fit);
                    }
                    break;
                }
            }
        }
        best
    }

    fn fit_in(
        &self,
        task: &Task,
        who: &ResourceId,
        (hand, plan): (usize, &Plan),
        window: Window,
    ) -> Option<Fit> {
        let idle = task.idle_until.map(|moment| plan.idle_until(moment));
        let plan = idle.as_ref().unwrap_or(plan);
        let depth = if task.after_fault { Depth::Reserve } else { Depth::Normal };
        let due = window.due.min(task.due.unwrap_or(Timestamp(i64::MAX)));
        let earliest = |plan: &Plan| plan.earliest(window.release, task.cost, depth);
        let end = earliest(plan);
        let mut displaced = Vec::new();
        let end = match end.filter(|end| *end <= due) {
            Some(end) if task.how != How::Displacing || task.due.is_some() => end,
            _ if task.how != How::Displacing => return None,
            _ => {
                let victims = self.victims(task, who, hand);
                let without = |count: usize| {
                    let mut plan = plan.clone();
                    victims[..count].iter().for_each(|(_, key)| {
                        plan.remove(*key);
                    });
                    earliest(&plan).filter(|end| *end <= due)
                };
                let end = without(victims.len())?;
                // Binary search for the smallest number of victims.
                let (mut too_few, mut enough) = (0, victims.len());
                while task.due.is_some() && too_few + 1 < enough {
                    let middle = usize::midpoint(too_few, enough);
                    match without(middle) {
                        Some(_) => enough = middle,
                        None => too_few = middle,
                    }
                }
                displaced.extend(victims[..enough].iter().map(|(task, _)| *task));
                without(enough).unwrap_or(end)
            }
        };
        // As soon as possible: the due date is the possible end.
        let due = if task.due.is_some() { due } else { end };
        let window = Window { due, ..window };
        Some(Fit { end, load: plan.load(), by: who.clone(), hand, window, displaced })
    }

    /// The entries that a task may displace, least important and latest due date first.
    fn victims(&self, task: &Task, who: &ResourceId, hand: usize) -> Vec<(TaskId, u64)> {
        let mut victims: Vec<&Held> = self
            .held
            .values()
            .filter(|held| {
                let Reservation { by, hand: own, priority, .. } = &held.reservation;
                (by, *own) == (who, hand)
                    && held.until.is_none()
                    && *priority < task.priority
                    && !self.plan(by, hand).is_some_and(|plan| plan.is_begun(held.key))
            })
            .collect();
        victims.sort_by_key(|held| {
            let Reservation { priority, window, task, .. } = held.reservation;
            (priority, std::cmp::Reverse(window.due), task)
        });
        victims.into_iter().map(|held| (held.reservation.task, held.key)).collect()
    }
}
