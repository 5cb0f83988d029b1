//! The local scheduler of a node: the server's planner with one slot, the regular work of the node, the overheads
//! of planning, and the paper's surplus.
//!
//! Invariant: whenever time passes, the slot works on the earliest due date.

use std::collections::BTreeMap;

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_plan::{
    Candidate, Discipline, How, Planner, Reservation, ResourceId, Setup, Supply, Task, TaskId,
    Window, Work,
};

use super::drawn::{REGULAR, UNIT};

/// The cost of planning at its node.
pub(super) const GUARANTEE: i64 = UNIT / 10;
pub(super) const REMOVAL: i64 = 3 * UNIT / 10;
pub(super) const CLUSTERING: i64 = UNIT / 2;
/// The time within which a node does its planning.
const PLANNING: i64 = GUARANTEE + REMOVAL + CLUSTERING;
const OVERHEAD: InstanceId = InstanceId(u128::MAX);
/// How many periods of regular work are planned ahead, further than any deadline, and how many are added at once.
const PERIODS_AHEAD: i64 = 8;
const PERIODS_ADDED: i64 = 4;
const THOUSAND: i64 = 1_000;
/// The shortest interval for the factor.
const PROSPECT: i64 = UNIT;
/// How much a wrong quick answer makes the next acceptance harder, and a right one easier, in thousandths.
const WRONG: i64 = 40;
const RIGHT: i64 = 10;
const MARGIN: std::ops::RangeInclusive<i64> = -300..=1_000;
/// One of so many quick refusals is tested nevertheless, to correct the margin.
const TRIED: u32 = 8;

/// A task, or a part of one, in requests between nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) id: TaskId,
    pub(super) priority: u8,
    pub(super) release: i64,
    pub(super) due: i64,
    pub(super) cost: i64,
    /// The only possible node; any node if there is none.
    pub(super) only: Option<usize>,
    /// Whether less important tasks may be displaced for it.
    pub(super) displaces: bool,
}

impl Job {
    /// Its slack.
    pub(super) fn slack(&self, now: i64) -> i64 {
        self.due - now - self.cost
    }
}

/// The requesting node, and the number of its attempt.
pub(super) type Asker = (usize, u64);

#[derive(Clone, Debug)]
pub(super) struct Hand {
    planner: Planner,
    who: ResourceId,
    /// The regular work: so much in every period.
    regular: (i64, i64),
    /// When more regular work is planned.
    adds_at: i64,
    at_work: Option<TaskId>,
    overheads: u64,
    margin: i64,
    refused: u32,
}

impl Hand {
    pub(super) fn new(node: usize) -> Self {
        Self {
            planner: Planner::default(),
            who: ResourceId::Executor(format!("node-{node}").into()),
            regular: REGULAR[node],
            adds_at: 0,
            at_work: None,
            overheads: 0,
            margin: 0,
            refused: 0,
        }
    }

    /// Time has passed.
    pub(super) fn pass(&mut self, now: i64) {
        while self.adds_at <= now {
            // At the end of a period no regular work is half done.
            let at = self.adds_at;
            self.planner.pass(Timestamp(at));
            self.planner.set_up(self.who.clone(), &self.setup(at), Timestamp(at));
            self.adds_at += PERIODS_ADDED * self.regular.0;
        }
        self.planner.pass(Timestamp(now));
    }

    fn setup(&self, at: i64) -> Setup {
        let (period, cost) = self.regular;
        let regular = (0..PERIODS_AHEAD).map(|number| {
            let (release, due) = (at + number * period, at + (number + 1) * period);
            (Window { release: Timestamp(release), due: Timestamp(due) }, Work(cost))
        });
        let (supply, regular) = (Supply::always(Timestamp(0)), regular.collect());
        Setup {
            supply,
            discipline: Discipline::Preemptive,
            hands: 1,
            regular,
            reserve: 0,
            lag: Work(0),
        }
    }

    /// Works by due date; returns the finished reservation, and when to look again.
    pub(super) fn work(&mut self, now: i64) -> (Option<Reservation>, Option<i64>) {
        let mut turns = self.planner.turns(&self.who, 0).unwrap_or_default().into_iter();
        let first = turns.next();
        let mut is_left = |at_work| {
            let own = |task: Option<TaskId>| task == Some(at_work);
            first.is_some_and(|(_, task)| own(task)) || turns.any(|(_, task)| own(task))
        };
        let done = self.at_work.take_if(|at_work| !is_left(*at_work));
        let done = done.and_then(|done| self.planner.end(done));
        let next = first.map(|(turn, task)| {
            if turn.from.0 > now {
                return turn.from.0;
            }
            if let Some(task) = task {
                self.planner.begin(task, Timestamp(now));
                self.at_work = Some(task);
            }
            turn.to.0
        });
        drop(self.planner.take_changes());
        (done.filter(|done| done.task.instance != OVERHEAD), next)
    }

    fn task(&self, job: &Job) -> Task {
        Task {
            id: job.id,
            step: "task".into(),
            priority: job.priority,
            release: Timestamp(job.release),
            due: Some(Timestamp(job.due)),
            cost: Work(job.cost),
            who: vec![Candidate::at_any_time(self.who.clone())],
            how: How::Plain,
            after_fault: false,
            idle_until: None,
            offer: None,
            of: None,
        }
    }

    /// Spends time on planning; false if that would make a reservation late.
    pub(super) fn spend(&mut self, cost: i64, now: i64) -> bool {
        self.overheads += 1;
        let id = TaskId { instance: OVERHEAD, step: 0, round: self.overheads };
        let (due, only, priority) = (now + PLANNING, None, u8::MAX);
        let job = Job { id, priority, release: now, due, cost, only, displaces: false };
        self.hold(&job, (0, 0))
    }

    /// Reserves time for jobs, all or none.
    pub(super) fn reserve(&mut self, jobs: &[Job], asker: Asker) -> bool {
        let is_held = |job: &Job| self.hold(job, asker);
        let held = jobs.iter().map(is_held).take_while(|is_held| *is_held).count();
        if held < jobs.len() {
            jobs[..held].iter().for_each(|job| drop(self.planner.end(job.id)));
        }
        held == jobs.len()
    }

    /// The removal module of the paper: reserves time for a job by displacing less important ones that are due
    /// later and not begun, as few as possible, least important and latest due date first; returns these.
    pub(super) fn displace(&mut self, job: &Job, asker: Asker) -> Option<Vec<Reservation>> {
        let left = self.left();
        let is_later = |it: &&Reservation| {
            let is_begun = self.at_work == Some(it.task) || left.get(&it.task) != Some(&it.cost.0);
            it.priority < job.priority && it.window.due.0 > job.due && !is_begun
        };
        let mut displaced: Vec<_> = self.planner.firm().filter(is_later).cloned().collect();
        displaced.sort_by_key(|it| (it.priority, std::cmp::Reverse(it.window.due), it.task));
        let mut without = self.clone();
        let is_enough = |one: &Reservation| {
            without.planner.end(one.task);
            without.hold(job, asker)
        };
        let last = displaced.iter().position(is_enough)?;
        displaced.truncate(last + 1);
        *self = without;
        Some(displaced)
    }

    pub(super) fn hold(&mut self, job: &Job, (node, attempt): Asker) -> bool {
        let (task, asker) = (self.task(job), ServerId(node as u16));
        let held = self.planner.hold(&task, (asker, attempt), Timestamp(i64::MAX));
        held.is_ok() && self.planner.confirm(task.id, asker, attempt)
    }

    /// The remaining work of reservations.
    fn left(&self) -> BTreeMap<TaskId, i64> {
        let mut left = BTreeMap::new();
        for (turn, task) in self.planner.turns(&self.who, 0).unwrap_or_default() {
            if let Some(task) = task {
                *left.entry(task).or_default() += turn.to.0 - turn.from.0;
            }
        }
        left
    }

    /// Releases a job in attempts up to this one.
    pub(super) fn release(&mut self, id: TaskId, (node, attempt): Asker) {
        self.planner.release(id, ServerId(node as u16), attempt);
    }

    /// Equation 1 of the paper: `surplus(W) = W - periodic share - guaranteed`, up to a moment.
    pub(super) fn surplus(&self, until: i64, now: i64) -> i64 {
        let (period, cost) = self.regular;
        let window = (until - now).max(0);
        let is_due = |task: &TaskId| {
            self.planner.reservation(*task).is_some_and(|it| it.window.due.0 <= until)
        };
        let left = self.left().into_iter().filter(|(task, _)| is_due(task));
        let guaranteed: i64 = left.map(|(_, left)| left).sum();
        window - window * cost / period - guaranteed
    }

    /// The part of its time that the node has left, in thousandths.
    pub(super) fn factor(&self, now: i64) -> i64 {
        let last = self.planner.firm().map(|it| it.window.due.0).max().unwrap_or(now);
        let until = last.max(now + PROSPECT);
        self.surplus(until, now).max(0) * THOUSAND / (until - now)
    }

    /// The quick answer: whether a job of another node is worth the test.
    pub(super) fn accepts(&mut self, job: &Job, now: i64) -> bool {
        let time = job.due - now;
        if time < job.cost {
            return false;
        }
        if time * self.factor(now) >= job.cost * (THOUSAND + self.margin) {
            return true;
        }
        self.refused += 1;
        self.refused.is_multiple_of(TRIED)
    }

    /// The result of the test of an accepted job.
    pub(super) fn learn(&mut self, was_right: bool) {
        let margin = if was_right { self.margin - RIGHT } else { self.margin + WRONG };
        self.margin = margin.clamp(*MARGIN.start(), *MARGIN.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(number: u128, cost: i64, due: i64) -> Job {
        let id = TaskId { instance: InstanceId(number), step: 0, round: 0 };
        Job { id, priority: 1, release: 0, due, cost, only: None, displaces: false }
    }

    #[test]
    fn the_surplus_is_what_regular_work_and_reservations_leave_and_both_are_done_by_due_dates() {
        let mut hand = Hand::new(0);
        hand.pass(0);
        assert!(hand.reserve(&[job(1, 20_000, 30_000), job(2, 2_000, 19_000)], (0, 0)));
        // Of 100 units 4 of every 20 are regular, and 20 and 2 are reserved.
        assert_eq!(hand.surplus(100_000, 0), 58_000);
        assert_eq!(hand.surplus(20_000, 0), 14_000);
        assert!(!hand.reserve(&[job(3, 1_000, 5_000), job(4, 5_000, 5_000)], (0, 0)));
        assert_eq!(hand.surplus(100_000, 0), 58_000, "all or none");
        let (mut now, mut done) = (0, Vec::new());
        while now < 400_000 {
            hand.pass(now);
            let (ended, next) = hand.work(now);
            done.extend(ended.map(|it| (it.task.instance.0, now)));
            now = next.unwrap_or(i64::MAX);
        }
        // Regular work that is due at 20 comes between them; that of the next period is due after both.
        assert_eq!(done, [(2, 2_000), (1, 26_000)]);
    }
}
