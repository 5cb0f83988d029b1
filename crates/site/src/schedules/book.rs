//! The schedules there are, and which moment of which is to be started next.
//!
//! Invariant: of each schedule one start is under way at a time, for the latest moment that has passed; whatever
//! passed before it is over. A moment that is over never comes up again. What is said of another moment than the one
//! under way is heard, and changes nothing about that one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use legwork_model::event::{Fired, Period, ScheduleEvent, SchedulePut};
use legwork_model::time::Timestamp;
use legwork_org::Timetable;

use crate::retries::Backoff;

/// How many starts are under way at a time; the others wait. The driver that carries them out has room for these.
pub const STARTS_MAX: usize = 64;
/// What the keys of periodic starts begin with, and no others.
pub const KEY_OF_SCHEDULE: &str = "schedule:";
/// After how long a start is asked for again of which nothing was heard.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a start waits that did not come through, at first and at most.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) said: SchedulePut,
    pub(crate) put_at: Timestamp,
    pub(crate) is_paused: bool,
    /// The last moment of which something came, and what.
    pub(crate) last: Option<(Timestamp, Fired)>,
    table: Timetable,
    /// Moments up to this one are over.
    since: Timestamp,
    /// The first one after that.
    next: Option<Timestamp>,
    /// What was taken up last, as long as nothing came of it.
    taken: Option<Taken>,
    /// It did not come through: nothing before this.
    not_before: Timestamp,
    attempts: u32,
    place: Option<Place>,
}

#[derive(Debug)]
struct Taken {
    moment: Timestamp,
    /// Why it has not come through so far.
    reason: String,
    is_under_way: bool,
}

/// Where a schedule stands, and when it is to be looked at there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    InLine(Timestamp),
    UnderWay(Timestamp),
}

#[derive(Debug, Default)]
pub(crate) struct Book {
    all: BTreeMap<Arc<str>, Schedule>,
    /// Those of which nothing is under way, by when they are to be looked at.
    line: BTreeSet<(Timestamp, Arc<str>)>,
    /// The others, by when word of them is waited for no longer.
    under_way: BTreeSet<(Timestamp, Arc<str>)>,
}

/// A moment that is to be started.
#[derive(Debug)]
pub(crate) struct TakenUp<'a> {
    pub(crate) schedule: &'a Schedule,
    pub(crate) moment: Timestamp,
    /// The one before it was tried until this one came.
    pub(crate) missed: Option<ScheduleEvent>,
}

/// The moments of a schedule that was put at this one.
pub(crate) fn timetable(period: &Period, put_at: Timestamp) -> Result<Timetable, String> {
    match period {
        Period::Cron { text, zone } => Timetable::cron(text, Some(zone)),
        Period::Every { ms } => {
            // Whole seconds are nicer to read.
            let from = Timestamp(put_at.0 - put_at.0.rem_euclid(1_000));
            Ok(Timetable::every(Duration::from_millis(*ms), from))
        }
    }
}

/// What makes the start of a moment the same start, however often it is asked for.
pub(crate) fn key(name: &str, moment: Timestamp) -> String {
    format!("{KEY_OF_SCHEDULE}{name}@{moment}")
}

impl Book {
    pub(crate) fn named(&self, name: &str) -> Option<&Schedule> {
        self.all.get(name)
    }

    /// Those after the given one, by name.
    pub(crate) fn list(&self, after: Option<&str>) -> impl Iterator<Item = &Schedule> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.all.range::<str, _>((from, Bound::Unbounded)).map(|(_, schedule)| schedule)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// One that was put begins anew, but stays paused if it was.
    pub(crate) fn put(&mut self, said: SchedulePut, put_at: Timestamp) -> Result<(), String> {
        let table = timetable(&said.period, put_at)?;
        let name = said.name.clone();
        let is_paused = self.all.get(&name).is_some_and(|before| before.is_paused);
        self.remove(&name);
        let next = table.next(put_at);
        let schedule = Schedule {
            said,
            put_at,
            is_paused,
            last: None,
            table,
            since: put_at,
            next,
            taken: None,
            not_before: put_at,
            attempts: 0,
            place: None,
        };
        self.all.insert(name.clone(), schedule);
        self.line_up(&name, None);
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(Schedule { place: Some(place), said, .. }) = self.all.remove(name) {
            self.leave(place, said.name);
        }
    }

    /// What passes while it is paused is over, and so is what was under way.
    pub(crate) fn pause(&mut self, name: &str, is_paused: bool, at: Timestamp) {
        if let Some(schedule) = self.all.get_mut(name) {
            schedule.is_paused = is_paused;
            schedule.taken = None;
            (schedule.not_before, schedule.attempts) = (at, 0);
            schedule.pass(at);
        }
        self.line_up(name, None);
    }

    /// When something may be due.
    pub(crate) fn next_look(&self) -> Option<Timestamp> {
        let has_room = self.under_way.len() < STARTS_MAX;
        let line = self.line.first().filter(|_| has_room);
        line.into_iter().chain(self.under_way.first()).map(|(look, _)| *look).min()
    }

    /// Takes up the moment that is due next; the driver that starts it reports the outcome.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<TakenUp<'_>> {
        self.give_up_waiting(now);
        if self.under_way.len() >= STARTS_MAX {
            return None;
        }
        let (_, name) = self.line.first().filter(|(look, _)| *look <= now)?.clone();
        let schedule = self.all.get_mut(&name)?;
        let moment = schedule.latest(now)?;
        let taken = Taken { moment, reason: String::new(), is_under_way: true };
        let before = schedule.taken.replace(taken).filter(|before| before.moment < moment);
        let missed = before.map(|Taken { moment, reason, .. }| ScheduleEvent::Fired {
            name: name.clone(),
            moment,
            outcome: Fired::Missed { reason },
        });
        self.line_up(&name, Some(now + PATIENCE));
        Some(TakenUp { schedule: self.all.get(&name)?, moment, missed })
    }

    /// Whether the start of this moment is the one under way.
    pub(crate) fn is_wanted(&self, name: &str, moment: Timestamp) -> bool {
        let taken = self.all.get(name).and_then(|schedule| schedule.taken.as_ref());
        taken.is_some_and(|taken| taken.is_under_way && taken.moment == moment)
    }

    /// What came of a start. False if that is known, or of one that was put before.
    pub(crate) fn note(&mut self, event: &ScheduleEvent) -> bool {
        let ScheduleEvent::Fired { name, moment, outcome } = event;
        let Some(schedule) = self.all.get_mut(name) else { return false };
        let is_news = match &schedule.last {
            None => *moment > schedule.put_at,
            // It was given up too early.
            Some((last, Fired::Missed { .. })) if last == moment => {
                !matches!(outcome, Fired::Missed { .. })
            }
            Some((last, _)) => moment > last,
        };
        if !is_news {
            return false;
        }
        schedule.last = Some((*moment, outcome.clone()));
        schedule.pass(*moment);
        // A later one that is under way, or is to be tried again, remains so.
        let later = schedule.taken.as_ref().filter(|taken| taken.moment > *moment);
        if later.is_none() {
            schedule.taken = None;
            (schedule.not_before, schedule.attempts) = (*moment, 0);
            self.line_up(name, None);
        }
        true
    }

    /// It did not come through: the same moment is tried again, or the next if that has come.
    pub(crate) fn put_off(&mut self, name: &str, moment: Timestamp, reason: &str, now: Timestamp) {
        if !self.is_wanted(name, moment) {
            return;
        }
        if let Some(schedule) = self.all.get_mut(name) {
            schedule.not_before = now + BACKOFF.after(schedule.attempts);
            schedule.attempts += 1;
            let reason = reason.to_owned();
            schedule.taken = Some(Taken { moment, reason, is_under_way: false });
        }
        self.line_up(name, None);
    }

    /// What has to be kept so that `note` makes the same of it.
    pub(crate) fn events(&self) -> Vec<ScheduleEvent> {
        let lasts = self.all.iter().filter_map(|(name, schedule)| {
            let (moment, outcome) = schedule.last.clone()?;
            Some(ScheduleEvent::Fired { name: name.clone(), moment, outcome })
        });
        lasts.collect()
    }

    /// Those of which nothing was heard for long are in line again, behind others that wait already.
    fn give_up_waiting(&mut self, now: Timestamp) {
        while let Some((until, name)) = self.under_way.first().filter(|(until, _)| *until <= now) {
            let (until, name) = (*until, name.clone());
            if let Some(schedule) = self.all.get_mut(&name) {
                schedule.not_before = until;
                if let Some(taken) = &mut schedule.taken {
                    taken.is_under_way = false;
                    taken.reason = format!("nothing was heard of it for {} s", PATIENCE.as_secs());
                }
            }
            self.line_up(&name, None);
        }
    }

    /// Puts a schedule where it belongs: to those under way until then, or in line.
    fn line_up(&mut self, name: &str, under_way: Option<Timestamp>) {
        let Some(schedule) = self.all.get_mut(name) else { return };
        let look = || schedule.next().map(|next| Place::InLine(next.max(schedule.not_before)));
        let place = under_way.map(Place::UnderWay).or_else(look);
        let (name, before) = (schedule.said.name.clone(), schedule.place);
        if place == before {
            return;
        }
        schedule.place = place;
        if let Some(before) = before {
            self.leave(before, name.clone());
        }
        match place {
            Some(Place::InLine(look)) => drop(self.line.insert((look, name))),
            Some(Place::UnderWay(until)) => drop(self.under_way.insert((until, name))),
            None => {}
        }
    }

    fn leave(&mut self, place: Place, name: Arc<str>) {
        match place {
            Place::InLine(look) => self.line.remove(&(look, name)),
            Place::UnderWay(until) => self.under_way.remove(&(until, name)),
        };
    }
}

impl Schedule {
    /// The moment that comes next; `None` while it is paused.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.next.filter(|_| !self.is_paused)
    }

    /// Moments up to this one are over.
    fn pass(&mut self, moment: Timestamp) {
        self.since = self.since.max(moment);
        if self.next.is_some_and(|next| next <= self.since) {
            self.next = self.table.next(self.since);
        }
    }

    /// The last moment that has come and is not over. As a rule that is the next one, and it is looked for no further.
    fn latest(&self, now: Timestamp) -> Option<Timestamp> {
        let next = self.next.filter(|next| *next <= now)?;
        match self.table.next(next) {
            Some(after) if after <= now => self.table.latest(next, now).or(Some(after)),
            Some(_) | None => Some(next),
        }
    }
}

#[cfg(test)]
mod tests;
