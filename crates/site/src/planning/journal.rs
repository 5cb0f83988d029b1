//! The stream of plans: what was reserved, begun and ended, so that promises survive the server.

use legwork_model::event::{PlanEvent, Record, Reserved, TaskKey};
use legwork_model::id::{InstanceId, StreamId};
use legwork_model::time::Timestamp;
use legwork_promise::{Change, Noted, Reservation, Task, TaskId, Window, Work};

use super::ledger::Ledger;
use super::resources::{performer, resource};
use super::who::{only, stands_in};
use super::{key, task_id};
use crate::Site;
use crate::input::Stream;
use crate::output::{Append, Output};

/// After so many records what they come to is stored.
const SNAPSHOT_EVERY: u64 = 256;

impl Site {
    /// Takes in what was promised before the server went down.
    pub(crate) fn recover_plans(&mut self, stream: &Stream) {
        if let Some((version, bytes)) = &stream.snapshot {
            // Written by another version: only the records count.
            let Ok(ledger) = Ledger::from_bytes(bytes) else {
                return self.ask_for(StreamId::PLANS, true);
            };
            (self.planning.ledger, self.planning.records) = (ledger, *version);
        }
        for bytes in &stream.records {
            self.planning.records += 1;
            match Record::<PlanEvent>::from_bytes(bytes) {
                Ok(Record { at, events }) => {
                    self.latest = self.latest.max(at);
                    events.into_iter().for_each(|event| self.planning.ledger.fold(event, at));
                }
                Err(unreadable) => {
                    let number = self.planning.records;
                    self.faults.push(format!("record {number} of the plans: {unreadable}"));
                }
            }
        }
    }

    /// Puts what was stored into the plans of those who promised it.
    pub(super) fn restore_plans(&mut self, now: Timestamp) {
        let stored = self.planning.ledger.held.clone();
        // Of what somebody has begun they work on what is due first; the others wait from when that was begun.
        let worked = |own: &Reserved, begun: Timestamp| {
            let sooner = |it: &Reserved| it.by == own.by && (it.due, it.task) < (own.due, own.task);
            let sooner =
                stored.values().filter(|(it, _)| sooner(it)).filter_map(|(_, begun)| *begun);
            sooner.min().unwrap_or(now).since(begun).as_millis() as i64
        };
        let worked: Vec<Option<i64>> =
            stored.values().map(|(reserved, begun)| Some(worked(reserved, (*begun)?))).collect();
        for ((task, (reserved, _)), worked) in stored.into_iter().zip(worked) {
            let begun = worked.map(|worked| Timestamp(now.0 - worked));
            let by = resource(&reserved.by);
            self.prepare(&by, now);
            let window = Window { release: reserved.release, deadline: reserved.due };
            let who = reserved.who.iter().map(resource).collect();
            let service = Work(i64::try_from(reserved.takes_ms).unwrap_or(i64::MAX));
            let mut restored = Task::new(task_id(task), window, service, who);
            restored.priority = reserved.priority;
            restored.may_abort = reserved.may_abort;
            restored.deputies = reserved.deputies.iter().map(resource).collect();
            restored.only = reserved.only.iter().map(only).collect();
            let lane = reserved.lane as usize;
            let Some(node) = &mut self.planning.node else { return };
            node.restore(Reservation { task: restored, by, lane }, reserved.asker, begun);
        }
        let taken = self.planning.ledger.taken.clone();
        if let Some(node) = &mut self.planning.node {
            node.desk.take_changes();
            for (task, (asker, is_lost)) in taken {
                node.tell_taken_back(task_id(task), asker, is_lost, now);
            }
        }
    }

    /// Gives back what was reserved here for instances of this server that did not start before it went down.
    pub(super) fn drop_unstarted(&mut self, now: Timestamp) {
        let here = self.server_here();
        let own = self.planning.ledger.held.iter().filter(|(_, (it, _))| it.asker == here);
        let unstarted: Vec<TaskId> = own
            .filter(|(task, _)| !self.is_instance(task.instance))
            .map(|(task, _)| task_id(*task))
            .collect();
        for task in unstarted {
            self.plan(now, |node| node.finish(task));
        }
    }

    pub(super) fn is_instance(&self, id: InstanceId) -> bool {
        self.instances.get(id).is_some() || self.unread.contains(&id)
    }

    /// Records what has changed in the plans here.
    pub(super) fn keep_plans(&mut self, now: Timestamp) {
        let here = self.server_here();
        let Some(node) = &mut self.planning.node else { return };
        let changes = node.desk.take_changes();
        let event = |change| match change {
            Change::Reserved(id) => {
                let Reservation { task, by, lane } = node.desk.reservation(id)?;
                Some(PlanEvent::Reserved(Box::new(Reserved {
                    task: key(id),
                    by: performer(&by),
                    lane: lane as u32,
                    release: task.window.release,
                    due: task.window.deadline,
                    takes_ms: task.service.0.unsigned_abs(),
                    priority: task.priority,
                    may_abort: task.may_abort,
                    asker: node.asker(id).unwrap_or(here),
                    who: task.who.iter().map(performer).collect(),
                    deputies: task.deputies.iter().map(performer).collect(),
                    only: task.only.iter().map(stands_in).collect(),
                })))
            }
            Change::Begun(id) => Some(PlanEvent::Begun(key(id))),
            Change::Left(id) => Some(PlanEvent::Left(key(id))),
            Change::Ended(id) => Some(PlanEvent::Ended(key(id))),
        };
        let mut events: Vec<PlanEvent> = changes.into_iter().filter_map(event).collect();
        events.extend(node.take_noted().into_iter().map(|noted| match noted {
            Noted::TakenBack { task, asker, is_lost } => {
                PlanEvent::TakenBack { task: key(task), asker, is_lost }
            }
            Noted::Told { task } => PlanEvent::Told(key(task)),
        }));
        if events.is_empty() {
            return;
        }
        self.note_plans_changed();
        self.record_plans(events, now);
    }

    fn record_plans(&mut self, events: Vec<PlanEvent>, now: Timestamp) {
        for event in events.clone() {
            self.planning.ledger.fold(event, now);
        }
        let record = Record { at: now, events }.to_bytes();
        self.entailed.add_append(record.len());
        let (stream, expected) = (StreamId::PLANS.0, self.planning.records);
        self.planning.records += 1;
        self.out.push(Output::Append(Append { stream, expected, record, close: None }));
        let version = self.planning.records;
        if version.is_multiple_of(SNAPSHOT_EVERY) {
            let bytes = self.planning.ledger.to_bytes();
            if self.entailed.has_room_for(bytes.len()) {
                self.entailed.add_snapshot(bytes.len());
                self.out.push(Output::Snapshot { stream, version, bytes });
            }
        }
    }

    /// A promised step has taken so long: the next is planned by that.
    pub(crate) fn took(&mut self, task: TaskKey, took_ms: Option<u64>, now: Timestamp) {
        let Some(ms) = took_ms else { return };
        let Some(slot) = self.instances.get(task.instance) else { return };
        let process = slot.schema.process.clone();
        let Some(node) = slot.schema.nodes.get(task.node.0 as usize) else { return };
        let step = node.name.clone();
        self.record_plans(vec![PlanEvent::Took { process, step, ms }], now);
    }
}
