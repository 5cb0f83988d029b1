//! A node of the paper: its preprocessor, and its messages to the others.
//!
//! A task is reserved at the requesting node if it has the time, else by displacing less important tasks, else at
//! another node, else in parts.
//!
//! Invariant: each attempt to have a task reserved has a number, and messages about an earlier one do not count.

use std::collections::BTreeMap;

use legwork_model::id::InstanceId;
use legwork_plan::{Reservation, TaskId};

use super::apart::Whole;
use super::ask::{Offer, Passing, Reported};
use super::drawn::{Arrival, NODES, UNIT};
use super::hand::{Asker, GUARANTEE, Hand, Job, REMOVAL};
use super::world::Setting;
use crate::division::Random;

/// The latency of a message.
pub(super) const DELAY: i64 = UNIT;
/// The time after which an unanswered attempt is given up.
pub(super) const ANSWERED_WITHIN: i64 = 12 * DELAY;

#[derive(Clone, Debug)]
pub(super) enum Message {
    Offer(Offer),
    /// A request for a bid, by this node, until then.
    Request(Job, usize, i64),
    /// How often a job would fit; 0 if only by displacing others.
    Bid(TaskId, Option<i64>),
    /// Whether jobs are reserved, in this attempt.
    Answer(Vec<TaskId>, u64, bool),
    Done(TaskId, u64),
    Cancel(TaskId, u64),
    Displaced(TaskId, u64),
    /// To the deputy: reserved, and no longer to be kept.
    Keep(TaskId),
    Forget(TaskId),
}

/// Why a node wakes up.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wake {
    /// The end of a wait for bids.
    Bids { id: TaskId, until: i64 },
    /// An answer is overdue.
    Silent { id: TaskId, attempt: u64 },
}

/// The outputs of a node.
#[derive(Clone, Debug)]
pub(super) enum Out {
    /// With the part of its time that it has left.
    Say {
        to: usize,
        surplus: i64,
        message: Message,
    },
    Wake {
        at: i64,
        wake: Wake,
    },
    Reserved(TaskId),
    /// It is not reserved, or not any more; the caller is told.
    Revoked(TaskId),
}

/// A task, or a part of one, that was requested here for other nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The node that has reserved it.
    pub(super) at: Option<usize>,
    pub(super) attempt: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Node<'a> {
    pub(super) me: usize,
    pub(super) setting: Setting,
    pub(super) arrivals: &'a [Arrival],
    pub(super) hand: Hand,
    pub(super) reported: [Option<Reported>; NODES],
    /// Nodes that are known to be lost.
    pub(super) lost: [bool; NODES],
    /// The deputy of this node.
    pub(super) deputy: Option<usize>,
    /// The reservations kept for the node whose deputy this one is.
    pub(super) kept: BTreeMap<TaskId, usize>,
    pub(super) stands_in: bool,
    pub(super) asked: BTreeMap<TaskId, Asked>,
    pub(super) passing: BTreeMap<TaskId, Passing>,
    /// Open bids: their cost, and until when they count.
    pub(super) bids_out: BTreeMap<TaskId, (i64, i64)>,
    pub(super) apart: BTreeMap<TaskId, Whole>,
    pub(super) random: Random,
    attempt: u64,
    out: Vec<Out>,
}

/// The number of the task.
pub(super) fn number(id: TaskId) -> usize {
    id.instance.0 as usize
}

/// The task, or a part of it; 0 is the whole.
pub(super) fn part(number: usize, part: u32) -> TaskId {
    TaskId { instance: InstanceId(number as u128), step: part, round: 0 }
}

impl<'a> Node<'a> {
    pub(super) fn new(me: usize, arrivals: &'a [Arrival], setting: Setting, seed: u64) -> Self {
        Self {
            me,
            setting,
            arrivals,
            hand: Hand::new(me),
            reported: [None; NODES],
            lost: [false; NODES],
            deputy: None,
            kept: BTreeMap::new(),
            stands_in: false,
            asked: BTreeMap::new(),
            passing: BTreeMap::new(),
            bids_out: BTreeMap::new(),
            apart: BTreeMap::new(),
            random: Random::new(seed * NODES as u64 + me as u64),
            attempt: 0,
            out: Vec::new(),
        }
    }

    pub(super) fn take_out(&mut self) -> Vec<Out> {
        std::mem::take(&mut self.out)
    }

    pub(super) fn tell(&mut self, out: Out) {
        self.out.push(out);
    }

    pub(super) fn say(&mut self, to: usize, message: Message, now: i64) {
        let surplus = self.hand.factor(now);
        self.out.push(Out::Say { to, surplus, message });
    }

    pub(super) fn next_attempt(&mut self) -> u64 {
        self.attempt += 1;
        self.attempt
    }

    /// The whole task. The deputy can do tasks of a lost node.
    pub(super) fn job(&self, id: TaskId, displaces: bool) -> Job {
        let arrival = &self.arrivals[number(id)];
        let own = if self.stands_in && self.lost[arrival.node] { self.me } else { arrival.node };
        Job {
            id: TaskId { step: 0, ..id },
            priority: arrival.priority,
            release: arrival.at,
            due: arrival.deadline,
            cost: arrival.service,
            only: (!arrival.is_global).then_some(own),
            displaces,
        }
    }

    /// A task arrives.
    pub(super) fn submit(&mut self, id: TaskId, now: i64) {
        self.admit(self.job(id, true), now);
    }

    /// Here if possible, else at another node.
    pub(super) fn admit(&mut self, job: Job, now: i64) {
        match self.reserve_here(&[job], (self.me, 0), now) {
            true => self.settle(job.id, self.me, now),
            false => self.pass_on(job, now),
        }
    }

    /// Reserves time here, all or none; a single job may displace less important ones.
    pub(super) fn reserve_here(&mut self, jobs: &[Job], asker: Asker, now: i64) -> bool {
        let could = |job: &Job| job.only.is_none_or(|at| at == self.me) && job.slack(now) >= 0;
        if !jobs.iter().all(could) || !self.hand.spend(GUARANTEE, now) {
            return false;
        }
        if self.hand.reserve(jobs, asker) {
            return true;
        }
        let [only] = jobs else { return false };
        if !self.may_displace(only) || !self.hand.spend(REMOVAL, now) {
            return false;
        }
        let Some(displaced) = self.hand.displace(only, asker) else { return false };
        for reservation in displaced {
            self.displaced_here(&reservation, now);
        }
        true
    }

    /// Nothing is less important than the lowest priority.
    pub(super) fn may_displace(&self, job: &Job) -> bool {
        self.setting.removes && job.displaces && job.priority > 1
    }

    /// A job that was requested here is reserved.
    pub(super) fn settle(&mut self, id: TaskId, at: usize, now: i64) {
        if let Some(asked) = self.asked.get_mut(&id) {
            asked.at = Some(at);
        }
        if id.step > 0 {
            return self.part_reserved(id, now);
        }
        if at == self.me {
            self.tell_deputy(Message::Keep(id), now);
        }
        self.tell(Out::Reserved(id));
    }

    /// Handles a message of another node.
    pub(super) fn on_message(&mut self, from: usize, surplus: i64, message: Message, now: i64) {
        self.reported[from] = Some(Reported { surplus, at: now });
        match message {
            Message::Offer(offer) => self.on_offer(offer, now),
            Message::Request(job, reply_to, until) => {
                self.on_request(&job, reply_to, until, now);
            }
            Message::Bid(id, bid) => self.on_bid(id, from, bid, now),
            Message::Answer(ids, attempt, is_reserved) => {
                for id in ids {
                    match (self.is_open(id, attempt), is_reserved) {
                        (true, true) => self.settle(id, from, now),
                        (true, false) => self.give_up(id, now),
                        // It was given up meanwhile, or is reserved at another node.
                        (false, true) => self.say(from, Message::Cancel(id, attempt), now),
                        (false, false) => {}
                    }
                }
            }
            Message::Done(id, attempt) => {
                if self.asked.get(&id).is_some_and(|asked| asked.attempt == attempt) {
                    self.finish(id, now);
                }
            }
            Message::Cancel(id, attempt) => self.hand.release(id, (from, attempt)),
            Message::Displaced(id, attempt) => {
                let asked = self.asked.get(&id).filter(|asked| asked.attempt == attempt);
                if asked.is_some() {
                    self.try_again(id, true, false, now);
                }
            }
            Message::Keep(id) => drop(self.kept.insert(id, from)),
            Message::Forget(id) => drop(self.kept.remove(&id)),
        }
    }

    /// Whether the answers to an attempt still count.
    pub(super) fn is_open(&self, id: TaskId, attempt: u64) -> bool {
        self.asked.get(&id).is_some_and(|it| it.attempt == attempt && it.at.is_none())
    }

    pub(super) fn wake(&mut self, wake: Wake, now: i64) {
        match wake {
            Wake::Bids { id, until } => {
                if self.passing.get(&id).is_some_and(|passing| passing.until == until) {
                    self.choose_bidder(id, now);
                }
            }
            Wake::Silent { id, attempt } if self.is_open(id, attempt) => self.give_up(id, now),
            Wake::Silent { .. } => {}
        }
    }

    /// No node has the time for a job that was requested here: a separable task is tried in parts.
    pub(super) fn give_up(&mut self, id: TaskId, now: i64) {
        self.asked.remove(&id);
        if id.step > 0 {
            return self.part_refused(id, now);
        }
        if !self.take_apart(id, now) {
            self.tell(Out::Revoked(id));
        }
    }

    /// A job that was reserved here is done.
    pub(super) fn did(&mut self, reservation: &Reservation, now: i64) {
        let (id, attempt) = (reservation.task, reservation.attempt);
        let asker = usize::from(reservation.asker.0);
        if asker == self.me {
            self.finish(id, now);
        } else {
            self.say(asker, Message::Done(id, attempt), now);
        }
    }

    /// A job that was requested here is done.
    fn finish(&mut self, id: TaskId, now: i64) {
        self.asked.remove(&id);
        if id.step == 0 || self.part_done(id) {
            self.tell_deputy(Message::Forget(TaskId { step: 0, ..id }), now);
        }
    }
}
