//! The plans that one server keeps: of people, executors and workers, each with as many hands as work at a time.
//!
//! A reservation is held for a while first, in memory. It is firm when the case that wants it goes ahead; only then it is
//! told to the caller as a [`Change`], to be stored.
//!
//! Invariant: nothing that is held makes a firm reservation late, unless it displaces it, and then the caller is told.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;

use crate::plan::{Depth, Discipline, OVERRUN_PART, Plan, Turn, Window};
use crate::supply::{Supply, Work};
use crate::task::{Grant, How, Offer, ResourceId, Task, TaskId};

/// What becomes late by no more than this part of its length, and by no more than so long, is not given up: nobody begins in the
/// very moment in which they can.
const LEEWAY_PART: i64 = 16;
const LEEWAY_MAX: Work = Work(60_000);
/// So many offers one caller has at a time.
const OFFERS_MAX: usize = 10;

/// How a resource works.
#[derive(Clone, Debug)]
pub struct Setup {
    pub supply: Supply,
    pub discipline: Discipline,
    /// How many tasks it does at a time.
    pub hands: usize,
    /// What it does regularly: in which window, and how much it is.
    pub regular: Vec<(Window, Work)>,
    /// In per cent: what planning leaves free but after a fault.
    pub reserve: u8,
    /// By how much it can fall behind its plan although nothing takes longer than planned: an executor has regular work at
    /// times that nobody knows.
    pub lag: Work,
}

/// What has to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Reserved(TaskId),
    Begun(TaskId),
    /// Begun, and given back.
    Left(TaskId),
    Ended(TaskId),
}

/// A reservation as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub task: TaskId,
    pub step: Arc<str>,
    pub by: ResourceId,
    /// Which of its hands.
    pub hand: usize,
    pub window: Window,
    pub cost: Work,
    pub priority: u8,
    /// The server that started the case, and the number of its attempt to have it promised.
    pub asker: ServerId,
    pub attempt: u64,
}

#[derive(Clone, Debug)]
struct Held {
    reservation: Reservation,
    key: u64,
    /// Held until then; firm if there is no such moment.
    until: Option<Timestamp>,
}

#[derive(Clone, Debug, Default)]
pub struct Planner {
    resources: BTreeMap<ResourceId, Vec<Plan>>,
    held: BTreeMap<TaskId, Held>,
    /// What executors work on that nobody promised.
    others: BTreeMap<TaskId, (ResourceId, usize, u64)>,
    /// The tasks of entries in plans.
    tasks: BTreeMap<u64, TaskId>,
    last_key: u64,
    /// What is offered: by offer, step and round.
    offers: BTreeMap<(Offer, u32, u64), TaskId>,
    /// The offers of each caller, the oldest first.
    offered_to: BTreeMap<u64, VecDeque<InstanceId>>,
    changes: Vec<Change>,
}

/// Where a task fits best.
struct Fit {
    end: Timestamp,
    load: Work,
    by: ResourceId,
    hand: usize,
    window: Window,
    displaced: Vec<TaskId>,
}

impl Planner {
    /// A resource is planned here from now on, or works otherwise than before. Its reservations stay.
    pub fn set_up(&mut self, id: ResourceId, setup: &Setup, now: Timestamp) {
        let plan = Plan::new(setup.supply.clone(), setup.discipline, setup.reserve, now);
        let plan = plan.with_lag(setup.lag);
        let hands = vec![plan; setup.hands.max(1)];
        let before = self.resources.insert(id.clone(), hands).unwrap_or_default();
        for (window, cost) in &setup.regular {
            self.last_key += 1;
            let key = self.last_key;
            // Who does something regularly has one hand.
            if let Some(plan) = self.resources.get_mut(&id).and_then(|hands| hands.first_mut()) {
                plan.add_regular(key, *window, *cost);
            }
        }
        let left = |hand: usize, key: u64| before.get(hand).and_then(|plan| plan.left(key));
        let is_begun = |hand: usize, key: u64| before.get(hand).is_some_and(|it| it.is_begun(key));
        let mut own: Vec<_> = self.held.values().filter(|held| held.reservation.by == id).collect();
        own.sort_by_key(|held| (held.reservation.window.due, held.key));
        for held in own.into_iter().cloned().collect::<Vec<_>>() {
            let (key, hand) = (held.key, held.reservation.hand);
            let left = left(hand, key).filter(|_| is_begun(hand, key));
            self.put(&held, left);
        }
        let others = self.others.values().filter(|(by, ..)| *by == id);
        for (_, hand, key) in others.cloned().collect::<Vec<_>>() {
            if let Some((left, plan)) = left(hand, key).zip(self.plan_mut(&id, hand)) {
                plan.add_other(key, left);
            }
        }
    }

    /// A hand may be gone; then another one has what it had.
    fn plan_mut(&mut self, id: &ResourceId, hand: usize) -> Option<&mut Plan> {
        let hands = self.resources.get_mut(id)?;
        let last = hands.len().checked_sub(1)?;
        hands.get_mut(hand.min(last))
    }

    fn plan(&self, id: &ResourceId, hand: usize) -> Option<&Plan> {
        let hands = self.resources.get(id)?;
        hands.get(hand.min(hands.len().checked_sub(1)?))
    }

    fn put(&mut self, held: &Held, left: Option<Work>) {
        let Held { ref reservation, key, until } = *held;
        let Reservation { ref by, hand, window, cost, .. } = *reservation;
        let Some(plan) = self.plan_mut(by, hand) else { return };
        match left {
            Some(left) => plan.add_begun(key, window, (cost, left)),
            None => plan.add(key, window, cost),
        }
        plan.set_held(key, until.is_some());
    }

    /// A resource is not planned here any more: its firm reservations, which end.
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

    /// Whether anything is reserved.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub fn reservation(&self, task: TaskId) -> Option<&Reservation> {
        self.held.get(&task).map(|held| &held.reservation)
    }

    /// All that are firm.
    pub fn firm(&self) -> impl Iterator<Item = &Reservation> {
        self.held.values().filter(|held| held.until.is_none()).map(|held| &held.reservation)
    }

    /// Whether a reservation is firm, and not only held.
    pub fn is_firm(&self, task: TaskId) -> bool {
        self.held.get(&task).is_some_and(|held| held.until.is_none())
    }

    /// Whether a resource has anything reserved.
    pub fn has_reserved(&self, id: &ResourceId) -> bool {
        self.held.values().any(|held| held.reservation.by == *id)
    }

    /// Time has passed: people and executors have worked by their plans. What was held and not confirmed is dropped.
    pub fn pass(&mut self, now: Timestamp) {
        self.resources.values_mut().flatten().for_each(|plan| plan.pass(now));
        let over = self.held.iter().filter(|(_, held)| held.until.is_some_and(|it| it <= now));
        for task in over.map(|(task, _)| *task).collect::<Vec<_>>() {
            self.end(task);
        }
        if self.offers.is_empty() {
            self.offered_to.clear();
        }
    }

    /// When something is dropped that was not confirmed.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.held.values().filter_map(|held| held.until).min()
    }

    /// When a task could be done at the earliest, with all that it would displace, and how much its performer has to do.
    pub fn probe(&self, task: &Task) -> Option<(Timestamp, Work)> {
        if task.how == How::Accepting {
            return Some((self.held.get(&self.offered(task)?)?.reservation.window.due, Work(0)));
        }
        self.fit(&Task { due: None, ..task.clone() }).map(|fit| (fit.end, fit.load))
    }

    /// Holds a reservation until a moment, an offer until work on it would begin; one of before is given up for it. Answers also
    /// what is displaced, or, if it cannot be done in time, the earliest date.
    pub fn hold(
        &mut self,
        task: &Task,
        (asker, attempt): (ServerId, u64),
        until: Timestamp,
    ) -> Result<(Grant, Vec<Reservation>), Option<Timestamp>> {
        let until = task.idle_until.unwrap_or(until);
        match task.how {
            How::Accepting => return self.accept(task, (asker, attempt), until).ok_or(None),
            How::Offering => self.note_offer(task),
            How::Plain | How::Displacing => self.drop_offers(task),
        }
        self.vacate(task.id);
        let before = self.take_out(task.id);
        // Of what is begun only the rest is to be done.
        let left = before.as_ref().and_then(|(_, left)| *left);
        let rest = Task { cost: left.unwrap_or(task.cost), ..task.clone() };
        let fit = self.fit(&rest).filter(|it| task.due.is_none_or(|due| it.end <= due));
        let Some(fit) = fit else {
            let earliest = self.probe(&Task { how: How::Plain, ..task.clone() });
            let earliest = earliest.map(|(end, _)| end);
            if let Some((held, left)) = before {
                self.put_in(held, left);
            }
            return Err(earliest);
        };
        let left = before.and_then(|(held, left)| {
            if held.until.is_none() {
                self.changes.push(Change::Ended(task.id));
            }
            left.filter(|_| held.reservation.by == fit.by)
        });
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
        let held = Held { reservation, key: self.last_key, until: Some(until) };
        self.put_in(held, left);
        self.grant(task.id).map(|grant| (grant, displaced)).ok_or(None)
    }

    fn offered(&self, task: &Task) -> Option<TaskId> {
        self.offers.get(&(task.offer?, task.id.step, task.id.round)).copied()
    }

    /// An offer comes back: what was held for it is held for this task.
    fn accept(
        &mut self,
        task: &Task,
        (asker, attempt): (ServerId, u64),
        until: Timestamp,
    ) -> Option<(Grant, Vec<Reservation>)> {
        let mut held = self.held.remove(&self.offered(task)?)?;
        self.offers.remove(&(task.offer?, task.id.step, task.id.round));
        let reservation = &mut held.reservation;
        (reservation.task, reservation.priority) = (task.id, task.priority);
        (reservation.asker, reservation.attempt) = (asker, attempt);
        held.until = Some(until);
        self.tasks.insert(held.key, task.id);
        self.held.insert(task.id, held);
        Some((self.grant(task.id)?, Vec::new()))
    }

    /// Takes down what is offered; the oldest offer of its caller goes if there are too many.
    fn note_offer(&mut self, task: &Task) {
        let Some(offer) = task.offer else { return };
        let instances = self.offered_to.entry(offer.caller).or_default();
        if !instances.contains(&task.id.instance) {
            instances.push_back(task.id.instance);
        }
        let oldest = if instances.len() > OFFERS_MAX { instances.pop_front() } else { None };
        if let Some(oldest) = oldest {
            let own = self
                .held
                .iter()
                .filter(|(task, held)| task.instance == oldest && held.until.is_some());
            own.map(|(task, _)| *task).collect::<Vec<_>>().into_iter().for_each(|task| {
                self.end(task);
            });
        }
        self.offers.insert((offer, task.id.step, task.id.round), task.id);
    }

    /// Somebody wants otherwise what was offered to them.
    fn drop_offers(&mut self, task: &Task) {
        let Some(offer) = task.offer else { return };
        let first = (offer, 0, 0)..=(offer, u32::MAX, u64::MAX);
        let own: Vec<TaskId> = self.offers.range(first).map(|(_, task)| *task).collect();
        own.into_iter().filter(|own| own.instance != task.id.instance).for_each(|own| {
            self.end(own);
        });
    }

    /// Takes a reservation out of its plan; answers also how much of it is left if it is begun.
    fn take_out(&mut self, task: TaskId) -> Option<(Held, Option<Work>)> {
        let held = self.held.remove(&task)?;
        self.tasks.remove(&held.key);
        self.offers.retain(|_, offered| *offered != task);
        let Reservation { by, hand, cost, .. } = &held.reservation;
        let (by, hand, cost) = (by.clone(), *hand, *cost);
        let left = self.plan_mut(&by, hand).and_then(|plan| {
            let is_begun = plan.is_begun(held.key);
            plan.remove(held.key).filter(|_| is_begun)
        });
        // What takes longer than planned is expected to take some more.
        let left = left.map(|left| if left.0 > 0 { left } else { Work(cost.0 / OVERRUN_PART + 1) });
        Some((held, left))
    }

    fn put_in(&mut self, held: Held, left: Option<Work>) {
        let task = held.reservation.task;
        self.put(&held, left);
        self.tasks.insert(held.key, task);
        self.held.insert(task, held);
    }

    /// What is held for a server under this number.
    pub fn grant_of(&self, task: TaskId, asker: ServerId, attempt: u64) -> Option<Grant> {
        let own = self.reservation(task)?;
        ((own.asker, own.attempt) == (asker, attempt)).then(|| self.grant(task)).flatten()
    }

    /// When a task is planned to begin.
    pub fn start_of(&self, task: TaskId) -> Option<Timestamp> {
        self.grant(task).map(|grant| grant.start)
    }

    fn grant(&self, task: TaskId) -> Option<Grant> {
        let Held { reservation, key, .. } = self.held.get(&task)?;
        let Reservation { by, hand, window, .. } = reservation;
        let (start, end) = self.plan(by, *hand)?.times(*key)?;
        Some(Grant { task, by: by.clone(), window: *window, start, end })
    }

    /// The best place for a task: if it has a due date, with whom has the least to do, else where it is done first.
    fn fit(&self, task: &Task) -> Option<Fit> {
        let mut best: Option<Fit> = None;
        for candidate in &task.who {
            let hands = self.resources.get(&candidate.who).into_iter().flatten();
            for (hand, plan) in hands.enumerate() {
                let any = [Window { release: task.release, due: Timestamp(i64::MAX) }];
                let windows =
                    if candidate.within.is_empty() { &any[..] } else { &candidate.within };
                for within in windows {
                    let release = within.release.max(task.release);
                    let window = Window { release, due: within.due };
                    let Some(fit) = self.fit_in(task, &candidate.who, (hand, plan), window) else {
                        continue;
                    };
                    let rank = |fit: &Fit| match task.due {
                        Some(_) => (fit.displaced.len(), fit.load.0, fit.end.0),
                        None => (0, fit.end.0, fit.load.0),
                    };
                    if best.as_ref().is_none_or(|best| rank(&fit) < rank(best)) {
                        best = Some(fit);
                    }
                    break;
                }
            }
        }
        best
    }

    fn fit_in(
        &self,
        task: &Task,
        who: &ResourceId,
        (hand, plan): (usize, &Plan),
        window: Window,
    ) -> Option<Fit> {
        let idle = task.idle_until.map(|moment| plan.idle_until(moment));
        let plan = idle.as_ref().unwrap_or(plan);
        let depth = if task.after_fault { Depth::Reserve } else { Depth::Normal };
        let due = window.due.min(task.due.unwrap_or(Timestamp(i64::MAX)));
        let earliest = |plan: &Plan| plan.earliest(window.release, task.cost, depth);
        let end = earliest(plan);
        let mut displaced = Vec::new();
        let end = match end.filter(|end| *end <= due) {
            Some(end) if task.how != How::Displacing || task.due.is_some() => end,
            _ if task.how != How::Displacing => return None,
            _ => {
                let victims = self.victims(task, who, hand);
                let without = |count: usize| {
                    let mut plan = plan.clone();
                    victims[..count].iter().for_each(|(_, key)| {
                        plan.remove(*key);
                    });
                    earliest(&plan).filter(|end| *end <= due)
                };
                let end = without(victims.len())?;
                // As few as are needed.
                let (mut too_few, mut enough) = (0, victims.len());
                while task.due.is_some() && too_few + 1 < enough {
                    let middle = usize::midpoint(too_few, enough);
                    match without(middle) {
                        Some(_) => enough = middle,
                        None => too_few = middle,
                    }
                }
                displaced.extend(victims[..enough].iter().map(|(task, _)| *task));
                without(enough).unwrap_or(end)
            }
        };
        // As soon as possible: it is due when it can be done.
        let due = if task.due.is_some() { due } else { end };
        let window = Window { due, ..window };
        Some(Fit { end, load: plan.load(), by: who.clone(), hand, window, displaced })
    }

    /// What may be displaced by a task, what is least important and due last first.
    fn victims(&self, task: &Task, who: &ResourceId, hand: usize) -> Vec<(TaskId, u64)> {
        let mut victims: Vec<&Held> = self
            .held
            .values()
            .filter(|held| {
                let Reservation { by, hand: own, priority, .. } = &held.reservation;
                (by, *own) == (who, hand)
                    && held.until.is_none()
                    && *priority < task.priority
                    && !self.plan(by, hand).is_some_and(|plan| plan.is_begun(held.key))
            })
            .collect();
        victims.sort_by_key(|held| {
            let Reservation { priority, window, task, .. } = held.reservation;
            (priority, std::cmp::Reverse(window.due), task)
        });
        victims.into_iter().map(|held| (held.reservation.task, held.key)).collect()
    }

    /// The case goes ahead: what is held for it in this attempt is firm. False if it is not held any more.
    pub fn confirm(&mut self, task: TaskId, asker: ServerId, attempt: u64) -> bool {
        let own = self
            .held
            .get_mut(&task)
            .filter(|held| (held.reservation.asker, held.reservation.attempt) == (asker, attempt));
        let Some(held) = own else { return false };
        if held.until.take().is_none() {
            return true;
        }
        let (by, hand, key) = (held.reservation.by.clone(), held.reservation.hand, held.key);
        // It is nobody else's offer any more.
        self.offers.retain(|_, offered| *offered != task);
        self.changes.push(Change::Reserved(task));
        if let Some(plan) = self.plan_mut(&by, hand) {
            plan.set_held(key, false);
            if plan.is_begun(key) {
                self.changes.push(Change::Begun(task));
            }
        }
        true
    }

    /// What is held is held longer.
    pub fn extend(&mut self, task: TaskId, until: Timestamp) {
        if let Some(held) = self.held.get_mut(&task).filter(|held| held.until.is_some()) {
            held.until = Some(until);
        }
    }

    /// Nobody wants it any more; what was reserved in a later attempt stays.
    pub fn release(&mut self, task: TaskId, asker: ServerId, attempt: u64) {
        let is_it = |it: &Reservation| it.asker == asker && it.attempt <= attempt;
        if self.reservation(task).is_some_and(is_it) {
            self.end(task);
        }
    }

    /// Takes in what was firm before a restart, and how much of it is left if it was begun.
    pub fn restore(&mut self, reservation: Reservation, left: Option<Work>) {
        self.last_key += 1;
        self.put_in(Held { reservation, key: self.last_key, until: None }, left);
    }

    /// Somebody works on a task, since a moment that may be past.
    pub fn begin(&mut self, task: TaskId, since: Timestamp) {
        self.change(task, Change::Begun(task), |plan, key| {
            let is_new = !plan.is_begun(key);
            if is_new {
                plan.begin(key, since);
            }
            is_new
        });
    }

    /// It was given back, and waits to be begun anew.
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

    /// It is done, or not wanted any more.
    pub fn end(&mut self, task: TaskId) -> Option<Reservation> {
        let (held, _) = self.take_out(task)?;
        if held.until.is_none() {
            self.changes.push(Change::Ended(task));
        }
        Some(held.reservation)
    }

    /// What cannot be done in time any more by the plans, of what is firm.
    pub fn late(&self) -> Vec<TaskId> {
        let plans = self.resources.values().flatten();
        let keys = plans.flat_map(|plan| plan.late(LEEWAY_PART, LEEWAY_MAX));
        let tasks = keys.filter_map(|key| self.tasks.get(&key)).copied();
        tasks.filter(|task| self.held.get(task).is_some_and(|it| it.until.is_none())).collect()
    }

    /// All that an executor works on and nobody promised, and how long each is expected to take.
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

    /// Whether an executor may begin something now without making anything late that is reserved: a task that is, or another
    /// of this length.
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

    /// What one hand of a resource is to do; `None` if it has no such hand.
    pub fn turns(&self, id: &ResourceId, hand: usize) -> Option<Vec<(Turn, Option<TaskId>)>> {
        let turns = self.resources.get(id)?.get(hand)?.turns().into_iter();
        Some(turns.map(|turn| (turn, self.tasks.get(&turn.key).copied())).collect())
    }

    /// What has to be stored since this was asked last.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }
}
