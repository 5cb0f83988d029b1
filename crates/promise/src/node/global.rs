//! The global scheduler: whom to ask when nobody here has the time.

use legwork_model::id::ServerId;
use legwork_model::time::Timestamp;

use super::message::{Message, Offer};
use super::{Asked, Effect, Node, Strategy};
use crate::supply::Work;
use crate::task::{Promise, ResourceId, Task, TaskId};

/// A planner that had nobody with enough time left is not the first choice: it should have this many times
/// what is needed, in thousandths.
const FOCUS: i64 = 1_200;
/// What was heard of others counts for as long as so many messages take.
const KNOWN: i64 = 16;
/// Of whom nothing was heard since is taken to have all their time. So they are asked again, and then it is known: who
/// was once heard to have no time would never be asked else.
const UNKNOWN: i64 = 1_000;

/// A task that waits for bids here.
#[derive(Clone, Debug)]
pub(super) struct Passing {
    task: Task,
    asker: ServerId,
    attempt: u64,
    bids: Vec<Bid>,
    expected: usize,
    pub(super) until: Timestamp,
    earliest: Option<Timestamp>,
}

impl Passing {
    pub(super) fn is_of(&self, asker: ServerId, attempt: u64) -> bool {
        (self.asker, self.attempt) == (asker, attempt)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bid {
    pub(super) from: ServerId,
    pub(super) bid: i64,
    pub(super) makes_room: bool,
    pub(super) earliest: Option<Timestamp>,
}

/// The part of its time that another planner has left, in thousandths, and when that was heard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) surplus: i64,
    pub(super) at: Timestamp,
}

#[derive(Clone, Debug)]
pub(super) struct Bids {
    all: Vec<Bid>,
    pub(super) until: Timestamp,
}

impl Node {
    /// Asks others.
    pub(super) fn pass_on(&mut self, task: Task, now: Timestamp, effects: &mut Vec<Effect>) {
        let earliest = self.desk.earliest(&task);
        let (asker, attempt) = (self.me, self.next_attempt(now));
        let until = self.answer_due(now);
        self.asked.insert(task.id, Asked::new(task.clone(), until, attempt));
        let others = self.others(&task, now);
        let focused = others.first().copied().filter(|at| self.is_promising(*at, &task, now));
        let offer = |next, bids_until| Offer {
            tasks: vec![task.clone()],
            asker,
            attempt,
            next,
            bids_until,
            earliest,
        };
        let chosen = match self.policy.strategy {
            Strategy::Local => None,
            Strategy::Random => {
                let at = self.dice.below(others.len());
                others.get(at).map(|to| (*to, offer(Vec::new(), None)))
            }
            Strategy::Focused => focused.map(|to| (to, offer(Vec::new(), None))),
            Strategy::Flexible if focused.is_some() && others.len() == 1 => {
                focused.map(|to| (to, offer(Vec::new(), None)))
            }
            Strategy::Flexible if focused.is_some() => focused.map(|to| {
                let until = self.bids_end(now);
                self.request(&task, to, until, others.iter().filter(|at| **at != to), effects);
                (to, offer(Vec::new(), Some(until)))
            }),
            Strategy::Bidding | Strategy::Flexible => {
                let until = self.bids_end(now);
                let count = self.request(&task, self.me, until, others.iter(), effects);
                if count > 0 {
                    let (bids, expected) = (Vec::new(), count);
                    let task = task.clone();
                    let passing = Passing { task, asker, attempt, bids, expected, until, earliest };
                    self.passing.insert(passing.task.id, passing);
                    return;
                }
                None
            }
        };
        match chosen {
            Some((to, offer)) => effects.push(self.say(to, Message::Offer(offer))),
            None => self.give_up(&[task.id], earliest, now, effects),
        }
    }

    /// Until when bids are waited for: a request goes there and a bid comes back.
    fn bids_end(&self, now: Timestamp) -> Timestamp {
        Timestamp(now.0 + 2 * self.policy.delay_ms + self.policy.delay_ms / 4 + 1)
    }

    /// Other planners with somebody who can do it, those with the most time left first, who can still be
    /// asked in time.
    fn others(&self, task: &Task, now: Timestamp) -> Vec<ServerId> {
        let in_time = self.policy.asks_late || task.slack(now) >= self.policy.delay_ms;
        let homes = task.who.iter().filter_map(|id| self.homes.get(id)).copied();
        let mut others: Vec<ServerId> =
            homes.filter(|at| in_time && *at != self.me && !self.lost.contains(at)).collect();
        others.sort_unstable();
        others.dedup();
        // Of the same the one first of whom was heard the longest ago: not all are asked where there are many.
        let heard_at = |at: &ServerId| self.surplus.get(at).map(|heard| heard.at);
        others.sort_by_key(|at| (std::cmp::Reverse(self.heard_surplus(*at, now)), heard_at(at)));
        others
    }

    pub(super) fn heard_surplus(&self, at: ServerId, now: Timestamp) -> i64 {
        let heard = self.surplus.get(&at);
        let known = heard.filter(|heard| now.0 - heard.at.0 <= KNOWN * self.policy.delay_ms);
        known.map_or(UNKNOWN, |heard| heard.surplus)
    }

    fn is_promising(&self, at: ServerId, task: &Task, now: Timestamp) -> bool {
        let time =
            task.window.deadline.0.saturating_sub(now.0).saturating_sub(self.policy.delay_ms);
        let surplus = i128::from(self.heard_surplus(at, now));
        surplus * i128::from(time) >= i128::from(task.service.0) * i128::from(FOCUS)
    }

    /// Asks for bids; answers how many were asked.
    fn request<'a>(
        &self,
        task: &Task,
        reply_to: ServerId,
        until: Timestamp,
        others: impl Iterator<Item = &'a ServerId>,
        effects: &mut Vec<Effect>,
    ) -> usize {
        let before = effects.len();
        effects.extend(others.take(self.policy.bidders_max).map(|to| {
            let task = Box::new(task.clone());
            self.say(*to, Message::Request { task, reply_to, until })
        }));
        effects.len() - before
    }

    /// Another planner wants to know whether somebody here has the time. What was bid for already is
    /// taken to be gone.
    pub(super) fn requested(
        &mut self,
        task: &Task,
        reply_to: ServerId,
        until: Timestamp,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        self.bids_out.retain(|_, (_, until)| *until > now);
        let worth_it = self.seems_to_fit(task) && self.spend(now, |overheads| overheads.guarantee);
        let fits = worth_it && self.desk.could(task);
        if worth_it {
            self.desk.learn(task, fits);
        }
        let bid_for = self.bids_out.values().fold(Work(0), |all, (service, _)| all.plus(*service));
        let surplus = self.desk.surplus(&task.who, task.window.deadline);
        let bid = surplus.0.saturating_sub(bid_for.0) / task.service.0.max(1);
        // Whoever bids much elsewhere bids little here, but not nothing: the others may not take it.
        let bid = if fits { bid.max(1) } else { 0 };
        let makes_room = !fits && self.could_make_room(task, now);
        let earliest = if bid > 0 { None } else { self.desk.earliest(task) };
        if bid > 0 {
            let out = Timestamp(until.0.saturating_add(2 * self.policy.delay_ms));
            self.bids_out.insert(task.id, (task.service, out));
        }
        let task = task.id;
        let bid = Message::Bid { task, bid, until, earliest, makes_room };
        effects.push(self.say(reply_to, bid));
    }

    /// The quick answer. Where the test costs nothing, everything is worth it.
    fn seems_to_fit(&mut self, task: &Task) -> bool {
        self.policy.overheads.is_none() || self.desk.seems_to_fit(task)
    }

    pub(super) fn heard_bid(
        &mut self,
        id: TaskId,
        bid: Bid,
        until: Timestamp,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        let Some(passing) = self.passing.get_mut(&id) else {
            if until >= now {
                let early = self.early.entry(id).or_insert(Bids { all: Vec::new(), until });
                early.all.retain(|other| other.from != bid.from);
                early.all.push(bid);
            }
            return;
        };
        // One that comes twice counts once.
        passing.bids.retain(|other| other.from != bid.from);
        passing.bids.push(bid);
        if passing.bids.len() >= passing.expected {
            self.choose_bidder(id, now, effects);
        }
    }

    /// All bids have come, or it is too late for more: the best gets the task, the others after it.
    pub(super) fn choose_bidder(&mut self, id: TaskId, now: Timestamp, effects: &mut Vec<Effect>) {
        let Some(mut passing) = self.passing.remove(&id) else { return };
        passing.bids.sort_by_key(|bid| (std::cmp::Reverse(bid.bid), bid.from));
        let heard = passing.bids.iter().filter_map(|bid| bid.earliest);
        let earliest = heard.chain(passing.earliest).min();
        let bidders = passing.bids.iter().filter(|bid| bid.bid > 0 || bid.makes_room);
        let mut bidders = bidders.map(|bid| bid.from);
        let Passing { task, asker, attempt, .. } = passing;
        match bidders.next() {
            Some(best) => {
                let (tasks, next) = (vec![task], bidders.collect());
                let offer = Offer { tasks, asker, attempt, next, bids_until: None, earliest };
                effects.push(self.say(best, Message::Offer(offer)));
            }
            None => self.refuse(vec![id], (asker, attempt), earliest, now, effects),
        }
    }

    /// Another planner wants tasks promised. The quick answer comes first.
    pub(super) fn offered(&mut self, offer: Offer, now: Timestamp, effects: &mut Vec<Effect>) {
        if self.is_known(&offer, now, effects) {
            return;
        }
        let Offer { tasks, asker, attempt, mut next, bids_until, earliest } = offer;
        for task in &tasks {
            self.bids_out.remove(&task.id);
        }
        let seems_to_fit = tasks.iter().all(|task| self.seems_to_fit(task));
        let promises = if seems_to_fit {
            self.promise_here(&tasks, (asker, attempt), now, effects)
        } else {
            None
        };
        if seems_to_fit {
            tasks.iter().for_each(|task| self.desk.learn(task, promises.is_some()));
        }
        if let Some(promises) = promises {
            return self.tell_promised((asker, attempt), promises, effects);
        }
        let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
        let own = match tasks.as_slice() {
            [only] => self.desk.earliest(only),
            _ => None,
        };
        let earliest = [earliest, own].into_iter().flatten().min();
        match (bids_until, tasks.as_slice()) {
            (Some(until), [only]) if until >= now => {
                let early = self.early.remove(&only.id).map_or(Vec::new(), |bids| bids.all);
                let expected = usize::MAX;
                let (task, bids) = (only.clone(), early);
                let passing = Passing { task, asker, attempt, bids, expected, until, earliest };
                self.passing.insert(only.id, passing);
            }
            _ if next.is_empty() => self.refuse(ids, (asker, attempt), earliest, now, effects),
            _ => {
                let to = next.remove(0);
                let offer = Offer { tasks, asker, attempt, next, bids_until: None, earliest };
                effects.push(self.say(to, Message::Offer(offer)));
            }
        }
    }

    /// Nobody can promise it.
    fn refuse(
        &mut self,
        tasks: Vec<TaskId>,
        (asker, attempt): (ServerId, u64),
        earliest: Option<Timestamp>,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        if asker == self.me {
            self.refused_by_all(&tasks, attempt, earliest, now, effects);
        } else {
            let answer = Message::Answer { tasks, attempt, promises: None, earliest };
            effects.push(self.say(asker, answer));
        }
    }

    /// Nobody can promise tasks, or nobody can in an attempt that does not count any more.
    pub(super) fn refused_by_all(
        &mut self,
        tasks: &[TaskId],
        attempt: u64,
        earliest: Option<Timestamp>,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        let is_open = |id: &&TaskId| {
            self.asked.get(*id).is_some_and(|asked| asked.attempt == attempt && asked.at.is_none())
        };
        let open: Vec<TaskId> = tasks.iter().filter(is_open).copied().collect();
        self.give_up(&open, earliest, now, effects);
    }

    /// Tasks asked for here are promised.
    pub(super) fn settle(
        &mut self,
        at: ServerId,
        promises: Vec<Promise>,
        effects: &mut Vec<Effect>,
    ) {
        for promise in promises {
            if let Some(asked) = self.asked.get_mut(&promise.task) {
                (asked.at, asked.start) = (Some(at), Some(promise.times.start));
            }
            if promise.task.part > 0 {
                self.part_settled(promise, at, effects);
            } else {
                effects.push(Effect::Promised { at, promise });
            }
        }
    }

    /// Nobody can promise tasks that were asked for here: what can be taken apart is tried in parts.
    pub(super) fn give_up(
        &mut self,
        tasks: &[TaskId],
        earliest: Option<Timestamp>,
        now: Timestamp,
        effects: &mut Vec<Effect>,
    ) {
        for id in tasks {
            let asked = self.asked.remove(id);
            asked.iter().for_each(|asked| self.not_taken(asked, effects));
            let task = asked.map(|asked| asked.task);
            if id.part > 0 {
                self.part_refused(*id, effects);
                continue;
            }
            let whole = task.filter(|task| !task.parts.is_empty());
            if !whole.is_some_and(|task| self.take_apart(&task, now, effects)) {
                effects.push(Effect::Refused { task: *id, earliest });
            }
        }
    }

    /// Where those are at home who can do something.
    pub(super) fn homes_of<'a>(
        &'a self,
        who: &'a [ResourceId],
    ) -> impl Iterator<Item = ServerId> + 'a {
        who.iter().filter_map(|id| self.homes.get(id)).copied()
    }
}
