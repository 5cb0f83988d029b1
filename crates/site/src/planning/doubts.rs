//! Whether executors have begun what they have promised and were given.
//!
//! Whoever gives something that was promised knows that a hand is free, as far as it knows what the executor has. A
//! server that could not be heard may have given it something before: then what was promised waits behind that, and
//! counts as waiting until there are hands for both. What came later waits in its turn, and is in nobody's way.

use legwork_model::time::Timestamp;
use legwork_promise::{ResourceId, TaskId};
use legwork_schedule::ExecutorId;

use super::occupied::{Occupant, Promised, limited};
use super::{key, task_id};
use crate::Site;

/// What was given that much later may have come before it: clocks differ, and messages take a moment.
const SAME_MS: i64 = 2_000;

/// What of that which is planned is begun, or waits, other than the plans have it.
fn otherwise(all: &[Occupant], lanes: usize, beside: usize) -> Vec<(&Occupant, Promised)> {
    let planned = all.iter().filter_map(|one| Some((one, one.promised?, one.lane?)));
    let other = planned.filter_map(|(one, promised, lane)| {
        let rest = all.iter().filter(|it| it.task() != one.task());
        let before: Vec<&Occupant> =
            rest.clone().filter(|it| it.at.0 <= one.at.0.saturating_add(SAME_MS)).collect();
        let has_hand = before.len() < lanes + beside
            && (!one.is_limited || limited(before.iter().copied()) < lanes);
        let may_wait = !has_hand && before.iter().any(|it| it.is_unknown());
        let mut at_work = rest.filter(|it| it.promised == Some(Promised::Begun));
        match promised {
            Promised::Begun | Promised::Waits if may_wait => Some((one, Promised::Doubted)),
            Promised::Waits | Promised::Doubted
                if !may_wait && at_work.all(|it| it.lane != Some(lane)) =>
            {
                Some((one, Promised::Begun))
            }
            Promised::Begun | Promised::Waits | Promised::Doubted => None,
        }
    });
    other.collect()
}

impl Site {
    /// Notes that the plans of an executor may have to be told what it has begun.
    pub(super) fn doubt(
        &mut self,
        id: ExecutorId,
        all: &[Occupant],
        (lanes, beside): (usize, usize),
    ) {
        if !otherwise(all, lanes, beside).is_empty() {
            self.planning.doubted.insert(id);
        }
    }

    /// Lets the plans know what of that which was promised and given is begun, and what may wait. If there is not time
    /// enough for it then, that is told.
    pub(super) fn settle_begun(&mut self, now: Timestamp) {
        let mut may_wait = false;
        for id in std::mem::take(&mut self.planning.doubted) {
            may_wait |= self.settle_begun_at(id, now);
        }
        if may_wait {
            self.give_up_endangered(now);
        }
    }

    fn settle_begun_at(&mut self, id: ExecutorId, now: Timestamp) -> bool {
        let Some((lanes, beside)) = self.hands_of(id) else { return false };
        let Some(name) = self.executors.registry.get(id).map(|one| one.name.clone()) else {
            return false;
        };
        let all = self.occupants(id, &ResourceId::Executor(name.clone()), lanes);
        let other: Vec<(Occupant, Promised)> = otherwise(&all, lanes, beside)
            .into_iter()
            .map(|(one, promised)| (one.clone(), promised))
            .collect();
        for (one, promised) in &other {
            let task: TaskId = task_id(one.task());
            self.plan(now, |node| {
                match promised {
                    Promised::Begun => node.desk.begin(task),
                    Promised::Waits | Promised::Doubted => node.desk.doubt(task),
                }
                Vec::new()
            });
            if let (Promised::Begun, Some(lane)) = (promised, one.lane) {
                self.put_into_lane(&one.whose, lane, now);
            }
            self.executors.given.touch(task.instance);
            self.planning.lending.lent.touch(key(task));
        }
        let may_wait = other.iter().any(|(_, promised)| *promised == Promised::Doubted);
        if may_wait {
            // What waits counts in the plan from now on, and not as what is in the way of the others.
            self.planning.queues.remove(&name);
        }
        self.note_busy(now);
        may_wait
    }
}
