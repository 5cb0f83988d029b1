//! What is being worked on.
//!
//! Whoever can put work aside works on what is due first of all they have begun. What cannot be put aside is finished,
//! one after the other as it was begun: whoever was given something has it, also if it has to wait for what was begun
//! before. Nothing else comes between.

use super::{Discipline, Plan, Ticket, key};
use crate::supply::Work;
use crate::timeline::Piece;

impl Plan {
    /// Somebody works on it from now on. Whoever can put work aside works on what is due first of all they have
    /// begun, and goes on with the others after it: nobody tells when.
    pub fn begin_with(&mut self, ticket: Ticket) {
        let Some(piece) = self.entries.get(&ticket.0).copied() else { return };
        match self.discipline {
            Discipline::Preemptive => {
                self.begun.insert(key(&piece));
                self.go_on();
            }
            Discipline::NonPreemptive => {
                self.take_out(piece.number);
                self.behind.push_back(piece);
                if self.running.is_none() {
                    self.go_on();
                }
            }
        }
    }

    /// The next that was begun is being worked on.
    fn go_on(&mut self) {
        self.running = match self.discipline {
            Discipline::Preemptive => {
                let first = self.begun.first().and_then(|key| self.entries.get(&key.number));
                first.copied()
            }
            Discipline::NonPreemptive => self.behind.pop_front(),
        };
    }

    /// It is done, or not wanted any more; false if it is not in the plan.
    pub fn end(&mut self, ticket: Ticket) -> bool {
        self.aside.remove(&ticket.0);
        let was_at_hand = self.goes_on_with(ticket);
        if self.running.take_if(|running| running.number == ticket.0).is_some() {
            self.free_since = self.now;
        }
        self.behind.retain(|piece| piece.number != ticket.0);
        self.loads.done(ticket.0);
        let was_here = self.take_out(ticket.0) || was_at_hand;
        if self.running.is_none() {
            self.go_on();
        }
        was_here
    }

    /// Nobody counts on it any more. Whoever works on it and cannot put it aside goes on, and is not free before; answers
    /// whether that is so.
    pub(crate) fn give_up(&mut self, ticket: Ticket) -> bool {
        let left = self.at_hand().map(|(piece, _)| piece).find(|piece| piece.number == ticket.0);
        self.end(ticket);
        // What else was begun counts by itself.
        if let Some(Piece { cost, .. }) = left {
            self.busy = self.busy.max(self.now) + cost;
        }
        left.is_some()
    }

    /// What was being worked on is put aside, with what is left of it.
    pub fn stop(&mut self) {
        self.begun.clear();
        if self.running.is_some() {
            self.free_since = self.now;
        }
        let begun = self.running.take().into_iter().chain(std::mem::take(&mut self.behind));
        let own = begun.filter(|piece| !self.entries.contains_key(&piece.number));
        for piece in own.collect::<Vec<_>>() {
            self.put_in(piece);
        }
    }

    /// What was begun and cannot be put aside, and when each is done. It is not among what waits.
    pub(super) fn at_hand(&self) -> impl Iterator<Item = (Piece, i64)> {
        let running = self.running.filter(|_| self.discipline == Discipline::NonPreemptive);
        let mut at = self.busy.max(self.now) + running.map_or(0, |running| running.cost);
        let behind = self.behind.iter().map(move |piece| {
            at += piece.cost;
            (*piece, at)
        });
        running.map(|running| (running, self.now + running.cost)).into_iter().chain(behind)
    }

    /// Whether it was begun and cannot be put aside.
    pub(crate) fn goes_on_with(&self, ticket: Ticket) -> bool {
        self.at_hand().any(|(piece, _)| piece.number == ticket.0)
    }

    /// How much of it is left to do.
    pub fn left(&self, ticket: Ticket) -> Option<Work> {
        let at_hand = self.at_hand().map(|(piece, _)| piece).find(|it| it.number == ticket.0);
        let piece = at_hand.or_else(|| self.entries.get(&ticket.0).copied())?;
        Some(Work(piece.cost))
    }

    pub fn running(&self) -> Option<Ticket> {
        self.running.map(|running| Ticket(running.number))
    }

    /// All that was begun, what is being worked on first.
    pub(crate) fn begun(&self) -> impl Iterator<Item = Ticket> {
        let others = self.begun.iter().map(|key| key.number);
        let others = others.filter(|number| self.running() != Some(Ticket(*number)));
        let behind = self.behind.iter().map(|piece| piece.number);
        self.running().into_iter().chain(behind.chain(others).map(Ticket))
    }

    /// Whether somebody has begun to work on it.
    pub fn is_begun(&self, ticket: Ticket) -> bool {
        let piece = self.entries.get(&ticket.0);
        self.goes_on_with(ticket) || piece.is_some_and(|it| self.begun.contains(&key(it)))
    }
}
