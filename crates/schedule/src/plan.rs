//! Which executor is expected to do the tasks that wait at the engine.
//!
//! Late binding: an executor is given what keeps it busy, and never more than its limits. The rest waits at the
//! engine, where it can be planned anew. Waiting tasks of a type are divided into shares by number, not task by
//! task: an executor takes tasks of the types of which it has a share, in the order in which they wait. So a task
//! waits for a busy executor that is good at it, and an idle one does not take what others do sooner.
//!
//! Invariant: the shares of a type and `unplaced` add up to the waiting tasks of the type, as of the last update. A
//! share is never needed to do a task at all, only to do it now: an executor with room and nothing to do is
//! compared with those that have shares.

use std::collections::BTreeMap;

use legwork_model::time::Timestamp;

use crate::adaptive::{Answer, Question, added, cheapest};
use crate::{Book, Candidate, ExecutorId, KindId, Task};

/// The number of parts into which the waiting tasks of a type are divided when everything is planned anew.
const PARTS: usize = 64;
/// The approximate bound on candidate evaluations of one full planning.
const LOOKS_MAX: usize = 200_000;

/// The waiting tasks of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waiting {
    pub tasks: usize,
    /// The sum of their sizes.
    pub units: f64,
}

#[derive(Clone, Debug, Default)]
pub struct Plan {
    kinds: BTreeMap<KindId, Shares>,
    /// The planned work of each executor, in milliseconds.
    work_ms: Vec<f64>,
}

/// The shares of a type.
#[derive(Clone, Debug, Default)]
struct Shares {
    of: BTreeMap<ExecutorId, Share>,
    placed: usize,
    /// The number of tasks that no candidate is expected to do.
    unplaced: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    tasks: usize,
    work_ms: f64,
}

impl Plan {
    /// Plans all waiting tasks, from scratch.
    pub fn anew(
        &mut self,
        book: &Book,
        waiting: &[(KindId, Waiting, Vec<Candidate>)],
        now: Timestamp,
    ) {
        self.kinds.clear();
        self.work_ms.clear();
        let looks: usize = waiting.iter().map(|(.., among)| among.len()).sum();
        let parts = (LOOKS_MAX / looks.max(1)).clamp(1, PARTS);
        for part in 0..parts {
            for (kind, waiting, among) in waiting {
                let upto = |part: usize| waiting.tasks * part / parts;
                let tasks = upto(part + 1) - upto(part);
                self.place(book, (*kind, waiting.mean(), tasks), among, now);
            }
        }
    }

    /// Whether more tasks of a type wait than are planned.
    pub fn lacks(&self, kind: KindId, waiting: Waiting) -> bool {
        waiting.tasks > self.known(kind)
    }

    fn known(&self, kind: KindId) -> usize {
        self.kinds.get(&kind).map_or(0, |shares| shares.placed + shares.unplaced)
    }

    /// Updates the plan to the current backlog of a type. New tasks are assigned; removed tasks are taken from the
    /// executor with the most planned work.
    pub fn follow(
        &mut self,
        book: &Book,
        (kind, waiting): (KindId, Waiting),
        among: &[Candidate],
        now: Timestamp,
    ) {
        let known = self.known(kind);
        let mut left = waiting.tasks.saturating_sub(known);
        let step = left.div_ceil((LOOKS_MAX / among.len().max(1)).max(1));
        while left > 0 {
            let tasks = left.min(step);
            self.place(book, (kind, waiting.mean(), tasks), among, now);
            left -= tasks;
        }
        for _ in waiting.tasks..known {
            self.forget_one(kind);
        }
    }

    /// Whether an executor has a share of a type.
    pub fn is_for(&self, executor: ExecutorId, kind: KindId) -> bool {
        let shares = self.kinds.get(&kind);
        shares.is_some_and(|shares| shares.of.contains_key(&executor))
    }

    /// Whether some waiting tasks of a type are in no share.
    pub fn has_unplaced(&self, kind: KindId) -> bool {
        self.kinds.get(&kind).is_some_and(|shares| shares.unplaced > 0)
    }

    /// Whether an executor that satisfies the condition has a share of a type.
    pub fn is_for_any(&self, kind: KindId, is_meant: impl Fn(ExecutorId) -> bool) -> bool {
        let shares = self.kinds.get(&kind);
        shares.is_some_and(|shares| shares.of.keys().any(|id| is_meant(*id)))
    }

    fn work_ms(&self, executor: ExecutorId) -> f64 {
        self.work_ms.get(executor.0 as usize).copied().unwrap_or(0.0)
    }

    /// Assigns a task to an executor: from its own share, else from the unplaced tasks, else from the largest other
    /// share.
    pub fn take(&mut self, executor: ExecutorId, kind: KindId) {
        match self.is_for(executor, kind) {
            true => self.lessen(executor, kind),
            false => self.forget_one(kind),
        }
    }

    /// An idle executor without a share gets a task from the share of another one if that adds less to the load.
    /// Returns whether it does.
    pub fn help(
        &mut self,
        book: &Book,
        (to, task): (Candidate, &Task),
        among: &[Candidate],
        now: Timestamp,
    ) -> bool {
        let question = Question::new(book, task, among, now);
        let Some((cost, own_ms)) = self.cost(book, &question, to) else { return false };
        let Some(shares) = self.kinds.get(&task.kind).filter(|shares| shares.unplaced == 0) else {
            return false;
        };
        // The cost of the last task of a share.
        let last = |(id, share): (&ExecutorId, &Share)| {
            let ms = share.work_ms / share.tasks.max(1) as f64;
            let before_ms =
                book.backlog_ms(*id, now) + self.planned_ms(book, *id) - ms / book.slots(*id);
            (*id, added(ms, before_ms.max(0.0)))
        };
        let most = shares.of.iter().map(last).max_by(|one, other| one.1.total_cmp(&other.1));
        let Some((from, _)) = most.filter(|(_, adds)| cost < *adds) else { return false };
        self.lessen(from, task.kind);
        self.give((to, task.kind), 1, (book, own_ms));
        true
    }

    /// The best of the executors with known pace and closed circuit for a task, planned work included. The task is
    /// not assigned, so there is nothing to learn from a trial. `None` if there is no such executor.
    pub fn best_known(
        &self,
        book: &Book,
        task: &Task,
        among: &[Candidate],
        now: Timestamp,
    ) -> Option<ExecutorId> {
        let is_known = |to: &&Candidate| book.pace(to.executor, task.kind).is_some();
        let known: Vec<Candidate> = among.iter().filter(is_known).copied().collect();
        let question = Question::new(book, task, &known, now);
        let cost = |to: &Candidate| Some((to.executor, self.cost(book, &question, *to)?.0));
        cheapest(known.iter().filter_map(cost))
    }

    /// Adds tasks to the shares where they add least to the load.
    fn place(
        &mut self,
        book: &Book,
        (kind, size, tasks): (KindId, f64, usize),
        among: &[Candidate],
        now: Timestamp,
    ) {
        if tasks == 0 {
            return;
        }
        let task = Task { kind, size, attempt: 0 };
        let question = Question::new(book, &task, among, now);
        let mut left = tasks;
        while left > 0 {
            let costs = among.iter().filter_map(|to| {
                let (cost, own_ms) = self.cost(book, &question, *to)?;
                Some(((*to, own_ms), cost))
            });
            let Some((to, own_ms)) = cheapest(costs) else {
                self.kinds.entry(kind).or_default().unplaced += left;
                return;
            };
            // An executor of unknown pace gets one task at a time.
            let is_known = book.pace(to.executor, kind).is_some();
            let tasks = if is_known { left } else { 1 };
            self.give((to, kind), tasks, (book, own_ms));
            left -= tasks;
        }
    }

    /// The added load of a task at an executor, and its service time; `None` if the circuit is open or no trial is
    /// left.
    fn cost(&self, book: &Book, question: &Question<'_>, to: Candidate) -> Option<(f64, f64)> {
        let one = book.executor(to.executor)?;
        // A planned task can still be moved to another executor: so one trial at a time is enough.
        let trials = u32::from(!self.is_for(to.executor, question.task.kind));
        match question.ask(one, to.cost_ms, trials) {
            Answer::Costs { own_ms, backlog_ms } => {
                let wait_ms = backlog_ms + self.planned_ms(book, to.executor);
                Some((added(own_ms, wait_ms), own_ms))
            }
            Answer::Probe | Answer::No => None,
        }
    }

    fn planned_ms(&self, book: &Book, executor: ExecutorId) -> f64 {
        self.work_ms(executor) / book.slots(executor)
    }

    fn give(
        &mut self,
        (to, kind): (Candidate, KindId),
        tasks: usize,
        (book, own_ms): (&Book, f64),
    ) {
        let Candidate { executor, apart_ms, .. } = to;
        let place = executor.0 as usize;
        if self.work_ms.len() <= place {
            self.work_ms.resize(place + 1, 0.0);
        }
        let work_ms = own_ms.max(apart_ms * book.slots(executor)) * tasks as f64;
        self.work_ms[place] += work_ms;
        let shares = self.kinds.entry(kind).or_default();
        shares.placed += tasks;
        let share = shares.of.entry(executor).or_default();
        share.tasks += tasks;
        share.work_ms += work_ms;
    }

    /// Removes one task from a share.
    fn lessen(&mut self, executor: ExecutorId, kind: KindId) {
        let Some(shares) = self.kinds.get_mut(&kind) else { return };
        let Some(share) = shares.of.get_mut(&executor) else { return };
        let work_ms = share.work_ms / share.tasks.max(1) as f64;
        (share.tasks, share.work_ms) = (share.tasks.saturating_sub(1), share.work_ms - work_ms);
        shares.placed -= 1;
        if share.tasks == 0 {
            shares.of.remove(&executor);
        }
        if shares.placed + shares.unplaced == 0 {
            self.kinds.remove(&kind);
        }
        if let Some(sum) = self.work_ms.get_mut(executor.0 as usize) {
            *sum = (*sum - work_ms).max(0.0);
        }
    }

    /// A waiting task of a type is gone.
    fn forget_one(&mut self, kind: KindId) {
        let Some(shares) = self.kinds.get_mut(&kind) else { return };
        if shares.unplaced > 0 {
            shares.unplaced -= 1;
            if shares.placed + shares.unplaced == 0 {
                self.kinds.remove(&kind);
            }
            return;
        }
        let work_ms = |id: &ExecutorId| self.work_ms.get(id.0 as usize).copied().unwrap_or(0.0);
        let last = shares.of.keys().copied();
        let last = last.max_by(|one, other| work_ms(one).total_cmp(&work_ms(other)));
        if let Some(last) = last {
            self.lessen(last, kind);
        }
    }
}

impl Waiting {
    /// The mean size of a task.
    pub fn mean(&self) -> f64 {
        self.units / self.tasks.max(1) as f64
    }
}
