//! Who promises: the production's planner, with somebody who works by its plan.

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_promise::{
    Desk, Discipline, Plan, ResourceId, Setup, Supply, Task, TaskId, Window, Work,
};

use super::naive::{Naive, Open};

/// So much work, to be promised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) release: i64,
    pub(super) deadline: i64,
    pub(super) cost: i64,
}

pub(super) trait Planner {
    /// Time has passed, in which somebody worked on what is first; answers what is done.
    fn pass(&mut self, now: i64) -> Option<u64>;
    fn admit(&mut self, asked: Asked) -> bool;
    /// Given back.
    fn end(&mut self, number: u64);
}

/// A desk with one resource.
pub(super) struct Production {
    desk: Desk,
    resource: ResourceId,
    can_put_aside: bool,
    now: i64,
}

impl Production {
    pub(super) fn new(whole: bool) -> Self {
        let resource = ResourceId::Executor("one".into());
        let discipline = if whole { Discipline::NonPreemptive } else { Discipline::Preemptive };
        let start = Timestamp(0);
        let setup = Setup {
            supply: Supply::always(start),
            discipline,
            at_once: 1,
            loads: Vec::new(),
            jobs: Vec::new(),
            lag: Work(0),
        };
        let mut desk = Desk::default();
        desk.add(resource.clone(), &setup, start);
        Self { desk, resource, can_put_aside: !whole, now: 0 }
    }

    fn task(&self, asked: Asked) -> Task {
        let Asked { number, release, deadline, cost } = asked;
        let window = Window { release: Timestamp(release), deadline: Timestamp(deadline) };
        Task::new(id(number), window, Work(cost), vec![self.resource.clone()])
    }

    pub(super) fn earliest(&mut self, asked: Asked) -> u64 {
        let task = self.task(asked);
        self.desk.earliest(&task).map_or(0, |moment| moment.0 as u64)
    }

    /// Whoever works turns to what is first now, if what is begun can be put aside.
    fn turn_to_next(&mut self) {
        let Some(plan) = self.desk.plan_mut(&self.resource, 0) else { return };
        let is_free = self.can_put_aside || plan.running().is_none();
        if let Some(next) = plan.next().filter(|next| is_free && plan.running() != Some(*next)) {
            plan.begin_with(next);
        }
    }

    /// One with the same reservations that puts everything in order anew each time.
    pub(super) fn naive(mut self) -> Naive {
        let now = self.now;
        let Some(plan) = self.desk.plan_mut(&self.resource, 0) else { return Naive::default() };
        plan.stop();
        let tickets: Vec<_> = plan.waiting().collect();
        let left: Vec<_> = tickets.iter().map(|ticket| plan.left(*ticket)).collect();
        let open = tickets.into_iter().zip(left).filter_map(|(ticket, left)| {
            let task = self.desk.task(self.desk.task_of(&self.resource, 0, ticket)?)?;
            Some(Open {
                number: task.id.instance.0 as u64,
                release: task.window.release.0,
                deadline: task.window.deadline.0,
                left: left?.0,
            })
        });
        Naive::new(open.collect(), now)
    }
}

fn id(number: u64) -> TaskId {
    TaskId::new(InstanceId(number.into()), 0)
}

impl Planner for Production {
    fn pass(&mut self, now: i64) -> Option<u64> {
        self.now = now;
        self.desk.pass(Timestamp(now));
        let over = |plan: &Plan| {
            plan.running().filter(|ticket| plan.left(*ticket).is_none_or(|left| left.0 == 0))
        };
        let ticket = self.desk.plan_mut(&self.resource, 0).and_then(|plan| over(plan));
        let done = ticket.and_then(|ticket| self.desk.task_of(&self.resource, 0, ticket));
        done.and_then(|done| self.desk.end(done));
        self.turn_to_next();
        done.map(|done| done.instance.0 as u64)
    }

    fn admit(&mut self, asked: Asked) -> bool {
        let task = self.task(asked);
        let is_promised = self.desk.guarantee(&task).is_some();
        self.turn_to_next();
        is_promised
    }

    fn end(&mut self, number: u64) {
        self.desk.end(id(number));
        self.turn_to_next();
    }
}
