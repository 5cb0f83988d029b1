//! Until when executors are busy with what they were given.
//!
//! What began when a hand was free has that hand's lane of the plans, and is over when its time has passed. What was
//! given when nobody had to ask whether one is free may queue at the executor, in an order that nobody here knows: as
//! long as there is more of it than hands, no lane is free before all of it is through (`legwork_promise::Queue`).
//!
//! Invariant: as long as nothing takes longer than is expected of it, no lane is busy for longer than was said when
//! something was promised with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use legwork_model::event::TaskKey;
use legwork_model::time::Timestamp;
use legwork_promise::{ResourceId, TaskId, Work};
use legwork_schedule::ExecutorId;

use super::lending::task_key;
use super::lent::Lent;
use super::regular::{by_the_clock, lag};
use super::task_id;
use crate::Site;
use crate::executors::Gift;
use crate::jobs::JobKey;

/// What takes longer than was expected is expected to take a part of that more: one in so many, and no less than
/// this.
const LONGER_PART: i64 = 4;
const LONGER_MIN_MS: i64 = 1_000;

/// What an executor works on, as its plans see it.
#[derive(Clone, Debug)]
pub(super) struct Occupant {
    pub(super) whose: Whose,
    /// When it was given.
    pub(super) at: Timestamp,
    /// By the clock.
    takes_ms: i64,
    begun: Option<Timestamp>,
    pub(super) lane: Option<usize>,
    /// Of its type the executor takes fewer than it works on.
    pub(super) is_limited: bool,
    /// How far it is by the plan, if it was promised.
    pub(super) promised: Option<Promised>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promised {
    Waits,
    /// Nobody knows whether it waits.
    Doubted,
    Begun,
}

#[derive(Clone, Debug)]
pub(super) enum Whose {
    Given(JobKey),
    Lent(TaskKey),
}

impl Occupant {
    /// Until when a lane is taken by it, if it is begun then. In the shade it may be behind something that nobody knows of, and
    /// is through with that at the latest.
    fn until(&self, begun: Timestamp, shade: Option<Timestamp>, now: Timestamp) -> Timestamp {
        let until = Timestamp(begun.0.saturating_add(self.takes_ms));
        if until > now {
            return until;
        }
        let longer = longer(self.takes_ms, now);
        shade.filter(|shade| *shade > now).map_or(longer, |shade| shade.min(longer))
    }

    /// How long it takes by the clock.
    pub(super) fn takes_ms(&self) -> i64 {
        self.takes_ms
    }

    /// Another server has given it without leave.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.whose, Whose::Lent(_)) && self.begun.is_none()
    }

    pub(super) fn task(&self) -> TaskKey {
        match &self.whose {
            Whose::Given(key) => task_key(key),
            Whose::Lent(task) => *task,
        }
    }
}

fn longer(takes_ms: i64, now: Timestamp) -> Timestamp {
    Timestamp(now.0.saturating_add((takes_ms / LONGER_PART).max(LONGER_MIN_MS)))
}

/// The plans of an executor.
struct Lanes {
    /// From when each is free for what is not in the plan yet.
    free: Vec<Timestamp>,
    /// Whether something is worked on there.
    taken: Vec<bool>,
    /// How many more hands it has that nobody plans.
    beside: usize,
}

impl Lanes {
    fn take(&mut self, lane: usize, until: Timestamp) {
        (self.free[lane], self.taken[lane]) = (self.free[lane].max(until), true);
    }

    fn untaken(&self) -> impl Iterator<Item = usize> {
        (0..self.taken.len()).filter(|lane| !self.taken[*lane])
    }

    /// Whether there is a hand for each of those that may queue.
    fn have_room_for(&self, queued: &[Occupant]) -> bool {
        let (lanes, limited) = (self.untaken().count(), limited(queued));
        limited <= lanes && queued.len() <= lanes + self.beside
    }

    /// How many can be worked on at a time of what queues: of a type with a limit no more than there are lanes.
    fn hands_for(&self, queued: &[Occupant]) -> usize {
        let beside = if limited(queued) > 0 { 0 } else { self.beside };
        self.free.len() + beside
    }
}

/// How long all but the shortest take of what was promised and may wait at an executor: that may be in the shortest one's way.
fn unbegun(all: &[Occupant]) -> Vec<Work> {
    let unbegun = all.iter().filter(|one| one.promised.is_some_and(|it| it != Promised::Begun));
    let mut unbegun: Vec<Work> = unbegun.map(|one| Work(one.takes_ms)).collect();
    unbegun.sort_unstable();
    unbegun.drain(..1.min(unbegun.len()));
    unbegun
}

pub(super) fn limited<'o>(all: impl IntoIterator<Item = &'o Occupant>) -> usize {
    all.into_iter().filter(|one| one.is_limited).count()
}

impl Site {
    /// Lets the plans know until when executors are busy with what they were given.
    pub(super) fn note_busy(&mut self, now: Timestamp) {
        let Some(node) = &self.planning.node else { return };
        let is_due = self.planning.busy_until <= now;
        let mut changed = self.executors.given.take_changed();
        let lent = self.planning.lending.lent.take_changed();
        let named = |name: &Arc<str>| self.executors.registry.named(name).map(|(id, _)| id);
        changed.extend(lent.iter().filter_map(named));
        if is_due {
            self.planning.busy_until = Timestamp(i64::MAX);
            let planned = node.desk.resources().filter_map(|id| match id {
                ResourceId::Executor(name) => Some(self.executors.registry.named(name)?.0),
                ResourceId::Person(_) => None,
            });
            changed.extend(planned);
        }
        for id in changed {
            self.note_busy_of(id, now);
        }
    }

    fn note_busy_of(&mut self, id: ExecutorId, now: Timestamp) {
        let Some((lanes, beside)) = self.hands_of(id).filter(|(lanes, _)| *lanes > 0) else {
            return;
        };
        let (Some(one), Some(node)) = (self.executors.registry.get(id), &self.planning.node) else {
            return;
        };
        let resource = ResourceId::Executor(one.name.clone());
        let lag_ms = by_the_clock(one, lag(one).0);
        let works_on = node.desk.works_on(&resource).into_iter();
        let works_on = works_on.map(|left| left.map(|left| Work(by_the_clock(one, left.0))));
        let works_on: Vec<Option<Work>> = works_on.collect();
        let taken = works_on.iter().map(Option::is_some).collect();
        let mut lanes = Lanes { free: vec![now; lanes], taken, beside };
        let all = self.occupants(id, &resource, lanes.free.len());
        self.doubt(id, &all, (lanes.free.len(), beside));
        let mut shade = None;
        if let ResourceId::Executor(name) = &resource {
            self.note_shade(name, &all, now);
            shade = self.planning.forgotten.shade_until(name);
        }
        let unbegun = unbegun(&all);
        let (placed, queued): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|one| one.lane.is_some());
        for one in &placed {
            let (Some(lane), begun) = (one.lane, one.begun.unwrap_or(now)) else { continue };
            let until = one.until(begun, shade, now);
            self.planning.busy_until = self.planning.busy_until.min(until);
            // What was promised has its time in the plan, and needs more only if it takes longer.
            let longest = one.takes_ms.saturating_add(lag_ms);
            let is_longer = begun.0.saturating_add(longest) <= now.0;
            let needs_more = match one.promised {
                Some(Promised::Begun) => is_longer,
                Some(Promised::Waits | Promised::Doubted) => false,
                None => true,
            };
            lanes.take(lane, if needs_more { until } else { now });
            if needs_more && one.promised.is_some() {
                // Whether it is still in time is looked at now: soon it may be late.
                self.planning.watched_at = Timestamp::default();
            }
        }
        let besides = lanes.free.iter().map(|until| until.0.saturating_sub(now.0));
        let others = besides.zip(works_on);
        let others = others.map(|(other, own)| Work(own.map_or(0, |it| it.0).max(other)));
        let others: Vec<Work> = others.chain(unbegun).collect();
        self.note_queue(&resource, &others, &queued, &mut lanes, now);
        let until = lanes.free.into_iter().map(|until| (until > now).then_some(until));
        let until: Vec<_> = until.collect();
        if let Some(node) = &mut self.planning.node {
            node.desk.occupy(&resource, &until);
        }
    }

    /// What has no lane queues, or is begun if there are hands for all of it.
    fn note_queue(
        &mut self,
        resource: &ResourceId,
        others: &[Work],
        queued: &[Occupant],
        lanes: &mut Lanes,
        now: Timestamp,
    ) {
        let ResourceId::Executor(name) = resource else { return };
        if queued.is_empty() {
            self.planning.queues.remove(name);
            return;
        }
        let waiting = queued.iter().map(|one| (task_id(one.task()), Work(one.takes_ms)));
        let waiting: BTreeMap<_, _> = waiting.collect();
        // As long as it is not known what others have given, anything may queue behind that.
        let is_open = self.is_open(name, now);
        let queue = self.planning.queues.entry(name.clone()).or_default();
        let mut until = queue.note(waiting, others, lanes.hands_for(queued), now);
        if !is_open || !lanes.have_room_for(queued) {
            if until <= now {
                until = longer(queued.iter().map(|one| one.takes_ms).max().unwrap_or(0), now);
                queue.put_off(until);
            }
            self.planning.busy_until = self.planning.busy_until.min(until);
            return lanes.free.iter_mut().for_each(|free| *free = until.max(*free));
        }
        self.planning.queues.remove(name);
        let mut beside = lanes.beside;
        for one in queued {
            if !one.is_limited && beside > 0 {
                beside -= 1;
                continue;
            }
            let Some(lane) = lanes.untaken().next() else { continue };
            // It is over when all were to be, so it was begun in time for that.
            let begun = Timestamp(until.0.saturating_sub(one.takes_ms)).min(now);
            self.put_into_lane(&one.whose, lane, begun);
            let until = one.until(begun, None, now);
            self.planning.busy_until = self.planning.busy_until.min(until);
            lanes.take(lane, until);
        }
    }

    pub(super) fn put_into_lane(&mut self, whose: &Whose, lane: usize, begun: Timestamp) {
        match whose {
            Whose::Given(key) => self.executors.given.put_into(key, lane, begun),
            Whose::Lent(task) => self.planning.lending.lent.put_into(*task, lane, begun),
        }
    }

    /// All that an executor works on, the first one first.
    pub(super) fn occupants(
        &self,
        id: ExecutorId,
        resource: &ResourceId,
        lanes: usize,
    ) -> Vec<Occupant> {
        let given = self.executors.given.at(id).into_iter().map(|(key, gift)| {
            let Gift { at, takes_ms, begun, lane, kind, .. } = gift;
            let (of_kind, in_all) = self.executors.registry.room(id, kind);
            let (planned, promised) = self.planned_lane(task_id(task_key(&key)), resource).unzip();
            let is_limited = of_kind < in_all;
            let (lane, whose) = (planned.or(lane), Whose::Given(key));
            Occupant { whose, at, takes_ms, begun, lane, is_limited, promised }
        });
        let ResourceId::Executor(name) = resource else { return Vec::new() };
        let mut all: Vec<Occupant> = given.chain(self.lent_to(resource, name)).collect();
        let executor = self.executors.registry.get(id);
        for one in &mut all {
            one.lane = one.lane.filter(|lane| *lane < lanes);
            one.takes_ms = executor.map_or(one.takes_ms, |it| by_the_clock(it, one.takes_ms));
        }
        all.sort_by_key(|one| one.at);
        all
    }

    /// What an executor has from others.
    fn lent_to(&self, resource: &ResourceId, name: &Arc<str>) -> Vec<Occupant> {
        let lent = self.planning.lending.lent.at(name);
        // Of which type it is others do not say: if there is one that has a limit of its own, it may be of that.
        let one = self.executors.registry.named(name).map(|(_, one)| one);
        let is_limited = one.is_some_and(|one| {
            one.types.iter().filter_map(|own| own.limit).any(|limit| limit < one.limit)
        });
        let lent = lent.map(|(task, &Lent { at, takes_ms, begun, lane, .. })| {
            let (planned, promised) = self.planned_lane(task_id(task), resource).unzip();
            let (lane, whose) = (planned.or(lane), Whose::Lent(task));
            Occupant { whose, at, takes_ms, begun, lane, is_limited, promised }
        });
        lent.collect()
    }

    /// In which of an executor's plans a task is, as something that it has promised, and how far.
    fn planned_lane(&self, task: TaskId, by: &ResourceId) -> Option<(usize, Promised)> {
        let desk = &self.planning.node.as_ref()?.desk;
        let (promised_by, lane) = desk.lane_of(task)?;
        let promised = match (desk.is_begun(task), desk.is_out(task)) {
            (true, _) => Promised::Begun,
            (false, true) => Promised::Doubted,
            (false, false) => Promised::Waits,
        };
        (promised_by == by).then_some((lane, promised))
    }
}
