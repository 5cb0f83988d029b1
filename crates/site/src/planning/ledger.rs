//! What the stream of plans comes to: every promise that is held here, and what was seen of steps.
//!
//! It is stored as a snapshot now and then, so that a restart reads what stands and not all that ever was.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::event::{PlanEvent, Reserved, TaskKey};
use legwork_model::id::{ServerId, shared_text};
use legwork_model::time::Timestamp;
use legwork_promise::{Seen, Work};
use minicbor::{Decode, Encode};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ledger {
    /// What is promised, and since when it is worked on.
    pub(super) held: BTreeMap<TaskKey, (Reserved, Option<Timestamp>)>,
    /// What was taken back from whom, and whether it was lost, until they know.
    pub(super) taken: BTreeMap<TaskKey, (ServerId, bool)>,
    /// How long steps took that were promised, by process and step.
    pub(super) seen: BTreeMap<(Arc<str>, Arc<str>), Seen>,
}

#[derive(Encode, Decode)]
struct Stored {
    #[n(0)]
    held: Vec<StoredTask>,
    #[n(1)]
    seen: Vec<StoredStep>,
    #[n(2)]
    taken: Vec<StoredTaken>,
}

#[derive(Encode, Decode)]
struct StoredTaken {
    #[n(0)]
    task: TaskKey,
    #[n(1)]
    asker: ServerId,
    #[n(2)]
    is_lost: bool,
}

#[derive(Encode, Decode)]
struct StoredTask {
    #[n(0)]
    reserved: Reserved,
    #[n(1)]
    begun: Option<Timestamp>,
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

impl Ledger {
    pub(super) fn fold(&mut self, event: PlanEvent, at: Timestamp) {
        match event {
            PlanEvent::Reserved(reserved) => {
                self.held.insert(reserved.task, (*reserved, None));
            }
            PlanEvent::Begun(task) => {
                if let Some((_, begun)) = self.held.get_mut(&task) {
                    begun.get_or_insert(at);
                }
            }
            PlanEvent::Ended(task) => {
                if let Some((done, Some(begun))) = self.held.remove(&task) {
                    self.put_off(&done, begun, at);
                }
            }
            PlanEvent::Left(task) => {
                if let Some((left, Some(begun))) = self.held.get(&task).cloned() {
                    self.put_off(&left, begun, at);
                    self.held.insert(task, (left, None));
                }
            }
            PlanEvent::TakenBack { task, asker, is_lost } => {
                self.taken.insert(task, (asker, is_lost));
            }
            PlanEvent::Told(task) => drop(self.taken.remove(&task)),
            PlanEvent::Took { process, step, ms } => {
                let took = Work(i64::try_from(ms).unwrap_or(i64::MAX));
                self.seen.entry((process, step)).or_default().add(took);
            }
        }
    }

    /// What whoever did this had begun as well, and is due later, waited meanwhile.
    fn put_off(&mut self, done: &Reserved, from: Timestamp, to: Timestamp) {
        let later = |it: &Reserved| it.by == done.by && (it.due, it.task) > (done.due, done.task);
        let waited = self.held.values_mut().filter(|(it, _)| later(it));
        for begun in waited.filter_map(|(_, begun)| begun.as_mut()) {
            begun.0 += to.since(from.max(*begun)).as_millis() as i64;
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let task = |(reserved, begun): &(Reserved, Option<Timestamp>)| StoredTask {
            reserved: reserved.clone(),
            begun: *begun,
        };
        let step = |((process, step), seen): (&(Arc<str>, Arc<str>), &Seen)| StoredStep {
            process: process.clone(),
            step: step.clone(),
            seen: *seen,
        };
        let held = self.held.values().map(task).collect();
        let seen = self.seen.iter().map(step).collect();
        let taken = self.taken.iter();
        let taken = taken.map(|(&task, &(asker, is_lost))| StoredTaken { task, asker, is_lost });
        // Writing to memory cannot fail.
        minicbor::to_vec(Stored { held, seen, taken: taken.collect() }).unwrap_or_default()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, minicbor::decode::Error> {
        let Stored { held, seen, taken } = minicbor::decode(bytes)?;
        let taken = taken.into_iter().map(|it| (it.task, (it.asker, it.is_lost)));
        let held = held.into_iter().map(|task| (task.reserved.task, (task.reserved, task.begun)));
        let seen = seen.into_iter().map(|it| ((it.process, it.step), it.seen));
        Ok(Self { held: held.collect(), taken: taken.collect(), seen: seen.collect() })
    }
}

#[cfg(test)]
mod tests {
    use legwork_model::event::Performer;
    use legwork_model::id::{InstanceId, NodeId};

    use super::*;

    #[test]
    fn a_snapshot_holds_what_its_events_come_to() {
        let task =
            |node| TaskKey { instance: InstanceId(1), node: NodeId(node), round: 0, part: 0 };
        let reserved = |node| {
            PlanEvent::Reserved(Box::new(Reserved {
                task: task(node),
                by: Performer::Agent("ann".into()),
                lane: 0,
                release: Timestamp(1),
                due: Timestamp(9),
                takes_ms: 4,
                priority: 5,
                may_abort: true,
                asker: ServerId(3),
                who: vec![Performer::Agent("ann".into())],
                deputies: Vec::new(),
                only: Vec::new(),
            }))
        };
        let took = PlanEvent::Took { process: "loan".into(), step: "pay".into(), ms: 7 };
        let back = PlanEvent::TakenBack { task: task(3), asker: ServerId(1), is_lost: false };
        let mut ledger = Ledger::default();
        ledger.fold(back, Timestamp(4));
        let events =
            [reserved(1), reserved(2), PlanEvent::Begun(task(2)), PlanEvent::Ended(task(1)), took];
        events.into_iter().for_each(|event| ledger.fold(event, Timestamp(5)));
        assert_eq!(ledger.held.len(), 1);
        assert_eq!(ledger.held[&task(2)].1, Some(Timestamp(5)));
        assert_eq!(Ledger::from_bytes(&ledger.to_bytes()).unwrap(), ledger);
    }
}
