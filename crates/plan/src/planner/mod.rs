//! The plans of one server: of people, executors and workers, each with one slot per concurrent task.
//!
//! A reservation is held first, in memory. It is firm when its case goes ahead; only then is it reported to the
//! caller as a [`Change`], to be stored.
//!
//! Invariant: a held reservation makes no firm reservation late, unless it displaces the firm one, and then the
//! caller is told.

mod fit;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;

use self::fit::Fit;
use crate::offers::Offers;
use crate::plan::{Discipline, OVERRUN_PART, Plan, Turn, Window};
use crate::supply::{Supply, Work};
use crate::task::{Grant, How, Offer, ResourceId, Task, TaskId};

/// An entry that is late by at most this part of its length, and by at most `LEEWAY_MAX`, is not given up: nobody
/// begins at the very moment at which work can begin.
const LEEWAY_PART: i64 = 16;
const LEEWAY_MAX: Work = Work(60_000);

/// How long the remaining work of a begun and released reservation is remembered.
const REMEMBERED: Duration = Duration::from_hours(1);

/// How a resource works.
#[derive(Clone, Debug)]
pub struct Setup {
    pub supply: Supply,
    pub discipline: Discipline,
    /// The number of concurrent tasks.
    pub hands: usize,
    /// Its regular tasks: window and length.
    pub regular: Vec<(Window, Work)>,
    /// In per cent: what planning leaves free, except after a fault.
    pub reserve: u8,
    /// How far it can fall behind its plan although nothing takes longer than planned: an executor has regular work
    /// at unknown times.
    pub lag: Work,
}

/// A change to store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Reserved(TaskId),
    Begun(TaskId),
    /// A begun task was given back.
    Left(TaskId),
    Ended(TaskId),
}

/// A stored reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub task: TaskId,
    pub step: Arc<str>,
    pub by: ResourceId,
    /// The index of the slot.
    pub hand: usize,
    pub window: Window,
    pub cost: Work,
    pub priority: u8,
    /// The server that started the case, and the number of its admission attempt.
    pub asker: ServerId,
    pub attempt: u64,
}

#[derive(Clone, Debug)]
struct Held {
    reservation: Reservation,
    key: u64,
    /// The expiry; firm if there is none.
    until: Option<Timestamp>,
    /// The offer that it belongs to, if any.
    offer: Option<Offer>,
    /// The task under which it was offered before.
    offered: Option<TaskId>,
}

#[derive(Clone, Debug, Default)]
pub struct Planner {
    resources: BTreeMap<ResourceId, Vec<Plan>>,
    held: BTreeMap<TaskId, Held>,
    /// Held reservations by expiry.
    expiry: BTreeSet<(Timestamp, TaskId)>,
    /// Begun reservations that were released while new dates are searched: performer, remaining work and expiry.
    /// The first to expire is forgotten first.
    paused: BTreeMap<TaskId, (ResourceId, Work)>,
    remembered: VecDeque<(Timestamp, TaskId)>,
    /// The latest known moment.
    latest: Timestamp,
    /// Unpromised work of executors.
    others: BTreeMap<TaskId, (ResourceId, usize, u64)>,
    /// The tasks of the entries in plans.
    tasks: BTreeMap<u64, TaskId>,
    last_key: u64,
    offers: Offers,
    changes: Vec<Change>,
}

impl Planner {
    /// Adds or changes a resource. Its reservations stay.
    pub fn set_up(&mut self, id: ResourceId, setup: &Setup, now: Timestamp) {
        let plan = Plan::new(setup.supply.clone(), setup.discipline, setup.reserve, now);
        let plan = plan.with_lag(setup.lag);
        let hands = vec![plan; setup.hands.max(1)];
        let before = self.resources.insert(id.clone(), hands).unwrap_or_default();
        for (window, cost) in &setup.regular {
            self.last_key += 1;
            let key = self.last_key;
            // A resource with regular tasks has one slot.
            if let Some(plan) = self.resources.get_mut(&id).and_then(|hands| hands.first_mut()) {
                plan.add_regular(key, *window, *cost);
            }
        }
        // Entries of a removed slot are in the last one.
        let plan = |hand: usize| before.get(hand).or(before.last());
        let left = |hand: usize, key: u64| plan(hand).and_then(|plan| plan.left(key));
        let is_begun = |hand: usize, key: u64| plan(hand).is_some_and(|it| it.is_begun(key));
        let mut own: Vec<_> = self.held.values().filter(|held| held.reservation.by == id).collect();
        let place = |held: &Held| plan(held.reservation.hand)?.place_of(held.key);
        own.sort_by_key(|held| (place(held), held.reservation.window.due, held.key));
        for held in own.into_iter().cloned().collect::<Vec<_>>() {
            let (key, hand) = (held.key, held.reservation.hand);
            let left = left(hand, key).filter(|_| is_begun(hand, key));
            self.put(&held, left, Plan::add_again);
        }
        let others = self.others.values().filter(|(by, ..)| *by == id);
        for (_, hand, key) in others.cloned().collect::<Vec<_>>() {
            if let Some((left, plan)) = left(hand, key).zip(self.plan_mut(&id, hand)) {
                plan.add_other(key, left);
            }
        }
    }

    /// The plan of a slot; if the slot is gone, another one has its entries.
    fn plan_mut(&mut self, id: &ResourceId, hand: usize) -> Option<&mut Plan> {
        let hands = self.resources.get_mut(id)?;
        let last = hands.len().checked_sub(1)?;
        hands.get_mut(hand.min(last))
    }

    fn plan(&self, id: &ResourceId, hand: usize) -> Option<&Plan> {
        let hands = self.resources.get(id)?;
        hands.get(hand.min(hands.len().checked_sub(1)?))
    }

    fn put(
        &mut self,
        held: &Held,
        left: Option<Work>,
        add: impl FnOnce(&mut Plan, u64, Window, Work),
    ) {
        let Held { ref reservation, key, until, .. } = *held;
        let Reservation { ref by, hand, window, cost, .. } = *reservation;
        let Some(plan) = self.plan_mut(by, hand) else { return };
        match left {
            Some(left) => plan.add_begun(key, window, (cost, left)),
            None => add(plan, key, window, cost),
        }
        plan.set_held(key, until.is_some());
    }

    /// Removes a resource; returns its firm reservations, which end.
    pub fn lose(&mut self, id: &ResourceId) -> Vec<Reservation> {
        self.resources.remove(id);
        self.others.retain(|_, (by, ..)| by != id);
        let own = self.held.values().filter(|held| held.reservation.by == *id);
        let own: Vec<(TaskId, bool)> =
            own.map(|held| (held.reservation.task, held.until.is_none())).collect();
        let ended =
            own.into_iter().filter_map(|(task, is_firm)| self.end(task).filter(|_| is_firm));
        ended.collect()
    }

    pub fn has(&self, id: &ResourceId) -> bool {
        self.resources.contains_key(id)
    }

    pub fn resources(&self) -> impl Iterator<Item = &ResourceId> {
        self.resources.keys()
    }

    pub fn hands(&self, id: &ResourceId) -> usize {
        self.resources.get(id).map_or(0, Vec::len)
    }

    /// Whether nothing is reserved.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub fn reservation(&self, task: TaskId) -> Option<&Reservation> {
        self.held.get(&task).map(|held| &held.reservation)
    }

    /// All firm reservations.
    pub fn firm(&self) -> impl Iterator<Item = &Reservation> {
        self.held.values().filter(|held| held.until.is_none()).map(|held| &held.reservation)
    }

    /// Whether a reservation is firm, not only held.
    pub fn is_firm(&self, task: TaskId) -> bool {
        self.held.get(&task).is_some_and(|held| held.until.is_none())
    }

    /// The number of begun reservations of a resource.
    pub fn begun(&self, id: &ResourceId) -> usize {
        let is_begun = |held: &&Held| {
            let plan = self.plan(id, held.reservation.hand);
            plan.is_some_and(|plan| plan.is_begun(held.key))
        };
        self.held.values().filter(|held| held.reservation.by == *id).filter(is_begun).count()
    }

    /// Whether a resource has a reservation.
    pub fn has_reserved(&self, id: &ResourceId) -> bool {
        self.held.values().any(|held| held.reservation.by == *id)
    }

    /// Advances all plans to a moment. Held reservations that were not confirmed in time expire.
    pub fn pass(&mut self, now: Timestamp) {
        self.latest = self.latest.max(now);
        while let Some((_, task)) = self.remembered.pop_front_if(|(until, _)| *until <= now) {
            self.paused.remove(&task);
        }
        self.resources.values_mut().flatten().for_each(|plan| plan.pass(now));
        while let Some((_, task)) = self.expiry.first().filter(|(until, _)| *until <= now).copied()
        {
            self.end(task);
        }
    }

    /// When the next held reservation expires.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.expiry.first().map(|(until, _)| *until)
    }

    /// The earliest end of a task if it displaces all it may, and the load of its performer.
    pub fn probe(&self, task: &Task) -> Option<(Timestamp, Work)> {
        if matches!(task.how, How::Accepting | How::AcceptingAny | How::Keeping) {
            return Some((self.held.get(&self.offered(task)?)?.reservation.window.due, Work(0)));
        }
        self.fit(&Task { due: None, ..task.clone() }, None).map(|fit| (fit.end, fit.load))
    }

    /// Holds a reservation until a moment, an offer until its work would begin; an earlier reservation of the task
    /// is given up for it. Also returns the displaced tasks or, if it cannot be done in time, the earliest date.
    pub fn hold(
        &mut self,
        task: &Task,
        (asker, attempt): (ServerId, u64),
        until: Timestamp,
    ) -> Result<(Grant, Vec<Reservation>), Option<Timestamp>> {
        let until = task.idle_until.unwrap_or(until);
        match task.how {
            How::Accepting | How::AcceptingAny | How::Keeping => {
                return self.accept(task, (asker, attempt), until).ok_or(None);
            }
            How::Offering | How::Plain | How::Displacing => self.drop_offers(task),
        }
        self.vacate(task.id);
        let before = self.take_out(task.id);
        // The performer that has begun it needs only the rest.
        let paused = self.paused.get(&task.id).cloned();
        let begun = before.as_ref().and_then(|(held, left)| Some((&held.reservation.by, (*left)?)));
        let rest = begun.or(paused.as_ref().map(|(by, left)| (by, *left)));
        let fit = self.fit(task, rest).filter(|it| task.due.is_none_or(|due| it.end <= due));
        let Some(fit) = fit else {
            let earliest = self.probe(&Task { how: How::Plain, ..task.clone() });
            let earliest = earliest.map(|(end, _)| end);
            if let Some((held, left)) = before {
                self.put_in(held, left);
            }
            return Err(earliest);
        };
        let left = rest.filter(|(by, _)| **by == fit.by).map(|(_, left)| left);
        if before.is_some_and(|(held, _)| held.until.is_none()) {
            self.changes.push(Change::Ended(task.id));
        }
        self.paused.remove(&task.id);
        let displaced = fit.displaced.iter().filter_map(|task| self.end(*task)).collect();
        let Fit { by, hand, window, .. } = fit;
        let reservation = Reservation {
            task: task.id,
            step: task.step.clone(),
            by,
            hand,
            window,
            cost: task.cost,
            priority: task.priority,
            asker,
            attempt,
        };
        self.last_key += 1;
        let offer = task.offer.filter(|_| task.how == How::Offering);
        self.put_in(
            Held { reservation, key: self.last_key, until: Some(until), offer, offered: None },
            left,
        );
        if let Some(offer) = offer {
            let over = self.offers.add(offer, task.id);
            self.end_offers(over.as_slice());
        }
        self.grant(task.id).map(|grant| (grant, displaced)).ok_or(None)
    }

    /// The latest offer for this step to the same caller that is in time. Its performer may not be known yet.
    fn offered(&self, task: &Task) -> Option<TaskId> {
        let is_by = |by: &ResourceId| task.who.iter().any(|candidate| candidate.who == *by);
        let fits = |held: &&Held| {
            let own = &held.reservation;
            (task.how == How::AcceptingAny || held.offer == task.offer)
                && task.of.is_none_or(|of| own.task.instance == of.instance)
                && task.due.is_none_or(|due| own.window.due <= due)
                && (task.who.is_empty() || is_by(&own.by))
        };
        let offered = self.offers.of(task.offer?, task.id).filter_map(|own| self.held.get(&own));
        let in_time = offered.filter(fits).map(|held| &held.reservation);
        in_time.max_by_key(|own| (own.window.due, own.task)).map(|own| own.task)
    }

    /// Accepts an offer: its reservation is held for this task.
    fn accept(
        &mut self,
        task: &Task,
        (asker, attempt): (ServerId, u64),
        until: Timestamp,
    ) -> Option<(Grant, Vec<Reservation>)> {
        let offered = self.offered(task)?;
        // The task may still be held under an earlier attempt: its release was lost.
        if offered != task.id {
            self.end(task.id);
        }
        let mut held = self.held.remove(&offered)?;
        if let Some(until) = held.until {
            self.expiry.remove(&(until, offered));
        }
        if let Some(offer) = held.offer.take() {
            self.offers.remove(offer, offered);
        }
        held.offered = Some(offered);
        let reservation = &mut held.reservation;
        (reservation.task, reservation.priority) = (task.id, task.priority);
        (reservation.asker, reservation.attempt) = (asker, attempt);
        match task.offer.filter(|_| task.how == How::Keeping) {
            Some(offer) => {
                held.offer = Some(offer);
                // The number of offers does not grow: it was one of them.
                self.offers.add(offer, task.id);
            }
            None => held.until = Some(until),
        }
        self.expiry.extend(held.until.map(|until| (until, task.id)));
        self.tasks.insert(held.key, task.id);
        self.held.insert(task.id, held);
        Some((self.grant(task.id)?, Vec::new()))
    }

    /// Earlier offers for the same case end.
    fn drop_offers(&mut self, task: &Task) {
        if let Some(offer) = task.offer {
            let over = self.offers.same_case(offer, task.id.instance);
            self.end_offers(&over);
        }
    }

    fn end_offers(&mut self, over: &[InstanceId]) {
        for instance in over {
            let first = TaskId { instance: *instance, step: 0, round: 0 };
            let last = TaskId { instance: *instance, step: u32::MAX, round: u64::MAX };
            let own = self.held.range(first..=last).filter(|(_, held)| held.offer.is_some());
            for task in own.map(|(task, _)| *task).collect::<Vec<_>>() {
                self.end(task);
            }
        }
    }

    /// Takes a reservation out of its plan; also returns the remaining work of a begun one.
    fn take_out(&mut self, task: TaskId) -> Option<(Held, Option<Work>)> {
        let held = self.held.remove(&task)?;
        if let Some(until) = held.until {
            self.expiry.remove(&(until, task));
        }
        self.tasks.remove(&held.key);
        if let Some(offer) = held.offer {
            self.offers.remove(offer, task);
        }
        let Reservation { by, hand, cost, .. } = &held.reservation;
        let (by, hand, cost) = (by.clone(), *hand, *cost);
        let left = self.plan_mut(&by, hand).and_then(|plan| {
            let is_begun = plan.is_begun(held.key);
            plan.remove(held.key).filter(|_| is_begun)
        });
        // An overrun is expected to go on for a while.
        let left = left.map(|left| if left.0 > 0 { left } else { Work(cost.0 / OVERRUN_PART + 1) });
        Some((held, left))
    }

    fn put_in(&mut self, held: Held, left: Option<Work>) {
        let task = held.reservation.task;
        self.put(&held, left, Plan::add);
        self.expiry.extend(held.until.map(|until| (until, task)));
        self.tasks.insert(held.key, task);
        self.held.insert(task, held);
    }

    /// The grant of a task for an attempt of a server.
    pub fn grant_of(&self, task: TaskId, asker: ServerId, attempt: u64) -> Option<Grant> {
        let own = self.reservation(task)?;
        ((own.asker, own.attempt) == (asker, attempt)).then(|| self.grant(task)).flatten()
    }

    /// When a task is planned to begin.
    pub fn start_of(&self, task: TaskId) -> Option<Timestamp> {
        self.grant(task).map(|grant| grant.start)
    }

    fn grant(&self, task: TaskId) -> Option<Grant> {
        let Held { reservation, key, offered, .. } = self.held.get(&task)?;
        let Reservation { by, hand, window, .. } = reservation;
        let (start, end) = self.plan(by, *hand)?.times(*key)?;
        Some(Grant { task, by: by.clone(), window: *window, start, end, offered: *offered })
    }

    /// The case goes ahead: what it holds in this attempt becomes firm. False if it is no longer held.
    pub fn confirm(&mut self, task: TaskId, asker: ServerId, attempt: u64) -> bool {
        let own = self
            .held
            .get_mut(&task)
            .filter(|held| (held.reservation.asker, held.reservation.attempt) == (asker, attempt));
        let Some(held) = own else { return false };
        let Some(until) = held.until.take() else { return true };
        self.expiry.remove(&(until, task));
        // It can no longer be accepted.
        if let Some(offer) = held.offer.take() {
            self.offers.remove(offer, task);
        }
        let (by, hand, key) = (held.reservation.by.clone(), held.reservation.hand, held.key);
        self.changes.push(Change::Reserved(task));
        if let Some(plan) = self.plan_mut(&by, hand) {
            plan.set_held(key, false);
            if plan.is_begun(key) {
                self.changes.push(Change::Begun(task));
            }
        }
        true
    }

    /// Releases a task that is no longer wanted; a reservation of a later attempt stays.
    pub fn release(&mut self, task: TaskId, asker: ServerId, attempt: u64) {
        let is_it = |it: &Reservation| it.asker == asker && it.attempt <= attempt;
        if self.reservation(task).is_some_and(is_it) {
            let left = self.left(task);
            let released = self.end(task);
            if let Some((own, left)) = released.zip(left) {
                self.paused.insert(task, (own.by, left));
                self.remembered.push_back((self.latest + REMEMBERED, task));
            }
        }
    }

    /// Restores a firm reservation after a restart, with the interval in which its performer has worked on it.
    pub fn restore(&mut self, reservation: Reservation, worked: Option<(Timestamp, Timestamp)>) {
        let plan = self.plan(&reservation.by, reservation.hand);
        let left = worked.zip(plan).map(|((from, to), plan)| {
            Work((reservation.cost.0 - plan.work_between(from, to).0).max(0))
        });
        self.last_key += 1;
        let (key, task) = (self.last_key, reservation.task);
        let held = Held { reservation, key, until: None, offer: None, offered: None };
        self.put(&held, left, Plan::add_again);
        self.tasks.insert(key, task);
        self.held.insert(task, held);
    }

    /// The remaining work of a begun task.
    pub fn left(&self, task: TaskId) -> Option<Work> {
        let Held { reservation, key, .. } = self.held.get(&task)?;
        let plan = self.plan(&reservation.by, reservation.hand)?;
        plan.left(*key).filter(|_| plan.is_begun(*key))
    }

    /// Work on a task has begun, at a moment that may be past.
    pub fn begin(&mut self, task: TaskId, since: Timestamp) {
        self.change(task, Change::Begun(task), |plan, key| {
            let is_new = !plan.is_begun(key);
            if is_new {
                plan.begin(key, since);
            }
            is_new
        });
    }

    /// A task was given back and waits to be begun again.
    pub fn leave(&mut self, task: TaskId) {
        self.change(task, Change::Left(task), |plan, key| {
            let was_begun = plan.is_begun(key);
            if was_begun {
                plan.leave(key);
            }
            was_begun
        });
    }

    fn change(&mut self, task: TaskId, change: Change, act: impl FnOnce(&mut Plan, u64) -> bool) {
        let Some(held) = self.held.get(&task) else { return };
        let (key, is_firm) = (held.key, held.until.is_none());
        let Reservation { ref by, hand, .. } = held.reservation;
        let is_changed = self.plan_mut(&by.clone(), hand).is_some_and(|plan| act(plan, key));
        if is_changed && is_firm {
            self.changes.push(change);
        }
    }

    /// A task is done, or no longer wanted.
    pub fn end(&mut self, task: TaskId) -> Option<Reservation> {
        let (held, _) = self.take_out(task)?;
        if held.until.is_none() {
            self.changes.push(Change::Ended(task));
        }
        Some(held.reservation)
    }

    /// The firm reservations that the plans cannot do in time any more.
    pub fn late(&self) -> Vec<TaskId> {
        let plans = self.resources.values().flatten();
        let keys = plans.flat_map(|plan| plan.late(LEEWAY_PART, LEEWAY_MAX));
        let tasks = keys.filter_map(|key| self.tasks.get(&key)).copied();
        tasks.filter(|task| self.held.get(task).is_some_and(|it| it.until.is_none())).collect()
    }

    /// Sets the unpromised tasks that an executor works on, with their expected lengths.
    pub fn occupied(&mut self, by: &ResourceId, all: &[(TaskId, Work)]) {
        let own = self.others.iter().filter(|(_, (other, ..))| other == by);
        let own: Vec<TaskId> = own.map(|(task, _)| *task).collect();
        for task in own.into_iter().filter(|own| all.iter().all(|(task, _)| task != own)) {
            self.vacate(task);
        }
        for (task, cost) in all {
            let Some(hands) = self.resources.get_mut(by) else { return };
            if self.others.contains_key(task) {
                continue;
            }
            let free = hands.iter().position(|plan| plan.may_begin(None, *cost));
            let least = || (0..hands.len()).min_by_key(|hand| hands[*hand].load());
            let Some(hand) = free.or_else(least) else { return };
            self.last_key += 1;
            hands[hand].add_other(self.last_key, *cost);
            self.others.insert(*task, (by.clone(), hand, self.last_key));
        }
    }

    fn vacate(&mut self, task: TaskId) {
        if let Some((by, hand, key)) = self.others.remove(&task)
            && let Some(plan) = self.plan_mut(&by, hand)
        {
            plan.remove(key);
        }
    }

    /// Whether an executor may begin a reserved task, or other work of this length, now, without making a
    /// reservation late.
    pub fn may_begin(&self, task: Option<TaskId>, by: &ResourceId, cost: Work) -> bool {
        let own = task.and_then(|task| self.held.get(&task));
        match own.filter(|held| held.reservation.by == *by) {
            Some(held) => {
                let plan = self.plan(by, held.reservation.hand);
                plan.is_none_or(|it| it.is_begun(held.key) || it.may_begin(Some(held.key), cost))
            }
            None => {
                let hands = self.resources.get(by);
                hands.is_none_or(|hands| hands.iter().any(|plan| plan.may_begin(None, cost)))
            }
        }
    }

    /// The turns of one slot of a resource; `None` without such a slot.
    pub fn turns(&self, id: &ResourceId, hand: usize) -> Option<Vec<(Turn, Option<TaskId>)>> {
        let turns = self.resources.get(id)?.get(hand)?.turns().into_iter();
        Some(turns.map(|turn| (turn, self.tasks.get(&turn.key).copied())).collect())
    }

    /// The changes to store since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }
}
