//! Separable tasks that no node can do as a whole: their parts are reserved at several nodes, all or none.

use legwork_plan::TaskId;

use super::apart::{Whole, parts, paths, windows};
use super::ask::{Offer, Strategy};
use super::drawn::NODES;
use super::hand::{CLUSTERING, Job};
use super::node::{DELAY, Message, Node, Out, number, part};

impl Node<'_> {
    /// Has the parts of a task reserved; false if that is impossible.
    pub(super) fn take_apart(&mut self, id: TaskId, now: i64) -> bool {
        let (whole, parts) = (self.job(id, false), parts(&self.arrivals[number(id)]));
        let nodes = self.places(now);
        if parts.is_empty() || nodes.len() < 2 || !self.hand.spend(CLUSTERING, now) {
            return false;
        }
        let places = paths(&parts, nodes.len());
        let release = whole.release.max(now) + 2 * DELAY;
        let Some(windows) = windows(&parts, &places, DELAY, (release, whole.due)) else {
            return false;
        };
        let count = parts.len();
        self.apart.insert(id, Whole { count, open: count, left: count });
        let attempt = self.next_attempt();
        for (place, at) in nodes.into_iter().enumerate() {
            let own = (0..count).filter(|part| places[*part] == place);
            let jobs: Vec<Job> = own
                .map(|own| {
                    let ((release, due), cost) = (windows[own], parts[own].cost);
                    Job { id: part(number(id), own as u32 + 1), release, due, cost, ..whole }
                })
                .collect();
            // A part was refused here: no other node need be asked.
            if !self.apart.contains_key(&id) {
                break;
            }
            if !jobs.is_empty() {
                self.offer_parts(jobs, at, attempt, now);
            }
        }
        true
    }

    fn offer_parts(&mut self, jobs: Vec<Job>, at: usize, attempt: u64, now: i64) {
        for job in &jobs {
            self.expect_in(attempt, job.id, now);
        }
        let asker = (self.me, attempt);
        if at != self.me {
            let offer = Offer { jobs, asker, next: Vec::new(), bids_until: None };
            return self.say(at, Message::Offer(offer), now);
        }
        match self.reserve_here(&jobs, asker, now) {
            true => jobs.iter().for_each(|job| self.settle(job.id, self.me, now)),
            false => jobs.iter().take(1).for_each(|job| self.give_up(job.id, now)),
        }
    }

    /// The nodes that can do parts, most time left first.
    fn places(&self, now: i64) -> Vec<usize> {
        let asks = |at: &usize| *at == self.me || self.setting.strategy != Strategy::Local;
        let mut places: Vec<usize> = (0..NODES).filter(|at| asks(at) && !self.lost[*at]).collect();
        let left = |at: usize| match at == self.me {
            true => self.hand.factor(now),
            false => self.reported_surplus(at, now),
        };
        places.sort_by_key(|at| -left(*at));
        places
    }

    /// With the last part the whole is reserved.
    pub(super) fn part_reserved(&mut self, id: TaskId, now: i64) {
        let id = TaskId { step: 0, ..id };
        let Some(whole) = self.apart.get_mut(&id) else { return };
        whole.open -= 1;
        if whole.open == 0 {
            self.tell_deputy(Message::Keep(id), now);
            self.tell(Out::Reserved(id));
        }
    }

    /// A part cannot be reserved: the others are released.
    pub(super) fn part_refused(&mut self, id: TaskId, now: i64) {
        let id = TaskId { step: 0, ..id };
        if self.apart.contains_key(&id) {
            self.cancel_parts(id, now);
            self.tell(Out::Revoked(id));
        }
    }

    pub(super) fn cancel_parts(&mut self, id: TaskId, now: i64) -> Option<Whole> {
        let whole = self.apart.remove(&id)?;
        for id in (1..=whole.count).map(|own| part(number(id), own as u32)) {
            let Some(asked) = self.asked.remove(&id) else { continue };
            match asked.at {
                Some(at) if at == self.me => self.hand.release(id, (at, asked.attempt)),
                Some(at) => self.say(at, Message::Cancel(id, asked.attempt), now),
                // It is cancelled when an answer comes.
                None => {}
            }
        }
        Some(whole)
    }

    /// Whether that was the last part of its task.
    pub(super) fn part_done(&mut self, id: TaskId) -> bool {
        let id = TaskId { step: 0, ..id };
        let Some(whole) = self.apart.get_mut(&id) else { return false };
        whole.left -= 1;
        whole.left == 0 && self.apart.remove(&id).is_some()
    }
}
