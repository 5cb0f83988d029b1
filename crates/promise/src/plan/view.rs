//! What a plan shows to those who look at it: when things are done, what is late, how much time is left.

use legwork_model::time::Timestamp;

use super::{Plan, Ticket, Times, Turn, key};
use crate::supply::Work;
use crate::timeline::Timeline;

/// The least time that is looked at to see how much of it is left.
const PROSPECT: i64 = 1_000;

impl Plan {
    /// Those that will be late although nothing has taken longer than said: time has passed in which
    /// the resource did not work, or does not work any more.
    pub fn endangered(&self) -> Vec<Ticket> {
        let begin = self.begin();
        let late: Vec<u64> = match &self.sequence {
            Some(sequence) => sequence.late(&self.entries, begin).collect(),
            None => self.tree.late(begin).into_iter().map(|key| key.number).collect(),
        };
        late.into_iter().filter(|number| !self.loads.is_job(*number)).map(Ticket).collect()
    }

    /// How late it will be in working time if nothing changes; less than nothing if it is in time.
    pub(crate) fn late_by(&self, ticket: Ticket) -> Option<i64> {
        let (piece, begin) = (self.entries.get(&ticket.0)?, self.begin());
        let end = match &self.sequence {
            Some(sequence) => {
                let mut turns = sequence.turns(&self.entries, begin);
                turns.find(|(of, _, _)| of.number == ticket.0)?.2
            }
            None => begin + self.tree.up_to(key(piece))?,
        };
        Some(end - piece.deadline)
    }

    pub(super) fn is_endangered(&self) -> bool {
        let begin = self.begin();
        match &self.sequence {
            Some(sequence) => sequence.late(&self.entries, begin).next().is_some(),
            None => self.tree.least() < begin,
        }
    }

    /// When it is planned, at the latest.
    pub fn times(&mut self, ticket: Ticket) -> Option<Times> {
        let (piece, begin) = (*self.entries.get(&ticket.0)?, self.begin());
        let done = match &self.sequence {
            Some(sequence) => {
                let mut turns = sequence.turns(&self.entries, begin);
                turns.find(|(of, _, _)| of.number == ticket.0)?.2
            }
            // Whatever is due before it may come before it.
            None if piece.release <= self.now => begin + self.tree.up_to(key(&piece))?,
            None => self.timeline().end_of(piece)?,
        };
        let end = done.max(piece.release + piece.cost).min(piece.deadline);
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
            None => self.is_occupied().then_some((self.now, begin, 0)),
        };
        let line: Vec<(i64, i64, u64)> = match &self.sequence {
            Some(sequence) => {
                let turns = sequence.turns(&self.entries, begin);
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
        let promised = self.tree.cost_until(end) - self.loads.cost_until(end);
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
