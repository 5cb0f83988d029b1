//! What a plan shows to those who look at it: when things are done, what is late, how much time is left.

use legwork_model::time::Timestamp;

use super::{Plan, Ticket, Times, Turn, key};
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

    /// The same with how late each will be, in working time. This is asked for often, and mostly nothing is.
    pub(crate) fn late(&mut self) -> Vec<(Ticket, i64)> {
        let begin = self.begin();
        if begin <= self.safe_until || (self.sums_tell_ends() && self.tree.least() >= begin) {
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
            None => self.timeline().ends(),
        };
        // Of what nothing is left nobody knows when it is done.
        ends.retain(|(piece, _)| self.entries.get(&piece.number).is_some_and(|it| it.cost > 0));
        if !self.sums_tell_ends() {
            let spare = ends.iter().map(|(piece, end)| piece.deadline - end).min();
            // Whatever is done meanwhile or not, nobody is later by more than the time that passes.
            self.safe_until = begin.saturating_add(spare.unwrap_or(i64::MAX));
        }
        let alone = self.running.map(|running| (running.number, self.now + running.cost));
        let lag = self.lag;
        let mut late: Vec<(Piece, i64)> = ends
            .into_iter()
            .filter(|(piece, _)| !self.loads.is_job(piece.number))
            // What waits is not in the way of what is being worked on.
            .map(|(piece, end)| match alone {
                Some((number, alone)) if number == piece.number => (piece, alone),
                Some(_) | None => (piece, end),
            })
            // Who is no further behind than may be is in time.
            .map(|(piece, end)| (piece, end - lag))
            .filter(|(piece, end)| *end > piece.deadline)
            .collect();
        late.sort_unstable_by_key(|(piece, _)| key(piece));
        late.into_iter().map(|(piece, end)| (Ticket(piece.number), end - piece.deadline)).collect()
    }

    /// Whether everything can be worked on: then it is done in the order of deadlines without a pause.
    fn sums_tell_ends(&self) -> bool {
        self.sequence.is_none() && self.coming.is_empty()
    }

    pub(super) fn is_endangered(&self) -> bool {
        let begin = self.begin();
        match &self.sequence {
            Some(sequence) => sequence.spare(begin) < 0,
            None => self.tree.least() < begin,
        }
    }

    /// When it is planned, at the latest.
    pub fn times(&mut self, ticket: Ticket) -> Option<Times> {
        let (piece, begin) = (*self.entries.get(&ticket.0)?, self.begin());
        let done = match &self.sequence {
            Some(sequence) => sequence.end_of(ticket.0, begin)?,
            // Whatever is due before it may come before it.
            None if piece.release <= self.now => begin + self.tree.up_to(key(&piece))?,
            None => self.timeline().end_of(piece)?,
        };
        let end = done.max(piece.release + piece.cost).min(piece.deadline) + self.lag;
        let start = (end - piece.cost).max(piece.release);
        let (start, end) = (self.supply.begin(Work(start))?, self.supply.moment(Work(end))?);
        Some(Times { start, end: end.max(start) })
    }

    /// Who works when, for people to look at.
    pub fn turns(&self) -> Vec<Turn> {
        let begin = self.begin();
        let running = self.running.filter(|running| !self.entries.contains_key(&running.number));
        let running = match running.map(|piece| piece.number) {
            Some(number) => Some((self.now, begin, number)),
            // What is not in the plan has no number.
            None => (self.busy > self.now).then_some((self.now, self.busy, 0)),
        };
        let line: Vec<(i64, i64, u64)> = match &self.sequence {
            Some(sequence) => {
                let turns = sequence.turns(begin);
                turns.map(|(piece, from, to)| (from, to, piece.number)).collect()
            }
            None => {
                let all = self.entries.values().copied();
                let line = Timeline::new(all, begin, self.discipline);
                line.turns().map(|(from, turn)| (from, turn.to, turn.piece.number)).collect()
            }
        };
        let all: Vec<_> = running.into_iter().chain(line).collect();
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
    /// and all that is promised for it is taken away. May be negative.
    pub fn surplus(&self, until: Timestamp) -> Work {
        self.surplus_until(self.supply.until(until).0)
    }

    fn surplus_until(&self, end: i64) -> Work {
        let window = (end - self.now).max(0);
        let promised = self.tree.cost_until(end) - self.loads.repeated_until(end);
        Work(window - self.loads.within(window) - promised)
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
