//! Executors: services that do automatic steps and are given them, instead of asking. Workers that ask for
//! the same types take part in the same choice.
//!
//! Invariant: however often a step is given out, one result counts, and its executor hears an ACK; the executor of
//! any other result hears a NACK. What is known here of an
//! executor besides its registration is volatile, but for how fast it is, which is cached in the store: after a
//! restart tasks are given out anew, and the results of earlier ones do not count.

mod ahead;
mod asking;
mod assign;
mod choose;
mod distance;
mod figures;
mod given;
mod holds;
mod learned;
mod listing;
mod policies;
mod polled;
mod registering;
mod registry;
mod reports;
mod rests;
mod seen;
mod unsaid;
mod workers;

use std::collections::BTreeMap;

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_schedule::{Book, ExecutorId, KindId, Plan};

use distance::Distances;
use given::Given;
use holds::Holds;
use learned::Stored;
use policies::Policies;
pub(crate) use registering::regular_part;
pub(crate) use registry::Registry;
use rests::Rests;
pub(crate) use seen::{SEEN_FOR, Seen, WORKERS_MAX};
use unsaid::Unsaid;
use workers::Workers;

/// What this server knows of executors.
#[derive(Debug, Default)]
pub(crate) struct Executors {
    pub(crate) registry: Registry,
    workers: Workers,
    /// Workers that ask, also for jobs that no executor does.
    pub(crate) seen: Seen,
    pub(crate) book: Book,
    policies: Policies,
    /// The shares of the backlog, and whether they are to be planned again.
    plan: Plan,
    is_plan_old: bool,
    pub(crate) given: Given,
    pub(crate) holds: Holds,
    rests: Rests,
    distances: Distances,
    /// Verdicts that are not confirmed.
    unsaid: Unsaid,
    /// When silent executors are looked for next.
    look_due: Timestamp,
    /// No executor is given up for silence before that: time has passed unseen.
    judges_from: Timestamp,
    /// Types of which no executor takes more: until something is taken back from one that does them, a
    /// rest ends, a registration or a plan changes, or silent executors are looked for.
    full: BTreeMap<KindId, Full>,
    /// Plans have changed since tasks were given out last.
    has_other_plans: bool,
    /// What of the book is stored.
    stored: Stored,
}

/// Which jobs of a type no executor takes more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    /// Of all.
    ForAll,
    /// Jobs without a promise: executors that have room need it for what they have promised.
    ForUnpromised,
}

impl Executors {
    /// Whether something of an instance is under way with an executor.
    pub(crate) fn concerns(&self, instance: InstanceId) -> bool {
        self.unsaid.concerns(instance)
    }

    /// For how many jobs assignments or earlier attempts are remembered.
    pub(crate) fn jobs_kept(&self) -> usize {
        self.given.jobs_kept()
    }

    /// The executors that may take more than before.
    fn find_room(&mut self, now: Timestamp) -> Vec<ExecutorId> {
        let woken = self.rests.wake(now);
        // Executors that rest by their rate keep their shares.
        let has_no_rate =
            |id: &ExecutorId| self.registry.get(*id).is_some_and(|one| one.rate.is_none());
        self.is_plan_old |= woken.iter().any(has_no_rate);
        let free: Vec<ExecutorId> = self.given.take_freed().into_iter().chain(woken).collect();
        for id in &free {
            for taken in self.registry.taken(*id) {
                self.full.remove(&taken.kind);
            }
        }
        free
    }

    /// Plans have changed: jobs that were held may be begun now.
    pub(crate) fn plans_changed(&mut self) {
        self.has_other_plans = true;
    }

    /// Whether an executor may take more of a type, as far as is known.
    fn is_open(&self, kind: KindId, is_promised: bool) -> bool {
        match self.full.get(&kind) {
            None => true,
            Some(Full::ForUnpromised) => is_promised,
            Some(Full::ForAll) => false,
        }
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let look = (!self.given.is_empty()).then_some(self.look_due);
        let due = [look, self.rests.next_due(), self.unsaid.next_due(), self.next_store()];
        due.into_iter().chain([self.holds.next_due()]).flatten().min()
    }
}
