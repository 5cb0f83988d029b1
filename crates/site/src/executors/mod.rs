//! Executors: services that do automatic steps and are called with tasks, instead of asking. Workers that ask for the
//! same types take part in the same choice.
//!
//! Invariant: however often a step is assigned, one result counts, and its executor gets an ACK; the executor of any
//! other result gets a NACK. What is known of an executor besides its registration is volatile, except for its speed,
//! which is cached in the store. After a restart tasks are assigned again, and the results of earlier assignments do
//! not count.

mod assign;
mod assignments;
mod backlog_plan;
mod choose;
mod distance;
mod figures;
mod holds;
mod learned;
mod listing;
mod policies;
mod polls;
mod recent_workers;
mod registering;
mod registry;
mod reports;
mod rests;
mod verdicts;
mod worker_jobs;
mod workers;

use std::collections::BTreeMap;

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_schedule::{Book, ExecutorId, KindId, Plan};

use assignments::Assignments;
use distance::Distances;
use holds::Holds;
use learned::Stored;
use policies::Policies;
pub(crate) use recent_workers::{RecentWorkers, SEEN_FOR, WORKERS_MAX};
pub(crate) use registering::regular_part;
pub(crate) use registry::Registry;
use rests::Rests;
use verdicts::Verdicts;
use workers::Workers;

/// What this server knows of executors.
#[derive(Debug, Default)]
pub(crate) struct Executors {
    pub(crate) registry: Registry,
    workers: Workers,
    /// Workers that ask, also for types that no executor does.
    pub(crate) recent_workers: RecentWorkers,
    pub(crate) book: Book,
    policies: Policies,
    /// The shares of the backlog, and whether they have to be planned again.
    plan: Plan,
    is_plan_outdated: bool,
    pub(crate) assignments: Assignments,
    pub(crate) holds: Holds,
    rests: Rests,
    distances: Distances,
    /// Verdicts that are not confirmed.
    verdicts: Verdicts,
    /// When to check for silent executors.
    silence_check_due: Timestamp,
    /// Before this moment no executor is presumed dead: time has passed unseen.
    grace_until: Timestamp,
    /// Types of which no executor takes more. An entry is removed when an executor of the type loses an assignment, a
    /// rest ends, a registration or a plan changes, or silent executors are checked.
    full: BTreeMap<KindId, Full>,
    /// Whether plans have changed since the last dispatch.
    have_plans_changed: bool,
    /// What of the book is stored.
    stored: Stored,
}

/// Which jobs of a type no executor takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// All jobs.
    ForAll,
    /// Jobs without a promise: executors with room need it for promised work.
    ForUnpromised,
}

impl Executors {
    /// Whether a verdict about an instance is unconfirmed.
    pub(crate) fn concerns(&self, instance: InstanceId) -> bool {
        self.verdicts.concerns(instance)
    }

    /// For how many jobs assignments or earlier attempts are remembered.
    pub(crate) fn jobs_kept(&self) -> usize {
        self.assignments.jobs_kept()
    }

    /// The executors that may take more than before.
    fn find_room(&mut self, now: Timestamp) -> Vec<ExecutorId> {
        let woken = self.rests.wake(now);
        // Executors that rest by their rate keep their shares.
        let has_no_rate =
            |id: &ExecutorId| self.registry.get(*id).is_some_and(|one| one.rate.is_none());
        self.is_plan_outdated |= woken.iter().any(has_no_rate);
        let free: Vec<ExecutorId> =
            self.assignments.take_freed().into_iter().chain(woken).collect();
        for id in &free {
            for taken in self.registry.taken(*id) {
                self.full.remove(&taken.kind);
            }
        }
        free
    }

    /// Plans have changed: held jobs may begin now.
    pub(crate) fn plans_changed(&mut self) {
        self.have_plans_changed = true;
    }

    /// Whether an executor may take more of a type, as far as known.
    fn is_open(&self, kind: KindId, is_promised: bool) -> bool {
        match self.full.get(&kind) {
            None => true,
            Some(Full::ForUnpromised) => is_promised,
            Some(Full::ForAll) => false,
        }
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let look = (!self.assignments.is_empty()).then_some(self.silence_check_due);
        let due = [look, self.rests.next_due(), self.verdicts.next_due(), self.next_store()];
        due.into_iter().chain([self.holds.next_due()]).flatten().min()
    }
}
