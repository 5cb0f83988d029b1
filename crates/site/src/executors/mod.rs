//! Executors: services that do automatic steps and are given them, instead of asking. Workers that ask for
//! the same types take part in the same choice.
//!
//! Invariant: whatever was given out for a step, and however often, one result counts, and whoever
//! gave it is told so; whoever gave another one is told that it does not. What is known here of an
//! executor besides its registration is volatile: after a restart tasks are given out anew, and the
//! results of earlier ones do not count.

mod asking;
mod assign;
mod choose;
mod distance;
mod figures;
mod given;
mod listing;
mod policies;
mod polled;
mod registering;
mod registry;
mod reports;
mod rests;
mod unsaid;
mod workers;

use std::collections::BTreeSet;

use legwork_model::id::InstanceId;
use legwork_model::time::Timestamp;
use legwork_schedule::{Book, KindId};

use distance::Distances;
use given::Given;
use policies::Policies;
pub(crate) use registry::Registry;
use rests::Rests;
use unsaid::Unsaid;
use workers::Workers;

/// What this server knows of executors.
#[derive(Debug, Default)]
pub(crate) struct Executors {
    pub(crate) registry: Registry,
    workers: Workers,
    book: Book,
    policies: Policies,
    given: Given,
    rests: Rests,
    distances: Distances,
    /// Verdicts that are not confirmed.
    unsaid: Unsaid,
    /// When it is looked next who is given up.
    look_due: Timestamp,
    /// Types of which nobody takes more: until something is taken back from somebody who does them, a
    /// rest ends, a registration changes, or it is looked who is given up.
    full: BTreeSet<KindId>,
}

impl Executors {
    /// Whether something of an instance is under way with an executor.
    pub(crate) fn concerns(&self, instance: InstanceId) -> bool {
        self.unsaid.concerns(instance)
    }

    /// Of how many jobs is remembered who has them or has had them.
    pub(crate) fn jobs_kept(&self) -> usize {
        self.given.jobs_kept()
    }

    /// Finds out who takes more than before.
    fn find_room(&mut self, now: Timestamp) {
        let woken = self.rests.wake(now);
        for id in self.given.take_freed().into_iter().chain(woken) {
            for taken in self.registry.taken(id) {
                self.full.remove(&taken.kind);
            }
        }
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        let look = (!self.given.is_empty()).then_some(self.look_due);
        [look, self.rests.next_due(), self.unsaid.next_due()].into_iter().flatten().min()
    }
}
