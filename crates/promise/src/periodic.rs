//! What a resource does again and again, beside what it is given.
//!
//! Every time it is due it is a task like others, released when its period begins and due when the next
//! begins. Such jobs are put into the plan as far ahead as they can matter for a deadline.

use std::collections::{BTreeMap, BTreeSet};

use crate::supply::Work;
use crate::timeline::Piece;

/// So much in every period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub period: Work,
    pub cost: Work,
    /// Whether it is told when a job is begun and done. Otherwise it is taken to be done by the plan.
    pub is_attended: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Loads {
    all: Vec<Repeated>,
    /// The jobs that are in the plan.
    jobs: BTreeMap<u64, Job>,
    /// What those of periods cost.
    repeated_cost: i64,
    /// Those of which nobody tells when they are done, by their deadlines; the most that one of them costs.
    unattended: BTreeSet<(i64, u64)>,
    unattended_max: i64,
    /// How much of them is taken to be done, by deadlines that are to come.
    done_of: BTreeMap<i64, i64>,
}

#[derive(Clone, Copy, Debug)]
struct Repeated {
    load: Load,
    /// When its next job that is not in the plan yet is released.
    next: i64,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    piece: Piece,
    is_attended: bool,
    /// One of its own, of no period.
    is_once: bool,
}

/// The largest part of its time, in per cent, that a resource may do regular things.
const PART_MAX: i64 = 90;
/// Jobs are put into the plan for so many periods at a time.
const AHEAD: i64 = 16;

impl Loads {
    /// False if it leaves too little time for others.
    pub(crate) fn add(&mut self, load: Load, now: i64) -> bool {
        if load.period.0 <= 0 || load.cost.0 < 0 {
            return false;
        }
        self.all.push(Repeated { load, next: now });
        // In parts of a thousandth, rounded up: nearly full is full.
        let part = |one: &Repeated| one.load.cost.0 * 1_000 / one.load.period.0 + 1;
        let fits = self.all.iter().map(part).sum::<i64>() <= PART_MAX * 10;
        if !fits {
            self.all.pop();
        }
        fits
    }

    /// One job of its own.
    pub(crate) fn once(&mut self, piece: Piece) {
        self.put_down(Job { piece, is_attended: false, is_once: true });
    }

    fn put_down(&mut self, job: Job) {
        let Piece { number, deadline, cost, .. } = job.piece;
        self.jobs.insert(number, job);
        self.repeated_cost += if job.is_once { 0 } else { cost };
        if !job.is_attended {
            self.unattended.insert((deadline, number));
            self.unattended_max = self.unattended_max.max(cost);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How far ahead all jobs are in the plan.
    pub(crate) fn covered(&self) -> i64 {
        self.all.iter().map(|one| one.next).min().unwrap_or(i64::MAX)
    }

    pub(crate) fn period_max(&self) -> i64 {
        self.all.iter().map(|one| one.load.period.0).max().unwrap_or(0)
    }

    /// How many jobs are in the plan.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.len()
    }

    pub(crate) fn is_job(&self, number: u64) -> bool {
        self.jobs.contains_key(&number)
    }

    /// What the jobs of periods cost that are in the plan.
    pub(crate) fn repeated_cost(&self) -> i64 {
        self.repeated_cost
    }

    /// What the jobs of periods cost that are in the plan and due until then.
    pub(crate) fn repeated_until(&self, deadline: i64) -> i64 {
        let due = self.jobs.values().filter(|job| !job.is_once && job.piece.deadline <= deadline);
        due.map(|job| job.piece.cost).sum()
    }

    /// Their part of an amount of working time.
    pub(crate) fn within(&self, window: i64) -> i64 {
        let part = |one: &Repeated| {
            let (cost, period) = (i128::from(one.load.cost.0), i128::from(one.load.period.0));
            (i128::from(window) * cost / period) as i64
        };
        self.all.iter().map(part).sum()
    }

    /// The jobs that have to be in the plan besides if a window is to be tested while others are busy for
    /// so long: up to its deadline, and up to where everything is done in any case that begins with it.
    pub(crate) fn cover(
        &mut self,
        now: i64,
        (from, deadline): (i64, i64),
        busy: i64,
        last: &mut u64,
    ) -> Vec<Piece> {
        if self.all.is_empty() {
            return Vec::new();
        }
        let once: i64 = self.all.iter().map(|one| one.load.cost.0).sum();
        let rest = 1_000 - self.within(1_000_000) / 1_000 - 1;
        let quiet = (busy + once).saturating_mul(1_000) / rest.max(1);
        let horizon = deadline.max(from.max(now).saturating_add(quiet));
        let mut jobs = Vec::new();
        for one in &mut self.all {
            let Load { period, cost, is_attended } = one.load;
            // Some more than needed, so that not every deadline a little later brings one.
            let ahead = if one.next <= horizon { horizon + AHEAD * period.0 } else { horizon };
            while one.next <= ahead {
                let (release, deadline) = (one.next, one.next + period.0);
                one.next = deadline;
                if deadline <= now {
                    continue;
                }
                *last += 1;
                let piece = Piece { number: *last, release, deadline, idle: 0, cost: cost.0 };
                jobs.push(Job { piece, is_attended, is_once: false });
            }
        }
        jobs.iter().for_each(|job| self.put_down(*job));
        jobs.into_iter().map(|job| job.piece).collect()
    }

    /// Whether there are jobs of which nobody tells when they are done.
    pub(crate) fn has_unattended(&self) -> bool {
        !self.unattended.is_empty()
    }

    pub(crate) fn is_unattended(&self, number: u64) -> bool {
        self.jobs.get(&number).is_some_and(|job| !job.is_attended)
    }

    /// Those of them that cannot be done any more before their period is over.
    pub(crate) fn unattended(&self, now: i64) -> Vec<Piece> {
        let soon = self.unattended.range(..(now + self.unattended_max, 0));
        let jobs = soon.filter_map(|(_, number)| self.jobs.get(number)).map(|job| job.piece);
        jobs.filter(|piece| piece.deadline - now < piece.cost).collect()
    }

    /// How much is taken to be done of those that are due at each point to come.
    pub(crate) fn done_of(&self) -> &BTreeMap<i64, i64> {
        &self.done_of
    }

    pub(crate) fn left(&mut self, number: u64, cost: i64) {
        if let Some(job) = self.jobs.get_mut(&number) {
            self.repeated_cost += if job.is_once { 0 } else { cost - job.piece.cost };
            job.piece.cost = cost;
        }
    }

    pub(crate) fn worked(&mut self, number: u64, work: i64, now: i64) {
        let Some(Job { piece, is_attended, .. }) = self.jobs.get(&number).copied() else { return };
        self.left(number, piece.cost - work);
        if !is_attended {
            self.done_of = self.done_of.split_off(&now);
            self.note_done(piece.deadline, work);
        }
    }

    /// So much of what is due then is taken to be done.
    pub(crate) fn note_done(&mut self, deadline: i64, work: i64) {
        if work > 0 {
            *self.done_of.entry(deadline).or_default() += work;
        }
    }

    /// Whether nothing is left of a job of which nobody tells when it is done.
    pub(crate) fn is_over(&self, number: u64) -> bool {
        self.jobs.get(&number).is_some_and(|job| !job.is_attended && job.piece.cost <= 0)
    }

    pub(crate) fn done(&mut self, number: u64) {
        if let Some(Job { piece, is_once, .. }) = self.jobs.remove(&number) {
            self.repeated_cost -= if is_once { 0 } else { piece.cost };
            self.unattended.remove(&(piece.deadline, number));
        }
    }
}
