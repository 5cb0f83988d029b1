//! The plan of the backlog: which executor is expected to do which share of the waiting tasks.
//!
//! Under a policy that plans ahead an executor is given only what it needs to stay busy; the rest waits in the backlog.
//! Invariant: the plan is made again when an executor rests, returns, registers or is presumed dead, and once a second
//! while any task is assigned. A free executor without a share of the backlog is compared with those that have one. So
//! no task waits for an executor that is presumed dead, nor longer than another one would take. While no task is
//! assigned every executor is idle, so some task of each type is dispatched, at the latest when a rest ends.

use legwork_model::time::Timestamp;
use legwork_schedule::{Candidate, ExecutorId, KindId, Task, Waiting};

use super::Executors;
use crate::jobs::Jobs;

impl Executors {
    /// The plan of the backlog is made again at the next dispatch.
    pub(crate) fn invalidate_plan(&mut self) {
        self.full.clear();
        self.is_plan_outdated = true;
    }

    /// Updates the plan. `free` are executors that have got room since the last call.
    pub(super) fn plan_ahead(&mut self, jobs: &Jobs, free: &[ExecutorId], now: Timestamp) {
        if self.is_plan_outdated {
            self.is_plan_outdated = false;
            // Shares move to other executors, and some of those have room.
            self.full.clear();
            let waiting: Vec<_> = self.planned(jobs).collect();
            let waiting: Vec<_> = waiting
                .into_iter()
                .map(|(kind, waiting)| (kind, waiting, self.expected(kind)))
                .collect();
            self.plan.anew(&self.book, &waiting, now);
        } else {
            self.follow(jobs, now);
        }
        for id in free {
            if self.has_free_hand(*id) {
                self.reassign_to_idle(*id, jobs, now);
            }
        }
    }

    /// Adds new tasks to the plan, and removes those that are gone.
    fn follow(&mut self, jobs: &Jobs, now: Timestamp) {
        for (kind, waiting) in self.planned(jobs).collect::<Vec<_>>() {
            if self.plan.lacks(kind, waiting) {
                let among = self.expected(kind);
                self.plan.follow(&self.book, (kind, waiting), &among, now);
                self.full.remove(&kind);
            } else {
                self.plan.follow(&self.book, (kind, waiting), &[], now);
            }
        }
    }

    /// Gives an idle executor without a share a task of another's share, if it would finish sooner.
    fn reassign_to_idle(&mut self, id: ExecutorId, jobs: &Jobs, now: Timestamp) {
        let own: Vec<KindId> = self.registry.taken(id).iter().map(|taken| taken.kind).collect();
        let waiting: Vec<(KindId, Waiting)> =
            self.planned(jobs).filter(|(kind, _)| own.contains(kind)).collect();
        if waiting.iter().any(|(kind, _)| self.plan.is_for(id, *kind)) {
            return;
        }
        for (kind, waiting) in waiting {
            let task = Task { kind, size: waiting.mean(), attempt: 0 };
            let (to, among) = (self.candidate(id, kind), self.expected(kind));
            let is_in = among.iter().any(|other| other.executor == id);
            if is_in && self.plan.help(&self.book, (to, &task), &among, now) {
                self.full.remove(&kind);
                return;
            }
        }
    }

    /// The backlog of each type that executors do under a policy that plans ahead.
    fn planned<'e>(&'e self, jobs: &'e Jobs) -> impl Iterator<Item = (KindId, Waiting)> + 'e {
        jobs.amounts().filter_map(|(job, waiting)| {
            let kind = self.registry.offered(job)?;
            self.policies.of(kind).plans_ahead().then_some((kind, waiting))
        })
    }

    /// The executors that can do a type now or later.
    fn expected(&self, kind: KindId) -> Vec<Candidate> {
        let offering = self.registry.offering(kind).iter().copied();
        let all = offering.filter(|id| self.rests.busy_until(*id).is_none());
        all.map(|id| self.candidate(id, kind)).collect()
    }

    fn candidate(&self, id: ExecutorId, kind: KindId) -> Candidate {
        let (rate, of_kind) = self.registry.rates(id, kind);
        let apart = [rate, of_kind].into_iter().flatten().map(|rate| rate.interval_ms());
        Candidate { apart_ms: apart.fold(0.0, f64::max), ..self.distances.candidate(id, 0.0) }
    }

    /// Keeps the executors that have a share of the backlog of this type, and those due for a half-open probe; while
    /// some of it is in no share, also idle ones. Keeps all if no executor with a share may take the task.
    pub(super) fn retain_planned(
        &self,
        kind: KindId,
        free: &mut Vec<ExecutorId>,
        may: impl Fn(ExecutorId) -> bool,
        now: Timestamp,
    ) {
        let is_unplaced = self.plan.has_unplaced(kind);
        if !is_unplaced && !self.plan.is_for_any(kind, may) {
            return;
        }
        let policy = self.policies.of(kind);
        free.retain(|id| {
            self.plan.is_for(*id, kind)
                || is_unplaced && self.has_free_hand(*id)
                || policy.is_probe_due(&self.book, *id, kind, now)
        });
    }
}
