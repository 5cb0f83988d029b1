//! The open instances, and the states of those in memory.
//!
//! Every instance that has not ended has a slot. Its state may be evicted while nothing is in progress, and is loaded
//! again from its stream on demand.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use legwork_engine::{Lifecycle, State};
use legwork_model::id::{InstanceId, ServerId};
use legwork_model::schema::Schema;
use legwork_model::time::Timestamp;

use crate::answer::{DeadlineView, InstanceInfo};
use crate::cases::summary::Due;
use crate::migration::export::Extent;
use crate::planning::{Alarm, Alarms};

/// How many states are examined for eviction beyond those recently used.
const EVICTED_AT_ONCE: usize = 256;

#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) schema: Arc<Schema>,
    /// Number of records in its stream.
    pub(crate) version: u64,
    /// `None` while evicted.
    pub(crate) state: Option<Box<State>>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) incidents: u32,
    pub(crate) started_at: Timestamp,
    /// When it ended, by its events; kept only while the ended instance is in memory.
    pub(crate) ended_at: Option<Timestamp>,
    /// Its deadline, also known while it is evicted. Boxed: most have none.
    pub(crate) due: Option<Box<Due>>,
    /// Queued and leased jobs; an instance with any stays in memory.
    pub(crate) jobs: u32,
    /// The extent of the history that other servers surely know. A hint that is kept only in memory: it spares reading
    /// the whole history for every transfer.
    pub(crate) known_extents: BTreeMap<ServerId, Extent>,
    /// When its deadline has to be checked.
    pub(crate) alarm: Alarm,
    touched: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Instances {
    slots: BTreeMap<InstanceId, Slot>,
    /// Instances with incidents, with a deadline, and by process, so that a page of a listing need not scan all
    /// instances.
    with_incidents: BTreeSet<InstanceId>,
    with_deadline: BTreeSet<InstanceId>,
    by_process: BTreeMap<Arc<str>, BTreeSet<InstanceId>>,
    alarms: Alarms,
    /// Instances that cannot be replayed, with the reason. They stay unchanged in the store.
    broken: BTreeMap<InstanceId, String>,
    /// Instances in the order of their last use; entries with an outdated touch are skipped.
    recent: VecDeque<(InstanceId, u64)>,
    resident: usize,
    /// Number of incidents of all instances.
    incidents: usize,
    touches: u64,
    /// Number of touches at the last eviction.
    seen_touches: u64,
}

impl Slot {
    pub(crate) fn new(schema: Arc<Schema>, version: u64, state: State) -> Self {
        let mut slot = Self {
            schema,
            version,
            lifecycle: state.lifecycle(),
            incidents: 0,
            started_at: state.started_at(),
            ended_at: None,
            due: None,
            jobs: 0,
            known_extents: BTreeMap::new(),
            alarm: Alarm::default(),
            touched: 0,
            state: None,
        };
        slot.install(state);
        slot
    }

    /// Installs a new state and updates what is known without it.
    fn install(&mut self, state: State) {
        self.lifecycle = state.lifecycle();
        self.incidents = state.incidents(&self.schema).count() as u32;
        self.due = Due::of(&self.schema, &state).map(Box::new);
        self.state = Some(Box::new(state));
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lifecycle.has_ended()
    }

    /// Whether it has ended and its results are here.
    pub(crate) fn has_results(&self) -> bool {
        self.has_ended() && self.state.as_ref().is_none_or(|state| state.has_results(&self.schema))
    }

    /// Whether it has ended and all servers involved have acknowledged the end.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended() && self.state.as_ref().is_none_or(|state| state.is_over(&self.schema))
    }

    pub(crate) fn info(&self, instance: InstanceId) -> InstanceInfo {
        InstanceInfo {
            instance,
            process: self.schema.process.clone(),
            version: self.schema.version,
            lifecycle: self.lifecycle,
            incidents: self.incidents,
            started_at: self.started_at,
            ended_at: self.ended_at,
            result: Vec::new(),
            deadline: self.due.as_deref().map(|due| due.view()),
        }
    }

    /// Like `info`, with the steps on the way to its deadline if it is in memory.
    pub(crate) fn whole_info(&self, instance: InstanceId) -> InstanceInfo {
        let state = self.state.as_deref();
        let deadline = state.and_then(|state| state.deadline());
        let whole = deadline.map(|deadline| DeadlineView::of(&self.schema, deadline, state));
        let info = self.info(instance);
        let danger = info.deadline.as_ref().and_then(|deadline| deadline.danger);
        let whole = whole.map(|whole| DeadlineView { danger, ..whole });
        InstanceInfo { deadline: whole.or(info.deadline), ..info }
    }
}

impl Instances {
    pub(crate) fn get(&self, id: InstanceId) -> Option<&Slot> {
        self.slots.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: InstanceId) -> Option<&mut Slot> {
        self.slots.get_mut(&id)
    }

    /// The schema and state of an instance that is in memory.
    pub(crate) fn state(&self, id: InstanceId) -> Option<(&Arc<Schema>, &State)> {
        let slot = self.slots.get(&id)?;
        Some((&slot.schema, slot.state.as_deref()?))
    }

    pub(crate) fn insert(&mut self, id: InstanceId, slot: Slot) {
        self.remove(id);
        self.resident += usize::from(slot.state.is_some());
        self.incidents += slot.incidents as usize;
        if slot.incidents > 0 {
            self.with_incidents.insert(id);
        }
        if slot.due.is_some() {
            self.with_deadline.insert(id);
        }
        match self.by_process.get_mut(&slot.schema.process) {
            Some(ids) => drop(ids.insert(id)),
            None => {
                self.by_process.insert(slot.schema.process.clone(), BTreeSet::from([id]));
            }
        }
        self.slots.insert(id, slot);
        self.set_alarm(id);
        self.touch(id);
    }

    pub(crate) fn remove(&mut self, id: InstanceId) -> Option<Slot> {
        let slot = self.slots.remove(&id)?;
        self.resident -= usize::from(slot.state.is_some());
        self.incidents -= slot.incidents as usize;
        self.with_incidents.remove(&id);
        self.with_deadline.remove(&id);
        self.alarms.take(id, &slot.alarm);
        if let Some(ids) = self.by_process.get_mut(&slot.schema.process) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_process.remove(&slot.schema.process);
            }
        }
        Some(slot)
    }

    /// Installs a new state; returns the slot and the previous lifecycle.
    pub(crate) fn install(
        &mut self,
        id: InstanceId,
        state: State,
    ) -> Option<(&mut Slot, Lifecycle)> {
        let slot = self.slots.get_mut(&id)?;
        let (was, had) = (slot.lifecycle, slot.incidents);
        self.resident += usize::from(slot.state.is_none());
        slot.install(state);
        self.incidents = self.incidents + slot.incidents as usize - had as usize;
        match (had > 0, slot.incidents > 0) {
            (false, true) => drop(self.with_incidents.insert(id)),
            (true, false) => drop(self.with_incidents.remove(&id)),
            (true, true) | (false, false) => {}
        }
        if slot.due.is_some() {
            self.with_deadline.insert(id);
            self.set_alarm(id);
        }
        Some((self.slots.get_mut(&id)?, was))
    }

    /// Sets the moment to check the deadline of an instance, which follows from its state.
    pub(crate) fn set_alarm(&mut self, id: InstanceId) {
        if let Some(slot) = self.slots.get_mut(&id) {
            let due = slot.due.as_deref().filter(|_| !slot.lifecycle.has_ended());
            self.alarms.set(id, &mut slot.alarm, due);
        }
    }

    /// The instance whose deadline has to be checked first, and when.
    pub(crate) fn next_alarm(&self) -> Option<(Timestamp, InstanceId)> {
        self.alarms.first()
    }

    /// Restores a state that was evicted.
    pub(crate) fn restore(&mut self, id: InstanceId, state: State) {
        if self.install(id, state).is_some() {
            self.touch(id);
        }
    }

    /// Notes that the instance is in use.
    pub(crate) fn touch(&mut self, id: InstanceId) {
        self.touches += 1;
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.touched = self.touches;
            self.recent.push_back((id, self.touches));
        }
    }

    /// Evicts states until at most `max` are left, least recently used first. Instances with jobs stay, since workers
    /// need their inputs, and so do those with incidents, which are listed, and those whose end is awaited.
    pub(crate) fn evict(&mut self, max: usize, is_awaited: impl Fn(InstanceId) -> bool) {
        // The effort is bounded by the touches since the last call: if most states have to stay, examining all of them
        // each time would cost too much.
        let touched = self.touches - self.seen_touches;
        self.seen_touches = self.touches;
        let mut budget = self.recent.len().min(2 * touched as usize + EVICTED_AT_ONCE);
        while self.resident > max && budget > 0 {
            budget -= 1;
            let Some((id, touched)) = self.recent.pop_front() else { return };
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            if slot.touched != touched || slot.state.is_none() {
                continue;
            }
            if slot.jobs > 0 || slot.incidents > 0 || is_awaited(id) {
                self.recent.push_back((id, touched));
            } else {
                slot.state = None;
                self.resident -= 1;
            }
        }
        // Without eviction the list would only grow: outdated entries are removed when it is long.
        if self.recent.len() > 64 + 4 * self.slots.len() {
            let slots = &self.slots;
            self.recent
                .retain(|(id, touched)| slots.get(id).is_some_and(|slot| slot.touched == *touched));
        }
    }

    pub(crate) fn mark_broken(&mut self, id: InstanceId, reason: String) {
        self.remove(id);
        self.broken.insert(id, reason);
    }

    pub(crate) fn broken(&self, id: InstanceId) -> Option<&str> {
        self.broken.get(&id).map(String::as_str)
    }

    /// Open instances, newest first.
    pub(crate) fn newest_first(
        &self,
        before: Option<InstanceId>,
    ) -> impl Iterator<Item = (InstanceId, &Slot)> {
        let end = before.unwrap_or(InstanceId(u128::MAX));
        self.slots.range(..end).rev().map(|(id, slot)| (*id, slot))
    }

    /// Open instances of a process, newest first.
    pub(crate) fn newest_of(
        &self,
        process: &str,
        before: Option<InstanceId>,
    ) -> impl Iterator<Item = (InstanceId, &Slot)> {
        let end = before.unwrap_or(InstanceId(u128::MAX));
        let ids =
            self.by_process.get(process).into_iter().flat_map(move |ids| ids.range(..end).rev());
        ids.filter_map(|id| Some((*id, self.slots.get(id)?)))
    }

    /// Open instances with a deadline, newest first.
    pub(crate) fn with_deadline(
        &self,
        before: Option<InstanceId>,
    ) -> impl Iterator<Item = (InstanceId, &Slot)> {
        let end = before.unwrap_or(InstanceId(u128::MAX));
        let ids = self.with_deadline.range(..end).rev();
        ids.filter_map(|id| Some((*id, self.slots.get(id)?)))
    }

    pub(crate) fn incidents(&self) -> usize {
        self.incidents
    }

    /// Open instances with incidents, oldest first.
    pub(crate) fn with_incidents(
        &self,
        after: Option<InstanceId>,
    ) -> impl Iterator<Item = (InstanceId, &Slot)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ids = self.with_incidents.range((from, Bound::Unbounded));
        ids.filter_map(|id| Some((*id, self.slots.get(id)?)))
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = InstanceId> {
        self.slots.keys().copied()
    }

    pub(crate) fn broken_ids(&self) -> impl Iterator<Item = InstanceId> {
        self.broken.keys().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn resident(&self) -> usize {
        self.resident
    }

    pub(crate) fn broken_len(&self) -> usize {
        self.broken.len()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use legwork_engine::create;
    use legwork_model::compile::compile;
    use legwork_model::event::{Created, Performer};
    use legwork_model::yaml;

    use super::*;

    #[test]
    fn eviction_examines_a_bounded_number_of_states() {
        let (definition, _) = yaml::parse("process: p\nsteps: [{ step: a, job: a }]\n");
        let schema = Arc::new(compile(&definition.unwrap(), 1).unwrap());
        let (process, by) = (schema.process.clone(), Performer::System);
        let created = Created { process, version: 1, by, inputs: Vec::new(), deadline: None };
        let state = create(&schema, created, Timestamp(1)).unwrap().state;
        let mut instances = Instances::default();
        for id in 0..10_000 {
            let slot = Slot::new(schema.clone(), 1, state.clone());
            instances.insert(InstanceId(id), slot);
        }
        let looks = Cell::new(0);
        let stays = |_| {
            looks.set(looks.get() + 1);
            true
        };
        instances.evict(10, stays);
        looks.set(0);
        instances.evict(10, stays);
        assert_eq!((looks.get(), instances.resident()), (EVICTED_AT_ONCE, 10_000));
        for _ in 0..10_000 / EVICTED_AT_ONCE {
            instances.evict(10, |_| false);
        }
        assert_eq!(instances.resident(), 10_000 % EVICTED_AT_ONCE, "but all in the end");
    }
}
