//! Offers: reservations that are held for a caller who asked for a date, until the caller starts a case or some
//! minutes are over.
//!
//! A caller that asks about several cases of a process has an offer for each; asking about the same case again
//! makes no second one. A start takes the offer for the same case, or, if it is late otherwise, the last one that
//! is in time.
//!
//! Invariant: every offer is held, and none is firm.

use std::collections::{BTreeMap, BTreeSet};

use legwork_model::id::InstanceId;

use crate::task::{Offer, TaskId};

/// The most offers of one caller at a time.
const OFFERS_MAX: usize = 10;

#[derive(Clone, Debug, Default)]
pub(crate) struct Offers {
    /// By caller, process, step and round.
    tasks: BTreeMap<(u64, u64, u32, u64), BTreeSet<TaskId>>,
    /// The offered cases of each caller, oldest first.
    cases: BTreeMap<u64, Vec<Offered>>,
}

/// A case that is offered.
#[derive(Clone, Debug)]
struct Offered {
    instance: InstanceId,
    offer: Offer,
    /// The number of its steps that are held.
    steps: usize,
}

impl Offers {
    /// Adds a step to an offer. Returns the case whose offer ends for it: the oldest if there are too many.
    pub(crate) fn add(&mut self, offer: Offer, task: TaskId) -> Option<InstanceId> {
        if !self.tasks.entry(place(offer, task)).or_default().insert(task) {
            return None;
        }
        let cases = self.cases.entry(offer.caller).or_default();
        match cases.iter_mut().find(|own| own.instance == task.instance) {
            Some(own) => own.steps += 1,
            None => cases.push(Offered { instance: task.instance, offer, steps: 1 }),
        }
        cases.first().filter(|_| cases.len() > OFFERS_MAX).map(|oldest| oldest.instance)
    }

    /// Earlier offers for the same case, under other ids.
    pub(crate) fn same_case(&self, offer: Offer, instance: InstanceId) -> Vec<InstanceId> {
        let cases = self.cases.get(&offer.caller).into_iter().flatten();
        let same = cases.filter(|own| own.offer == offer && own.instance != instance);
        same.map(|own| own.instance).collect()
    }

    /// All offers for a step, for any case.
    pub(crate) fn of(&self, offer: Offer, task: TaskId) -> impl Iterator<Item = TaskId> {
        self.tasks.get(&place(offer, task)).into_iter().flatten().copied()
    }

    pub(crate) fn remove(&mut self, offer: Offer, task: TaskId) {
        let place = place(offer, task);
        let Some(tasks) = self.tasks.get_mut(&place) else { return };
        if !tasks.remove(&task) {
            return;
        }
        if tasks.is_empty() {
            self.tasks.remove(&place);
        }
        let Some(cases) = self.cases.get_mut(&offer.caller) else { return };
        if let Some(own) = cases.iter_mut().find(|own| own.instance == task.instance) {
            own.steps -= 1;
        }
        cases.retain(|own| own.steps > 0);
        if cases.is_empty() {
            self.cases.remove(&offer.caller);
        }
    }
}

fn place(offer: Offer, task: TaskId) -> (u64, u64, u32, u64) {
    (offer.caller, offer.process, task.step, task.round)
}
