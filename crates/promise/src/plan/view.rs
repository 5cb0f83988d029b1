//! What a plan shows to those who look at it: when things are done, what is late, how much time is left.

use legwork_model::time::Timestamp;

use super::{Discipline, Plan, Ticket, Times, Turn, key};
use crate::supply::Work;
use crate::timeline::{Piece, Timeline};

/// The least time that is looked at to see how much of it is left.
const PROSPECT: i64 = 1_000;

impl Plan {
    /// Those that will be late although nothing has taken longer than said: time has passed in which
    /// the resource did not work, or does not work any more. In the order of deadlines.
    pub fn endangered(&mut self) -> Vec<Ticket> {
        self.late().into_iter().map(|(ticket, _)| ticket).collect()
    }

    /// Whether what is begun is put aside for what is due sooner.
    pub(crate) fn is_preemptive(&self) -> bool {
        self.discipline == Discipline::Preemptive
    }

    /// The same with how late each will be, in working time.
    pub(crate) fn late(&mut self) -> Vec<(Ticket, i64)> {
        let mut late = self.late_of_waiting();
        // What was begun and cannot be put aside waits for nobody, and its resource may work less than it did. What takes longer
        // than was said takes the resource for longer as well: it is not done before that is free.
        let free = self.busy.max(self.now);
        let begun = self.at_hand();
        let end = |piece: &Piece, end: i64| if piece.cost > 0 { end } else { end.max(free) };
        let begun = begun.map(|(piece, at)| (piece, end(&piece, at)));
        late.extend(begun);
        late.retain(|(piece, _)| !self.loads.is_job(piece.number));
        // Who is no further behind than may be is in time.
        late.retain(|(piece, end)| end - self.lag > piece.deadline);
        late.sort_unstable_by_key(|(piece, _)| key(piece));
        let by = |piece: &Piece, end: i64| end - self.lag - piece.deadline;
        late.iter().map(|(piece, end)| (Ticket(piece.number), by(piece, *end))).collect()
    }

    /// Whether no working time is left before it is due by the clock.
    pub(crate) fn is_past_due(&self, ticket: Ticket) -> bool {
        let at_hand = self.at_hand().map(|(piece, _)| piece).find(|it| it.number == ticket.0);
        let piece = at_hand.or_else(|| self.entries.get(&ticket.0).copied());
        piece.is_some_and(|piece| piece.deadline + self.lag <= self.now)
    }

    /// What waits, if some of it is late, and when it is done. This is asked for often, and mostly nothing is.
    fn late_of_waiting(&mut self) -> Vec<(Piece, i64)> {
        let begin = self.begin();
        if begin <= self.safe_until || (self.sums_tell_ends() && self.tree.least() >= begin) {
            return Vec::new();
        }
        if self.is_in_time() {
            // As time passes the sums have less to spare, and nothing else does.
            self.safe_until = self.tree.least();
            return Vec::new();
        }
        let spare = self.sequence.as_ref().map(|sequence| sequence.spare(begin));
        if let Some(spare) = spare.filter(|spare| *spare >= 0) {
            self.safe_until = begin.saturating_add(spare);
            return Vec::new();
        }
        let mut ends: Vec<(Piece, i64)> = match &self.sequence {
            Some(sequence) => sequence.turns(begin).map(|(it, _, to)| (it, to)).collect(),
            None if self.sums_tell_ends() => {
                let late = self.tree.late(begin).into_iter();
                let late = late.filter_map(|key| {
                    let end = begin + self.tree.up_to(key)?;
                    Some((*self.entries.get(&key.number)?, end))
                });
                late.collect()
            }
            None => self.line().ends(),
        };
        // Of what nothing is left nobody knows when it is done.
        ends.retain(|(piece, _)| self.entries.get(&piece.number).is_some_and(|it| it.cost > 0));
        if !self.sums_tell_ends() {
            let spare = ends.iter().map(|(piece, end)| piece.deadline - end).min();
            // Whatever is done meanwhile or not, nobody is later by more than the time that passes. Who is late by now may stay
            // so however soon somebody is free.
            let spare = spare.unwrap_or(i64::MAX);
            self.safe_until = if spare < 0 { i64::MIN } else { begin.saturating_add(spare) };
        }
        let alone = self.running.map(|running| (running.number, self.now + running.cost));
        // What waits is not in the way of what is being worked on.
        let end = |(piece, end): (Piece, i64)| match alone {
            Some((number, alone)) if number == piece.number => (piece, alone),
            Some(_) | None => (piece, end),
        };
        ends.into_iter().map(end).collect()
    }

    /// Whether everything can be worked on: then it is done in the order of deadlines without a pause.
    fn sums_tell_ends(&self) -> bool {
        self.sequence.is_none() && self.coming.is_empty()
    }

    /// Whether everything that can be put aside is done in time: all of it by the sums, and what is released later by
    /// itself ([`Self::piece_fits`]).
    fn is_in_time(&mut self) -> bool {
        self.discipline == Discipline::Preemptive
            && self.tree.least() >= self.begin()
            && self.later().is_in_time()
    }

    /// Whether all that waits or can be put aside is done in time.
    pub(crate) fn is_all_in_time(&mut self) -> bool {
        match self.discipline {
            Discipline::Preemptive => self.is_in_time(),
            Discipline::NonPreemptive => !self.is_endangered(),
        }
    }

    pub(super) fn is_endangered(&self) -> bool {
        let begin = self.begin();
        match &self.sequence {
            Some(sequence) => sequence.spare(begin) < 0,
            None => self.tree.least() < begin,
        }
    }

    /// When it is planned, at the latest; of what was begun and cannot be put aside, when the rest of it is.
    pub fn times(&mut self, ticket: Ticket) -> Option<Times> {
        if let Some((piece, end)) = self.at_hand().find(|(piece, _)| piece.number == ticket.0) {
            return self.times_between(end - piece.cost, end + self.lag);
        }
        let (piece, begin) = (*self.entries.get(&ticket.0)?, self.begin());
        let done = match &self.sequence {
            Some(sequence) => sequence.end_of(ticket.0, begin)?,
            // Whatever is due before it may come before it.
            None if piece.release <= self.now => begin + self.tree.up_to(key(&piece))?,
            None => self.end_of_later(piece)?,
        };
        let end = done.max(piece.release + piece.cost).min(piece.deadline) + self.lag;
        self.times_between((end - piece.cost).max(piece.release), end)
    }

    fn times_between(&self, start: i64, end: i64) -> Option<Times> {
        let (start, end) = (self.supply.begin(Work(start))?, self.supply.moment(Work(end))?);
        Some(Times { start, end: end.max(start) })
    }

    /// When something is done that is not released yet, in the order of everything, of which only what is due before it
    /// matters.
    fn end_of_later(&mut self, piece: Piece) -> Option<i64> {
        let all = self.begin() + self.tree.up_to(key(&piece))?;
        let later = self.later();
        match later.kept_line() {
            Some(line) => {
                let with_pause = line.end_of(piece)?;
                Some(self.end_by_line(piece, with_pause, all))
            }
            None => later.end_by_grid(piece, all),
        }
    }

    /// The same by the order of what is released later. If there is a pause before its end, what can be begun now is done
    /// by then, and it ends as it would with nothing else than what is released later. If there is none, it ends when
    /// all is done that is released before that end. Neither is ever too late, so the later of them is right. This
    /// looks at all that is released in its window, and at nothing of the backlog.
    fn end_by_line(&self, piece: Piece, with_pause: i64, mut end: i64) -> i64 {
        if end <= with_pause {
            return with_pause;
        }
        let behind = self.coming.range((piece.release + 1, 0)..);
        let behind = behind.take_while(|(release, _)| *release <= piece.deadline);
        let behind = behind.filter_map(|(_, number)| self.entries.get(number));
        let behind: Vec<&Piece> = behind.filter(|other| key(other) < key(&piece)).collect();
        end -= behind.iter().map(|other| other.cost).sum::<i64>();
        for other in behind {
            if other.release >= end {
                break;
            }
            end += other.cost;
        }
        with_pause.max(end)
    }

    /// Everything in order.
    fn line(&self) -> Timeline {
        Timeline::new(self.entries.values().copied(), self.begin(), self.discipline)
    }

    /// Who works when, for people to look at.
    pub fn turns(&self) -> Vec<Turn> {
        let begin = self.begin();
        let at_hand = self.at_hand().map(|(piece, end)| (end - piece.cost, end, piece.number));
        let mut at_hand: Vec<(i64, i64, u64)> = at_hand.collect();
        if at_hand.is_empty() && self.is_occupied() {
            // What is not in the plan has no number.
            at_hand.push((self.now, self.busy, 0));
        }
        let line: Vec<(i64, i64, u64)> = match &self.sequence {
            Some(sequence) => {
                let turns = sequence.turns(begin);
                turns.map(|(piece, from, to)| (from, to, piece.number)).collect()
            }
            None => {
                let line = self.line();
                line.turns().map(|(from, turn)| (from, turn.to, turn.piece.number)).collect()
            }
        };
        let all: Vec<_> = at_hand.into_iter().chain(line).collect();
        let turn = |(from, to, number)| {
            Some(Turn {
                ticket: (number > 0 && !self.loads.is_job(number)).then_some(Ticket(number)),
                is_regular: self.loads.is_job(number),
                from: self.supply.begin(Work(from))?,
                to: self.supply.moment(Work(to))?,
            })
        };
        all.into_iter().filter_map(turn).collect()
    }

    /// Equation (1): what is left of the working time up to a moment when all that is done regularly
    /// and all that is promised for it is taken away, and what has to be finished first. May be negative.
    pub fn surplus(&self, until: Timestamp) -> Work {
        self.surplus_until(self.supply.until(until).0)
    }

    fn surplus_until(&self, end: i64) -> Work {
        let window = (end - self.now).max(0);
        let promised = self.tree.cost_until(end) - self.loads.repeated_until(end);
        let begun = (self.begin() - self.now).min(window);
        Work(window - self.loads.within(window) - promised - begun)
    }

    /// The time up to the latest promise, and what is left of it.
    pub(crate) fn prospect(&self) -> (Work, Work) {
        // With nothing promised, any time shows which part of it regular work leaves.
        let end = self.furthest.max(self.now + PROSPECT);
        (Work(end - self.now), self.surplus_until(end))
    }

    /// How much working time there is up to a moment.
    pub(crate) fn time_until(&self, moment: Timestamp) -> Work {
        Work(self.supply.until(moment).0 - self.now)
    }
}
