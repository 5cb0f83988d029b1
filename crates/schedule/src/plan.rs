//! Which executor is expected to do what waits at the engine.
//!
//! An executor is given what it needs to go on, and never more than its limits. The rest waits at the engine, where it
//! can be decided anew. What waits of a type is shared out in advance by amounts, not task by task: an
//! executor takes tasks of the types of which it has a share, in whatever order they wait. So a task waits for a
//! busy executor that is good at it, and an idle one does not take what others do sooner.
//!
//! Invariant: the shares of a type and what is not placed add up to the tasks that wait of it, as of when the plan
//! was told last. A share is never needed to do a task, only to do it now: whatever has room and nothing to do is
//! compared with those that have the shares.

use std::collections::BTreeMap;

use legwork_model::time::Timestamp;

use crate::learned::{Answer, Question, added, cheapest};
use crate::{Book, Candidate, ExecutorId, KindId, Task};

/// Into so many parts what waits of a type is divided when all is shared out anew.
const PARTS: usize = 64;
/// So many looks at executors sharing out anew may take, about.
const LOOKS_MAX: usize = 200_000;

/// What waits of a type.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waiting {
    pub tasks: usize,
    /// The sum of their sizes.
    pub units: f64,
}

#[derive(Clone, Debug, Default)]
pub struct Plan {
    kinds: BTreeMap<KindId, Shares>,
    /// How long each executor is expected to work on its shares, in milliseconds.
    work_ms: Vec<f64>,
}

/// Who is to do what of a type.
#[derive(Clone, Debug, Default)]
struct Shares {
    of: BTreeMap<ExecutorId, Share>,
    placed: usize,
    /// Nobody was found who is expected to do them.
    unplaced: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    tasks: usize,
    work_ms: f64,
}

impl Plan {
    /// Shares out all that waits, whatever was planned before.
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

    /// Whether more waits of a type than is planned.
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

    /// Whether an executor is to do some of what waits of a type.
    pub fn is_for(&self, executor: ExecutorId, kind: KindId) -> bool {
        let shares = self.kinds.get(&kind);
        shares.is_some_and(|shares| shares.of.contains_key(&executor))
    }

    /// Whether some of what waits of a type is for nobody.
    pub fn has_unplaced(&self, kind: KindId) -> bool {
        self.kinds.get(&kind).is_some_and(|shares| shares.unplaced > 0)
    }

    /// Whether anybody of whom that is true is to do some of what waits of a type.
    pub fn is_for_any(&self, kind: KindId, is_meant: impl Fn(ExecutorId) -> bool) -> bool {
        let shares = self.kinds.get(&kind);
        shares.is_some_and(|shares| shares.of.keys().any(|id| is_meant(*id)))
    }

    fn work_ms(&self, executor: ExecutorId) -> f64 {
        self.work_ms.get(executor.0 as usize).copied().unwrap_or(0.0)
    }

    /// A task goes to an executor: out of its share, or else of the part that nobody has, or of another's.
    pub fn take(&mut self, executor: ExecutorId, kind: KindId) {
        match self.is_for(executor, kind) {
            true => self.lessen(executor, kind),
            false => self.forget_one(kind),
        }
    }

    /// An executor that could take more, and has no share of what waits, gets a task of another one's share, if that
    /// adds less to the load. Answers whether it does.
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
        // What the last task of a share adds.
        let last = |(id, share): (&ExecutorId, &Share)| {
            let ms = share.work_ms / share.tasks.max(1) as f64;
            let before_ms =
                book.backlog_ms(*id, now) + self.planned_ms(book, *id) - ms / book.hands(*id);
            (*id, added(ms, before_ms.max(0.0)))
        };
        let most = shares.of.iter().map(last).max_by(|one, other| one.1.total_cmp(&other.1));
        let Some((from, _)) = most.filter(|(_, adds)| cost < *adds) else { return false };
        self.lessen(from, task.kind);
        self.give((to, task.kind), 1, (book, own_ms));
        true
    }

    /// Where a task would be done best of those that are known and not doubted, with all that waits for them; it is
    /// not given to anybody, so there is nothing to be learned by trying. `None` if nobody is known.
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

    /// So many tasks go to whom they add least.
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

    /// What a task adds at an executor, and how long it takes there; `None` if nothing is expected of it.
    fn cost(&self, book: &Book, question: &Question<'_>, to: Candidate) -> Option<(f64, f64)> {
        let one = book.executor(to.executor)?;
        // What is planned can still be given to another one: so one trial at a time is enough.
        let trials = u32::from(!self.is_for(to.executor, question.task.kind));
        match question.ask(one, to.cost_ms, trials) {
            Answer::Costs { own_ms, backlog_ms } => {
                let wait_ms = backlog_ms + self.planned_ms(book, to.executor);
                Some((added(own_ms, wait_ms), own_ms))
            }
            Answer::Try | Answer::No => None,
        }
    }

    fn planned_ms(&self, book: &Book, executor: ExecutorId) -> f64 {
        self.work_ms(executor) / book.hands(executor)
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
        let work_ms = own_ms.max(apart_ms * book.hands(executor)) * tasks as f64;
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

    /// A task of a type waits no more.
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
    /// The size of a task on average.
    pub fn mean(&self) -> f64 {
        self.units / self.tasks.max(1) as f64
    }
}
