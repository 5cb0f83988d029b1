//! Time passes: what is worked on has less left, for the rest there is less time.
//!
//! Of what somebody does regularly nobody tells when it is begun or done. People do it by the plan: when it comes
//! first, the time is taken to be spent on it, also if something else was begun that can wait. When something comes
//! first that was promised and nobody has begun, nobody works by the plan, and nothing is taken to be done.
//!
//! Invariant: it comes to the same in how many steps time passes.

use legwork_model::time::Timestamp;

use super::{Discipline, Plan, Ticket, Window, key};
use crate::supply::Work;
use crate::timeline::Piece;

impl Plan {
    /// Time has passed. What is being worked on has less left; for the rest there is less time.
    pub fn pass(&mut self, now: Timestamp) {
        let now = self.supply.until(now).0;
        while self.now < now {
            let (to, at_work) = self.stretch(now);
            let worked = at_work.map(|piece| (piece.number, piece.cost.min(to - self.now)));
            self.now = to;
            self.release_due();
            if let Some((number, work)) = worked {
                self.worked(number, work);
            }
            self.let_go_of_regular_work();
            // What is done regularly goes on, whether or not somebody asks for something else.
            self.cover(to, to + self.loads.period_max(), Work(0));
        }
    }

    /// Up to where somebody goes on with the same, and with what.
    fn stretch(&self, end: i64) -> (i64, Option<Piece>) {
        if self.discipline == Discipline::NonPreemptive || !self.loads.has_unattended() {
            return (end, self.running);
        }
        let first = self.ready.first().and_then(|key| self.entries.get(&key.number));
        let by_plan = first.filter(|piece| self.loads.is_unattended(piece.number)).copied();
        let release = self.coming.first().map_or(i64::MAX, |(release, _)| *release);
        let done = by_plan.map_or(i64::MAX, |piece| self.now + piece.cost);
        (end.min(release).min(done), by_plan.or(self.running))
    }

    /// Something has so much less left.
    fn worked(&mut self, number: u64, work: i64) {
        if let Some(running) = self.running.as_mut().filter(|running| running.number == number) {
            running.cost -= work;
        }
        if let Some(piece) = self.entries.get_mut(&number) {
            // Somebody may begin before its time.
            let is_coming = piece.release > self.now;
            if let Some(later) = self.later.as_mut().filter(|_| is_coming) {
                later.remove(Piece { cost: work, ..*piece });
            }
            piece.cost -= work;
            let (key, left) = (key(piece), piece.cost);
            self.tree.remove(key);
            self.tree.insert(key, left);
        }
        self.loads.worked(number, work, self.now);
        if self.loads.is_over(number) {
            self.end(Ticket(number));
        }
    }

    fn release_due(&mut self) {
        if let Some(later) = &mut self.later {
            later.release(self.now);
        }
        while let Some((_, number)) =
            self.coming.first().copied().filter(|(release, _)| *release <= self.now)
        {
            self.coming.pop_first();
            if let Some(piece) = self.entries.get_mut(&number) {
                piece.release = self.now;
                self.ready.insert(key(piece));
            }
        }
        if self.coming.is_empty() {
            self.sequence = None;
        }
    }

    /// What was not done in its period has no more left than there is of it.
    fn let_go_of_regular_work(&mut self) {
        for piece in self.loads.unattended(self.now) {
            let left = piece.deadline - self.now;
            if left > 0 {
                self.take_out(piece.number);
                self.put_in(Piece { cost: left, ..piece });
                self.loads.left(piece.number, left);
            } else {
                self.end(Ticket(piece.number));
            }
        }
    }

    /// Somebody is looked at anew: what they do anyway, at some time in each window. What was taken to be done of it
    /// stays done.
    pub(crate) fn occupy_as_before(&mut self, jobs: &[(Window, Work)], before: &Self) {
        let mut done = before.loads.done_of().clone();
        for (window, cost) in jobs {
            let until = before.piece(*window, *cost).deadline;
            let is_begun = before.supply.until(window.release).0 <= before.now;
            let less = match done.get_mut(&until) {
                Some(done) if is_begun => {
                    std::mem::replace(done, (*done - cost.0).max(0)).min(cost.0)
                }
                Some(_) | None => 0,
            };
            self.occupy(*window, Work(cost.0 - less));
            let until = self.piece(*window, *cost).deadline;
            self.loads.note_done(until, less);
        }
    }
}
