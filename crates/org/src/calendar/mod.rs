//! Calendars: working time and regular tasks of people.
//!
//! An agent works whenever the local time of their zone is within their hours, on a day that is not closed,
//! while they are not absent. So an hour that daylight saving time skips is no working time, and an hour that
//! it repeats is worked twice.

mod cron;
mod mistake;
mod regular;
mod spans;
mod timetable;
mod week;
mod zone;

use std::time::Duration;

use legwork_model::id::AgentId;
use legwork_model::time::Timestamp;

pub(crate) use self::cron::Cron;
pub(crate) use self::mistake::Mistake;
pub(crate) use self::regular::When;
pub use self::regular::{Occurrence, Regular};
use self::spans::Stretch;
pub use self::timetable::Timetable;
pub use self::week::SPANS_PER_DAY_MAX;
pub(crate) use self::week::{Draft, Week, days, hours, short};
use self::zone::DAY_MS;
pub(crate) use self::zone::{UTC, Zone};
use crate::organisation::{Agent, Organisation};

/// The hours that several people share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Calendar {
    pub(crate) zone: Zone,
    week: Week,
    /// Closed days, counted from 1970, ascending; each end exclusive.
    closed: Vec<Stretch>,
}

/// The working time of one agent.
#[derive(Clone, Debug)]
pub struct WorkingTime<'o> {
    agent: &'o Agent,
    /// Without one, any hour is working time.
    calendar: Option<&'o Calendar>,
    /// Ascending by their beginning.
    away: Vec<Stretch>,
}

/// A stretch of working time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkSpan {
    pub from: Timestamp,
    /// Exclusive.
    pub to: Timestamp,
    /// The share of it, in per cent, that is available for planned work.
    pub share: u32,
}

impl Organisation {
    /// The working time of an agent; `None` for an agent who is not in the organisation.
    pub fn working_time(&self, agent: &AgentId) -> Option<WorkingTime<'_>> {
        let agent = self.agent(agent)?;
        let calendar = agent.calendar.as_ref().and_then(|name| self.calendar(name));
        let ends = |period: &crate::Absence| period.to.map_or(i64::MAX, |to| to.0);
        let mut away: Vec<Stretch> =
            agent.absent.iter().map(|period| period.from.0..ends(period)).collect();
        away.sort_unstable_by_key(|period| period.start);
        Some(WorkingTime { agent, calendar, away })
    }
}

impl Calendar {
    /// `closed` holds days counted from 1970; each end is exclusive.
    pub(crate) fn new(zone: Zone, week: Week, mut closed: Vec<Stretch>) -> Self {
        closed.sort_unstable_by_key(|days| days.start);
        let closed = spans::joined(closed.into_iter()).collect();
        Self { zone, week, closed }
    }

    fn open(&self, stretch: Stretch) -> impl Iterator<Item = Stretch> + '_ {
        let pieces = self.zone.steady(stretch).flat_map(|steady| {
            let ahead = steady.ahead;
            let wall = steady.stretch.start + ahead..steady.stretch.end + ahead;
            let past = |days: &Stretch| days.end * DAY_MS <= wall.start;
            let closed = &self.closed[self.closed.partition_point(past)..];
            let closed = closed.iter().map(|days| days.start * DAY_MS..days.end * DAY_MS);
            let open = spans::without(self.week.within(wall.clone()), closed);
            open.map(move |hours| hours.start - ahead..hours.end - ahead)
        });
        spans::joined(pieces)
    }
}

impl<'o> WorkingTime<'o> {
    /// The stretches of working time within these bounds, without appointments, during which nothing else is
    /// done. Ascending, with gaps between.
    pub fn spans_between_appointments(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> impl Iterator<Item = WorkSpan> + '_ {
        let fixed = self.agent.regularly.iter().filter(|regular| regular.is_fixed());
        let appointments = regular::merged(fixed, self.zone(), from.0..to.0);
        let appointments = appointments.map(|(_, stretch)| stretch);
        spans::without(self.stretches(from.0..to.0), appointments).map(|stretch| WorkSpan {
            from: Timestamp(stretch.start),
            to: Timestamp(stretch.end),
            share: self.agent.share,
        })
    }

    /// The occurrences within these bounds, or released before and not over, ascending by release time. There
    /// is no occurrence without working time for it, and none takes longer than the working time until its
    /// deadline.
    pub fn occurrences(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> impl Iterator<Item = Occurrence> + '_ {
        self.occurrences_of(|_| true, from.0..to.0)
    }

    /// The same without appointments, which can be many.
    pub fn occurrences_between_appointments(
        &self,
        from: Timestamp,
        to: Timestamp,
    ) -> impl Iterator<Item = Occurrence> + '_ {
        self.occurrences_of(|regular| !regular.is_fixed(), from.0..to.0)
    }

    fn occurrences_of(
        &self,
        counts: fn(&Regular) -> bool,
        bounds: Stretch,
    ) -> impl Iterator<Item = Occurrence> + '_ {
        let tasks = self.agent.regularly.iter().filter(move |regular| counts(regular));
        regular::merged(tasks, self.zone(), bounds).filter_map(|(regular, stretch)| {
            let fixed = regular.is_fixed();
            let worked: i64 =
                self.stretches(stretch.clone()).map(|span| span.end - span.start).sum();
            let share = if fixed { 100 } else { i64::from(self.agent.share) };
            let most = Duration::from_millis((worked * share / 100) as u64);
            let takes = regular.takes.min(most);
            (!takes.is_zero()).then(|| Occurrence {
                task: regular.task.clone(),
                release: Timestamp(stretch.start),
                deadline: Timestamp(stretch.end),
                takes,
                fixed,
            })
        })
    }

    fn stretches(&self, bounds: Stretch) -> impl Iterator<Item = Stretch> + '_ {
        let always = match self.calendar {
            None => Some(bounds.clone()).filter(|bounds| !bounds.is_empty()),
            Some(_) => None,
        };
        let hours =
            self.calendar.into_iter().flat_map(move |calendar| calendar.open(bounds.clone()));
        spans::without(always.into_iter().chain(hours), self.away.iter().cloned())
    }

    fn zone(&self) -> &Zone {
        self.calendar.map_or(&UTC, |calendar| &calendar.zone)
    }
}
