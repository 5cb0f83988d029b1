//! The server's planner with one resource that has one slot, and works by its plan.

use std::collections::BTreeSet;

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_plan::{
    Candidate, Discipline, How, Planner, ResourceId, Setup, Span, Supply, Task, TaskId, WHOLE,
    Window, Work,
};

/// Working days of people, in units of ten seconds: 8 of 24 hours on five of seven days, with half an hour of
/// regular work each. As far ahead as a server plans.
const HOUR: i64 = 360;
const DAY: i64 = 24 * HOUR;
const WORKS: (i64, i64) = (8 * HOUR, 16 * HOUR);
const REGULAR: i64 = HOUR / 2;
const AHEAD: i64 = 400;

/// A request for a reservation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) number: u64,
    pub(super) release: i64,
    pub(super) due: i64,
    pub(super) cost: i64,
}

/// The kind of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// Works at any hour, preemptively.
    Always,
    /// Works at any hour, non-preemptively.
    Whole,
    /// Has working hours, and regular work every day.
    Person,
}

/// A planned interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) start: i64,
    pub(super) end: i64,
}

pub(super) struct OneHand {
    planner: Planner,
    who: ResourceId,
    discipline: Discipline,
    /// The running task, if it is not preemptible.
    running: Option<TaskId>,
    /// The next moment at which a task may be done, or can begin.
    looks_at: i64,
}

impl OneHand {
    pub(super) fn new(who: Who) -> Self {
        let start = Timestamp(0);
        let (supply, regular) = match who {
            Who::Always | Who::Whole => (Supply::always(start), Vec::new()),
            Who::Person => {
                let spans = working_days().map(|(from, to)| Span { from, to, share: WHOLE });
                let regular = working_days().map(|(release, due)| Window { release, due });
                let regular = regular.map(|window| (window, Work(REGULAR)));
                (Supply::new(spans), regular.collect())
            }
        };
        let discipline = match who {
            Who::Always | Who::Person => Discipline::Preemptive,
            Who::Whole => Discipline::NonPreemptive,
        };
        let setup = Setup { supply, discipline, hands: 1, regular, reserve: 0, lag: Work(0) };
        let (mut planner, who) = (Planner::default(), ResourceId::Executor("one".into()));
        planner.set_up(who.clone(), &setup, start);
        Self { planner, who, discipline, running: None, looks_at: 0 }
    }

    fn task(&self, asked: Asked) -> Task {
        Task {
            id: id(asked.number),
            step: "step".into(),
            priority: 0,
            release: Timestamp(asked.release),
            due: Some(Timestamp(asked.due)),
            cost: Work(asked.cost),
            who: vec![Candidate::at_any_time(self.who.clone())],
            how: How::Plain,
            after_fault: false,
            idle_until: None,
            offer: None,
            of: None,
        }
    }

    /// Advances the time, in which the resource worked by its plan; returns the finished tasks.
    pub(super) fn pass(&mut self, now: i64) -> Vec<u64> {
        self.planner.pass(Timestamp(now));
        if now < self.looks_at {
            return Vec::new();
        }
        let turns = self.planner.turns(&self.who, 0).unwrap_or_default();
        let done: Vec<TaskId> = match self.discipline {
            Discipline::Preemptive => {
                let left: BTreeSet<TaskId> = turns.iter().filter_map(|(_, task)| *task).collect();
                let all = self.planner.firm().map(|reservation| reservation.task);
                all.filter(|task| !left.contains(task)).collect()
            }
            Discipline::NonPreemptive => self.running.take().into_iter().collect(),
        };
        for task in &done {
            self.planner.end(*task);
        }
        let next = turns.into_iter().find(|(_, task)| task.is_none_or(|it| !done.contains(&it)));
        self.looks_at = next.map_or(now + 1, |(turn, task)| match self.discipline {
            Discipline::Preemptive => turn.to.0,
            Discipline::NonPreemptive if turn.from.0 > now => turn.from.0,
            Discipline::NonPreemptive => {
                self.running = task;
                task.iter().for_each(|task| self.planner.begin(*task, Timestamp(now)));
                turn.to.0
            }
        });
        drop(self.planner.take_changes());
        done.into_iter().map(|task| task.instance.0 as u64).collect()
    }

    /// The reservation; `None` if refused.
    pub(super) fn admit(&mut self, asked: Asked) -> Option<Planned> {
        let (task, asker) = (self.task(asked), (ServerId(0), 0));
        let held = self.planner.hold(&task, asker, Timestamp(i64::MAX));
        let (grant, _) = held.ok()?;
        self.planner.confirm(task.id, asker.0, asker.1);
        match self.discipline {
            // Earliest due date first, whatever was begun before.
            Discipline::Preemptive => self.planner.begin(task.id, grant.start),
            // It may be the first that can begin.
            Discipline::NonPreemptive if self.running.is_none() => self.looks_at = 0,
            Discipline::NonPreemptive => {}
        }
        Some(Planned { start: grant.start.0, end: grant.end.0 })
    }

    /// The earliest possible end. The plan does not change.
    pub(super) fn earliest(&self, asked: Asked) -> Option<i64> {
        self.planner.probe(&self.task(asked)).map(|(end, _)| end.0)
    }

    /// Releases an unwanted reservation.
    pub(super) fn release(&mut self, number: u64) {
        self.running.take_if(|running| *running == id(number));
        self.planner.release(id(number), ServerId(0), 0);
    }
}

fn working_days() -> impl Iterator<Item = (Timestamp, Timestamp)> {
    let days = (0..AHEAD).filter(|day| day % 7 < 5);
    days.map(|day| (Timestamp(day * DAY + WORKS.0), Timestamp(day * DAY + WORKS.1)))
}

fn id(number: u64) -> TaskId {
    TaskId { instance: InstanceId(number.into()), step: 0, round: 0 }
}
