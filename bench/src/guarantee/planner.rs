//! Who promises: the production's planner, with somebody who works by its plan.

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_promise::{
    Desk, Discipline, Plan, ResourceId, Setup, Span, Supply, Task, TaskId, WHOLE, Window, Work,
};

use super::naive::{Naive, Open};

/// Working days as people have them, in units of ten seconds: 8 of 24 hours on five of seven days, and half an hour
/// of each that is theirs. As far ahead as a server looks.
const HOUR: i64 = 360;
const DAY: i64 = 24 * HOUR;
const WORKS: (i64, i64) = (8 * HOUR, 16 * HOUR);
const REGULAR: i64 = HOUR / 2;
const AHEAD: i64 = 400;

/// So much work, to be promised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) release: i64,
    pub(super) deadline: i64,
    pub(super) cost: i64,
}

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Works at any hour, and can put work aside.
    Always,
    /// Works at any hour, and finishes what has begun first.
    Whole,
    /// Has working hours, and something to do every day.
    Person,
}

/// From when to when something is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) start: i64,
    pub(super) end: i64,
}

pub(super) trait Planner {
    /// Time has passed, in which somebody worked on what is first; answers what is done.
    fn pass(&mut self, now: i64) -> Option<u64>;
    /// For when it is promised; `None`: it is refused.
    fn admit(&mut self, asked: Asked) -> Option<Planned>;
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
    pub(super) fn new(who: Who) -> Self {
        let resource = ResourceId::Executor("one".into());
        let start = Timestamp(0);
        let (supply, jobs) = match who {
            Who::Always | Who::Whole => (Supply::always(start), Vec::new()),
            Who::Person => {
                let spans = working_days().map(|(from, to)| Span { from, to, share: WHOLE });
                let jobs = working_days().map(|(release, deadline)| Window { release, deadline });
                let jobs = jobs.map(|window| (window, Work(REGULAR)));
                (Supply::new(spans), jobs.collect())
            }
        };
        let can_put_aside = who != Who::Whole;
        let discipline = match can_put_aside {
            true => Discipline::Preemptive,
            false => Discipline::NonPreemptive,
        };
        let (at_once, loads, lag) = (1, Vec::new(), Work(0));
        let setup = Setup { supply, discipline, at_once, loads, jobs, lag };
        let mut desk = Desk::default();
        desk.add(resource.clone(), &setup, start);
        Self { desk, resource, can_put_aside, now: 0 }
    }

    fn task(&self, asked: Asked) -> Task {
        let Asked { number, release, deadline, cost } = asked;
        let window = Window { release: Timestamp(release), deadline: Timestamp(deadline) };
        Task::new(id(number), window, Work(cost), vec![self.resource.clone()])
    }

    pub(super) fn earliest(&mut self, asked: Asked) -> Option<i64> {
        let task = self.task(asked);
        self.desk.earliest(&task).map(|moment| moment.0)
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

fn working_days() -> impl Iterator<Item = (Timestamp, Timestamp)> {
    let days = (0..AHEAD).filter(|day| day % 7 < 5);
    days.map(|day| (Timestamp(day * DAY + WORKS.0), Timestamp(day * DAY + WORKS.1)))
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

    fn admit(&mut self, asked: Asked) -> Option<Planned> {
        let task = self.task(asked);
        let promise = self.desk.guarantee(&task);
        self.turn_to_next();
        promise.map(|it| Planned { start: it.times.start.0, end: it.times.end.0 })
    }

    fn end(&mut self, number: u64) {
        self.desk.end(id(number));
        self.turn_to_next();
    }
}
