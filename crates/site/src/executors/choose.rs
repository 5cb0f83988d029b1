//! The choice of the executor of a task: one that has room and a share of the backlog of its type, or a worker that
//! waits.
//!
//! Invariant: a task that no executor takes goes to a waiting worker at once.

use std::collections::BTreeSet;

use legwork_model::time::Timestamp;
use legwork_schedule::{Candidate, ExecutorId, KindId, Reason, Task};

use super::{Executors, Full};
use crate::jobs::JobKey;
use crate::planning::Turn;

impl Executors {
    /// Chooses an executor that has not tried the task yet, if there is one.
    pub(super) fn choose(
        &mut self,
        key: &JobKey,
        (task, bytes): (&Task, f64),
        workers: &[ExecutorId],
        turn: Option<&Turn>,
        now: Timestamp,
    ) -> Option<(Candidate, Reason)> {
        let all = match turn {
            Some(Turn::Of(id)) => vec![*id],
            Some(Turn::After(_)) => Vec::new(),
            Some(Turn::Any { but, is_promised }) if self.is_open(task.kind, *is_promised) => {
                let mut all =
                    self.takers((key, task), !workers.is_empty(), (but, *is_promised), now);
                all.extend_from_slice(workers);
                all
            }
            Some(Turn::Any { .. }) | None => workers.to_vec(),
        };
        // When all have tried it, the round begins again, but without the last one.
        let everybody = self.registry.offering(task.kind).iter().chain(workers);
        if everybody.copied().all(|id| self.assignments.has_tried(key, id)) {
            self.assignments.reset_tried(key);
        }
        // An executor with an open circuit is not preferred just because it has not tried this task. Half-open probes
        // are first attempts.
        let policy = self.policies.of(task.kind);
        let is_hopeful = |id: ExecutorId| {
            !policy.is_circuit_open(&self.book, id, task.kind, now)
                || task.attempt == 0 && policy.is_probe_due(&self.book, id, task.kind, now)
        };
        let is_new = |id: &ExecutorId| !self.assignments.has_tried(key, *id) && is_hopeful(*id);
        let has_new = all.iter().any(is_new);
        let among = all.into_iter().filter(|id| is_new(id) || !has_new);
        let among: Vec<Candidate> = among.map(|id| self.distances.candidate(id, bytes)).collect();
        let policy = self.policies.of_mut(task.kind);
        let chosen = policy.choose(&self.book, task, &among, now)?;
        let policy = (self.policies.name(task.kind), self.policies.of(task.kind));
        let to = self.distances.candidate(chosen, bytes);
        Some((to, Reason::of(&self.book, policy, (task, to), among.len(), now)))
    }

    /// The executors that take a task of a type. `is_asked`: workers wait for it as well.
    fn takers(
        &mut self,
        (key, task): (&JobKey, &Task),
        is_asked: bool,
        (but, is_promised): (&BTreeSet<ExecutorId>, bool),
        now: Timestamp,
    ) -> Vec<ExecutorId> {
        let kind = task.kind;
        let policy = self.policies.of(kind);
        // Promised work begins as soon as its executor has room.
        let is_planned = policy.plans_ahead() && !is_promised;
        let has_room = |id: &ExecutorId| {
            self.has_room(*id, kind)
                && !self.rests.is_resting(*id, kind)
                && (!is_planned || self.needs_more(*id))
        };
        let is_doubted = |id: &ExecutorId| policy.is_circuit_open(&self.book, *id, kind, now);
        let (mut free, full): (Vec<ExecutorId>, Vec<ExecutorId>) =
            self.registry.offering(kind).iter().copied().partition(has_room);
        // A task that waits for an executor that is alive is not wasted on those that are presumed dead.
        if free.is_empty() || free.iter().all(is_doubted) && !full.iter().all(is_doubted) {
            self.full.insert(kind, Full::ForAll);
            return Vec::new();
        }
        free.retain(|id| !but.contains(id));
        if free.is_empty() {
            // Executors that may not begin promised work may still take other work.
            if !is_promised {
                self.full.insert(kind, Full::ForUnpromised);
            }
            return Vec::new();
        }
        if is_planned {
            let has_tried = |id| task.attempt > 0 && self.assignments.has_tried(key, id);
            let needing = free.clone();
            let may = |id| !but.contains(&id) && !has_tried(id);
            self.retain_planned(kind, &mut free, may, now);
            // A retry goes to an executor with a share that has not tried it, else to any other. It delays nothing, and
            // is a probe of executors that the book considers busy with tasks they did not answer.
            if task.attempt > 0 && free.iter().all(|id| has_tried(*id)) {
                free = needing;
            }
            if free.is_empty() {
                self.full.insert(kind, Full::ForUnpromised);
                return Vec::new();
            }
        }
        // If a worker is waiting, executors with an open circuit get the task only as a half-open probe.
        if is_asked {
            free.retain(|id| !is_doubted(id) || policy.is_probe_due(&self.book, *id, kind, now));
        }
        free
    }

    /// Whether an executor may have another task of a type. The book cannot be asked: it still counts tasks that were
    /// cancelled, which the executor may never have received.
    pub(crate) fn has_room(&self, id: ExecutorId, kind: KindId) -> bool {
        let (of_kind, in_all) = self.registry.room(id, kind);
        self.assignments.count(id, kind) < of_kind && self.assignments.total(id) < in_all
    }

    /// Whether an executor needs another task of this server so as not to become idle.
    fn needs_more(&self, id: ExecutorId) -> bool {
        self.is_idle(id) || self.book.needs_more(id)
    }

    /// Whether an executor can begin another task of this server at once.
    pub(super) fn has_free_hand(&self, id: ExecutorId) -> bool {
        self.is_idle(id) || self.book.has_free_slot(id)
    }

    /// Whether an executor has no task of this server, or only tasks it did not answer in time. The book counts those
    /// until the executor answers. If they counted here, an executor that is given nothing, and so cannot answer, would
    /// be given nothing forever.
    fn is_idle(&self, id: ExecutorId) -> bool {
        self.assignments.total(id) == 0
    }

    /// Whether a job waits for the executor that has promised it: not tried there yet, and not presumed dead.
    pub(crate) fn is_awaited(
        &self,
        key: &JobKey,
        id: ExecutorId,
        kind: KindId,
        now: Timestamp,
    ) -> bool {
        self.registry.offering(kind).contains(&id)
            && !self.assignments.has_tried(key, id)
            && !self.rests.is_resting(id, kind)
            && !self.policies.of(kind).is_circuit_open(&self.book, id, kind, now)
    }
}
