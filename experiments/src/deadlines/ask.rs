//! The global scheduler: which other node is asked when a node has no time for a task.

use legwork_plan::TaskId;

use super::hand::{Asker, GUARANTEE, Job, REMOVAL};
use super::node::{ANSWERED_WITHIN, Asked, DELAY, Message, Node, Out, Wake};

/// Which other nodes are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    Local,
    Random,
    /// The one that seems to have the most time left.
    Focused,
    /// All, and then the one with the best bid.
    Bidding,
    /// The focused one, and all others for bids meanwhile.
    Flexible,
}

/// A node is asked first if it seems to have so many thousandths of the needed time.
const FOCUS: i64 = 1_200;
/// How long the reported surplus of a node is valid.
const KNOWN: i64 = 16 * DELAY;
/// The assumed surplus of a node without a recent report: all its time, so that it is asked again.
const UNKNOWN: i64 = 1_000;
/// How long to wait for bids: a request and a reply.
const BIDS: i64 = 2 * DELAY + DELAY / 4;
/// How much longer a bid counts against other bids.
const BID_COUNTS: i64 = 2 * DELAY;

/// The reported surplus of a node, in thousandths, and the time of the report.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported {
    pub(super) surplus: i64,
    pub(super) at: i64,
}

/// Jobs that are to be reserved, all or none.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) jobs: Vec<Job>,
    pub(super) asker: Asker,
    /// The next nodes if this one has no time.
    pub(super) next: Vec<usize>,
    /// Until when bids are collected for it.
    pub(super) bids_until: Option<i64>,
}

/// A job that waits for bids here.
#[derive(Clone, Debug)]
pub(super) struct Passing {
    job: Job,
    asker: Asker,
    bids: Vec<(i64, usize)>,
    /// The number of asked nodes; unknown if another node asked.
    expected: usize,
    pub(super) until: i64,
}

impl Node<'_> {
    pub(super) fn pass_on(&mut self, job: Job, now: i64) {
        let attempt = self.expect(job.id, now);
        let others = self.others(&job, now);
        let focused = others.first().copied().filter(|at| self.is_promising(*at, &job, now));
        let until = now + BIDS;
        let (chosen, bids_until) = match (self.setting.strategy, focused) {
            (Strategy::Local, _) => (None, None),
            (Strategy::Random, _) => {
                let at = self.random.below(others.len());
                (others.get(at).copied(), None)
            }
            (Strategy::Focused, focused) => (focused, None),
            (Strategy::Flexible, Some(at)) => {
                let rest: Vec<usize> = others.into_iter().filter(|other| *other != at).collect();
                self.request(&job, at, until, &rest, now);
                (Some(at), (!rest.is_empty()).then_some(until))
            }
            (Strategy::Flexible, None) | (Strategy::Bidding, _) => {
                if others.is_empty() {
                    return self.give_up(job.id, now);
                }
                self.request(&job, self.me, until, &others, now);
                return self.wait_for_bids(job, (self.me, attempt), others.len(), until);
            }
        };
        match chosen {
            Some(to) => {
                let asker = (self.me, attempt);
                let offer = Offer { jobs: vec![job], asker, next: Vec::new(), bids_until };
                self.say(to, Message::Offer(offer), now);
            }
            None => self.give_up(job.id, now),
        }
    }

    /// Waits for other nodes about a job; returns the number of the attempt.
    fn expect(&mut self, id: TaskId, now: i64) -> u64 {
        let attempt = self.next_attempt();
        self.expect_in(attempt, id, now);
        attempt
    }

    pub(super) fn expect_in(&mut self, attempt: u64, id: TaskId, now: i64) {
        self.asked.insert(id, Asked { at: None, attempt });
        self.tell(Out::Wake { at: now + ANSWERED_WITHIN, wake: Wake::Silent { id, attempt } });
    }

    fn wait_for_bids(&mut self, job: Job, asker: Asker, expected: usize, until: i64) {
        let id = job.id;
        self.passing.insert(id, Passing { job, asker, bids: Vec::new(), expected, until });
        self.tell(Out::Wake { at: until, wake: Wake::Bids { id, until } });
    }

    /// The other nodes that can do a job and can still be asked, most time left first.
    fn others(&self, job: &Job, now: i64) -> Vec<usize> {
        if job.slack(now) < DELAY {
            return Vec::new();
        }
        let could = |at: &usize| *at != self.me && job.only.is_none_or(|only| only == *at);
        let mut others: Vec<usize> =
            (0..self.lost.len()).filter(|at| could(at) && !self.lost[*at]).collect();
        // Among equals the one with the oldest report first.
        let reported_at = |at: usize| self.reported[at].map(|reported| reported.at);
        others.sort_by_key(|at| (-self.reported_surplus(*at, now), reported_at(*at)));
        others
    }

    pub(super) fn reported_surplus(&self, at: usize, now: i64) -> i64 {
        let known = self.reported[at].filter(|reported| now - reported.at <= KNOWN);
        known.map_or(UNKNOWN, |reported| reported.surplus)
    }

    fn is_promising(&self, at: usize, job: &Job, now: i64) -> bool {
        self.reported_surplus(at, now) * (job.due - now - DELAY) >= job.cost * FOCUS
    }

    fn request(&mut self, job: &Job, reply_to: usize, until: i64, others: &[usize], now: i64) {
        for to in others {
            self.say(*to, Message::Request(*job, reply_to, until), now);
        }
    }

    pub(super) fn on_request(&mut self, job: &Job, reply_to: usize, until: i64, now: i64) {
        self.bids_out.retain(|_, (_, until)| *until > now);
        let is_tested = self.hand.accepts(job, now) && self.hand.spend(GUARANTEE, now);
        let fits = is_tested && self.hand.clone().hold(job, (0, 0));
        if is_tested {
            self.hand.learn(fits);
        }
        let displaces = !fits
            && self.may_displace(job)
            && self.hand.spend(REMOVAL, now)
            && self.hand.clone().displace(job, (0, 0)).is_some();
        let bid_for: i64 = self.bids_out.values().map(|(cost, _)| cost).sum();
        let bid = match (fits, displaces) {
            // A node with many open bids bids little here, but something: the others may not take it.
            (true, _) => Some(((self.hand.surplus(job.due, now) - bid_for) / job.cost).max(1)),
            (false, true) => Some(0),
            (false, false) => None,
        };
        if fits {
            self.bids_out.insert(job.id, (job.cost, until + BID_COUNTS));
        }
        self.say(reply_to, Message::Bid(job.id, bid), now);
    }

    pub(super) fn on_bid(&mut self, id: TaskId, from: usize, bid: Option<i64>, now: i64) {
        let Some(passing) = self.passing.get_mut(&id) else { return };
        passing.bids.extend(bid.map(|bid| (bid, from)));
        passing.expected = passing.expected.saturating_sub(1);
        if passing.expected == 0 {
            self.choose_bidder(id, now);
        }
    }

    /// The best bidder gets the job, then the others.
    pub(super) fn choose_bidder(&mut self, id: TaskId, now: i64) {
        let Some(Passing { job, asker, mut bids, .. }) = self.passing.remove(&id) else { return };
        bids.sort_by_key(|(bid, from)| (-bid, *from));
        let next = bids.into_iter().map(|(_, from)| from).collect();
        self.hand_on(Offer { jobs: vec![job], asker, next, bids_until: None }, now);
    }

    /// To the next node, if there is one.
    fn hand_on(&mut self, mut offer: Offer, now: i64) {
        let (asker, attempt) = offer.asker;
        let ids: Vec<TaskId> = offer.jobs.iter().map(|job| job.id).collect();
        if !offer.next.is_empty() {
            let to = offer.next.remove(0);
            self.say(to, Message::Offer(offer), now);
        } else if asker == self.me {
            for id in ids {
                if self.is_open(id, attempt) {
                    self.give_up(id, now);
                }
            }
        } else {
            self.say(asker, Message::Answer(ids, attempt, false), now);
        }
    }

    pub(super) fn on_offer(&mut self, offer: Offer, now: i64) {
        let Offer { jobs, asker, bids_until, .. } = &offer;
        self.bids_out.retain(|id, _| jobs.iter().all(|job| job.id != *id));
        if jobs.iter().all(|job| self.hand.accepts(job, now)) {
            let is_reserved = self.reserve_here(jobs, *asker, now);
            jobs.iter().for_each(|_| self.hand.learn(is_reserved));
            if is_reserved {
                let (ids, attempt) = (jobs.iter().map(|job| job.id).collect(), asker.1);
                return self.say(asker.0, Message::Answer(ids, attempt, is_reserved), now);
            }
        }
        match (bids_until, jobs.as_slice()) {
            (Some(until), [only]) if *until >= now => {
                self.wait_for_bids(*only, *asker, usize::MAX, *until);
            }
            (_, _) => self.hand_on(offer, now),
        }
    }
}
