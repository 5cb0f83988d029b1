//! The fold of the stream of plans: all promises held here, and observed durations of steps.
//!
//! It is stored as a snapshot at intervals, so that a restart need not read the whole stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::event::{Performer, PlanEvent, Reserved, TaskKey};
use legwork_model::id::{ServerId, shared_text};
use legwork_model::time::Timestamp;
use legwork_plan::{Seen, Work};
use minicbor::{Decode, Encode};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ledger {
    /// Reservations.
    held: BTreeMap<TaskKey, Reserved>,
    /// Begun tasks of each performer in order of their due times, and when each was begun.
    begun: BTreeMap<Performer, BTreeMap<(Timestamp, TaskKey), Timestamp>>,
    /// Observed durations of promised steps, by process and step.
    pub(super) seen: BTreeMap<(Arc<str>, Arc<str>), Seen>,
}

#[derive(Encode, Decode)]
struct Stored {
    #[n(0)]
    held: Vec<StoredTask>,
    #[n(1)]
    seen: Vec<StoredStep>,
    /// Written by versions that stored revoked reservations.
    #[n(2)]
    taken: Vec<TakenBack>,
    /// Candidates: the same for very many tasks, and much longer than the rest of them.
    #[n(3)]
    groups: Vec<Vec<Performer>>,
}

/// A revoked reservation, as stored by earlier versions.
#[derive(Encode, Decode)]
struct TakenBack {
    #[n(0)]
    task: TaskKey,
    #[n(1)]
    asker: ServerId,
    #[n(2)]
    is_lost: bool,
    #[n(3)]
    attempt: u64,
    #[cbor(n(4), skip_if = "crate::message::is_no")]
    goes_on: bool,
}

#[derive(Encode, Decode)]
struct StoredTask {
    /// Without its candidates.
    #[n(0)]
    reserved: Reserved,
    #[n(1)]
    begun: Option<Timestamp>,
    /// The index of its candidates among the groups.
    #[n(2)]
    who: u32,
}

#[derive(Encode, Decode)]
struct StoredStep {
    #[cbor(n(0), with = "shared_text")]
    process: Arc<str>,
    #[cbor(n(1), with = "shared_text")]
    step: Arc<str>,
    #[n(2)]
    seen: Seen,
}

fn is_person(by: &Performer) -> bool {
    match by {
        Performer::Agent(_) => true,
        Performer::Worker(_) | Performer::Executor(_) | Performer::System => false,
    }
}

impl Ledger {
    pub(super) fn fold(&mut self, event: PlanEvent, at: Timestamp) {
        match event {
            PlanEvent::Reserved(reserved) => {
                self.end(reserved.task, at);
                self.held.insert(reserved.task, *reserved);
            }
            PlanEvent::Begun(task) => {
                if let Some(own) = self.held.get(&task) {
                    let begun = self.begun.entry(own.by.clone()).or_default();
                    begun.entry((own.due, task)).or_insert(at);
                }
            }
            PlanEvent::Ended(task) => self.end(task, at),
            PlanEvent::Left(task) => {
                if let Some(left) = self.held.get(&task).cloned() {
                    self.stop(&left, at);
                }
            }
            // Earlier versions stored revoked reservations; now lists are compared.
            PlanEvent::TakenBack { .. } | PlanEvent::Told(_) => {}
            PlanEvent::Took { process, step, ms } => {
                let took = Work(i64::try_from(ms).unwrap_or(i64::MAX));
                self.seen.entry((process, step)).or_default().add(took);
            }
        }
    }

    fn end(&mut self, task: TaskKey, at: Timestamp) {
        if let Some(over) = self.held.remove(&task) {
            self.stop(&over, at);
        }
    }

    /// Ends the work on a task. Tasks of the same person that are due later have waited meanwhile.
    fn stop(&mut self, over: &Reserved, at: Timestamp) {
        let Some(begun) = self.begun.get_mut(&over.by) else { return };
        let key = (over.due, over.task);
        let from = begun.remove(&key);
        // An executor does several at a time.
        if let Some(from) = from.filter(|_| is_person(&over.by)) {
            for later in begun.range_mut(key..).map(|(_, begun)| begun) {
                later.0 += at.since(from.max(*later)).as_millis() as i64;
            }
        }
        if begun.is_empty() {
            self.begun.remove(&over.by);
        }
    }

    pub(super) fn held(&self) -> impl Iterator<Item = &Reserved> {
        self.held.values()
    }

    pub(super) fn holds(&self, task: TaskKey) -> bool {
        self.held.contains_key(&task)
    }

    /// The interval in which a begun task was worked on: a person works on the task that is due first, and others wait
    /// from its begin.
    pub(super) fn worked(&self, own: &Reserved, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let begun = self.begun.get(&own.by)?;
        let key = (own.due, own.task);
        let from = *begun.get(&key)?;
        let sooner = begun.range(..key).map(|(_, sooner)| *sooner).min();
        let until = sooner.filter(|_| is_person(&own.by)).unwrap_or(now);
        Some((from, until))
    }

    /// Whether nothing is reserved.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Number of entries to store.
    pub(super) fn len(&self) -> usize {
        self.held.len() + self.seen.len()
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (mut places, mut groups) = (BTreeMap::new(), Vec::new());
        let mut held = Vec::with_capacity(self.held.len());
        for own in self.held.values() {
            let place = *places.entry(&own.who).or_insert_with(|| {
                groups.push(own.who.clone());
                groups.len() as u32 - 1
            });
            let begun = self.begun.get(&own.by).and_then(|all| all.get(&(own.due, own.task)));
            let mut reserved = own.clone();
            reserved.who = Vec::new();
            held.push(StoredTask { reserved, begun: begun.copied(), who: place });
        }
        let step = |((process, step), seen): (&(Arc<str>, Arc<str>), &Seen)| StoredStep {
            process: process.clone(),
            step: step.clone(),
            seen: *seen,
        };
        let seen = self.seen.iter().map(step).collect();
        // Writing to memory cannot fail.
        minicbor::to_vec(Stored { held, seen, taken: Vec::new(), groups }).unwrap_or_default()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, minicbor::decode::Error> {
        let Stored { held, seen, taken: _, groups } = minicbor::decode(bytes)?;
        let seen = seen.into_iter().map(|it| ((it.process, it.step), it.seen));
        let mut ledger = Self { seen: seen.collect(), ..Self::default() };
        for StoredTask { mut reserved, begun, who } in held {
            let group = groups.get(who as usize);
            let group = group.ok_or_else(|| minicbor::decode::Error::message("no such group"))?;
            reserved.who.clone_from(group);
            if let Some(begun) = begun {
                let own = ledger.begun.entry(reserved.by.clone()).or_default();
                own.insert((reserved.due, reserved.task), begun);
            }
            ledger.held.insert(reserved.task, reserved);
        }
        Ok(ledger)
    }
}

/// Reservations for tests of plans.
#[cfg(test)]
pub(super) mod samples {
    use legwork_model::id::{InstanceId, NodeId};

    use super::*;

    pub(in crate::planning) fn key(node: u32) -> TaskKey {
        TaskKey { instance: InstanceId(1), node: NodeId(node), round: 0, part: 0 }
    }

    pub(in crate::planning) fn reserved(node: u32, who: Vec<Performer>) -> PlanEvent {
        PlanEvent::Reserved(Box::new(Reserved {
            task: key(node),
            by: Performer::Agent("ann".into()),
            lane: 0,
            release: Timestamp(1),
            due: Timestamp(9),
            takes_ms: 4,
            priority: 5,
            may_abort: true,
            asker: ServerId(3),
            who,
            deputies: Vec::new(),
            only: Vec::new(),
            start: Timestamp(1),
            attempt: 0,
            step: "pay".into(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{key, reserved};
    use super::*;

    #[test]
    fn a_snapshot_restores_the_fold_of_its_events() {
        let reserved = |node| reserved(node, vec![Performer::Agent("ann".into())]);
        let took = PlanEvent::Took { process: "loan".into(), step: "pay".into(), ms: 7 };
        let mut ledger = Ledger::default();
        let events =
            [reserved(1), reserved(2), PlanEvent::Begun(key(2)), PlanEvent::Ended(key(1)), took];
        events.into_iter().for_each(|event| ledger.fold(event, Timestamp(5)));
        assert_eq!(ledger.held.len(), 1);
        let worked = Some((Timestamp(5), Timestamp(7)));
        assert_eq!(ledger.worked(&ledger.held[&key(2)], Timestamp(7)), worked);
        assert_eq!(Ledger::from_bytes(&ledger.to_bytes()).unwrap(), ledger);
    }
}
