//! The stream of plans: reservations, begins and ends, so that promises survive a restart.
//!
//! The net changes of one input are one record: a start tries several ways, and most questions change nothing in the
//! end. A restart reads the latest snapshot and the records after it.

use std::collections::BTreeSet;

use legwork_model::event::{PlanEvent, Record, Reserved, TaskKey};
use legwork_model::id::StreamId;
use legwork_model::time::Timestamp;
use legwork_plan::{Change, Reservation, ResourceId, Window, Work};

use super::ledger::Ledger;
use super::reserving::Why;
use super::resources::performer;
use super::{Planning, key, task_id};
use crate::Site;
use crate::bounds::RECORD_BYTES_MAX;
use crate::executors::SEEN_FOR;
use crate::input::Stream;
use crate::output::{Append, Output};

/// The least number of records between two snapshots.
const SNAPSHOT_EVERY: u64 = 256;

impl Site {
    /// Replays the reservations from before a restart.
    pub(crate) fn recover_plans(&mut self, stream: &Stream) {
        if let Some((version, bytes)) = &stream.snapshot {
            // Written by another version: only the records count.
            let Ok(ledger) = Ledger::from_bytes(bytes) else {
                return self.ask_for(StreamId::PLANS, true);
            };
            self.planning.ledger = ledger;
            (self.planning.records, self.planning.stored) = (*version, *version);
        }
        for bytes in &stream.records {
            self.planning.records += 1;
            match Record::<PlanEvent>::from_bytes(bytes) {
                Ok(Record { at, events }) => {
                    self.clock.latest = self.clock.latest.max(at);
                    events.into_iter().for_each(|event| self.planning.ledger.fold(event, at));
                }
                Err(unreadable) => {
                    let number = self.planning.records;
                    self.catalog
                        .log
                        .faults
                        .push(format!("record {number} of the plans: {unreadable}"));
                }
            }
        }
    }

    /// Restores the stored reservations in the plans of their performers.
    pub(super) fn restore_plans(&mut self, now: Timestamp) {
        let mut stored: Vec<Reserved> = self.planning.ledger.held().cloned().collect();
        stored.sort_by_key(|reserved| (reserved.start, reserved.task));
        let mut strays = Vec::new();
        for reserved in stored {
            let worked = self.planning.ledger.worked(&reserved, now);
            let by = self.executors.resource(&reserved.by);
            if let ResourceId::Workers(job) = &by {
                // The workers will ask again soon.
                let hands = reserved.lane as usize + 1;
                self.executors.recent_workers.expect(job, hands, now + SEEN_FOR);
            }
            self.ensure_planned(&by, now);
            if !self.planning.planner.has(&by) {
                strays.push(reserved);
                continue;
            }
            // Jobs are dispatched again.
            let worked = worked.filter(|_| matches!(by, ResourceId::Person(_)));
            self.planning.planner.restore(reservation(&reserved, by), worked);
        }
        self.planning.planner.take_changes();
        self.executors.plans_changed();
        for own in &strays {
            let by = self.executors.resource(&own.by);
            self.revoke_reservation(&reservation(own, by), Why::Gone, now);
        }
        self.record_plans(strays.iter().map(|it| PlanEvent::Ended(it.task)).collect(), now);
    }

    /// Releases reservations for instances of this server that were not started before the restart.
    pub(super) fn drop_unstarted(&mut self, now: Timestamp) {
        let here = self.cluster.server_here();
        let is_known =
            |id| self.cases.instances.get(id).is_some() || self.cases.unread.contains(&id);
        let own = self.planning.ledger.held().filter(|it| it.asker == here);
        let unstarted = own.filter(|it| !is_known(it.task.instance));
        for task in unstarted.map(|it| task_id(it.task)).collect::<Vec<_>>() {
            self.planning.planner.end(task);
        }
        self.planning.compare_own_later(now);
        self.record_plan_changes(now);
    }

    /// Records the changes of the plans.
    pub(super) fn record_plan_changes(&mut self, now: Timestamp) {
        let changes = self.planning.planner.take_changes();
        if changes.is_empty() {
            return;
        }
        let planner = &self.planning.planner;
        let event = |change: &Change| match change {
            Change::Reserved(id) => {
                let own = planner.reservation(*id)?;
                let mut stored = stored(own, planner.start_of(*id)?);
                // It counts as begun from now on: the work done before would be lost with a restart.
                let left = planner.left(*id).unwrap_or(own.cost);
                stored.takes_ms = left.0.max(1).unsigned_abs();
                Some(PlanEvent::Reserved(Box::new(stored)))
            }
            Change::Begun(id) => Some(PlanEvent::Begun(key(*id))),
            Change::Left(id) => Some(PlanEvent::Left(key(*id))),
            Change::Ended(id) => Some(PlanEvent::Ended(key(*id))),
        };
        let events: Vec<PlanEvent> = changes.iter().filter_map(event).collect();
        for change in &changes {
            if let Change::Ended(id) = change {
                self.executors.assignments.touch(id.instance);
                if self.cases.instances.get(id.instance).is_none() {
                    self.planning.step_reports.forget(*id);
                }
            }
        }
        self.executors.plans_changed();
        self.record_plans(events, now);
    }

    /// Notes events; the net changes of an input are written at its end.
    pub(super) fn record_plans(&mut self, events: Vec<PlanEvent>, now: Timestamp) {
        let Planning { ledger, pending, .. } = &mut self.planning;
        if pending.events.is_empty() {
            pending.place = self.out.len();
        }
        for event in events {
            pending.add(event.clone(), ledger);
            ledger.fold(event, now);
        }
    }

    /// Writes the net changes of the present input, before all outputs that may depend on them.
    pub(crate) fn write_plans(&mut self, now: Timestamp) {
        let Pending { events, place, .. } = std::mem::take(&mut self.planning.pending);
        let mut appends = Vec::new();
        for record in records_of(events, now) {
            self.entailed.add_append(record.len());
            let (stream, expected) = (StreamId::PLANS.0, self.planning.records);
            self.planning.records += 1;
            appends.push(Output::Append(Append { stream, expected, record, close: None }));
        }
        if appends.is_empty() {
            return;
        }
        let place = place.min(self.out.len());
        self.out.splice(place..place, appends);
        self.store_plans();
    }

    /// Stores a snapshot as soon as there are as many new records as it has entries, so that it costs no more than they
    /// did.
    fn store_plans(&mut self) {
        let Planning { ledger, records: version, stored, .. } = &mut self.planning;
        if *version - *stored < SNAPSHOT_EVERY.max(ledger.len() as u64) {
            return;
        }
        let (version, bytes) = (*version, ledger.to_bytes());
        // If there is no room now, the next record tries again.
        if self.entailed.has_room_for(bytes.len()) {
            self.planning.stored = version;
            self.entailed.add_snapshot(bytes.len());
            self.out.push(Output::Snapshot { stream: StreamId::PLANS.0, version, bytes });
        }
    }

    /// Notes the duration of a promised step, which later estimates use.
    pub(crate) fn note_duration(&mut self, task: TaskKey, took_ms: Option<u64>, now: Timestamp) {
        let Some(ms) = took_ms else { return };
        let Some(slot) = self.cases.instances.get(task.instance) else { return };
        let process = slot.schema.process.clone();
        let Some(node) = slot.schema.nodes.get(task.node.0 as usize) else { return };
        let step = node.name.clone();
        self.record_plans(vec![PlanEvent::Took { process, step, ms }], now);
    }
}

/// A reservation in its stored form. Its other candidates are known to the starter, and are not stored any more.
fn stored(own: &Reservation, start: Timestamp) -> Reserved {
    Reserved {
        task: key(own.task),
        by: performer(&own.by),
        lane: own.hand as u32,
        release: own.window.release,
        due: own.window.due,
        takes_ms: own.cost.0.unsigned_abs(),
        priority: own.priority,
        may_abort: true,
        asker: own.asker,
        attempt: own.attempt,
        who: Vec::new(),
        deputies: Vec::new(),
        only: Vec::new(),
        step: own.step.clone(),
        start,
    }
}

fn reservation(own: &Reserved, by: ResourceId) -> Reservation {
    Reservation {
        task: task_id(own.task),
        step: own.step.clone(),
        by,
        hand: own.lane as usize,
        window: Window { release: own.release, due: own.due },
        cost: Work(i64::try_from(own.takes_ms).unwrap_or(i64::MAX)),
        priority: own.priority,
        asker: own.asker,
        attempt: own.attempt,
    }
}

/// The net changes of one input.
#[derive(Debug, Default)]
pub(super) struct Pending {
    events: Vec<PlanEvent>,
    /// Reserved by this input, and not before.
    fresh: BTreeSet<TaskKey>,
    /// Number of outputs before the first event.
    place: usize,
}

impl Pending {
    /// A reservation that is made and released by the same input leaves no event.
    fn add(&mut self, event: PlanEvent, before: &Ledger) {
        if let PlanEvent::Ended(task) = &event
            && self.fresh.remove(task)
        {
            let task = *task;
            let is_it = |event: &PlanEvent| of_reservation(event) == Some(task);
            // Only events after the last end of the task are dropped: those before it concern an older reservation.
            let is_end = |event: &PlanEvent| matches!(event, PlanEvent::Ended(it) if *it == task);
            let first = self.events.iter().rposition(is_end).map_or(0, |place| place + 1);
            let later = self.events.split_off(first);
            self.events.extend(later.into_iter().filter(|event| !is_it(event)));
            return;
        }
        if let PlanEvent::Reserved(reserved) = &event
            && !before.holds(reserved.task)
        {
            self.fresh.insert(reserved.task);
        }
        self.events.push(event);
    }
}

/// The reservation that an event is about.
fn of_reservation(event: &PlanEvent) -> Option<TaskKey> {
    match event {
        PlanEvent::Reserved(reserved) => Some(reserved.task),
        PlanEvent::Begun(task) | PlanEvent::Ended(task) | PlanEvent::Left(task) => Some(*task),
        PlanEvent::Took { .. } | PlanEvent::TakenBack { .. } | PlanEvent::Told(_) => None,
    }
}

/// The records of events: one, or as many as needed for each to fit.
fn records_of(mut events: Vec<PlanEvent>, at: Timestamp) -> Vec<Vec<u8>> {
    if events.is_empty() {
        return Vec::new();
    }
    let record = Record { at, events: events.clone() }.to_bytes();
    if record.len() <= RECORD_BYTES_MAX || events.len() == 1 {
        return vec![record];
    }
    let later = events.split_off(events.len() / 2);
    let mut records = records_of(events, at);
    records.extend(records_of(later, at));
    records
}

#[cfg(test)]
mod tests {
    use legwork_model::event::Performer;
    use legwork_model::id::ServerId;

    use super::super::ledger::samples::{key, reserved};
    use super::*;

    /// The events written, if the first task was reserved before.
    fn net(events: &[PlanEvent]) -> Vec<PlanEvent> {
        let (mut pending, mut ledger) = (Pending::default(), Ledger::default());
        ledger.fold(reserved(1, Vec::new()), Timestamp(0));
        for event in events {
            pending.add(event.clone(), &ledger);
            ledger.fold(event.clone(), Timestamp(5));
        }
        let mut replayed = Ledger::default();
        replayed.fold(reserved(1, Vec::new()), Timestamp(0));
        pending.events.iter().for_each(|event| replayed.fold(event.clone(), Timestamp(5)));
        assert_eq!(replayed, ledger, "both come to the same");
        pending.events
    }

    #[test]
    fn a_reservation_made_and_released_by_one_input_is_not_written() {
        let new = |node| reserved(node, Vec::new());
        let (begun, ended) = (PlanEvent::Begun, PlanEvent::Ended);
        assert_eq!(net(&[new(2), begun(key(2)), ended(key(2))]), []);
        assert_eq!(net(&[new(2), new(2), ended(key(2))]), []);
        assert_eq!(net(&[new(2), ended(key(2)), new(2)]), [new(2)]);
        assert_eq!(net(&[ended(key(1)), new(1), ended(key(1))]), [ended(key(1))]);
        assert_eq!(net(&[new(1), ended(key(1))]), [new(1), ended(key(1))]);
        let back = PlanEvent::TakenBack {
            task: key(2),
            asker: ServerId(1),
            is_lost: true,
            attempt: 6,
            goes_on: false,
        };
        assert_eq!(net(&[new(2), back.clone(), ended(key(2))]), [back]);
    }

    #[test]
    fn events_beyond_the_size_of_a_record_take_several_records() {
        let name = |number: usize| Performer::Agent(format!("{number:0>200}").as_str().into());
        let who: Vec<Performer> = (0..256).map(name).collect();
        let events: Vec<PlanEvent> = (0..400).map(|node| reserved(node, who.clone())).collect();
        let records = records_of(events.clone(), Timestamp(5));
        assert!(records.len() > 1 && records.iter().all(|it| it.len() <= RECORD_BYTES_MAX));
        let read = records.iter().map(|it| Record::<PlanEvent>::from_bytes(it).unwrap().events);
        assert_eq!(read.flatten().collect::<Vec<_>>(), events);
        // Candidates are stored once.
        let mut ledger = Ledger::default();
        events.into_iter().for_each(|event| ledger.fold(event, Timestamp(5)));
        let bytes = ledger.to_bytes();
        assert!(bytes.len() < 200_000, "{}", bytes.len());
        assert_eq!(Ledger::from_bytes(&bytes).unwrap(), ledger);
    }
}
